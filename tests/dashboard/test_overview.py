"""What is kept for people to look at is what the entries say, and is found without reading them all."""

import math
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from dpledger.ledger.errors import NotFound
from dpledger.ledger.model.budget import Budget
from dpledger.ledger.model.commands import Authorize, ChangeBudget, Expire, OpenPartitions, Reserve, Settle
from dpledger.ledger.model.entries import Charge, EntryKind
from dpledger.ledger.model.state import LedgerState
from dpledger.ledger.ports import EntryFilter, RunRow
from dpledger.storage.engine.session import SqliteSession
from dpledger.storage.read_models import dashboard as overview
from dpledger.storage.read_models.dashboard import (
    POINTS,
    DashboardReader,
    evenly_spaced_numbers,
    reader,
)
from dpledger.storage.read_models.listing import Cursor, Listing
from dpledger.storage.repositories.datasets import STEPS
from dpledger.storage.repositories.run_totals import magnitude
from dpledger.storage.repository import SqlStorage, SqlTransaction
from tests.api.service import GAUSSIAN, Service, made
from tests.storage.ledgers import ROOMY, ZCDP, charge, costing, open_ledger, spend, write

SIZE = ROOMY.size


def placed(storage: SqlStorage, name: str) -> int:
    with reader(storage.database) as reading:
        return next(
            each.left_basis_points for each in reading.listed(Listing(), None, 100) if each.place.name == name
        )


def left(storage: SqlStorage, name: str) -> float:
    state = storage.dataset(name).state
    return state.budget.fraction_left(state.committed_for(None))


def check_kept(storage: SqlStorage, name: str) -> None:
    """The place in the list is what the state says, and so is the last level, up to a visible step."""
    now = left(storage, name)
    assert placed(storage, name) == math.floor(10_000 * now)
    with reader(storage.database) as reading:
        levels = reading.levels(reading.position(name).dataset_id)
    last = levels[-1].fraction if levels else 1.0
    assert math.floor(STEPS * last) == math.floor(STEPS * now)


def test_the_place_follows_everything_that_changes_what_is_left(storage: SqlStorage) -> None:
    each = costing(0.05)
    state = open_ledger(storage, "adult", ZCDP)
    check_kept(storage, "adult")
    with storage.begin() as transaction:
        state = write(transaction, _locked(transaction), Authorize(each, "r"))
    check_kept(storage, "adult")
    with storage.begin() as transaction:
        state = write(transaction, _locked(transaction), Reserve(each, "r", 3, 10**9))
    assert placed(storage, "adult") == pytest.approx(6000, abs=1)
    check_kept(storage, "adult")
    with storage.begin() as transaction:
        state = _locked(transaction)
        held = transaction.reservation(state.dataset_id, state.sequence)
        state = write(transaction, state, Settle(held, 1))
    assert placed(storage, "adult") == pytest.approx(8000, abs=1)
    check_kept(storage, "adult")
    with storage.begin() as transaction:
        lower = replace(ZCDP, limits=np.array([0.2, 0.0]))
        write(transaction, _locked(transaction), ChangeBudget(lower, "less"))
    assert placed(storage, "adult") == pytest.approx(5000, abs=1)
    check_kept(storage, "adult")


def test_a_partition_counts_for_the_dataset_only_as_far_as_it_is_the_worst(storage: SqlStorage) -> None:
    each = costing(0.05)
    open_ledger(storage, "adult", ZCDP)
    with storage.begin() as transaction:
        write(transaction, _locked(transaction), OpenPartitions(("a", "b")))
    for name, expected in (("a", 9000), ("b", 9000), ("b", 8000), ("a", 8000), (None, 7000)):
        with storage.begin() as transaction:
            state = _locked(transaction)
            part = None if name is None else transaction.partitions(state.dataset_id, [name])[name]
            write(transaction, state, Authorize(each, "r", part))
        assert placed(storage, "adult") == pytest.approx(expected, abs=1)
        check_kept(storage, "adult")
    with reader(storage.database) as reading:
        fractions = [level.fraction for level in reading.levels(reading.position("adult").dataset_id)]
    assert fractions == pytest.approx([0.9, 0.8, 0.7])


def _locked(transaction: SqlTransaction, name: str = "adult") -> LedgerState:
    return transaction.lock([name])[name]


def test_an_expired_reservation_stays_spent(storage: SqlStorage) -> None:
    open_ledger(storage, "adult", ZCDP)
    with storage.begin() as transaction:
        write(transaction, _locked(transaction), Reserve(costing(0.1), "r", 2, 5_000))
    with storage.begin() as transaction:
        state = _locked(transaction)
        due = transaction.due_reservations(state.dataset_id, 6_000)
        write(transaction, state, *[Expire(each) for each in due], at_us=6_000)

    check_kept(storage, "adult")
    assert placed(storage, "adult") == pytest.approx(6000, abs=1)


def test_small_steps_leave_few_levels(storage: SqlStorage) -> None:
    open_ledger(storage, "adult", ZCDP)
    steps = 3000
    for _ in range(steps // 10):
        spend(storage, "adult", 10, each=costing(0.5 / (steps + 1)))

    with reader(storage.database) as reading:
        levels = reading.levels(reading.position("adult").dataset_id)

    assert STEPS - 10 <= len(levels) <= STEPS
    assert [level.fraction for level in levels] == sorted({level.fraction for level in levels}, reverse=True)
    gaps = np.diff([1.0, *[level.fraction for level in levels]])
    assert np.abs(gaps).max() < 2.0 / STEPS
    check_kept(storage, "adult")


@pytest.mark.parametrize("last", [0, 1, 2, 249, 250, 251, 1000, 10**9])
def test_a_sample_is_even_and_holds_both_ends(last: int) -> None:
    numbers = evenly_spaced_numbers(last, POINTS)

    assert len(numbers) == min(last, POINTS)
    if last:
        assert (numbers[0], numbers[-1]) == (1, last)
        gaps = set(np.diff(numbers).tolist())
        assert max(gaps, default=0) - min(gaps, default=0) <= 1


def names(reading: DashboardReader, after: Cursor | None, limit: int, search: str | None = None) -> list[str]:
    return [each.place.name for each in reading.listed(Listing(search=search), after, limit)]


def test_the_list_is_in_order_and_goes_on_behind_any_place(storage: SqlStorage) -> None:
    for name, steps in (("a", 1), ("b", 0), ("c", 4), ("d", 1), ("e", 0)):
        open_ledger(storage, name, ZCDP)
        if steps:
            spend(storage, name, steps, each=costing(0.1))
    expected = ["c", "a", "d", "b", "e"]

    with reader(storage.database) as reading:
        everything = reading.listed(Listing(), None, 10)
        assert [each.place.name for each in everything] == expected
        for index, each in enumerate(everything):
            assert names(reading, each.place, 10) == expected[index + 1 :]
        assert names(reading, None, 2) == expected[:2]
        among = reading.listed(Listing(), None, 10, {"e", "d", "c", "nowhere"})
        assert [each.place.name for each in among] == ["c", "d", "e"]
        behind = reading.listed(Listing(), among[0].place, 1, {"e", "d", "c"})
        assert [each.place.name for each in behind] == ["d"]
        assert (reading.count_below(10_000, 100), reading.count_below(10_000, 2)) == (3, 2)
        assert reading.count_below(1, 100) == 0


@pytest.mark.parametrize("search", ["needle", "NEEDLE", "50%", "a_b", "back\\slash"])
def test_a_search_finds_texts_word_for_word(storage: SqlStorage, search: str) -> None:
    open_ledger(storage, "found", ZCDP, description=f"holds {search.lower()} and more")
    open_ledger(storage, "other", ZCDP, description="50 of axb, backslash, need le")

    with reader(storage.database) as reading:
        assert names(reading, None, 10, search) == ["found"]
        among = reading.listed(Listing(search=search), None, 9, {"found", "other"})
        assert [each.place.name for each in among] == ["found"]


def exact_sums(
    storage: SqlStorage, state: LedgerState, of: Callable[[Any], str | None]
) -> dict[str, list[Fraction]]:
    """What each run or purpose has spent, from every entry, in exact arithmetic."""
    stored = {
        each.entry.sequence: each for each in storage.entries(state.dataset_id, EntryFilter(limit=10_000))
    }
    sums: dict[str, list[Fraction]] = defaultdict(lambda: [Fraction(0)] * state.budget.size)
    for each in stored.values():
        entry = each.entry
        spent = each if entry.kind is EntryKind.AUTHORIZED else stored.get(entry.reservation or 0)
        if spent is None or spent.charge is None or entry.kind is EntryKind.RESERVED:
            continue
        times = 1 if entry.kind is EntryKind.AUTHORIZED else entry.used or 0
        key = of(replace(each, charge=spent.charge))
        if key is not None and times:
            sums[key] = [
                so_far + times * Fraction(float(amount))
                for so_far, amount in zip(sums[key], spent.charge.amounts, strict=True)
            ]
    return sums


def check_sums(found: list[RunRow], expected: dict[str, list[Fraction]]) -> None:
    assert {row.name for row in found} == set(expected)
    for row in found:
        for kept, exact in zip(row.amounts, expected[row.name], strict=True):
            assert exact <= Fraction(float(kept)) <= exact * (1 + Fraction(1, 10**12))


def mixed_ledger(storage: SqlStorage) -> LedgerState:
    """Runs that spend one by one, in groups and by reservation, for two purposes."""
    open_ledger(storage, "adult")
    gradient, search = charge(30.0, "gradient"), charge(20.0, "line-search")
    for index in range(6):
        spend(storage, "adult", 1 + index, f"run-{index % 3}", gradient if index % 2 else search)
    with storage.begin() as transaction:
        state = write(transaction, _locked(transaction), Reserve(search, "run-9", 10, 10**9))
    with storage.begin() as transaction:
        state = _locked(transaction)
        held = transaction.reservation(state.dataset_id, state.sequence)
        state = write(transaction, state, Settle(held, 7), Authorize(charge(5.0, ""), "run-9"))
    with storage.begin() as transaction:
        return write(transaction, _locked(transaction), Reserve(gradient, "run-held", 10, 10**9))


def test_runs_and_purposes_add_up_to_what_the_entries_say(storage: SqlStorage) -> None:
    state = mixed_ledger(storage)

    with reader(storage.database) as reading:
        by_run = reading.largest_runs(state.dataset_id, 100, SIZE)
        by_purpose = reading.largest_purposes(state.dataset_id, 100, SIZE)

    check_sums(by_run, exact_sums(storage, state, lambda each: each.entry.run))
    check_sums(by_purpose, exact_sums(storage, state, lambda each: each.charge.purpose))
    assert sum(row.entries for row in by_purpose) == 1 + 2 + 3 + 4 + 5 + 6 + 2


def test_the_largest_stand_first(storage: SqlStorage) -> None:
    state = mixed_ledger(storage)

    with reader(storage.database) as reading:
        amounts = [float(row.amounts[2]) for row in reading.largest_runs(state.dataset_id, 100, SIZE)]
        first = reading.largest_runs(state.dataset_id, 1, SIZE)

    assert amounts == sorted(amounts, reverse=True)
    assert [row.name for row in first] == ["run-9"]


def test_what_a_budget_change_does_not_touch(storage: SqlStorage) -> None:
    """Sums keep their order when the limit changes between them."""
    open_ledger(storage, "adult", ZCDP)
    spend(storage, "adult", 2, "small", costing(0.1))
    with storage.begin() as transaction:
        raised = replace(ZCDP, limits=np.array([50.0, 0.0]))
        state = write(transaction, _locked(transaction), ChangeBudget(raised, "more"))
    spend(storage, "adult", 10, "large", costing(0.1))

    with reader(storage.database) as reading:
        assert [row.name for row in reading.largest_runs(state.dataset_id, 9, 2)] == ["large", "small"]


@pytest.mark.parametrize("budget", [ROOMY, ZCDP], ids=["weights", "scalar"])
def test_magnitudes_grow_with_amounts_and_change_seldom(budget: Budget) -> None:
    each = np.full(budget.size, 1e-7)
    found = [magnitude(budget, each * times) for times in range(1, 100_000, 7)]

    assert found == sorted(found)
    assert len(set(found)) <= 16 * math.log2(100_000) + 2
    assert magnitude(budget, np.zeros(budget.size)) == 0
    for extreme in (5e-324, 1e308, math.inf):
        assert 1 <= magnitude(budget, np.full(budget.size, extreme)) < 2**15


def test_spending_where_nothing_is_ranked_still_counts() -> None:
    amounts = np.zeros(ROOMY.size)
    amounts[-1] = 1e-9

    assert magnitude(ROOMY, amounts) == 1


def test_a_purpose_longer_than_an_index_holds_is_shortened(storage: SqlStorage) -> None:
    open_ledger(storage, "adult")
    spend(storage, "adult", 1, each=charge(purpose="ü" * 6000))
    spend(storage, "adult", 1, each=charge(purpose="ü" * 6001))

    with reader(storage.database) as reading:
        state = reading.dataset("adult").state
        (row,) = reading.largest_purposes(state.dataset_id, 9, SIZE)

    assert (len(row.name), row.entries) == (200, 2)


def test_few_steps_are_all_there_and_many_are_sampled_evenly(storage: SqlStorage) -> None:
    open_ledger(storage, "adult")
    each = charge(30.0)
    with storage.begin() as transaction:
        commands = [Authorize(each, "many" if index % 3 else "few") for index in range(3 * POINTS)]
        write(transaction, _locked(transaction), *commands)

    with reader(storage.database) as reading:
        state = reading.dataset("adult").state
        steps = {}
        for name in ("few", "many"):
            number, run = reading.run(state.dataset_id, name, SIZE)
            steps[name] = [step.sequence for step in reading.steps(state.dataset_id, number, run.entries)]
        with pytest.raises(NotFound):
            reading.run(state.dataset_id, "nobody", SIZE)

    assert steps["few"] == list(range(2, 3 * POINTS + 2, 3))
    many = steps["many"]
    assert POINTS // 2 < len(many) <= POINTS
    assert many[0] == 3
    assert many[-1] > 3 * POINTS - 6
    assert all((sequence - 2) % 3 for sequence in many)
    assert set(np.diff(many)) <= {3, 4, 5}


def test_steps_leave_out_what_was_not_charged(storage: SqlStorage) -> None:
    state = mixed_ledger(storage)

    with reader(storage.database) as reading:
        number, run = reading.run(state.dataset_id, "run-9", SIZE)
        steps = reading.steps(state.dataset_id, number, run.entries)

    assert [(step.times, step.charge.purpose) for step in steps] == [(10, "line-search"), (1, "")]


def refusals(service: Service, dataset: str = "adult") -> list[tuple[str, str | None, int, int]]:
    with reader(service.app.state.services.storage.database) as reading:
        found = reading.refusals(reading.position(dataset).dataset_id, 100)
    return [(each.run, each.partition, each.times, each.fits_times) for each in found]


def test_every_way_of_being_refused_is_noted_once(service: Service) -> None:
    service.open()
    service.open("roomy", {"accounting": "zcdp", "rho": 100.0})
    made(service.post("/v1/datasets/adult/partitions", {"names": ["a"]}))
    for _ in range(4):
        made(service.authorize())
    wanted = {"releases": [GAUSSIAN]}
    adult, roomy = {"dataset": "adult", **wanted}, {"dataset": "roomy", **wanted}

    for _ in range(2):
        assert service.authorize(run="single", key="one").status_code == 409
        assert service.reserve(9, key="two", run="held").status_code == 409
        nothing = service.bulk(
            "all-or-nothing", {**roomy, "run": "all"}, {**adult, "run": "all"}, key="three"
        )
        assert nothing.status_code == 409
        service.bulk("each", {**roomy, "run": "each"}, {**adult, "run": "each", "partition": "a"}, key="four")

    assert refusals(service) == [
        ("each", "a", 1, 0),
        ("all", None, 1, 0),
        ("held", None, 9, 0),
        ("single", None, 1, 0),
    ]
    assert refusals(service, "roomy") == []
    service.verified()


def test_a_refusal_says_when_by_whom_and_what_was_left(service: Service) -> None:
    service.open()
    made(service.authorize())
    service.clock.advance(5)
    assert service.reserve(6).status_code == 409

    with reader(service.app.state.services.storage.database) as reading:
        position = reading.position("adult")
        (found,) = reading.refusals(position.dataset_id, 9)

    assert position.refusals == 1
    assert (found.sequence, found.at_us, found.times, found.fits_times) == (2, service.clock.at_us, 6, 3)
    assert found.actor == service.token.split("_")[1]
    assert found.fraction == service.budget()["fraction"]
    assert 0.0 < found.fits_fraction <= 1.0


def test_combinations_find_what_a_look_at_every_entry_finds(
    storage: SqlStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(overview, "_COMBED_AT_ONCE", 3)
    state = mixed_ledger(storage)
    every = [each.entry for each in storage.entries(state.dataset_id, EntryFilter(limit=1000))][::-1]

    with reader(storage.database) as reading:
        for run in (None, "run-0", "run-9", "nobody"):
            for kind in (None, "authorized", "settled", "reserved"):
                for limit in (1, 4, 100):
                    found = reading.entries(state.dataset_id, EntryFilter(limit=limit, run=run, kind=kind))
                    alike = [e for e in every if run in (None, e.run) and kind in (None, e.kind.value)]
                    sequences = [each.entry.sequence for each in found.entries]
                    assert sequences == [entry.sequence for entry in alike[:limit]], (run, kind, limit)


@contextmanager
def explained(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """How SQLite would answer every query that is asked meanwhile."""
    plans: list[str] = []
    ask = SqliteSession.rows

    def rows(self: SqliteSession, statement: Any, values: Any, each: Any = ()) -> Any:
        text = self.texts[statement]
        plan = self._raw.execute(f"EXPLAIN QUERY PLAN {text.sql}", text.positions(values, each))
        plans.extend(row[3] for row in plan.fetchall())
        return ask(self, statement, values, each)

    with monkeypatch.context() as patched:
        patched.setattr(SqliteSession, "rows", rows)
        yield plans


def test_no_page_reads_a_table_from_end_to_end(storage: SqlStorage, monkeypatch: pytest.MonkeyPatch) -> None:
    """SQLite says so itself; on PostgreSQL the same queries must at least be answered."""
    state = mixed_ledger(storage)
    with explained(monkeypatch) as plans, reader(storage.database) as reading:
        reading.listed(Listing(), Cursor(5, "a"), 10)
        reading.listed(Listing(descending=True), None, 10)
        reading.listed(Listing("name"), None, 10)
        reading.listed(Listing("name", descending=True), None, 10)
        reading.listed(Listing(), None, 10, {"adult"})
        (found,) = reading.anchors([state.dataset_id], [1, 2, 3]).values()
        reading.samples({state.dataset_id: found.levels}, 24)
        reading.latest_refusals([state.dataset_id], 100)
        reading.top_runs({state.dataset_id: SIZE})
        reading.last_grant(state.dataset_id)
        reading.count_below(1000, 10)
        reading.refusing(state.dataset_id)
        reading.held(state.dataset_id)
        reading.purpose(state.dataset_id, "gradient", SIZE)
        reading.position("adult")
        reading.levels(state.dataset_id)
        reading.largest_runs(state.dataset_id, 10, SIZE)
        reading.largest_purposes(state.dataset_id, 10, SIZE)
        reading.refusals(state.dataset_id, 10)
        reading.reservations(state.dataset_id, 0, 10, SIZE)
        number, run = reading.run(state.dataset_id, "run-1", SIZE)
        reading.steps(state.dataset_id, number, run.entries)
        for chosen in (
            EntryFilter(limit=10),
            EntryFilter(limit=10, kind="settled"),
            EntryFilter(limit=10, run="run-1"),
            EntryFilter(limit=10, kind="authorized", run="run-1"),
        ):
            reading.entries(state.dataset_id, chosen)

    assert bool(plans) == (storage.database.engine.dialect.name == "sqlite")
    sought = "".join(plans)
    for index in ("ix_entries_run", "ix_entries_rare_kind", "ix_runs_magnitude", "ix_purposes_magnitude"):
        assert not plans or index in sought
    # What is read in full is the short list in the middle of a query, and an index up to a limit.
    scans = {plan for plan in plans if plan.startswith("SCAN")}
    assert scans <= {
        "SCAN found",
        "SCAN anon_1",
        "SCAN 2 CONSTANT ROWS",
        "SCAN datasets USING INDEX ix_datasets_left",
    }
    assert not [plan for plan in plans if "TEMP B-TREE" in plan]


def test_the_description_of_a_charge_is_read_with_the_step(storage: SqlStorage) -> None:
    state = mixed_ledger(storage)
    with reader(storage.database) as reading:
        number, run = reading.run(state.dataset_id, "run-0", SIZE)
        steps = reading.steps(state.dataset_id, number, run.entries)

    expected: Charge = charge(20.0, "line-search")
    assert steps[0].charge.fingerprint == expected.fingerprint
