"""A noisy gradient of all records that is measured again where it was not good enough (GradAvg)."""

from dataclasses import dataclass

import numpy as np

from dpledger_client._arrays import Floats
from dpledger_client._checks import check_positive
from dpledger_client.mechanisms import Gaussian
from dpledger_client.objectives.base import gradient_sensitivity
from dpledger_client.optimizers.noise_levels import noise_for_rho
from dpledger_client.optimizers.training import Training
from dpledger_client.releases import Release

__all__ = ["NoisyGradient", "gradient_release", "noisy_gradient_sum"]


def gradient_release(clip: float, rho: float, adjacency: str) -> Release:
    """Gaussian noise on a sum of clipped gradients that costs ρ before any amplification: σ = Δ/√(2ρ)."""
    sensitivity = gradient_sensitivity(clip, adjacency)
    noise_std = noise_for_rho(sensitivity, check_positive("rho", rho))
    return Release(Gaussian(sensitivity, noise_std), purpose="gradient")


def noisy_gradient_sum(training: Training, w: Floats, clip: float, rho: float) -> Floats:
    """Ask for ρ, and measure the sum of all records' clipped gradients at ``w``."""
    release = gradient_release(clip, rho, training.adjacency)
    noisy: Floats = training.authorized(release).release(
        lambda batch: training.objective.clipped_gradient_sum(w, batch.X, batch.y, clip)
    )
    return noisy


@dataclass(frozen=True)
class NoisyGradient:
    """A noisy sum of clipped gradients at ``w``, and the ρ that all its measurements cost.

    Of measurements at one point, each with a variance of Δ²/(2ρᵢ), the mean with weights ρᵢ has the least
    variance: Δ²/(2Σρᵢ), as if it had been one measurement of their total (Lee, Kifer 2018, GradAvg).
    """

    w: Floats
    clip: float
    total: Floats
    rho: float

    @classmethod
    def measure(cls, training: Training, w: Floats, clip: float, rho: float) -> "NoisyGradient":
        """A first measurement, for ρ."""
        return cls(w, clip, noisy_gradient_sum(training, w, clip, rho), rho)

    def refine(self, training: Training, rho: float) -> "NoisyGradient":
        """One more measurement, for what is missing to a total of ``rho``; nothing is thrown away."""
        more = rho - self.rho
        again = noisy_gradient_sum(training, self.w, self.clip, more)
        return NoisyGradient(self.w, self.clip, (self.rho * self.total + more * again) / rho, rho)

    def mean(self, training: Training) -> Floats:
        """The gradient of the mean loss with the regulariser, which is public."""
        return self.total / training.records + training.objective.regularizer.gradient(self.w)

    def direction(self, training: Training) -> Floats:
        """The same with length 1, or 0."""
        mean = self.mean(training)
        norm = float(np.linalg.norm(mean))
        return mean / norm if norm > 0.0 else mean
