"""Bounds from a noisy histogram: its sensitivity, its bins, and what is made of it."""

import itertools

import numpy as np
import pytest

from dpledger_client.estimators.private_bounds import (
    BINS,
    bin_counts,
    bounds_from,
    histogram_release,
    histogram_sensitivity,
)
from dpledger_client.mechanisms import Gaussian

VALUES = (0.0, -0.0, 1.0, -1.0, 1.999, 2.0, 2.0**-20, 1e300, -1e300, np.inf, -np.inf, np.nan, 5e-324)


def test_no_neighbour_moves_the_counts_farther_than_the_sensitivity() -> None:
    """Every record of two columns beside every other one: added, or in its place."""
    others = np.array([[1.0, -3.0], [0.0, 7.0]])
    farthest = {"add-remove": 0.0, "replace-one": 0.0}
    records = [np.array([pair]) for pair in itertools.product(VALUES, VALUES)]
    counts = [bin_counts(np.vstack([others, record])) for record in records]
    without = bin_counts(others)
    for one in counts:
        farthest["add-remove"] = max(farthest["add-remove"], float(np.linalg.norm(one - without)))
        for other in counts:
            farthest["replace-one"] = max(farthest["replace-one"], float(np.linalg.norm(one - other)))
    assert farthest["add-remove"] == pytest.approx(np.sqrt(2.0))
    assert farthest["replace-one"] == pytest.approx(2.0)
    for adjacency, moved in farthest.items():
        assert moved <= histogram_sensitivity(2, adjacency) <= moved * (1.0 + 1e-12)


def test_noise_is_for_the_mu_that_is_asked_for() -> None:
    mechanism = histogram_release(7, "replace-one", 0.25).mechanism
    assert isinstance(mechanism, Gaussian)
    assert mechanism.sensitivity / mechanism.noise_std == pytest.approx(0.25)


def test_bounds_cover_what_is_there_and_little_more() -> None:
    random = np.random.default_rng(3)
    columns = [
        random.uniform(17.0, 90.0, 5000),
        random.uniform(-0.5, 3.0, 5000),
        random.uniform(1900.0, 2020.0, 5000),
        -random.uniform(3.0, 5.0, 5000),
        (random.random(5000) < 0.1).astype(np.float64),
    ]
    counts = bin_counts(np.stack(columns, axis=1))
    assert counts.sum() == 5 * 5000
    noisy = counts + 3.0 * random.normal(size=counts.shape)
    low, high = bounds_from(noisy, 5, 5000, 3.0)
    np.testing.assert_allclose(low, [16.0, -0.5, 1024.0, -8.0, 0.0])
    np.testing.assert_allclose(high, [128.0, 4.0, 2048.0, -2.0, 2.0])


def test_a_column_that_noise_hides_has_the_bounds_of_all_together() -> None:
    random = np.random.default_rng(4)
    rows = random.uniform(-3.0, 3.0, (400, 300))
    noise = 90.0
    noisy = bin_counts(rows) + noise * random.normal(size=BINS * 300)
    low, high = bounds_from(noisy, 300, 400, noise)
    assert set(low) == {-4.0}
    assert set(high) == {4.0}


def test_nothing_but_noise_gives_bounds_all_the_same() -> None:
    low, high = bounds_from(np.zeros(2 * BINS), 2, 100, 1.0)
    assert (low.tolist(), high.tolist()) == ([-1.0, -1.0], [1.0, 1.0])
