"""Laws of the number of trials of a private tuning, and their exact draws.

The number must be random: with a fixed number of trials the best of many may tell far more than one does
(Liu, Talwar 2019). It is drawn after the ledger's yes, like noise, and is as secret.
"""

import abc
import decimal
import math
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, ClassVar

from dpledger_client._bits import BitSource, integer
from dpledger_client._checks import check_open_unit, check_positive

__all__ = ["NegativeBinomialTrials", "PoissonTrials", "Trials"]

MOST_MEAN = 10_000.0
"""A tuning of more trials takes years, or has a base that is hardly private."""
_LEAST_SHAPE = 1e-6
_MORE_BITS = 64
_SPARE_DIGITS = 60
_LOST_DIGITS = 25
"""Of a distribution function, to rounding and cancellation: 10⁻⁶ of the shape, and 10⁷ terms added up."""


class Trials(abc.ABC):
    """The law of the number of trials."""

    law: ClassVar[str]

    @abc.abstractmethod
    def fields(self) -> dict[str, Any]:
        """The wire form."""

    @abc.abstractmethod
    def terms(self, context: decimal.Context) -> Iterator[tuple[int, Decimal]]:
        """Each number of trials, from the least, and its probability, rounded by the context."""

    def draw(self, bits: BitSource) -> int:
        """A number of trials, exactly by the law.

        A uniform number of which so many bits are drawn as it takes to know between which values of the
        distribution function it lies.
        """
        coin, known = integer(bits, _MORE_BITS), _MORE_BITS
        while True:
            found = self._place(coin, known)
            if found is not None:
                return found
            coin = coin << _MORE_BITS | integer(bits, _MORE_BITS)
            known += _MORE_BITS

    def _place(self, coin: int, known: int) -> int | None:
        """The number whose share of [0, 1) holds all that starts with these bits; None if there is none."""
        context = decimal.Context(
            prec=known // 3 + _SPARE_DIGITS, Emin=decimal.MIN_EMIN, Emax=decimal.MAX_EMAX
        )
        slack = Decimal(10) ** (_LOST_DIGITS - context.prec)
        low, high = (context.divide(Decimal(end), Decimal(1 << known)) for end in (coin, coin + 1))
        total = Decimal(0)
        for number, probability in self.terms(context):
            total = context.add(total, probability)
            if context.add(high, slack) <= total:
                return number
            if low < context.add(total, slack):
                return None
        raise AssertionError("terms do not end")


@dataclass(frozen=True)
class NegativeBinomialTrials(Trials):
    """K ≥ 1 with P(K = k) proportional to (1 − γ)^k·Γ(k + η)/k!: at least one trial.

    Parameters
    ----------
    eta
        Shape η > −1: 1 is geometric, 0 logarithmic. The smaller, the cheaper at the same mean, and the more
        often there is one trial only.
    gamma
        γ in (0, 1): smaller means more trials.

    Examples
    --------
    >>> NegativeBinomialTrials.with_mean(10.0, eta=1.0)
    NegativeBinomialTrials(eta=1.0, gamma=0.1)
    """

    law: ClassVar[str] = "truncated-negative-binomial"
    eta: float
    gamma: float

    def __post_init__(self) -> None:
        eta = check_positive("eta + 1", self.eta + 1.0) - 1.0
        if 0.0 < abs(eta) < _LEAST_SHAPE:
            raise ValueError(f"eta must be 0 or at least {_LEAST_SHAPE} away from it, found {self.eta!r}")
        object.__setattr__(self, "eta", float(self.eta))
        object.__setattr__(self, "gamma", check_open_unit("gamma", self.gamma))
        if not self.mean <= MOST_MEAN:
            raise ValueError(f"the mean number of trials must be at most {MOST_MEAN:g}, found {self.mean!r}")

    @classmethod
    def with_mean(cls, mean: float, eta: float = 0.0) -> "NegativeBinomialTrials":
        """Of a mean above 1."""
        if not 1.0 < check_positive("mean", mean) <= MOST_MEAN:
            raise ValueError(f"mean must be above 1 and at most {MOST_MEAN:g}, found {mean!r}")
        if eta == 1.0:
            return cls(eta, 1.0 / mean)
        low, high = -60.0, -1e-12  # of log γ
        while high - low > 1e-13 * abs(low):
            middle = 0.5 * (low + high)
            low, high = (middle, high) if _mean(eta, math.exp(middle)) > mean else (low, middle)
        return cls(eta, math.exp(high))

    @property
    def mean(self) -> float:
        """How many trials are run on average."""
        return _mean(self.eta, self.gamma)

    def fields(self) -> dict[str, Any]:
        return {"law": self.law, "eta": self.eta, "gamma": self.gamma}

    def terms(self, context: decimal.Context) -> Iterator[tuple[int, Decimal]]:
        eta, gamma = Decimal(self.eta), Decimal(self.gamma)
        rest = context.subtract(Decimal(1), gamma)
        if eta == 0:
            probability = context.divide(rest, context.minus(context.ln(gamma)))
        else:
            scale = context.subtract(context.power(gamma, context.minus(eta)), Decimal(1))
            probability = context.divide(context.multiply(eta, rest), scale)
        number = 1
        while True:
            yield number, probability
            growth = context.divide(context.multiply(rest, context.add(Decimal(number), eta)), number + 1)
            probability = context.multiply(probability, growth)
            number += 1


@dataclass(frozen=True)
class PoissonTrials(Trials):
    """K ~ Poisson(mean); with probability e^(−mean) nothing is run, and that is what comes out."""

    law: ClassVar[str] = "poisson"
    mean: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "mean", check_positive("mean", self.mean))
        if self.mean > MOST_MEAN:
            raise ValueError(f"mean must be at most {MOST_MEAN:g}, found {self.mean!r}")

    def fields(self) -> dict[str, Any]:
        return {"law": self.law, "mean": self.mean}

    def terms(self, context: decimal.Context) -> Iterator[tuple[int, Decimal]]:
        mean, number = Decimal(self.mean), 0
        probability = context.exp(context.minus(mean))
        while True:
            yield number, probability
            number += 1
            probability = context.divide(context.multiply(probability, mean), Decimal(number))


def _mean(eta: float, gamma: float) -> float:
    """η(1 − γ)/(γ(1 − γ^η)), for η = 0 its limit."""
    exponent = eta * math.log(gamma)
    ratio = 1.0 if exponent == 0.0 else exponent / math.expm1(exponent)
    return ratio * (1.0 - gamma) / gamma / -math.log(gamma)
