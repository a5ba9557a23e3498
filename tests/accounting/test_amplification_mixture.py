"""Mixtures of mechanisms, and the noise scale that depends on a secret batch."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mpmath import mp

from dpledger.accounting.amplification.mixture import check_probabilities, mixture_curve
from dpledger.accounting.amplification.poisson_gaussian import poisson_gaussian_curve
from dpledger.accounting.errors import InvalidInput
from tests.accounting.references import (
    assert_bounds,
    digits,
    gaussian_density,
    moderately,
    renyi_both_ways,
    renyi_by_quadrature,
)

ORDERS = np.array([1.25, 2.0, 4.0, 32.0])


def weights(size: int) -> st.SearchStrategy[list[float]]:
    return st.lists(st.floats(0.01, 1.0), min_size=size, max_size=size).map(
        lambda drawn: [value / sum(drawn) for value in drawn]
    )


@moderately
@given(weights(3), st.lists(weights(2), min_size=6, max_size=6))
def test_never_below_the_divergence_of_two_mixtures_with_common_weights(
    shares: list[float], parts: list[list[float]]
) -> None:
    firsts, seconds = parts[:3], parts[3:]
    curves = [
        np.array([float(renyi_both_ways(a, b, order)) for order in ORDERS]) + 1e-14
        for a, b in zip(firsts, seconds, strict=True)
    ]
    found = mixture_curve(curves, shares, ORDERS)
    first = [sum(q * p[i] for q, p in zip(shares, firsts, strict=True)) for i in range(2)]
    second = [sum(q * p[i] for q, p in zip(shares, seconds, strict=True)) for i in range(2)]
    for order, value in zip(ORDERS, found, strict=True):
        assert value >= float(renyi_both_ways(first, second, order)) - 1e-15


@pytest.mark.parametrize("scale", [1e-9, 1e-3, 1.0, 300.0])
def test_equals_the_formula_at_50_digits(scale: float) -> None:
    shares = [0.2, 0.3, 0.5]
    curves = [scale * ORDERS, 2.0 * scale * ORDERS, 0.5 * scale * ORDERS]
    found = mixture_curve(curves, shares, ORDERS)
    for index, order in enumerate(ORDERS):
        with digits():
            moments = [
                mp.mpf(q) * mp.exp((mp.mpf(order) - 1) * mp.mpf(curve[index]))
                for q, curve in zip(shares, curves, strict=True)
            ]
            exact = mp.log(mp.fsum(moments)) / (mp.mpf(order) - 1)
        assert_bounds(found[index], exact, within=1e-12)


@pytest.mark.parametrize(
    ("share", "rare", "common", "order"),
    [
        (6.2e-88, 0.0666, 2e-20, 50.3),
        (1e-70, 58.0, 1e-9, 1.02),
        (1e-12, 1.5, 1e-15, 2.0),
        (1e-300, 680.0, 1e-9, 2.0),
    ],
)
def test_a_large_part_that_is_hardly_ever_taken_does_not_drown_the_common_one(
    share: float, rare: float, common: float, order: float
) -> None:
    shares = [share, 1.0 - share]
    found = mixture_curve([np.array([rare]), np.array([common])], shares, np.array([order]))[0]
    with digits(400):
        excess = mp.mpf(order) - 1
        moments = [
            mp.mpf(q) * mp.expm1(excess * mp.mpf(part))
            for q, part in zip(shares, (rare, common), strict=True)
        ]
        exact = mp.log1p(mp.fsum(moments)) / excess
    assert_bounds(found, exact, within=0.01)


def test_noise_scaled_to_a_secret_batch_is_not_amplified() -> None:
    """Where only the record's own batches get large noise, the batches tell each other apart."""
    rate, sigma, order = 0.01, 1.0, 2.0
    with digits():
        q = mp.mpf(rate)
        separated = 1 - q + q * mp.exp(mp.mpf(order) * (order - 1) / (2 * sigma**2))
        true = mp.log(separated) / (order - 1)
    claimed = poisson_gaussian_curve(rate, 1.0 / sigma, np.array([order]))[0]
    mixed = mixture_curve([np.zeros(1), np.array([order / 2.0])], [1.0 - rate, rate], np.array([order]))[0]
    assert float(true) == pytest.approx(0.01704, abs=1e-5)
    assert claimed == pytest.approx(1.7e-4, rel=0.02)
    assert claimed < true
    assert_bounds(mixed, true, within=1e-10)


def test_a_narrow_spike_of_other_batches_comes_close_to_the_mixture_bound() -> None:
    """Batches without the record get noise of std 0.001 around 0, those with it N(0, 1) or N(1, 1)."""
    rate, order = 0.01, 2.0
    spike = gaussian_density(0.0, 0.001)
    first, second = gaussian_density(1.0, 1.0), gaussian_density(0.0, 1.0)
    true = renyi_by_quadrature(
        lambda x: (1 - rate) * spike(x) + rate * first(x),
        lambda x: (1 - rate) * spike(x) + rate * second(x),
        order,
        [-12, -1, -0.01, -0.005, 0, 0.005, 0.01, 1, 14],
        dps=20,
    )
    mixed = mixture_curve([np.zeros(1), np.array([order / 2.0])], [1.0 - rate, rate], np.array([order]))[0]
    assert_bounds(mixed, true, within=0.01)


def test_probabilities_that_fall_short_of_one_are_raised() -> None:
    raised = check_probabilities([0.5, 0.5 - 1e-10])
    assert raised.sum() >= 1.0 - 1e-15


@pytest.mark.parametrize("bad", [[0.5, 0.4], [1.5, -0.5], [float("nan"), 1.0], []])
def test_what_is_no_distribution_is_refused(bad: list[float]) -> None:
    with pytest.raises(InvalidInput, match="probabilities"):
        mixture_curve([ORDERS] * len(bad), bad, ORDERS)


def test_curves_must_fit_probabilities_and_orders() -> None:
    with pytest.raises(InvalidInput, match="curves"):
        mixture_curve([ORDERS], [0.5, 0.5], ORDERS)
    with pytest.raises(InvalidInput, match="curve"):
        mixture_curve([ORDERS[:2]], [1.0], ORDERS)
    with pytest.raises(InvalidInput, match="curve"):
        mixture_curve([-ORDERS], [1.0], ORDERS)
