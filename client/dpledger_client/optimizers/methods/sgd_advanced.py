"""SGD whose noise comes from advanced composition."""

from dataclasses import dataclass
from typing import ClassVar

from dpledger_client._checks import check_choice
from dpledger_client.optimizers.support.batches import sample_of
from dpledger_client.optimizers.support.calibrated_sgd import CalibratedSGD
from dpledger_client.optimizers.support.planning import Setting
from dpledger_client.optimizers.training import Training

__all__ = ["SGDAdvanced"]


@dataclass(frozen=True)
class SGDAdvanced(CalibratedSGD):
    """DP-SGD with as much noise as advanced composition wants for (ε, δ) in all.

    Bassily, Smith, Thakurta 2014.

    Parameters
    ----------
    steps, batch_size, clip, step_size, projection, average
        As in :class:`~dpledger_client.optimizers.methods.dp_sgd.DPSGD`.
    epsilon, delta
        What all steps together are to cost by this way of counting.
    composition
        ``advanced`` (Dwork, Rothblum, Vadhan 2010) or ``lemma-15.2``, its short form in the lectures.

    Notes
    -----
    The service is asked for the noise: each step is an (ε₀, δ₀) Gaussian, amplified by sampling to
    (ln(1 + q(e^ε₀ − 1)), qδ₀) by Lemma 15.4 of Wang's lectures, and ``steps`` of them compose. The
    steps are charged what they really cost, which is less: this is a baseline, to be compared at the same
    (ε, δ).
    """

    name: ClassVar[str] = "sgd-advanced"
    composition: str = "advanced"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("composition", self.composition, ("advanced", "lemma-15.2"))

    def noise_multiplier(self, setting: Training | Setting) -> float:
        """The service's answer; it looks at no data and records nothing."""
        sample = sample_of(self.batch_size, setting.records, setting.adjacency)
        query = {
            "solve_for": "noise_std",
            "target": {"epsilon": self.epsilon, "delta": self.delta},
            "steps": self.steps,
            "sample": sample.fields(),
            "adjacency": setting.adjacency,
            "releases": [{"mechanism": "gaussian", "sensitivity": 1.0}],
            "method": self.composition,
        }
        return float(setting.ledger.ask("calibrations", query)["value"])
