"""NSGD and RSGD-AR: train without noise on mini-batches of a secret order, and release the result once.

Run it against `make run` with the token in DPLEDGER_TOKEN (and the address in DPLEDGER_URL, if another),
or without a service: python examples/permuted.py --embedded budget.db
"""

import secrets

import numpy as np

from connection import connected
from dpledger_client.objectives import L2, Logistic
from dpledger_client.optimizers import Method, minimize
from dpledger_client.optimizers.methods.nsgd import NSGD
from dpledger_client.optimizers.methods.rsgd_ar import RSGDAR

RECORDS, FEATURES = 5_000, 10
METHODS: dict[str, Method] = {
    "nsgd in the data's order": NSGD(20, 10, step_size=2.0, noise_multiplier=6.0, permute=False),
    "nsgd in a secret order": NSGD(20, 10, step_size=2.0, noise_multiplier=6.0),
    "rsgd-ar": RSGDAR(20, 10, 5, step_size=2.0, noise_multiplier=6.0),
}


def main() -> None:
    """Open a dataset, train, and print the way of the budget."""
    random = np.random.default_rng(0)
    X = random.normal(size=(RECORDS, FEATURES))
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    y = np.where(X @ np.arange(1.0, FEATURES + 1.0) + 0.5 * random.normal(size=RECORDS) > 0.0, 1.0, -1.0)
    objective = Logistic(L2(1e-2))
    with connected(__doc__) as ledger:
        dataset = ledger.dataset(f"permuted-{secrets.token_hex(4)}")
        dataset.open(
            {"accounting": "rdp", "epsilon": 2.0, "delta": 1e-6}, adjacency="replace-one", records=RECORDS
        )
        for name, method in METHODS.items():
            result = minimize(objective, X, y, account=dataset.run(method.name), method=method)
            details = result.history[0].details
            print(
                f"{name}: sensitivity {details['sensitivity']:.5f}, noise {details['noise_std']:.5f}, "
                f"loss {objective.loss(result.w, X, y):.4f}, "
                f"accuracy {np.mean(np.sign(X @ result.w) == y):.3f}, "
                f"budget left {result.remaining['fraction']:.1%}"
            )


if __name__ == "__main__":
    main()
