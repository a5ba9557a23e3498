"""Private tuning: the best of a random number of trials, as one mechanism."""

from dataclasses import dataclass
from functools import cached_property, reduce
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from dpledger.accounting.cost import Cost
from dpledger.accounting.errors import InvalidInput, within
from dpledger.accounting.mechanisms.base import Mechanism, NoiseField
from dpledger.accounting.orders import DEFAULT_ORDERS
from dpledger.accounting.sampling import Adjacency, Sample, Scheme
from dpledger.accounting.tuning import LAWS, trials_from_fields, tuned_cost
from dpledger.accounting.validation import Floats, check_count

# A trial is made of steps, and a step's releases may be any mechanism: these modules import this package.
if TYPE_CHECKING:
    from dpledger.accounting.steps import Release

__all__ = ["MAX_CANDIDATES", "MAX_EXPENSIVE", "MAX_TRIAL_STEPS", "TrialStep", "Tuned"]

MAX_CANDIDATES = 256
MAX_TRIAL_STEPS = 64
MAX_EXPENSIVE = 64
"""Releases that take long to price, in all steps that differ: as many as one step may have."""
_STEP_FIELDS = {"sample", "releases", "times"}


@dataclass(frozen=True)
class TrialStep:
    """A step of a trial: releases on one sample, taken up to ``times`` times on a fresh sample each."""

    releases: "tuple[Release, ...]"
    sample: Sample
    times: int

    @classmethod
    def from_fields(cls, fields: Any) -> "TrialStep":
        """Read ``{"sample": …, "releases": […], "times": …}``; refuses what the theorem does not cover."""
        from dpledger.accounting.steps import MAX_RELEASES, releases_from_fields

        if isinstance(fields, cls):
            return fields
        if not isinstance(fields, dict) or not fields.keys() <= _STEP_FIELDS:
            raise InvalidInput("step", "an object with sample, releases and times", fields)
        listed, sample = fields.get("releases"), fields.get("sample")
        objects = isinstance(listed, list) and all(isinstance(each, dict) for each in listed)
        if not objects or not 1 <= len(listed or ()) <= MAX_RELEASES:
            raise InvalidInput("releases", f"a list of 1 to {MAX_RELEASES} objects", _found(listed))
        if sample is not None and not isinstance(sample, dict):
            raise InvalidInput("sample", "an object with scheme and rate", sample)
        for number, each in enumerate(listed or []):
            _check_kind(f"releases[{number}].mechanism", each.get("mechanism"))
        releases = releases_from_fields(listed or [])
        drawn = Sample() if sample is None else Sample.from_fields(sample)
        return cls(releases, drawn, check_count("times", fields.get("times", 1)))

    def fields(self) -> dict[str, Any]:
        """The wire form."""
        releases = [release.fields() for release in self.releases]
        return {"sample": self.sample.fields(), "releases": releases, "times": self.times}


@dataclass(frozen=True)
class Tuned(Mechanism):
    """The best of a random number of trials, each of a candidate drawn at random: private tuning.

    A candidate is the list of the steps that its trial takes at most, the one that computes its noisy score
    among them. K is drawn from ``law``; K times a candidate is drawn from a fixed distribution and its trial
    run; released are the best trial's outputs, by a score that is one of them, and which candidate it was.

    Statement: the curve of one trial is at most the largest of the candidates' at each order, since
    e^((α−1)D_α) of a draw that is released with the candidate's number is the mean over candidates; that of
    the best of K is then that of :func:`~dpledger.accounting.tuning.tuned_cost`.
    Conditions: those of every step; K, the draws of candidates and the candidates do not depend on the data;
    nothing of another trial, nor K, is released; no additive δ.
    Source: Papernot and Steinke 2022, Theorems 2 and 6; van Erven and Harremoës 2014, Theorem 13.
    """

    kind: ClassVar[str] = "tuned"
    expensive: ClassVar[bool] = True
    noise_field: ClassVar[NoiseField | None] = None
    choices: ClassVar[dict[str, tuple[str, ...]]] = {"law": LAWS}
    law: str
    candidates: tuple[tuple[TrialStep, ...], ...]
    eta: float | None = None
    gamma: float | None = None
    mean: float | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "candidates", _candidates(self.candidates))
        trials = self._trials
        for name in ("eta", "gamma", "mean"):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, float(getattr(trials, name)))

    @cached_property
    def _trials(self) -> Any:
        return trials_from_fields({"law": self.law, "eta": self.eta, "gamma": self.gamma, "mean": self.mean})

    @property
    def expensive_parts(self) -> int:
        """Those of its trials' steps that differ; one at least, since there may be many others."""
        return max(1, _count_expensive(_different(self.candidates)))

    @property
    def needs_equal_sizes(self) -> bool:
        """Whether a step of a trial does."""
        return any(
            step.sample.scheme is Scheme.WITHOUT_REPLACEMENT
            or any(release.mechanism.needs_equal_sizes for release in step.releases)
            for steps in self.candidates
            for step in steps
        )

    def cost(self, orders: Floats, adjacency: Adjacency) -> Cost:
        # Theorem 2's λ̂ and Theorem 6's δ̂ are looked for among all orders, not those asked for alone.
        every = np.union1d(orders, DEFAULT_ORDERS)
        known: dict[TrialStep, Cost] = {}
        trials = [_trial_cost(steps, every, adjacency, known) for steps in self.candidates]
        found = tuned_cost(reduce(_larger, trials), self._trials)
        asked = np.searchsorted(every, orders)
        return Cost(orders, found.epsilons[asked].copy(), pure_epsilon=found.pure_epsilon)

    def fields(self) -> dict[str, Any]:
        wire = super().fields()
        return {**wire, "candidates": [[step.fields() for step in steps] for steps in self.candidates]}


def _check_kind(field: str, kind: Any) -> None:
    """Refuse a tuning inside a tuning before it is read, and costs that are the caller's own statement."""
    from dpledger.accounting.mechanisms import MECHANISMS

    known = MECHANISMS.get(kind) if isinstance(kind, str) else None
    if known is not None and (known.declared or known is Tuned):
        raise InvalidInput(field, "neither declared nor tuned inside a trial", kind)


def _found(given: Any) -> Any:
    """What an error says was found: of a list its length, since it may be long."""
    return f"{len(given)} of them" if isinstance(given, (list, tuple)) else given


def _candidates(given: Any) -> tuple[tuple[TrialStep, ...], ...]:
    """The candidates as values; refuses too many, or too many steps in all that differ."""
    if not isinstance(given, (list, tuple)) or not 1 <= len(given) <= MAX_CANDIDATES:
        raise InvalidInput("candidates", f"a list of 1 to {MAX_CANDIDATES} lists of steps", _found(given))
    found = tuple(_steps(f"candidates[{number}]", each) for number, each in enumerate(given))
    different = _different(found)
    if len(different) > MAX_TRIAL_STEPS:
        raise InvalidInput(
            "candidates", f"of at most {MAX_TRIAL_STEPS} different steps in all", len(different)
        )
    expensive = _count_expensive(different)
    if expensive > MAX_EXPENSIVE:
        requirement = f"of at most {MAX_EXPENSIVE} releases that take long to price, in all different steps"
        raise InvalidInput("candidates", requirement, expensive)
    return found


def _different(
    candidates: "tuple[tuple[TrialStep, ...], ...]",
) -> "set[tuple[tuple[Release, ...], Sample]]":
    """The steps that are priced: equal ones once."""
    return {(step.releases, step.sample) for steps in candidates for step in steps}


def _count_expensive(steps: "set[tuple[tuple[Release, ...], Sample]]") -> int:
    return sum(each.mechanism.expensive for releases, _ in steps for each in releases)


def _steps(where: str, given: Any) -> tuple[TrialStep, ...]:
    if not isinstance(given, (list, tuple)) or not 1 <= len(given) <= MAX_TRIAL_STEPS:
        raise InvalidInput(where, f"a list of 1 to {MAX_TRIAL_STEPS} steps", _found(given))
    found = []
    for number, fields in enumerate(given):
        with within(f"{where}[{number}]"):
            found.append(TrialStep.from_fields(fields))
    return tuple(found)


def _trial_cost(
    steps: tuple[TrialStep, ...], orders: Floats, adjacency: Adjacency, known: dict[TrialStep, Cost]
) -> Cost:
    """The sum over the steps of a trial, each priced once."""
    from dpledger.accounting.stepcost import cost_of
    from dpledger.accounting.steps import Step

    costs = []
    for step in steps:
        once = TrialStep(step.releases, step.sample, 1)
        if once not in known:
            known[once] = cost_of(Step(step.releases, step.sample, adjacency), orders)
        costs.append(known[once].repeated(step.times))
    return reduce(lambda total, cost: total + cost, costs)


def _larger(first: Cost, second: Cost) -> Cost:
    """What bounds either: the larger at each order, of δ and of pure ε where both have one."""
    pure = None
    if first.pure_epsilon is not None and second.pure_epsilon is not None:
        pure = max(first.pure_epsilon, second.pure_epsilon)
    curve = np.maximum(first.epsilons, second.epsilons)
    return Cost(first.orders, curve, max(first.delta, second.delta), pure_epsilon=pure)
