"""Logistic regression by Opacus, with its PRV accountant; run in an environment that has it.

Reads rows and labels from an ``.npz`` file and writes one line of JSON for each fit. Settings are those that
were best on the simulated tables of :mod:`benchmarks.simulations`.
"""

import json
import sys
import warnings
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from opacus import PrivacyEngine
from opacus.accountants.utils import get_noise_multiplier
from torch.utils.data import DataLoader, TensorDataset

BATCH, EPOCHS, CLIP, DELTA = 2048, 20, 1.0, 1e-8
RATES = {
    "sgd": {0.05: 1.0, 0.1: 2.0, 0.4: 4.0, 1.6: 8.0},
    "adam": {0.05: 0.01, 0.1: 0.02, 0.4: 0.05, 1.6: 0.1},
}


@lru_cache
def noise_for(epsilon: float, records: int) -> float:
    """The noise multiplier by the PRV accountant."""
    found: float = get_noise_multiplier(
        target_epsilon=epsilon,
        target_delta=DELTA,
        sample_rate=min(1.0, BATCH / records),
        epochs=EPOCHS,
        accountant="prv",
    )
    return found


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
    """``with_opacus.py EPSILON SEED=DATA … [NAME:RATE …]``."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    epsilon = float(sys.argv[1])
    seeds = [argument.split("=") for argument in sys.argv[2:] if "=" in argument]
    named = [argument.split(":") for argument in sys.argv[2:] if "=" not in argument]
    chosen = [(name, float(rate)) for name, rate in named] or [
        (n, rates[epsilon]) for n, rates in RATES.items()
    ]
    for seed, path in seeds:
        with np.load(path) as data:
            X = torch.tensor(data["X"], dtype=torch.float32)
            y = torch.tensor(data["y"] > 0, dtype=torch.float32)
        noise = noise_for(epsilon, len(X))
        for name, rate in chosen:
            w = fit(name, rate, noise, X, y, int(seed))
            print(
                json.dumps({"method": f"opacus {name}", "rate": rate, "seed": int(seed), "w": w.tolist()}),
                flush=True,
            )


if __name__ == "__main__":
    main()
