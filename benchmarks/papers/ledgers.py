"""The ledger that private runs ask, and the noise that it finds for an (ε, δ)."""

import atexit
import itertools
import math
import tempfile
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from dpledger_client import Ledger
from dpledger_client.ledger import Account, Dataset
from dpledger_client.optimizers import Method, plan
from dpledger_client.optimizers.support.planning import Item
from dpledger_client.samples import FreshSample

__all__ = [
    "account_for",
    "gaussian_mu",
    "ledger",
    "new_dataset",
    "planned_account",
    "sampled_noise",
    "total_rho",
]

_ROOM = 1.0 + 1e-4
"""A plan is evaluated on a grid and rounded up, by less than this."""
_numbers = itertools.count()


@lru_cache(maxsize=1)
def ledger() -> Ledger:
    """A ledger in a folder of its own, inside this process; its file goes with the folder."""
    folder = tempfile.TemporaryDirectory(prefix="papers-")
    found = Ledger.embedded(Path(folder.name) / "ledger.db")

    @atexit.register
    def close() -> None:
        found.close()
        folder.cleanup()

    return found


def new_dataset() -> Dataset:
    """A dataset for one run, which is not open yet."""
    return ledger().dataset(f"run-{next(_numbers)}")


def account_for(budget: Mapping[str, Any], records: int, adjacency: str = "add-remove") -> Account:
    """An account on a dataset that is opened for this one run."""
    return new_dataset().open(budget, adjacency=adjacency, records=records).run("papers")


def planned_account(
    method: Method,
    epsilon: float,
    delta: float,
    records: int,
    adjacency: str = "add-remove",
    **facts: Any,
) -> Account:
    """An account whose budget is the method's own plan, which must be within (ε, δ)."""
    known = {"adjacency": adjacency, "records": records, "ledger": ledger()}
    items: Sequence[Item] = plan(dataset=known, method=method, **facts)
    opened = new_dataset().open(
        plan=items, epsilon=epsilon, delta=delta, adjacency=adjacency, records=records
    )
    return opened.run("papers")


@lru_cache(maxsize=256)
def gaussian_mu(epsilon: float, delta: float) -> float:
    """The μ of all full Gaussian looks together within (ε, δ): exact (Balle, Wang 2018)."""
    return float(_convert(epsilon, delta, "gdp")["mu"]) / _ROOM


@lru_cache(maxsize=256)
def total_rho(epsilon: float, delta: float) -> float:
    """The ρ of zCDP within (ε, δ), by the tight conversion."""
    return float(_convert(epsilon, delta, "zcdp")["rho"])


def _convert(epsilon: float, delta: float, notion: str) -> dict[str, Any]:
    goal = {"notion": "approximate", "epsilon": epsilon, "delta": delta}
    answer: dict[str, Any] = ledger().ask("conversions", {"goal": goal, "to": {"notion": notion}})[
        "guarantee"
    ]
    return answer


@lru_cache(maxsize=256)
def sampled_noise(
    epsilon: float, delta: float, steps: int, sample: FreshSample, adjacency: str = "add-remove"
) -> float:
    """The noise multiplier with which so many sampled Gaussian looks cost (ε, δ): by loss distributions."""
    query = {
        "solve_for": "noise_std",
        "target": {"epsilon": epsilon, "delta": delta},
        "steps": steps,
        "sample": sample.fields(),
        "adjacency": adjacency,
        "releases": [{"mechanism": "gaussian", "sensitivity": 1.0}],
        "method": "pld",
    }
    value = float(ledger().ask("calibrations", query)["value"])
    if not math.isfinite(value):
        raise ValueError(f"no noise was found for ε = {epsilon}, δ = {delta}")
    return value * _ROOM
