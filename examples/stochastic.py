"""DP-SGD, DP-Adam and the baselines that the papers compare with, on one dataset with one budget.

Run it against `make run` with the token in DPLEDGER_TOKEN (and the address in DPLEDGER_URL, if another),
or without a service: python examples/stochastic.py --embedded budget.db
"""

import secrets
from typing import Any

import numpy as np

from connection import connected
from dpledger_client.objectives import L2, Logistic
from dpledger_client.optimizers import Method, NonPrivate, minimize
from dpledger_client.optimizers.methods.dp_adam import DPAdam
from dpledger_client.optimizers.methods.dp_sgd import DPSGD
from dpledger_client.optimizers.methods.non_private import LBFGS
from dpledger_client.optimizers.methods.objective_perturbation import ObjectivePerturbation
from dpledger_client.optimizers.methods.private_majority import PrivateMajority
from dpledger_client.optimizers.methods.privgene import PrivGene
from dpledger_client.optimizers.methods.sgd_advanced import SGDAdvanced
from dpledger_client.optimizers.methods.sgd_moments import SGDMoments

RECORDS, FEATURES = 5_000, 10
SAMPLED: dict[str, Any] = {"steps": 200, "batch_size": 100, "clip": 1.0}
METHODS: list[Method | NonPrivate] = [
    DPSGD(**SAMPLED, noise_multiplier=1.1, step_size=1.0, average="weighted"),
    DPAdam(**SAMPLED, noise_multiplier=1.1, step_size=0.05),
    SGDAdvanced(**SAMPLED, epsilon=1.0, delta=1e-5, step_size=0.3, average="weighted"),
    SGDMoments(**SAMPLED, epsilon=1.0, delta=1e-5, step_size=0.5, average="weighted"),
    ObjectivePerturbation(noise_multiplier=10.0, extra_strength=1e-3),
    PrivGene(generations=15, epsilon=0.1, loss_clip=2.0, parents=8, half_width=3.0),
    PrivateMajority(epsilon=0.1),
    LBFGS(),
]


def accuracy(w: Any, X: Any, y: Any) -> float:
    """Of the linear classifier, or of the one label that a majority is."""
    predicted = np.full(len(y), w[0]) if len(w) == 1 else np.sign(X @ w)
    return float(np.mean(predicted == y))


def main() -> None:
    """Open a dataset, train by every method, and print what each left of the budget."""
    random = np.random.default_rng(0)
    X = random.normal(size=(RECORDS, FEATURES)) / np.sqrt(FEATURES)
    y = np.where(X @ np.arange(1.0, FEATURES + 1.0) + 0.5 * random.normal(size=RECORDS) > 0.0, 1.0, -1.0)
    with connected(__doc__) as ledger:
        dataset = ledger.dataset(f"stochastic-{secrets.token_hex(4)}")
        dataset.open({"accounting": "rdp", "epsilon": 6.0, "delta": 1e-5}, records=RECORDS)
        for method in METHODS:
            private = isinstance(method, Method)
            account = dataset.run(method.name) if private else None
            reserve = 200 if private else None
            result = minimize(Logistic(L2(1e-3)), X, y, account=account, method=method, reserve=reserve)
            print(
                f"{method.name:22}  {result.stop_reason:10}  accuracy {accuracy(result.w, X, y):.3f}  "
                f"budget left {dataset.budget().fraction:6.1%}"
            )


if __name__ == "__main__":
    main()
