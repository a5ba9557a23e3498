"""Fits through a ledger: the estimator with nothing but a budget, and every method by its rule."""

import itertools
import tempfile
import time
import warnings
from functools import lru_cache
from pathlib import Path
from typing import Any

from benchmarks.utility.cells import DEFAULT, DELTA, SEEDS, Score, score, split_of
from dpledger_client import Account, Ledger
from dpledger_client.estimators import PrivateLogisticRegression
from dpledger_client.optimizers.support.rules import RULES

__all__ = ["fit_ours", "method_names", "opened_run"]

NOT_COMPARED = ("priv-br", "adassp", "private-majority", "preconditioned-gd")
"""For ranking, for least squares, without weights; and what the one call chooses for these objectives."""
SLOW = {"dp-agd": 2, "dp-blgd": 2, "dp-blsgd": 2, "privgene": 1}
"""How many seeds methods get whose fits take long."""
REPLACE_ONE = ("nsgd", "rsgd-ar", "output-perturbation", "mpadmm")
"""Proven for neighbours with equally many records."""
_NUMBERS = itertools.count()


def method_names(seed: int) -> list[str]:
    """Every other method of ours that classifies, by its rule, quick ones first."""
    named = [name for name in RULES if name not in NOT_COMPARED and seed < SLOW.get(name, SEEDS)]
    return sorted(named, key=lambda name: name in SLOW)


@lru_cache(maxsize=1)
def _ledger() -> Ledger:
    """One per process."""
    return Ledger.embedded(str(Path(tempfile.mkdtemp(prefix="utility-")) / "ledger.db")).__enter__()


def opened_run(name: str, epsilon: float, records: int, adjacency: str = "add-remove") -> Account:
    """A run on a dataset that is opened with that budget."""
    budget = {"accounting": "shared", "epsilon": epsilon, "delta": DELTA}
    dataset = _ledger().dataset(f"{name}-{next(_NUMBERS)}")
    return dataset.open(budget, adjacency=adjacency, records=records).run("fit")


def fit_ours(dataset: str, method: str, epsilon: float, seed: int) -> Score:
    """Open a dataset with that budget, and fit; a dataset per fit, as each is another possible world."""
    split = split_of(dataset, seed)
    adjacency = "replace-one" if method in REPLACE_ONE else "add-remove"
    account = opened_run(dataset, epsilon, len(split.X), adjacency)
    chosen: dict[str, Any] = {} if method == DEFAULT else {"method": method}
    estimator = PrivateLogisticRegression(
        account, epsilon=epsilon, delta=DELTA, classes=(-1, 1), bounds=(0.0, 1.0), **chosen
    )
    start = time.monotonic()
    with warnings.catch_warnings(action="ignore"):
        estimator.fit(split.X, split.y)
    seconds = time.monotonic() - start
    accuracy, auc = score(estimator.decision_function(split.test_rows), split.test_labels)
    return Score(dataset, method, epsilon, seed, accuracy, auc, seconds)
