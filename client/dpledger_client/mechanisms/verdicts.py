"""Noisy tests: a search for the first query above a threshold, a test of stability, a coin for a bit."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice
from typing import Any, ClassVar

from numpy.typing import ArrayLike

from dpledger_client._arrays import Bools
from dpledger_client._checks import (
    check_choice,
    check_count,
    check_non_negative,
    check_open_unit,
    check_positive,
)
from dpledger_client.mechanisms.base import Mechanism
from dpledger_client.noise import Noise, Query, ThresholdNoise

__all__ = ["AboveThreshold", "ProposeTestRelease", "RandomizedResponse"]


@dataclass(frozen=True)
class AboveThreshold(Mechanism):
    """The index of the first of at most ``max_queries`` queries that is above 0, after noise on both.

    The value is an iterable of numbers or of functions that compute them, asked one after another and no
    further than needed; what is released is an index, or None if none was above. A threshold other
    than 0 is subtracted from the queries.
    """

    kind: ClassVar[str] = "above-threshold"
    noise: str
    sensitivity: float
    threshold_scale: float
    query_scale: float
    max_queries: int | None = None

    def __post_init__(self) -> None:
        check_choice("noise", self.noise, ("laplace", "gaussian"))
        self._set("sensitivity", check_non_negative("sensitivity", self.sensitivity))
        self._set("threshold_scale", check_non_negative("threshold_scale", self.threshold_scale))
        self._set("query_scale", check_positive("query_scale", self.query_scale))
        if self.max_queries is not None:
            check_count("max_queries", self.max_queries)

    @classmethod
    def from_epsilon(
        cls, epsilon: float, *, sensitivity: float, max_queries: int | None = None
    ) -> "AboveThreshold":
        """Laplace noise, ε/2 for the threshold and ε/4 for a query (Chen 2020, Algorithm 5.1)."""
        unit = check_positive("sensitivity", sensitivity) / check_positive("epsilon", epsilon)
        return cls("laplace", sensitivity, 2.0 * unit, 4.0 * unit, max_queries)

    @classmethod
    def from_rho(cls, rho: float, *, sensitivity: float, max_queries: int) -> "AboveThreshold":
        """Gaussian noise of variances 3/(2ρ) and 3/ρ (Chen 2020, dissertation, Algorithm 5.1).

        The service charges what such a search costs, which is more than ρ for long ones.
        """
        query = check_positive("sensitivity", sensitivity) * math.sqrt(3.0 / check_positive("rho", rho))
        return cls("gaussian", sensitivity, query / math.sqrt(2.0), query, max_queries)

    def apply(self, value: Iterable[Query], noise: Noise) -> int | None:
        plan = ThresholdNoise(self.noise, self.sensitivity, self.threshold_scale, self.query_scale)
        return noise.first_above(islice(value, self.max_queries), 0.0, plan)


@dataclass(frozen=True)
class ProposeTestRelease(Mechanism):
    """A value released as it is where a noisy test finds it stable, and None otherwise.

    The value is a pair: the number of records to change until an unstable dataset is reached (0 for
    an unstable one), and what to release, or a function that computes it.
    """

    kind: ClassVar[str] = "propose-test-release"
    epsilon: float
    delta: float

    def __post_init__(self) -> None:
        self._set("epsilon", check_positive("epsilon", self.epsilon))
        self._set("delta", check_open_unit("delta", self.delta))

    def apply(self, value: tuple[int, Any], noise: Noise) -> Any:
        distance, result = value
        if not noise.passes(check_count("distance", distance, least=0), self.epsilon, self.delta):
            return None
        return result() if callable(result) else result


@dataclass(frozen=True)
class RandomizedResponse(Mechanism):
    """Truth values, each turned into its opposite with probability 1/(1 + e^ε).

    One record determines at most one of them, and how many there are is public: under add-remove, one for
    each record would tell the number of records, which no coin hides.
    """

    kind: ClassVar[str] = "randomized-response"
    epsilon: float

    def __post_init__(self) -> None:
        self._set("epsilon", check_non_negative("epsilon", self.epsilon))

    def apply(self, value: ArrayLike, noise: Noise) -> Bools:
        return noise.flip(value, self.epsilon)
