"""Samples: the part of the dataset that a step looks at, described for the service and drawn here."""

import abc
import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from dpledger_client._arrays import Integers
from dpledger_client._checks import check_count, check_rate
from dpledger_client.noise import current_noise
from dpledger_client.sampling import expected_size, poisson, without_replacement

__all__ = ["Full", "Poisson", "Sample", "SeenSample", "WithoutReplacement"]


class Sample(abc.ABC):
    """What a step looks at."""

    @abc.abstractmethod
    def fields(self) -> dict[str, str | float]:
        """The wire form."""


class FreshSample(Sample):
    """A sample that is drawn for one step."""

    @abc.abstractmethod
    def draw(self, records: int) -> Integers:
        """The indices of one fresh sample of ``records`` records, in rising order; secret like noise."""

    @abc.abstractmethod
    def expected_size(self, records: int) -> float:
        """The public number by which a noisy sum over such a sample is divided."""


@dataclass(frozen=True)
class Full(FreshSample):
    """The whole dataset."""

    def fields(self) -> dict[str, str | float]:
        return {"scheme": "full"}

    def draw(self, records: int) -> Integers:
        return np.arange(records)

    def expected_size(self, records: int) -> float:
        return float(records)


@dataclass(frozen=True)
class Poisson(FreshSample):
    """Each record by a coin of its own that comes up with probability ``rate``; goes with add-remove.

    Examples
    --------
    >>> Poisson(0.1).fields()
    {'scheme': 'poisson', 'rate': 0.1}
    >>> Poisson(0.1).expected_size(1000)
    100.0
    """

    rate: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "rate", check_rate("rate", self.rate))

    def fields(self) -> dict[str, str | float]:
        return {"scheme": "poisson", "rate": self.rate}

    def draw(self, records: int) -> Integers:
        return poisson(records, self.rate, current_noise().bits)

    def expected_size(self, records: int) -> float:
        return expected_size(records, self.rate)


@dataclass(frozen=True)
class WithoutReplacement(FreshSample):
    """A sample of fixed size; ``rate`` is its size over the dataset's, which is public. For replace-one."""

    rate: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "rate", check_rate("rate", self.rate))

    @classmethod
    def of_size(cls, size: int, records: int) -> "WithoutReplacement":
        """The sample of ``size`` out of ``records``; its rate is rounded up."""
        rate = check_count("size", size, least=0) / check_count("records", records)
        return cls(rate if Fraction(rate) * records >= size else math.nextafter(rate, 1.0))

    def fields(self) -> dict[str, str | float]:
        return {"scheme": "without-replacement", "rate": self.rate}

    def size(self, records: int) -> int:
        """The largest number of ``records`` whose share is not above the rate."""
        return int(Fraction(self.rate) * records)

    def draw(self, records: int) -> Integers:
        return without_replacement(records, self.size(records), current_noise().bits)

    def expected_size(self, records: int) -> float:
        return float(self.size(records))


@dataclass(frozen=True)
class SeenSample(Sample):
    """A sample that was drawn for an earlier authorization and is looked at again, at the raw cost."""

    id: str

    def fields(self) -> dict[str, str | float]:
        return {"id": self.id}
