"""The shapes of answers to queries, for the API's description; every answer names its theorem."""

from typing import Any

from dpledger.api.schemas.responses import CostBody, Remaining, Shape

__all__ = [
    "AmplificationAnswer",
    "CalibrationAnswer",
    "CompositionAnswer",
    "ConversionAnswer",
    "ForecastAnswer",
]


class Proven(Shape):
    """By which theorem, under which conditions, and where it is proven."""

    method: str
    theorem: str
    conditions: str
    source: str


class ConversionAnswer(Proven):
    """A guarantee that follows, or a budget; ``order`` where a Rényi order was chosen."""

    guarantee: dict[str, Any]
    order: float | None = None


class AmplificationAnswer(Proven):
    """The cost of the releases on their sample, or the (ε, δ) that was asked for."""

    cost: CostBody | None = None
    epsilon: float | None = None
    delta: float | None = None


class CompositionAnswer(Proven):
    """The total of a plan; ``cost`` where orders were given."""

    epsilon: float
    delta: float
    order: float | None = None
    cost: CostBody | None = None


class CalibrationAnswer(Proven):
    """The number found, and the guarantee that evaluating the plan with it proves."""

    parameter: str
    value: float | int
    guarantee: dict[str, Any]
    steps: int
    order: float | None = None


class ForecastAnswer(Proven):
    """How many more such steps fit, true at ``sequence``; at most a thousand million are counted.

    Where none does and the rule can say why, ``item`` is what is used up, ``order`` the Rényi order that
    binds, and ``advice`` says it in words.
    """

    dataset: str
    partition: str | None = None
    allocation: str | None = None
    sequence: int
    fits: int
    item: str | None = None
    order: float | None = None
    advice: list[str] | None = None
    remaining: Remaining
    cost: CostBody
