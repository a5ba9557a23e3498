"""What plans refuse would break their claim: the numbers of docs/plans.md, by quadrature and closed forms."""

import math
from collections.abc import Callable
from pathlib import Path

import pytest
from scipy import integrate, optimize
from scipy.stats import norm

from dpledger.accounting.pld.plan import PlanLoss
from dpledger.accounting.steps import Step

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "plans.md").read_text(encoding="utf-8")
EPSILON, DELTA = 1.0, 1e-5
FIRST_PART = 0.3
"""How much of the squared μ of a Gaussian that uses up (ε, δ) the first release takes."""


def gaussian_delta(epsilon: float, mu: float) -> float:
    return float(norm.cdf(mu / 2 - epsilon / mu) - math.exp(epsilon) * norm.cdf(-mu / 2 - epsilon / mu))


def response_delta(epsilon: float, claim: float) -> float:
    """Of randomized response, at any real ε."""
    if epsilon >= claim:
        return 0.0
    if epsilon <= -claim:
        return 1.0 - math.exp(epsilon)
    return (math.exp(claim) - math.exp(epsilon)) / (1.0 + math.exp(claim))


def after(mu: float, rest: Callable[[float], float], edges: list[float]) -> float:
    """δ at ε of a Gaussian release with μ and then a rest whose δ at what is left of ε is given."""
    loss = norm(mu * mu / 2, mu)
    low, high = mu * mu / 2 - 12 * mu, mu * mu / 2 + 12 * mu
    inside = [EPSILON - edge for edge in edges if low < EPSILON - edge < high]
    found, _ = integrate.quad(
        lambda lost: loss.pdf(lost) * rest(EPSILON - lost), low, high, points=inside, limit=500, epsabs=1e-13
    )
    return float(found)


def test_who_may_exchange_unused_items_gets_the_worse_of_both_plans() -> None:
    whole = optimize.brentq(lambda mu: gaussian_delta(EPSILON, mu) - DELTA, 0.01, 5.0)
    first, second = whole * math.sqrt(FIRST_PART), whole * math.sqrt(1.0 - FIRST_PART)
    planned = after(first, lambda left: gaussian_delta(left, second), [])
    assert planned == pytest.approx(DELTA, rel=1e-6)
    claim = optimize.brentq(
        lambda each: after(first, lambda left: response_delta(left, each), [each, -each]) - DELTA, 0.1, 1.0
    )

    exchanged = after(
        first, lambda left: max(gaussian_delta(left, second), response_delta(left, claim)), [claim, -claim]
    )

    assert exchanged > 1.9 * DELTA
    assert f"a Gaussian with μ = {first:.3f}" in PAGE
    assert f"a Gaussian of μ = {second:.3f} or with randomized response of ε₀ = {claim:.3f}" in PAGE
    assert f"the better choice of both has {exchanged:.2e}".replace("e-05", "e-5") in PAGE


def test_two_looks_at_one_sample_are_not_two_samples() -> None:
    rate, mu = 0.01, 5.0

    def looks(count: int) -> Step:
        release = {"mechanism": "gdp", "mu": mu, "count": count}
        return Step.from_fields([release], {"scheme": "poisson", "rate": rate}, "add-remove")

    one, two = PlanLoss([(looks(2), 1)]).delta(0.0), PlanLoss([(looks(1), 2)]).delta(0.0)

    assert one == pytest.approx(rate * (2.0 * norm.cdf(mu / math.sqrt(2.0)) - 1.0), rel=1e-3)
    assert two > 1.9 * one
    assert f"δ(0) is {one:.4f} for one sample with two looks, {two:.4f} for two samples" in PAGE
