"""Exact costs against the formulas on paper, and never apart from the floats that bound them."""

from fractions import Fraction

import numpy as np
import pytest

from dpledger.accounting import exact_cost
from dpledger.accounting.sampling import Adjacency, Sample, Scheme
from dpledger.accounting.stepcost import cost_of
from dpledger.accounting.steps import Release, Step

ORDERS = np.array([2.0, 16.0])
FULL = Sample()
GAUSSIAN = {"mechanism": "gaussian", "sensitivity": 0.3, "noise_std": 0.7}


def _step(*fields: dict[str, object], sample: Sample = FULL, replace_one: bool = False) -> Step:
    adjacency = Adjacency.REPLACE_ONE if replace_one else Adjacency.ADD_REMOVE
    return Step(tuple(Release.from_fields(dict(each)) for each in fields), sample, adjacency)


def test_a_gaussian_is_rational_in_every_notion_that_it_has() -> None:
    step = _step({**GAUSSIAN, "count": 3})
    squared = Fraction(9, 49)
    assert exact_cost.exact_mu_squared(step) == 3 * squared
    assert exact_cost.exact_rho(step) == 3 * squared / 2
    assert exact_cost.exact_epsilon(step, 2.0, Fraction(2)) == 3 * squared
    assert exact_cost.exact_pure_epsilon(step) is None
    assert exact_cost.exact_delta(step) == 0


def test_declared_costs_are_the_decimals_as_given() -> None:
    assert exact_cost.exact_rho(_step({"mechanism": "zcdp", "rho": 0.1})) == Fraction(1, 10)
    assert exact_cost.exact_mu_squared(_step({"mechanism": "gdp", "mu": 0.1})) == Fraction(1, 100)
    assert exact_cost.exact_pure_epsilon(_step({"mechanism": "pure", "epsilon": 0.1})) == Fraction(1, 10)
    approximate = _step({"mechanism": "approximate", "epsilon": 0.1, "delta": 0.2})
    assert exact_cost.exact_pure_epsilon(approximate) == Fraction(1, 10)
    assert exact_cost.exact_delta(approximate) == Fraction(1, 5)
    curve = _step({"mechanism": "rdp", "orders": [2.0, 16.0], "epsilons": [0.1, 0.7]})
    assert exact_cost.exact_epsilon(curve, 2.0, Fraction(2)) == Fraction(1, 10)
    assert exact_cost.exact_epsilon(curve, 3.0, Fraction(3)) is None
    stable = _step({"mechanism": "propose-test-release", "epsilon": 0.1, "delta": 1e-7})
    assert exact_cost.exact_pure_epsilon(stable) == Fraction(1, 10)


def test_a_mixture_with_a_cost_that_is_not_rational_has_no_exact_total() -> None:
    step = _step(GAUSSIAN, {"mechanism": "laplace", "sensitivity": 1.0, "scale": 10.0})
    assert exact_cost.exact_rho(step) is None
    assert exact_cost.exact_epsilon(step, 2.0, Fraction(2)) is None


def test_a_discrete_gaussian_is_charged_the_continuous_one() -> None:
    step = _step({"mechanism": "discrete-gaussian", "sensitivity": 1.0, "noise_std": 2.0})
    assert exact_cost.exact_rho(step) == Fraction(1, 8)


@pytest.mark.parametrize(("rate", "expected"), [(0.0, Fraction(0)), (1.0, Fraction(9, 98)), (0.5, None)])
def test_sampling_leaves_an_exact_cost_only_at_its_ends(rate: float, expected: Fraction | None) -> None:
    assert exact_cost.exact_rho(_step(GAUSSIAN, sample=Sample(Scheme.POISSON, rate))) == expected


def test_an_additive_delta_is_multiplied_by_a_poisson_rate_and_not_by_a_quotient() -> None:
    approximate: dict[str, object] = {"mechanism": "approximate", "epsilon": 0.1, "delta": 0.2}
    poisson = _step(approximate, sample=Sample(Scheme.POISSON, 0.1))
    assert exact_cost.exact_delta(poisson) == Fraction(1, 50)
    without = _step(approximate, sample=Sample(Scheme.WITHOUT_REPLACEMENT, 0.1), replace_one=True)
    assert exact_cost.exact_delta(without) is None


def test_exact_costs_are_what_the_floats_bound() -> None:
    step = _step(GAUSSIAN)
    cost = cost_of(step, ORDERS)
    rho = exact_cost.exact_rho(step)
    assert rho is not None
    assert cost.rho is not None
    assert 0 <= Fraction(cost.rho) - rho < Fraction(1, 10**12)


@pytest.mark.parametrize(
    ("exact", "bound", "expected"),
    [
        (None, 0.5, Fraction(1, 2)),
        (Fraction(1, 10), 0.1, Fraction(1, 10)),
        (Fraction(1, 10**330), 5e-324, Fraction(5e-324)),
        (Fraction(2), 1.0, Fraction(2)),
    ],
)
def test_where_exact_and_float_are_apart_the_larger_counts(
    exact: Fraction | None, bound: float, expected: Fraction
) -> None:
    assert exact_cost.agreed(exact, bound) == expected
