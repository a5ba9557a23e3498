"""Tokens over HTTP: scopes, dataset lists, expiry, revocation."""

from time import monotonic
from typing import Any

import pytest

from dpledger.api.schemas.responses import TokenMadeAnswer, TokenPage
from dpledger.auth import gatekeeper
from tests.api.service import GAUSSIAN, ZCDP, Service, made, problem

COSTS = {"releases": [GAUSSIAN], "adjacency": "add-remove"}


def test_a_token_is_made_listed_and_revoked(service: Service) -> None:
    body = made(
        service.post("/v1/tokens", {"scopes": ["spend"], "datasets": ["adult"], "description": "job 7"})
    )

    TokenMadeAnswer.model_validate(body)
    assert body["token"].startswith(f"dpl_{body['id']}_")
    listed = service.shown("/v1/tokens")
    TokenPage.model_validate(listed)
    assert {item["id"] for item in listed["items"]} == {body["id"], service.token.split("_")[1]}
    assert body["token"].split("_")[2] not in str(listed)
    assert service.delete(f"/v1/tokens/{body['id']}").status_code == 204
    (revoked,) = [item for item in service.shown("/v1/tokens")["items"] if item["id"] == body["id"]]
    assert revoked["revoked_at"] == "2023-11-14T22:13:20Z"
    problem(service.as_bearer(body["token"]).get("/v1/datasets"), 401, "unauthenticated")


def test_the_secret_is_nowhere_in_the_database(service: Service) -> None:
    secret = service.make_token("read").token.split("_")[2]
    services = service.app.state.services
    with services.storage.database.engine.connect() as connection:
        rows = connection.exec_driver_sql("SELECT * FROM tokens").fetchall()

    assert len(rows) == 2
    assert secret not in str(rows)
    assert secret.encode() not in b"".join(bytes(row[1]) for row in rows)


def test_making_one_again_with_the_same_key_gives_the_same_token(service: Service) -> None:
    first = service.post("/v1/tokens", {"scopes": ["read"]}, key="k")
    service.clock.advance(10)
    again = service.post("/v1/tokens", {"scopes": ["read"]}, key="k")

    assert (again.status_code, again.content) == (201, first.content)
    assert again.headers["idempotency-replayed"] == "true"
    problem(service.post("/v1/tokens", {"scopes": ["admin"]}, key="k"), 422, "idempotency-key-reused")
    assert len(service.shown("/v1/tokens")["items"]) == 2
    made(service.post("/v1/tokens", {"scopes": ["read"]}, key="other"))


ALLOWED: dict[str, dict[str, bool]] = {
    "read": {"read": True, "spend": False, "admin": False},
    "spend": {"read": True, "spend": True, "admin": False},
    "admin": {"read": True, "spend": True, "admin": True},
}


@pytest.mark.parametrize("scope", ALLOWED)
def test_each_scope_includes_the_ones_below_it(adult: Service, scope: str) -> None:
    bearer = adult.make_token(scope)
    etag = {"If-Match": '"1"'}
    change = {"budget": ZCDP, "reason": "x"}
    asked = {
        "read": [
            bearer.get("/v1/datasets"),
            bearer.get("/v1/datasets/adult/export"),
            bearer.post("/v1/costs", COSTS),
        ],
        "admin": [
            bearer.post("/v1/datasets/adult/budget-changes", change, headers=etag),
            bearer.post("/v1/datasets", {"name": "other", "budget": ZCDP}),
            bearer.post("/v1/datasets/adult/partitions", {"count": 1}),
            bearer.get("/v1/tokens"),
            bearer.post("/v1/tokens", {"scopes": ["read"]}),
        ],
        "spend": [
            bearer.authorize(),
            bearer.reserve(1),
            bearer.bulk("each", {"dataset": "adult", "run": "r", "releases": [GAUSSIAN]}),
        ],
    }

    for needed, answers in asked.items():
        for answer in answers:
            if ALLOWED[scope][needed]:
                assert answer.status_code in {200, 201}, answer.text
            else:
                assert needed in problem(answer, 403, "forbidden")["detail"]


def test_a_list_of_datasets_limits_everything(adult: Service) -> None:
    adult.open("secret")
    held = made(adult.reserve(1, dataset="secret"))
    bearer = adult.make_token("admin", datasets=["adult", "later", "zoo"])
    item: dict[str, Any] = {"run": "r", "releases": [GAUSSIAN]}

    for answer in [
        bearer.get("/v1/datasets/secret"),
        bearer.get("/v1/datasets/unknown"),
        bearer.authorize(dataset="secret"),
        bearer.settle(held["id"], 0),
        bearer.bulk("each", {"dataset": "adult", **item}, {"dataset": "secret", **item}),
        bearer.post("/v1/datasets", {"name": "other", "budget": ZCDP}),
        bearer.post("/v1/tokens", {"scopes": ["read"]}),
        bearer.get("/v1/tokens"),
        bearer.delete("/v1/tokens/abc"),
    ]:
        problem(answer, 403, "forbidden")
    made(bearer.authorize())
    made(bearer.post("/v1/datasets", {"name": "later", "budget": ZCDP}))
    assert [item["name"] for item in bearer.shown("/v1/datasets")["items"]] == ["adult", "later"]
    page = bearer.shown("/v1/datasets", limit=1)
    assert [item["name"] for item in bearer.shown("/v1/datasets", next=page["next"])["items"]] == ["later"]
    assert [item["name"] for item in bearer.shown("/v1/datasets", search="dul")["items"]] == ["adult"]


@pytest.mark.parametrize("search", ["dul", "ADULT", "census inc", "%"])
def test_a_search_finds_the_same_for_a_limited_token(service: Service, search: str) -> None:
    service.open("adult", description="Census income")
    bearer = service.make_token("read", datasets=["adult"])

    assert bearer.shown("/v1/datasets", search=search) == service.shown("/v1/datasets", search=search)


@pytest.mark.parametrize(
    "authorization",
    [
        None,
        "",
        "Bearer",
        "Bearer ",
        "Bearer dpl_",
        "Bearer dpl_aaaa_" + "a" * 52,
        "Basic dpl_aaaa_bbbb",
        "Bearer dpl_aaaa_" + "a" * 200,
        "Bearer dpl_A_B",
        "Bearer \xff",
    ],
)
@pytest.mark.parametrize("path", ["/v1/datasets", "/v1/datasets/adult/authorizations"])
def test_what_is_no_token_is_turned_away(still: Service, path: str, authorization: str | None) -> None:
    headers = [] if authorization is None else [(b"authorization", authorization.encode("latin-1"))]
    headers.append((b"idempotency-key", b"k"))
    del still.client.headers["Authorization"]
    try:
        answer = still.client.post(path, content=b"not read", headers=headers)
    finally:
        still.client.headers["Authorization"] = f"Bearer {still.token}"

    problem(answer, 401, "unauthenticated")
    assert answer.headers["www-authenticate"] == 'Bearer realm="dpledger"'


def test_one_wrong_letter_is_enough(still: Service) -> None:
    for position in (-1, -30, 6):
        letters = list(still.token)
        letters[position] = "a" if letters[position] != "a" else "b"
        problem(still.as_bearer("".join(letters)).get("/v1/datasets"), 401, "unauthenticated")
        problem(still.as_bearer("".join(letters)).authorize(), 401, "unauthenticated")
    assert still.get("/v1/datasets").status_code == 200


def test_a_token_expires(adult: Service) -> None:
    bearer = adult.make_token("spend", expires_in_seconds=60)
    made(bearer.authorize())
    adult.clock.advance(59)
    made(bearer.authorize())
    adult.clock.advance(1)

    problem(bearer.authorize(), 401, "unauthenticated")
    problem(bearer.get("/v1/datasets"), 401, "unauthenticated")


def revoke_elsewhere(service: Service, token: str) -> None:
    """As another replica would: this one's memory learns nothing of it."""
    service.app.state.services.tokens.revoke(token.split("_")[1], service.clock.now_us())


def test_a_revoked_token_decides_nothing_from_that_moment_on(adult: Service) -> None:
    bearer = adult.make_token("admin")
    granted = made(bearer.authorize(key="before"))
    held = made(bearer.reserve(1))
    revoke_elsewhere(adult, bearer.token)

    # The rows in memory are still young, so these requests pass the gate and end in the transaction.
    problem(bearer.authorize(), 401, "token-ended")
    problem(bearer.authorize(key="before"), 401, "token-ended")
    problem(bearer.reserve(1), 401, "token-ended")
    problem(bearer.settle(held["id"], 0), 401, "token-ended")
    problem(bearer.post("/v1/datasets", {"name": "other", "budget": ZCDP}), 401, "token-ended")
    problem(bearer.post("/v1/datasets/adult/partitions", {"count": 1}), 401, "token-ended")
    item = {"dataset": "adult", "run": "r", "releases": [GAUSSIAN]}
    problem(bearer.bulk("each", item), 401, "token-ended")
    problem(bearer.post("/v1/tokens", {"scopes": ["read"]}), 401, "unauthenticated")
    problem(bearer.get("/v1/tokens"), 401, "unauthenticated")
    problem(bearer.delete("/v1/tokens/abc"), 401, "unauthenticated")
    assert adult.sequence() == 3
    assert granted["sequence"] == 2


def test_a_revoked_token_reads_nothing_after_two_seconds(
    adult: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    bearer = adult.make_token("read")
    assert bearer.get("/v1/datasets").status_code == 200
    revoke_elsewhere(adult, bearer.token)
    assert gatekeeper.FRESH_SECONDS <= 2.0

    now = monotonic()
    monkeypatch.setattr(adult.app.state.services.gatekeeper, "_elapsed", lambda: now + 2.1)

    problem(bearer.get("/v1/datasets"), 401, "unauthenticated")


def test_a_revoked_token_learns_nothing_from_a_spend_that_is_not_decided(
    adult: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    bearer = adult.make_token("spend")
    made(bearer.authorize())
    revoke_elsewhere(adult, bearer.token)

    now = monotonic()
    monkeypatch.setattr(adult.app.state.services.gatekeeper, "_elapsed", lambda: now + 2.1)

    problem(bearer.authorize(dataset="nowhere"), 401, "unauthenticated")
    problem(bearer.authorize(sample={"scheme": "without-replacement", "rate": 0.1}), 401, "unauthenticated")


@pytest.mark.parametrize("token", ["abc", "UPPER", "%00"])
def test_an_unknown_token_cannot_be_revoked(still: Service, token: str) -> None:
    problem(still.delete(f"/v1/tokens/{token}"), 404, "not-found")


def test_revoking_twice_changes_nothing(service: Service) -> None:
    token_id = service.make_token("read").token.split("_")[1]
    service.delete(f"/v1/tokens/{token_id}")
    service.clock.advance(100)

    assert service.delete(f"/v1/tokens/{token_id}").status_code == 204
    (row,) = [item for item in service.shown("/v1/tokens")["items"] if item["id"] == token_id]
    assert row["revoked_at"] == "2023-11-14T22:13:20Z"


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "scopes"),
        ({"scopes": []}, "scopes"),
        ({"scopes": ["root"]}, "scopes[0]"),
        ({"scopes": ["read"], "datasets": []}, "datasets"),
        ({"scopes": ["read"], "datasets": ["X"]}, "datasets[0]"),
        ({"scopes": ["read"], "expires_in_seconds": 0}, "expires_in_seconds"),
        ({"scopes": ["read"], "description": "\x1b"}, "description"),
    ],
)
def test_limits_of_a_token(still: Service, body: dict[str, Any], field: str) -> None:
    assert problem(still.post("/v1/tokens", body), 422, "invalid-input")["field"] == field


def test_pages_of_tokens_join_without_a_gap(service: Service) -> None:
    for _ in range(4):
        service.make_token("read")
    first = service.shown("/v1/tokens", limit=3)
    second = service.shown("/v1/tokens", limit=3, next=first["next"])

    ids = [item["id"] for item in first["items"] + second["items"]]
    assert len(ids) == 5
    assert ids == sorted(set(ids))
    assert second["next"] is None
