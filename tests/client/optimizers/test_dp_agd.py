"""DP-AGD: what it releases, what that costs, and when it stops."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import stats

from dpledger_client import Dataset, Ledger, insecure_testing_noise
from dpledger_client._arrays import Floats
from dpledger_client.mechanisms import Gaussian, NoisyMax
from dpledger_client.objectives import L2, LeastSquares, Logistic, Objective
from dpledger_client.optimizers import Batch, L2Ball, NoProjection, Source, Training, minimize
from dpledger_client.optimizers.methods.dp_agd import DPAGD, _Run
from dpledger_client.optimizers.support.averaged_gradient import NoisyGradient
from tests.client.optimizers.cases_adaptive import CASES, COMMON, GRADIENT_RHO, LAMBDA, charged_rho
from tests.client.optimizers.contract import RECORDS, SEED, classification

Open = Callable[..., Dataset]
any_number = st.floats(allow_nan=True, allow_infinity=True)


def _opened(open_dataset: Open, rho: float = 1e3, adjacency: str = "add-remove") -> Dataset:
    budget = {"accounting": "zcdp", "rho": rho}
    return open_dataset(budget=budget, adjacency=adjacency, records=RECORDS)


@pytest.mark.parametrize("objective", [Logistic(L2(0.1)), LeastSquares(L2(1e9))])
@given(
    X=arrays(np.float64, (5, 2), elements=st.floats(-50.0, 50.0)),
    rows=arrays(np.float64, (2, 2), elements=any_number),
    labels=arrays(np.float64, 2, elements=any_number),
    seed=st.integers(0, 3),
    clip=st.floats(1e-3, 1e3),
    projected=st.booleans(),
    stay=st.sampled_from([0.5, 1.0]),
)
@settings(max_examples=40)
def test_a_record_moves_every_score_within_one_clip(
    objective: Objective,
    X: Floats,
    rows: Floats,
    labels: Floats,
    seed: int,
    clip: float,
    projected: bool,
    stay: float,
) -> None:
    """Moves span at most the clip: all that the Gumbel bound needs, and monotonicity up to a shift."""
    training: Any = SimpleNamespace(objective=objective, records=6, w=np.zeros(2), adjacency="add-remove")
    projection = L2Ball(1e6) if projected else NoProjection()
    run = _Run(
        DPAGD(1.0, 1.0, gradient_clip=1.0, loss_clip=clip, projection=projection, stay_weight=stay), training
    )
    random = np.random.default_rng(seed)
    run.w, direction, sizes = 10.0 * random.normal(size=2), random.normal(size=2), np.linspace(0.0, 20.0, 6)
    candidates = [run.w - size * direction for size in sizes]

    def scores(*extra: int) -> Floats:
        batch = Batch(
            np.concatenate([X, rows[list(extra)]]), np.concatenate([np.ones(5), labels[list(extra)]])
        )
        return np.array(run._scores(candidates, direction, sizes, batch))

    without, added, replaced = scores(), scores(0), scores(1)
    assert np.ptp(added - without) <= clip
    assert np.max(np.abs(added - without)) <= clip
    assert np.max(np.abs(added - replaced)) <= clip


@pytest.mark.parametrize("adjacency", ["add-remove", "replace-one"])
@pytest.mark.parametrize("noise", ["gumbel", "laplace", "exponential"])
def test_a_selection_costs_what_was_planned_for_it(ledger: Ledger, noise: str, adjacency: str) -> None:
    method = DPAGD(1.0, 0.02, gradient_clip=1.0, loss_clip=3.0, noise=noise)
    release = method.selection(adjacency)
    assert isinstance(release.mechanism, NoisyMax)
    assert release.mechanism.monotonic is (adjacency == "add-remove")
    rho = ledger.cost(release, adjacency=adjacency).rho
    assert rho is not None
    if noise == "gumbel":
        assert rho == pytest.approx(0.02, rel=1e-12)
    else:
        assert 0.95 * 0.02 < rho <= 0.02


@pytest.mark.parametrize("adjacency", ["add-remove", "replace-one"])
def test_under_zcdp_it_is_charged_the_sum_of_its_budgets(open_dataset: Open, adjacency: str) -> None:
    case = next(case for case in CASES if case.adjacency == adjacency)
    dataset = _opened(open_dataset, adjacency=adjacency)
    with insecure_testing_noise(SEED):
        result = case.run(dataset.run("job"))
    measurements = [record.details["measurements"] for record in result.history]
    assert max(measurements) > 1, "no gradient was measured again"
    assert dataset.budget().spent["rho"] == pytest.approx(charged_rho(result), rel=1e-9)
    gradients = [c for c in result.charges if isinstance(c.releases[0].mechanism, Gaussian)]
    assert len(gradients) == sum(measurements)


def test_measurements_together_are_as_good_as_one_for_their_sum(open_dataset: Open) -> None:
    """GradAvg: the noise left after three measurements is that of their whole ρ."""
    X, y = classification()
    account = _opened(open_dataset, rho=1e6).run("job")
    objective, clip, w = Logistic(), 1.5, np.full(4, 0.1)
    exact = objective.clipped_gradient_sum(w, X, y, clip)
    residuals = []
    with insecure_testing_noise(SEED):
        for _ in range(80):
            training = Training(objective, Source.of(X, y, account), method="dp-agd")
            gradient = NoisyGradient.measure(training, w, clip, 0.5)
            gradient = gradient.refine(training, 0.8).refine(training, 2.0)
            assert gradient.rho == 2.0
            residuals.append((gradient.total - exact) * np.sqrt(2.0 * 2.0) / clip)
    assert stats.kstest(np.concatenate(residuals), "norm").pvalue > 1e-3


def test_it_learns_until_the_ledger_refuses(open_dataset: Open) -> None:
    X, y = classification()
    dataset = _opened(open_dataset, rho=60.0)
    with insecure_testing_noise(SEED):
        result = minimize(
            Logistic(L2(LAMBDA)),
            X,
            y,
            account=dataset.run("job"),
            method="dp-agd",
            gradient_rho=1.0,
            selection_rho=1.0,
            gradient_clip=1.0,
            loss_clip=2.0,
            progress=False,
        )
    assert result.stop_reason == "budget-exhausted"
    assert dataset.budget().spent["rho"] <= 60.0
    objective = Logistic(L2(LAMBDA))
    assert objective.loss(result.w, X, y) < 0.75 * objective.loss(np.zeros(4), X, y)


def test_a_planned_total_is_kept_where_the_dataset_has_more(open_dataset: Open) -> None:
    X, y = classification()
    dataset = _opened(open_dataset)
    method = DPAGD.for_total(2.0, splits=4, gradient_clip=1.0, loss_clip=2.0)
    assert (method.gradient_rho, method.selection_rho) == (0.25, 0.25)
    with insecure_testing_noise(SEED):
        result = minimize(Logistic(), X, y, account=dataset.run("job"), method=method, progress=False)
    assert result.stop_reason == "planned-budget-used"
    assert result.iterations >= 1
    assert 1.0 < dataset.budget().spent["rho"] <= 2.0 * (1.0 + 1e-9)


def test_the_gradient_budget_stays_grown_and_the_grid_follows_the_steps(open_dataset: Open) -> None:
    X, y = classification()
    account = _opened(open_dataset).run("job")
    with insecure_testing_noise(SEED):
        method = DPAGD(**COMMON)
        result = minimize(Logistic(L2(LAMBDA)), X, y, account=account, method=method, progress=False)
    rhos = [record.details["gradient_rho"] for record in result.history]
    assert rhos == sorted(rhos)
    assert rhos[-1] > GRADIENT_RHO
    sizes = [record.details["step_size"] for record in result.history]
    grid = 1.1 * max(sizes[:3]) * np.arange(11) / 10.0
    for size in sizes[3:6]:
        assert np.min(np.abs(grid - size)) < 1e-12


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"gradient_rho": 0.0}, "gradient_rho"),
        ({"selection_rho": np.nan}, "selection_rho"),
        ({"loss_clip": -1.0}, "loss_clip"),
        ({"gradient_clip": np.inf}, "gradient_clip"),
        ({"budget_growth": 0.0}, "budget_growth"),
        ({"max_step_size": 0.0}, "max_step_size"),
        ({"candidates": 0}, "candidates"),
        ({"grid_interval": 0}, "grid_interval"),
        ({"noise": "gaussian"}, "noise must be one of gumbel, laplace, exponential"),
        ({"steps": 0}, "steps"),
        ({"total_rho": 0.0}, "total_rho"),
    ],
)
def test_wrong_parameters_are_refused(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        DPAGD(**COMMON | wrong)


def test_staying_counts_with_its_weight() -> None:
    """Where a step gains a tenth, staying at nine tenths of its loss is no worse."""
    training: Any = SimpleNamespace(
        objective=Logistic(), records=6, w=np.zeros(2), adjacency="add-remove", iteration=0
    )
    batch = Batch(np.ones((6, 2)), np.ones(6))
    weighted, plain = (
        _Run(DPAGD(1.0, 1.0, gradient_clip=1.0, loss_clip=9.0, stay_weight=weight), training)
        for weight in (0.9, 1.0)
    )
    line = [np.zeros(2), np.ones(2)], -np.ones(2), np.array([0.0, 1.0]), batch
    assert weighted._scores(*line)[0] == pytest.approx(0.9 * plain._scores(*line)[0])
    assert weighted._scores(*line)[1] == plain._scores(*line)[1]
    with pytest.raises(ValueError, match="stay_weight"):
        DPAGD(1.0, 1.0, gradient_clip=1.0, loss_clip=1.0, stay_weight=1.5)


@pytest.mark.parametrize("shrinkage", [1.0, 0.5])
def test_the_grid_becomes_finer_where_no_step_is_chosen(open_dataset: Open, shrinkage: float) -> None:
    """Least squares of one steep direction, known almost exactly: its best step is far below 2/10."""
    X = np.repeat([[3.0]], 40, axis=0)
    account = _opened(open_dataset, rho=1e9).run("job")
    method = DPAGD(
        1e6,
        1e6,
        gradient_clip=50.0,
        loss_clip=50.0,
        candidates=10,
        stay_shrinkage=shrinkage,
        total_rho=3e7,
    )
    with insecure_testing_noise(SEED):
        result = minimize(
            LeastSquares(), X, np.full(40, 0.15), account=account, method=method, progress=False
        )
    far = abs(float(result.w[0]) - 0.05)
    assert (far < 0.01) if shrinkage < 1.0 else (far > 0.04)
    with pytest.raises(ValueError, match="stay_shrinkage"):
        DPAGD(1.0, 1.0, gradient_clip=1.0, loss_clip=1.0, stay_shrinkage=0.0)
