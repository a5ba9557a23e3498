"""NSGD and RSGD-AR: how far a record can move the result, by the service's recurrences and by data."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from dpledger.accounting.sensitivity import (
    permuted_sgd_sensitivities,
    restarting_schedule,
    shrinking_schedule,
)
from dpledger_client import Dataset, insecure_testing_noise
from dpledger_client._arrays import Floats
from dpledger_client.mechanisms import Gaussian, OutputMixture
from dpledger_client.objectives import (
    L1,
    L2,
    MLP,
    HingeSVM,
    HuberSVM,
    LeastSquares,
    Logistic,
    Objective,
    Softmax,
)
from dpledger_client.optimizers import Batch, Box, L1Ball, L2Ball, Method, Projection, Simplex, minimize
from dpledger_client.optimizers.methods.nsgd import NSGD
from dpledger_client.optimizers.methods.output_perturbation import OutputPerturbation
from dpledger_client.optimizers.methods.rsgd_ar import RSGDAR
from dpledger_client.optimizers.support.permuted_sgd import (
    Bounds,
    Passes,
    bounded_data,
    sensitivities,
    train_passes,
)
from tests.client.optimizers.contract import ORDERS, RECORDS, SEED, classification, curve_budget

Open = Callable[..., Dataset]
FEATURES, ROW_NORM = 3, 2.0
any_number = st.floats(allow_nan=True, allow_infinity=True)


def _bounds(objective: Objective, passes: Passes, dimension: int = FEATURES) -> Bounds:
    return Bounds.of(objective, ROW_NORM, dimension, passes)


@pytest.mark.parametrize("strength", [0.0, 0.01, 0.5])
@pytest.mark.parametrize("eta", [0.05, 0.9, 3.0])  # 3 is above 2/(L + μ): an update may expand
@pytest.mark.parametrize(("batches", "interval"), [(1, None), (7, None), (7, 3), (4, 1), (5, 5)])
def test_sensitivities_are_those_of_the_accounting(
    strength: float, eta: float, batches: int, interval: int | None
) -> None:
    steps = shrinking_schedule(eta, 7) if interval is None else restarting_schedule(eta, 7, interval)
    method = NSGD(7, batches, eta, 1.0) if interval is None else RSGDAR(7, batches, interval, eta, 1.0)
    assert method.step_sizes() == tuple(steps)
    passes = Passes.over(RECORDS, batches, method.step_sizes(), averaging=interval)
    bounds = _bounds(Logistic(L2(strength)), passes)
    expected, shares = permuted_sgd_sensitivities(
        steps,
        passes.batch_sizes,
        gradient_bound=ROW_NORM,
        smoothness=ROW_NORM**2 / 4.0 + strength,
        strong_convexity=strength,
        averaging_interval=interval,
    )
    found = sensitivities(passes, bounds, start_norm=0.0)
    # Never below, and above by the rounding errors of training alone, which grow where updates expand.
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    assert np.all(found >= expected * (1.0 - 1e-14))
    np.testing.assert_allclose(np.array(passes.batch_sizes) / RECORDS, shares)


PROBLEMS: list[tuple[Objective, Projection | None]] = [
    (Logistic(L2(0.1)), None),
    (Logistic(), None),
    (HuberSVM(0.3, L2(0.2)), None),
    (LeastSquares(L2(0.1), target_bound=2.0), L2Ball(1.5)),
    (LeastSquares(), Box(0.5)),
    (LeastSquares(), Simplex()),
    (Logistic(L2(0.1)), L1Ball(0.4)),
    (Softmax(3, L2(0.1)), None),
]


@pytest.mark.parametrize(("objective", "projection"), PROBLEMS)
@pytest.mark.parametrize("averaging", [None, 2])
@given(
    X=arrays(np.float64, (11, FEATURES), elements=st.floats(-10.0, 10.0)),
    y=arrays(np.int64, 11, elements=st.integers(0, 2)),
    rows=arrays(np.float64, (2, FEATURES), elements=any_number),
    labels=arrays(np.float64, 2, elements=any_number),
    eta=st.floats(0.01, 3.0),
    seed=st.integers(0, 10),
)
@example(
    X=np.zeros((11, FEATURES)),
    y=np.zeros(11, dtype=np.int64),
    rows=np.array([[1e308] * FEATURES, [np.nan] * FEATURES]),
    labels=np.array([np.inf, -1e300]),
    eta=1.0,
    seed=0,
)
@settings(max_examples=15)
def test_one_record_moves_the_result_by_at_most_its_batch_says(
    objective: Objective,
    projection: Projection | None,
    averaging: int | None,
    X: Floats,
    y: "np.ndarray[tuple[int], np.dtype[np.int64]]",
    rows: Floats,
    labels: Floats,
    eta: float,
    seed: int,
) -> None:
    more: dict[str, Any] = {} if projection is None else {"projection": projection}
    passes = Passes.over(11, 3, tuple(eta / h for h in (1, 2, 1, 2, 1)), averaging=averaging, **more)
    random = np.random.default_rng(seed)
    order, database_target = random.permutation(11), int(random.integers(11))
    w0 = passes.projection(random.normal(size=objective.dimension(X, y)))
    bounds = _bounds(objective, passes, len(w0))
    moves = sensitivities(passes, bounds, float(np.linalg.norm(w0)))
    results = []
    for row, label in zip(rows, labels, strict=True):
        data, targets = X.copy(), y.astype(np.float64)
        data[database_target], targets[database_target] = row, label
        prepared = bounded_data(objective, Batch(data, targets), ROW_NORM)
        results.append(train_passes(passes, objective, w0, *prepared, order))
    position = int(np.flatnonzero(order == database_target)[0])
    batch = int(np.searchsorted(np.cumsum(passes.batch_sizes), position, side="right"))
    assert np.linalg.norm(results[0] - results[1]) <= moves[batch]


def test_the_sensitivity_is_attained() -> None:
    """One update on one batch, from opposite records: the result moves by 2ηR/|B|, but for R's own slack."""
    passes = Passes.over(4, 1, (0.5,), projection=L2Ball(1e-3))
    free = Passes.over(4, 1, (0.5,))
    objective = LeastSquares()
    moves = sensitivities(free, Bounds.of(objective, 1.0, 1, passes), 0.0)
    X = np.ones((4, 1))
    results = [
        train_passes(
            free,
            objective,
            np.zeros(1),
            *bounded_data(objective, Batch(X, np.array([1.0, 1.0, 1.0, last])), 1.0),
            np.arange(4),
        )
        for last in (5.0, -5.0)
    ]
    assert 0.99 * moves[0] < float(np.abs(results[0] - results[1])[0]) <= moves[0]


def test_accounting_other_steps_than_those_trained_would_claim_too_little() -> None:
    """The printed η₀/s against the η₀/h that restarts: the same training, a smaller claim."""
    restarting, printed = RSGDAR(9, 4, 3, 1.0, 1.0), RSGDAR(9, 4, 3, 1.0, 1.0, reset=False)
    assert restarting.step_sizes()[3:5] == (1.0, 0.5)
    assert printed.step_sizes()[3:5] == (0.25, 0.2)
    claims = []
    for method in (restarting, printed):
        passes = Passes.over(RECORDS, 4, method.step_sizes(), averaging=3)
        claims.append(sensitivities(passes, _bounds(Logistic(L2(0.01)), passes), 0.0).max())
    assert claims[1] < 0.75 * claims[0]


def test_averages_lower_the_largest_sensitivity() -> None:
    steps = RSGDAR(6, 5, 3, 0.5, 1.0).step_sizes()
    moves = []
    for averaging in (None, 3):
        passes = Passes.over(RECORDS, 5, steps, averaging=averaging)
        moves.append(sensitivities(passes, _bounds(Logistic(L2(0.3)), passes), 0.0).max())
    assert moves[1] < 0.8 * moves[0]


def test_bounded_data_are_bounded_one_by_one() -> None:
    X = np.array([[3.0, 4.0], [0.1, 0.0], [np.nan, 1.0], [1e308, 1e308], [np.inf, 0.0]])
    y = np.array([7.0, -0.5, np.nan, -np.inf, 1.0])
    rows, labels = bounded_data(Logistic(), Batch(X, y), 1.0)
    np.testing.assert_allclose(rows, np.array([[0.6, 0.8], [0.1, 0.0]] + [[0.0, 0.0]] * 3), rtol=1e-5)
    assert np.all(np.linalg.norm(rows, axis=1) <= 1.0)
    np.testing.assert_array_equal(labels, [1.0, -0.5, 0.0, 0.0, 1.0])
    np.testing.assert_array_equal(bounded_data(LeastSquares(target_bound=3.0), Batch(X, y), 1.0)[1][0], 3.0)
    np.testing.assert_array_equal(bounded_data(Softmax(3), Batch(X, y), 1.0)[1][0], 7.0)


@pytest.mark.parametrize("projection", [L1Ball(1e-12), Simplex(1e-12)])
def test_a_projection_from_far_away_is_no_error(projection: Projection) -> None:
    """How far an iterate got depends on the data, and an error would tell of it."""
    X, y = classification()
    passes = Passes.over(RECORDS, 4, (1e6,), projection=projection)
    bounds = _bounds(Logistic(), passes)
    w = projection(np.zeros(X.shape[1]))

    found = train_passes(passes, Logistic(), w, X, y, np.arange(RECORDS))
    assert np.linalg.norm(found) <= bounds.radius


def _run(method: Method, open_dataset: Open, **more: Any) -> Any:
    X, y = classification()
    dataset = open_dataset(budget=curve_budget(), adjacency=more.pop("adjacency", "replace-one"))
    with insecure_testing_noise(SEED):
        objective = more.pop("objective", Logistic(L2(0.01)))
        account = dataset.run("job")
        return minimize(objective, X, y, account=account, method=method, progress=False, **more)


@pytest.mark.parametrize(
    "method",
    [NSGD(20, 4, 2.0, 0.5), RSGDAR(20, 4, 5, 2.0, 0.5), NSGD(20, 1, 2.0, 0.5, schedule="fixed")],
)
def test_it_learns(open_dataset: Open, method: Method) -> None:
    result = _run(method, open_dataset)
    objective, (X, y) = Logistic(L2(0.01)), classification()
    assert objective.loss(result.w, X, y) < 0.75 * objective.loss(np.zeros(4), X, y)
    details = result.history[0].details
    assert details["noise_std"] == 0.5 * details["sensitivity"]


def test_a_secret_order_costs_less_than_a_known_one(open_dataset: Open) -> None:
    costs = []
    for permute, mechanism in ((True, OutputMixture), (False, Gaussian)):
        result = _run(NSGD(5, 6, 1.0, 1.0, permute=permute), open_dataset, objective=Logistic(L2(0.5)))
        assert isinstance(result.charges[0].releases[0].mechanism, mechanism)
        costs.append(np.array(result.spent.epsilons))
    np.testing.assert_allclose(costs[1], np.array(ORDERS) / 2.0, rtol=1e-9)
    assert np.all(costs[0] < costs[1])


@pytest.mark.parametrize(
    ("method", "more", "message"),
    [
        (NSGD(2, 2, 1.0, 1.0), {"adjacency": "add-remove", "records": RECORDS}, "nsgd .* replace-one"),
        (RSGDAR(2, 2, 1, 1.0, 1.0), {"adjacency": "add-remove", "records": RECORDS}, "replace-one"),
        (NSGD(2, 2, 1.0, 1.0), {"records": 7}, "records must be the number of rows, 120"),
        (NSGD(2, RECORDS + 1, 1.0, 1.0), {}, "batches must be at most 120"),
        (NSGD(2, 2, 1.0, 1.0), {"objective": HingeSVM(L2(0.1))}, "curvature must be bounded"),
        (NSGD(2, 2, 1.0, 1.0), {"objective": Logistic(L1(0.1))}, "curvature must be bounded"),
        (NSGD(2, 2, 1.0, 1.0), {"objective": LeastSquares(L2(0.1))}, "gradients must be bounded"),
        (NSGD(2, 2, 1.0, 1.0), {"objective": MLP([2], 2)}, "linear model"),
        (NSGD(50, 50, 1e6, 1.0, schedule="fixed"), {}, "step_size must be at most 2/L"),
        (RSGDAR(20, 10, 2, 12.0, 3.0), {}, r"at most 2/L = 7\.69231 in every epoch, found 12"),
        (OutputPerturbation(20, 3.0, step_size=8.0), {}, "at most 2/L"),
    ],
)
def test_what_the_theorem_does_not_cover_is_refused_before_anything_is_asked(
    open_dataset: Open, method: Method, more: dict[str, Any], message: str
) -> None:
    opened: list[Dataset] = []

    def noting(**settings: Any) -> Dataset:
        opened.append(open_dataset(**settings))
        return opened[-1]

    with pytest.raises(ValueError, match=message):
        _run(method, noting, **more)
    assert [entry["kind"] for entry in opened[0].entries()] == ["opened"]


def test_steps_that_expand_without_bound_have_no_sensitivity() -> None:
    passes = Passes.over(RECORDS, 50, (1e6,) * 50)
    with pytest.raises(ValueError, match="expand without bound"):
        sensitivities(passes, _bounds(Logistic(L2(0.1)), passes), 0.0)


@pytest.mark.parametrize("step_size", [5.0, 2.0 / 0.26])
def test_steps_of_up_to_two_over_the_smoothness_are_trained(open_dataset: Open, step_size: float) -> None:
    result = _run(RSGDAR(3, 4, 2, step_size, 3.0), open_dataset)

    assert result.history[0].details["noise_std"] < 10.0


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: NSGD(0, 2, 1.0, 1.0), "epochs"),
        (lambda: NSGD(1, 0, 1.0, 1.0), "batches"),
        (lambda: NSGD(1, 2, 0.0, 1.0), "step_size"),
        (lambda: NSGD(1, 2, 1.0, np.nan), "noise_multiplier"),
        (lambda: NSGD(1, 2, 1.0, 1.0, row_norm=0.0), "row_norm"),
        (lambda: NSGD(1, 2, 1.0, 1.0, schedule="growing"), "schedule"),
        (lambda: RSGDAR(1, 2, 0, 1.0, 1.0), "interval"),
        (lambda: RSGDAR(1, 2, 1, np.inf, 1.0), "step_size"),
    ],
)
def test_wrong_parameters_are_refused(make: Callable[[], Method], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


def test_a_projection_of_ones_own_is_refused() -> None:
    class Shifted(Projection):
        def __call__(self, w: Floats) -> Floats:
            return w + 1.0

    with pytest.raises(ValueError, match="projection"):
        _bounds(Logistic(), Passes.over(4, 2, (1.0,), projection=Shifted()))
