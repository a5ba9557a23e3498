"""Trainings with the real Opacus: the network and the loop of its MNIST example, on data made here."""

import json
import os
import sys
import warnings
from pathlib import Path
from typing import Any

import torch
from torch import nn

from dpledger_client import BudgetExhausted, Dataset, Ledger
from dpledger_client.integrations.opacus import make_private

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from opacus import PrivacyEngine
    from opacus.distributed import DifferentiallyPrivateDistributedDataParallel

RECORDS, BATCH, NOISE = 400, 40, 0.8
STEPS = RECORDS // BATCH


def conv_net() -> Any:
    """The network of Opacus' ``examples/mnist.py``: two convolutions, two linear layers."""
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
        nn.Linear(32, 10),
    )


def images(records: int = RECORDS) -> Any:
    """Pictures of MNIST's shape in which the class is a bright row."""
    random = torch.Generator().manual_seed(7)
    labels = torch.randint(0, 10, (records,), generator=random)
    pictures = 0.3 * torch.randn(records, 1, 28, 28, generator=random)
    pictures[torch.arange(records), 0, 2 * labels + 4] += 3.0
    return torch.utils.data.TensorDataset(pictures, labels)


def train(model: Any, optimizer: Any, loader: Any, criterion: Any = None) -> None:
    """One epoch, as in the example."""
    model.train()
    criterion = criterion or nn.CrossEntropyLoss()
    for data, target in loader:
        optimizer.zero_grad()
        loss = criterion(model(data), target)
        loss.backward()
        optimizer.step()


class Job:
    """A private training of the example's network, with the number of moves that it made."""

    def __init__(
        self,
        dataset: Dataset,
        *,
        data: Any = None,
        batch_size: int = BATCH,
        noise: float = NOISE,
        module: Any = None,
        parameters: Any = None,
        private_engine: Any = None,
        workers: int = 0,
        **options: Any,
    ) -> None:
        module = module or conv_net()
        self.engine = private_engine or engine()
        self.moves = 0
        made = make_private(
            self.engine,
            dataset.run("job"),
            module=module,
            optimizer=torch.optim.SGD(parameters or module.parameters(), lr=0.25),
            data_loader=torch.utils.data.DataLoader(
                data or images(), batch_size=batch_size, num_workers=workers
            ),
            noise_multiplier=noise,
            **{"max_grad_norm": 1.0, **options},
        )
        self.model, self.optimizer, *criterion, self.loader = made
        self.criterion = criterion[0] if criterion else None
        self.optimizer.original_optimizer.register_step_post_hook(self._moved)

    @property
    def accountant(self) -> Any:
        return self.engine.accountant

    def epoch(self, loader: Any = None) -> None:
        train(self.model, self.optimizer, loader or self.loader, self.criterion)

    def _moved(self, *_given: Any) -> None:
        self.moves += 1


def engine() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return PrivacyEngine()


def charged(dataset: Dataset) -> int:
    """How many steps the ledger charged, single ones and those of settled reservations."""
    entries = list(dataset.entries())
    single = [entry for entry in entries if entry["kind"] == "authorized"]
    return len(single) + sum(int(entry["used"]) for entry in entries if entry["kind"] == "settled")


def train_as_rank(rank: int, folder: str, ranks: int, cases: dict[str, dict[str, Any]]) -> None:
    """One of several processes that train one model of each case; writes what it made to its own file."""
    torch.set_num_threads(1)
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=ranks
    )
    warnings.simplefilter("ignore")
    with Ledger.embedded(Path(folder) / "ledger.db") as ledger:
        reports = {name: _report(rank, ledger.dataset(name), **options) for name, options in cases.items()}
    (Path(folder) / f"rank-{rank}.json").write_text(json.dumps(reports))
    torch.distributed.destroy_process_group()


def _report(rank: int, dataset: Dataset, spoiled_rank: int | None = None, **options: Any) -> dict[str, Any]:
    # One seed on all ranks, as many scripts have it: batches must differ all the same.
    torch.manual_seed(1)
    job = Job(dataset, module=DifferentiallyPrivateDistributedDataParallel(conv_net()), **options)
    if rank == spoiled_rank:
        job.optimizer.expected_batch_size += 1
    refused = None
    try:
        with job.accountant:
            job.epoch()
            job.epoch()
    except (BudgetExhausted, ValueError) as error:
        refused = type(error).__name__
    total = sum(value.double().sum().item() for value in job.model.parameters())
    return {"moves": job.moves, "noted": len(job.accountant), "refused": refused, "sum": total}


def train_and_leave(database: str) -> None:
    """Train three steps of a reservation and end, without settling."""
    warnings.simplefilter("ignore")
    job = Job(Ledger.embedded(database).dataset("mnist"), reserve=50)
    for data, target in job.loader:
        job.optimizer.zero_grad()
        nn.CrossEntropyLoss()(job.model(data), target).backward()
        job.optimizer.step()
        if job.moves == 3:
            sys.exit()


if __name__ == "__main__":
    train_and_leave(sys.argv[1])
