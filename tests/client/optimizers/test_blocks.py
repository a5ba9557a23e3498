"""Equal steps are asked for in growing blocks: as many are made, charged and released as by single asks."""

import os
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dpledger.ledger.filters import filter_names
from dpledger_client import (
    Account,
    Dataset,
    Gaussian,
    JournalMismatch,
    Ledger,
    Poisson,
    Release,
    ReservationClosed,
    _calls,
    insecure_testing_noise,
)
from dpledger_client.objectives import Logistic
from dpledger_client.optimizers import Iterate, Method, Result, Source, Training, minimize
from dpledger_client.optimizers.methods.dp_agd import DPAGD
from dpledger_client.optimizers.methods.dp_sgd import DPSGD
from dpledger_client.optimizers.methods.mpadmm import ModelPerturbationADMM
from dpledger_client.optimizers.methods.noisy_gd import NoisyGradientDescent
from dpledger_client.optimizers.methods.privgene import PrivGene
from dpledger_client.optimizers.support import blocks
from dpledger_client.optimizers.support.blocks import RESERVED_AT_COST, Blocks, BlockSizes
from tests.client.optimizers.contract import charged_steps, classification, curve_budget

Open = Callable[..., Dataset]
GD = NoisyGradientDescent(steps=80, clip=1.0, noise_multiplier=10.0, step_size=0.5)
SGD = DPSGD(80, batch_size=12, clip=1.0, noise_multiplier=2.0, step_size=0.5)


def train(account: Account, method: Method = GD, **more: Any) -> Result:
    X, y = classification()
    with insecure_testing_noise(11):
        return minimize(Logistic(), X, y, account=account, method=method, progress=False, **more)


def opened(open_dataset: Open, budget: dict[str, Any] | None = None) -> Dataset:
    return open_dataset(budget=budget or curve_budget(), records=len(classification()[0]))


def kinds(dataset: Dataset) -> list[str]:
    return [entry["kind"] for entry in dataset.entries()]


def sizes_of(
    steps: list[str], seconds_per_step: float, most: int | None = None, asking_seconds: float = 0.003
) -> list[int]:
    """The sizes of the blocks for these steps, each of which takes so long."""
    sizes, found = BlockSizes(most), [0]
    for step in steps:
        found.append(sizes.next(step, found[-1], found[-1] * seconds_per_step, asking_seconds))
    return found[1:]


class Irregular(Method):
    """Takes one repetition per iteration, two, or one and a step of another kind, and fails in the end."""

    name = "irregular"

    def train(self, training: Training) -> None:
        often, seldom = Release(Gaussian(1.0, 50.0)), Release(Gaussian(1.0, 60.0))
        sample, eta = Poisson(0.1), 0.5
        for iteration in range(12):
            training.release(often, sample, lambda _batch: 0.0)
            if iteration == 5:
                training.release(often, sample, lambda _batch: 0.0)
            if iteration == 8:
                training.authorized(seldom, sample).release(lambda _batch: 0.0)
            training.record(training.w, step_size=eta if iteration != 3 else 0.25)
        training.release(often, sample, lambda _batch: 1 / 0)


@pytest.mark.parametrize("reserve", [None, 4, 40])
def test_each_repetition_is_noted_in_its_own_iteration(open_dataset: Open, reserve: int | None) -> None:
    dataset, (X, y) = opened(open_dataset), classification()
    training = Training(
        Logistic(), Source.of(X, y, dataset.run("job")), method="irregular", steps=40, reserve=reserve
    )
    with pytest.raises(ZeroDivisionError), training:
        Irregular().train(training)
    history = training.result("failed").history
    assert [record.iteration for record in history] == [*range(1, 13), 12]
    assert [len(record.charges) for record in history] == [1, 1, 1, 1, 1, 2, 1, 1, 2, 1, 1, 1, 1]
    assert [record.details.get("step_size") for record in history[:5]] == [0.5, 0.5, 0.5, 0.25, 0.5]
    assert [record.iteration for record in history[2:5]] == [3, 4, 5]
    assert history[-1].details == {"completed": False}
    charges = [charge for record in history for charge in record.charges]
    assert len({(charge.id, charge.repetition) for charge in charges}) == len(charges) == 15
    spent = [entry["used"] for entry in dataset.entries() if entry["kind"] == "settled"]
    assert sum(spent) + kinds(dataset).count("authorized") == len(charges)


def test_blocks_grow_up_to_a_count() -> None:
    assert sizes_of(["a"] * 5, 1e-4) == [1, 1024, 1024, 1024, 1024]
    assert sizes_of(["a"] * 4, 1e-4, most=40) == [1, 40, 40, 40]
    assert sizes_of(["a"] * 3, 1e-4, most=1) == [1, 1, 1]


def test_a_block_is_no_larger_than_makes_asking_cheap() -> None:
    """Three milliseconds are a hundredth of three hundred."""
    assert sizes_of(["a"] * 4, 0.002) == [1, 150, 150, 150]
    assert sizes_of(["a"] * 4, 0.05) == [1, 6, 6, 6]
    assert sizes_of(["a"] * 4, 0.15) == [1, 1, 1, 1]
    assert sizes_of(["a"] * 4, 1.0) == [1, 1, 1, 1]


def test_a_block_takes_at_most_half_a_minute() -> None:
    assert sizes_of(["a"] * 4, 4.0, asking_seconds=60.0) == [1, 7, 7, 7]
    assert sizes_of(["a"] * 4, 100.0, asking_seconds=60.0) == [1, 1, 1, 1]


def test_another_step_begins_with_one() -> None:
    assert sizes_of(["a", "a", "a", "b", "a", "a"], 1e-4) == [1, 1024, 1024, 1, 1, 1024]


def test_after_an_interruption_blocks_begin_with_one() -> None:
    sizes = BlockSizes()
    assert [sizes.next("a", 1, 1e-4, 0.003) for _ in range(2)] == [1, 1024]
    sizes.restart()
    assert [sizes.next("a", 1, 1e-4, 0.003) for _ in range(2)] == [1, 1024]


def test_a_block_outlives_any_pause_that_there_was() -> None:
    sizes = BlockSizes()
    sizes.next("a", 1, 0.0, 0.003)
    sizes.next("a", 1, 1000.0, 0.003)
    assert sizes.expires_in_seconds > 2.0 * 1000.0


@pytest.mark.parametrize("most", [0, -1, 1.5])
def test_a_block_is_a_whole_number_of_steps(open_dataset: Open, most: Any) -> None:
    with pytest.raises((TypeError, ValueError), match="block"):
        train(opened(open_dataset).run("job"), block=most)


def test_a_block_does_not_go_with_a_reservation(open_dataset: Open) -> None:
    with pytest.raises(ValueError, match=r"give reserve, .* or block"):
        train(opened(open_dataset).run("job"), block=2, reserve=2)


class Clock:
    """Seconds that pass when the clock is read, so that steps take none of them and asking some."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 0.01
        return self.now


def defaults_of(kind: type) -> dict[str, Any]:
    """The defaults of a constructor's named arguments."""
    return dict(kind.__init__.__kwdefaults__ or {})  # type: ignore[misc]


@pytest.fixture
def fast_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """As many as are planned from the second block on, however long steps take."""
    monkeypatch.setattr(Blocks.__init__, "__kwdefaults__", {**defaults_of(Blocks), "clock": Clock()})


@pytest.mark.parametrize("method", [GD, SGD], ids=lambda method: method.name)
@pytest.mark.usefixtures("fast_clock")
def test_many_steps_are_few_questions(open_dataset: Open, method: Method) -> None:
    dataset = opened(open_dataset)
    result = train(dataset.run("job"), method)

    assert [entry["times"] for entry in dataset.entries(kind="reserved")] == [79]
    assert kinds(dataset) == ["opened", "authorized", "reserved", "settled"]
    assert result.iterations == len(result.charges) == charged_steps(dataset) == 80


def test_alone_or_in_blocks_it_does_the_same(open_dataset: Open) -> None:
    alone, many = opened(open_dataset), opened(open_dataset)
    one, other = train(alone.run("job"), SGD, block=1), train(many.run("job"), SGD)

    np.testing.assert_array_equal(one.w, other.w)
    assert one.spent == other.spent
    assert "reserved" not in kinds(alone)


BUDGETS: dict[str, Callable[[float], dict[str, Any]]] = {
    "zcdp": lambda steps: {"accounting": "zcdp", "rho": steps * 0.005},
    "gdp": lambda steps: {"accounting": "gdp", "mu": 0.1 * steps**0.5},
    "rdp": lambda steps: {"accounting": "rdp", "epsilon": 0.15 * steps**0.5, "delta": 1e-5},
    "rdp-order": lambda steps: {
        "accounting": "rdp-order",
        "order": 64.0,
        "epsilon": 0.2 + 0.32 * steps,
        "delta": 1e-5,
    },
    "plan": lambda steps: {
        "accounting": "plan",
        "epsilon": 10.0,
        "delta": 1e-5,
        "items": [
            {
                "name": "descent",
                "releases": [{"mechanism": "gaussian", "sensitivity": 1.0, "noise_std": 10.0}],
                "times": int(steps),
            }
        ],
    },
    "rdp-curve": lambda steps: curve_budget([steps * order * 0.005 for order in (2.0, 4.0, 8.0, 16.0)]),
}
"""Budgets of every kind for about so many steps of ``GD``, each of ρ = 0.005."""


def test_every_kind_of_budget_is_known() -> None:
    # Steps of a shared budget are charged to an allocation, whose budget is of one of the other kinds.
    assert set(filter_names()) - {"shared"} == BUDGETS.keys()
    assert BUDGETS.keys() <= RESERVED_AT_COST


@pytest.mark.parametrize("steps", [1.0, 2.5, 7.0, 15.0, 22.5, 61.0])
@pytest.mark.parametrize("kind", BUDGETS)
def test_not_one_affordable_step_is_lost(open_dataset: Open, kind: str, steps: float) -> None:
    alone, many = (opened(open_dataset, BUDGETS[kind](steps)) for _ in range(2))
    one, other = train(alone.run("job"), block=1), train(many.run("job"))

    assert one.stop_reason == other.stop_reason == "budget-exhausted"
    assert one.iterations == other.iterations == charged_steps(many) == charged_steps(alone)
    assert other.refusal is not None
    assert other.refusal.requested["times"] == 1
    assert many.budget().fraction == pytest.approx(alone.budget().fraction, abs=1e-12)
    np.testing.assert_array_equal(one.w, other.w)


def test_without_a_planned_end_no_affordable_step_is_lost_either(open_dataset: Open) -> None:
    """Selections of a genetic search are alike but for the last."""
    method = PrivGene(12, epsilon=0.1, loss_clip=1.0, population=6, parents=3)
    alone, many = (opened(open_dataset, {"accounting": "zcdp", "rho": 0.021}) for _ in range(2))
    one, other = train(alone.run("job"), method, block=1), train(many.run("job"), method, block=8)

    assert one.stop_reason == "budget-exhausted"
    assert 3 < one.iterations == other.iterations
    assert many.budget().spent == alone.budget().spent
    assert kinds(many).count("reserved") > 0


@pytest.mark.parametrize(
    "method",
    [
        ModelPerturbationADMM(6, clip=1.0, noise_std=0.2, step_size=lambda k: 1.0 / k),
        DPAGD(0.01, 0.01, gradient_clip=1.0, loss_clip=1.0, steps=4),
    ],
    ids=lambda method: method.name,
)
def test_steps_that_change_are_asked_for_singly(open_dataset: Open, method: Method) -> None:
    dataset = opened(open_dataset)
    train(dataset.run("job"), method)
    assert set(kinds(dataset)) == {"opened", "authorized"}


def test_under_a_kind_of_budget_that_is_not_known_each_step_is_asked_for(open_dataset: Open) -> None:
    dataset = opened(open_dataset)
    dataset.ledger._wire.facts[dataset.name] = {**dataset.facts(), "accounting": "of-tomorrow"}
    train(dataset.run("job"))
    assert set(kinds(dataset)) == {"opened", "authorized"}


def test_what_is_left_is_told_as_it_is_at_the_end(open_dataset: Open) -> None:
    dataset = opened(open_dataset, BUDGETS["zcdp"](200.0))
    result = train(dataset.run("job"), callback=lambda iterate: iterate.iteration == 10)

    assert result.stop_reason == "callback"
    assert charged_steps(dataset) == 10
    assert result.remaining["rho"] == pytest.approx(190 * 0.005)


@pytest.mark.parametrize("error", [ZeroDivisionError, KeyboardInterrupt, SystemExit])
def test_whatever_ends_it_the_rest_is_settled(open_dataset: Open, error: type[BaseException]) -> None:
    dataset = opened(open_dataset)

    def fail(iterate: Iterate) -> None:
        if iterate.iteration == 10:
            raise error

    with pytest.raises(error):
        train(dataset.run("job"), callback=fail)
    assert charged_steps(dataset) == 10
    assert kinds(dataset)[-1] == "settled"


@pytest.mark.usefixtures("fast_clock")
def test_a_block_that_expired_is_paid_for_and_the_training_goes_on(
    open_dataset: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blocks, "EXPIRES_SECONDS", 2.0)
    dataset = opened(open_dataset)

    def pause(iterate: Iterate) -> None:
        if iterate.iteration == 5:  # the fourth of a block of 16
            time.sleep(2.5)

    result = train(dataset.run("job"), callback=pause, block=16)

    assert result.iterations == 80
    assert charged_steps(dataset) == 80 + 12
    assert kinds(dataset).count("expired") == 1


@pytest.mark.usefixtures("fast_clock")
def test_a_block_that_somebody_else_settled_ends_the_training(open_dataset: Open) -> None:
    dataset = opened(open_dataset)

    def settle(iterate: Iterate) -> None:
        if iterate.iteration == 5:
            held = [entry["id"] for entry in dataset.entries(kind="reserved")][-1]
            dataset.ledger._wire.perform(_calls.settling(held, 4), "another-key")

    with pytest.raises(ReservationClosed):
        train(dataset.run("job"), callback=settle)


def journaled(dataset: Dataset, path: Path, stop_at: int | None = None, **more: Any) -> Result:
    """One life of a job with a journal."""

    def stop(iterate: Iterate) -> None:
        if iterate.iteration == stop_at:
            raise ZeroDivisionError

    account = dataset.run("job", journal=path)
    try:
        return train(account, SGD, callback=stop, **more)
    finally:
        assert account.journal is not None
        account.journal.close()


@pytest.mark.parametrize("stop_at", [1, 2, 5, 7, 40, 79])
def test_a_job_that_failed_is_taken_up_where_it_was(open_dataset: Open, tmp_path: Path, stop_at: int) -> None:
    dataset = opened(open_dataset)
    with pytest.raises(ZeroDivisionError):
        journaled(dataset, tmp_path / "job.journal", stop_at)
    assert charged_steps(dataset) == stop_at

    result = journaled(dataset, tmp_path / "job.journal")
    assert result.iterations == charged_steps(dataset) == 80


@pytest.mark.parametrize(("before", "after"), [(1, None), (4, None), (None, 1), (3, 16)])
def test_a_restarted_job_repeats_the_blocks_that_it_had(
    open_dataset: Open, tmp_path: Path, before: int | None, after: int | None
) -> None:
    """Their sizes depend on time and settings, which are not the same again."""
    dataset = opened(open_dataset)
    with pytest.raises(ZeroDivisionError):
        journaled(dataset, tmp_path / "job.journal", 40, block=before)
    entries = kinds(dataset)

    result = journaled(dataset, tmp_path / "job.journal", block=after)
    assert result.iterations == charged_steps(dataset) == 80
    assert kinds(dataset)[: len(entries)] == entries
    again = journaled(dataset, tmp_path / "job.journal")
    np.testing.assert_array_equal(again.w, result.w)
    assert charged_steps(dataset) == 80


def test_another_job_is_refused_its_journal(open_dataset: Open, tmp_path: Path) -> None:
    dataset = opened(open_dataset)
    journaled(dataset, tmp_path / "job.journal")
    account = dataset.run("job", journal=tmp_path / "job.journal")
    with pytest.raises(JournalMismatch, match="number 1"):
        train(account, GD)


KILLED = """
    import os, sys
    from dpledger_client import Ledger
    from dpledger_client.objectives import Logistic
    from dpledger_client.optimizers import minimize
    from dpledger_client.optimizers.methods.dp_sgd import DPSGD
    from tests.client.optimizers.contract import classification

    def note(iterate):
        print(iterate.w.tolist(), flush=True)
        if iterate.iteration == int(sys.argv[3]):
            os._exit(9)

    X, y = classification()
    account = Ledger.embedded(sys.argv[1]).dataset("d").run("job", journal=sys.argv[2])
    method = DPSGD(80, batch_size=12, clip=1.0, noise_multiplier=2.0, step_size=0.5)
    minimize(Logistic(), X, y, account=account, method=method, progress=False, callback=note)
"""


@pytest.mark.parametrize("killed_at", [5, 19])
def test_a_killed_job_neither_pays_twice_nor_releases_twice(tmp_path: Path, killed_at: int) -> None:
    """Its noise is new in every process, so that equal iterates are released once."""
    database, journal = str(tmp_path / "ledger.db"), str(tmp_path / "job.journal")
    with Ledger.embedded(database) as ledger:
        ledger.dataset("d").open(curve_budget(), records=len(classification()[0]))
    lives = [
        subprocess.run(
            [sys.executable, "-c", textwrap.dedent(KILLED), database, journal, str(stop)],
            capture_output=True,
            text=True,
            cwd=Path(__file__).parents[3],
            env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])},
            check=False,
        )
        for stop in (killed_at, 1000)
    ]

    first, second = (life.stdout.splitlines() for life in lives)
    assert [life.returncode for life in lives] == [9, 0], lives[1].stderr
    assert (len(first), len(second)) == (killed_at, 80)
    assert second[:killed_at] == first
    with Ledger.embedded(database) as ledger:
        assert charged_steps(ledger.dataset("d")) == 80
