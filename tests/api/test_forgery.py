"""Cursors, tokens and names that were made up or altered reach nothing that their bearer may not see."""

import base64
import json

import pytest

from tests.api.service import Service, made, problem

HIDDEN = ("aaa-secret", "mmm-secret", "zzz-secret")


@pytest.fixture(scope="module")
def crowded(shared: Service) -> Service:
    """Datasets of several names, of which one token sees two."""
    for name in (*HIDDEN, "bbb-mine", "yyy-mine"):
        shared.open(name)
        for number in range(3):
            made(shared.authorize({"mechanism": "zcdp", "rho": 0.001 * number}, dataset=name))
    return shared


@pytest.fixture(scope="module")
def limited(crowded: Service) -> Service:
    return crowded.make_token("read", datasets=["bbb-mine", "yyy-mine"])


def cursor(text: str) -> str:
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def names(service: Service, **query: object) -> list[str]:
    return [each["name"] for each in service.shown("/v1/datasets", **query)["items"]]


def test_a_cursor_of_one_token_shows_another_nothing_more(crowded: Service, limited: Service) -> None:
    theirs = crowded.shown("/v1/datasets", limit=1)["next"]
    assert names(limited, next=theirs, limit=10) == ["bbb-mine", "yyy-mine"]
    for text in ("", "a", *HIDDEN, "zzzz", "yyy-mine", "%", "_", "' OR '1'='1"):
        found = limited.get("/v1/datasets", next=cursor(text), limit=10)
        assert "secret" not in found.text


def test_a_cursor_of_one_dataset_shows_nothing_of_it_in_another(crowded: Service, limited: Service) -> None:
    secret = crowded.shown("/v1/datasets/mmm-secret/entries", limit=1)["next"]
    found = limited.shown("/v1/datasets/bbb-mine/entries", next=secret)
    assert found == crowded.shown("/v1/datasets/bbb-mine/entries", next=secret)
    assert {each["id"].partition("~")[0] for each in found["items"]} == {"bbb-mine"}
    problem(limited.get("/v1/datasets/mmm-secret/entries", next=secret), 403, "forbidden")


@pytest.mark.parametrize(
    "altered", ["!!!", "=", "AA==", "____", "é", "a" * 5000, "\0", cursor("-1"), cursor("1e3"), cursor("٣")]
)
@pytest.mark.parametrize("what", ["entries", "partitions", "reservations", "runs"])
def test_an_altered_cursor_is_refused_or_leads_past_what_is_there(
    crowded: Service, what: str, altered: str
) -> None:
    answer = crowded.get(f"/v1/datasets/bbb-mine/{what}", next=altered)
    if answer.status_code != 200:
        assert problem(answer, 422, "invalid-input")["field"] == "next"
    else:
        assert "secret" not in answer.text


@pytest.mark.parametrize("length", [1, 2, 10, 26, 51])
def test_a_beginning_of_a_token_is_no_token(crowded: Service, length: int) -> None:
    """Neither of its secret nor of its id; nor is anything that begins with it."""
    head, own, secret = crowded.token.split("_")
    other = "b" if secret[-1] == "a" else "a"
    for forged in (
        f"{head}_{own}_{secret[:length]}",
        f"{head}_{own[: min(length, len(own) - 1)]}_{secret}",
        f"{head}_{own}_{secret}{secret[:length]}",
        f"{head}_{own}_{secret[:length]}{other * (len(secret) - length)}",
    ):
        problem(crowded.as_bearer(forged).get("/v1/datasets"), 401, "unauthenticated")
        problem(crowded.as_bearer(forged).authorize(dataset="bbb-mine"), 401, "unauthenticated")


@pytest.mark.parametrize("injected", ["a\r\nSet-Cookie: x=1", "a\nX-Evil: 1", "a\rb", "a\0b", "\u2028"])
def test_a_line_end_in_a_name_reaches_no_header(crowded: Service, injected: str) -> None:
    """Names and notes hold no line ends; where prose may, it stands in JSON alone."""
    run = crowded.post(
        "/v1/datasets/bbb-mine/authorizations",
        {"run": injected, "releases": [{"mechanism": "zcdp", "rho": 0.0}]},
    )
    opened = crowded.post("/v1/datasets", {"name": injected, "budget": {"accounting": "zcdp", "rho": 1.0}})
    token = crowded.post("/v1/tokens", {"scopes": ["read"], "description": injected})
    for answer in (run, opened):
        problem(answer, 422, "invalid-input")
    for answer in (run, opened, token, crowded.get("/v1/datasets", search=injected)):
        assert "set-cookie" not in answer.headers
        assert "x-evil" not in answer.headers
        assert json.loads(answer.content)


@pytest.mark.parametrize(
    "path",
    [
        "/docs/..%2f..%2fapp.py",
        "/docs/%2e%2e%2fapp.py",
        "/docs/../api/app.py",
        "/docs/%2e%2e%5capp.py",
        "/docs/swagger-ui.css%00.py",
        "/docs//etc/passwd",
    ],
)
def test_no_file_beside_the_pages_own_is_served(crowded: Service, path: str) -> None:
    answer = crowded.client.get(path)
    problem(answer, 404, "not-found")
    assert "import" not in answer.text
