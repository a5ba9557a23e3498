"""Bodies that are written out by hand are the JSON that a library would write."""

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpledger.api.responses import ResponseWriter, json_text, number_text
from dpledger.ledger.model.budget import Budget
from dpledger.ledger.model.entries import GENESIS, Entry, EntryKind, moment
from dpledger.ledger.receipts import Signer, verify_receipt
from dpledger.ledger.results import Grant, ReservationGrant
from tests.ledger.builders import BUDGETS, GAUSSIAN, POISSON, budget_of, charge_of, gaussian

SIGNER = Signer(bytes(32))
WRITER = ResponseWriter(SIGNER)
names = st.text(min_size=1, max_size=20)
fractions = st.floats(0.0, 1.0)


def entry_of(**changes: Any) -> Entry:
    fields = {"sequence": 7, "kind": EntryKind.AUTHORIZED, "at_us": 1, "actor": "ann", "previous": GENESIS}
    return Entry(**{**fields, **changes})


@given(
    dataset=names, run=names, partition=st.none() | names, fraction=fractions, sample=st.none() | st.just(3)
)
def test_a_yes_is_canonical_json(
    dataset: str, run: str, partition: str | None, fraction: float, sample: int | None
) -> None:
    budget = budget_of(accounting="rdp", epsilon=1.0, delta=1e-5)
    charge = charge_of(budget, GAUSSIAN, sample=POISSON)
    entry = entry_of(run=run, charge=charge.fingerprint, sample=sample)

    body = WRITER.body(Grant(dataset, entry, charge, budget, fraction, partition))

    content = json.loads(body)
    assert body == json_text(content)
    statement = verify_receipt(content.pop("receipt"), SIGNER.key_set())
    named = {} if partition is None else {"partition": partition}
    assert content == {
        "id": f"{dataset}~7",
        "sequence": 7,
        "dataset": dataset,
        "run": run,
        "sample": {"id": f"{dataset}~{sample or 7}", **POISSON},
        "cost": charge.cost_fields,
        "remaining": budget.remaining_at(fraction),
        **named,
    }
    assert statement == {
        "dataset": dataset,
        "sequence": 7,
        "kind": "authorized",
        "run": run,
        "at": moment(1),
        "step": charge.step.digest,
        "entry": entry.hash.hex(),
    }


@given(dataset=names, run=names, partition=st.none() | names)
def test_a_reservation_is_canonical_json(dataset: str, run: str, partition: str | None) -> None:
    budget = budget_of(accounting="zcdp", rho=1.0)
    entry = entry_of(kind=EntryKind.RESERVED, run=run, times=9, expires_at_us=2)

    body = WRITER.body(ReservationGrant(dataset, entry, gaussian(budget, 5.0), budget, 0.5, partition))

    content = json.loads(body)
    assert body == json_text(content)
    assert (content["times"], content["expires_at"], content["sample"]) == (9, moment(2), {"scheme": "full"})
    assert content.get("partition") == partition
    assert verify_receipt(content["receipt"], SIGNER.key_set())["times"] == 9


@pytest.mark.parametrize("fields", BUDGETS)
@given(fraction=fractions)
def test_numbers_are_written_as_json_writes_them(fields: dict[str, Any], fraction: float) -> None:
    remaining = budget_of(**fields).remaining_at(fraction)

    assert number_text(remaining) == json_text(remaining)


def test_numbers_of_numpy_are_written_as_number_text() -> None:
    assert number_text({"a": np.float64(0.1), "b": 1e300}) == '{"a":0.1,"b":1e+300}'


def test_what_is_not_finite_is_never_written() -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        json_text({"a": float("nan")})


def test_a_budget_read_back_tells_the_same() -> None:
    budget = budget_of(accounting="gdp", epsilon=1.0, delta=1e-6)
    again = Budget.from_document(budget.document)

    assert number_text(budget.remaining_at(0.3)) == number_text(again.remaining_at(0.3))
