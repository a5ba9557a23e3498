"""PrivBR, ListNet and ListMLE: learning to rank from the clicks of users.

Run it against `make run` with the token in DPLEDGER_TOKEN (and the address in DPLEDGER_URL, if another),
or without a service: python examples/ranking.py --embedded budget.db
"""

import secrets

import numpy as np

from connection import connected
from dpledger_client._arrays import Floats
from dpledger_client.objectives import BayesRank, LinearScorer, ListMLE, ListNet, MLPScorer
from dpledger_client.objectives.ranking import Ranking
from dpledger_client.optimizers import Method, minimize
from dpledger_client.optimizers.methods.noisy_gd import NoisyGradientDescent
from dpledger_client.optimizers.methods.priv_br import PrivBR
from dpledger_client.ranking_metrics import mean_average_precision, mean_ndcg

LISTS, FEATURES = 200, 6


def clicks(seed: int) -> tuple[list[Floats], list[Floats]]:
    """Eight documents a query, of which a user clicks the one that looks best, and seldom a second."""
    random = np.random.default_rng(seed)
    X = [random.normal(size=(8, FEATURES)) for _ in range(LISTS)]
    wanted = [documents @ np.arange(1.0, FEATURES + 1.0) + random.normal(size=8) for documents in X]
    return X, [
        (value >= np.sort(value)[-1 - (number % 5 == 0)]).astype(float) for number, value in enumerate(wanted)
    ]


def main() -> None:
    """Train each on a dataset of its own, and print the way of the budget."""
    X, y = clicks(0)
    tests = clicks(1)
    by_bound = PrivBR(X, 60, noise_multiplier=1.5, rate=0.1, step_size=3.0)
    spectral = PrivBR(X, 60, noise_multiplier=1.5, rate=0.1, step_size=3.0, spectral=True)
    by_clipping = NoisyGradientDescent(20, clip=2.0, noise_multiplier=6.0, step_size=1.0)
    trials: dict[str, tuple[Ranking, Method]] = {
        "priv-br": (BayesRank(LinearScorer(FEATURES)), by_bound),
        "priv-br, one click a list": (BayesRank(LinearScorer(FEATURES), single=True), by_bound),
        "priv-br, network": (BayesRank(MLPScorer(FEATURES, 8), single=True), spectral),
        "listnet, clipped": (ListNet(LinearScorer(FEATURES)), by_clipping),
        "listmle, clipped": (ListMLE(LinearScorer(FEATURES)), by_clipping),
    }
    with connected(__doc__) as ledger:
        for name, (objective, method) in trials.items():
            dataset = ledger.dataset(f"ranking-{secrets.token_hex(4)}")
            budget = {"accounting": "rdp", "epsilon": 3.0, "delta": 1e-4}
            dataset.open(budget, unit="list", records=LISTS)
            result = minimize(objective, X, y, account=dataset.run(method.name), method=method, reserve=30)
            scores = objective.scores(result.w, tests[0])
            print(
                f"{name}: NDCG@1 {mean_ndcg(scores, tests[1], 1):.3f}, "
                f"NDCG@4 {mean_ndcg(scores, tests[1], 4):.3f}, "
                f"MAP {mean_average_precision(scores, tests[1]):.3f}, "
                f"{result.iterations} steps, budget left {result.remaining['fraction']:.1%}"
            )


if __name__ == "__main__":
    main()
