"""PATE: teachers that saw private patients label public ones for a student, until the budget ends.

Run it against `make run` with the token in DPLEDGER_TOKEN (and the address in DPLEDGER_URL, if another),
or without a service: python examples/pate.py --embedded budget.db
"""

import secrets

import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.neighbors import NearestCentroid

from connection import connected
from dpledger_client import NoisyVotes, ProposeTestRelease
from dpledger_client._arrays import Floats, Integers
from dpledger_client.pate import Predict, pate

TEACHERS, CLASSES = 40, 2
MECHANISMS: dict[str, NoisyVotes | ProposeTestRelease] = {
    "noisy votes": NoisyVotes("gaussian", noise_std=8.0),
    "propose, test, release": ProposeTestRelease(epsilon=0.5, delta=1e-3),
}


def fit(rows: Floats, labels: Integers) -> Predict:
    """Any classifier will do, for teachers and student alike."""
    predict: Predict = NearestCentroid().fit(rows, labels).predict
    return predict


def main() -> None:
    """Label with each mechanism on a dataset of its own, train a student, and print the way of the budget."""
    X, y = load_breast_cancer(return_X_y=True)
    X = X / X.max(axis=0)
    private, public, test = np.split(np.random.default_rng(0).permutation(len(X)), [360, 460])
    with connected(__doc__) as ledger:
        for name, mechanism in MECHANISMS.items():
            dataset = ledger.dataset(f"pate-{secrets.token_hex(4)}")
            budget = {"accounting": "rdp", "epsilon": 6.0, "delta": 0.03, "additive_delta": 0.029}
            dataset.open(budget, adjacency="replace-one", records=len(private))
            result = pate(
                fit, X[private], y[private], X[public], account=dataset.run("pate"),
                teachers=TEACHERS, classes=CLASSES, mechanism=mechanism,
            )  # fmt: skip
            known = result.answered
            right = np.mean(result.labels[known] == y[public[known]])
            student = fit(X[public[known]], result.labels[known])
            print(
                f"{name}: asked for {len(result.labels)} labels, got {len(known)}, {right:.1%} right; "
                f"student {np.mean(student(X[test]) == y[test]):.1%} right; "
                f"{result.stop_reason}, budget left {result.remaining['fraction']:.1%}"
            )


if __name__ == "__main__":
    main()
