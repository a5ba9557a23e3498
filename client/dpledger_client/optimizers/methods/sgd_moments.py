"""SGD whose noise comes from the closed form of the moments accountant."""

import math
from dataclasses import dataclass
from typing import ClassVar

from dpledger_client.errors import Unproven
from dpledger_client.ledger import Ledger
from dpledger_client.optimizers.support.batches import sample_of
from dpledger_client.optimizers.support.calibrated_sgd import CalibratedSGD
from dpledger_client.optimizers.support.planning import Setting
from dpledger_client.optimizers.training import Training
from dpledger_client.samples import FreshSample

__all__ = ["SGDMoments"]

_LEAST_MULTIPLIER = 4.0 * (1.0 + 1e-9)
"""The closed form is proven from 4 on."""
_GROWTH, _TRIALS = 1.1, 60


@dataclass(frozen=True)
class SGDMoments(CalibratedSGD):
    """DP-SGD with the noise of the moments accountant's closed form (Abadi et al. 2016, Theorem 1).

    Parameters
    ----------
    steps, batch_size, clip, step_size, projection, average
        As in :class:`~dpledger_client.optimizers.methods.dp_sgd.DPSGD`.
    epsilon, delta
        What all steps together are to cost by this way of counting.

    Notes
    -----
    The published σ = c·q√(T log(1/δ))/ε has no constant. Here it is the one with a proof: a step costs at
    most ε(α) = 2q²α/σ² (Mironov, Talwar, Zhang 2019, Theorem 11), so that T of them are within the ρ of zCDP
    for (ε, δ) if σ = q√(2T/ρ). The service gives ρ. Where it has no proof of the closed form at the order
    that is needed, which takes a small rate, the noise is raised by tenths until it has. The steps are
    charged what they really cost, which is less.
    """

    name: ClassVar[str] = "sgd-moments"

    def noise_multiplier(self, setting: Training | Setting) -> float:
        """By the service's answers; they look at no data and record nothing."""
        if setting.adjacency != "add-remove":
            raise ValueError(
                "the moments accountant is for Poisson samples and add-remove, found replace-one"
            )
        ledger = setting.ledger
        sample = sample_of(self.batch_size, setting.records, setting.adjacency)
        rate = self.batch_size / setting.records
        multiplier = max(_LEAST_MULTIPLIER, rate * math.sqrt(2.0 * self.steps / self._rho(ledger)))
        for _ in range(_TRIALS):
            if self._proven(ledger, sample, rate, multiplier):
                return multiplier
            multiplier *= _GROWTH
        raise ValueError(f"no noise up to {multiplier:.3g} has a proof at rate {rate:.3g}: take dp-sgd")

    def _rho(self, ledger: Ledger) -> float:
        """The most zCDP within (ε, δ) by the tail bound of the moments accountant."""
        goal = {"notion": "approximate", "epsilon": self.epsilon, "delta": self.delta}
        query = {"goal": goal, "to": {"notion": "zcdp"}, "method": "bun-steinke"}
        return float(ledger.ask("conversions", query)["guarantee"]["rho"])

    def _proven(self, ledger: Ledger, sample: FreshSample, rate: float, multiplier: float) -> bool:
        """Whether the service gives the closed form at the least order at which the total is within ε."""
        query = {
            "sample": sample.fields(),
            "adjacency": "add-remove",
            "releases": [{"mechanism": "gaussian", "sensitivity": 1.0, "noise_std": multiplier}],
            "orders": [self._least_order(2.0 * self.steps * (rate / multiplier) ** 2)],
            "method": "moments-accountant",
        }
        try:
            ledger.ask("amplifications", query)
        except Unproven:
            return False
        return True

    def _least_order(self, rho: float) -> float:
        """The least α with αρ + log(1/δ)/(α − 1) ≤ ε."""
        middle = (self.epsilon - rho) / (2.0 * rho)
        spread = math.sqrt(max(0.0, middle**2 + math.log(self.delta) / rho))
        return 1.0 + middle - spread
