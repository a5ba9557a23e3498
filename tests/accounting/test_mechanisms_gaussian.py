"""Gaussian noise, against quadrature and, for the discrete kind, enumeration."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from mpmath import mp

from dpledger.accounting.errors import InvalidInput
from dpledger.accounting.mechanisms import DiscreteGaussian, Gaussian
from dpledger.accounting.sampling import Adjacency
from tests.accounting.references import (
    SOME_ORDERS,
    Number,
    assert_bounds,
    digits,
    gaussian_density,
    log_uniform,
    moderately,
    renyi_both_ways,
    renyi_by_quadrature,
)

Noise = type[Gaussian] | type[DiscreteGaussian]
BOTH: list[Noise] = [Gaussian, DiscreteGaussian]


def exact(sensitivity: float, noise_std: float, order: float) -> Number:
    """α·Δ²/(2σ²); checked against quadrature below."""
    with digits(50):
        return mp.mpf(order) * (mp.mpf(sensitivity) / mp.mpf(noise_std)) ** 2 / 2


@pytest.mark.parametrize(("sensitivity", "noise_std"), [(1.0, 10.0), (3.0, 2.0)])
@pytest.mark.parametrize("order", [1.1, 2.0, 12.0])
def test_closed_form_is_the_quadrature_in_both_directions(
    sensitivity: float, noise_std: float, order: float
) -> None:
    with digits(30):
        # The integrand is a Gaussian around α·Δ or (1−α)·Δ.
        centre, width = mp.mpf(order) * sensitivity, 20 * mp.mpf(noise_std)
        p, q = gaussian_density(sensitivity, noise_std), gaussian_density(0, noise_std)
        forward = [centre - width, centre, centre + width]
        backward = [sensitivity - point for point in reversed(forward)]
        for first, second, points in ((p, q, forward), (q, p, backward)):
            found = renyi_by_quadrature(first, second, order, points, dps=30)
            assert abs(found / exact(sensitivity, noise_std, order) - 1) < mp.mpf("1e-15")


@moderately
@given(log_uniform(1e-9, 1e4), log_uniform(1e-4, 1e9))
def test_curve_rho_and_mu_are_exact(sensitivity: float, noise_std: float) -> None:
    cost = Gaussian(sensitivity, noise_std).cost(SOME_ORDERS, Adjacency.REPLACE_ONE)
    for order, found in zip(SOME_ORDERS, cost.epsilons, strict=True):
        assert_bounds(found, exact(sensitivity, noise_std, order), within=1e-14)
    with digits(50):
        ratio = mp.mpf(sensitivity) / mp.mpf(noise_std)
        assert_bounds(cost.rho or 0.0, ratio**2 / 2, within=1e-14)
        assert_bounds(cost.mu or 0.0, ratio, within=1e-14)
    assert cost.pure_epsilon is None


def test_gaussian_mu_is_that_of_the_cost() -> None:
    mechanism = Gaussian(2.0, 3.0)
    assert mechanism.gaussian_mu == mechanism.cost(SOME_ORDERS, Adjacency.ADD_REMOVE).mu
    assert DiscreteGaussian(2.0, 3.0).gaussian_mu is None


def lattice(centre: int, noise_std: float, reach: int) -> list[Number]:
    """The discrete Gaussian around ``centre`` on −reach … reach."""
    weights = [
        mp.exp(-(mp.mpf(x - centre) ** 2) / (2 * mp.mpf(noise_std) ** 2)) for x in range(-reach, reach + 1)
    ]
    return [weight / mp.fsum(weights) for weight in weights]


@pytest.mark.parametrize("noise_std", [0.5, 1.0, 4.0])
@pytest.mark.parametrize("shift", [1, 3])
@pytest.mark.parametrize("order", [1.5, 2.0, 5.0])
def test_discrete_gaussian_by_enumeration(noise_std: float, shift: int, order: float) -> None:
    with digits(50):
        reach = int(shift * order + 16 * noise_std) + 1
        p, q = (lattice(centre, noise_std, reach) for centre in (0, shift))
        true = renyi_both_ways(p, q, order)
    cost = DiscreteGaussian(shift, noise_std).cost(np.array([order]), Adjacency.ADD_REMOVE)
    slack = 1e-12 if float(shift * order).is_integer() else 1.0
    assert mp.mpf(float(cost.epsilons[0])) >= true * (1 - mp.mpf("1e-25"))
    assert float(cost.epsilons[0]) <= float(true) * (1 + slack)


def test_discrete_gaussian_has_a_curve_and_rho_only() -> None:
    cost = DiscreteGaussian(1, 5).cost(SOME_ORDERS, Adjacency.ADD_REMOVE)
    assert np.array_equal(cost.epsilons, Gaussian(1, 5).cost(SOME_ORDERS, Adjacency.ADD_REMOVE).epsilons)
    assert (cost.mu, cost.pure_epsilon) == (None, None)
    assert cost.rho == pytest.approx(0.02, rel=1e-14)


@pytest.mark.parametrize("kind", BOTH)
def test_zero_sensitivity_costs_nothing(kind: Noise) -> None:
    cost = kind(0, 1).cost(SOME_ORDERS, Adjacency.ADD_REMOVE)
    assert not cost.epsilons.any()
    assert (cost.rho, cost.mu, cost.pure_epsilon) == (0.0, 0.0, 0.0)


@pytest.mark.parametrize("kind", BOTH)
@pytest.mark.parametrize(("sensitivity", "noise_std"), [(1e-300, 1e300), (1e-150, 1e50), (5e-324, 1.0)])
def test_no_underflow_undercuts_a_tiny_cost(kind: Noise, sensitivity: float, noise_std: float) -> None:
    cost = kind(sensitivity, noise_std).cost(SOME_ORDERS, Adjacency.ADD_REMOVE)
    for order, found in zip(SOME_ORDERS, cost.epsilons, strict=True):
        assert found > 0.0
        assert mp.mpf(float(found)) >= exact(sensitivity, noise_std, order)
    assert (cost.rho or 0.0) > 0.0


@pytest.mark.parametrize("kind", BOTH)
@pytest.mark.parametrize(("sensitivity", "noise_std"), [(1e200, 1e-200), (1e160, 1.0), (1e154, 1.0)])
def test_refuses_a_ratio_that_overflows(kind: Noise, sensitivity: float, noise_std: float) -> None:
    with pytest.raises(InvalidInput, match="finite"):
        kind(sensitivity, noise_std).cost(SOME_ORDERS, Adjacency.ADD_REMOVE)


@pytest.mark.parametrize("kind", BOTH)
@pytest.mark.parametrize(
    ("field", "sensitivity", "noise_std"),
    [
        ("sensitivity", -1.0, 1.0),
        ("sensitivity", math.nan, 1.0),
        ("sensitivity", math.inf, 1.0),
        ("sensitivity", None, 1.0),
        ("noise_std", 1.0, 0.0),
        ("noise_std", 1.0, -2.0),
        ("noise_std", 1.0, math.nan),
        ("noise_std", 1.0, "3"),
    ],
)
def test_refuses_what_is_no_noise(kind: Noise, field: str, sensitivity: Any, noise_std: Any) -> None:
    with pytest.raises(InvalidInput) as refusal:
        kind(sensitivity, noise_std)
    assert refusal.value.field == field


def test_numbers_are_normalised_to_floats() -> None:
    assert Gaussian(3, 300) == Gaussian(3.0, np.float64(300.0))
    assert type(Gaussian(3, 300).sensitivity) is float
