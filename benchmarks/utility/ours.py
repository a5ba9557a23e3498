"""Fits through a ledger: the estimator with nothing but a budget, and every method by its rule."""

import itertools
import tempfile
import time
import warnings
from functools import lru_cache
from pathlib import Path
from typing import Any

from benchmarks.utility.cells import DEFAULT, DELTA, Score, score, split_of
from dpledger_client import Ledger
from dpledger_client.estimators import PrivateLogisticRegression
from dpledger_client.optimizers.support.rules import RULES

__all__ = ["AUTO_CLIPPED", "NON_PRIVATE", "fit_ours", "method_names"]

AUTO_CLIPPED = "auto-clipped gd"
NON_PRIVATE = "non-private"
NOT_FOR_LABELS = ("priv-br", "adassp")
"""Rules for ranking and for least squares."""
REPLACE_ONE = ("nsgd", "rsgd-ar", "output-perturbation", "mpadmm")
"""Proven for neighbours with equally many records."""
_NUMBERS = itertools.count()


def method_names() -> list[str]:
    """Every method of ours that classifies, by its rule; the default first."""
    return [DEFAULT, *(name for name in RULES if name not in NOT_FOR_LABELS)]


@lru_cache(maxsize=1)
def _ledger() -> Ledger:
    """One per process."""
    return Ledger.embedded(str(Path(tempfile.mkdtemp(prefix="utility-")) / "ledger.db")).__enter__()


def fit_ours(dataset: str, method: str, epsilon: float, seed: int) -> Score:
    """Open a dataset with that budget, and fit; a dataset per fit, as each is another possible world."""
    split = split_of(dataset, seed)
    adjacency = "replace-one" if method in REPLACE_ONE else "add-remove"
    budget = {"accounting": "shared", "epsilon": epsilon, "delta": DELTA}
    opened = (
        _ledger()
        .dataset(f"{dataset}-{next(_NUMBERS)}")
        .open(budget, adjacency=adjacency, records=len(split.X))
    )
    chosen: dict[str, Any] = {} if method == DEFAULT else {"method": method}
    estimator = PrivateLogisticRegression(
        opened.run("fit"), epsilon=epsilon, delta=DELTA, classes=(-1, 1), bounds=(0.0, 1.0), **chosen
    )
    start = time.monotonic()
    with warnings.catch_warnings(action="ignore"):
        estimator.fit(split.X, split.y)
    seconds = time.monotonic() - start
    accuracy, auc = score(estimator.decision_function(split.test_X), split.test_y)
    return Score(dataset, method, epsilon, seed, accuracy, auc, seconds)
