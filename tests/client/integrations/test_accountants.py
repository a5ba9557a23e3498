"""Events of dp-accounting as items of plans and back, and histories of Opacus as charges."""

import itertools
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from time import monotonic
from typing import Any

import dp_accounting
import pytest
from dp_accounting.pld import PLDAccountant

from dpledger_client import BudgetExhausted, HoldClosed, Ledger, _leases, permits
from dpledger_client.integrations.accountants import (
    charge_opacus_history,
    event_from_items,
    items_from_event,
)

GAUSSIAN = dp_accounting.GaussianDpEvent(1.1)
STEP = dp_accounting.PoissonSampledDpEvent(0.01, GAUSSIAN)
TREE = dp_accounting.ComposedDpEvent(
    [
        dp_accounting.SelfComposedDpEvent(STEP, 300),
        dp_accounting.LaplaceDpEvent(20.0),
        dp_accounting.NoOpDpEvent(),
        dp_accounting.ZCDpEvent(0.001),
        dp_accounting.PoissonSampledDpEvent(
            0.02,
            dp_accounting.ComposedDpEvent(
                [dp_accounting.SelfComposedDpEvent(dp_accounting.GaussianDpEvent(5.0), 3), GAUSSIAN]
            ),
        ),
        dp_accounting.SelfComposedDpEvent(dp_accounting.SelfComposedDpEvent(STEP, 10), 10),
    ]
)


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    with Ledger.embedded(str(tmp_path / "budget.db")) as ledger:
        yield ledger


def test_a_tree_is_read_as_items_and_equal_steps_as_one() -> None:
    items = items_from_event(TREE)
    assert [(each["name"], each["times"]) for each in items] == [
        ("event-1", 400),
        ("event-2", 1),
        ("event-3", 1),
        ("event-4", 1),
    ]
    assert items[0]["sample"] == {"scheme": "poisson", "rate": 0.01}
    assert items[1]["releases"] == [{"mechanism": "laplace", "sensitivity": 1.0, "scale": 20.0}]
    assert [each.get("count", 1) for each in items[3]["releases"]] == [3, 1]


def test_what_is_written_is_read_again() -> None:
    items = items_from_event(TREE)
    assert items_from_event(event_from_items(items)) == items


def test_written_events_cost_what_the_tree_cost() -> None:
    epsilons = [
        PLDAccountant().compose(event).get_epsilon(1e-5)
        for event in (
            dp_accounting.SelfComposedDpEvent(STEP, 300),
            event_from_items(items_from_event(dp_accounting.SelfComposedDpEvent(STEP, 300))),
        )
    ]
    assert epsilons[0] == pytest.approx(epsilons[1], rel=1e-9)


@pytest.mark.parametrize(("sensitivity", "noise"), [(3.0, 1.0), (6.2, 3.9), (0.5, 1.1)])
def test_the_noise_of_a_written_event_is_never_more_than_there_is(sensitivity: float, noise: float) -> None:
    release = {"mechanism": "gaussian", "sensitivity": sensitivity, "noise_std": noise}
    event = event_from_items([{"name": "a", "releases": [release], "times": 1}])
    written = event.events[0].event.noise_multiplier
    assert Fraction(written) * Fraction(sensitivity) <= Fraction(noise)
    assert written == pytest.approx(noise / sensitivity, rel=1e-15)


def test_a_plan_from_an_event_is_granted_as_often_as_the_event_says(ledger: Ledger) -> None:
    items = items_from_event(dp_accounting.SelfComposedDpEvent(STEP, 20))
    dataset = ledger.dataset("adult").open(
        {"accounting": "plan", "epsilon": 1.0, "delta": 1e-5, "items": items}
    )
    assert charge_opacus_history(dataset.run("import"), [(1.1, 0.01, 20)]) == 20
    with pytest.raises(BudgetExhausted):
        charge_opacus_history(dataset.run("import"), [(1.1, 0.01, 1)])


def test_a_history_is_charged_step_by_step(ledger: Ledger) -> None:
    dataset = ledger.dataset("adult").open({"accounting": "rdp", "epsilon": 8.0, "delta": 1e-5})
    assert charge_opacus_history(dataset.run("import"), [(1.1, 0.01, 25), (5.0, 1.0, 2)]) == 27
    settled = [each for each in dataset.entries() if each["kind"] == "settled"]
    assert [each["used"] for each in settled] == [25, 2]


@pytest.mark.parametrize("line", [(0.0, 0.01, 5), (1.1, 1.5, 5), (1.1, 0.01, 0), (float("nan"), 0.01, 5)])
def test_a_history_that_cannot_be_is_refused_before_anything_is_charged(
    ledger: Ledger, line: tuple[float, float, int]
) -> None:
    dataset = ledger.dataset("adult").open({"accounting": "rdp", "epsilon": 8.0, "delta": 1e-5})
    with pytest.raises(ValueError, match="must be"):
        charge_opacus_history(dataset.run("import"), [(1.1, 0.01, 5), line])
    assert [each["kind"] for each in dataset.entries()] == ["opened"]


@pytest.mark.parametrize("rate", [0.01, 1.0])
def test_a_history_is_of_add_remove_adjacency(ledger: Ledger, rate: float) -> None:
    """An exchanged record moves a clipped sum by twice the clip, which the multiplier does not say."""
    budget = {"accounting": "rdp", "epsilon": 8.0, "delta": 1e-5}
    dataset = ledger.dataset("adult").open(budget, adjacency="replace-one", records=1000)
    with pytest.raises(ValueError, match="add-remove"):
        charge_opacus_history(dataset.run("import"), [(5.0, rate, 2)])
    assert [each["kind"] for each in dataset.entries()] == ["opened"]


@pytest.mark.parametrize("looks", [20, 21])
def test_a_history_that_outlasts_its_reservation_does_not_pass_for_charged(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch, looks: int
) -> None:
    """As on a machine that was put to sleep."""
    dataset = ledger.dataset("adult").open({"accounting": "rdp", "epsilon": 8.0, "delta": 1e-5})
    asked = itertools.count()

    def clock() -> float:
        return monotonic() + (7_200.0 if next(asked) > looks else 0.0)

    monkeypatch.setattr(_leases, "monotonic", clock)
    monkeypatch.setattr(permits, "monotonic", clock)
    with pytest.raises(HoldClosed):
        charge_opacus_history(dataset.run("import"), [(5.0, 1.0, 50)])


OTHERS: list[Any] = [
    dp_accounting.NonPrivateDpEvent(),
    dp_accounting.UnsupportedDpEvent(),
    dp_accounting.SampledWithoutReplacementDpEvent(100, 10, GAUSSIAN),
    dp_accounting.SampledWithReplacementDpEvent(100, 10, GAUSSIAN),
    dp_accounting.SingleEpochTreeAggregationDpEvent(1.0, 10),
    dp_accounting.RandomizedResponseDpEvent(0.5, 2),
    dp_accounting.PoissonSampledDpEvent(0.1, STEP),
    dp_accounting.ZCDpEvent(0.1, 0.1),
    dp_accounting.GaussianDpEvent(0.0),
    dp_accounting.GaussianDpEvent(float("nan")),
    dp_accounting.PoissonSampledDpEvent(1.5, GAUSSIAN),
]


@pytest.mark.parametrize("event", OTHERS, ids=lambda event: type(event).__name__)
@pytest.mark.parametrize("nested", [False, True])
def test_events_of_other_kinds_are_refused(event: Any, nested: bool) -> None:
    tree = dp_accounting.ComposedDpEvent([GAUSSIAN, event]) if nested else event
    with pytest.raises(ValueError, match="must be"):
        items_from_event(tree)


@pytest.mark.parametrize(
    "item",
    [
        {"name": "cap", "gdp": {"mu": 0.5}},
        {"name": "a", "releases": [{"mechanism": "pure", "epsilon": 1.0}], "times": 1},
        {
            "name": "a",
            "sample": {"scheme": "without-replacement", "rate": 0.1},
            "releases": [{"mechanism": "gaussian", "sensitivity": 1.0, "noise_std": 1.0}],
            "times": 1,
        },
    ],
)
def test_items_that_no_event_means_are_refused(item: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="must be"):
        event_from_items([item])


def test_every_kind_of_event_is_read_or_refused() -> None:
    """A kind that a newer dp-accounting brings is refused until somebody decides what it costs."""
    read = {"ComposedDpEvent", "SelfComposedDpEvent", "NoOpDpEvent", "PoissonSampledDpEvent"}
    read |= {"GaussianDpEvent", "LaplaceDpEvent", "ZCDpEvent"}

    class NewDpEvent:
        noise_multiplier = 1.0

    with pytest.raises(ValueError, match="NewDpEvent"):
        items_from_event(NewDpEvent())
    assert read <= {name for name in dir(dp_accounting) if name.endswith("DpEvent")}
