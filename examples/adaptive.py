"""DP-AGD: gradient descent that decides for itself what each iteration may cost.

Run it against `make run` with the token in DPLEDGER_TOKEN (and the address in DPLEDGER_URL, if another),
or without a service: python examples/adaptive.py --embedded budget.db
"""

import secrets

import numpy as np

from connection import connected
from dpledger_client.objectives import L2, Logistic
from dpledger_client.optimizers import Iterate, minimize

RECORDS, FEATURES = 5_000, 10


def show(iterate: Iterate) -> None:
    """Print an iteration."""
    details, left = iterate.details, iterate.remaining["fraction"]
    print(
        f"{iterate.iteration:3}  step {details['step_size']:5.2f}  gradient ρ {details['gradient_rho']:.5f}  "
        f"measured {details['measurements']}×  budget left {left:6.1%}"
    )


def main() -> None:
    """Open a dataset, train, and print the way of the budget."""
    random = np.random.default_rng(0)
    X = random.normal(size=(RECORDS, FEATURES)) / np.sqrt(FEATURES)
    y = np.where(X @ np.arange(1.0, FEATURES + 1.0) + 0.5 * random.normal(size=RECORDS) > 0.0, 1.0, -1.0)
    with connected(__doc__) as ledger:
        dataset = ledger.dataset(f"adaptive-{secrets.token_hex(4)}")
        dataset.open({"accounting": "zcdp", "epsilon": 1.0, "delta": 1e-6}, records=RECORDS)
        objective = Logistic(L2(1e-3))
        result = minimize(
            objective,
            X,
            y,
            account=dataset.run("dp-agd"),
            method="dp-agd",
            gradient_rho=5e-4,
            selection_rho=3e-4,
            gradient_clip=1.0,
            loss_clip=2.0,
            callback=show,
        )
        budget = dataset.budget()
    print(f"stopped: {result.stop_reason} after {result.iterations} iterations")
    print(f"budget: ρ {budget.spent['rho']:.5f} of {budget.limit['rho']:.5f} spent")
    print(f"loss {objective.loss(np.zeros(FEATURES), X, y):.4f} -> {objective.loss(result.w, X, y):.4f}")
    print(f"accuracy {np.mean(np.sign(X @ result.w) == y):.3f}")


if __name__ == "__main__":
    main()
