"""NSGD: mini-batch SGD without noise, and noise on its result."""

from dataclasses import dataclass, field
from typing import Any, ClassVar

from dpledger_client._checks import check_choice, check_count, check_flag, check_positive
from dpledger_client.optimizers.support.base import Method
from dpledger_client.optimizers.support.permuted_sgd import (
    Passes,
    check_adjacency,
    check_replace_one,
    plan_permutation,
    train_on_permutation,
)
from dpledger_client.optimizers.support.planning import Facts, Item, Setting
from dpledger_client.optimizers.support.projections import NoProjection, Projection
from dpledger_client.optimizers.training import Training

__all__ = ["NSGD"]


@dataclass(frozen=True)
class NSGD(Method):
    """Output perturbation of SGD over permuted mini-batches (Chen 2020, dissertation, Algorithm 3.1).

    The records are permuted once and cut into mini-batches, which are passed over in cyclic order ``epochs``
    times. The one release is the last iterate with Gaussian noise.

    Parameters
    ----------
    epochs, batches
        T and m.
    step_size
        η₀: epoch s takes η₀/s, or η₀ throughout where ``schedule`` is ``fixed``.
    noise_multiplier
        The noise's standard deviation over the largest sensitivity.
    row_norm
        To what each row is shortened. With the labels cut to [−1, 1], or to the objective's
        ``target_bound``, it bounds every record's gradient and curvature, whatever the data.
    projection
        After each update onto this set; least squares needs a bounded one.
    permute
        False: mini-batches in the order of the data.

    Notes
    -----
    Charged once: the mixture of Theorem 3.2 over the mini-batch in which a record lies, with sensitivities
    computed by :func:`~dpledger_client.optimizers.support.permuted_sgd.sensitivities` from the very step
    sizes that are trained; without a permutation a Gaussian release with the largest of them.
    Conditions: replace-one; a linear model with a smooth loss and regulariser. Strong convexity, by an L2
    regulariser, makes updates contract: without it sensitivities only add up.
    """

    name: ClassVar[str] = "nsgd"
    epochs: int
    batches: int
    step_size: float
    noise_multiplier: float
    row_norm: float = 1.0
    schedule: str = "shrinking"
    projection: Projection = field(default_factory=NoProjection)
    permute: bool = True

    def __post_init__(self) -> None:
        check_count("epochs", self.epochs)
        check_count("batches", self.batches)
        for name in ("step_size", "noise_multiplier", "row_norm"):
            check_positive(name, getattr(self, name))
        check_choice("schedule", self.schedule, ("shrinking", "fixed"))
        check_flag("permute", self.permute)

    @property
    def planned_steps(self) -> int:
        """One: the result."""
        return 1

    def step_sizes(self) -> tuple[float, ...]:
        """One per epoch."""
        shrinking = self.schedule == "shrinking"
        return tuple(self.step_size / (s if shrinking else 1) for s in range(1, self.epochs + 1))

    def items(self, setting: Setting) -> list[Item]:
        check_adjacency(setting.adjacency, self.name)
        return plan_permutation(setting, self._passes(setting), **self._noise)

    def train(self, training: Training) -> None:
        check_replace_one(training, self.name)
        train_on_permutation(training, self._passes(training), **self._noise)

    def _passes(self, facts: Facts) -> Passes:
        return Passes.over(facts.records, self.batches, self.step_sizes(), projection=self.projection)

    @property
    def _noise(self) -> dict[str, Any]:
        return {
            "row_norm": self.row_norm,
            "noise_multiplier": self.noise_multiplier,
            "permute": self.permute,
        }
