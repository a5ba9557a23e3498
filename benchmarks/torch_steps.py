"""A private step of TorchModule against one of Opacus, on networks of MNIST's size and random data.

Both train the same network on the same records, in Poisson batches of 256 expected out of 60,000, with the
same clipping and noise. Ours is a whole step of ``minimize``: the charge on a ledger in a file, the sample,
the gradient, exact noise and the move. Opacus' is the sample, by indexing tensors instead of its loader,
forward and backward pass, and its optimizer's step with noise of torch's generator; it asks nobody. The
trainings take turns after every few steps; ratios are medians over these turns, of processor seconds, since
all work on one thread. The last line is against Opacus' default, ``hooks``. Its ``ghost`` and our gradient
without sample, charge and noise are shown beside it. Run by ``make bench-torch``.
"""

import statistics
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from opacus import PrivacyEngine
from torch import nn

from dpledger_client import Ledger
from dpledger_client.objectives.torch_module import TorchModule
from dpledger_client.optimizers import minimize
from dpledger_client.optimizers.methods.dp_sgd import DPSGD

RECORDS, BATCH, CLASSES, SIDE = 60_000, 256, 10, 28
CLIP, NOISE, ETA = 1.0, 1.1, 0.05
TURN, TURNS, WARM_TURNS = 4, 12, 2
GOAL = 1.0
MODES = ("hooks", "ghost")
BUDGET = {"accounting": "rdp-curve", "orders": [2.0, 8.0, 32.0], "epsilons": [1e9] * 3}


def mlp() -> Any:
    """784, 256, 256, 10."""
    return nn.Sequential(
        nn.Flatten(),
        nn.Linear(SIDE * SIDE, 256),
        nn.ReLU(),
        nn.Linear(256, 256),
        nn.ReLU(),
        nn.Linear(256, CLASSES),
    )


def cnn() -> Any:
    """The network of Opacus' MNIST example."""
    return nn.Sequential(
        nn.Conv2d(1, 16, 8, 2, padding=3),
        nn.ReLU(),
        nn.MaxPool2d(2, 1),
        nn.Conv2d(16, 32, 4, 2),
        nn.ReLU(),
        nn.MaxPool2d(2, 1),
        nn.Flatten(),
        nn.Linear(32 * 4 * 4, 32),
        nn.ReLU(),
        nn.Linear(32, CLASSES),
    )


NETWORKS: dict[str, Callable[[], Any]] = {"mlp": mlp, "cnn": cnn}


def opacus_steps(network: Any, X: Any, y: Any, mode: str) -> Iterator[None]:
    """Opacus' training, which pauses after each turn."""
    *made, _loader = PrivacyEngine().make_private(
        module=network,
        optimizer=torch.optim.SGD(network.parameters(), lr=ETA),
        data_loader=torch.utils.data.DataLoader(torch.utils.data.TensorDataset(X, y), batch_size=BATCH),
        noise_multiplier=NOISE,
        max_grad_norm=CLIP,
        grad_sample_mode=mode,
        criterion=nn.CrossEntropyLoss(),
    )
    model, optimizer = made[:2]
    criterion = made[2] if mode == "ghost" else nn.CrossEntropyLoss()
    while True:
        for _ in range(TURN):
            rows = torch.nonzero(torch.rand(len(X)) < BATCH / RECORDS)[:, 0]
            optimizer.zero_grad()
            criterion(model(X[rows]), y[rows]).backward()
            optimizer.step()
        yield


class SideBySide:
    """The seconds of each turn of a training and of others, which wait meanwhile.

    Called after every iteration, as a progress bar is.
    """

    def __init__(self, others: Mapping[str, Iterator[None]]) -> None:
        self._others = others
        self.seconds: dict[str, list[float]] = {name: [] for name in ("ours", *others)}
        self._since = time.process_time()

    def __call__(self, done: int, _planned: int | None, _remaining: Mapping[str, Any]) -> None:
        if done % TURN:
            return
        self.seconds["ours"].append(time.process_time() - self._since)
        for name, other in self._others.items():
            started = time.process_time()
            next(other)
            self.seconds[name].append(time.process_time() - started)
        self._since = time.process_time()

    def median(self, name: str) -> float:
        """Seconds per step."""
        return statistics.median(self.seconds[name][WARM_TURNS:]) / TURN

    def ratio(self, name: str) -> float:
        """Ours over another's."""
        pairs = zip(self.seconds["ours"], self.seconds[name], strict=True)
        return statistics.median([one / other for one, other in pairs][WARM_TURNS:])


def measure(name: str, ledger: Ledger) -> float:
    """How many times longer our step takes than the faster of Opacus'."""
    random = np.random.default_rng(7)
    X = random.random((RECORDS, 1, SIDE, SIDE), dtype=np.float32)
    y = random.integers(0, CLASSES, RECORDS)
    torch.manual_seed(7)
    tensors = torch.as_tensor(X), torch.as_tensor(y)
    clock = SideBySide({mode: opacus_steps(NETWORKS[name](), *tensors, mode) for mode in MODES})
    method = DPSGD(TURN * TURNS, batch_size=BATCH, clip=CLIP, noise_multiplier=NOISE, step_size=ETA)
    account = ledger.dataset(name).open(BUDGET, records=RECORDS).run("bench")
    objective = TorchModule(NETWORKS[name](), classes=CLASSES)
    made = minimize(objective, X, y, account=account, method=method, progress=clock)
    if made.iterations != method.steps:
        raise RuntimeError(f"stopped after {made.iterations} steps: {made.message}")
    for each in clock.seconds:
        print(f"{name:4} {each:14} {1e3 * clock.median(each):8.1f} ms per step")
    print(f"{name:4} {'our gradient':14} {1e3 * gradient_seconds(objective, X[:BATCH], y[:BATCH]):8.1f} ms")
    print(f"{name:4} against ghost  {clock.ratio('ghost'):8.3f}")
    return clock.ratio("hooks")


def gradient_seconds(objective: TorchModule, X: Any, y: Any) -> float:
    """What the clipped gradient alone takes."""
    w, found = objective.initial(X, y), []
    for _ in range(TURNS):
        started = time.process_time()
        objective.clipped_gradient_sum(w, X, y, CLIP)
        found.append(time.process_time() - started)
    return statistics.median(found)


def main() -> None:
    warnings.simplefilter("ignore")  # Opacus' own, about its noise and its hooks
    torch.set_num_threads(1)
    print(f"{RECORDS:,} records, batches of {BATCH}, {TURNS - WARM_TURNS} turns of {TURN} steps")
    with tempfile.TemporaryDirectory() as folder, Ledger.embedded(Path(folder) / "ledger.db") as ledger:
        ratios = {name: measure(name, ledger) for name in NETWORKS}
    print("ratio " + " ".join(f"{name}={value:.3f}" for name, value in ratios.items()))
    sys.exit(any(value > GOAL for value in ratios.values()))


if __name__ == "__main__":
    main()
