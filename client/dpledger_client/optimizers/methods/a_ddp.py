"""Adaptive distributed training: participants who leave when their budgets end."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from dpledger_client._arrays import Floats
from dpledger_client._checks import check_count, check_positive
from dpledger_client.ledger import Ledger
from dpledger_client.mechanisms import Gaussian
from dpledger_client.objectives.base import Objective, gradient_sensitivity
from dpledger_client.objectives.regularizers import Regularizer
from dpledger_client.optimizers.noise_levels import noise_for_multiplier
from dpledger_client.optimizers.support.batches import sample_of
from dpledger_client.optimizers.support.federated import FederatedMethod
from dpledger_client.optimizers.support.participants import Asked, Participant
from dpledger_client.optimizers.support.planning import Facts, Item, Setting, step_item
from dpledger_client.optimizers.support.schedules import StepSize
from dpledger_client.optimizers.training import AuthorizedBatch
from dpledger_client.releases import Release

__all__ = ["ADDP", "planned_noise"]


@dataclass(frozen=True)
class ADDP(FederatedMethod):
    """A-DDP (Cheng, Liu, Wang, Lu 2020, Algorithm 1).

    In each round every participant that its ledger still lets in draws ``batch_size`` of its own
    records, clips their gradients, adds noise of its own and sends the sum; the server takes the mean over
    those who took part and moves. Training goes on beyond any number of rounds planned for, until the last
    budget ends or ``steps`` are made.

    Parameters
    ----------
    steps
        How many rounds at most.
    clip
        To which norm each record's gradient is shortened.
    noise_multiplier
        The noise's standard deviation over the sensitivity of a participant's sum: a number, or a function
        of the :class:`~dpledger_client.optimizers.support.participants.Participant`, whose budget, size and
        rounds so far are public. :func:`planned_noise` computes it for a number of rounds.
    step_size
        A number, or a function of the round.
    batch_size
        How many records a participant draws: 1 in the paper. Exactly so many, without replacement, under
        replace-one; so many in expectation, by Poisson sampling, under add-remove.

    Notes
    -----
    A round is charged to each participant's own partition as a subsampled Gaussian: under replace-one at
    twice the clip, under add-remove at the clip. The filter of its budget decides, so noise may be adapted
    from round to round. All participants of a round are one request. Repaired: Algorithm 1 scales noise to
    the clip C where a replaced record moves a gradient by up to 2C; and its Theorem 1 is proven for a noise
    fixed in advance only, so that it is offered as a composition of plans (``sampling``) and decides nothing
    here. Who takes part depends on budgets and charges alone, and is public.
    """

    name: ClassVar[str] = "a-ddp"
    steps: int
    clip: float
    noise_multiplier: float | Callable[[Participant], float]
    step_size: StepSize
    batch_size: int = 1

    def __post_init__(self) -> None:
        check_count("steps", self.steps)
        check_positive("clip", self.clip)
        check_count("batch_size", self.batch_size)
        if not callable(self.noise_multiplier):
            check_positive("noise_multiplier", self.noise_multiplier)

    def items(self, setting: Setting) -> list[Item]:
        """Of one participant, whose dataset it is."""
        if callable(self.noise_multiplier):
            raise ValueError(
                "a-ddp has no plan with a noise_multiplier that is chosen on the way: give a number, which "
                "planned_noise computes"
            )
        release, sample = self._step(setting, self.noise_multiplier)
        return [step_item("gradient", release, sample, self.steps)]

    def request_for(self, participant: Participant) -> Asked:
        chosen = self.noise_multiplier
        multiplier = chosen(participant) if callable(chosen) else chosen
        return self._step(participant, check_positive("noise_multiplier", multiplier))

    def update(self, objective: Objective, authorized: AuthorizedBatch, w: Floats) -> Floats:
        """Its noisy mean gradient."""
        noisy: Floats = authorized.release(
            lambda batch: objective.clipped_gradient_sum(w, batch.X, batch.y, self.clip)
        )
        return noisy / authorized.sample.expected_size(authorized.records)

    def move(self, w: Floats, mean: Floats, eta: float, regularizer: Regularizer) -> Floats:
        return w - eta * (mean + regularizer.gradient(w))

    def _step(self, facts: Facts, multiplier: float) -> Asked:
        sensitivity = gradient_sensitivity(self.clip, facts.adjacency)
        release = Release(
            Gaussian(sensitivity, noise_for_multiplier(multiplier, sensitivity)), purpose="gradient"
        )
        size = min(self.batch_size, facts.records)
        return release, sample_of(size, facts.records, facts.adjacency)


def planned_noise(
    ledger: Ledger,
    epsilon: float,
    delta: float,
    rounds: int,
    *,
    records: int,
    batch_size: int = 1,
    adjacency: str = "replace-one",
    method: str = "rdp",
) -> float:
    """The noise multiplier with which ``rounds`` rounds of a participant use up (ε, δ).

    The ledger's calibration is asked for the very step that a round charges: a Gaussian on ``batch_size`` of
    ``records`` records, by the scheme that goes with the adjacency. Repaired: line 5 of Algorithm 1 leaves
    sampling out, and with its noise a budget planned for ten rounds lasted for 84,583. A budget of accounting
    ``rdp-order`` opened with this plan grants the rounds; one of ``rdp`` a few less, since it keeps a part of
    δ for other orders.
    """
    size = min(check_count("batch_size", batch_size), check_count("records", records))
    query: dict[str, Any] = {
        "solve_for": "noise_std",
        "target": {"epsilon": epsilon, "delta": delta},
        "steps": check_count("rounds", rounds),
        "adjacency": adjacency,
        "sample": sample_of(size, records, adjacency).fields(),
        "releases": [{"mechanism": "gaussian", "sensitivity": 1.0}],
        "method": method,
    }
    return float(ledger.ask("calibrations", query)["value"])
