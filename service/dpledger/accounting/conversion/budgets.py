"""Inverse conversions: the most of a notion that may be spent so that a goal is implied.

Every answer is rounded down and was proven by evaluating the conversion forward.
"""

import math

from dpledger.accounting.conversion import gdp, pure, renyi, zcdp
from dpledger.accounting.conversion.guarantees import Approximate, Gdp, Notion, Pure, Rdp, Target, Zcdp
from dpledger.accounting.conversion.implications import wanted_orders
from dpledger.accounting.conversion.rule import Answer, Rule, Table
from dpledger.accounting.errors import Unproven
from dpledger.accounting.gaussian_profile import gaussian_mu_within
from dpledger.accounting.rounding import Direction, widen
from dpledger.accounting.validation import Floats, check_open_unit

__all__ = ["BUDGETS"]

_ANY = "either adjacency"
_FIXED = _ANY + "; 0 < δ < 1; spent as a sum that is kept within the answer"
_ONE_ORDER = _ANY + "; 0 < δ < 1; the curve is kept at one of the orders, fixed in advance, or at all of them"


def _curve_budget(orders: Floats, budget: Floats) -> Answer:
    """The orders that allow something at all."""
    useful = budget >= 0.0
    if not useful.any():
        raise Unproven("no given order allows any spending within this epsilon and delta")
    return Rdp(orders[useful], budget[useful]), None


def _log_delta(goal: Approximate) -> float:
    return math.log(check_open_unit("delta", goal.delta))


def _balle_budget(goal: Approximate, target: Target) -> Answer:
    orders = wanted_orders(target)
    return _curve_budget(orders, renyi.renyi_budget(orders, goal.epsilon, _log_delta(goal)))


def _mironov_budget(goal: Approximate, target: Target) -> Answer:
    orders = wanted_orders(target)
    return _curve_budget(orders, renyi.mironov_budget(orders, goal.epsilon, _log_delta(goal)))


def _least_slope(goal: Rdp) -> float:
    return max(0.0, float(widen(goal.epsilons / goal.orders, Direction.DOWN, ulps=2).min()))


BUDGETS: Table = {
    (Notion.APPROXIMATE, Notion.PURE): (
        Rule(
            "kairouz-oh-viswanath",
            "ε₀ = ε + log(1 + δe^−ε) − log(1 − δ)",
            _FIXED,
            "Kairouz, Oh, Viswanath 2015, Theorem 3.3",
            lambda g, t: (Pure(pure.pure_within_approximate(g.epsilon, g.delta)), None),
        ),
    ),
    (Notion.APPROXIMATE, Notion.ZCDP): (
        Rule(
            "canonne-kamath-steinke",
            "the largest ρ with min over α > 1 of αρ + log(1 − 1/α) − (log δ + log α)/(α − 1) ≤ ε",
            _FIXED,
            "Canonne, Kamath, Steinke 2020, Corollary 13",
            lambda g, t: (Zcdp(zcdp.zcdp_rho_within(g.epsilon, g.delta)), None),
            also=("balle",),
        ),
        Rule(
            "bun-steinke",
            "ρ = (√(log(1/δ) + ε) − √log(1/δ))²",
            _FIXED,
            "Bun and Steinke 2016, Proposition 1.3; Lee and Kifer 2018, Lemma 3.8",
            lambda g, t: (Zcdp(zcdp.bun_steinke_rho(g.epsilon, g.delta)), None),
            also=("mironov",),
        ),
    ),
    (Notion.APPROXIMATE, Notion.RDP): (
        Rule(
            "balle",
            "B(α) = ε − log(1 − 1/α) + (log δ + log α)/(α − 1)",
            _ONE_ORDER,
            "Balle, Barthe, Gaboardi, Hsu, Sato 2020, Theorem 21",
            _balle_budget,
            also=("canonne-kamath-steinke",),
        ),
        Rule(
            "mironov",
            "B(α) = ε − log(1/δ)/(α − 1)",
            _ONE_ORDER,
            "Mironov 2017, Proposition 3",
            _mironov_budget,
            also=("moments-accountant",),
        ),
    ),
    (Notion.APPROXIMATE, Notion.GDP): (
        Rule(
            "balle-wang",
            "the largest μ with Φ(μ/2 − ε/μ) − e^ε Φ(−μ/2 − ε/μ) ≤ δ",
            _FIXED,
            "Balle and Wang 2018, Theorem 8",
            lambda g, t: (Gdp(gaussian_mu_within(g.epsilon, g.delta)), None),
            also=("analytic-gaussian",),
        ),
        Rule(
            "classic-gaussian",
            "μ = ε/√(2·ln(1.25/δ))",
            _FIXED + "; 0 < ε < 1",
            "Dwork and Roth 2014, Theorem A.1; Wang, Lemma 15.3",
            lambda g, t: (Gdp(gdp.classic_gaussian_mu(g.epsilon, g.delta)), None),
        ),
    ),
    (Notion.ZCDP, Notion.PURE): (
        Rule(
            "randomized-response",
            "the largest ε with ε·tanh(ε/2) ≤ ρ",
            _ANY,
            "Steinke 2024, Tight RDP & zCDP Bounds from Pure DP",
            lambda g, t: (Pure(pure.pure_within_zcdp(g.rho)), None),
        ),
        Rule(
            "bun-steinke",
            "ε = √(2ρ)",
            _ANY,
            "Bun and Steinke 2016, Proposition 1.4",
            lambda g, t: (Pure(gdp.mu_within_zcdp(g.rho)), None),
        ),
    ),
    (Notion.ZCDP, Notion.GDP): (
        Rule(
            "dong-roth-su",
            "μ = √(2ρ)",
            _ANY,
            "Dong, Roth, Su 2022, Corollary B.6",
            lambda g, t: (Gdp(gdp.mu_within_zcdp(g.rho)), None),
        ),
    ),
    (Notion.RDP, Notion.PURE): (
        Rule(
            "randomized-response",
            "the largest ε whose randomized response stays within the curve",
            _ANY,
            "Mironov 2017, Proposition 5; Kairouz, Oh, Viswanath 2015",
            lambda g, t: (Pure(pure.pure_within_curve(g.orders, g.epsilons)), None),
        ),
    ),
    (Notion.RDP, Notion.ZCDP): (
        Rule(
            "bun-steinke",
            "ρ = min over α of ε(α)/α",
            _ANY,
            "Bun and Steinke 2016, Definition 1.1",
            lambda g, t: (Zcdp(_least_slope(g)), None),
        ),
    ),
    (Notion.RDP, Notion.GDP): (
        Rule(
            "dong-roth-su",
            "μ = √(2·min over α of ε(α)/α)",
            _ANY,
            "Dong, Roth, Su 2022, Corollary B.6",
            lambda g, t: (Gdp(gdp.mu_within_zcdp(_least_slope(g))), None),
        ),
    ),
    (Notion.GDP, Notion.PURE): (
        Rule(
            "dong-roth-su",
            "ε = log(Φ(μ/2)/Φ(−μ/2))",
            _ANY,
            "Dong, Roth, Su 2022, Proposition 3",
            lambda g, t: (Pure(pure.pure_within_gdp(g.mu)), None),
        ),
    ),
}
"""Goal, budget's notion: the theorems, most generous first."""
