"""DP-BLSGD: step sizes from a private backtracking line search, on fresh samples or on one.

Run it against `make run` with the token in DPLEDGER_TOKEN (and the address in DPLEDGER_URL, if another),
or without a service: python examples/line_search.py --embedded budget.db
"""

import secrets

import numpy as np

from connection import connected
from dpledger_client.objectives import L2, Logistic
from dpledger_client.optimizers import Result, minimize

RECORDS, FEATURES = 5_000, 10
BUDGET = {"accounting": "rdp", "epsilon": 1.0, "delta": 1e-6}


def show(result: Result, name: str, loss: float) -> None:
    """Print a training."""
    sizes = [record.details.get("step_size") for record in result.history]
    print(f"{name}: {result.stop_reason} after {result.iterations} iterations, loss {loss:.4f}")
    print("    step sizes " + " ".join(f"{size:.2f}" for size in sizes if size is not None))
    print(f"    budget left {result.remaining['fraction']:.1%}")


def main() -> None:
    """Open a dataset, train, and print the way of the budget."""
    random = np.random.default_rng(0)
    X = random.normal(size=(RECORDS, FEATURES)) / np.sqrt(FEATURES)
    y = np.where(X @ np.arange(1.0, FEATURES + 1.0) + 0.5 * random.normal(size=RECORDS) > 0.0, 1.0, -1.0)
    objective = Logistic(L2(1e-3))
    with connected(__doc__) as ledger:
        for looks in ("fresh", "joint", "again"):
            dataset = ledger.dataset(f"line-search-{looks}-{secrets.token_hex(4)}")
            dataset.open(BUDGET, records=RECORDS)
            result = minimize(
                objective,
                X,
                y,
                account=dataset.run("dp-blsgd"),
                method="dp-blsgd",
                rate=0.1,
                looks=looks,
                gradient_rho=0.05,
                search_budget=0.5,
                gradient_clip=1.0,
                loss_clip=1.0,
                step_size=16.0,
                steps=25,
            )
            show(result, looks, objective.loss(result.w, X, y))


if __name__ == "__main__":
    main()
