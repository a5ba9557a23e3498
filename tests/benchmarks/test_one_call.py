"""The short form of ``make bench-one-call``: no refused step, nothing unused, above the majority."""

import pytest

from benchmarks.one_call import QUICK, Case, run_case
from dpledger_client import Ledger


@pytest.fixture(scope="module")
def ledger(tmp_path_factory: pytest.TempPathFactory) -> Ledger:
    return Ledger.embedded(tmp_path_factory.mktemp("one-call") / "ledger.db")


@pytest.mark.parametrize("case", QUICK, ids=lambda case: case.name)
def test_one_call_is_no_worse_than_the_majority_and_uses_what_it_was_given(
    ledger: Ledger, case: Case
) -> None:
    row = run_case(ledger, case, seeds=3)
    assert row.stopped == "finished"
    assert not row.wasteful
    assert row.accuracy > row.majority
