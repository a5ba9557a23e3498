"""Queries as frozen values, and their canonical text.

What a query describes — releases, samples, guarantees, targets — is kept in its wire form and read where
it is evaluated: a wrong number is then refused by the worker process, with the field that it stands in.
"""

import json
from dataclasses import dataclass
from typing import Any

from dpledger.accounting.mechanisms import MECHANISMS
from dpledger.accounting.sampling import Adjacency, Sample
from dpledger.accounting.steps import Step, releases_from_fields

__all__ = [
    "LEAST_PLANNED_RATE",
    "MOST_PLANNED",
    "AmplificationQuery",
    "CalibrationQuery",
    "ChargeQuery",
    "CompositionQuery",
    "ConversionQuery",
    "CostQuery",
    "Fields",
    "ForecastQuery",
    "Query",
    "StepQuery",
    "canonical",
    "from_canonical",
    "sample_from",
]

Fields = dict[str, Any]
"""An object in its wire form."""
MOST_PLANNED = 10_000
LEAST_PLANNED_RATE = 1e-3


class Query:
    """Base of the queries: frozen dataclasses of what JSON can carry."""


@dataclass(frozen=True)
class StepQuery(Query):
    """A query about one step. Without ``sample`` the releases look at the whole dataset."""

    releases: list[Fields]
    adjacency: Adjacency
    sample: Fields | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "adjacency", Adjacency(self.adjacency))

    @property
    def is_expensive(self) -> bool:
        """Whether pricing it may take seconds; what no mechanism is called is refused at once."""
        kinds = (MECHANISMS.get(release["mechanism"]) for release in self.releases)
        return any(kind is not None and kind.expensive for kind in kinds)

    def step(self) -> Step:
        """The step description; an error names the release that it is in."""
        sample = sample_from(self.sample)
        return Step(releases_from_fields(self.releases), sample, self.adjacency)


@dataclass(frozen=True)
class CostQuery(StepQuery):
    """What a step costs, at ``orders`` or at the default ones."""

    orders: list[float] | None = None


@dataclass(frozen=True)
class ConversionQuery(Query):
    """What ``holds`` implies in the notion ``to``, or what may be spent of that notion to reach ``goal``."""

    to: Fields
    holds: Fields | None = None
    goal: Fields | None = None
    method: str = "tight"


@dataclass(frozen=True)
class AmplificationQuery(Query):
    """What releases, or an (ε, δ), cost on a sample."""

    sample: Fields
    adjacency: Adjacency
    releases: list[Fields] | None = None
    orders: list[float] | None = None
    epsilon: float | None = None
    delta: float | None = None
    method: str = "tight"

    def __post_init__(self) -> None:
        object.__setattr__(self, "adjacency", Adjacency(self.adjacency))


@dataclass(frozen=True)
class CompositionQuery(Query):
    """The total of a plan: objects with ``releases``, ``sample`` and ``times``, all fixed in advance."""

    plan: list[Fields]
    adjacency: Adjacency
    delta: float
    method: str = "tight"
    trials: Fields | None = None
    orders: list[float] | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "adjacency", Adjacency(self.adjacency))


@dataclass(frozen=True, kw_only=True)
class CalibrationQuery(StepQuery):
    """The number ``solve_for`` of a repeated step that meets ``target``."""

    solve_for: str
    target: Fields
    steps: int | None = None
    method: str = "tight"


@dataclass(frozen=True)
class ChargeQuery(Query):
    """What a step costs a dataset with this budget, both as their canonical texts.

    The answer's ``plan_grants`` says how many such steps a plan budget would grant, ``MOST_PLANNED`` at most,
    or null; it is composed for Gaussian steps at rates from ``LEAST_PLANNED_RATE`` on, which takes
    milliseconds.
    """

    budget: str
    step: str


@dataclass(frozen=True)
class ForecastQuery(Query):
    """A step of which it is asked how many more fit; the dataset says under which adjacency."""

    releases: list[Fields]
    sample: Fields | None = None
    partition: str | None = None
    allocation: str | None = None


_KINDS: dict[str, type[Query]] = {
    each.__name__: each
    for each in (
        CostQuery,
        ConversionQuery,
        AmplificationQuery,
        CompositionQuery,
        CalibrationQuery,
        ChargeQuery,
    )
}


def sample_from(fields: Fields | None) -> Sample:
    """The sample; all of the dataset where nothing is said of it."""
    return Sample() if fields is None else Sample.from_fields(fields)


def canonical(query: Query) -> str:
    """One line that is the same for the same query."""
    content = {"kind": type(query).__name__, "body": vars(query)}
    return json.dumps(content, sort_keys=True, allow_nan=False, default=lambda choice: choice.value)


def from_canonical(line: str) -> Query:
    """The query that a canonical line stands for."""
    content = json.loads(line)
    return _KINDS[content["kind"]](**content["body"])
