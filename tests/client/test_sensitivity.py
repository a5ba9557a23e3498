"""Neighbouring datasets never move a clipped sum by more than the declared sensitivity.

No tolerance is added anywhere: the margin that clipping leaves must cover every rounding error.
"""

from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from dpledger_client._arrays import Floats
from dpledger_client.objectives import (
    MLP,
    HingeSVM,
    HuberSVM,
    LeastSquares,
    Logistic,
    Objective,
    Softmax,
    gradient_sensitivity,
    loss_sensitivity,
)

FEATURES = 3
OBJECTIVES: list[Objective] = [
    Logistic(),
    HingeSVM(),
    HuberSVM(0.3),
    LeastSquares(),
    Softmax(3),
    MLP([3], 3),
    MLP([2], 3, "relu"),
]
any_number = st.floats(allow_nan=True, allow_infinity=True)
plain_number = st.floats(-100.0, 100.0)
rows = arrays(np.float64, (6, FEATURES), elements=plain_number)
any_row = arrays(np.float64, (1, FEATURES), elements=any_number)
labels = arrays(np.int64, 6, elements=st.integers(0, 2))
clips = st.floats(1e-6, 1e6)


def _labels(objective: Objective, drawn: "np.ndarray[tuple[int], np.dtype[np.int64]]") -> Floats:
    multiclass = isinstance(objective, Softmax | MLP)
    return drawn.astype(np.float64) if multiclass else np.where(drawn == 0, -1.0, 1.0)


def _parameters(objective: Objective, seed: int, size: float) -> Floats:
    dimension = objective.dimension(np.zeros((1, FEATURES)), np.zeros(1))
    return size * np.random.default_rng(seed).normal(size=dimension)


@pytest.mark.parametrize("objective", OBJECTIVES)
@given(
    X=rows,
    y=labels,
    row=any_row,
    label=any_number,
    other=any_row,
    clip=clips,
    seed=st.integers(0, 5),
    size=st.sampled_from([0.0, 0.1, 3.0, 1e6]),
)
@example(
    X=np.zeros((6, FEATURES)),
    y=np.zeros(6, dtype=np.int64),
    row=np.full((1, FEATURES), np.inf),
    label=np.nan,
    other=np.full((1, FEATURES), -1e308),
    clip=1.0,
    seed=0,
    size=1e6,
)
@example(  # the squares of the row are too small for a double, and the slope is not
    X=np.zeros((6, FEATURES)),
    y=np.zeros(6, dtype=np.int64),
    row=np.full((1, FEATURES), 1e-170),
    label=1e200,
    other=np.full((1, FEATURES), -1e-170),
    clip=1.0,
    seed=0,
    size=0.0,
)
@settings(max_examples=60)
def test_one_record_moves_a_clipped_sum_by_at_most_the_sensitivity(
    objective: Objective,
    X: Floats,
    y: "np.ndarray[tuple[int], np.dtype[np.int64]]",
    row: Floats,
    label: float,
    other: Floats,
    clip: float,
    seed: int,
    size: float,
) -> None:
    w = _parameters(objective, seed, size)
    targets = _labels(objective, y)

    def sums(*extra: Floats) -> tuple[Floats, float]:
        data = np.concatenate([X, *extra])
        both = np.concatenate([targets, np.full(len(extra), label)])
        gradient = objective.clipped_gradient_sum(w, data, both, clip)
        return gradient, objective.clipped_loss_sum(w, data, both, clip)

    without, added, replaced = sums(), sums(row), sums(other)

    for other_sums, adjacency in ((without, "add-remove"), (replaced, "replace-one")):
        assert np.linalg.norm(added[0] - other_sums[0]) <= gradient_sensitivity(clip, adjacency)
        assert abs(added[1] - other_sums[1]) <= loss_sensitivity(clip, adjacency)


def test_sensitivities_are_those_of_the_adjacency() -> None:
    assert (gradient_sensitivity(3.0, "add-remove"), gradient_sensitivity(3.0, "replace-one")) == (3.0, 6.0)
    assert loss_sensitivity(3.0, "add-remove") == loss_sensitivity(3.0, "replace-one") == 3.0
    for function in (gradient_sensitivity, loss_sensitivity):
        for clip, adjacency in ((1.0, "neighbours"), (0.0, "add-remove"), (np.inf, "replace-one")):
            with pytest.raises(ValueError, match=r"adjacency|clip"):
                function(clip, adjacency)


@pytest.mark.parametrize("objective", [Logistic(), Softmax(3), MLP([3], 3)])
def test_a_record_among_many_moves_a_sum_by_at_most_the_sensitivity(objective: Objective) -> None:
    """The rounding errors of the other records change when one is added: blocks shift, orders change."""
    generator = np.random.default_rng(0)
    records, clip = 20_001, 1.0
    data = generator.normal(size=(records, FEATURES)) * 10.0 ** generator.uniform(-8, 8, size=(records, 1))
    targets = _labels(objective, generator.integers(0, 3, records))
    w = _parameters(objective, 1, 1.0)
    everything = objective.clipped_gradient_sum(w, data, targets, clip)

    steepest = int(np.argmax(objective.gradient_norms(w, data, targets)))
    moves = []
    for database_target in (0, 1023, 1024, steepest, records - 1):
        kept = np.arange(records) != database_target
        rest = objective.clipped_gradient_sum(w, data[kept], targets[kept], clip)
        moves.append(np.linalg.norm(everything - rest))
        assert moves[-1] <= clip
    assert max(moves) > 0.5 * clip


def _cancelling(objective: Objective, seed: int, features: int) -> tuple[Floats, Floats, Floats]:
    """Parameters, and 21 equal records whose margins are nothing but rounding errors, of any size."""
    generator = np.random.default_rng(seed)
    dimension = objective.dimension(np.zeros((1, features)), np.zeros(1))
    w = generator.normal(size=dimension)
    directions = w[: dimension // features * features].reshape(features, -1) if dimension > features else w
    row = generator.normal(size=features)
    row -= np.linalg.lstsq(directions.T.reshape(-1, features), directions.T.reshape(-1, features) @ row)[0]
    return w, np.tile(1e17 * row, (21, 1)), np.ones(21)


@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("seed", range(40))
def test_a_record_does_not_change_how_others_are_rounded(objective: Objective, seed: int) -> None:
    """Margins that cancel are all rounding error: a product of matrices may round a row by its place.

    A library multiplies the last few rows of a matrix by other instructions than the rest.
    """
    w, data, targets = _cancelling(objective, seed, features=8)
    clip = 1.0

    sums = [objective.clipped_gradient_sum(w, data[:many], targets[:many], clip) for many in range(22)]
    losses = [objective.clipped_loss_sum(w, data[:many], targets[:many], clip) for many in range(22)]
    assert np.linalg.norm(np.diff(sums, axis=0), axis=1).max() <= clip
    assert np.abs(np.diff(losses)).max() <= clip


@pytest.mark.parametrize("kind", [np.float64, object])
@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("seed", range(20))
def test_a_record_by_itself_is_rounded_as_beside_others_whose_columns_lie_together(
    objective: Objective, seed: int, kind: type
) -> None:
    """A frame's columns lie together. Those of a single row do so in any order, and are multiplied faster."""
    w, equal, targets = _cancelling(objective, seed, features=9)
    data: Any = np.asfortranarray(equal.astype(kind))
    clip, sizes = 1.0, range(4)

    for samples in ([data[np.arange(many)] for many in sizes], [data[:many].copy("F") for many in sizes]):
        sums = [objective.clipped_gradient_sum(w, rows, targets[: len(rows)], clip) for rows in samples]
        losses = [objective.clipped_loss_sum(w, rows, targets[: len(rows)], clip) for rows in samples]
        assert np.linalg.norm(np.diff(sums, axis=0), axis=1).max() <= clip
        assert np.abs(np.diff(losses)).max() <= clip


@pytest.mark.parametrize("objective", [Logistic(), HingeSVM(), HuberSVM(), LeastSquares()])
@pytest.mark.parametrize("clip", [1e-10, 1e-12, 1e-14, 3e-16, 1e-100])
@pytest.mark.parametrize("label", [0.6e308, 1.1e308, 1.7e308])
def test_a_gradient_that_is_clipped_to_the_last_digits_of_a_double_is_not_longer_for_it(
    objective: Objective, clip: float, label: float
) -> None:
    """The factor that shortens it is too small for a double to be precise."""
    row, w = np.array([[0.0, 1.0]]), np.zeros(2)
    for y in (label, -label):
        assert np.linalg.norm(objective.clipped_gradient_sum(w, row, np.array([y]), clip)) <= clip


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_the_sensitivity_is_attained(objective: Objective) -> None:
    """The bound is not met by clipping to less: a large gradient counts with the whole limit."""
    w = _parameters(objective, 2, 0.5)
    data = np.random.default_rng(2).normal(size=(200, FEATURES))
    targets = _labels(objective, np.arange(200) % 3)
    norms = objective.gradient_norms(w, data, targets)
    clip = float(np.median(norms[norms > 0.0]))
    steepest = int(np.argmax(norms))

    one = objective.clipped_gradient_sum(
        w, data[steepest : steepest + 1], targets[steepest : steepest + 1], clip
    )
    assert clip * (1.0 - 2.0**-19) <= np.linalg.norm(one) <= clip
