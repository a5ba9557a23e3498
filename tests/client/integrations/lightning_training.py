"""Trainings by Lightning, also as ranks of one."""

import copy
import warnings
from typing import Any

import lightning
import torch

from dpledger_client import Dataset
from dpledger_client.integrations.lightning import ledger_callback
from dpledger_client.integrations.opacus import make_private
from tests.client.integrations.opacus_training import BATCH, NOISE, engine, images
from tests.client.integrations.trainers import CLIP, Moves, linear

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from opacus.distributed import DifferentiallyPrivateDistributedDataParallel

QUIET = {
    "logger": False,
    "enable_progress_bar": False,
    "enable_model_summary": False,
    "accelerator": "cpu",
    "enable_checkpointing": False,
}


class Task(lightning.LightningModule):  # type: ignore[misc]
    """A classifier."""

    def __init__(self, net: Any) -> None:
        super().__init__()
        self.net = net
        self.optimizer = torch.optim.SGD(net.parameters(), lr=0.25)

    def training_step(self, batch: Any, _number: int) -> Any:
        pictures, labels = batch
        return torch.nn.functional.cross_entropy(self.net(pictures), labels)

    def configure_optimizers(self) -> Any:
        return self.optimizer


class Job:
    """A private task, and the trainer's callback."""

    def __init__(
        self, dataset: Dataset, *, net: Any = None, data: Any = None, batch_size: int = BATCH, **options: Any
    ) -> None:
        self.engine = engine()
        net = net or linear()
        self.start = copy.deepcopy(net)
        self.task = Task(net)
        loader = torch.utils.data.DataLoader(data or images(), batch_size=batch_size)
        made = make_private(
            self.engine,
            dataset.run("job"),
            module=self.task.net,
            optimizer=self.task.optimizer,
            data_loader=loader,
            noise_multiplier=NOISE,
            **{"max_grad_norm": CLIP, **options},
        )
        self.task.net, self.task.optimizer, self.loader = made[0], made[1], made[-1]
        self.moves = Moves(self.task.optimizer)
        self.callback = ledger_callback(self.engine)

    def fit(self, ckpt_path: Any = None, **options: Any) -> Any:
        given = {**QUIET, "max_epochs": 1, "callbacks": [self.callback], **options}
        trainer = lightning.Trainer(**given)
        trainer.fit(self.task, self.loader, ckpt_path=ckpt_path)
        return trainer


def report(dataset: Dataset, ranks: int, parts: int = 1, **options: Any) -> dict[str, Any]:
    """What one of several ranks made of two epochs."""
    torch.manual_seed(1)
    job = Job(dataset, net=DifferentiallyPrivateDistributedDataParallel(linear()), parts=parts, **options)
    trainer = job.fit(
        max_epochs=2,
        strategy="ddp",
        devices=ranks,
        accumulate_grad_batches=parts,
        use_distributed_sampler=False,
    )
    total = sum(value.double().sum().item() for value in job.task.parameters())
    return {
        "moves": job.moves.made,
        "steps": trainer.global_step,
        "refused": job.callback.refusal is not None,
        "sum": total,
    }
