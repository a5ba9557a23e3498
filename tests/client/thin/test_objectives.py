"""Gradients are those of the losses, clipped sums are sums of clipped gradients, rows are bounded."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from dpledger_client._arrays import as_numbers
from dpledger_client.objectives import (
    CLIP_MARGIN,
    L1,
    L2,
    MCP,
    MLP,
    SCAD,
    HingeSVM,
    HuberSVM,
    LeastSquares,
    Logistic,
    NuclearNorm,
    Objective,
    Regularizer,
    Softmax,
    Unregularized,
)

BINARY: list[Objective] = [Logistic(), HuberSVM(0.5), HuberSVM(0.1), HingeSVM(), LeastSquares()]
MULTICLASS: list[Objective] = [Softmax(3), MLP([4], 3), MLP([5, 3], 3, "relu"), MLP([], 3)]
OBJECTIVES = BINARY + MULTICLASS
RECORDS, FEATURES = 1300, 4


def _data(objective: Objective, records: int = RECORDS) -> tuple[Any, Any, Any]:
    generator = np.random.default_rng(7)
    rows = generator.normal(size=(records, FEATURES))
    binary = objective in BINARY
    labels = generator.choice([-1.0, 1.0], records) if binary else generator.integers(0, 3, records)
    w = generator.normal(size=objective.dimension(rows, labels))
    return w, rows, labels


def _one_by_one(objective: Objective, w: Any, rows: Any, labels: Any) -> Any:
    """The gradient of each example by itself: slow and obvious."""
    return np.array([objective.gradient_sum(w, rows[i : i + 1], labels[i : i + 1]) for i in range(len(rows))])


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_the_gradient_is_that_of_the_loss(objective: Objective) -> None:
    w, rows, labels = _data(objective, 40)
    for regularizer in (Unregularized(), L2(0.3), L1(0.2)):
        objective.regularizer = regularizer
        steps = 1e-6 * np.eye(w.size)
        slopes = [
            (objective.loss(w + s, rows, labels) - objective.loss(w - s, rows, labels)) / 2e-6 for s in steps
        ]
        assert objective.gradient(w, rows, labels) == pytest.approx(np.array(slopes), abs=2e-8)
    objective.regularizer = Unregularized()


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_sums_over_many_blocks_are_sums_over_examples(objective: Objective) -> None:
    w, rows, labels = _data(objective)
    each = _one_by_one(objective, w, rows, labels)
    norms = np.linalg.norm(each, axis=1)

    assert objective.gradient_sum(w, rows, labels) == pytest.approx(each.sum(axis=0), rel=1e-9, abs=1e-9)
    assert objective.gradient_norms(w, rows, labels) == pytest.approx(norms, rel=1e-9)
    losses = [objective.losses(w, rows[i : i + 1], labels[i : i + 1])[0] for i in range(0, RECORDS, 50)]
    assert objective.losses(w, rows, labels)[::50] == pytest.approx(losses, rel=1e-12)


@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("clip", [1e-3, 0.5, 3.0, 1e6])
def test_a_clipped_sum_is_the_sum_of_clipped_gradients(objective: Objective, clip: float) -> None:
    w, rows, labels = _data(objective)
    each = _one_by_one(objective, w, rows, labels)
    norms = np.linalg.norm(each, axis=1, keepdims=True)
    with np.errstate(divide="ignore", invalid="ignore"):
        clipped = np.where(norms > 0.0, np.minimum(1.0, clip * (1.0 - CLIP_MARGIN) / norms) * each, 0.0)

    known = np.linalg.norm(rows, axis=1)
    for given in (None, known):
        found = objective.clipped_gradient_sum(w, rows, labels, clip, given)
        assert found == pytest.approx(clipped.sum(axis=0), rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_without_clipping_in_force_a_clipped_sum_is_the_sum(objective: Objective) -> None:
    w, rows, labels = _data(objective)

    found = objective.clipped_gradient_sum(w, rows, labels, 1e9)
    assert found == pytest.approx(objective.gradient_sum(w, rows, labels), rel=1e-12, abs=1e-12)


@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, 1e200, 1e308])
def test_a_row_that_is_not_finite_or_overflows_is_bounded(objective: Objective, bad: float) -> None:
    w, rows, labels = _data(objective, 30)
    clip = 0.7
    before = objective.clipped_gradient_sum(w, rows, labels, clip)
    loss_before = objective.clipped_loss_sum(w, rows, labels, clip)
    for database_target in range(FEATURES):
        spoiled = rows.copy()
        spoiled[3, database_target] = bad
        after = objective.clipped_gradient_sum(w, spoiled, labels, clip)
        assert np.linalg.norm(after - before) <= 2 * clip
        assert abs(objective.clipped_loss_sum(w, spoiled, labels, clip) - loss_before) <= clip


@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("bad", ["secret", None, 10**400, [1.0]])
def test_a_row_that_cannot_be_read_is_bounded_instead_of_an_error(objective: Objective, bad: Any) -> None:
    w, rows, labels = _data(objective, 30)
    clip = 0.7
    spoiled = rows.astype(object)
    spoiled[3, 1] = bad
    without = objective.clipped_gradient_sum(w, np.delete(rows, 3, 0), np.delete(labels, 3), clip)

    assert objective.clipped_gradient_sum(w, spoiled, labels, clip) == pytest.approx(without, abs=1e-12)
    assert 0.0 <= objective.clipped_loss_sum(w, spoiled, labels, clip) <= 30 * clip
    judged = labels.astype(object)
    judged[3] = bad
    assert np.linalg.norm(objective.clipped_gradient_sum(w, rows, judged, clip) - without) <= clip
    assert 0.0 <= objective.clipped_loss_sum(w, rows, judged, clip) <= 30 * clip


class Broken:
    """What has no value as a number, and says so in a way of its own."""

    def __float__(self) -> float:
        raise RuntimeError("secret")


@pytest.mark.parametrize(
    "value", [True, "0.1", b"3", np.float32(0.1), np.datetime64("2020"), np.timedelta64(5, "s"), 2**70]
)
@pytest.mark.parametrize(
    "other",
    ["secret", Broken(), None, 10**400, np.complex128(1j), np.longdouble("1e999")],
    ids=lambda other: type(other).__name__,
)
def test_a_value_is_read_in_the_same_way_whatever_the_others_are(value: Any, other: Any) -> None:
    """Neither an error nor a warning tells of the other, and nor does what becomes of the value."""
    alone = as_numbers(np.array([value], dtype=object))
    beside = np.array([value, other], dtype=object)

    assert as_numbers(beside)[0] == alone[0] == as_numbers([value, other])[0]
    assert np.isfinite(alone[0])


def test_what_is_too_large_for_a_double_is_infinite_and_no_warning_says_so() -> None:
    assert as_numbers(np.array([1, np.longdouble("1e999")])).tolist() == [1.0, math.inf]


@pytest.mark.parametrize("objective", MULTICLASS)
@pytest.mark.parametrize("other", [-1.0, 3.0, 0.5, math.nan])
def test_a_label_that_is_no_class_counts_for_nothing(objective: Objective, other: float) -> None:
    w, rows, labels = _data(objective, 30)
    spoiled = labels.astype(np.float64)
    spoiled[3] = other
    rest = np.delete(rows, 3, 0), np.delete(labels, 3)

    assert objective.losses(w, rows, spoiled)[3] == 0.0
    assert objective.gradient_norms(w, rows, spoiled)[3] <= 1e-100
    clipped = objective.clipped_gradient_sum(w, rows, spoiled, 0.7)
    assert clipped == pytest.approx(objective.clipped_gradient_sum(w, *rest, 0.7), abs=1e-12)


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_a_label_that_is_none_is_bounded(objective: Objective) -> None:
    w, rows, labels = _data(objective, 30)
    before = objective.clipped_gradient_sum(w, rows, labels, 0.7)
    for bad in (math.nan, math.inf, 1e300, 99.0, -7.5):
        spoiled = labels.astype(np.float64)
        spoiled[3] = bad
        after = objective.clipped_gradient_sum(w, rows, spoiled, 0.7)
        assert np.linalg.norm(after - before) <= 1.4
        assert 0.0 <= objective.clipped_loss_sum(w, rows, spoiled, 0.7) <= 30 * 0.7


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_no_examples_sum_to_zero(objective: Objective) -> None:
    w, rows, labels = _data(objective, 5)
    empty = rows[:0], labels[:0]

    assert not objective.gradient_sum(w, *empty).any()
    assert not objective.clipped_gradient_sum(w, *empty, 1.0).any()
    assert objective.clipped_loss_sum(w, *empty, 1.0) == 0.0
    assert objective.losses(w, *empty).shape == objective.gradient_norms(w, *empty).shape == (0,)


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_losses_are_not_negative_and_clipped_sums_are_theirs(objective: Objective) -> None:
    w, rows, labels = _data(objective)
    losses = objective.losses(w, rows, labels)

    assert losses.min() >= -1e-12
    limit = 0.4 * (1.0 - CLIP_MARGIN)
    assert objective.clipped_loss_sum(w, rows, labels, 0.4) == pytest.approx(np.minimum(losses, limit).sum())


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_single_precision_is_summed_in_double(objective: Objective) -> None:
    w, rows, labels = _data(objective)
    single = rows.astype(np.float32)

    found = objective.clipped_gradient_sum(w, single, labels, 0.5)
    wanted = objective.clipped_gradient_sum(w, single.astype(np.float64), labels, 0.5)
    assert np.array_equal(found, wanted)


@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("clip", [0.0, -1.0, math.nan, math.inf])
def test_limits_are_checked(objective: Objective, clip: float) -> None:
    w, rows, labels = _data(objective, 5)

    for function in (objective.clipped_gradient_sum, objective.clipped_loss_sum):
        with pytest.raises(ValueError, match="clip"):
            function(w, rows, labels, clip)


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_parameters_are_checked(objective: Objective) -> None:
    w, rows, labels = _data(objective, 5)
    w[0] = math.nan

    with pytest.raises(ValueError, match="finite"):
        objective.clipped_gradient_sum(w, rows, labels, 1.0)


def _bounded_rows(objective: Objective) -> tuple[Any, Any, Any]:
    w, rows, labels = _data(objective, 300)
    return w, 2.0 * rows / np.maximum(2.0, np.linalg.norm(rows, axis=1, keepdims=True)), labels


@pytest.mark.parametrize("objective", [*BINARY, Softmax(3)])
def test_no_gradient_is_longer_than_the_lipschitz_constant(objective: Objective) -> None:
    w, rows, labels = _bounded_rows(objective)
    bound = objective.lipschitz(2.0, float(np.linalg.norm(w)))

    assert math.isfinite(bound)
    for size in (0.0, 0.1, 1.0):
        assert objective.gradient_norms(size * w, rows, labels).max() <= bound * (1.0 + 1e-12)


@pytest.mark.parametrize("objective", [Logistic(), HuberSVM(0.5), LeastSquares(), Softmax(3)])
def test_gradients_change_no_faster_than_the_smoothness_allows(objective: Objective) -> None:
    objective.regularizer = L2(0.25)
    w, rows, labels = _bounded_rows(objective)
    generator = np.random.default_rng(5)
    bound = objective.smoothness(2.0)
    for size in (1e-4, 0.1, 3.0):
        other = w + size * generator.normal(size=w.size)
        change = objective.gradient(w, rows, labels) - objective.gradient(other, rows, labels)
        assert np.linalg.norm(change) <= bound * np.linalg.norm(w - other) * (1.0 + 1e-9)
    assert bound <= 5.0 * 4.0


def test_what_is_not_smooth_says_so() -> None:
    assert HingeSVM().smoothness() == math.inf
    assert Logistic(L1(0.1)).smoothness() == math.inf
    assert MLP([3], 2).lipschitz() == math.inf
    assert LeastSquares().lipschitz() == math.inf


@pytest.mark.parametrize("regularizer", [Unregularized(), L2(0.7), L1(0.7)])
def test_the_proximal_point_is_the_minimiser(regularizer: Any) -> None:
    w = np.array([2.0, -0.3, 0.0, 0.35])
    point = regularizer.proximal(w, 0.5)

    def value(v: Any) -> float:
        return float(0.5 * np.sum((v - w) ** 2)) + 0.5 * float(regularizer.value(v))

    generator = np.random.default_rng(3)
    nearby = [point + generator.normal(scale=size, size=4) for size in (1e-3, 0.1, 1.0) for _ in range(50)]
    assert min(map(value, nearby)) >= value(point)


def test_strong_convexity_comes_from_the_regulariser() -> None:
    assert (L2(0.3).strong_convexity, L1(0.3).strong_convexity) == (0.3, 0.0)
    assert Logistic(L2(0.3)).smoothness(2.0) == 1.3


def test_a_network_starts_from_its_shapes_alone_and_can_learn() -> None:
    generator = np.random.default_rng(0)
    rows = generator.normal(size=(400, 2))
    labels = (rows[:, 0] * rows[:, 1] > 0).astype(np.int64)
    network = MLP([8], 2)
    w = network.initial(rows, labels)
    assert np.array_equal(w, network.initial(rows + 1.0, 1 - labels))
    assert w.size == network.dimension(rows, labels) == 2 * 8 + 8 + 8 * 2 + 2

    for _ in range(800):
        w = w - 0.5 * network.gradient(w, rows, labels)

    assert np.mean(network.predict(w, rows) == labels) > 0.95


@pytest.mark.parametrize("penalty", [SCAD(0.4), SCAD(0.4, reach=2.1), MCP(0.5), MCP(0.3, reach=1.2)], ids=str)
@pytest.mark.parametrize("step", [0.1, 1.0, 2.5, 6.0])
def test_a_concave_penaltys_proximal_map_is_the_least_of_a_grid(penalty: Regularizer, step: float) -> None:
    for value in np.linspace(-4.0, 4.0, 41):
        found = penalty.proximal(np.array([value]), step)
        grid = np.linspace(-5.0, 5.0, 4001)
        costs = [(v - value) ** 2 / 2.0 + step * penalty.value(np.array([v])) for v in grid]
        assert (found[0] - value) ** 2 / 2.0 + step * penalty.value(found) <= min(costs) + 1e-9


@pytest.mark.parametrize("penalty", [SCAD(0.4), MCP(0.5), NuclearNorm(0.3, rows=2)], ids=str)
def test_a_penaltys_gradient_is_its_derivative(penalty: Regularizer) -> None:
    w = np.array([0.3, -0.9, 2.0, -0.2, 1.1, 0.7])
    steps = 1e-6 * np.eye(len(w))
    slopes = [(penalty.value(w + step) - penalty.value(w - step)) / 2e-6 for step in steps]
    assert np.allclose(penalty.gradient(w), slopes, atol=1e-6)


def test_the_nuclear_norm_shrinks_singular_values() -> None:
    w = np.random.default_rng(4).normal(size=12)
    before, after = (
        np.linalg.svd(v.reshape(3, 4), compute_uv=False)
        for v in (w, NuclearNorm(0.5, rows=3).proximal(w, 1.6))
    )
    assert np.allclose(after, np.maximum(before - 0.8, 0.0))
    assert NuclearNorm(0.5, rows=3).value(w) == pytest.approx(0.5 * before.sum())


@pytest.mark.parametrize(
    "wrong", [lambda: SCAD(0.1, reach=2.0), lambda: MCP(0.1, reach=1.0), lambda: MCP(-1.0)]
)
def test_a_penalty_that_is_none_is_refused(wrong: Callable[[], Regularizer]) -> None:
    with pytest.raises(ValueError, match="must be"):
        wrong()


@pytest.mark.parametrize(
    "objective", [Logistic(), HuberSVM(), Softmax(3), MLP([2], 3)], ids=lambda o: type(o).__name__
)
def test_losses_along_a_line_are_those_at_its_points(objective: Objective) -> None:
    random = np.random.default_rng(6)
    X, y = random.normal(size=(1_500, 4)), random.integers(0, 3, size=1_500).astype(float)
    X[7] = np.inf
    w, direction = random.normal(size=(2, objective.dimension(X, y)))
    sizes = [0.0, 0.3, 2.0]
    expected = [objective.clipped_loss_sum(w - size * direction, X, y, 1.2) for size in sizes]
    assert objective.clipped_line_sums(w, direction, sizes, X, y, 1.2) == pytest.approx(expected, rel=1e-12)
