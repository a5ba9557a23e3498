"""Choosing one of several candidates; only the choice is released."""

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike

from dpledger_client._checks import check_choice, check_flag, check_non_negative, check_positive
from dpledger_client.mechanisms.base import LOCAL, Mechanism
from dpledger_client.noise import Noise

__all__ = ["Exponential", "NoisyMax", "NoisyVotes"]

_NOISES = ("gumbel", "laplace", "exponential")
_VOTE_NOISES = ("laplace", "gaussian")
_SQRT2 = 2.0**0.5


@dataclass(frozen=True)
class NoisyMax(Mechanism):
    """The index of the largest score after noise; for the smallest, give the scores' negatives.

    ``sensitivity`` bounds the change of any one score. ``monotonic`` says that all scores move the same
    way when a record is added, as sums of losses that are not negative do; under add-remove only.
    """

    kind: ClassVar[str] = "noisy-max"
    noise: str
    sensitivity: float
    scale: float
    monotonic: bool = False

    def __post_init__(self) -> None:
        check_choice("noise", self.noise, _NOISES)
        self._set("sensitivity", check_non_negative("sensitivity", self.sensitivity))
        self._set("scale", check_positive("scale", self.scale))
        check_flag("monotonic", self.monotonic)

    def apply(self, value: ArrayLike, noise: Noise) -> int:
        if self.noise == "gumbel":
            return noise.gumbel_choice(value, self.scale)
        if self.noise == "exponential":
            return noise.exponential_choice(value, self.scale)
        return noise.laplace_choice(value, self.sensitivity, self.scale)


@dataclass(frozen=True)
class Exponential(Mechanism):
    """An index with probability ∝ e^(ε·score/(2Δ)), or e^(ε·score/Δ) if ``monotonic``."""

    kind: ClassVar[str] = "exponential"
    epsilon: float
    sensitivity: float = field(metadata=LOCAL)
    monotonic: bool = False

    def __post_init__(self) -> None:
        self._set("epsilon", check_positive("epsilon", self.epsilon))
        self._set("sensitivity", check_positive("sensitivity", self.sensitivity))
        check_flag("monotonic", self.monotonic)

    def apply(self, value: ArrayLike, noise: Noise) -> int:
        factor = 1.0 if self.monotonic else 2.0
        # Rounded up: a larger scale is a smaller ε.
        return noise.gumbel_choice(
            value, float(np.nextafter(factor * self.sensitivity / self.epsilon, np.inf))
        )


@dataclass(frozen=True)
class NoisyVotes(Mechanism):
    """The label with the most votes of teachers after noise on each count (PATE)."""

    kind: ClassVar[str] = "noisy-votes"
    noise: str
    scale: float | None = None
    noise_std: float | None = None

    def __post_init__(self) -> None:
        laplace = check_choice("noise", self.noise, _VOTE_NOISES) == "laplace"
        needed, other = ("scale", "noise_std") if laplace else ("noise_std", "scale")
        if getattr(self, other) is not None:
            raise ValueError(f"{other} must be absent for {self.noise} noise, which takes {needed}")
        self._set(needed, check_positive(needed, getattr(self, needed)))

    def apply(self, value: ArrayLike, noise: Noise) -> int:
        if self.scale is not None:
            return int(np.argmax(noise.laplace(value, 2.0, self.scale)))
        return int(
            np.argmax(noise.gaussian(value, _SQRT2, check_positive("noise_std", self.noise_std or 0.0)))
        )
