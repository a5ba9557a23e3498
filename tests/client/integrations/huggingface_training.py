"""Trainings by the Trainer of transformers, also as ranks of one."""

import copy
from pathlib import Path
from typing import Any

import torch
import transformers

from dpledger_client import Dataset
from dpledger_client.integrations.huggingface import make_trainer
from tests.client.integrations.opacus_training import BATCH, NOISE, RECORDS, images
from tests.client.integrations.trainers import CLIP, Moves, linear


class Classifier(torch.nn.Module):  # type: ignore[misc]
    """A model in the manner of transformers."""

    def __init__(self) -> None:
        super().__init__()
        self.net = linear()

    def forward(self, pixel_values: Any, labels: Any = None) -> dict[str, Any]:
        return {"logits": self.net(pixel_values)}


class Records(torch.utils.data.Dataset[dict[str, Any]]):  # type: ignore[misc]
    """Pictures as dictionaries."""

    def __init__(self, number: int = RECORDS) -> None:
        self.pictures, self.labels = images(number).tensors

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, place: int) -> dict[str, Any]:
        return {"pixel_values": self.pictures[place], "labels": self.labels[place]}


def arguments(folder: Any, **options: Any) -> Any:
    """Quiet settings."""
    given = {
        "per_device_train_batch_size": BATCH,
        "num_train_epochs": 1,
        "max_grad_norm": CLIP,
        "learning_rate": 0.01,
        "use_cpu": True,
        "report_to": "none",
        "save_strategy": "no",
        "disable_tqdm": True,
        **options,
    }
    return transformers.TrainingArguments(output_dir=str(folder), **given)


class Job:
    """A private trainer."""

    def __init__(
        self, dataset: Dataset, folder: Any, *, data: Any = None, given: Any = None, **options: Any
    ) -> None:
        self.model = Classifier()
        self.start = copy.deepcopy(self.model.net)
        self.trainer = make_trainer(
            dataset.run("job"),
            noise_multiplier=NOISE,
            **{
                "model": self.model,
                "args": arguments(folder, **options),
                "train_dataset": data or Records(),
                **(given or {}),
            },
        )
        self.moves = Moves(self.trainer.accountant.optimizer)

    @property
    def steps(self) -> int:
        return int(self.trainer.state.global_step)


def report(dataset: Dataset, folder: Path, ranks: int, parts: int = 1, **options: Any) -> dict[str, Any]:
    """What one of several ranks made of two epochs."""
    torch.manual_seed(1)
    job = Job(
        dataset,
        folder,
        num_train_epochs=2,
        per_device_train_batch_size=BATCH // ranks // parts,
        gradient_accumulation_steps=parts,
        given=options,
    )
    job.trainer.train()
    total = sum(value.double().sum().item() for value in job.model.parameters())
    return {
        "moves": job.moves.made,
        "steps": job.steps,
        "refused": job.trainer.refusal is not None,
        "sum": total,
    }
