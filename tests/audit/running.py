"""Runs a case: trainings on both neighbours, with the noise as it is and with half of it."""

import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from dpledger_client import Ledger
from tests.audit.attack import Output, lower_bound, seeded, watched
from tests.audit.cases import CASES, Case
from tests.audit.ledgers import Granting, charge

__all__ = ["Found", "audit", "audit_named"]


@dataclass(frozen=True)
class Found:
    """What an audit found: the charge at δ, and lower bounds on what was spent."""

    name: str
    delta: float
    charged: float
    spent: float
    spent_halved: float
    seconds: float

    @property
    def above(self) -> bool:
        """Whether the training provably spent more than it was charged."""
        return self.spent > self.charged

    @property
    def caught(self) -> bool:
        """Whether half of the noise is provably not enough for the charge."""
        return self.spent_halved > self.charged

    def __str__(self) -> str:
        return (
            f"{self.name:24} δ {self.delta:<5g} charged {self.charged:6.3f}  at least {self.spent:6.3f}  "
            f"with half the noise {self.spent_halved:6.3f}  {self.seconds:5.1f} s"
        )


def audit(case: Case, real: Ledger, runs: int, seed: int) -> Found:
    """Train so often on each neighbour, and so often again with half the noise."""
    began = time.monotonic()
    granting = Granting(real, case.adjacency, case.records)
    charges: dict[str, float] = {}
    bounds: list[float] = []
    for halved in (False, True):
        scores: tuple[list[float], list[float]] = ([], [])
        with seeded(seed, halved=halved):
            for _ in range(runs * case.more_runs):
                for which, data in enumerate(case.neighbours):
                    outputs: list[Output] = []
                    granting.steps.clear()
                    with watched(outputs):
                        case.train(granting.account(), data)
                    scores[which].append(case.score(outputs))
                    described = str(sorted(granting.steps.items()))
                    if described not in charges:
                        charges[described] = charge(granting.steps, case.adjacency, case.delta)
        bounds.append(lower_bound(*scores, case.delta))
    charged, seconds = max(charges.values()), time.monotonic() - began
    return Found(case.covers, case.delta, charged, bounds[0], bounds[1], seconds)


def audit_named(name: str, runs: int, seed: int) -> Found:
    """Audit a case by its name, with a ledger of its own for what the service computes."""
    [case] = (case for case in CASES if case.covers == name)
    with tempfile.TemporaryDirectory() as folder, Ledger.embedded(Path(folder) / "ledger.db") as real:
        return audit(case, real, runs, seed)
