"""Plans: what a method will ask for, said from public facts before it touches data.

A plan is a list of items in the form that a budget of accounting ``plan`` takes. An item is a step as it is
described to the ledger, with how often it is taken at most; or a cap within which steps may be chosen on the
way: ``gdp`` for Gaussians of all records whose squared μ add up to at most μ², ``zcdp`` for anything whose ρ
add up to at most ρ.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import numpy as np

from dpledger_client._arrays import Floats
from dpledger_client._calls import step_body
from dpledger_client._checks import check_count
from dpledger_client.ledger import Account, Ledger
from dpledger_client.objectives.base import Objective
from dpledger_client.optimizers.training import StopTraining
from dpledger_client.releases import Releases
from dpledger_client.samples import FreshSample, Full

__all__ = [
    "PLAN_USED",
    "Caps",
    "Facts",
    "Item",
    "Setting",
    "concentrated_item",
    "gaussian_item",
    "look_up",
    "start_of",
    "step_item",
]

Item: TypeAlias = dict[str, Any]
PLAN_USED = "planned-budget-used"
"""The ``stop_reason`` of a method that has used up its own plan."""
_ROOM = 1.0 + 2.0**-40
"""The service rounds each cost up, which adds up to less than this."""


class Facts(Protocol):
    """What every method's steps depend on; a training has it, and a plan."""

    @property
    def adjacency(self) -> str:
        """The dataset's adjacency."""

    @property
    def records(self) -> int:
        """The public number of records."""


@dataclass(frozen=True)
class Setting:
    """What is public about a training before it begins.

    Attributes
    ----------
    adjacency, records
        Of the dataset.
    known_objective, known_start, known_ledger
        What is minimised, from where, and who calibrates; None where the caller did not say.
    """

    adjacency: str
    records: int
    known_objective: Objective | None = None
    known_start: Floats | None = None
    known_ledger: Ledger | None = None

    @property
    def objective(self) -> Objective:
        """What is minimised, for methods whose noise depends on it."""
        if self.known_objective is None:
            raise ValueError("objective must be given: this method's noise depends on it")
        return self.known_objective

    @property
    def w(self) -> Floats:
        """Where the training starts."""
        if self.known_start is None:
            raise ValueError("dimension or w0 must be given: this method's noise depends on where it starts")
        return self.known_start

    @property
    def ledger(self) -> Ledger:
        """Who is asked for the noise."""
        if self.known_ledger is None:
            raise ValueError("ledger must be given: the service solves for this method's noise")
        return self.known_ledger


def step_item(name: str, releases: Releases, sample: FreshSample | None = None, times: int = 1) -> Item:
    """A step, as it will be asked for, and how often at most."""
    body = step_body(releases, sample or Full())
    for release in body["releases"]:
        release.pop("purpose", None)
    step = {"sample": body["sample"], "releases": body["releases"]}
    return {"name": name, **step, "times": check_count("times", times)}


def gaussian_item(name: str, rho: float) -> Item:
    """Gaussians of all records chosen on the way, of ρ in all: μ² = 2ρ."""
    return {"name": name, "gdp": {"mu": math.sqrt(2.0 * rho) * _ROOM}}


def concentrated_item(name: str, rho: float) -> Item:
    """Whatever is chosen on the way, of ρ in all."""
    return {"name": name, "zcdp": {"rho": rho * _ROOM}}


@dataclass
class Caps:
    """What a method has left of its own plan; ends the training where the next step would exceed it.

    Attributes
    ----------
    rho
        Of steps chosen on the way.
    searches
        How many line searches.
    """

    rho: float = math.inf
    searches: float = math.inf

    @classmethod
    def of(cls, rho: float | None = None, searches: int | None = None) -> "Caps":
        """None for no cap."""
        return cls(math.inf if rho is None else rho, math.inf if searches is None else searches)

    def spend(self, rho: float) -> None:
        """Take ρ for a step that is about to be asked for."""
        if rho > self.rho:
            raise StopTraining(PLAN_USED, f"The next step needs {rho:.3g} of {self.rho:.3g} planned.")
        self.rho -= rho

    def search(self) -> None:
        """Take a line search, with the gradient before it, which is about to be asked for."""
        if self.searches < 1:
            raise StopTraining(PLAN_USED, "All planned line searches were made.")
        self.searches -= 1


def start_of(dimension: int | None, w0: Any) -> Floats | None:
    """Where a training starts: at ``w0``, or at zero, as linear models do."""
    if w0 is not None:
        return np.asarray(w0, dtype=np.float64).ravel()
    return None if dimension is None else np.zeros(check_count("dimension", dimension))


def look_up(account: Account, query: Any, ask: Callable[[], Any]) -> Any:
    """What the ledger says of its state, by which a request is chosen, as JSON.

    With a journal it is what it said before a restart: less is left now, and the restarted job must ask for
    the same.
    """
    if account.journal is None:
        return ask()
    return account.journal.answer(account.dataset.ledger._wire.token_id(), query, ask)
