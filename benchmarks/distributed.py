"""A-DDP on Adult: 400 participants of equal size, each with a budget of (ε, δ) = (1, 1e-6) of its own.

``python -m benchmarks.distributed`` shuffles the records, holds a fifth out, shares the rest out and lets the
public rule choose everything else. It prints a line for each split and the mean accuracy with its standard
error, and fails below 80 %.
"""

import sys
import tempfile
from pathlib import Path

import numpy as np

from benchmarks.datasets import load
from dpledger_client import Ledger
from dpledger_client.objectives import Logistic
from dpledger_client.optimizers import Result, minimize

PARTICIPANTS, SPLITS = 400, 3
EPSILON, DELTA = 1.0, 1e-6
LEAST = 0.8


def train(ledger: Ledger, split: int) -> tuple[float, Result]:
    """The accuracy on the records held out, and how it came about."""
    adult = load("adult", intercept=True)
    order = np.random.default_rng(split).permutation(len(adult.y))
    held, rest = order[: len(order) // 5], order[len(order) // 5 :]
    shares = np.array_split(rest[: len(rest) // PARTICIPANTS * PARTICIPANTS], PARTICIPANTS)
    budget = {"accounting": "gdp", "epsilon": EPSILON, "delta": DELTA}
    dataset = ledger.dataset(f"adult-{split}").open(
        budget, adjacency="replace-one", partition_key="fixed", records=PARTICIPANTS * len(shares[0])
    )
    result = minimize(
        Logistic(),
        [adult.X[share] for share in shares],
        [adult.y[share].astype(float) for share in shares],
        account=[
            dataset.run("a-ddp", partition=name) for name in dataset.open_partitions(PARTICIPANTS, budget)
        ],
        method="a-ddp",
        epsilon=EPSILON,
        delta=DELTA,
        progress=False,
    )
    return float(np.mean((adult.X[held] @ result.w > 0.0) == (adult.y[held] > 0))), result


def main() -> int:
    found = []
    with tempfile.TemporaryDirectory() as folder, Ledger.embedded(Path(folder) / "ledger.db") as ledger:
        for split in range(SPLITS):
            accuracy, result = train(ledger, split)
            found.append(accuracy)
            print(
                f"split {split}: {accuracy:.4f} after {result.iterations} rounds, {result.stop_reason}",
                flush=True,
            )
    mean, error = float(np.mean(found)), float(np.std(found, ddof=1) / np.sqrt(len(found)))
    print(f"accuracy={mean:.4f} ± {error:.4f}")
    return int(mean < LEAST)


if __name__ == "__main__":
    sys.exit(main())
