"""Logistic regression by Opacus; run in an environment that has it.

Reads rows and labels from ``.npz`` files and writes one line of JSON for each fit. The noise is given: see
:mod:`benchmarks.utility.noise`. Step sizes are those that were best on simulated tables.
"""

import json
import sys
import warnings
from typing import Any

import numpy as np
import torch
from opacus import PrivacyEngine
from torch.utils.data import DataLoader, TensorDataset

BATCH, EPOCHS, CLIP = 2048, 20, 1.0
RATES = {
    "sgd": {0.05: 0.1, 0.1: 0.3, 0.4: 1.0, 1.6: 10.0},
    "adam": {0.05: 0.03, 0.1: 0.1, 0.4: 0.1, 1.6: 0.1},
}
"""The best of a grid of factors of about three on simulated tables, for 320 noisy steps in numpy."""


def fit(name: str, rate: float, noise: float, X: Any, y: Any, seed: int) -> Any:
    """Weights, the intercept last."""
    torch.manual_seed(seed)
    model = torch.nn.Linear(X.shape[1], 1)
    torch.nn.init.zeros_(model.weight)
    torch.nn.init.zeros_(model.bias)
    maker = {
        "sgd": lambda p: torch.optim.SGD(p, lr=rate, momentum=0.9),
        "adam": lambda p: torch.optim.Adam(p, lr=rate),
    }
    loader = DataLoader(TensorDataset(X, y), batch_size=BATCH)
    engine = PrivacyEngine(accountant="prv")
    private, optimizer, batches = engine.make_private(
        module=model,
        optimizer=maker[name](model.parameters()),
        data_loader=loader,
        noise_multiplier=noise,
        max_grad_norm=CLIP,
    )
    loss = torch.nn.BCEWithLogitsLoss()
    for _ in range(EPOCHS):
        for rows, labels in batches:
            optimizer.zero_grad()
            if len(rows):
                loss(private(rows)[:, 0], labels).backward()
                optimizer.step()
    return np.append(model.weight.detach().numpy().ravel(), model.bias.detach().numpy())


def main() -> None:
    """``with_opacus.py EPSILON NOISE SEED=DATA … [NAME:RATE …]``."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    epsilon, noise = float(sys.argv[1]), float(sys.argv[2])
    seeds = [argument.split("=") for argument in sys.argv[3:] if "=" in argument]
    named = [argument.split(":") for argument in sys.argv[3:] if "=" not in argument]
    chosen = [(name, float(rate)) for name, rate in named] or [
        (n, rates[epsilon]) for n, rates in RATES.items()
    ]
    for seed, path in seeds:
        with np.load(path) as data:
            X = torch.tensor(data["X"], dtype=torch.float32)
            y = torch.tensor(data["y"] > 0, dtype=torch.float32)
        for name, rate in chosen:
            w = fit(name, rate, noise, X, y, int(seed))
            print(
                json.dumps({"method": f"opacus {name}", "rate": rate, "seed": int(seed), "w": w.tolist()}),
                flush=True,
            )


if __name__ == "__main__":
    main()
