"""What trainings by Lightning and by transformers have in common in their tests."""

import itertools
import textwrap
from pathlib import Path
from typing import Any

import torch

from dpledger_client import Dataset, Ledger
from tests.client.integrations.opacus_training import BATCH, RECORDS, charged, images

__all__ = [
    "BATCH",
    "CLIP",
    "RECORDS",
    "Moves",
    "charged",
    "clipped_sum",
    "dataset_of",
    "documented",
    "images",
    "linear",
    "same",
    "values",
]

CLIP = 1.0
_NUMBERS = itertools.count()


def dataset_of(ledger: Ledger, epsilon: float = 50.0, **facts: Any) -> Dataset:
    budget = {"accounting": "rdp", "epsilon": epsilon, "delta": 1e-5}
    return ledger.dataset(f"trainer-{next(_NUMBERS)}").open(budget, **{"records": RECORDS, **facts})


def linear() -> Any:
    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(28 * 28, 10))


def values(model: Any) -> list[Any]:
    return [value.detach().clone() for value in model.parameters()]


def same(left: list[Any], right: list[Any]) -> bool:
    return all(torch.equal(one, other) for one, other in zip(left, right, strict=True))


class Moves:
    """How often an optimizer moved, and the sums of clipped gradients that it added noise to."""

    def __init__(self, optimizer: Any) -> None:
        self.made = 0
        self.sums: list[Any] = []
        optimizer.original_optimizer.register_step_post_hook(self._count)
        add_noise = optimizer.add_noise

        def noted() -> None:
            self.sums.append(torch.cat([value.summed_grad.ravel().clone() for value in optimizer.params]))
            add_noise()

        optimizer.add_noise = noted

    def _count(self, *_given: Any) -> None:
        self.made += 1


def clipped_sum(module: Any, pictures: Any, labels: Any) -> Any:
    """The sum of clipped gradients, one backward pass per record."""
    total = 0.0
    for picture, label in zip(pictures, labels, strict=True):
        loss = torch.nn.functional.cross_entropy(module(picture[None]), label[None])
        found = torch.cat([each.ravel() for each in torch.autograd.grad(loss, list(module.parameters()))])
        total = total + found * min(1.0, CLIP / float(found.norm()))
    return total


def documented(heading: str) -> str:
    """The script under a heading of ``docs/pytorch.md``."""
    page = Path(__file__).resolve().parents[3] / "docs" / "pytorch.md"
    section = page.read_text(encoding="utf-8").partition(f"\n## {heading}\n\n")[2]
    lines = itertools.takewhile(lambda line: not line or line.startswith("    "), section.splitlines())
    return textwrap.dedent("\n".join(lines))
