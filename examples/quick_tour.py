"""A quick tour: train privately on scikit-learn's breast-cancer data, and watch the budget go.

The cells (# %%) run one by one in an editor, or all at once: against `make run` with the token in
DPLEDGER_TOKEN (and the address in DPLEDGER_URL, if another), or without a service:

    python examples/quick_tour.py --embedded budget.db
"""

# %% What we need: the client, and scikit-learn for its data.
import secrets
from pathlib import Path

import numpy as np
import plotly.graph_objects as go  # type: ignore[import-untyped]
from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import train_test_split

from connection import connected
from dpledger_client import BudgetExhausted, Gaussian
from dpledger_client.estimators import PrivateLogisticRegression
from dpledger_client.objectives import L2, Logistic
from dpledger_client.optimizers import Iterate, minimize
from dpledger_client.optimizers.methods.dp_sgd import DPSGD

ledger = connected(__doc__)

# %% The data. Their scale is not learnt from them, which would be a look: these are public largest values.
X, y = load_breast_cancer(return_X_y=True)
means = [30, 40, 200, 2500, 0.2, 0.4, 0.5, 0.2, 0.3, 0.1]
errors = [3, 5, 22, 550, 0.03, 0.14, 0.4, 0.05, 0.08, 0.03]
worst = [40, 50, 250, 4300, 0.22, 1.1, 1.25, 0.3, 0.7, 0.21]
largest = np.array(means + errors + worst)
X_train, X_test, y_train, y_test = train_test_split(X, y, test_size=0.25, random_state=0)
print(f"{len(X_train)} private records of {X_train.shape[1]} features")

# %% Somebody who may opens a dataset with a budget. From here on, what is spent is spent.
dataset = ledger.dataset(f"breast-cancer-{secrets.token_hex(4)}").open(
    {"accounting": "rdp", "epsilon": 3.0, "delta": 1e-4},
    records=len(X_train),
    description="A quick tour through scikit-learn's breast-cancer data",
)
print(f"budget: ε = {dataset.budget().limit['epsilon']} at δ = {dataset.budget().limit['delta']}")

# %% One noisy number: the ledger is asked first, and noise is drawn after its yes.
account = dataset.run("count")
malignant = account.release(Gaussian(sensitivity=1.0, noise_std=15.0), lambda: float(np.sum(y_train == 0)))
print(f"about {malignant:.0f} malignant cases, budget left {dataset.budget().fraction:.1%}")

# %% A model in one call: what it may cost, and what is public. A rule chooses the rest.
model = PrivateLogisticRegression(
    dataset.run("estimator"), spend=0.3, classes=(0, 1), bounds=[(0.0, most) for most in largest]
)
model.fit(X_train, y_train)
print(f"test accuracy {model.score(X_test, y_test):.3f}, budget left {dataset.budget().fraction:.1%}")

# %% Step by step and by hand, twice, with less noise: the second time the budget ends on the way.
scaled, test = ((2.0 * rows / largest - 0.8) / np.sqrt(len(largest)) for rows in (X_train, X_test))
paths: dict[str, list[float]] = {}
signs = 2.0 * y_train - 1.0
for noise in (3.0, 1.5):
    path = paths[f"noise multiplier {noise}"] = [dataset.budget().fraction]

    def note(iterate: Iterate, path: list[float] = path) -> None:
        """Keep what the ledger said is left."""
        path.append(float(iterate.remaining["fraction"]))

    result = minimize(
        Logistic(L2(1e-3)),
        scaled,
        signs,
        account=dataset.run(f"sgd-{noise}"),
        method=DPSGD(steps=60, batch_size=64, clip=1.0, noise_multiplier=noise, step_size=4.0),
        callback=note,
    )
    accuracy = np.mean((test @ result.w > 0.0) == y_test)
    print(
        f"noise multiplier {noise}: {result.iterations} steps, {result.stop_reason}, "
        f"test accuracy {accuracy:.3f}, budget left {path[-1]:.1%}"
    )

# %% What is refused is not looked at. What was not is in the ledger, in a chain that shows any change.
try:
    dataset.run("greedy").release(Gaussian(sensitivity=1.0, noise_std=0.1), lambda: float(len(X_train)))
except BudgetExhausted as refused:
    print(f"refused: {refused}")
for run in dataset.runs():
    print(f"  run {run['run']:10} {run['entries']:3} entries, {run['fraction']:6.1%} of the budget")
print(f"chain of entries valid: {dataset.verification()['valid']}")

# %% The path of the budget, drawn.
figure = go.Figure()
first = 0
for name, path in paths.items():
    figure.add_scatter(x=np.arange(first, first + len(path)), y=path, mode="lines", name=name)
    first += len(path) - 1
figure.update_layout(title="What was left of the budget", xaxis_title="step", yaxis_title="fraction left")
figure.update_yaxes(range=[0, 1])
chart = Path("budget_path.html")
figure.write_html(chart)
print(f"the path of the budget is drawn in {chart}")
ledger.close()
