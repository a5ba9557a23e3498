"""A preview says what a change leads to, word for word as the change then does, and records nothing."""

from typing import Any

import pytest

from dpledger.accounting.errors import InvalidInput
from dpledger.ledger.errors import PreconditionFailed, TokenEnded
from dpledger.ledger.model.requests import NewQuota, Settlement
from dpledger.ledger.ports import IdempotentRequest
from dpledger.ledger.results import BudgetChange, QuotaChange, SettlementRecord
from dpledger.ledger.service import LedgerService
from tests.api.service import Service, made

RAISED: dict[str, Any] = {"accounting": "zcdp", "rho": 2.0}
LOWERED: dict[str, Any] = {"accounting": "zcdp", "rho": 0.01}


def call_of(service: Service) -> IdempotentRequest:
    return IdempotentRequest(service.token.split("_")[1], b"k" * 16, b"r" * 16)


def preview_of(service: Service) -> LedgerService:
    found: LedgerService = service.app.state.services.preview
    return found


def spend_on_partitions(service: Service) -> None:
    made(service.post("/v1/datasets/adult/partitions", {"names": ["a", "b", "c"]}))
    for name in ("a", "b", "b"):
        made(service.authorize(partition=name))


@pytest.mark.parametrize("budget", [RAISED, LOWERED])
@pytest.mark.parametrize("partitioned", [False, True])
def test_a_budget_change_is_previewed_as_it_is_made(
    service: Service, budget: dict[str, Any], partitioned: bool
) -> None:
    service.open()
    if partitioned:
        spend_on_partitions(service)
    else:
        made(service.authorize())
    before = service.sequence()

    for _ in range(2):
        found = preview_of(service).change_budget("adult", budget, "review", before, call_of(service))
    assert isinstance(found, BudgetChange)
    assert service.sequence() == before
    change = {"budget": budget, "reason": "review"}
    answer = made(
        service.post("/v1/datasets/adult/budget-changes", change, headers={"If-Match": f'"{before}"'})
    )

    assert (found.sequence, dict(found.remaining)) == (answer["sequence"], answer["remaining"])
    assert (dict(found.guarantee), list(found.warnings)) == (answer["guarantee"], answer["warnings"])


def test_a_preview_of_another_state_is_refused(service: Service) -> None:
    service.open()
    made(service.authorize())

    with pytest.raises(PreconditionFailed):
        preview_of(service).change_budget("adult", RAISED, "review", 1, call_of(service))


@pytest.mark.parametrize("used", [0, 2, 3])
def test_a_settlement_is_previewed_as_it_is_made(service: Service, used: int) -> None:
    service.open()
    held = made(service.reserve(3))
    asked = Settlement("adult", 2, used, "the job died", by_admin=True)

    found = preview_of(service).settle(asked, call_of(service))

    assert isinstance(found, SettlementRecord)
    assert service.sequence() == 2
    assert service.shown(f"/v1/reservations/{held['id']}")["state"] == "open"
    answer = made(service.settle(held["id"], used))
    assert found.budget.remaining_at(found.fraction) == answer["remaining"]
    service.verified()


def test_a_preview_refuses_what_the_change_refuses(service: Service) -> None:
    service.open()
    made(service.reserve(3))

    with pytest.raises(InvalidInput):
        preview_of(service).settle(Settlement("adult", 2, 4, "no", by_admin=True), call_of(service))


def test_a_preview_counts_what_has_expired_and_leaves_it_open(service: Service) -> None:
    service.open()
    made(service.reserve(3, seconds=60.0))
    service.clock.advance(120)

    found = preview_of(service).change_budget("adult", RAISED, "review", 2, call_of(service))

    assert isinstance(found, BudgetChange)
    assert found.sequence == 4, "after the expiry that the change itself would record"
    assert service.sequence() == 2


def test_a_quota_is_previewed_as_it_is_set(service: Service) -> None:
    service.open()
    asked = NewQuota("ranking", 0.25, None, "agreed")

    found = preview_of(service).change_quota("adult", asked, call_of(service))

    assert isinstance(found, QuotaChange)
    assert found.quota is not None
    assert found.quota.left(found.budget) == 0.25
    assert service.shown("/v1/datasets/adult/quotas")["items"] == []


def test_a_token_that_ended_previews_nothing(service: Service) -> None:
    service.open()
    other = service.make_token("admin")
    assert service.delete(f"/v1/tokens/{other.token.split('_')[1]}").status_code == 204

    with pytest.raises(TokenEnded):
        preview_of(service).change_budget("adult", RAISED, "review", 1, call_of(other))


def test_what_would_be_written_is_not_previewed(service: Service) -> None:
    service.open()
    made(service.reserve(3, seconds=1.0))
    service.clock.advance(60)

    with pytest.raises(TypeError, match="writes nothing"):
        preview_of(service).expire_due()
    assert service.sequence() == 2
