"""Private tuning against the default on Adult, at the same (ε, δ), side by side.

Three trainings for each of the seeds: the default in one call; a tuning of a grid around it, all trials
together at the same cost; and the default with the noise that one trial has, which is the tuning's price. The
grid is fixed here and none of it was chosen on these data. ``DPLEDGER_DATA`` names the folder of the data.
"""

import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.datasets import load
from benchmarks.datasets.columns import Floats
from dpledger_client import Account, Ledger, NegativeBinomialTrials
from dpledger_client.objectives import Logistic
from dpledger_client.optimizers import minimize, tune

EPSILON, DELTA = 1.0, 1e-6
SEEDS = 10
GRID: dict[str, list[Any]] = {"clip": [0.3, 1.0, 3.0], "steps": [50, 100]}
TRIALS = NegativeBinomialTrials.with_mean(10.0)
SHARED = {"accounting": "shared", "epsilon": 1e4, "delta": 0.5}


def main() -> int:
    data = load("adult", intercept=True, unit_rows=True)
    train, test = data.split()
    signs = np.where(data.y == max(data.classes), 1.0, -1.0)
    X, y, X_test, y_test = data.X[train], signs[train], data.X[test], signs[test]

    def accuracy(w: Floats) -> float:
        return float(100.0 * np.mean(np.where(X_test @ w > 0.0, 1.0, -1.0) == y_test))

    found: dict[str, list[float]] = {"default": [], "tuned": [], "one_trial": []}
    with tempfile.TemporaryDirectory() as folder, Ledger.embedded(Path(folder) / "ledger.db") as ledger:
        account = ledger.dataset("adult").open(SHARED, records=len(X)).run("benchmark")
        for seed in range(SEEDS):
            target: dict[str, Any] = {"epsilon": EPSILON, "delta": DELTA}
            default = minimize(Logistic(), X, y, account=account, **target)
            best = tune(Logistic(), X, y, account=account, grid=GRID, trials=TRIALS, **target)
            assert best.w is not None
            assert best.method is not None
            steps = default.plan.method.steps
            noise = best.method.noise_multiplier * (steps / best.method.steps) ** 0.5  # type: ignore[attr-defined]
            alone = minimize(
                Logistic(), X, y, account=_room(ledger, seed, len(X)), method="noisy-gd",
                epsilon=EPSILON, delta=DELTA, noise_multiplier=noise,
            )  # fmt: skip
            for name, w in (("default", default.w), ("tuned", best.w), ("one_trial", alone.w)):
                found[name].append(accuracy(w))
            print(f"seed {seed}: " + "  ".join(f"{name} {each[-1]:.2f}" for name, each in found.items()))
            print(f"        best of the trials: {dict(best.options)}, noisy score {100.0 * best.score:.2f}")
    return report(found)


def _room(ledger: Ledger, seed: int, records: int) -> Account:
    """An account of its own for a training whose noise is given."""
    budget = {"accounting": "gdp", "epsilon": 2.0 * EPSILON, "delta": DELTA}
    return ledger.dataset(f"adult-{seed}").open(budget, records=records).run("one-trial")


def report(found: dict[str, list[float]]) -> int:
    """Means with standard errors; 1 if the tuning loses more than its price, beyond two standard errors."""
    means = {name: statistics.fmean(each) for name, each in found.items()}
    errors = {name: statistics.stdev(each) / len(each) ** 0.5 for name, each in found.items()}
    for name, mean in means.items():
        print(f"{name:10} {mean:.2f} ± {errors[name]:.2f}")
    price = means["default"] - means["one_trial"]
    loss = means["default"] - means["tuned"]
    room = 2.0 * (errors["tuned"] ** 2 + errors["one_trial"] ** 2) ** 0.5
    print(f"ratio loss={loss:.2f} price={price:.2f} standard_errors={room:.2f}")
    return int(loss > max(price, 0.0) + room)


if __name__ == "__main__":
    sys.exit(main())
