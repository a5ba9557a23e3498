"""The default grid of orders serves what its documentation says."""

import math

import numpy as np
import pytest
from scipy import optimize

from dpledger.accounting.orders import DEFAULT_ORDERS, integers_up_to
from dpledger.accounting.validation import check_orders


def tight_epsilon(order: float, rho: float, delta: float) -> float:
    """(ε, δ) of a ρ-zCDP curve at one order (Canonne, Kamath, Steinke 2020, Proposition 12)."""
    return order * rho + math.log1p(-1.0 / order) - math.log(delta * order) / (order - 1.0)


def test_the_grid_is_valid_and_read_only() -> None:
    assert np.array_equal(check_orders(DEFAULT_ORDERS), DEFAULT_ORDERS)
    assert not DEFAULT_ORDERS.flags.writeable
    assert (DEFAULT_ORDERS.size, DEFAULT_ORDERS[0], DEFAULT_ORDERS[-1]) == (171, 1.03125, 8193.0)


def test_it_holds_every_integer_that_bounds_at_integers_need() -> None:
    assert set(range(2, 34)) <= set(DEFAULT_ORDERS.tolist())
    assert all(order.is_integer() for order in DEFAULT_ORDERS.tolist() if order >= 34.0)


@pytest.mark.parametrize("epsilon", [0.01, 0.05, 0.1, 1.0, 5.0, 20.0])
@pytest.mark.parametrize("delta", [1e-3, 1e-5, 1e-9, 1e-12])
def test_it_loses_about_a_thousandth_of_epsilon(epsilon: float, delta: float) -> None:
    """The Gaussian that uses up (ε, δ) exactly, converted on the grid and at the best real order."""

    def best(rho: float) -> float:
        found = optimize.minimize_scalar(
            lambda t: tight_epsilon(1.0 + math.exp(t), rho, delta), bounds=(-6.0, 12.0), method="bounded"
        )
        return float(found.fun)

    rho = optimize.brentq(lambda rho: best(rho) - epsilon, 1e-12, 200.0, xtol=1e-16)
    on_grid = min(tight_epsilon(order, rho, delta) for order in DEFAULT_ORDERS.tolist())
    assert on_grid <= epsilon * 1.0015


def test_integers() -> None:
    assert integers_up_to(5).tolist() == [2.0, 3.0, 4.0, 5.0]
    assert integers_up_to(1).size == 0
    assert not integers_up_to(5).flags.writeable
