"""ssADMM and mpADMM: logistic regression with an L1 penalty, which is not smooth, on breast cancer data.

Run it against `make run` with the token in DPLEDGER_TOKEN (and the address in DPLEDGER_URL, if another),
or without a service: python examples/admm.py --embedded budget.db
"""

import secrets

import numpy as np
from sklearn.datasets import load_breast_cancer

from connection import connected
from dpledger_client.objectives import L1, Logistic
from dpledger_client.optimizers import Method, minimize
from dpledger_client.optimizers.methods.mpadmm import ModelPerturbationADMM
from dpledger_client.optimizers.methods.ssadmm import SubsampledADMM

METHODS: dict[str, Method] = {
    "ssadmm": SubsampledADMM(300, clip=0.5, noise_multiplier=2.0, rate=0.05, step_size=2.0),
    "mpadmm": ModelPerturbationADMM(20, clip=0.5, noise_std=0.02, step_size=5.0),
    "mpadmm, sparse": ModelPerturbationADMM(20, clip=0.5, noise_std=0.02, step_size=5.0, output="z"),
}


def main() -> None:
    """Train each on a dataset of its own, and print the way of the budget."""
    rows, classes = load_breast_cancer(return_X_y=True)
    # Scales that are known beforehand would be public; these stand for them.
    X = (rows - rows.mean(axis=0)) / rows.std(axis=0) / np.sqrt(rows.shape[1])
    y = np.where(classes == 1, 1.0, -1.0)
    objective = Logistic(L1(0.01))
    with connected(__doc__) as ledger:
        for name, method in METHODS.items():
            dataset = ledger.dataset(f"admm-{secrets.token_hex(4)}")
            dataset.open({"accounting": "rdp", "epsilon": 4.0, "delta": 1e-5}, records=len(X))
            result = minimize(objective, X, y, account=dataset.run(method.name), method=method, reserve=30)
            shown = [record.charges[-1].cost.epsilons[0] for record in result.history]
            print(
                f"{name}: {result.iterations} steps ({result.stop_reason}), "
                f"loss {objective.loss(result.w, X, y):.4f}, "
                f"accuracy {np.mean(np.sign(X @ result.w) == y):.3f}, "
                f"{np.count_nonzero(result.w)} of {result.w.size} weights, "
                f"a step costs {max(shown):.2g} at the lowest order, "
                f"budget left {result.remaining['fraction']:.1%}"
            )


if __name__ == "__main__":
    main()
