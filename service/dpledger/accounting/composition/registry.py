"""One door to the composition theorems for plans fixed in advance."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

from dpledger.accounting.composition.advanced import (
    basic_composition,
    dwork_rothblum_vadhan_epsilon,
    lecture_gaussian_epsilon,
    lecture_strong_epsilon,
)
from dpledger.accounting.composition.optimal import (
    MOST_OPTIMAL,
    kov_closed_epsilon,
    kov_optimal_epsilon,
)
from dpledger.accounting.composition.plan import (
    Composition,
    Plan,
    approximate_parts,
    combined_gaussian_mu,
    shared_parts,
)
from dpledger.accounting.composition.pld import pld_epsilon
from dpledger.accounting.composition.sampling import sampling_composition_epsilon
from dpledger.accounting.conversion.renyi import delta_beside, epsilon_at
from dpledger.accounting.conversion.zcdp import zcdp_epsilon
from dpledger.accounting.cost import Cost
from dpledger.accounting.errors import AccountingError, AdjacencyMismatch, Unproven
from dpledger.accounting.exact_cost import agreed, exact_delta, exact_pure_epsilon
from dpledger.accounting.gaussian_profile import gaussian_epsilon
from dpledger.accounting.rounding import Direction, widen
from dpledger.accounting.sampling import Adjacency, Scheme
from dpledger.accounting.solving import orders_around
from dpledger.accounting.steps import Step
from dpledger.accounting.validation import check_choice, check_open_unit

__all__ = ["METHODS", "TIGHT", "compose"]

TIGHT = "tight"

_FIXED = "plan fixed in advance, one adjacency throughout"
_PARTS = (
    _FIXED
    + "; steps without a pure ε share half of δ (all of it for basic); a sampled one is amplified as (ε, δ) "
    "by Lemma 15.4, or converted from its curve where that is less"
)
_ZOOMS, _ZOOM_POINTS = 2, 17

Total = tuple[float, float, float | None]
"""ε, δ, and the Rényi order where one was chosen."""


@dataclass(frozen=True)
class Method:
    """A composition theorem."""

    name: str
    theorem: str
    conditions: str
    source: str
    apply: Callable[[Plan], Total]
    also: tuple[str, ...] = ()
    tight_candidate: bool = True


def compose(plan: Plan, method: str = TIGHT) -> Composition:
    """The total of a plan at its δ.

    Parameters
    ----------
    plan
        Steps with repetitions, fixed in advance, and δ.
    method
        A name of :data:`METHODS`, or ``tight`` for the smallest ε among them (all but ``sampling``, which
        the curve always beats).

    Raises
    ------
    Unproven
        Where the theorem does not cover one of the steps.
    """
    if method == TIGHT:
        return min(_applicable(plan), key=lambda total: total.epsilon)
    by_name = {name: m for m in METHODS for name in (m.name, *m.also)}
    return _compose(by_name[check_choice("method", method, (TIGHT, *by_name))], plan)


def _compose(method: Method, plan: Plan) -> Composition:
    epsilon, delta, order = method.apply(plan)
    return Composition(epsilon, delta, method.name, method.theorem, method.conditions, method.source, order)


def _applicable(plan: Plan) -> list[Composition]:
    found: list[Composition] = []
    last: AccountingError | None = None
    for method in METHODS:
        if method.tight_candidate:
            try:
                found.append(_compose(method, plan))
            except AccountingError as refusal:
                last = refusal
    if last is not None and not found:
        raise last
    return found


def _basic(plan: Plan) -> Total:
    """Exact sums of what is known exactly.

    The δ of all is within the plan's: what is left of it beside the steps' own is shared out rounded down.
    """
    parts = [
        (agreed(_exact_part(step, cost), epsilon), agreed(exact_delta(step), cost.delta) + share, times)
        for (step, times), (cost, _), (epsilon, share) in zip(
            plan.parts, plan.costs, shared_parts(plan, plan.spare_delta), strict=True
        )
    ]
    return basic_composition(parts)[0], plan.delta, None


def _exact_part(step: Step, cost: Cost) -> Fraction | None:
    return None if cost.pure_epsilon is None else exact_pure_epsilon(step)


def _slack_and_parts(plan: Plan) -> tuple[float, list[tuple[float, float, int]]]:
    """All of the spare δ as slack where every step is pure, else half of it for the steps."""
    spare = check_open_unit("delta beside the steps' own", plan.spare_delta)
    if all(cost.pure_epsilon is not None for cost, _ in plan.costs):
        return spare, approximate_parts(plan, 0.0)
    return 0.5 * spare, approximate_parts(plan, 0.5 * spare)


def _by_largest(formula: Callable[[float, int, float], float]) -> Callable[[Plan], Total]:
    """A homogeneous form on a mixed plan: every step is also DP at the largest ε."""

    def apply(plan: Plan) -> Total:
        slack, parts = _slack_and_parts(plan)
        largest = max(epsilon for epsilon, _, _ in parts)
        return formula(largest, sum(times for _, _, times in parts), slack), plan.delta, None

    return apply


def _kov_closed(plan: Plan) -> Total:
    slack, parts = _slack_and_parts(plan)
    return kov_closed_epsilon([(epsilon, times) for epsilon, _, times in parts], slack), plan.delta, None


def _kov_optimal(plan: Plan) -> Total:
    """All steps at the largest ε; their own δ fail first, the rest of δ is the randomized responses'."""
    _, parts = _slack_and_parts(plan)
    count = sum(times for _, _, times in parts)
    if count > MOST_OPTIMAL:
        raise Unproven(f"the exact sum is offered for up to {MOST_OPTIMAL} releases, found {count}")
    failed = -math.expm1(math.fsum(times * math.log1p(-delta) for _, delta, times in parts))
    rest = widen((plan.delta - widen(failed, Direction.UP, ulps=8)) / (1.0 - failed), Direction.DOWN, ulps=8)
    rest = check_open_unit("delta beside the steps' own", rest if failed else plan.delta)
    return kov_optimal_epsilon(max(part[0] for part in parts), 0.0, count, rest), plan.delta, None


def _zcdp(plan: Plan) -> Total:
    total = plan.total
    if total.rho is None:
        raise Unproven("a step of the plan has no zCDP parameter")
    return zcdp_epsilon(total.rho, delta_beside(total.delta, plan.delta)), plan.delta, None


def _gdp(plan: Plan) -> Total:
    total = plan.total
    if total.mu is None:
        raise Unproven("a step of the plan has no Gaussian DP parameter")
    return gaussian_epsilon(total.mu, delta_beside(total.delta, plan.delta)), plan.delta, None


def _rdp(plan: Plan) -> Total:
    """The minimum over the default grid, then over finer orders around its best."""
    total = plan.total
    epsilon, order = epsilon_at(total, plan.delta)
    for _ in range(_ZOOMS):
        index = int(abs(total.orders - order).argmin())
        total = plan.total_at(orders_around(total.orders, index, points=_ZOOM_POINTS))
        finer, at = epsilon_at(total, plan.delta)
        if finer < epsilon:
            epsilon, order = finer, at
    return epsilon, plan.delta, order


def _lecture_gaussian(plan: Plan) -> Total:
    """μ from Gaussians on full looks only, as the lemma has it."""
    total = plan.total
    for step, _ in plan.parts:
        if step.sample.scheme is not Scheme.FULL or combined_gaussian_mu(step) is None:
            raise Unproven("Lemma 1.1 covers Gaussian noise on full looks")
    assert total.mu is not None
    return lecture_gaussian_epsilon(total.mu, plan.delta), plan.delta, None


def _sampling(plan: Plan) -> Total:
    if len(plan.parts) > 1:
        raise Unproven("Theorem 1 of A-DDP covers one step repeated with the same noise and rate")
    step, rounds = plan.parts[0]
    mu = combined_gaussian_mu(step)
    if mu is None or mu == 0.0:
        raise Unproven("Theorem 1 of A-DDP covers Gaussian noise")
    if plan.adjacency is not Adjacency.REPLACE_ONE:
        raise AdjacencyMismatch("Theorem 1 of A-DDP", "replace-one", plan.adjacency.value)
    rate = 1.0 if step.sample.rate is None else step.sample.rate
    epsilon = sampling_composition_epsilon(
        plan.delta, rate=rate, rounds=rounds, noise_std=1.0, replace_one_sensitivity=mu
    )
    return epsilon, plan.delta, None


METHODS: tuple[Method, ...] = (
    Method(
        "rdp",
        "curves add; ε = ε(α) + log(1 − 1/α) − (log δ + log α)/(α − 1), the least over α",
        _FIXED,
        "Mironov 2017, Proposition 1; Balle et al. 2020, Theorem 21",
        _rdp,
    ),
    Method(
        "zcdp",
        "ρ adds; ε = min over α > 1 of αρ + log(1 − 1/α) − (log δ + log α)/(α − 1)",
        _FIXED + "; every step has a ρ",
        "Bun and Steinke 2016, Lemma 1.7; Canonne, Kamath, Steinke 2020, Corollary 13",
        _zcdp,
    ),
    Method(
        "gdp",
        "μ adds in squares; δ = Φ(μ/2 − ε/μ) − e^ε Φ(−μ/2 − ε/μ)",
        _FIXED + "; every step has a μ",
        "Dong, Roth, Su 2022, Corollary 2; Balle and Wang 2018, Theorem 8",
        _gdp,
    ),
    Method(
        "basic",
        "ε and δ add",
        _PARTS,
        "Dwork, Kenthapadi, McSherry, Mironov, Naor 2006",
        _basic,
    ),
    Method(
        "advanced",
        "ε' = ε√(2k·ln(1/δ')) + kε(e^ε − 1) at δ' + Σδ",
        _PARTS + "; the largest ε stands for all",
        "Dwork, Rothblum, Vadhan 2010; Dwork and Roth 2014, Theorem 3.20",
        _by_largest(dwork_rothblum_vadhan_epsilon),
        also=("dwork-rothblum-vadhan",),
    ),
    Method(
        "lemma-15.2",
        "ε' = 2ε√(2k·ln(2/δ')) at δ' + Σδ",
        _PARTS + "; the largest ε stands for all; the result is below 1",
        "Wang, lecture 15, Lemma 15.2; Dwork and Roth 2014, Corollary 3.21",
        _by_largest(lecture_strong_epsilon),
        also=("wang",),
    ),
    Method(
        "lemma-1.1",
        "ε = √Σμ²·√(2·ln(1/δ))",
        _FIXED + "; Gaussians on full looks; ε ≤ 2·ln 2 and ε ≤ 4·ln(1/δ)",
        "Wu, lecture 13, Lemma 1.1",
        _lecture_gaussian,
        also=("wu",),
    ),
    Method(
        "kairouz-oh-viswanath",
        "1 − δ = (1 − δ₀)^k (1 − Σ_l C(k,l)(e^((k−l)ε₀) − e^(ε+lε₀))₊/(1 + e^ε₀)^k)",
        _PARTS + "; the largest ε stands for all: optimal where they are equal",
        "Kairouz, Oh, Viswanath 2015, Theorem 3.3",
        _kov_optimal,
    ),
    Method(
        "kairouz-oh-viswanath-closed",
        "ε = min(Σε, D + √(2V·log(e + √V/δ̃)), D + √(2V·log(1/δ̃))), D = Σε·tanh(ε/2), V = Σε²",
        _PARTS,
        "Kairouz, Oh, Viswanath 2015, Theorem 3.5",
        _kov_closed,
    ),
    Method(
        "sampling",
        "δ = Σ_i C(T,i) p^i (1−p)^(T−i)·δ_G(ε; H√i/σ)",
        _FIXED + "; replace-one, H the replace-one sensitivity (twice the clipping bound); one σ and rate",
        "Cheng, Liu, Wang, Lu 2020 (A-DDP), Theorem 1",
        _sampling,
        also=("a-ddp",),
        tight_candidate=False,
    ),
    Method(
        "pld",
        "the hockey-stick divergence of the product of the steps' dominating pairs, rounded outward",
        _FIXED + "; every step has a dominating pair (no declared zcdp or rdp)",
        "Zhu, Dong, Wang 2022; Doroshenko et al. 2022; Koskela, Jälkö, Honkela 2020",
        lambda plan: (pld_epsilon(plan), plan.delta, None),
    ),
)
"""Every theorem offered; ``also`` holds other names of the same one."""
