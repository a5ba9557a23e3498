"""The real Trainer of transformers under a ledger: run by ``make test-torch``, which has it installed."""

import json
import logging
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from dpledger_client import Ledger
from tests.client.integrations.huggingface_training import Classifier, Job, Records, arguments
from tests.client.integrations.opacus_training import RECORDS, STEPS
from tests.client.integrations.trainers import charged, clipped_sum, dataset_of, documented, same, values

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(scope="module")
def ledger(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ledger]:
    with Ledger.embedded(Path(tmp_path_factory.mktemp("ledger")) / "ledger.db") as ledger:
        yield ledger


@pytest.mark.parametrize("given", [{}, {"reserve": 7}], ids=["single", "reserved"])
def test_each_optimizer_step_is_charged(ledger: Ledger, tmp_path: Path, given: dict[str, Any]) -> None:
    dataset = dataset_of(ledger)
    job = Job(dataset, tmp_path, num_train_epochs=2, given=given)
    job.trainer.train()

    assert charged(dataset) == job.moves.made == job.steps == len(job.trainer.accountant) == 2 * STEPS
    assert job.trainer.refusal is None


@pytest.mark.parametrize("parts", [1, 4])
@pytest.mark.parametrize("given", [{}, {"reserve": 7}], ids=["single", "reserved"])
def test_a_training_ends_before_the_refused_step(
    ledger: Ledger, tmp_path: Path, parts: int, given: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    dataset = dataset_of(ledger, epsilon=5.0)
    job = Job(
        dataset,
        tmp_path,
        num_train_epochs=50,
        per_device_train_batch_size=40 // parts,
        gradient_accumulation_steps=parts,
        given=given,
    )
    with caplog.at_level(logging.WARNING, logger="dpledger_client"):
        job.trainer.train()
    steps, before = job.moves.made, values(job.model)

    assert charged(dataset) == steps == job.steps > 0
    assert f"refused step {steps + 1} " in caplog.text
    assert "Left: {" in caplog.text
    job.trainer.train()
    assert charged(dataset) == job.moves.made == steps
    assert same(before, values(job.model))


@pytest.mark.parametrize("parts", [1, 2, 5])
def test_parts_of_a_batch_are_one_step_of_each_record_s_clipped_gradient(
    ledger: Ledger, tmp_path: Path, parts: int
) -> None:
    dataset, data = dataset_of(ledger, records=10), Records(10)
    job = Job(
        dataset,
        tmp_path,
        data=data,
        per_device_train_batch_size=10 // parts,
        gradient_accumulation_steps=parts,
    )
    expected = clipped_sum(job.start, data.pictures, data.labels)
    job.trainer.train()

    assert charged(dataset) == job.moves.made == job.steps == 1
    torch.testing.assert_close(job.moves.sums[0], expected, rtol=1e-4, atol=1e-5)


def test_empty_batches_are_steps(ledger: Ledger, tmp_path: Path) -> None:
    dataset = dataset_of(ledger, records=1_000)
    job = Job(dataset, tmp_path, data=Records(3))
    job.trainer.train()

    assert charged(dataset) == job.moves.made == job.steps == 25


def test_a_checkpoint_resumes_without_paying_twice_or_not_at_all(ledger: Ledger, tmp_path: Path) -> None:
    dataset = dataset_of(ledger)
    saving = {"save_strategy": "steps", "save_steps": 4, "num_train_epochs": 2}
    first = Job(dataset, tmp_path, given={"reserve": 100}, **saving, max_steps=4)
    first.trainer.train()
    assert charged(dataset) == first.moves.made == 4

    second = Job(dataset, tmp_path, given={"reserve": 100}, **saving)
    second.trainer.train(resume_from_checkpoint=True)
    assert second.steps == len(second.trainer.accountant) == 2 * STEPS
    assert charged(dataset) == 4 + second.moves.made == 2 * STEPS

    other = Job(dataset_of(ledger), tmp_path, **saving)
    with pytest.raises(ValueError, match="must be of dataset"):
        other.trainer.train(resume_from_checkpoint=True)


@pytest.mark.parametrize(
    ("options", "given", "message"),
    [
        ({"bf16": True}, {}, "bf16 must be False"),
        ({"max_grad_norm": 0.0}, {}, "max_grad_norm must be above 0"),
        ({"gradient_checkpointing": True}, {}, "hooks that run once"),
        ({"include_num_input_tokens_seen": "all"}, {}, "the number of tokens"),
        ({"optim": "galore_adamw_layerwise"}, {}, "in the backward pass"),
        ({"optim": "adalomo"}, {}, "in the backward pass"),
        ({"auto_find_batch_size": True}, {}, "split batches by gradient_accumulation_steps"),
        ({}, {"compute_loss_func": lambda outputs, labels, **_: 0.0}, "pass record_loss"),
        ({}, {"model": None, "model_init": Classifier}, "it makes a plain optimizer"),
        (
            {"gradient_accumulation_steps": 2, "dataloader_num_workers": 1},
            {},
            "num_workers must be 0",
        ),
    ],
)
def test_a_trainer_that_does_something_else_is_refused(
    ledger: Ledger, tmp_path: Path, options: dict[str, Any], given: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        Job(dataset_of(ledger), tmp_path, given=given, **options)


def per_token(outputs: Any, labels: Any) -> Any:
    return torch.nn.functional.cross_entropy(outputs["logits"], labels)


def test_a_loss_is_one_number_per_record(ledger: Ledger, tmp_path: Path) -> None:
    dataset = dataset_of(ledger)
    with pytest.raises(ValueError, match="one loss per record"):
        Job(dataset, tmp_path, given={"record_loss": per_token}).trainer.train()
    tokens = Records()
    tokens.labels = tokens.labels[:, None].repeat(1, 3)
    with pytest.raises(ValueError, match="one class per record"):
        Job(dataset, tmp_path, data=tokens).trainer.train()

    assert charged(dataset) == 0


def test_another_optimizer_is_refused(ledger: Ledger, tmp_path: Path) -> None:
    job = Job(dataset_of(ledger), tmp_path)
    job.trainer.optimizer = torch.optim.SGD(job.model.parameters(), lr=0.1)
    before = values(job.model)
    with pytest.raises(ValueError, match="must stay the private one"):
        job.trainer.train()

    assert same(before, values(job.model))


def test_no_norm_of_a_batch_s_gradients_is_logged(ledger: Ledger, tmp_path: Path) -> None:
    job = Job(dataset_of(ledger), tmp_path, logging_steps=1)
    job.trainer.train()

    assert len(job.trainer.state.log_history) > STEPS
    assert job.trainer.evaluate(Records(10))["eval_loss"] > 0.0
    assert not any("grad_norm" in line for line in job.trainer.state.log_history)


class Counting(Classifier):
    """Says by what to count the operations of a batch, as models of transformers do."""

    main_input_name = "pixel_values"

    def num_parameters(self, exclude_embeddings: bool = True) -> int:
        return 1


def test_nothing_of_a_batch_is_kept_logged_or_returned(ledger: Ledger, tmp_path: Path) -> None:
    """The loss, and by the operations the number of records, have no noise; a checkpoint would have both."""
    saving = {"save_strategy": "steps", "save_steps": STEPS, "logging_steps": 1}
    job = Job(dataset_of(ledger), tmp_path, given={"model": Counting()}, **saving)
    made = job.trainer.train()

    [checkpoint] = tmp_path.glob("checkpoint-*")
    state = json.loads((checkpoint / "trainer_state.json").read_text())
    assert state["total_flos"] == job.trainer.state.total_flos == 0
    lines = [*state["log_history"], *job.trainer.state.log_history, made.metrics]
    assert not {name for line in lines for name in line} & {"loss", "train_loss", "grad_norm", "total_flos"}
    assert len(state["log_history"]) >= STEPS
    assert math.isnan(made.training_loss)


def test_the_documented_script_is_ten_lines_more_than_without(ledger: Ledger, tmp_path: Path) -> None:
    script = documented("transformers")
    ledger.dataset("mnist").open({"accounting": "rdp", "epsilon": 50.0, "delta": 1e-5}, records=RECORDS)
    names = {"ledger": ledger, "model": Classifier(), "args": arguments(tmp_path), "records": Records()}
    exec(compile(script, "documentation", "exec"), names)

    assert charged(ledger.dataset("mnist")) == STEPS
    assert len([line for line in script.splitlines() if line]) - 2 <= 10
