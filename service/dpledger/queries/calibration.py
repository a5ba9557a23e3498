"""Calibrations by the name of a theorem.

``tight`` is the better of the accounting package's calibrations: by privacy-loss distributions where every
release has a dominating pair, and by Rényi curves, ρ or μ. The name of a composition theorem solves that
theorem for the unknown; the name of a conversion first turns (ε, δ) into the most ρ or μ that it allows.
Either way the answer is only given after the plan, evaluated with it, was found within the target.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

from dpledger.accounting.calibration import (
    Calibration,
    Goal,
    calibrate_noise,
    calibrate_rate,
    calibrate_steps,
)
from dpledger.accounting.composition import Plan, compose
from dpledger.accounting.composition.pld import pld_epsilon
from dpledger.accounting.composition.registry import TIGHT
from dpledger.accounting.conversion import Approximate, Conversion, Gdp, Notion, Target, Zcdp, invert
from dpledger.accounting.errors import InvalidInput, Unproven, Unreachable
from dpledger.accounting.mechanisms import MECHANISMS
from dpledger.accounting.pld.calibration import PROOF_TOLERANCE, largest_count, largest_rate, least_noise
from dpledger.accounting.rounding import Direction
from dpledger.accounting.sampling import Sample, Scheme
from dpledger.accounting.solving import Ascent, prove_nearby
from dpledger.accounting.steps import Step, releases_from_fields
from dpledger.accounting.validation import MAX_COUNT, check_choice, check_count
from dpledger.queries.requests import CalibrationQuery, Fields, sample_from
from dpledger.queries.theorems import COMPOSITION, Theorem

__all__ = ["BY_CONVERSION", "calibrate_by_theorem"]

BY_CONVERSION: dict[str, Notion] = {
    "classic-gaussian": Notion.GDP,
    "balle-wang": Notion.GDP,
    "bun-steinke": Notion.ZCDP,
    "canonne-kamath-steinke": Notion.ZCDP,
}
"""Theorems that turn (ε, δ) into the most of a notion that may be spent."""

_ADDS = "plan fixed in advance, one adjacency throughout; every step has a "
_ADDING = {
    Notion.ZCDP: Theorem("zcdp", "ρ adds", _ADDS + "ρ", "Bun and Steinke 2016, Lemma 1.7"),
    Notion.GDP: Theorem("gdp", "μ adds in squares", _ADDS + "μ", "Dong, Roth, Su 2022, Corollary 2"),
}
_TOLERANCE = 1e-6
_RANGE = 30.0
"""Noise is looked for within a factor e^30 of the tight answer, a rate down to e^-30 of it."""
_LEAST = 1e-300


@dataclass(frozen=True)
class Unknown:
    """A repeated step as a function of the number that is solved for."""

    name: str
    step_of: Callable[[float], Step]
    steps: int

    def plan(self, value: float, delta: float) -> Plan:
        """The plan with the number filled in."""
        if self.name == "steps":
            return Plan(((self.step_of(1.0), int(value)),), delta)
        return Plan(((self.step_of(value), self.steps),), delta)

    def solve(self, goal: Goal) -> Calibration:
        """The tightest proven answer."""
        if self.name == "steps":
            return calibrate_steps(self.step_of(1.0), goal)
        if self.name == "rate":
            return calibrate_rate(self.step_of, goal, steps=self.steps)
        return calibrate_noise(self.step_of, goal, steps=self.steps)


def calibrate_by_theorem(query: CalibrationQuery) -> Fields:
    """The number that was left open, with the theorem that proves it."""
    goal, unknown = _goal(query.target), _unknown(query)
    method = check_choice("method", query.method, (TIGHT, *COMPOSITION, *BY_CONVERSION))
    if method == TIGHT:
        return _tightest(unknown, goal)
    if not isinstance(goal, Approximate):
        raise InvalidInput("method", "tight for a target in rho or mu", method)
    if method in BY_CONVERSION:
        return _through_budget(unknown, goal, method)
    if method == "pld":
        return _answer(_by_loss_distribution(unknown, goal), COMPOSITION[method])
    return _answer(_by_composition(unknown, goal, method), COMPOSITION[method])


def _tightest(unknown: Unknown, goal: Goal) -> Fields:
    """The better of privacy-loss distributions, for (ε, δ) where they cover the step, and curves, ρ or μ."""
    answers: list[Callable[[], Fields]] = [
        lambda: _answer(_by_loss_distribution(unknown, goal), COMPOSITION["pld"]),
        lambda: _by_cost(unknown, goal),
    ]
    found, refusal = [], None
    for answer in answers:
        try:
            found.append(answer())
        except (Unproven, InvalidInput, Unreachable) as reason:
            refusal = reason
    if refusal is not None and not found:
        raise refusal
    best = min if unknown.name == "noise_std" else max
    return best(found, key=lambda each: each["value"])


def _by_cost(unknown: Unknown, goal: Goal) -> Fields:
    found = unknown.solve(goal)
    return _answer(found, _proof_of(found, goal))


def _by_loss_distribution(unknown: Unknown, goal: Goal) -> Calibration:
    """Solve for the unknown by privacy-loss distributions, and evaluate the plan with the answer."""
    if not isinstance(goal, Approximate):
        raise Unproven("privacy-loss distributions are calibrated to epsilon and delta")
    _check_target(goal)
    value = _loss_distribution_value(unknown, goal)
    epsilon = pld_epsilon(unknown.plan(value, goal.delta), tolerance=PROOF_TOLERANCE)
    steps = int(value) if unknown.name == "steps" else unknown.steps
    return Calibration(unknown.name, value, Approximate(epsilon, goal.delta), steps)


def _loss_distribution_value(unknown: Unknown, goal: Approximate) -> float:
    if unknown.name == "steps":
        return float(largest_count(unknown.step_of(1.0), goal.epsilon, goal.delta))
    solve = largest_rate if unknown.name == "rate" else least_noise
    return solve(unknown.step_of, goal.epsilon, goal.delta, times=unknown.steps)


def _check_target(goal: Approximate) -> None:
    if goal.delta == 0.0 or goal.epsilon == 0.0:
        raise InvalidInput("target", "epsilon and delta above 0", goal.fields())


def _answer(found: Calibration, theorem: Theorem) -> Fields:
    fields = {**found.fields(), **theorem.fields()}
    return {**fields, "value": int(found.value)} if found.parameter == "steps" else fields


def _proof_of(found: Calibration, goal: Goal) -> Theorem:
    if goal.notion in _ADDING:
        return _ADDING[goal.notion]
    return COMPOSITION["gdp" if found.order is None else "rdp"]


def _goal(given: Fields) -> Goal:
    if set(given) == {"epsilon", "delta"}:
        return Approximate(**given)
    if set(given) == {"rho"}:
        return Zcdp(**given)
    if set(given) == {"mu"}:
        return Gdp(**given)
    raise InvalidInput("target", "epsilon and delta, or rho, or mu", sorted(given))


def _unknown(query: CalibrationQuery) -> Unknown:
    if query.solve_for == "steps":
        if query.steps is not None:
            raise InvalidInput("steps", "absent, because it is solved for", query.steps)
        step = query.step()
        return Unknown("steps", lambda _: step, 1)
    steps = check_count("steps", query.steps)
    return Unknown("rate", _with_rate(query), steps) if query.solve_for == "rate" else _noise(query, steps)


def _step(query: CalibrationQuery, releases: list[Fields]) -> Step:
    return Step(releases_from_fields(releases), sample_from(query.sample), query.adjacency)


def _with_rate(query: CalibrationQuery) -> Callable[[float], Step]:
    if query.sample is None or query.sample.get("rate") is not None:
        raise InvalidInput("sample.rate", "absent beside a scheme, because it is solved for", query.sample)
    scheme, releases = Scheme(query.sample["scheme"]), releases_from_fields(query.releases)
    return lambda rate: Step(releases, Sample(scheme, rate), query.adjacency)


def _noise(query: CalibrationQuery, steps: int) -> Unknown:
    """Releases without their noise get the number; what is wrong in them is said before the search."""
    lacking = [_noise_lacking(release) for release in query.releases]
    if not any(lacking):
        raise InvalidInput("releases", "one without its noise_std or scale, which is solved for", "none")

    def step_of(noise: float) -> Step:
        pairs = zip(query.releases, lacking, strict=True)
        return _step(
            query, [release if field is None else {**release, field: noise} for release, field in pairs]
        )

    step_of(1.0)
    return Unknown("noise_std", step_of, steps)


def _noise_lacking(release: Fields) -> str | None:
    """The field of the noise that a release leaves open; None where it leaves none."""
    mechanism = MECHANISMS.get(release["mechanism"])
    noise = None if mechanism is None else mechanism.noise_field
    return None if noise is None or release.get(noise.name) is not None else noise.name


def _through_budget(unknown: Unknown, goal: Approximate, method: str) -> Fields:
    """(ε, δ) as ρ or μ by a named theorem, then whatever stays within that."""
    budget: Conversion = invert(goal, Target(BY_CONVERSION[method]), method)
    spend = budget.guarantee
    assert isinstance(spend, (Zcdp, Gdp))
    found = unknown.solve(spend)
    adding = _ADDING[spend.notion]
    theorem = Theorem(
        method,
        f"{budget.theorem}; {adding.theorem}",
        f"{budget.conditions}; {adding.conditions}",
        f"{budget.source}; {adding.source}",
    )
    return {**_answer(found, theorem), "guarantee": goal.fields()}


def _by_composition(unknown: Unknown, goal: Approximate, method: str) -> Calibration:
    """Solve a composition theorem for the unknown."""
    _check_target(goal)
    search = _Search(unknown, goal, method)
    value = search.most_steps() if unknown.name == "steps" else search.value()
    total = compose(unknown.plan(value, goal.delta), method)
    steps = int(value) if unknown.name == "steps" else unknown.steps
    return Calibration(unknown.name, value, Approximate(total.epsilon, total.delta), steps, total.order)


@dataclass
class _Search:
    """One theorem's ε as a function of the unknown; remembers why a value was refused."""

    unknown: Unknown
    goal: Approximate
    method: str
    refusal: Exception | None = None

    def headroom(self, value: float) -> float:
        """log(ε wanted / ε found); −∞ where the theorem does not cover the value."""
        try:
            epsilon, delta = self._total(self.unknown.plan(value, self.goal.delta))
        except (Unproven, InvalidInput) as refusal:
            self.refusal = refusal
            return -math.inf
        if delta > self.goal.delta:
            return -math.inf
        return math.log(self.goal.epsilon) - math.log(max(epsilon, _LEAST))

    def _total(self, plan: Plan) -> tuple[float, float]:
        found = compose(plan, self.method)
        return found.epsilon, found.delta

    def holds(self, value: float) -> bool:
        """Forward proof."""
        return self.headroom(value) >= 0.0

    def value(self) -> float:
        """The noise or rate at which the theorem just meets the target, on the private side."""
        sign = 1.0 if self.unknown.name == "noise_std" else -1.0
        start = sign * math.log(self._start())
        low = start - _RANGE if sign > 0.0 else max(0.0, start - _RANGE)
        ascent = Ascent(low, start + _RANGE, slope=1.0)
        position, _ = ascent.find(
            lambda at: self.headroom(math.exp(sign * at)) - 0.5 * _TOLERANCE, start, 0.5 * _TOLERANCE
        )
        if not self.holds(math.exp(sign * ascent.high)):
            raise self._nothing()
        towards = Direction.UP if sign > 0.0 else Direction.DOWN
        return prove_nearby(math.exp(sign * position), self.holds, towards, first_step=_TOLERANCE)

    def _start(self) -> float:
        """The tight answer, near which the others are; 1 where there is none."""
        try:
            return self.unknown.solve(self.goal).value
        except (Unproven, InvalidInput, Unreachable):
            return 1.0

    def most_steps(self) -> float:
        """The largest count that meets the target, by doubling and halving."""
        low, high = 0, int(self._start())
        while high <= MAX_COUNT and self.holds(high):
            low, high = high, 2 * high
        high = min(high, MAX_COUNT + 1)
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self.holds(middle) else (low, middle)
        if low == 0:
            raise self._nothing()
        return float(low)

    def _nothing(self) -> Exception:
        target = f"epsilon {self.goal.epsilon:.6g} and delta {self.goal.delta:.6g}"
        return self.refusal or Unreachable(f"{self.method} meets {target} with no {self.unknown.name}")
