"""Public facts: all that a rule reads."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from dpledger_client._arrays import Floats
from dpledger_client._checks import check_open_unit, check_positive
from dpledger_client.objectives.base import Objective, gradient_sensitivity
from dpledger_client.optimizers.support.base import Method
from dpledger_client.optimizers.support.planning import Item

if TYPE_CHECKING:
    from dpledger_client.optimizers.support.rules.room import Room

__all__ = ["Choice", "PublicFacts", "Request"]


@dataclass(frozen=True)
class Request:
    """What is to be spent: an (ε, δ), or the share ``spend`` of what the budget has left.

    Examples
    --------
    >>> Request(epsilon=1.0, delta=1e-6)
    Request(epsilon=1.0, delta=1e-06, spend=None)
    """

    epsilon: float | None = None
    delta: float | None = None
    spend: float | None = None

    def __post_init__(self) -> None:
        if self.spend is not None:
            if self.epsilon is not None or self.delta is not None:
                raise ValueError("give either epsilon and delta, or spend")
            if not 0.0 < self.spend <= 1.0:
                raise ValueError(f"spend must be above 0 and at most 1, found {self.spend!r}")
            return
        if self.epsilon is None or self.delta is None:
            raise ValueError("epsilon and delta must be given together")
        check_positive("epsilon", self.epsilon)
        check_open_unit("delta", self.delta)


@dataclass(frozen=True)
class PublicFacts:
    """All that a rule reads.

    Attributes
    ----------
    adjacency, records
        Of the dataset.
    objective
        What is minimised; its regulariser, classes and constants are public.
    dimension, features
        How many parameters, and how many columns X has (None where X is no matrix).
    row_norm
        A public bound on the L2 norm of every row, the column of ones included; None if there is none.
    start
        Where the training starts; None for the objective's own start.
    room
        What the request leaves room for, which solves for noise.
    options
        Parameters of the method that are to be other than the rule's.
    """

    adjacency: str
    records: int
    objective: Objective
    dimension: int
    features: int | None
    row_norm: float | None
    start: Floats | None
    room: "Room"
    options: Mapping[str, Any]

    @property
    def classes(self) -> int:
        """How many classes there are; 2 for a single margin."""
        return int(getattr(self.objective, "classes", None) or 2)

    @property
    def loss(self) -> Objective:
        """What is minimised, without the weights of records."""
        found: Objective = getattr(self.objective, "unweighted", self.objective)
        return found

    def sensitivity(self, clip: float) -> float:
        """Of a sum of gradients clipped to ``clip``."""
        return gradient_sensitivity(clip, self.adjacency)


class Choice(NamedTuple):
    """A method with all its parameters, and what it asks for where it has no plan that says so."""

    method: Method
    items: tuple[Item, ...]
