"""``POST /v1/datasets/{dataset}/authorizations``: what it takes, charges, answers and refuses."""

import asyncio
import functools
import json
import threading
import time
from collections.abc import Callable
from typing import Any
from unittest import mock

import httpx2
import numpy as np
import pytest

from dpledger.accounting.stepcost import cost_of
from dpledger.accounting.steps import Step
from dpledger.api import fast_path as authorizing
from dpledger.api import responses
from dpledger.api.http.body import MAX_BODY_BYTES
from dpledger.api.schemas.responses import AuthorizationAnswer, Refusal
from dpledger.ledger import charges as charging
from dpledger.ledger.charges import Charger
from dpledger.ledger.model.entries import Charge
from dpledger.ledger.model.requests import Spend
from dpledger.ledger.receipts import BadReceipt, verify_receipt
from tests.api.service import GAUSSIAN, POISSON, SUBSAMPLED, Service, made, problem

PATH = "/v1/datasets/adult/authorizations"
RDP = {"accounting": "rdp", "epsilon": 20.0, "delta": 1e-5}
THREAD_SECONDS = 30


def test_the_answer_has_the_declared_shape(adult: Service) -> None:
    granted = made(adult.authorize(partition=None, sample={"scheme": "full"}))

    AuthorizationAnswer.model_validate(granted)
    assert list(granted) == ["id", "sequence", "dataset", "run", "sample", "cost", "remaining", "receipt"]


def test_the_refusal_has_the_declared_shape(adult: Service) -> None:
    refused = problem(adult.authorize({**GAUSSIAN, "noise_std": 0.1}), 409, "budget-exhausted")

    Refusal.model_validate(
        {k: v for k, v in refused.items() if k not in {"type", "title", "status", "detail"}}
    )


@pytest.mark.parametrize("sample", [{"scheme": "full"}, POISSON])
def test_the_cost_is_the_accounting_packages_bit_for_bit(service: Service, sample: dict[str, Any]) -> None:
    orders = service.open("adult", RDP)["orders"]
    releases = [{**SUBSAMPLED, "count": 2}, {**GAUSSIAN, "noise_std": 9.0}]
    step = Step.from_fields(releases, sample, "add-remove")
    expected = cost_of(step, np.array(orders))

    granted = made(service.authorize(*releases, sample=sample))

    assert granted["cost"]["orders"] == expected.orders.tolist()
    assert granted["cost"]["epsilons"] == expected.epsilons.tolist()
    assert granted["cost"]["rho"] == expected.rho


def test_releases_on_one_sample_are_added_before_they_are_amplified(service: Service) -> None:
    service.open("adult", RDP)
    together = made(service.authorize(SUBSAMPLED, SUBSAMPLED, sample=POISSON))
    once = made(service.authorize(SUBSAMPLED, sample=POISSON))

    pairs = zip(together["cost"]["epsilons"], once["cost"]["epsilons"], strict=True)
    assert all(both > 2 * one for both, one in pairs)


def test_a_sample_looked_at_again_is_charged_raw(service: Service) -> None:
    service.open("adult", RDP)
    drawn = made(service.authorize(SUBSAMPLED, sample=POISSON))
    full = made(service.authorize({**SUBSAMPLED, "noise_std": 30.0}))

    again = made(service.authorize({**SUBSAMPLED, "noise_std": 30.0}, sample={"id": drawn["sample"]["id"]}))
    echoed = made(service.authorize({**SUBSAMPLED, "noise_std": 30.0}, sample=drawn["sample"]))

    assert again["cost"] == full["cost"] == echoed["cost"]
    assert again["sample"]["id"] == drawn["sample"]["id"]
    assert service.shown("/v1/datasets/adult/entries/4")["sample"] == "adult~2"
    service.verified()


@pytest.mark.parametrize("sample_id", ["other~2", "adult~1", "adult~", "2", "", "adult~99"])
def test_only_a_sample_drawn_here_can_be_looked_at_again(adult: Service, sample_id: str) -> None:
    made(adult.authorize())

    answer = adult.authorize(sample={"id": sample_id})

    if sample_id == "adult~99":
        problem(answer, 404, "not-found")
    else:
        assert problem(answer, 422, "invalid-input")["field"] == "sample.id"


def test_a_reservation_draws_no_sample_to_come_back_to(adult: Service) -> None:
    held = made(adult.reserve(2))

    assert problem(adult.authorize(sample={"id": held["id"]}), 422, "invalid-input")["field"] == "sample.id"


@pytest.mark.parametrize(
    ("adjacency", "sample", "needs"),
    [
        ("replace-one", POISSON, "add-remove"),
        ("add-remove", {"scheme": "without-replacement", "rate": 0.01}, "replace-one"),
    ],
)
def test_a_wrong_adjacency_says_which_theorem_wants_what(
    service: Service, adjacency: str, sample: dict[str, Any], needs: str
) -> None:
    service.open("adult", RDP, adjacency=adjacency)

    found = problem(service.authorize(SUBSAMPLED, sample=sample), 422, "adjacency-mismatch")

    assert found["theorem"]
    assert (found["needs"], found["found"]) == (needs, adjacency)
    assert found["theorem"] in found["detail"]


def test_what_has_no_proof_in_the_datasets_accounting_is_refused(adult: Service) -> None:
    found = problem(adult.authorize(SUBSAMPLED, sample=POISSON), 422, "unproven")

    assert "rdp" in found["detail"]
    assert adult.sequence() == 1


def test_a_declared_cost_and_purposes_are_marked_in_the_entry(adult: Service) -> None:
    made(
        adult.authorize(
            {"mechanism": "zcdp", "rho": 0.01, "purpose": "search"},
            {**GAUSSIAN, "noise_std": 9.0, "purpose": "gradient"},
            {**GAUSSIAN, "noise_std": 8.0, "purpose": "gradient"},
        )
    )

    entry = adult.shown("/v1/datasets/adult/entries/2")
    assert entry["declared"] is True
    assert entry["purpose"] == "gradient+search"
    assert "purpose" not in entry["step"]["releases"][0]


# Keys ------------------------------------------------------------------------------------------------


def test_another_request_under_the_same_key_is_refused(adult: Service) -> None:
    made(adult.authorize(key="k"))
    problem(adult.authorize(key="k", run="other"), 422, "idempotency-key-reused")
    problem(adult.authorize({**GAUSSIAN, "noise_std": 0.1}, key="r"), 409, "budget-exhausted")
    problem(adult.authorize(key="r"), 422, "idempotency-key-reused")

    assert adult.sequence() == 2


def test_spaces_and_the_order_of_keys_do_not_make_another_request(adult: Service) -> None:
    first = made(adult.authorize(key="k"))
    body = {"releases": [dict(reversed(GAUSSIAN.items()))], "run": "run-1"}
    headers = adult.headers(**{"Idempotency-Key": "k", "Content-Type": "application/json"})

    answer = adult.client.post(PATH, content=json.dumps(body, indent=3), headers=headers)

    assert made(answer) == first
    assert answer.headers["idempotency-replayed"] == "true"


def test_a_key_belongs_to_its_token_and_its_address(adult: Service) -> None:
    adult.open("other")
    spender = adult.make_token("spend")
    answers = [
        adult.authorize(key="k"),
        adult.authorize(key="k", dataset="other"),
        adult.reserve(1, key="k"),
        spender.authorize(key="k"),
    ]

    assert [made(answer)["id"] for answer in answers] == ["adult~2", "other~2", "adult~3", "adult~4"]


def test_a_key_is_needed(still: Service) -> None:
    answer = still.client.post(PATH, json={}, headers=still.headers())

    problem(answer, 400, "idempotency-key-missing")


@pytest.mark.parametrize("key", ["", "x" * 256, "tab\there", "é"])
def test_a_key_is_printable_and_short(still: Service, key: str) -> None:
    headers = still.headers(**{"Content-Type": "application/json"})
    raw = [
        *((k.encode(), v.encode()) for k, v in headers.items()),
        (b"idempotency-key", key.encode("latin-1")),
    ]

    problem(still.client.post(PATH, content=b"{}", headers=raw), 400, "idempotency-key-invalid")
    problem(still.client.post("/v1/datasets", content=b"{}", headers=raw), 400, "idempotency-key-invalid")


def test_a_long_printable_key_is_good(adult: Service) -> None:
    key = "~ !" + "k" * 252

    assert made(adult.authorize(key=key)) == made(adult.authorize(key=key))


def test_a_key_in_flight_is_reported_to_come_back(adult: Service) -> None:
    """While the first request is being decided, the second is neither decided nor kept waiting."""
    entered, release = threading.Event(), threading.Event()
    services = adult.app.state.services
    decide = services.ledger.batches.decide

    def slow(*arguments: Any) -> Any:
        entered.set()
        assert release.wait(THREAD_SECONDS)
        return decide(*arguments)

    first: list[httpx2.Response] = []
    with mock.patch.object(services.committer, "_decide", slow):
        asking = threading.Thread(target=lambda: first.append(adult.authorize(key="k")))
        asking.start()
        assert entered.wait(THREAD_SECONDS)
        second = adult.authorize(key="k")
        release.set()
        asking.join(THREAD_SECONDS)

    problem(second, 409, "idempotency-key-in-flight")
    assert int(second.headers["retry-after"]) >= 1
    assert made(first[0])["id"] == "adult~2"
    assert made(adult.authorize(key="k")) == made(first[0])


@pytest.mark.parametrize("ask", [Service.authorize, functools.partial(Service.reserve, times=1)])
def test_steps_whose_price_takes_long_hold_up_no_others(adult: Service, ask: Callable[..., Any]) -> None:
    adult.open("other", RDP)
    search = {"mechanism": "above-threshold", "noise": "laplace", "sensitivity": 1.0, "epsilon": 0.1}
    entered, release = threading.Event(), threading.Event()
    charger: Charger = adult.app.state.services.ledger._executor.charger
    charge = charger.charge

    def slow(spend: Spend) -> Charge:
        if spend.dataset == "other":
            entered.set()
            assert release.wait(THREAD_SECONDS)
        return charge(spend)

    answers: list[httpx2.Response] = []
    many = [{"dataset": "other", "releases": [search], "run": f"run-{number}"} for number in range(10)]
    threads = [threading.Thread(target=lambda more=more: answers.append(ask(adult, **more))) for more in many]
    with mock.patch.object(charger, "charge", slow):
        for thread in threads:
            thread.start()
        assert entered.wait(THREAD_SECONDS)
        time.sleep(0.2)
        quick = threading.Thread(target=lambda: answers.append(adult.reserve(1)))
        quick.start()
        plain = adult.authorize()
        quick.join(THREAD_SECONDS)
        answered = len(answers)
        release.set()
        for thread in threads:
            thread.join(THREAD_SECONDS)

    made(plain)
    assert answered == 1
    assert [answer.status_code for answer in answers] == [201] * 11


# Bodies ----------------------------------------------------------------------------------------------


def raw(service: Service, content: bytes, path: str = PATH, **headers: str) -> httpx2.Response:
    chosen = {"Idempotency-Key": "k", "Content-Type": "application/json", **headers}
    return service.client.post(path, content=content, headers=service.headers(**chosen))


BODY = json.dumps({"run": "r", "releases": [GAUSSIAN]})


@pytest.mark.parametrize(
    ("content", "status", "slug"),
    [
        ("", 400, "malformed-json"),
        ("{", 400, "malformed-json"),
        ('{"run": "r", "run": "s"}', 400, "malformed-json"),
        (BODY.replace("2.0", "NaN"), 422, "invalid-input"),
        (BODY.replace("2.0", "Infinity"), 422, "invalid-input"),
        (BODY.replace("2.0", "1e400"), 422, "invalid-input"),
        (BODY.replace("2.0", "1e-400"), 422, "invalid-input"),
        (BODY.replace("2.0", "1" + "0" * 400), 422, "invalid-input"),
        ("[]", 422, "invalid-input"),
        ("null", 422, "invalid-input"),
    ],
)
def test_what_cannot_be_read_is_refused(still: Service, content: str, status: int, slug: str) -> None:
    problem(raw(still, content.encode()), status, slug)

    assert still.sequence() == 1


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"run": None}, "run"),
        ({"run": ""}, "run"),
        ({"run": "x" * 201}, "run"),
        ({"run": "a\nb"}, "run"),
        ({"run": "\ud800"}, "run"),
        ({"partition": ""}, "partition"),
        ({"releases": []}, "releases"),
        ({"releases": [GAUSSIAN] * 65}, "releases"),
        ({"releases": [{"mechanism": "magic"}]}, "releases[0].mechanism"),
        ({"releases": [{**GAUSSIAN, "noise_std": -1.0}]}, "releases[0].noise_std"),
        ({"releases": [{**GAUSSIAN, "colour": 1}]}, "releases[0].colour"),
        ({"releases": [{**GAUSSIAN, "purpose": "x" * 101}]}, "releases[0].purpose"),
        ({"releases": [{**GAUSSIAN, "purpose": "a\nb"}]}, "releases[0].purpose"),
        ({"sample": {}}, "sample.scheme"),
        ({"sample": {"scheme": "poisson"}}, "sample.rate"),
        ({"sample": {"scheme": "poisson", "rate": 1.1}}, "sample.rate"),
        ({"sample": {"id": "adult~2", "rate": 0.1}}, "sample.scheme"),
        ({"samples": {}}, "samples"),
    ],
)
def test_an_invalid_field_is_named(still: Service, changes: dict[str, Any], field: str) -> None:
    body = {"run": "r", "releases": [GAUSSIAN], **changes}

    found = problem(raw(still, json.dumps(body).encode()), 422, "invalid-input")

    assert found["field"] == field
    assert still.sequence() == 1


def test_another_media_type_is_refused(still: Service) -> None:
    problem(raw(still, BODY.encode(), **{"Content-Type": "text/plain"}), 415, "unsupported-media-type")


def test_a_body_over_the_limit_is_refused(still: Service) -> None:
    problem(raw(still, BODY.encode().ljust(MAX_BODY_BYTES + 1)), 413, "payload-too-large")


@pytest.mark.parametrize("name", ["unknown", "Adult", "%00", "a" * 64, "%E2%82%AC"])
def test_an_unknown_dataset_is_not_found(still: Service, name: str) -> None:
    found = problem(raw(still, BODY.encode(), f"/v1/datasets/{name}/authorizations"), 404, "not-found")

    assert found["kind"] == "dataset"


def test_a_dataset_may_be_asked_for_before_it_is_opened(service: Service) -> None:
    problem(service.authorize(), 404, "not-found")
    service.open("adult")

    made(service.authorize())


def test_other_methods_are_told_so(still: Service) -> None:
    answer = still.get(PATH)

    problem(answer, 405, "method-not-allowed")
    assert answer.headers["allow"] == "POST"


def test_the_frameworks_own_route_answers_the_same(adult: Service) -> None:
    short = adult.authorize(key="k")
    with mock.patch("dpledger.api.fast_path.dataset_in", return_value=None):
        long = adult.authorize(key="k")
        problem(adult.as_bearer("").authorize(), 401, "unauthenticated")

    assert (long.status_code, long.content) == (short.status_code, short.content)
    assert long.headers["idempotency-replayed"] == "true"


def test_bodies_are_remembered_only_while_there_is_room(adult: Service) -> None:
    with mock.patch.object(authorizing, "_KEPT_BODIES", 2):
        for run in ["a", "b", "a", "c", "b", "a"]:
            made(adult.authorize({**GAUSSIAN, "noise_std": 100.0}, run=run))

    assert len(adult.app.authorizations._read) == 2
    entries = adult.shown("/v1/datasets/adult/entries", kind="authorized")["items"]
    assert [entry["run"] for entry in entries] == ["a", "b", "a", "c", "b", "a"]


def test_charges_of_long_steps_are_remembered_only_while_there_is_room(
    adult: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Thousands of them, which one token may ask for, would be gigabytes."""
    monkeypatch.setattr(charging, "_KEPT_LONG", 2)
    charger, before = adult.app.state.services.ledger._executor.charger, responses._kept_texts.cache_info()
    for number in range(4):
        releases = [{**GAUSSIAN, "noise_std": 1e4 + number + index} for index in range(64)]
        made(adult.authorize(*releases))
    assert (len(charger._long_charges), len(charger._charges)) == (2, 0)
    assert responses._kept_texts.cache_info() == before

    made(adult.authorize({**GAUSSIAN, "noise_std": 1e4}))
    assert (len(charger._long_charges), len(charger._charges)) == (2, 1)


def test_a_body_in_pieces_is_put_together(adult: Service) -> None:
    async def ask() -> list[dict[str, Any]]:
        pieces: list[dict[str, Any]] = [
            {"body": BODY[:9].encode(), "more_body": True},
            {"body": BODY[9:].encode()},
        ]
        sent: list[dict[str, Any]] = []

        async def receive() -> dict[str, Any]:
            return {"type": "http.request", **pieces.pop(0)}

        async def send(message: Any) -> None:
            sent.append(message)

        headers = [
            (b"authorization", f"Bearer {adult.token}".encode()),
            (b"content-type", b"application/json"),
            (b"idempotency-key", b"k"),
        ]
        scope = {"type": "http", "method": "POST", "path": PATH, "headers": headers}
        await adult.app(scope, receive, send)
        return sent

    portal = adult.client.portal
    assert portal is not None
    start, body = portal.call(ask)
    assert start["status"] == 201
    assert json.loads(body["body"])["id"] == "adult~2"


# Receipts --------------------------------------------------------------------------------------------


def test_a_receipt_of_another_service_is_refused(adult: Service) -> None:
    receipt = made(adult.authorize())["receipt"]
    keys = adult.client.get("/.well-known/dpledger-keys.json").json()
    (key,) = keys["keys"]
    other = {"keys": [{**key, "x": key["x"][:-2] + ("AA" if key["x"][-2:] != "AA" else "BB")}]}

    assert verify_receipt(receipt, keys)["kind"] == "authorized"
    with pytest.raises(BadReceipt):
        verify_receipt(receipt, other)


def test_many_at_once_are_all_answered_once_each(adult: Service) -> None:
    adult.open("hot", {"accounting": "zcdp", "rho": 1.0})
    release = {**GAUSSIAN, "noise_std": 10.0}  # ρ = 0.005: 199 fit
    body = {"run": "r", "releases": [release]}

    async def ask() -> list[httpx2.Response]:
        transport = httpx2.ASGITransport(app=adult.app)
        async with httpx2.AsyncClient(transport=transport, base_url="http://ledger") as client:
            asked = [
                client.post(
                    "/v1/datasets/hot/authorizations",
                    json=body,
                    headers=adult.headers(**{"Idempotency-Key": f"k{number}"}),
                )
                for number in range(250)
            ]
            return list(await asyncio.gather(*asked))

    portal = adult.client.portal
    assert portal is not None
    answers = portal.call(ask)

    granted = sorted(answer.json()["sequence"] for answer in answers if answer.status_code == 201)
    assert granted == list(range(2, 202))
    assert {answer.status_code for answer in answers} == {201, 409}
    adult.verified("hot")
