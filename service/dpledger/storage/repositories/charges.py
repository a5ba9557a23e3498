"""Charges: one row for each distinct step as a dataset is charged for it."""

import functools
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

from sqlalchemy import Select, bindparam, select

from dpledger.accounting.steps import Step
from dpledger.accounting.validation import Floats
from dpledger.ledger.errors import NotFound
from dpledger.ledger.model.entries import Charge
from dpledger.storage.engine.codec import (
    Damaged,
    charge_from_columns,
    columns_of_charge,
    step_from_column,
    vector_from_bytes,
)
from dpledger.storage.engine.session import Session, in_list, of_dataset, select_in_list
from dpledger.storage.repositories.surrogate_ids import next_number
from dpledger.storage.tables import charges

__all__ = [
    "ChargeKey",
    "NumberedCharge",
    "charge_by_fingerprint",
    "charge_number",
    "find_charges",
    "first_charges",
    "first_steps",
    "keep_charge",
]

_CONTENT = tuple(column for column in charges.c if column.name not in ("dataset_id", "number", "fingerprint"))
_THIS = of_dataset(charges.c.dataset_id), charges.c.fingerprint == bindparam("fingerprint")
_BY_FINGERPRINT = select(*_CONTENT).where(*_THIS)
_NUMBER = select(charges.c.number, charges.c.purpose, charges.c.amounts).where(*_THIS)
_FIRST_STEPS, _FIRST_CHARGES = (
    columns.where(of_dataset(charges.c.dataset_id)).order_by(charges.c.number).limit(bindparam("most"))
    for columns in (select(charges.c.step), select(*_CONTENT))
)


@functools.cache
def _by_number(size: int) -> Select[Any]:
    return select(charges.c.number, *_CONTENT).where(
        of_dataset(charges.c.dataset_id), in_list(charges.c.number, size)
    )


class ChargeKey(NamedTuple):
    """The key under which a session knows a stored charge."""

    dataset_id: int
    fingerprint: bytes


@dataclass(frozen=True, eq=False)
class NumberedCharge:
    """What appending an entry needs to know of its charge."""

    number: int
    purpose: str
    amounts: Floats


def keep_charge(session: Session, dataset_id: int, charge: Charge) -> None:
    """Store a charge unless it is there."""
    if _known(session, dataset_id, charge.fingerprint) is None:
        number = next_number(session, charges, dataset_id)
        session.insert(charges, [(dataset_id, number, *columns_of_charge(charge))])
        kept = NumberedCharge(number, charge.purpose, charge.amounts)
        session.found[ChargeKey(dataset_id, charge.fingerprint)] = kept


def charge_number(session: Session, dataset_id: int, fingerprint: bytes) -> NumberedCharge:
    """A charge that was kept before."""
    known = _known(session, dataset_id, fingerprint)
    if known is None:
        raise NotFound("charge", fingerprint.hex())
    return known


def _known(session: Session, dataset_id: int, fingerprint: bytes) -> NumberedCharge | None:
    key = ChargeKey(dataset_id, fingerprint)
    known: NumberedCharge | None = session.recall(key)
    if known is None:
        found = session.row(_NUMBER, {"dataset_id": dataset_id, "fingerprint": fingerprint})
        if found is not None:
            number, purpose, raw = found
            known = NumberedCharge(number, purpose, vector_from_bytes(raw, len(raw) // 8))
            session.found[key] = known
    return known


def charge_by_fingerprint(session: Session, dataset_id: int, fingerprint: bytes) -> Charge:
    """A charge as it is stored."""
    found = session.row(_BY_FINGERPRINT, {"dataset_id": dataset_id, "fingerprint": fingerprint})
    if found is None:
        raise NotFound("charge", fingerprint.hex())
    return charge_from_columns(*found)


def first_steps(session: Session, dataset_id: int, charged: int, most: int) -> tuple[list[Step], bool]:
    """Distinct steps of the first ``charged`` charges, at most so many, and whether there are more.

    A step may be long: each is read once, and only if it is among those.
    """
    rows = session.rows(_FIRST_STEPS, {"dataset_id": dataset_id, "most": charged})
    texts = list(dict.fromkeys(text for (text,) in rows))
    more = len(texts) > most or len(rows) == charged
    return [step_from_column(text) for text in texts[:most]], more


def first_charges(session: Session, dataset_id: int, most: int) -> list[Charge]:
    """The first distinct charges of a dataset, in the order in which they were made."""
    found = session.rows(_FIRST_CHARGES, {"dataset_id": dataset_id, "most": most})
    return [charge_from_columns(*columns) for columns in found]


def find_charges(session: Session, dataset_id: int, numbers: Iterable[int]) -> dict[int, Charge]:
    """Charges by number, read from the database each time: a verification must see what is there.

    One that cannot be read is left out; its entry then has none, which every replay refuses.
    """
    wanted = sorted(set(numbers))
    decoded: dict[int, Charge] = {}
    for number, *columns in select_in_list(session, _by_number, wanted, dataset_id=dataset_id):
        try:
            decoded[number] = charge_from_columns(*columns)
        except Damaged:
            continue
    return decoded
