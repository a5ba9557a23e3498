"""The way of a ledger over the wire, from the first token to the verified chain."""

from dpledger.ledger.receipts import verify_receipt
from tests.api.service import GAUSSIAN, Service, made, problem


def test_open_authorize_exhaust_replay_reserve_settle_verify(service: Service) -> None:
    opened = service.open("adult")
    assert (opened["name"], opened["sequence"], opened["partition_key"]) == ("adult", 1, "fixed")

    first = service.authorize(key="step-1")
    granted = made(first)
    assert granted["id"] == "adult~2"
    assert granted["sequence"] == 2
    assert granted["sample"] == {"id": "adult~2", "scheme": "full"}
    assert 0.125 <= granted["cost"]["rho"] < 0.1250001
    assert 0.75 < granted["remaining"]["fraction"] < 0.755

    again = service.authorize(key="step-1")
    assert again.headers["idempotency-replayed"] == "true"
    assert "idempotency-replayed" not in first.headers
    assert (again.status_code, again.content) == (first.status_code, first.content)

    held = made(service.reserve(3, seconds=3600))
    assert (held["times"], held["expires_at"]) == (3, "2023-11-14T23:13:20Z")
    assert "id" not in held["sample"]
    problem(service.authorize(key="too-much"), 409, "budget-exhausted")

    settled = made(service.settle(held["id"], used=1))
    assert (settled["used"], settled["returned"]) == (1, 2)
    replayed = service.authorize(key="too-much")
    assert problem(replayed, 409, "budget-exhausted")["sequence"] == 3
    assert replayed.headers["idempotency-replayed"] == "true"

    for _ in range(2):
        made(service.authorize())
    refused = problem(service.authorize(), 409, "budget-exhausted")
    assert refused["requested"]["times"] == 1
    assert refused["requested"]["cost"] == granted["cost"]
    assert refused["fits"]["times"] == 0
    assert 0.0 < refused["fits"]["cost_fraction"] < 0.1
    assert refused["remaining"]["fraction"] < 0.03
    assert refused["sequence"] == 6

    keys = service.client.get("/.well-known/dpledger-keys.json").json()
    statement = verify_receipt(granted["receipt"], keys)
    assert statement["dataset"] == "adult"
    assert statement["sequence"] == 2
    assert statement["entry"] == service.shown("/v1/datasets/adult/entries/2")["hash"]
    service.verified()


def test_a_small_spend_still_fits_after_a_refusal(adult: Service) -> None:
    problem(adult.authorize({**GAUSSIAN, "noise_std": 0.5}), 409, "budget-exhausted")

    made(adult.authorize({**GAUSSIAN, "noise_std": 100.0}))
