"""Every value comes back from its bytes with every bit it had."""

import math
import struct
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpledger.accounting.cost import Cost
from dpledger.accounting.exact import Exact
from dpledger.accounting.steps import Step
from dpledger.accounting.validation import Floats
from dpledger.ledger.model.budget import Budget
from dpledger.ledger.model.entries import Charge, EntryKind
from dpledger.ledger.model.state import ExactTotals, PartitionExtremes, Totals
from dpledger.storage.engine import codec
from tests.storage.ledgers import ROOMY, call, charge, same_bits

FLOATS = st.floats(allow_nan=True, allow_infinity=True, allow_subnormal=True, width=64)
VECTORS = st.lists(FLOATS, min_size=1, max_size=40).map(lambda values: np.array(values))
PLAIN_VECTOR = np.array([0.0, 0.1, 1e-320, 1.5])


@given(VECTORS)
def test_a_vector_comes_back_bit_for_bit(vector: Floats) -> None:
    raw = codec.vector_to_bytes(vector)

    assert same_bits(codec.vector_from_bytes(raw, vector.size), vector)


def test_the_bytes_are_little_endian_on_every_machine() -> None:
    assert codec.vector_to_bytes(PLAIN_VECTOR) == struct.pack("<4d", *PLAIN_VECTOR)
    assert codec.vector_to_bytes(PLAIN_VECTOR.astype(">f8")) == struct.pack("<4d", *PLAIN_VECTOR)


def test_nothing_is_stored_as_nothing_but_a_negative_zero_is_something() -> None:
    assert codec.vector_to_bytes(np.zeros(5)) == b""
    assert codec.vector_to_bytes(np.array([0.0, -0.0])) != b""
    assert same_bits(codec.vector_from_bytes(b"", 3), np.zeros(3))


@pytest.mark.parametrize("raw", [b"\1", b"\1" * 24, b"\1" * 40])
def test_a_vector_of_another_length_is_damaged(raw: bytes) -> None:
    with pytest.raises(codec.Damaged, match="4 numbers"):
        codec.vector_from_bytes(raw, 4)


@given(VECTORS, st.integers(0, 2**31 - 1))
def test_totals_come_back_bit_for_bit(spent: Floats, open_reservations: int) -> None:
    totals = Totals(spent, spent[::-1].copy(), open_reservations)

    again = codec.totals_from_columns(*codec.columns_of_totals(totals), size=spent.size)

    assert same_bits(again.spent, totals.spent)
    assert same_bits(again.reserved, totals.reserved)
    assert again.open_reservations == open_reservations


@given(
    st.lists(st.fractions(0, 10**6), min_size=1, max_size=30).flatmap(
        lambda spent: st.tuples(st.just(spent), st.permutations(spent), st.integers(0, 3))
    )
)
def test_exact_totals_come_back_as_they_were(parts: tuple[list[Fraction], list[Fraction], int]) -> None:
    spent, held, open_reservations = parts
    totals = ExactTotals(Exact.of(spent), Exact.of(held), open_reservations)

    again = codec.totals_from_columns(*codec.columns_of_totals(totals), size=len(spent))

    assert isinstance(again, ExactTotals)
    assert again.exact_spent.fractions() == totals.exact_spent.fractions()
    assert again.exact_reserved.fractions() == totals.exact_reserved.fractions()
    assert same_bits(again.spent, totals.spent)
    assert same_bits(again.committed, totals.committed)


@pytest.mark.parametrize(
    "text", ["", "1:1,2", "1:1,2|x:1,2", "0:1,2|", "1:-1,2|", "1:1,2,3|", "1:1,2||", "1:+1,2|"]
)
def test_exact_totals_that_nobody_wrote_are_damaged(text: str) -> None:
    with pytest.raises(codec.Damaged, match="exact"):
        codec.totals_from_columns(b"", b"", 0, text, size=2)


def budget_with(size: int) -> Budget:
    return Budget("rdp-curve", np.arange(2.0, size + 1.0), np.linspace(1.0, 2.0, size), {})


@given(
    st.integers(1, 20).flatmap(lambda size: st.lists(st.tuples(*[FLOATS] * 4), min_size=size, max_size=size))
)
def test_extremes_come_back_bit_for_bit(columns: list[tuple[float, ...]]) -> None:
    headroom, least, first, second = (np.array(column) for column in zip(*columns, strict=True))
    holder = np.arange(-1, len(columns) - 1, dtype=np.int64) * 2**40
    budget = budget_with(len(columns))

    again = codec.extremes_from_bytes(
        codec.extremes_to_bytes(PartitionExtremes(headroom, least, first, second, holder), budget), budget
    )

    for stored, given_ in zip(
        (again.headroom, again.least_limit, again.first, again.second, again.holder),
        (headroom, least, first, second, holder),
        strict=True,
    ):
        assert same_bits(stored, given_)
    assert again.holder.dtype == np.int64


def test_empty_extremes_take_no_bytes_and_follow_their_budget() -> None:
    empty = PartitionExtremes.empty(ROOMY)

    assert codec.extremes_to_bytes(empty, ROOMY) == b""
    assert same_bits(codec.extremes_from_bytes(b"", ROOMY).headroom, ROOMY.limits)
    assert codec.extremes_to_bytes(empty, budget_with(5)) != b""


def test_extremes_of_another_length_are_damaged() -> None:
    with pytest.raises(codec.Damaged, match="5 coordinates"):
        codec.extremes_from_bytes(b"\1" * 8, ROOMY)


def columns_of(charge_: Charge) -> tuple[object, ...]:
    return codec.columns_of_charge(charge_)[1:]


@pytest.mark.parametrize("rho", [None, 0.0, 0.1 + 0.2, 5e-324])
def test_a_charge_comes_back_bit_for_bit(rho: float | None) -> None:
    cost = Cost(np.array([1.5, 2.0]), np.array([0.1, math.pi]), 1e-9, rho, None, rho)
    step = Step.from_fields([{"mechanism": "zcdp", "rho": 1 / 3, "count": 3}], None, "replace-one")
    charged = Charge(step, "line-search ≤ 3", cost, np.array([0.1, math.pi, 1e-9]))

    again = codec.charge_from_columns(*columns_of(charged))  # type: ignore[arg-type]

    assert again.fingerprint == charged.fingerprint
    assert again.step == step
    assert again.purpose == charged.purpose
    assert same_bits(again.amounts, charged.amounts)
    assert again.cost_fields == charged.cost_fields


@pytest.mark.parametrize(
    ("column", "value"),
    [(0, "{}"), (0, "no JSON"), (2, b"\1\2\3"), (4, b"\1\2\3"), (4, b""), (5, -1.0), (6, math.nan)],
)
def test_a_charge_that_cannot_have_been_written_is_damaged(column: int, value: object) -> None:
    columns = list(columns_of(charge()))
    columns[column] = value

    with pytest.raises(codec.Damaged):
        codec.charge_from_columns(*columns)  # type: ignore[arg-type]


def test_every_kind_has_a_number_of_its_own_for_good() -> None:
    numbers = {kind.value: code for kind, code in codec.KIND_CODES.items()}

    assert set(codec.KIND_CODES) == set(EntryKind)
    assert numbers == {
        "opened": 1,
        "budget-changed": 2,
        "partitions-opened": 3,
        "authorized": 4,
        "reserved": 5,
        "settled": 6,
        "expired": 7,
        "rollback-accepted": 8,
        "allocated": 9,
        "allocation-returned": 10,
        "quota-changed": 11,
        "budget-requested": 12,
        "request-approved": 13,
        "request-rejected": 14,
        "request-withdrawn": 15,
        "renewal-changed": 16,
    }


def test_a_key_is_of_one_actor_in_one_dataset() -> None:
    keys = {
        codec.entry_key(1, call(7)),
        codec.entry_key(2, call(7)),
        codec.entry_key(1, call(8)),
        codec.entry_key(1, call(7, actor="token-2")),
    }

    assert len(keys) == 4
    assert {len(key) for key in keys} == {16}
    assert codec.entry_key(1, call(7, request=b"x" * 16)) == codec.entry_key(1, call(7))
