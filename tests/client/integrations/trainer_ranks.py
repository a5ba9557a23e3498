"""One of several processes in which Lightning and the Trainer of transformers train together."""

import json
import os
import warnings
from pathlib import Path
from typing import Any

import torch

from dpledger_client import Ledger
from tests.client.integrations import huggingface_training, lightning_training

__all__ = ["CASES", "name_of", "train_as_rank"]

CASES: dict[str, dict[str, Any]] = {"plain": {}, "parts": {"parts": 2}, "refused": {"reserve": 3}}


def name_of(trainer: str, case: str) -> str:
    """The dataset of a case."""
    return f"{trainer}-{case}"


def train_as_rank(rank: int, folder: str, ranks: int) -> None:
    """Write what a rank made of each case to its own file."""
    torch.set_num_threads(1)
    # As torchrun sets them; nobody meets there, since the group is made before.
    names = {"RANK": rank, "LOCAL_RANK": rank, "NODE_RANK": 0, "WORLD_SIZE": ranks, "MASTER_PORT": 1}
    given = {name: str(value) for name, value in names.items()}
    os.environ.update({**given, "MASTER_ADDR": "127.0.0.1", "GLOO_SOCKET_IFNAME": "lo"})
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=ranks
    )
    warnings.simplefilter("ignore")
    reports = {}
    with Ledger.embedded(Path(folder) / "ledger.db") as ledger:
        for case, options in CASES.items():
            name = name_of("lightning", case)
            reports[name] = lightning_training.report(ledger.dataset(name), ranks, **options)
            name = name_of("huggingface", case)
            reports[name] = huggingface_training.report(
                ledger.dataset(name), Path(folder) / case, ranks, **options
            )
    (Path(folder) / f"rank-{rank}.json").write_text(json.dumps(reports))
