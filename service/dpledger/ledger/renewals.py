"""Sets the policy by which a dataset's budget is renewed, and opens the partitions of new epochs."""

from typing import Any

from dpledger.accounting.errors import InvalidInput, Unproven
from dpledger.ledger.errors import NotFound
from dpledger.ledger.idempotency import IdempotentExecutor
from dpledger.ledger.model.commands import ChangeRenewal, OpenPartitions
from dpledger.ledger.model.entries import EntryKind
from dpledger.ledger.model.renewal import (
    EpochOpening,
    Renewal,
    epochs_at,
    renewal_of,
    units_lie_in_one_partition,
)
from dpledger.ledger.model.requests import NewEpoch, NewRenewal
from dpledger.ledger.ports import IdempotentRequest, Transaction
from dpledger.ledger.results import PartitionOpening, RenewalChange, StoredResult
from dpledger.ledger.unit_of_work import UnitOfWork

__all__ = ["change_renewal", "open_epoch", "renewal_fields"]


def change_renewal(
    executor: IdempotentExecutor, name: str, asked: NewRenewal, call: IdempotentRequest
) -> RenewalChange | StoredResult:
    """Set the policy, its budget alone once there is one, or end it; as an entry. No partition changes."""

    def work(transaction: Transaction, unit: UnitOfWork) -> RenewalChange:
        state = unit.state
        _check_covered(transaction, unit)
        present = _renewal(transaction, unit)
        if present is not None and present.period is not asked.period:
            raise InvalidInput(
                "period", f"{present.period.value}, fixed by the first policy", asked.period.value
            )
        own = None
        if asked.budget is not None:
            own = state.budget.with_limit(asked.budget, state.adjacency).usable()
        taken = unit.record(ChangeRenewal(asked.period, own, asked.reason), call.actor)
        return RenewalChange(name, renewal_of(taken.entry), taken.entry.at_us)

    return executor.answer_once(name, call, work)


def _check_covered(transaction: Transaction, unit: UnitOfWork) -> None:
    """Refuse a dataset for whose epochs nothing is proven; the reasons are in :mod:`.model.renewal`."""
    state = unit.state
    if not state.partitions:
        raise Unproven(
            f"{state.name} has no partitions: what is spent on the whole counts for all of its records, and "
            "nothing of it can be renewed. Open a partition of the data that there is, and spend on that"
        )
    if not units_lie_in_one_partition(transaction.entry(state.dataset_id, 1).entry):
        raise Unproven(
            f"the unit of {state.name} is not a record, and units that recur over epochs bear the sum of "
            "their budgets, not the largest: a dataset can be renewed if its unit is record, or if it was "
            "opened with the statement units_in_one_partition"
        )


def _renewal(transaction: Transaction, unit: UnitOfWork) -> Renewal | None:
    found = transaction.latest(unit.state.dataset_id, EntryKind.RENEWAL_CHANGED)
    return None if found is None else renewal_of(found.entry)


def open_epoch(
    executor: IdempotentExecutor, name: str, asked: NewEpoch, call: IdempotentRequest
) -> PartitionOpening | StoredResult:
    """Open the partition of the present or the next epoch, with the policy's budget for its new records."""

    def work(transaction: Transaction, unit: UnitOfWork) -> PartitionOpening:
        present = _renewal(transaction, unit)
        if present is None or present.budget is None:
            raise NotFound("renewal policy", name)
        openable = epochs_at(present.period, unit.stamp(call.actor).at_us)
        if asked.epoch not in openable:
            raise InvalidInput(
                "epoch", f"the present or the next {present.period.value}: {openable}", asked.epoch
            )
        stated = EpochOpening(present.sequence, asked.statement)
        taken = unit.record(OpenPartitions((asked.epoch,), present.budget, stated), call.actor)
        return PartitionOpening(name, taken.entry.sequence, (asked.epoch,), _warnings(unit, asked.epoch))

    return executor.answer_once(name, call, work)


def _warnings(unit: UnitOfWork, epoch: str) -> tuple[str, ...]:
    """What is spent on the whole is not renewed: it counts for each epoch, also for those that come later."""
    if unit.state.fraction_left(unit.partition(epoch)):
        return ()
    return (f"what was spent on the whole, or under a private key elsewhere, leaves nothing for {epoch}",)


def renewal_fields(name: str, renewal: Renewal, at_us: int) -> dict[str, Any]:
    """A policy as it is shown, with the epochs that may be opened at a time."""
    current, following = epochs_at(renewal.period, at_us)
    return {
        "dataset": name,
        "sequence": renewal.sequence,
        "period": renewal.period.value,
        "budget": None if renewal.budget is None else renewal.budget.shown,
        "reason": renewal.reason,
        "current": current,
        "next": following,
    }
