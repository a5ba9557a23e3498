"""Simulated tables, on which the constants of the public rule were chosen; no benchmark's data are looked at.

``python -m benchmarks.simulations preconditioned-gd threshold=1 threshold=2`` prints, for each setting and ε,
how far accuracy and area under the curve are below those of no privacy, on average over tables, in points.

A table has one-hot columns with Zipf frequencies and numbers that are symmetric, skewed, rarely not zero or
far from the middle of their range, all within [0, 1]. Three hidden factors correlate them; labels follow a
logistic model of the columns, the factors and their products, so that no linear model is right.
"""

import argparse
import itertools
import math
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from sklearn.linear_model import LogisticRegression

from benchmarks.utility.cells import score
from dpledger_client import Ledger
from dpledger_client.estimators import PrivateLogisticRegression

__all__ = ["TABLES", "Table", "simulate"]

Floats = NDArray[np.float64]
TEST_ROWS, DELTA, FACTORS = 20_000, 1e-8, 3


@dataclass(frozen=True)
class Table:
    """The sizes of its one-hot groups, the kinds of its numbers, and its labels."""

    records: int
    groups: tuple[int, ...]
    numbers: tuple[str, ...]
    positives: float
    strength: float


TABLES = {
    "a": Table(
        30_000, (9, 16, 7, 15, 6, 5, 2, 40), ("sym", "weight", "sym", "zero", "zero", "sym"), 0.24, 2.2
    ),
    "b": Table(
        36_000,
        (12, 3, 4, 2, 2, 2, 3, 12, 4),
        ("sym", "off", "uniform", "skew", "skew", "zero", "zero"),
        0.12,
        2.2,
    ),
    "c": Table(20_000, (5, 5, 8, 10, 20, 30), ("sym", "skew", "uniform"), 0.4, 1.5),
    "d": Table(25_000, (3, 3, 4, 2, 6, 8), ("sym",) * 6 + ("skew",) * 6 + ("uniform",) * 3, 0.3, 2.5),
    "e": Table(45_000, (2,) * 10 + (4,) * 5 + (10,) * 2, ("sym", "skew"), 0.15, 1.8),
    "f": Table(30_000, (50, 20, 10), ("zero", "skew", "skew", "uniform", "sym"), 0.08, 2.5),
}


def simulate(table: Table, seed: int) -> tuple[Floats, Floats]:
    """Rows and labels −1 and 1, ``TEST_ROWS`` more than the table's records."""
    random = np.random.default_rng(seed)
    rows = table.records + TEST_ROWS
    hidden = random.normal(size=(rows, FACTORS))
    made = [_group(random, hidden, size) for size in table.groups]
    made += [_number(random, hidden, kind) for kind in table.numbers]
    score_of = np.sum([part for _, part in made], axis=0)
    score_of += 0.5 * (hidden[:, 0] * hidden[:, 1] + 0.7 * (hidden[:, 2] ** 2 - 1.0))
    score_of += 0.5 * hidden @ random.normal(size=FACTORS)
    score_of = (score_of - score_of.mean()) / score_of.std() * table.strength
    shift = brentq(lambda b: float(np.mean(_chance(score_of + b))) - table.positives, -30.0, 30.0)
    y = np.where(random.random(rows) < _chance(score_of + shift), 1.0, -1.0)
    return np.hstack([columns for columns, _ in made]), y


def _chance(margins: Floats) -> Floats:
    return np.asarray(1.0 / (1.0 + np.exp(-margins)))


def _group(random: np.random.Generator, hidden: Floats, size: int) -> tuple[Floats, Floats]:
    """One-hot columns, and what they add to the label's margin."""
    logits = -random.uniform(0.3, 1.8) * np.log(np.arange(1, size + 1))
    random.shuffle(logits)
    logits = logits + hidden @ (random.normal(size=(FACTORS, size)) * random.uniform(0.3, 1.2))
    shares = np.exp(logits - logits.max(axis=1, keepdims=True))
    shares /= shares.sum(axis=1, keepdims=True)
    chosen = np.minimum((shares.cumsum(axis=1) < random.random((len(hidden), 1))).sum(axis=1), size - 1)
    weights = random.normal(size=size) * random.gamma(1.0, 0.6)
    return np.eye(size)[chosen], weights[chosen]


def _number(random: np.random.Generator, hidden: Floats, kind: str) -> tuple[Floats, Floats]:
    """A column within [0, 1], and what it adds to the label's margin."""
    base = 0.5 * hidden @ random.normal(size=FACTORS) + random.normal(size=len(hidden))
    rare = random.random(len(base)) < 0.08
    columns, parts = {
        "sym": (0.35 + 0.13 * base, base),
        "skew": (np.exp(0.8 * base) / 60.0, np.minimum(np.exp(0.8 * base), 10.0) / 2.0),
        "zero": (np.where(rare, 0.06 * np.exp(base), 0.0), np.where(rare, 2.5, 0.0)),
        "weight": (0.12 * np.exp(0.4 * base), 0.0 * base),
        "off": (0.1 + 0.03 * np.exp(0.6 * base), 0.5 * base),
        "uniform": (_chance(base), _chance(base) - 0.5),
    }[kind]
    return np.clip(columns, 0.0, 1.0)[:, None], parts * random.normal() * random.gamma(1.0, 0.6)


def _gaps(ledger: Ledger, name: str, epsilon: float, method: str, options: dict[str, Any]) -> Floats:
    """How far a private fit is below no privacy, in accuracy and area."""
    X, y = simulate(TABLES[name], ord(name))
    records = TABLES[name].records
    free = LogisticRegression(C=1e3, max_iter=2_000).fit(X[:records], y[:records])
    budget = {"accounting": "shared", "epsilon": epsilon, "delta": DELTA}
    dataset = ledger.dataset(f"{name}-{next(_NUMBERS)}").open(budget, records=records)
    private = PrivateLogisticRegression(
        dataset.run("fit"),
        epsilon=epsilon,
        delta=DELTA,
        classes=(-1, 1),
        bounds=(0.0, 1.0),
        method=method,
        options=options,
    ).fit(X[:records], y[:records])
    test, labels = X[records:], y[records:]
    without, found = (
        score(free.decision_function(test), labels),
        score(private.decision_function(test), labels),
    )
    return np.subtract(without, found)


_NUMBERS = itertools.count()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.simulations")
    parser.add_argument("method")
    parser.add_argument("settings", nargs="*", default=[""], help="such as steps=30,clip=0.2")
    parser.add_argument("--epsilons", type=float, nargs="+", default=[0.05, 0.1, 0.4, 1.6])
    parser.add_argument("--tables", default="".join(TABLES))
    parser.add_argument("--repeats", type=int, default=1)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, Ledger.embedded(str(Path(folder) / "ledger.db")) as ledger:
        for setting in given.settings:
            pairs = [pair.split("=") for pair in setting.split(",") if pair]
            options = {name: int(value) if value.isdigit() else float(value) for name, value in pairs}
            for epsilon in given.epsilons:
                runs = [
                    _gaps(ledger, name, epsilon, given.method, options)
                    for name in given.tables
                    for _ in range(given.repeats)
                ]
                accuracy, area = np.mean(runs, axis=0)
                spread = np.std(runs, axis=0) / math.sqrt(len(runs))
                print(
                    f"{given.method} {setting or 'by its rule'} ε={epsilon}: accuracy −{accuracy:.2f} "
                    f"(± {spread[0]:.2f}), area −{area:.2f} (± {spread[1]:.2f})",
                    flush=True,
                )


if __name__ == "__main__":
    main()
