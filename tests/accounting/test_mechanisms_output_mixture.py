"""Output perturbation after permuted mini-batches."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mpmath import mp

from dpledger.accounting.errors import AdjacencyMismatch, InvalidInput
from dpledger.accounting.mechanisms.output_mixture import OutputMixture
from dpledger.accounting.orders import DEFAULT_ORDERS
from dpledger.accounting.sampling import Adjacency
from tests.accounting.references import (
    SOME_ORDERS,
    assert_bounds,
    digits,
    gaussian_density,
    log_uniform,
    moderately,
    renyi_by_quadrature_both_ways,
)

REPLACE = Adjacency.REPLACE_ONE


def formula(mechanism: OutputMixture, order: float) -> mp.mpf:
    with digits():
        a, sigma = mp.mpf(order), mp.mpf(mechanism.noise_std)
        pairs = zip(mechanism.probabilities, mechanism.sensitivities, strict=True)
        # The floats q may sum to 1 + 1e-16; the probabilities that they stand for sum to 1.
        gain = mp.fsum(mp.mpf(q) * mp.expm1(a * (a - 1) * mp.mpf(d) ** 2 / (2 * sigma**2)) for q, d in pairs)
        return mp.log1p(gain) / (a - 1)


@moderately
@given(log_uniform(1e-6, 1e3), st.lists(st.floats(0.0, 5.0), min_size=1, max_size=8))
def test_equals_theorem_3_2(noise_std: float, sensitivities: list[float]) -> None:
    shares = (1.0 / len(sensitivities),) * len(sensitivities)
    mechanism = OutputMixture(noise_std, tuple(sensitivities), shares)
    found = mechanism.cost(SOME_ORDERS, REPLACE)
    for order, value in zip(SOME_ORDERS, found.epsilons, strict=True):
        exact = formula(mechanism, float(order))
        if max(sensitivities) == 0.0:
            assert value == 0.0
        elif exact > 1e-280:
            assert_bounds(value, exact, within=1e-9)


@pytest.mark.parametrize("exponent", [30.0, 250.0, 690.0])
@pytest.mark.parametrize("total", [1e-8, 1e-3, 10.0])
def test_a_rare_large_batch_in_a_small_total(exponent: float, total: float) -> None:
    """The exponent's own rounding is larger than the last digits of the result."""
    rare = total * math.exp(-exponent)
    mechanism = OutputMixture(1.0, (0.0, math.sqrt(exponent)), (1.0 - rare, rare))
    found = mechanism.cost(np.array([2.0]), REPLACE).epsilons[0]
    assert_bounds(found, formula(mechanism, 2.0), within=1e-3)


def test_never_below_two_mixtures_of_gaussians() -> None:
    """One dimension: batch j moves the result by Δ_j in one world and leaves it in the other."""
    mechanism = OutputMixture(1.0, (0.2, 1.0), (0.5, 0.5))
    orders = np.array([1.5, 2.0, 6.0])
    found = mechanism.cost(orders, REPLACE).epsilons
    near, mid, far = (gaussian_density(mean, 1.0) for mean in (0.0, 0.2, 1.0))
    for order, value in zip(orders, found, strict=True):
        exact = renyi_by_quadrature_both_ways(
            lambda x: (mid(x) + far(x)) / 2, near, float(order), [-12, 0, 1, 20], dps=25
        )
        assert value >= float(exact)


def test_permutation_saves_over_the_worst_batch() -> None:
    shares = (0.1,) * 10
    sensitivities = tuple(0.9**j for j in range(10))
    cost = OutputMixture(1.0, sensitivities, shares).cost(np.array([2.0]), REPLACE)
    assert cost.epsilons[0] < 0.7
    assert cost.rho == pytest.approx(0.5)
    assert cost.mu is None
    assert cost.pure_epsilon is None


def test_many_batches_at_all_orders() -> None:
    count = 20_000
    mechanism = OutputMixture(2.0, tuple(np.linspace(0.0, 1.0, count)), (1.0 / count,) * count)
    found = mechanism.cost(DEFAULT_ORDERS, REPLACE)
    assert (np.diff(found.epsilons) > 0.0).all()
    assert (found.epsilons <= DEFAULT_ORDERS / 8.0 * (1.0 + 1e-12)).all()


def test_add_remove_is_refused_by_name() -> None:
    with pytest.raises(AdjacencyMismatch, match=r"Theorem 3\.2.*replace-one"):
        OutputMixture(1.0, (1.0,), (1.0,)).cost(SOME_ORDERS, Adjacency.ADD_REMOVE)


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ((0.0, (1.0,), (1.0,)), "noise_std"),
        ((1.0, (-1.0,), (1.0,)), "sensitivities"),
        ((1.0, (float("inf"),), (1.0,)), "sensitivities"),
        ((1.0, (1.0, 2.0), (1.0,)), "probabilities"),
        ((1.0, (1.0, 2.0), (0.7, 0.7)), "probabilities"),
        ((1.0, (), ()), "sensitivities"),
    ],
)
def test_out_of_range_is_refused(
    fields: tuple[float, tuple[float, ...], tuple[float, ...]], named: str
) -> None:
    with pytest.raises(InvalidInput, match=named):
        OutputMixture(*fields)


def test_a_negative_zero_is_a_zero() -> None:
    plain = OutputMixture(1.0, (0.0, 1.0), (1.0, 0.0))
    signed = OutputMixture(1.0, (-0.0, 1.0), (1.0, -0.0))
    assert str(signed.fields()) == str(plain.fields())
