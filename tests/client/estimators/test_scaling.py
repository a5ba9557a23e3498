"""Scaling by bounds: where values go, and that weights come back to the caller's units."""

from typing import Any

import numpy as np
import pytest

from dpledger_client.estimators.scaling import Scaling, read_bounds


def test_zero_stays_zero_where_it_is_within_and_others_are_centred() -> None:
    low, high = read_bounds("bounds", [(0.0, 4.0), (-1.0, 3.0), (10.0, 20.0), (5.0, 5.0)], 4)
    scaling = Scaling.within(low, high, centre=True)
    rows = np.array([[0.0, 0.0, 10.0, 5.0], [4.0, -1.0, 15.0, 9.0], [99.0, 99.0, 99.0, -99.0]])
    np.testing.assert_allclose(
        scaling.apply(rows), [[0.0, 0.0, -1.0, 0.0], [1.0, -1.0 / 3.0, 0.0, 0.0], [1.0, 1.0, 1.0, 0.0]]
    )
    assert np.isnan(scaling.apply(np.full((1, 4), np.nan))[0, :3]).all()


@pytest.mark.parametrize("centre", [True, False])
def test_weights_are_those_of_values_as_they_are(centre: bool) -> None:
    random = np.random.default_rng(1)
    low, high = random.uniform(-5.0, 5.0, 6), random.uniform(5.0, 9.0, 6)
    scaling = Scaling.within(low, high, centre=centre)
    rows, weights, intercepts = random.uniform(low, high, (20, 6)), random.normal(size=(3, 6)), np.ones(3)
    own, shifted = scaling.weights(weights, intercepts)
    np.testing.assert_allclose(rows @ own.T + shifted, scaling.apply(rows) @ weights.T + 1.0, atol=1e-12)
    assert np.abs(scaling.apply(rows)).max() <= 1.0 + 1e-12
    if not centre:
        np.testing.assert_array_equal(shifted, intercepts)


@pytest.mark.parametrize("bounds", [(1.0, 0.0), (0.0, np.inf), (0.0, np.nan), [(0.0, 1.0)], 3.0])
def test_bounds_that_are_none_are_refused(bounds: Any) -> None:
    with pytest.raises(ValueError, match="bounds must be"):
        read_bounds("bounds", bounds, 3)


def test_a_column_too_narrow_to_scale_becomes_zero() -> None:
    low, high = read_bounds("bounds", (0.0, 5e-324), 1)
    assert Scaling.within(low, high, centre=True).apply(np.array([[0.0], [1.0]])).tolist() == [[0.0], [0.0]]
