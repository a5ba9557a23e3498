"""One call on many datasets: the estimator with nothing but epsilon, delta, classes and bounds.

    python -m benchmarks.one_call [--quick] [--seeds 5] [--only NAME]

Each row is a dataset of scikit-learn's or a simulated one: accuracy on held-out records, the majority's, the
standard error of their difference over seeds, how the training ended, and what of the allocation is unused.
Ends with a summary, and status 1 where a row is below the majority by more than a standard error, was refused
a step, or leaves more than 2 % unused.
"""

import argparse
import itertools
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from sklearn import datasets

from dpledger_client import Ledger
from dpledger_client.estimators import PrivateLogisticRegression

__all__ = ["CASES", "QUICK", "Case", "Row", "run_case"]

DELTA = 1e-6
MOST_UNUSED = 0.02
_NUMBERS = itertools.count()


@dataclass(frozen=True)
class Case:
    """A dataset by name and shape, and the ε of a fit on it; ``bounds`` None has them estimated."""

    name: str
    load: Callable[[np.random.Generator], tuple[Any, Any]]
    epsilon: float
    bounds: Any


@dataclass(frozen=True)
class Row:
    """What came of a case."""

    accuracy: float
    error: float
    majority: float
    stopped: str
    unused: float

    @property
    def below(self) -> bool:
        """Whether it is worse than the majority by more than a standard error."""
        return self.accuracy < self.majority - self.error

    @property
    def wasteful(self) -> bool:
        """Whether too much of the allocation was not used."""
        return self.unused > MOST_UNUSED


def simulated(
    records: int, features: int, classes: int, *, skew: float = 0.0, sparse: bool = False
) -> Callable[[np.random.Generator], tuple[Any, Any]]:
    """Labels by a noisy linear score of features in [−1, 1]; ``skew`` makes the first class more frequent."""

    def load(random: np.random.Generator) -> tuple[Any, Any]:
        X = np.clip(0.35 * random.standard_normal((records, features)), -1.0, 1.0)
        if sparse:
            X = (random.random((records, features)) < 0.1).astype(np.float64)
        weights = random.standard_normal((features, classes)) * 4.0 / np.sqrt(features * np.mean(X**2))
        scores = X @ weights * 0.5
        scores[:, 0] += skew
        noise = -np.log(-np.log(random.random(scores.shape)))
        return X, np.argmax(scores + noise, axis=1)

    return load


def of_sklearn(load: Callable[..., Any]) -> Callable[[np.random.Generator], tuple[Any, Any]]:
    """A dataset of scikit-learn's, in an order of its own."""

    def shuffled(random: np.random.Generator) -> tuple[Any, Any]:
        X, y = load(return_X_y=True)
        order = random.permutation(len(X))
        return X[order], y[order]

    return shuffled


PIXELS = (0.0, 16.0)
UNIT = (-1.0, 1.0)
CANCER = [
    *[(0.0, 40.0), (0.0, 50.0), (0.0, 250.0), (0.0, 3000.0), (0.0, 0.2), (0.0, 0.5), (0.0, 0.5), (0.0, 0.25)],
    *[(0.0, 0.5), (0.0, 0.1), (0.0, 4.0), (0.0, 6.0), (0.0, 30.0), (0.0, 600.0), (0.0, 0.05), (0.0, 0.2)],
    *[
        (0.0, 0.4),
        (0.0, 0.06),
        (0.0, 0.1),
        (0.0, 0.04),
        (0.0, 50.0),
        (0.0, 60.0),
        (0.0, 350.0),
        (0.0, 5000.0),
    ],
    *[(0.0, 0.3), (0.0, 1.2), (0.0, 1.5), (0.0, 0.4), (0.0, 0.8), (0.0, 0.25)],
]
"""Round numbers that radii, textures and so on of cells stay within."""
WINE = [
    *[(10.0, 16.0), (0.0, 6.0), (1.0, 4.0), (10.0, 30.0), (70.0, 170.0), (0.0, 5.0), (0.0, 6.0), (0.0, 1.0)],
    *[(0.0, 4.0), (0.0, 14.0), (0.0, 2.0), (1.0, 5.0), (200.0, 1800.0)],
]
"""Round numbers that a chemist would give."""

QUICK = (
    Case("breast_cancer", of_sklearn(datasets.load_breast_cancer), 1.0, CANCER),
    Case("n=500 d=5 classes=2 skewed", simulated(500, 5, 2, skew=2.0), 1.0, UNIT),
    Case("n=5000 d=50 classes=10", simulated(5_000, 50, 10), 1.0, UNIT),
)
CASES = (
    *QUICK,
    Case("breast_cancer, bounds estimated", of_sklearn(datasets.load_breast_cancer), 1.0, None),
    Case("digits", of_sklearn(datasets.load_digits), 1.0, PIXELS),
    Case("digits, bounds estimated", of_sklearn(datasets.load_digits), 1.0, None),
    Case("wine", of_sklearn(datasets.load_wine), 1.0, WINE),
    Case("n=500 d=5 classes=2", simulated(500, 5, 2), 1.0, UNIT),
    Case("n=500 d=5 classes=2 skewed, epsilon=0.1", simulated(500, 5, 2, skew=2.0), 0.1, UNIT),
    Case("n=500 d=2000 classes=2 skewed", simulated(500, 2_000, 2, skew=2.0), 1.0, UNIT),
    Case("n=500 d=50 classes=10", simulated(500, 50, 10), 1.0, UNIT),
    Case("n=5000 d=5 classes=2, epsilon=0.1", simulated(5_000, 5, 2), 0.1, UNIT),
    Case("n=5000 d=200 classes=2 sparse skewed", simulated(5_000, 200, 2, skew=1.5, sparse=True), 1.0, UNIT),
    Case("n=5000 d=2000 classes=2", simulated(5_000, 2_000, 2), 1.0, UNIT),
    Case("n=5000 d=2000 classes=5 skewed", simulated(5_000, 2_000, 5, skew=3.0), 1.0, UNIT),
    Case("n=500000 d=5 classes=2", simulated(500_000, 5, 2), 0.1, UNIT),
    Case("n=500000 d=50 classes=10", simulated(500_000, 50, 10), 0.1, UNIT),
    Case("n=500000 d=100 classes=3 sparse", simulated(500_000, 100, 3, sparse=True), 1.0, UNIT),
)


def run_case(ledger: Ledger, case: Case, seeds: int) -> Row:
    """Fit on four fifths of the records and score on the rest, once per seed."""
    found, majorities, unused, stopped = [], [], [], set()
    for seed in range(seeds):
        X, y = case.load(np.random.default_rng(seed))
        cut = len(X) - len(X) // 5
        model, dataset = _fitted(ledger, case, X[:cut], y[:cut])
        found.append(model.score(X[cut:], y[cut:]))
        majorities.append(float(np.mean(y[cut:] == np.bincount(y[:cut]).argmax())))
        stopped.add(model.result_.stop_reason)
        unused += [float(each["remaining"]["fraction"]) for each in dataset.allocations()]
    gaps = np.array(found) - np.array(majorities)
    error = float(gaps.std(ddof=1) / np.sqrt(seeds)) if seeds > 1 else 0.0
    return Row(
        float(np.mean(found)), error, float(np.mean(majorities)), "+".join(sorted(stopped)), max(unused)
    )


def _fitted(ledger: Ledger, case: Case, X: Any, y: Any) -> tuple[Any, Any]:
    budget = {"accounting": "shared", "epsilon": case.epsilon, "delta": DELTA}
    dataset = ledger.dataset(f"one-call-{next(_NUMBERS)}").open(budget, records=len(X))
    classes = tuple(range(int(y.max()) + 1))
    model = PrivateLogisticRegression(
        dataset.run("fit"), epsilon=case.epsilon, delta=DELTA, classes=classes, bounds=case.bounds
    )
    return model.fit(X, y), dataset


def _rows(cases: tuple[Case, ...], seeds: int) -> Iterator[tuple[Case, Row]]:
    with tempfile.TemporaryDirectory() as folder, Ledger.embedded(Path(folder) / "ledger.db") as ledger:
        for case in cases:
            yield case, run_case(ledger, case, seeds)


def main() -> int:
    """Print the table, and the summary last."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="three small datasets")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--only", default="", help="datasets whose name contains this")
    given = parser.parse_args()
    cases = tuple(case for case in (QUICK if given.quick else CASES) if given.only in case.name)
    print(f"{'dataset':46} {'eps':>5} {'accuracy':>16} {'majority':>9} {'unused':>8}  ended")
    rows = []
    for case, row in _rows(cases, given.seeds):
        rows.append(row)
        accuracy = f"{row.accuracy:.4f} ± {row.error:.4f}"
        shown = f"{case.name:46} {case.epsilon:5} {accuracy:>16} {row.majority:9.4f} {row.unused:8.2%}"
        print(f"{shown}  {row.stopped}", flush=True)
    below, wasteful = sum(row.below for row in rows), sum(row.wasteful for row in rows)
    refused = sum(row.stopped != "finished" for row in rows)
    print(f"cases={len(rows)} below_majority={below} refused={refused} above_2_percent_unused={wasteful}")
    return 1 if below or wasteful or refused else 0


if __name__ == "__main__":
    sys.exit(main())
