"""Noise that is added to numbers."""

import math
from dataclasses import dataclass, field
from typing import Any, ClassVar

from numpy.typing import ArrayLike

from dpledger_client._arrays import Floats, Integers
from dpledger_client._checks import check_count, check_non_negative, check_numbers, check_positive
from dpledger_client.mechanisms.base import LOCAL, Mechanism
from dpledger_client.noise import Noise

__all__ = ["DiscreteGaussian", "DiscreteLaplace", "Gaussian", "Laplace", "OutputMixture"]


@dataclass(frozen=True)
class Gaussian(Mechanism):
    """Gaussian noise of standard deviation ``noise_std`` on a value of L2 ``sensitivity``.

    Examples
    --------
    >>> Gaussian(sensitivity=3.0, noise_std=300.0).fields()
    {'mechanism': 'gaussian', 'sensitivity': 3.0, 'noise_std': 300.0}
    """

    kind: ClassVar[str] = "gaussian"
    sensitivity: float
    noise_std: float

    def __post_init__(self) -> None:
        self._set("sensitivity", check_non_negative("sensitivity", self.sensitivity))
        self._set("noise_std", check_positive("noise_std", self.noise_std))

    def apply(self, value: ArrayLike, noise: Noise) -> Floats:
        return noise.gaussian(value, self.sensitivity, self.noise_std)


@dataclass(frozen=True)
class Laplace(Mechanism):
    """Laplace noise of ``scale`` on a value of L1 ``sensitivity``."""

    kind: ClassVar[str] = "laplace"
    sensitivity: float
    scale: float

    def __post_init__(self) -> None:
        self._set("sensitivity", check_non_negative("sensitivity", self.sensitivity))
        self._set("scale", check_positive("scale", self.scale))

    def apply(self, value: ArrayLike, noise: Noise) -> Floats:
        return noise.laplace(value, self.sensitivity, self.scale)


@dataclass(frozen=True)
class DiscreteGaussian(Mechanism):
    """Discrete Gaussian noise on whole numbers of L2 ``sensitivity`` (Canonne, Kamath, Steinke 2020)."""

    kind: ClassVar[str] = "discrete-gaussian"
    sensitivity: float
    noise_std: float

    def __post_init__(self) -> None:
        self._set("sensitivity", check_non_negative("sensitivity", self.sensitivity))
        self._set("noise_std", check_positive("noise_std", self.noise_std))

    def apply(self, value: ArrayLike, noise: Noise) -> Integers:
        return noise.discrete_gaussian(value, self.noise_std)


@dataclass(frozen=True)
class DiscreteLaplace(Mechanism):
    """Discrete Laplace noise of a whole ``scale`` on whole numbers of L1 ``sensitivity``.

    The service knows it as a declared pure ε of sensitivity over scale, which is exactly what it is
    (Ghosh, Roughgarden, Sundararajan 2009).
    """

    kind: ClassVar[str] = "pure"
    sensitivity: float = field(metadata=LOCAL)
    scale: int = field(metadata=LOCAL)

    def __post_init__(self) -> None:
        self._set("sensitivity", check_non_negative("sensitivity", self.sensitivity))
        check_count("scale", self.scale)

    @property
    def epsilon(self) -> float:
        """Sensitivity over scale, rounded up."""
        return math.nextafter(self.sensitivity / self.scale, math.inf) if self.sensitivity else 0.0

    def fields(self) -> dict[str, Any]:
        return {"mechanism": self.kind, "epsilon": self.epsilon}

    def apply(self, value: ArrayLike, noise: Noise) -> Integers:
        return noise.discrete_laplace(value, self.scale)


@dataclass(frozen=True)
class OutputMixture(Mechanism):
    """Gaussian noise on a value that moves by one of ``sensitivities``, each with its probability.

    Which one is a matter of where a random order put the record (permuted mini-batches).
    """

    kind: ClassVar[str] = "output-mixture"
    noise_std: float
    sensitivities: tuple[float, ...]
    probabilities: tuple[float, ...]

    def __post_init__(self) -> None:
        self._set("noise_std", check_positive("noise_std", self.noise_std))
        self._set("sensitivities", check_numbers("sensitivities", self.sensitivities))
        self._set("probabilities", check_numbers("probabilities", self.probabilities))
        if len(self.sensitivities) != len(self.probabilities):
            raise ValueError("sensitivities and probabilities must be equally many")

    def apply(self, value: ArrayLike, noise: Noise) -> Floats:
        # The smallest move is what the rounding to a grid adds most to, in proportion.
        moves = [move for move in self.sensitivities if move > 0.0]
        return noise.gaussian(value, min(moves, default=0.0), self.noise_std)
