"""One way in: the fast path and the framework's routes let in and turn away the same requests alike."""

import asyncio
from typing import Any

import httpx2
import pytest
from starlette.requests import ClientDisconnect

from dpledger.api.http.admission import InFlight, receive_body
from dpledger.api.http.body import BodyLimits
from dpledger.api.http.problems import RefusedRequest
from dpledger.ledger.errors import KeyInFlight
from dpledger.ledger.ports import IdempotentRequest
from tests.api.service import GAUSSIAN, Service

ROUTES = ("authorizations", "reservations")
"""The first takes the fast path, the second the framework's."""
STEP = {"run": "r", "releases": [GAUSSIAN]}
BODIES = {"authorizations": STEP, "reservations": {**STEP, "times": 1, "expires_in_seconds": 60.0}}
LIMITS = BodyLimits(20, 4)


def asked(service: Service, route: str, dataset: str = "adult", **changes: str | None) -> httpx2.Response:
    """One request whose headers and body are changed; None leaves a header out."""
    content = changes.pop("content", None)
    headers = {
        "authorization": f"Bearer {service.token}",
        "idempotency-key": "k",
        "content-type": "application/json",
        **{name.replace("_", "-"): value for name, value in changes.items()},
    }
    kept = {name: value for name, value in headers.items() if value is not None}
    path = f"/v1/datasets/{dataset}/{route}"
    sent: Any = {"content": content} if content is not None else {"json": BODIES[route]}
    return service.client.post(path, headers=kept, **sent)


@pytest.mark.parametrize(
    ("changes", "status", "slug"),
    [
        ({"authorization": None}, 401, "unauthenticated"),
        ({"authorization": "Basic dXNlcg=="}, 401, "unauthenticated"),
        ({"authorization": f"Bearer dpl_a_{'a' * 20}"}, 401, "unauthenticated"),
        ({"idempotency_key": None}, 400, "idempotency-key-missing"),
        ({"idempotency_key": "k" * 256}, 400, "idempotency-key-invalid"),
        ({"content_type": "text/plain"}, 415, "unsupported-media-type"),
        ({"content": "{"}, 400, "malformed-json"),
        ({"content": "[" + "1," * 10_000 + "1]"}, 413, "payload-too-large"),
        ({"content": "x" * (512 * 1024 + 1)}, 413, "payload-too-large"),
        ({"dataset": "NO-name"}, 404, "not-found"),
        ({"dataset": "nowhere"}, 404, "not-found"),
        # The token is asked for before the key, and the key before the body.
        ({"authorization": None, "idempotency_key": None}, 401, "unauthenticated"),
        ({"idempotency_key": None, "content": "{"}, 400, "idempotency-key-missing"),
        ({"dataset": "NO-name", "idempotency_key": None}, 404, "not-found"),
    ],
)
def test_both_ways_turn_the_same_away(
    adult: Service, changes: dict[str, Any], status: int, slug: str
) -> None:
    answers = [asked(adult, route, **changes) for route in ROUTES]

    for answer in answers:
        assert (answer.status_code, answer.json()["type"]) == (status, f"/problems/{slug}")
        assert answer.headers["content-type"] == "application/problem+json"
        assert answer.headers["x-request-id"]
    assert answers[0].content == answers[1].content
    assert [each.headers.get("www-authenticate") for each in answers] == [
        answers[0].headers.get("www-authenticate")
    ] * 2


def test_both_ways_ask_for_scope_and_dataset(adult: Service) -> None:
    adult.open("census")
    for caller in (adult.make_token("read"), adult.make_token("spend", datasets=["census"])):
        answers = [asked(caller, route) for route in ROUTES]
        assert [answer.status_code for answer in answers] == [403, 403]
        assert answers[0].content == answers[1].content


@pytest.mark.parametrize("name", ["authorization", "content-type", "idempotency-key"])
def test_both_ways_refuse_a_header_that_comes_twice(adult: Service, name: str) -> None:
    own = {
        "authorization": f"Bearer {adult.token}",
        "idempotency-key": "k",
        "content-type": "application/json",
    }
    headers = [*own.items(), (name, own[name])]

    answers = [
        adult.client.post(f"/v1/datasets/adult/{route}", headers=headers, content="{}") for route in ROUTES
    ]

    assert [answer.status_code for answer in answers] == [400, 400]
    assert answers[0].content == answers[1].content


@pytest.mark.parametrize("route", ROUTES)
def test_both_ways_keep_the_callers_request_id_unless_it_holds_a_token(adult: Service, route: str) -> None:
    assert asked(adult, route, x_request_id="job-7").headers["x-request-id"] == "job-7"
    assert asked(adult, route, x_request_id=adult.token).headers["x-request-id"] != adult.token


def received(*pieces: bytes, declared: bytes | None = None, hang_up: bool = False) -> bytes:
    messages: list[dict[str, Any]] = [
        {"type": "http.request", "body": piece, "more_body": True} for piece in pieces
    ]
    messages.append({"type": "http.disconnect"} if hang_up else {"type": "http.request"})

    async def receive() -> Any:
        return messages.pop(0)

    return asyncio.run(receive_body(receive, LIMITS, declared))


def test_a_body_is_put_together_from_its_pieces() -> None:
    assert received(b"[1,", b"2", b"]") == b"[1,2]"
    assert received() == b""
    assert received(b"x" * 20, declared=b"20") == b"x" * 20


@pytest.mark.parametrize(
    ("pieces", "declared", "detail"),
    [
        ((b"x" * 21,), None, "The limit is 20 bytes."),
        ((b"x" * 11, b"x" * 10), None, "The limit is 20 bytes."),
        ((), b"21", "The limit is 20 bytes."),
        ((b"[1,2,3,4]",), None, "The body may hold at most 4 values."),
        ((b"[1,2", b",3,4]"), None, "The body may hold at most 4 values."),
        ((b"," * 21,), None, "The limit is 20 bytes."),
    ],
)
def test_a_body_is_refused_as_soon_as_it_is_too_large(
    pieces: tuple[bytes, ...], declared: bytes | None, detail: str
) -> None:
    with pytest.raises(RefusedRequest) as refused:
        received(*pieces, declared=declared)
    assert refused.value.detail == detail


def test_half_a_body_is_none() -> None:
    with pytest.raises(ClientDisconnect):
        received(b"[1,2]", hang_up=True)


def test_a_request_is_in_flight_until_it_is_answered() -> None:
    deciding, call = InFlight(), IdempotentRequest("ann", b"k", b"r")
    with deciding.deciding(call):
        assert len(deciding) == 1
        with pytest.raises(KeyInFlight), deciding.deciding(call._replace(request=b"other")):
            pass
        with deciding.deciding(call._replace(actor="bob")):
            assert len(deciding) == 2
    assert not deciding
