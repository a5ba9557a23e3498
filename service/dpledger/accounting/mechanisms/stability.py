"""Releases that first test privately whether the data are stable."""

from dataclasses import dataclass, replace
from fractions import Fraction
from typing import ClassVar

from dpledger.accounting.cost import Cost
from dpledger.accounting.exact import as_given
from dpledger.accounting.mechanisms.base import Mechanism, NoiseField
from dpledger.accounting.mechanisms.pure import pure_cost
from dpledger.accounting.sampling import Adjacency
from dpledger.accounting.validation import Floats, check_open_unit, check_positive

__all__ = ["ProposeTestRelease"]


@dataclass(frozen=True)
class ProposeTestRelease(Mechanism):
    """A value released exactly where a noisy test finds it stable, and nothing otherwise.

    A dataset is unstable if some neighbour has another value. Its distance is the number of records to
    change until an unstable dataset is reached: 0 for an unstable one. The value is released if
    distance + Laplace(1/ε) > log(1/δ)/ε, otherwise only the failure of the test.

    Statement: (ε, δ)-DP. Neighbours with one value differ in the outcome of the test alone, whose
    distance has sensitivity 1; neighbours with two values are both unstable and pass with probability δ/2.
    The curve, ρ, μ and pure ε are those of ε-DP outside an event of probability δ.
    Conditions: distance, stability and neighbours under the dataset's adjacency. (A distance counted to
    the nearest dataset with another value, which is never 0, needs a threshold larger by 1.)
    Source: Dwork and Lei 2009; Smith and Thakurta 2013; Vadhan 2017, Proposition 3.3; Kairouz, Oh,
    Viswanath 2015 for the curve.
    """

    kind: ClassVar[str] = "propose-test-release"
    expensive: ClassVar[bool] = False
    noise_field: ClassVar[NoiseField | None] = None
    epsilon: float
    delta: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", check_positive("epsilon", self.epsilon))
        object.__setattr__(self, "delta", check_open_unit("delta", self.delta))

    @property
    def exact_pure_epsilon(self) -> Fraction:
        """ε as given."""
        return as_given(self.epsilon)

    @property
    def private_claim(self) -> tuple[float, float]:
        """ε and δ."""
        return self.epsilon, self.delta

    def cost(self, orders: Floats, adjacency: Adjacency) -> Cost:
        return replace(pure_cost(self.epsilon, orders), delta=self.delta)
