"""Noise is rounded so that what was planned at sensitivity 1 fits at any clip, to the last step."""

import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpledger_client import Dataset
from dpledger_client.objectives import Logistic
from dpledger_client.optimizers import minimize
from dpledger_client.optimizers.methods.noisy_gd import NoisyGradientDescent
from dpledger_client.optimizers.noise_levels import noise_for_multiplier, noise_for_rho

positive = st.one_of(
    st.floats(1e-6, 1e6), st.integers(1, 10_000).map(lambda n: n / 100), st.integers(1, 999).map(float)
)


def on_paper(number: float) -> Fraction:
    return Fraction(repr(number))


@given(multiplier=positive, sensitivity=positive)
def test_noise_is_no_less_than_the_product_on_paper(multiplier: float, sensitivity: float) -> None:
    noise = noise_for_multiplier(multiplier, sensitivity)

    product = on_paper(multiplier) * on_paper(sensitivity)
    assert product <= on_paper(noise) <= product * (1 + Fraction(1, 2**51))


@given(sensitivity=positive, rho=positive)
def test_noise_for_rho_costs_no_more_on_paper(sensitivity: float, rho: float) -> None:
    noise = noise_for_rho(sensitivity, rho)

    cost = on_paper(sensitivity) ** 2 / (2 * on_paper(noise) ** 2)
    assert on_paper(rho) * (1 - Fraction(1, 2**49)) <= cost <= on_paper(rho)


def test_noise_that_is_too_large_is_left_to_be_refused() -> None:
    assert noise_for_multiplier(1e200, 1e200) == math.inf
    assert noise_for_rho(1e300, 1e-300) == math.inf


@pytest.mark.parametrize("clip", [1.0, 3.0, 0.1, 0.7])
@pytest.mark.parametrize(
    ("multiplier", "rho", "steps"), [(0.7, 50.0, 49), (1.1, 50.0, 121), (10.0, 0.5, 100)]
)
def test_a_plan_at_sensitivity_one_fits_at_any_clip(
    open_dataset: Callable[..., Dataset], clip: float, multiplier: float, rho: float, steps: int
) -> None:
    account = open_dataset(budget={"accounting": "zcdp", "rho": rho}, records=20).run("job")
    method = NoisyGradientDescent(steps + 1, clip, multiplier, 0.1)

    found = minimize(
        Logistic(), np.ones((20, 2)), np.ones(20), account=account, method=method, progress=False
    )

    assert found.iterations == steps
    assert found.stop_reason == "budget-exhausted"
