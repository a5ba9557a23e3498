"""Lightning and the Trainer of transformers on two ranks: run by ``make test-torch``."""

import json
from typing import Any

import pytest
import torch

from dpledger_client import Ledger
from tests.client.integrations.opacus_training import STEPS
from tests.client.integrations.trainer_ranks import CASES, name_of, train_as_rank
from tests.client.integrations.trainers import RECORDS, charged

TRAINERS = ("lightning", "huggingface")


@pytest.fixture(scope="module")
def in_ranks(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[int, list[dict[str, Any]]]]:
    """For each case what the ledger charged, and what each of two ranks reports."""
    folder = tmp_path_factory.mktemp("ranks")
    names = [name_of(trainer, case) for trainer in TRAINERS for case in CASES]
    with Ledger.embedded(folder / "ledger.db") as ledger:
        for name in names:
            budget = {"accounting": "rdp", "epsilon": 5.0 if "refused" in name else 50.0, "delta": 1e-5}
            ledger.dataset(name).open(budget, records=RECORDS)
        torch.multiprocessing.spawn(train_as_rank, (str(folder), 2), nprocs=2)
        reports = [json.loads((folder / f"rank-{rank}.json").read_text()) for rank in range(2)]
        return {name: (charged(ledger.dataset(name)), [each[name] for each in reports]) for name in names}


@pytest.mark.parametrize("case", ["plain", "parts"])
@pytest.mark.parametrize("trainer", TRAINERS)
def test_two_ranks_are_charged_once_for_a_step(in_ranks: dict[str, Any], trainer: str, case: str) -> None:
    found, (first, second) = in_ranks[name_of(trainer, case)]

    assert first == second == {"moves": 2 * STEPS, "steps": 2 * STEPS, "refused": False, "sum": first["sum"]}
    assert found == 2 * STEPS


@pytest.mark.parametrize("trainer", TRAINERS)
def test_a_refusal_stops_all_ranks(in_ranks: dict[str, Any], trainer: str) -> None:
    found, (first, second) = in_ranks[name_of(trainer, "refused")]

    assert first == second
    assert first["refused"]
    assert 0 < found == first["moves"] == first["steps"] < 2 * STEPS
