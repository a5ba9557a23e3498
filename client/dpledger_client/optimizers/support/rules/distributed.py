"""The rule of training with several participants, each with a budget of its own."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from dpledger_client._checks import check_count, check_positive
from dpledger_client.objectives.base import gradient_sensitivity
from dpledger_client.optimizers.methods.a_ddp import ADDP
from dpledger_client.optimizers.support.batches import sample_of
from dpledger_client.optimizers.support.participants import Participant
from dpledger_client.optimizers.support.rules.facts import Request
from dpledger_client.optimizers.support.rules.gradient import CLIP, reach
from dpledger_client.optimizers.support.rules.room import Room
from dpledger_client.optimizers.training import Source

__all__ = ["a_ddp"]

_STEPS = 100
_SHARE = 0.2
"""Of a participant's records in its batch, where a budget adds up what a sample costs."""
_FULL_BATCHES = ("gdp", "zcdp")
"""Budgets that add up Gaussians on all records, and exactly; a sample is not amplified there."""


def a_ddp(sources: Sequence[Source], request: Request, options: Mapping[str, Any]) -> ADDP:
    """Each participant spends the request on its own records, with noise of its own.

    The path ηT is that of ``noisy-gd`` for the noise of the mean over all participants.
    """
    given = {"steps": _STEPS, "clip": CLIP, **options}
    steps, clip = check_count("steps", given["steps"]), check_positive("clip", given["clip"])
    rooms = [_room(source, request) for source in sources]
    given.setdefault("batch_size", _batch_size(sources, rooms))
    samples = [
        sample_of(min(given["batch_size"], source.records), source.records, source.adjacency)
        for source in sources
    ]
    noises = [room.multiplier(steps, sample) for room, sample in zip(rooms, samples, strict=True)]

    def own(participant: Participant) -> float:
        return noises[participant.number]

    spread = [
        gradient_sensitivity(clip, source.adjacency) * noise / min(given["batch_size"], source.records)
        for source, noise in zip(sources, noises, strict=True)
    ]
    strength = len(sources) * math.sqrt(steps) / math.hypot(*spread)
    given.setdefault("noise_multiplier", own)
    given.setdefault("step_size", reach(strength, _features(sources[0].X)) * strength / steps)
    return ADDP(**given)


def _features(X: Any) -> int | None:
    """How many columns the rows have, which is public; None where they are no matrix."""
    shape: tuple[int, ...] = tuple(getattr(X, "shape", ()))
    return int(shape[1]) if len(shape) == 2 else None


def _room(source: Source, request: Request) -> Room:
    room = Room.of(source.account, request)
    if room.allocates:
        raise ValueError(
            f"{source.account.dataset.name} has a shared budget: allocate to each participant first, and "
            "give the accounts that allocate returns"
        )
    return room


def _batch_size(sources: Sequence[Source], rooms: Sequence[Room]) -> int:
    """Everything where some budget takes nothing else, else a share of the smallest participant's records."""
    sizes = [source.records for source in sources]
    if any(room.accounting in _FULL_BATCHES for room in rooms):
        return max(sizes)
    return max(1, round(_SHARE * min(sizes)))
