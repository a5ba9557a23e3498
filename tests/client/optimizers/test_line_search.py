"""DP-BLSGD and DP-BLGD: the search's sensitivity, the kinds of looks, CHEB, and what they learn."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from dpledger_client import Dataset, Ledger, Poisson, SeenSample, insecure_testing_noise, no_noise_for_testing
from dpledger_client._arrays import Floats
from dpledger_client.mechanisms import AboveThreshold, Gaussian
from dpledger_client.objectives import L2, LeastSquares, Logistic, Objective
from dpledger_client.optimizers import Batch, minimize
from dpledger_client.optimizers.methods.dp_blgd import DPBLGD
from dpledger_client.optimizers.methods.dp_blsgd import DPBLSGD, DPBLSGDAC, _Measured, _Run, angle_between
from dpledger_client.optimizers.support.line_search import (
    Backtracking,
    FirstStepSize,
    LineQueries,
    decrease_sensitivity,
)
from tests.client.optimizers.cases_line_search import COMMON, STOCHASTIC
from tests.client.optimizers.contract import ORDERS, RECORDS, SEED, classification, curve_budget

Open = Callable[..., Dataset]
any_number = st.floats(allow_nan=True, allow_infinity=True)


def _opened(open_dataset: Open, adjacency: str = "add-remove") -> Dataset:
    return open_dataset(budget=curve_budget(), adjacency=adjacency, records=RECORDS)


@pytest.mark.parametrize("objective", [Logistic(L2(0.1)), LeastSquares(L2(1e9))])
@given(
    X=arrays(np.float64, (5, 2), elements=st.floats(-50.0, 50.0)),
    rows=arrays(np.float64, (2, 2), elements=any_number),
    labels=arrays(np.float64, 2, elements=any_number),
    gradient=arrays(np.float64, 2, elements=st.floats(-1e3, 1e3)),
    clip=st.floats(1e-3, 1e3),
)
@settings(max_examples=60)
def test_a_record_moves_a_query_by_at_most_the_sensitivity(
    objective: Objective,
    X: Floats,
    rows: Floats,
    labels: Floats,
    gradient: Floats,
    clip: float,
) -> None:
    queries = LineQueries(Backtracking(), objective, np.array([0.3, -2.0]), gradient, 5.0, 6.0, clip)

    def values(*extra: int) -> Floats:
        chosen = list(extra)
        batch = Batch(np.concatenate([X, rows[chosen]]), np.concatenate([np.ones(5), labels[chosen]]))
        return np.array([query() for query in queries.of(batch)])

    without, added, replaced = values(), values(0), values(1)
    assert np.max(np.abs(added - without)) <= decrease_sensitivity(clip, "add-remove")
    assert np.max(np.abs(added - replaced)) <= decrease_sensitivity(clip, "replace-one")


def test_the_sensitivity_is_attained() -> None:
    """A record whose loss falls by the clip against one whose loss rises by it: 2C, not C."""
    queries = LineQueries(Backtracking(), LeastSquares(), np.zeros(1), np.array([-1.0]), 1.0, 1.0, clip=0.5)
    falls, rises = Batch(np.ones((1, 1)), np.ones(1)), Batch(np.full((1, 1), 9.0), np.zeros(1))
    moves = [next(queries.of(batch))() for batch in (falls, rises)]
    nothing = next(queries.of(Batch(np.zeros((0, 1)), np.zeros(0))))()
    assert moves[0] - moves[1] == pytest.approx(decrease_sensitivity(0.5, "replace-one"), rel=1e-5)
    assert moves[0] - nothing == pytest.approx(decrease_sensitivity(0.5, "add-remove"), rel=1e-5)


def test_noises_are_those_of_the_algorithm() -> None:
    laplace = Backtracking("laplace", 20).release(0.1, 3.0, "replace-one").mechanism
    assert laplace == AboveThreshold("laplace", 6.0, 2.0 * 6.0 / 0.1, 4.0 * 6.0 / 0.1, 20)
    gaussian = Backtracking("gaussian", 20).release(0.1, 3.0, "add-remove").mechanism
    assert isinstance(gaussian, AboveThreshold)
    assert gaussian.threshold_scale == pytest.approx(3.0 * np.sqrt(3.0 / 0.2), rel=1e-12)
    assert gaussian.query_scale == pytest.approx(3.0 * np.sqrt(3.0 / 0.1), rel=1e-12)
    bare = Backtracking("queries-only", 20).release(0.01, 3.0, "add-remove").mechanism
    assert bare == AboveThreshold("laplace", 3.0, 0.0, 30.0, 20)


def test_noise_on_queries_alone_costs_about_its_budget_times_the_order(ledger: Ledger) -> None:
    release = Backtracking("queries-only", 50).release(1e-6, 1.0, "add-remove")
    cost = ledger.cost(release, adjacency="add-remove", orders=ORDERS)
    np.testing.assert_allclose(np.array(cost.epsilons) / np.array(ORDERS), 1e-6, rtol=0.1)


@pytest.mark.parametrize("looks", ["fresh", "joint", "again"])
def test_each_kind_of_looks_is_charged_as_it_says(open_dataset: Open, ledger: Ledger, looks: str) -> None:
    X, y = classification()
    method = DPBLSGD(looks=looks, **STOCHASTIC | {"steps": 1, "smallest_on_failure": True})
    with insecure_testing_noise(SEED):
        result = minimize(
            Logistic(), X, y, account=_opened(open_dataset).run("job"), method=method, progress=False
        )
    described = [
        (type(charge.sample), [type(release.mechanism) for release in charge.releases])
        for charge in result.charges
    ]
    assert (
        described
        == {
            "fresh": [(Poisson, [Gaussian]), (Poisson, [AboveThreshold])],
            "joint": [(Poisson, [Gaussian, AboveThreshold])],
            "again": [(Poisson, [Gaussian]), (SeenSample, [AboveThreshold])],
        }[looks]
    )
    releases = [release for charge in result.charges for release in charge.releases]
    together = ledger.cost(
        releases, sample=Poisson(STOCHASTIC["rate"]), adjacency="add-remove", orders=ORDERS
    )
    spent = np.array(result.spent.epsilons)
    if looks == "joint":
        np.testing.assert_allclose(spent, together.epsilons, rtol=1e-12)
    if looks == "fresh":
        assert np.all(spent <= np.array(together.epsilons) * (1.0 + 1e-9))
    if looks == "again":
        assert np.all(spent > together.epsilons)


def test_a_reserved_sample_is_not_searched_again_and_nothing_is_spent(open_dataset: Open) -> None:
    X, y = classification()
    dataset = _opened(open_dataset)
    method = DPBLSGD(looks="again", **STOCHASTIC | {"steps": 1})
    with pytest.raises(ValueError, match="looks='again' goes without reserve"):
        minimize(Logistic(), X, y, account=dataset.run("job"), method=method, reserve=2, progress=False)
    assert [entry["kind"] for entry in dataset.entries()] == ["opened"]


class _Scripted(_Run):
    """A run whose second gradient is given."""

    def __init__(self, second: Floats, **more: Any) -> None:
        training: Any = SimpleNamespace(
            w=np.zeros(2), records=RECORDS, adjacency="add-remove", reserves=False
        )
        super().__init__(DPBLSGD(**STOCHASTIC | more), training)
        self.second = second

    def _measure(self) -> _Measured:
        authorized: Any = "second"
        return _Measured(self.second, authorized, self.loss_clip)

    def enlarged(self, first: Floats) -> _Measured:
        authorized: Any = "first"
        clips = STOCHASTIC["gradient_clip"], STOCHASTIC["loss_clip"]
        return self._enlarge_batch(_Measured(first, authorized, self.loss_clip), clips)


AHEAD = np.array([1.0, 0.0])


@pytest.mark.parametrize(
    ("degrees", "average", "grows"),
    [
        (95.0, 90.0, "gradient"),  # they point apart, though 95 is below 1.1 times 90
        (60.0, 50.0, "gradient"),
        (52.0, 50.0, None),
        (40.0, 90.0, "search"),
        (50.0, 90.0, None),
    ],
)
def test_cheb_gives_budget_to_what_was_too_noisy(degrees: float, average: float, grows: str | None) -> None:
    second = np.array([np.cos(np.radians(degrees)), np.sin(np.radians(degrees))])
    run = _Scripted(second, clip_decay=0.1)
    run.angle = average
    enlarged = run.enlarged(AHEAD)
    np.testing.assert_allclose(enlarged.gradient, (AHEAD + second) / 2.0)
    assert run.gradient_rho == pytest.approx(0.8 * (1.3 if grows == "gradient" else 1.0))
    assert run.search_budget == pytest.approx(1.3 if grows == "search" else 1.0)
    assert run.gradient_clip == pytest.approx(1.5 * (0.9 if grows == "gradient" else 1.0))


@pytest.mark.parametrize("degrees", [0.0, 40.0, 80.0, 95.0])
@pytest.mark.parametrize(("grows", "growth"), [("always", 1.3), ("never", 1.0)])
def test_budgets_can_grow_whatever_the_angle_is_or_never(grows: str, growth: float, degrees: float) -> None:
    second = np.array([np.cos(np.radians(degrees)), np.sin(np.radians(degrees))])
    run = _Scripted(second, clip_decay=0.1, grows=grows)
    enlarged = run.enlarged(AHEAD)
    np.testing.assert_allclose(enlarged.gradient, (AHEAD + second) / 2.0)
    assert (run.gradient_rho, run.search_budget) == pytest.approx((0.8 * growth, growth))
    assert run.gradient_clip == pytest.approx(1.5 * (0.9 if grows == "always" else 1.0))


def test_clips_shrink_once_an_update_however_often_the_budget_grows() -> None:
    run = _Scripted(-AHEAD, clip_decay=0.05)
    for _ in range(3):
        run.enlarged(AHEAD)
    assert run.gradient_rho == pytest.approx(0.8 * 1.3**3)
    assert (run.gradient_clip, run.loss_clip) == pytest.approx((1.5 * 0.95, 9.0 * 0.95))
    assert DPBLSGDAC(**STOCHASTIC).clip_decay == 0.05
    assert DPBLSGD(**STOCHASTIC).clip_decay == 0.0


@pytest.mark.parametrize(("looks", "searched"), [("fresh", "first"), ("joint", "second"), ("again", "first")])
def test_a_search_after_cheb_looks_at_what_was_paid_for(looks: str, searched: str) -> None:
    assert str(_Scripted(AHEAD, looks=looks).enlarged(AHEAD).authorized) == searched


def test_angles_are_averaged_from_the_second_iteration_on() -> None:
    run = _Scripted(AHEAD)
    run._follow(AHEAD)
    assert run.angle == 90.0
    run._follow(np.array([1.0, 1.0]))
    assert run.angle == pytest.approx(0.8 * 90.0 + 0.2 * 45.0)


def test_angles() -> None:
    assert angle_between(AHEAD, 3.0 * AHEAD) == 0.0
    assert angle_between(AHEAD, -AHEAD) == pytest.approx(180.0)
    assert angle_between(AHEAD, np.array([1.0, 1.0])) == pytest.approx(45.0)
    assert angle_between(AHEAD, np.zeros(2)) == 90.0


def test_searches_begin_near_the_steps_found_and_never_further() -> None:
    first = FirstStepSize(2.0, interval=2, growth=1.5)
    first.chosen(0.1)
    assert first.size == 2.0
    first.chosen(0.4)
    assert first.size == pytest.approx(0.6)
    first.chosen(0.6)
    first.chosen(0.6)
    assert first.size == pytest.approx(0.6)


def test_a_search_that_fails_can_take_the_smallest_step(open_dataset: Open) -> None:
    X, y = classification()
    method = DPBLSGD(
        **STOCHASTIC | {"step_size": 1e6, "steps": 1, "smallest_on_failure": True},
        search=Backtracking(max_queries=3),
    )
    with no_noise_for_testing():
        result = minimize(
            Logistic(), X, y, account=_opened(open_dataset).run("job"), method=method, progress=False
        )
    assert result.history[0].details["step_size"] == pytest.approx(1e6 * 0.8**3)
    assert result.history[0].details["searches"] == 1


@pytest.mark.parametrize(
    ("name", "adjacency", "more"),
    [
        ("dp-blsgd", "add-remove", {"rate": 0.5}),
        ("dp-blsgd", "replace-one", {"rate": 0.5, "looks": "joint"}),
        ("dp-blsgd-ac", "add-remove", {"rate": 0.5}),
        ("dp-blgd", "add-remove", {}),
    ],
)
def test_it_learns(open_dataset: Open, name: str, adjacency: str, more: dict[str, Any]) -> None:
    X, y = classification()
    objective = Logistic(L2(0.01))
    with insecure_testing_noise(SEED):
        result = minimize(
            objective,
            X,
            y,
            account=_opened(open_dataset, adjacency).run("job"),
            method=name,
            progress=False,
            gradient_rho=2.0,
            search_budget=3.0,
            gradient_clip=1.0,
            loss_clip=2.0,
            step_size=8.0,
            steps=12,
            **more,
        )
    assert result.stop_reason == "finished"
    assert objective.loss(result.w, X, y) < 0.75 * objective.loss(np.zeros(4), X, y)


def test_full_batches_with_laplace_noise_fit_a_zcdp_budget(open_dataset: Open) -> None:
    X, y = classification()
    dataset = open_dataset(budget={"accounting": "zcdp", "rho": 6.0}, records=RECORDS)
    method = DPBLGD(**COMMON | {"steps": None})
    with insecure_testing_noise(SEED):
        result = minimize(Logistic(), X, y, account=dataset.run("job"), method=method, progress=False)
    assert result.stop_reason == "budget-exhausted"
    assert result.iterations >= 1
    assert 4.0 < dataset.budget().spent["rho"] <= 6.0


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"rate": 1.5}, "rate"),
        ({"gradient_rho": 0.0}, "gradient_rho"),
        ({"search_budget": np.nan}, "search_budget"),
        ({"loss_clip": 0.0}, "loss_clip"),
        ({"step_size": -1.0}, "step_size"),
        ({"budget_growth": -0.1}, "budget_growth"),
        ({"grows": "must"}, "grows must be one of by-angle, always, never"),
        ({"looks": "separate"}, "looks must be one of fresh, joint, again"),
        ({"angle_memory": 1.0}, "angle_memory"),
        ({"angle_above": 1.0}, "angle_above must be above 1"),
        ({"angle_below": 0.0}, "angle_below"),
        ({"restart_growth": 0.9}, "restart_growth must be above 1"),
        ({"restart_interval": 0}, "restart_interval"),
        ({"clip_decay": 1.0}, "clip_decay"),
        ({"steps": 0}, "steps"),
    ],
)
def test_wrong_parameters_are_refused(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        DPBLSGD(**STOCHASTIC | wrong)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [({"noise": "gumbel"}, "noise"), ({"max_queries": 0}, "max_queries"), ({"armijo": 1.0}, "armijo")],
)
def test_wrong_searches_are_refused(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Backtracking(**wrong)
