"""What an entry's hash covers, and times that lose nothing."""

import datetime as dt
import hashlib
import json
from dataclasses import fields, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpledger.ledger.model.entries import (
    GENESIS,
    Entry,
    EntryKind,
    identifier,
    instant,
    moment,
    parse_identifier,
)
from tests.ledger.builders import budget_of, charge_of, gaussian

FULL = Entry(
    sequence=7,
    kind=EntryKind.RESERVED,
    at_us=1_700_000_000_000_000,
    actor="ann",
    previous=GENESIS,
    run='a "run" é\u2028',
    partition=3,
    charge=bytes(range(32)),
    times=5,
    used=4,
    sample=2,
    reservation=6,
    expires_at_us=1_700_000_001_000_000,
    detail='{"reason":"x"}',
    team="lab",
)
OTHERS: dict[str, Any] = {
    "sequence": 8,
    "kind": EntryKind.AUTHORIZED,
    "previous": bytes([1]) * 32,
    "actor": "eve",
    "run": "b",
    "charge": bytes(32),
    "detail": "{}",
    "team": "office",
}


def reference(entry: Entry) -> bytes:
    """The chain's definition, written once more."""
    content: dict[str, Any] = {}
    for field in fields(Entry):
        value = getattr(entry, field.name)
        if field.name == "previous" or value is None:
            continue
        if isinstance(value, EntryKind):
            value = value.value
        content[field.name] = value.hex() if isinstance(value, bytes) else value
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(entry.previous + text.encode()).digest()


texts = st.text(min_size=1, max_size=30)
numbers = st.integers(0, 2**62)


@given(
    kind=st.sampled_from(EntryKind),
    actor=texts,
    run=st.none() | texts,
    partition=st.none() | numbers,
    charge=st.none() | st.binary(min_size=32, max_size=32),
    times=st.none() | numbers,
    sample=st.none() | numbers,
    detail=st.none() | texts,
)
def test_the_hash_is_that_of_the_sorted_json_of_what_is_set(**chosen: Any) -> None:
    entry = Entry(sequence=3, at_us=5, previous=GENESIS, **chosen)

    assert entry.hash == reference(entry)


@pytest.mark.parametrize("name", [field.name for field in fields(Entry)])
def test_every_field_is_covered_by_the_hash(name: str) -> None:
    value = OTHERS.get(name, 99)

    assert FULL.hash == reference(FULL)
    assert replace(FULL, **{name: value}).hash != FULL.hash


def test_a_charge_is_known_by_its_description_purpose_and_amounts() -> None:
    budget = budget_of(accounting="zcdp", rho=1.0)
    charge = gaussian(budget, 5.0)

    assert charge.fingerprint == gaussian(budget, 5.0).fingerprint
    assert replace(charge, purpose="x").fingerprint != charge.fingerprint
    assert replace(charge, amounts=charge.amounts * 2).fingerprint != charge.fingerprint
    assert gaussian(budget, 6.0).fingerprint != charge.fingerprint


def test_a_declared_cost_is_marked() -> None:
    budget = budget_of(accounting="zcdp", rho=1.0)

    assert charge_of(budget, {"mechanism": "zcdp", "rho": 0.1}).declared
    assert not gaussian(budget, 5.0).declared


@given(st.datetimes(min_value=dt.datetime(1970, 1, 1), max_value=dt.datetime(2200, 1, 1)))
def test_a_time_is_kept_to_the_microsecond(naive: dt.datetime) -> None:
    aware = naive.replace(tzinfo=dt.UTC)

    assert dt.datetime.fromisoformat(moment(instant(aware))) == aware


@given(st.from_regex(r"[a-z0-9][a-z0-9._-]{0,62}", fullmatch=True), st.integers(1, 10**18 - 1))
def test_an_id_names_its_dataset_and_entry(dataset: str, sequence: int) -> None:
    assert parse_identifier(identifier(dataset, sequence)) == (dataset, sequence)


@pytest.mark.parametrize(
    "text", ["", "~", "adult", "adult~", "~7", "adult~-1", "adult~x", "adult~" + "9" * 19, "a~²"]
)
def test_what_is_no_id_is_none(text: str) -> None:
    assert parse_identifier(text) is None
