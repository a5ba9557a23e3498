"""Fields of forms take what the API takes of the same fields, and nothing else."""

import math
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pydantic import ValidationError

from dpledger.accounting.errors import InvalidInput
from dpledger.api.schemas import requests as api
from dpledger.api.schemas.requests import BudgetChangeBody, QuotaBody, SettlementBody, TokenBody
from dpledger.dashboard.actions import fields as reading

BUDGET: dict[str, Any] = {"accounting": "zcdp", "rho": 1.0}
texts = st.one_of(st.text(max_size=120), st.sampled_from(["a" * 100, "a" * 101, "dpl_abcdefgh_" + "a" * 52]))
written = st.one_of(st.text("0123456789.eE+-_ x٣", max_size=12), st.floats().map(repr), st.text(max_size=8))


def is_taken(model: Any, **values: Any) -> bool:
    try:
        model.model_validate(values)
    except ValidationError:
        return False
    return True


def read(reader: Any, name: str, text: str) -> Any:
    """What a reader makes of one field; the error where it refuses."""
    try:
        return reader({name: text}, name)
    except InvalidInput as error:
        return error


def test_the_bounds_are_those_of_the_api() -> None:
    assert reading.DATASET_NAME.pattern == api.DATASET_NAME.pattern
    assert reading.LONGEST_PROSE == api.MAX_PROSE_CHARACTERS
    assert reading.MOST_DATASETS == api.MAX_TOKEN_DATASETS


@given(texts)
@example("ranking")
def test_a_team_is_one_that_the_api_takes(text: str) -> None:
    found = read(reading.read_team, "team", text)
    taken = is_taken(QuotaBody, team=text.strip(), fraction=0.5, reason="x")

    assert isinstance(found, InvalidInput) != taken


@given(texts)
@example("x" * 2000)
@example("x" * 2001)
def test_a_reason_is_one_that_the_api_takes(text: str) -> None:
    found = read(reading.read_reason, "reason", text)
    sent = text.replace("\r\n", "\n").strip()

    assert isinstance(found, InvalidInput) != is_taken(BudgetChangeBody, budget=BUDGET, reason=sent)
    if sent:
        taken = is_taken(SettlementBody, used=1, statement=sent)
        assert isinstance(read(reading.read_prose, "statement", text), InvalidInput) != taken


@given(written)
@example("1e400")
@example("1e-400")
@example("NaN")
@example("-0")
@example("5e-324")
@example("1.7976931348623157e308")
@example(".5")
@example("9" * 500)
@example("1e99999")
def test_a_number_is_the_double_that_was_written_or_refused(text: str) -> None:
    found = read(reading.read_number, "rho", text)

    if isinstance(found, InvalidInput):
        return
    assert math.isfinite(found)
    assert found == float(text.strip())
    assert found >= 0.0
    assert found > 0.0 or not any(digit in "123456789" for digit in text.lower().partition("e")[0])


@given(st.floats(0.0, 1.7976931348623157e308))
def test_every_double_that_is_written_out_is_read_back(value: float) -> None:
    assert read(reading.read_number, "rho", repr(value)) == value


@given(written)
@example("100")
@example("12.5")
@example("0")
@example("100.0000000001")
@example("1e-400")
def test_a_part_is_one_that_a_quota_may_have(text: str) -> None:
    found = read(reading.read_part, "percent", text)

    if not isinstance(found, InvalidInput):
        assert 0.0 < found <= 1.0
        assert is_taken(QuotaBody, team="a", fraction=found, reason="x")
        assert math.isclose(100.0 * found, float(text), rel_tol=1e-12) or found < 1e-300


def test_a_part_is_the_decimal_and_not_a_quotient() -> None:
    for percent, part in (("7", 0.07), ("28", 0.28), ("29", 0.29), ("57", 0.57), ("0.1", 0.001)):
        assert read(reading.read_part, "percent", percent) == part


@given(
    st.one_of(st.integers(0, 400_000_000).map(str), written), st.sampled_from(["seconds", "hours", "days"])
)
@example("3660", "days")
@example("3661", "days")
@example("0", "seconds")
def test_a_window_is_one_that_a_quota_may_have(text: str, unit: str) -> None:
    try:
        found = reading.read_seconds({"window": text, "window_unit": unit}, "window")
    except InvalidInput:
        if text.isascii() and text.isdigit():
            seconds = int(text) * {"seconds": 1, "hours": 3600, "days": 86_400}[unit]
            assert not is_taken(QuotaBody, team="a", fraction=0.5, reason="x", window_seconds=seconds)
        return
    assert is_taken(QuotaBody, team="a", fraction=0.5, reason="x", window_seconds=found)
    if found is not None:
        assert is_taken(TokenBody, scopes=["read"], expires_in_seconds=float(found))


@given(texts)
@example("adult census")
@example("adult,\n census")
@example(" ".join(f"d{number}" for number in range(1001)))
def test_names_of_datasets_are_those_that_the_api_takes(text: str) -> None:
    found = read(reading.read_datasets, "datasets", text)
    names = text.replace(",", " ").split()

    if names:
        assert isinstance(found, InvalidInput) != is_taken(TokenBody, scopes=["read"], datasets=names)
    else:
        assert found is None


@pytest.mark.parametrize("text", ["", " ", "-1", "1.0", "1e3", "٣", "²", "1" * 16])
def test_a_count_is_a_plain_whole_number(text: str) -> None:
    assert isinstance(read(reading.read_count, "used", text), InvalidInput)
