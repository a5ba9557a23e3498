"""Schemas of queries; nothing of what is asked here is recorded."""

from typing import Annotated, Any, Literal

from pydantic import Field

from dpledger.accounting.sampling import Adjacency
from dpledger.api.schemas.requests import (
    MAX_ORDERS,
    Body,
    Count,
    FirstErrorOnly,
    Name,
    Number,
    Releases,
    SampleBody,
    Text,
    release_fields,
    sample_fields,
)
from dpledger.queries.requests import (
    AmplificationQuery,
    CalibrationQuery,
    CompositionQuery,
    ConversionQuery,
    ForecastQuery,
)

__all__ = [
    "MAX_PLAN_STEPS",
    "AmplificationBody",
    "CalibrationBody",
    "CompositionBody",
    "ConversionBody",
    "ForecastBody",
    "GuaranteeBody",
    "TargetBody",
    "TrialsBody",
]

MAX_PLAN_STEPS = 64
MAX_METHOD_CHARACTERS = 64

Orders = Annotated[list[Number], Field(min_length=1, max_length=MAX_ORDERS), FirstErrorOnly()]
Method = Annotated[Text, Field(max_length=MAX_METHOD_CHARACTERS)]
NotionName = Literal["pure", "approximate", "zcdp", "rdp", "gdp"]


class _Given(Body):
    """A body that is read by what was given in it."""

    def given(self) -> dict[str, Any]:
        """The fields that are not null."""
        return {name: value for name, value in self.model_dump().items() if value is not None}


class GuaranteeBody(_Given):
    """A guarantee: its notion and that notion's own numbers."""

    notion: NotionName
    epsilon: Number | None = None
    delta: Number | None = None
    rho: Number | None = None
    mu: Number | None = None
    orders: Orders | None = None
    epsilons: Orders | None = None


class NotionBody(_Given):
    """A notion that is asked for, with what it leaves free: one of ε and δ, or orders."""

    notion: NotionName
    epsilon: Number | None = None
    delta: Number | None = None
    orders: Orders | None = None


class ConversionBody(Body):
    """``from``: what holds, and what follows from it is asked; or ``goal``: what is to hold.

    With ``goal`` the answer is the most of the other notion that may be spent, rounded down.
    """

    holds: Annotated[GuaranteeBody | None, Field(alias="from")] = None
    goal: GuaranteeBody | None = None
    to: NotionBody
    method: Method = "tight"

    def to_query(self) -> ConversionQuery:
        """The query that it is."""
        holds, goal = (None if each is None else each.given() for each in (self.holds, self.goal))
        return ConversionQuery(self.to.given(), holds, goal, self.method)


class AmplificationBody(Body):
    """Releases on a sample, or what is (ε, δ)-DP on the sample."""

    sample: SampleBody
    adjacency: Adjacency
    releases: Releases | None = None
    orders: Orders | None = None
    epsilon: Number | None = None
    delta: Number | None = None
    method: Method = "tight"

    def to_query(self) -> AmplificationQuery:
        """The query that it is."""
        releases = None if self.releases is None else release_fields(self.releases)
        return AmplificationQuery(
            self.sample.fields(),
            self.adjacency,
            releases,
            self.orders,
            self.epsilon,
            self.delta,
            self.method,
        )


class PlannedStep(Body):
    """A step and how often it is taken, each time on a fresh sample."""

    releases: Releases
    sample: SampleBody | None = None
    times: Count = 1

    def fields(self) -> dict[str, Any]:
        """The wire form, as a query carries it."""
        sample = sample_fields(self.sample)
        return {"releases": release_fields(self.releases), "sample": sample, "times": self.times}


class TrialsBody(_Given):
    """How many times a plan is run to keep the best: the law of that number, fixed in advance."""

    law: Literal["truncated-negative-binomial", "poisson"]
    eta: Number | None = None
    gamma: Number | None = None
    mean: Number | None = None


class CompositionBody(Body):
    """Steps that are all fixed in advance. With ``orders`` the total's curve is shown there too."""

    plan: Annotated[list[PlannedStep], Field(min_length=1, max_length=MAX_PLAN_STEPS), FirstErrorOnly()]
    adjacency: Adjacency
    delta: Number
    method: Method = "tight"
    trials: TrialsBody | None = None
    orders: Orders | None = None

    def to_query(self) -> CompositionQuery:
        """The query that it is."""
        plan = [part.fields() for part in self.plan]
        trials = None if self.trials is None else self.trials.given()
        return CompositionQuery(plan, self.adjacency, self.delta, self.method, trials, self.orders)


class TargetBody(_Given):
    """What a plan is to meet: ``epsilon`` and ``delta``, or ``rho``, or ``mu``."""

    epsilon: Number | None = None
    delta: Number | None = None
    rho: Number | None = None
    mu: Number | None = None


class CalibrationBody(Body):
    """A repeated step with one number left open, which is solved for.

    ``noise_std``: releases that lack their ``noise_std`` or ``scale`` all get the number found;
    ``rate``: the sample lacks its rate; ``steps``: ``steps`` is absent.
    """

    solve_for: Literal["noise_std", "steps", "rate"]
    target: TargetBody
    releases: Releases
    sample: SampleBody | None = None
    adjacency: Adjacency
    steps: Count | None = None
    method: Method = "tight"

    def to_query(self) -> CalibrationQuery:
        """The query that it is."""
        return CalibrationQuery(
            release_fields(self.releases),
            self.adjacency,
            sample_fields(self.sample),
            solve_for=self.solve_for,
            target=self.target.given(),
            steps=self.steps,
            method=self.method,
        )


class ForecastBody(Body):
    """A step of which it is asked how many more fit."""

    releases: Releases
    sample: SampleBody | None = None
    partition: Name | None = None
    allocation: Name | None = None

    def to_query(self) -> ForecastQuery:
        """The query that it is."""
        return ForecastQuery(
            release_fields(self.releases), sample_fields(self.sample), self.partition, self.allocation
        )
