"""Implications between the notions, each with its theorem."""

import math
from collections.abc import Callable

import numpy as np

from dpledger.accounting.conversion import gdp, pure, renyi, zcdp
from dpledger.accounting.conversion.guarantees import (
    Approximate,
    Gdp,
    Notion,
    Pure,
    Rdp,
    Target,
    Zcdp,
)
from dpledger.accounting.conversion.rule import Answer, Rule, Table
from dpledger.accounting.errors import InvalidInput, Unproven
from dpledger.accounting.gaussian_profile import gaussian_delta, gaussian_epsilon
from dpledger.accounting.mechanisms.pure import pure_mu
from dpledger.accounting.rounding import Direction, widen
from dpledger.accounting.validation import Floats

__all__ = ["IMPLICATIONS", "wanted_orders"]

_ANY = "either adjacency"
_OPEN = "0 < δ < 1"
_KOV = "Kairouz, Oh, Viswanath 2015, Theorem 3.3"
_BALLE = "Balle, Barthe, Gaboardi, Hsu, Sato 2020, Theorem 21; Canonne, Kamath, Steinke 2020, Proposition 12"
_CKS_NAMES = ("canonne-kamath-steinke",)


def _approximate(
    target: Target, epsilon_of: Callable[[float], float], delta_of: Callable[[float], float]
) -> Answer:
    """ε at the target's δ, or δ at its ε."""
    if (target.delta is None) == (target.epsilon is None):
        raise InvalidInput("to", "approximate with exactly one of delta and epsilon", target.fields())
    if target.delta is not None:
        return Approximate(epsilon_of(target.delta), target.delta), None
    assert target.epsilon is not None
    return Approximate(target.epsilon, _below_one(delta_of(target.epsilon))), None


def _below_one(delta: float) -> float:
    if delta >= 1.0:
        raise Unproven("the conversion gives no delta below 1 at this epsilon")
    return delta


def wanted_orders(target: Target) -> Floats:
    """The orders that a curve was asked at."""
    if target.orders is None:
        raise InvalidInput("orders", "given for rdp", None)
    return target.orders


def _pure_to_approximate(source: Pure, target: Target) -> Answer:
    epsilon = source.epsilon
    return _approximate(
        target,
        lambda delta: pure.pure_epsilon_at(epsilon, delta),
        lambda at: pure.pure_delta_at(epsilon, at),
    )


def _approximate_to_approximate(source: Approximate, target: Target) -> Answer:
    known = source.epsilon, source.delta
    return _approximate(
        target,
        lambda delta: pure.approximate_epsilon_at(*known, delta),
        lambda at: pure.approximate_delta_at(*known, at),
    )


def _zcdp_to_approximate(source: Zcdp, target: Target) -> Answer:
    rho = source.rho
    return _approximate(
        target, lambda delta: zcdp.zcdp_epsilon(rho, delta), lambda at: zcdp.zcdp_delta(rho, at)
    )


def _zcdp_to_approximate_closed(source: Zcdp, target: Target) -> Answer:
    rho = source.rho
    return _approximate(
        target, lambda delta: zcdp.bun_steinke_epsilon(rho, delta), lambda at: zcdp.bun_steinke_delta(rho, at)
    )


def _gdp_to_approximate(source: Gdp, target: Target) -> Answer:
    mu = source.mu
    return _approximate(target, lambda delta: gaussian_epsilon(mu, delta), lambda at: gaussian_delta(at, mu))


ByOrder = Callable[[Floats, Floats, float], Floats]


def _rdp_to_approximate(epsilons_of: ByOrder, deltas_of: ByOrder) -> Callable[[Rdp, Target], Answer]:
    """The minimum over the curve's orders, with the order that attains it."""

    def apply(source: Rdp, target: Target) -> Answer:
        best: list[float] = []

        def least(values: Floats) -> float:
            best.append(float(source.orders[int(values.argmin())]))
            return float(values.min())

        def epsilon_of(delta: float) -> float:
            rest = renyi.delta_beside(source.delta, delta)
            return least(epsilons_of(source.orders, source.epsilons, rest))

        def delta_of(epsilon: float) -> float:
            at = min(epsilon, renyi.LARGEST_EPSILON)
            found = least(deltas_of(source.orders, source.epsilons, at))
            return found if source.delta == 0.0 else math.nextafter(found + source.delta, math.inf)

        return _approximate(target, epsilon_of, delta_of)[0], best[0]

    return apply


def _approximate_to_rdp(source: Approximate, target: Target) -> Answer:
    orders = wanted_orders(target)
    return Rdp(orders, pure.pure_renyi(source.epsilon, orders), source.delta), None


def _pure_to_rdp_closed(source: Pure, target: Target) -> Answer:
    orders, rho = wanted_orders(target), pure.bun_steinke_pure_rho(source.epsilon)
    return Rdp(orders, np.minimum(_line(rho, orders), source.epsilon)), None


def _line(rho: float, orders: Floats) -> Floats:
    with np.errstate(over="ignore", invalid="ignore"):
        return widen(orders * rho, Direction.UP, ulps=1) if rho else np.zeros_like(orders)


def _rdp_to_rdp(source: Rdp, target: Target) -> Answer:
    orders = wanted_orders(target)
    return Rdp(orders, renyi.curve_at_orders(source.orders, source.epsilons, orders), source.delta), None


IMPLICATIONS: Table = {
    (Notion.PURE, Notion.PURE): (
        Rule("identity", "ε-DP is ε-DP", _ANY, "definition", lambda s, t: (s, None)),
    ),
    (Notion.PURE, Notion.APPROXIMATE): (
        Rule(
            "kairouz-oh-viswanath",
            "δ = (e^ε₀ − e^ε)/(1 + e^ε₀) below ε₀, 0 from ε₀ on",
            _ANY,
            _KOV,
            _pure_to_approximate,
        ),
    ),
    (Notion.PURE, Notion.ZCDP): (
        Rule(
            "randomized-response",
            "ρ = ε·tanh(ε/2)",
            _ANY,
            "Steinke 2024, Tight RDP & zCDP Bounds from Pure DP",
            lambda s, t: (Zcdp(pure.pure_rho(s.epsilon)), None),
        ),
        Rule(
            "bun-steinke",
            "ρ = ε²/2",
            _ANY,
            "Bun and Steinke 2016, Proposition 1.4",
            lambda s, t: (Zcdp(pure.bun_steinke_pure_rho(s.epsilon)), None),
        ),
    ),
    (Notion.PURE, Notion.RDP): (
        Rule(
            "randomized-response",
            "ε(α) = log(p^α (1−p)^(1−α) + (1−p)^α p^(1−α))/(α−1), p = e^ε/(1 + e^ε)",
            _ANY + "; every order",
            "Mironov 2017, Proposition 5; tight by " + _KOV,
            lambda s, t: (Rdp(wanted_orders(t), pure.pure_renyi(s.epsilon, wanted_orders(t))), None),
        ),
        Rule(
            "bun-steinke",
            "ε(α) = min(αε²/2, ε)",
            _ANY + "; every order",
            "Bun and Steinke 2016, Proposition 3.3",
            _pure_to_rdp_closed,
        ),
    ),
    (Notion.PURE, Notion.GDP): (
        Rule(
            "dong-roth-su",
            "μ = −2Φ⁻¹(1/(1 + e^ε))",
            _ANY,
            "Dong, Roth, Su 2022, Proposition 3",
            lambda s, t: (Gdp(pure_mu(s.epsilon) if s.epsilon else 0.0), None),
        ),
    ),
    (Notion.APPROXIMATE, Notion.APPROXIMATE): (
        Rule(
            "kairouz-oh-viswanath",
            "δ = δ₀ + (1 − δ₀)(e^ε₀ − e^ε)/(1 + e^ε₀) below ε₀, δ₀ from ε₀ on",
            _ANY + "; δ at least δ₀",
            _KOV,
            _approximate_to_approximate,
        ),
    ),
    (Notion.APPROXIMATE, Notion.RDP): (
        Rule(
            "delta-approximate",
            "outside an event of probability δ, the curve of ε-DP",
            _ANY + "; only δ-approximate RDP: the answer carries δ beside the curve",
            "Bun and Steinke 2016, Definition 8.1 and Lemma 8.2; " + _KOV,
            _approximate_to_rdp,
            named_only=True,
        ),
    ),
    (Notion.ZCDP, Notion.ZCDP): (
        Rule("identity", "ρ-zCDP is ρ-zCDP", _ANY, "definition", lambda s, t: (s, None)),
    ),
    (Notion.ZCDP, Notion.APPROXIMATE): (
        Rule(
            "canonne-kamath-steinke",
            "ε = min over α > 1 of αρ + log(1 − 1/α) − (log δ + log α)/(α − 1)",
            _ANY + "; " + _OPEN,
            "Canonne, Kamath, Steinke 2020, Corollary 13",
            _zcdp_to_approximate,
            also=("balle",),
        ),
        Rule(
            "bun-steinke",
            "ε = ρ + 2√(ρ·log(1/δ))",
            _ANY + "; " + _OPEN,
            "Bun and Steinke 2016, Proposition 1.3; Lee and Kifer 2018, Lemma 3.8",
            _zcdp_to_approximate_closed,
            also=("mironov",),
        ),
    ),
    (Notion.ZCDP, Notion.RDP): (
        Rule(
            "bun-steinke",
            "ε(α) = αρ",
            _ANY + "; every order",
            "Bun and Steinke 2016, Definition 1.1",
            lambda s, t: (Rdp(wanted_orders(t), _line(s.rho, wanted_orders(t))), None),
        ),
    ),
    (Notion.RDP, Notion.APPROXIMATE): (
        Rule(
            "balle",
            "ε = ε(α) + log(1 − 1/α) − (log δ + log α)/(α − 1), the least over the orders",
            _ANY + "; " + _OPEN + ", above the curve's additive δ",
            _BALLE,
            _rdp_to_approximate(renyi.renyi_epsilon, renyi.renyi_delta),
            also=_CKS_NAMES,
        ),
        Rule(
            "mironov",
            "ε = ε(α) + log(1/δ)/(α − 1), the least over the orders",
            _ANY + "; " + _OPEN + ", above the curve's additive δ",
            "Mironov 2017, Proposition 3; Abadi et al. 2016, Theorem 2",
            _rdp_to_approximate(renyi.mironov_epsilon, renyi.mironov_delta),
            also=("moments-accountant",),
        ),
    ),
    (Notion.RDP, Notion.RDP): (
        Rule(
            "chord",
            "(α − 1)ε(α) is convex and 0 at α = 1, so its chord is an upper bound",
            _ANY + "; no order above the curve's last",
            "van Erven and Harremoës 2014, Corollary 2",
            _rdp_to_rdp,
        ),
    ),
    (Notion.GDP, Notion.GDP): (
        Rule("identity", "μ-GDP is μ-GDP", _ANY, "definition", lambda s, t: (s, None)),
    ),
    (Notion.GDP, Notion.APPROXIMATE): (
        Rule(
            "balle-wang",
            "δ = Φ(μ/2 − ε/μ) − e^ε Φ(−μ/2 − ε/μ), exact",
            _ANY,
            "Balle and Wang 2018, Theorem 8; Dong, Roth, Su 2022, Corollary 1",
            _gdp_to_approximate,
            also=("analytic-gaussian",),
        ),
    ),
    (Notion.GDP, Notion.ZCDP): (
        Rule(
            "dong-roth-su",
            "ρ = μ²/2",
            _ANY,
            "Dong, Roth, Su 2022, Corollary B.6",
            lambda s, t: (Zcdp(gdp.gdp_rho(s.mu)), None),
        ),
    ),
    (Notion.GDP, Notion.RDP): (
        Rule(
            "dong-roth-su",
            "ε(α) = αμ²/2",
            _ANY + "; every order",
            "Dong, Roth, Su 2022, Corollary B.6",
            lambda s, t: (Rdp(wanted_orders(t), gdp.gdp_renyi(s.mu, wanted_orders(t))), None),
        ),
    ),
}
"""From, to: the theorems, tightest first. A pair that is not here has none."""
