"""A-DDP: sixty participants with budgets of their own train together and leave when these end.

Run it against `make run` with the token in DPLEDGER_TOKEN (and the address in DPLEDGER_URL, if another),
or without a service: python examples/distributed.py --embedded budget.db
"""

import secrets

import numpy as np

from connection import connected
from dpledger_client.objectives import Logistic
from dpledger_client.optimizers import Iterate, minimize
from dpledger_client.optimizers.methods.a_ddp import ADDP, planned_noise

PARTICIPANTS, RECORDS, FEATURES = 60, 40, 5
BUDGETS = (1.0, 2.0, 4.0)
DELTA, PLANNED_ROUNDS, BATCH = 1e-6, 100, 10


def main() -> None:
    """Open a partition for each participant, train, and print who still takes part."""
    random = np.random.default_rng(0)
    X = [random.normal(size=(RECORDS, FEATURES)) / np.sqrt(FEATURES) for _ in range(PARTICIPANTS)]
    y = [np.where(rows @ np.arange(1.0, FEATURES + 1.0) > 0.0, 1.0, -1.0) for rows in X]
    with connected(__doc__) as ledger:
        dataset = ledger.dataset(f"distributed-{secrets.token_hex(4)}")
        # A record stays with its participant, so that nobody's budget is touched by another's records.
        dataset.open(
            {"accounting": "rdp", "epsilon": max(BUDGETS), "delta": DELTA},
            adjacency="replace-one",
            partition_key="fixed",
        )
        names = []
        for epsilon in BUDGETS:
            budget = {"accounting": "rdp", "epsilon": epsilon, "delta": DELTA}
            names += dataset.open_partitions(PARTICIPANTS // len(BUDGETS), budget)
        accounts = [dataset.run("a-ddp", partition=name) for name in names]
        noise = planned_noise(ledger, max(BUDGETS), DELTA, PLANNED_ROUNDS, records=RECORDS, batch_size=BATCH)
        print(f"noise multiplier {noise:.2f}, planned for {PLANNED_ROUNDS} rounds at epsilon {max(BUDGETS)}")
        result = minimize(
            Logistic(),
            X,
            y,
            account=accounts,
            method=ADDP(150, 1.0, noise, 1.0, batch_size=BATCH),
            callback=_shown,
        )
        rounds = [sum(charge.partition == name for charge in result.charges) for name in names]
        for epsilon, some in zip(BUDGETS, np.split(np.array(rounds), len(BUDGETS)), strict=True):
            print(f"a budget of epsilon {epsilon}: {some.min()} to {some.max()} rounds")
        entries = sum(1 for _ in dataset.entries(kind="authorized"))
        print(f"{result.stop_reason}: {sum(rounds)} rounds of participants, {entries} entries in the ledger")
        accuracy = np.mean(np.sign(np.vstack(X) @ result.w) == np.concatenate(y))
        print(f"accuracy {accuracy:.3f}")


def _shown(iterate: Iterate) -> None:
    if iterate.iteration % 5 == 1:
        print(f"round {iterate.iteration}: {iterate.details['participants']} participants")


if __name__ == "__main__":
    main()
