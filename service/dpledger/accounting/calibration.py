"""Solve for noise, steps or rate so that a repeated step meets a target.

The search works on the logarithm of the unknown and of the spend, where a Gaussian's cost is nearly a
straight line, first on a coarse grid of orders and then at a real order chosen from it. Soundness
does not rest on the search: the answer is accepted only when a forward evaluation, rounded outward,
is within the target, and is moved to the private side until it is.
"""

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from dpledger.accounting.amplification.poisson_gaussian import poisson_gaussian_curve
from dpledger.accounting.conversion.guarantees import Approximate, Gdp, Guarantee, Zcdp
from dpledger.accounting.conversion.renyi import delta_beside, epsilon_at, renyi_budget
from dpledger.accounting.cost import Cost
from dpledger.accounting.errors import InvalidInput, Unproven, Unreachable
from dpledger.accounting.exact import as_given, float_above
from dpledger.accounting.exact_cost import exact_delta, exact_mu_squared, exact_rho
from dpledger.accounting.gaussian_profile import gaussian_epsilon, gaussian_mu_within
from dpledger.accounting.mechanisms import Gaussian
from dpledger.accounting.numerics import ratio_above
from dpledger.accounting.orders import DEFAULT_ORDERS
from dpledger.accounting.rounding import Direction, widen
from dpledger.accounting.sampling import Adjacency, Sample, Scheme
from dpledger.accounting.solving import Ascent, prove_nearby
from dpledger.accounting.stepcost import cost_of
from dpledger.accounting.steps import Release, Step
from dpledger.accounting.validation import (
    MAX_COUNT,
    Floats,
    check_count,
    check_open_unit,
    check_positive,
    check_rate,
)

__all__ = [
    "Calibration",
    "Goal",
    "calibrate_noise",
    "calibrate_noise_std",
    "calibrate_rate",
    "calibrate_steps",
]

Goal = Approximate | Zcdp | Gdp
"""What a calibration may aim at: (ε, δ) with δ > 0, ρ, or μ."""

CostAt = Callable[[float, Floats], Cost]
"""Cost of one step at the given orders as a function of the unknown."""

_exact_mu = functools.lru_cache(maxsize=64)(gaussian_mu_within)

_WHOLE_ORDERS: Floats = np.concatenate(
    (np.arange(2.0, 17.0), np.arange(18.0, 25.0, 2.0), np.arange(28.0, 49.0, 4.0), [56.0, 64.0])
)
_WHOLE_ORDERS.flags.writeable = False
_WHOLE_ENOUGH = (3.0, 60.0)

_TOLERANCE = 1e-7
_COARSE_TOLERANCE = 0.03
_NOISE_RANGE = 60.0
"""Noise is looked for within a factor e^60 of the start."""
_LEAST_LOG, _LARGEST_LOG = -708.0, 709.0
"""Noise beyond their exponentials is no normal float."""
_LEAST_RATE = 1e-12
_FIRST_RATE = math.log(10.0)
_LEAST_COST = 1e-300
_FINE_STEP = 0.02
_APART = 1e-3
"""Orders nearer than this share of a fine step say nothing of how headroom bends between them."""
_FEW, _MANY = 4, 16
_WIDE_STEPS: Floats = np.linspace(-0.5, 0.5, _MANY)
_WORTHWHILE = 2e-5
"""Headroom, in logarithms, for which another order is worth its evaluation."""
_MOST_REFINEMENTS = 6


@dataclass(frozen=True)
class Calibration:
    """The value found, and the guarantee that a forward evaluation proves for it."""

    parameter: str
    value: float
    guarantee: Guarantee
    steps: int
    order: float | None = None

    def fields(self) -> dict[str, Any]:
        """The wire form; ``order`` only where one was chosen."""
        wire = {
            "parameter": self.parameter,
            "value": self.value,
            "guarantee": self.guarantee.fields(),
            "steps": self.steps,
        }
        return wire if self.order is None else wire | {"order": self.order}


def calibrate_noise_std(
    epsilon: float,
    delta: float,
    *,
    steps: int,
    rate: float = 1.0,
    sensitivity: float = 1.0,
    adjacency: Adjacency = Adjacency.ADD_REMOVE,
    scheme: Scheme = Scheme.POISSON,
) -> Calibration:
    """The smallest Gaussian noise for ``steps`` repetitions on fresh samples within (ε, δ), rounded up.

    Parameters
    ----------
    epsilon, delta
        The target.
    steps
        How often the step is taken, each time on a fresh sample.
    rate
        Sampling rate; 1 is a full look, for which the answer is exact (analytic Gaussian).
    sensitivity
        L2 sensitivity under ``adjacency``.
    adjacency, scheme
        What the sample is; Poisson goes with add-remove, without-replacement with replace-one.

    Examples
    --------
    >>> round(calibrate_noise_std(1.0, 1e-5, steps=1000, rate=0.01).value, 3)
    1.513
    """
    sensitivity, rate = check_positive("sensitivity", sensitivity), check_rate("rate", rate)
    sample = Sample() if rate == 1.0 else Sample(scheme, rate)
    goal = Approximate(check_positive("epsilon", epsilon), check_open_unit("delta", delta))
    plain = sample.scheme is Scheme.POISSON and adjacency is Adjacency.ADD_REMOVE

    def poisson(noise_std: float, orders: Floats) -> Cost:
        return Cost(orders, poisson_gaussian_curve(rate, ratio_above("mu", sensitivity, noise_std), orders))

    def general(noise_std: float, orders: Floats) -> Cost:
        return cost_of(Step((Release(Gaussian(sensitivity, noise_std)),), sample, adjacency), orders)

    steps = check_count("steps", steps)
    guess = sensitivity * rate * math.sqrt(steps) / _exact_mu(goal.epsilon, goal.delta)
    if rate == 1.0:
        return _proven_noise(_Search(general, goal, steps, sign=1.0), guess, _WHOLE_ORDERS)
    return _least_noise(poisson if plain else general, goal, steps, math.hypot(guess, 0.5 * sensitivity))


def calibrate_noise(
    step_of: Callable[[float], Step], goal: Goal, *, steps: int, start: float = 1.0
) -> Calibration:
    """The smallest noise parameter for which ``steps`` repetitions of ``step_of(noise)`` meet the goal.

    Parameters
    ----------
    step_of
        The step as a function of its noise parameter (standard deviation or scale); more is more private.
    goal
        ``Approximate(epsilon, delta)``, ``Zcdp(rho)`` or ``Gdp(mu)``.
    steps
        Repetitions, each on a fresh sample.
    start
        Where to begin looking; the answer is the least within a factor e^60 of it.

    Raises
    ------
    Unreachable
        Where no noise is enough, because something else in the step costs more than the goal.
    """
    return _least_noise(lambda noise, orders: cost_of(step_of(noise), orders), goal, steps, start)


def _least_noise(cost_at: CostAt, goal: Goal, steps: int, start: float) -> Calibration:
    search = _Search(cost_at, _check(goal), check_count("steps", steps), sign=1.0)
    centre = math.log(check_positive("start", start))
    limits = max(centre - _NOISE_RANGE, _LEAST_LOG), min(centre + _NOISE_RANGE, _LARGEST_LOG)
    return _proven_noise(search, *search.solve(centre, limits))


def _proven_noise(search: "_Search", value: float, orders: Floats) -> Calibration:
    proven = search.prove(value, orders, Direction.UP)
    return search.report("noise_std", proven, orders)


def calibrate_rate(step_of: Callable[[float], Step], goal: Goal, *, steps: int) -> Calibration:
    """The largest sampling rate for which ``steps`` repetitions of ``step_of(rate)`` meet the goal.

    ``step_of`` gives the step as a function of the rate in (0, 1]; less is more private. Raises
    :class:`Unreachable` where even a vanishing rate is too much.
    """
    steps = check_count("steps", steps)
    search = _Search(lambda rate, orders: cost_of(step_of(rate), orders), _check(goal), steps, sign=-1.0)
    if search.holds(1.0, DEFAULT_ORDERS):
        return search.report("rate", 1.0, DEFAULT_ORDERS)
    value, orders = search.solve(_FIRST_RATE, (0.0, -math.log(_LEAST_RATE)))
    proven = search.prove(value, orders, Direction.DOWN)
    return search.report("rate", proven, orders)


def calibrate_steps(step: Step, goal: Goal) -> Calibration:
    """The largest number of repetitions of a step, each on a fresh sample, within the goal.

    Raises :class:`Unreachable` where not even one fits. A step that costs nothing is granted the
    largest count there is.
    """
    goal = _check(goal)
    cost = cost_of(step, DEFAULT_ORDERS)
    exact = _exact_steps(step, goal)
    if exact is not None:
        return exact
    granted = _most_steps(cost, goal)
    for _ in range(_MOST_REFINEMENTS):
        orders = _finer(cost, goal, max(granted, 1))
        if orders is None:
            break
        cost = cost_of(step, orders)
        granted = _most_steps(cost, goal)  # no fewer: the best order so far is among the finer ones
    if granted == 0:
        needed = _text(_guarantee(cost, goal)[0])
        raise Unreachable(f"one step alone needs {needed}; the target is {_text(goal)}")
    guarantee, order = _guarantee(cost.repeated(granted), goal)
    return Calibration("steps", float(granted), guarantee, granted, order)


def _exact_steps(step: Step, goal: Goal) -> Calibration | None:
    """The count on paper, where goal and step are rational as given; None elsewhere, or if none fits."""
    if isinstance(goal, Approximate):
        return None
    each = exact_rho(step) if isinstance(goal, Zcdp) else exact_mu_squared(step)
    if not each or exact_delta(step) != 0:
        return None
    limit = as_given(goal.rho) if isinstance(goal, Zcdp) else as_given(goal.mu) ** 2
    steps = min(MAX_COUNT, limit // each)
    if not steps:
        return None
    total = steps * each
    spent = Zcdp(float_above(total)) if isinstance(goal, Zcdp) else Gdp(_root_above(total, goal.mu))
    return Calibration("steps", float(steps), spent, steps)


def _root_above(square: Fraction, most: float) -> float:
    """The root, rounded up but not above ``most``, whose square is no less."""
    return min(most, widen(math.sqrt(float_above(square)), Direction.UP, ulps=2))


def _most_steps(cost: Cost, goal: Goal) -> int:
    """The largest count that meets the goal, by doubling and halving; 0 if none does."""
    low, high = 0, 1
    while high <= MAX_COUNT and _met(cost, goal, high):
        low, high = high, 2 * high
    if high > MAX_COUNT and _met(cost, goal, MAX_COUNT):
        return MAX_COUNT
    high = min(high, MAX_COUNT)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if _met(cost, goal, middle) else (low, middle)
    return low


@dataclass
class _Search:
    """One unknown: ``sign`` is +1 where a larger value is more private, −1 where a smaller one is."""

    cost_at: CostAt
    goal: Goal
    steps: int
    sign: float
    slope: float = 2.0
    _memory: tuple[float, Floats, Cost] | None = None

    def solve(self, start: float, limits: tuple[float, float]) -> tuple[float, Floats]:
        """A value that meets the goal up to the tolerance, and the orders that show it.

        ``start`` and ``limits`` are sign·log(value); the headroom rises with it.
        """
        orders, tolerance = _coarse_orders(self.goal), _COARSE_TOLERANCE
        self.slope = _first_slope(start) if self.sign > 0.0 else 2.0
        position = self._climb(orders, start, limits, tolerance)
        for _ in range(_MOST_REFINEMENTS):
            finer = _finer(self.cost(self._value(position), orders), self.goal, self.steps)
            if finer is None and tolerance == _TOLERANCE:
                break
            tolerance = _COARSE_TOLERANCE if finer is DEFAULT_ORDERS else _TOLERANCE
            orders = orders if finer is None else finer
            position = self._climb(orders, position, limits, tolerance)
        return self._value(position), orders

    def _value(self, position: float) -> float:
        return math.exp(self.sign * position)

    def cost(self, value: float, orders: Floats) -> Cost:
        """The step's cost; the last one is remembered."""
        if self._memory is None or self._memory[0] != value or self._memory[1] is not orders:
            self._memory = (value, orders, self.cost_at(value, orders))
        return self._memory[2]

    def headroom(self, position: float, orders: Floats) -> float:
        """Log of how many times over the goal would allow the plan; −∞ where a cost cannot be given."""
        try:
            return _headroom(self.cost(self._value(position), orders), self.goal, self.steps)
        except InvalidInput:
            return -math.inf

    def _climb(self, orders: Floats, start: float, limits: tuple[float, float], tolerance: float) -> float:
        """A position where the headroom is between zero and the tolerance, or as near as can be."""
        half = 0.5 * tolerance
        ascent = Ascent(*limits, self.slope)
        here, _ = ascent.find(lambda position: self.headroom(position, orders) - half, start, half)
        if ascent.high >= limits[1] and self.headroom(limits[1], orders) < 0.0:
            raise Unreachable(self._refusal(limits[1], orders))
        self.slope = ascent.slope
        return here

    def _refusal(self, position: float, orders: Floats) -> str:
        value = self._value(position)
        try:
            spent = _text(_guarantee(self.cost(value, orders).repeated(self.steps), self.goal)[0])
        except InvalidInput as reason:
            spent = f"what cannot be: {reason}"
        return f"even at {value:.3g} the plan needs {spent}; the target is {_text(self.goal)}"

    def holds(self, value: float, orders: Floats) -> bool:
        """Forward proof."""
        return _met(self.cost(value, orders), self.goal, self.steps)

    def prove(self, value: float, orders: Floats, direction: Direction) -> float:
        """The value, moved to the private side until it holds."""
        return prove_nearby(value, lambda at: self.holds(at, orders), direction, first_step=_TOLERANCE)

    def report(self, parameter: str, value: float, orders: Floats) -> Calibration:
        """The answer with the guarantee that its forward evaluation proves."""
        total = self.cost(value, orders).repeated(self.steps)
        guarantee, order = _guarantee(total, self.goal)
        return Calibration(parameter, value, guarantee, self.steps, order)


def _check(goal: Goal) -> Goal:
    """A goal that leaves something to spend."""
    if isinstance(goal, Approximate):
        check_open_unit("delta", goal.delta)
        check_positive("epsilon", goal.epsilon)
    elif isinstance(goal, Zcdp):
        check_positive("rho", goal.rho)
    else:
        check_positive("mu", goal.mu)
    return goal


def _coarse_orders(goal: Goal) -> Floats:
    """Whole orders up to 64, the fastest to evaluate, where a Gaussian's best order is well among them."""
    if isinstance(goal, Approximate):
        root = math.sqrt(-math.log(goal.delta))
        order = 1.0 + root * (math.sqrt(root * root + goal.epsilon) + root) / goal.epsilon
        if _WHOLE_ENOUGH[0] <= order <= _WHOLE_ENOUGH[1]:
            return _WHOLE_ORDERS
    return DEFAULT_ORDERS


def _first_slope(position: float) -> float:
    """How headroom rises with log σ at first: a subsampled Gaussian costs about e^(1/σ²) − 1."""
    square = min(max(math.exp(-2.0 * max(position, -300.0)), _LEAST_COST), 50.0)
    return 2.0 * square / -math.expm1(-square)


def _order_headroom(cost: Cost, goal: Approximate, steps: int) -> Floats:
    """log(B(α)/(T·ε(α))) at each order; −∞ where the order allows nothing."""
    rest = goal.delta - steps * cost.delta
    if rest <= 0.0:
        return np.full(cost.orders.shape, -math.inf)
    budgets = _log_budgets(goal.epsilon, rest, cost.orders.tobytes())
    logs: Floats = budgets - np.log(np.maximum(cost.epsilons, _LEAST_COST)) - math.log(steps)
    return logs


@functools.lru_cache(maxsize=64)
def _log_budgets(epsilon: float, delta: float, orders: bytes) -> Floats:
    budgets = renyi_budget(np.frombuffer(orders), epsilon, math.log(delta))
    logs: Floats = np.where(budgets > 0.0, np.log(np.maximum(budgets, _LEAST_COST)), -math.inf)
    return logs


def _headroom(cost: Cost, goal: Goal, steps: int) -> float:
    if isinstance(goal, Zcdp):
        return _log_ratio(goal.rho, _require(cost.rho, "zCDP")) - math.log(steps)
    if isinstance(goal, Gdp):
        return 2.0 * _log_ratio(goal.mu, _require(cost.mu, "Gaussian DP")) - math.log(steps)
    best = float(_order_headroom(cost, goal, steps).max())
    rest = goal.delta - steps * cost.delta
    if cost.mu is not None and rest > 0.0:
        best = max(best, 2.0 * _log_ratio(_exact_mu(goal.epsilon, rest), cost.mu) - math.log(steps))
    return best


def _log_ratio(limit: float, spent: float) -> float:
    return math.inf if spent == 0.0 else math.log(limit) - math.log(spent)


def _require(value: float | None, notion: str) -> float:
    if value is None:
        raise Unproven(f"the step has no {notion} parameter: aim at epsilon and delta instead")
    return value


def _finer(cost: Cost, goal: Goal, steps: int) -> Floats | None:
    """Better orders than the cost's, or None where they will do.

    Inside a set of orders: the best one, and three real ones about the vertex of the parabola through
    its neighbours, unless that promises nothing.
    """
    if not isinstance(goal, Approximate):
        return None
    room = _order_headroom(cost, goal, steps)
    index = int(room.argmax())
    near = slice(index - 1, index + 2)
    if not 0 < index < room.size - 1 or not np.isfinite(room[near]).all():
        return _wider(cost.orders, index)
    places = np.log(cost.orders[near] - 1.0)
    vertex, gain = _vertex(places, room[near])
    if room.size <= _FEW and gain < _WORTHWHILE:
        return None
    step = min(_FINE_STEP, 0.5 * float(places[2] - places[0]))
    return _with_known(vertex + step * np.array([-1.0, 0.0, 1.0]), float(cost.orders[index]))


def _wider(orders: Floats, best: int) -> Floats | None:
    """Better orders where no parabola goes through the best one and its neighbours.

    Of the whole orders: the default grid. Next to one that allows nothing: many between the two
    neighbours. At the end of a set: many to either side, unless it is the default grid's.
    """
    if orders.size == _WHOLE_ORDERS.size:
        return DEFAULT_ORDERS
    known = float(orders[best])
    if 0 < best < orders.size - 1:
        low, high = np.log(orders[[best - 1, best + 1]] - 1.0)
        return _with_known(np.linspace(low, high, _MANY), known)
    if orders.size == DEFAULT_ORDERS.size:
        return None
    return _with_known(math.log(known - 1.0) + _WIDE_STEPS, known)


def _with_known(places: Floats, known: float) -> Floats:
    """Orders 1 + e^place, and the known one, which replaces any that it all but equals."""
    apart = np.abs(places - math.log(known - 1.0)) > _APART * _FINE_STEP
    return np.sort(np.append(1.0 + np.exp(places[apart]), known))


def _vertex(x: Floats, y: Floats) -> tuple[float, float]:
    """Where the parabola through three points, the middle one highest, is largest, and by how much."""
    left, right = (y[1] - y[0]) / (x[1] - x[0]), (y[2] - y[1]) / (x[2] - x[1])
    bend = max(left - right, _LEAST_COST) / (x[2] - x[0])
    tilt = left - bend * (x[1] - x[0])
    return float(x[1] + 0.5 * tilt / bend), float(0.25 * tilt * tilt / bend)


def _met(cost: Cost, goal: Goal, steps: int) -> bool:
    """Whether the repeated step is within the goal, evaluated forward and rounded outward."""
    try:
        guarantee, _ = _guarantee(cost.repeated(steps), goal)
    except InvalidInput:
        return False
    return _size(guarantee) <= _size(goal)


def _size(goal: Goal) -> float:
    if isinstance(goal, Zcdp):
        return goal.rho
    return goal.mu if isinstance(goal, Gdp) else goal.epsilon


def _text(goal: Goal) -> str:
    return " and ".join(f"{name} {value:.6g}" for name, value in goal.fields().items() if name != "notion")


def _guarantee(total: Cost, goal: Goal) -> tuple[Goal, float | None]:
    """What the total proves in the goal's notion."""
    if isinstance(goal, Zcdp):
        return Zcdp(_require(total.rho, "zCDP")), None
    if isinstance(goal, Gdp):
        return Gdp(_require(total.mu, "Gaussian DP")), None
    epsilon, order = epsilon_at(total, goal.delta)
    if total.mu is not None:
        exact = gaussian_epsilon(total.mu, delta_beside(total.delta, goal.delta))
        if exact < epsilon:
            return Approximate(exact, goal.delta), None
    return Approximate(epsilon, goal.delta), order
