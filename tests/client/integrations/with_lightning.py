"""The real Lightning under a ledger: run by ``make test-torch``, which has it installed."""

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import lightning
import pytest
import torch

from dpledger_client import Ledger
from dpledger_client.integrations.lightning import ledger_callback
from tests.client.integrations.lightning_training import QUIET, Job, Task
from tests.client.integrations.opacus_training import STEPS, engine
from tests.client.integrations.trainers import (
    BATCH,
    RECORDS,
    charged,
    clipped_sum,
    dataset_of,
    documented,
    images,
    linear,
    same,
    values,
)

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(scope="module")
def ledger(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ledger]:
    with Ledger.embedded(Path(tmp_path_factory.mktemp("ledger")) / "ledger.db") as ledger:
        yield ledger


@pytest.mark.parametrize("options", [{}, {"reserve": 7}], ids=["single", "reserved"])
def test_each_optimizer_step_is_charged(ledger: Ledger, options: dict[str, Any]) -> None:
    dataset = dataset_of(ledger)
    job = Job(dataset, **options)
    trainer = job.fit(max_epochs=2)

    assert (
        charged(dataset) == job.moves.made == trainer.global_step == len(job.callback.accountant) == 2 * STEPS
    )
    assert job.callback.refusal is None


@pytest.mark.parametrize("options", [{}, {"reserve": 7}, {"parts": 3}], ids=["single", "reserved", "parts"])
def test_a_fit_ends_before_the_refused_step(
    ledger: Ledger, options: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    dataset = dataset_of(ledger, epsilon=5.0)
    job = Job(dataset, **options)
    with caplog.at_level(logging.WARNING, logger="dpledger_client"):
        trainer = job.fit(max_epochs=50, accumulate_grad_batches=options.get("parts", 1))
    steps, before = job.moves.made, values(job.task)

    assert charged(dataset) == steps == trainer.global_step > 0
    assert trainer.current_epoch < 49
    assert f"refused step {steps + 1} " in caplog.text
    assert "Left: {" in caplog.text
    job.fit(max_epochs=1, accumulate_grad_batches=options.get("parts", 1))
    assert charged(dataset) == job.moves.made == steps
    assert same(before, values(job.task))


@pytest.mark.parametrize("parts", [1, 3, 7])
def test_parts_of_a_batch_are_one_step_of_each_record_s_clipped_gradient(ledger: Ledger, parts: int) -> None:
    dataset, data = dataset_of(ledger, records=10), images(10)
    job = Job(dataset, data=data, batch_size=10, parts=parts)
    expected = clipped_sum(job.start, *data.tensors)
    trainer = job.fit(accumulate_grad_batches=parts)

    assert charged(dataset) == job.moves.made == trainer.global_step == 1
    torch.testing.assert_close(job.moves.sums[0], expected, rtol=1e-4, atol=1e-5)


def test_a_checkpoint_resumes_without_paying_twice_or_not_at_all(ledger: Ledger, tmp_path: Path) -> None:
    dataset, path = dataset_of(ledger), tmp_path / "checkpoint.ckpt"
    first = Job(dataset, reserve=100)
    first.fit(max_epochs=1).save_checkpoint(path)
    assert charged(dataset) == STEPS

    second = Job(dataset, reserve=100)
    trainer = second.fit(max_epochs=3, ckpt_path=path)
    assert trainer.global_step == len(second.callback.accountant) == 3 * STEPS
    assert second.moves.made == 2 * STEPS
    assert charged(dataset) == first.moves.made + second.moves.made == 3 * STEPS

    other = Job(dataset_of(ledger))
    with pytest.raises(ValueError, match="must be of dataset"):
        other.fit(max_epochs=3, ckpt_path=path)


class Manual(Task):
    """Calls its optimizer itself."""

    def __init__(self, net: Any) -> None:
        super().__init__(net)
        self.automatic_optimization = False

    def training_step(self, batch: Any, number: int) -> Any:
        optimizer = self.optimizers()
        optimizer.zero_grad()
        self.manual_backward(super().training_step(batch, number))
        optimizer.step()


def test_a_step_made_by_hand_is_charged_too(ledger: Ledger) -> None:
    dataset = dataset_of(ledger, epsilon=5.0)
    job = Job(dataset)
    task = Manual(job.task.net)
    task.optimizer, job.task = job.task.optimizer, task
    trainer = job.fit(max_epochs=50)

    assert charged(dataset) == job.moves.made == trainer.global_step > 0
    assert job.callback.refusal is not None


@pytest.mark.parametrize(
    ("options", "trainer", "message"),
    [
        ({}, {"accumulate_grad_batches": 2}, r"accumulate_grad_batches must be 1, found 2: .*parts=k"),
        ({"parts": 2}, {}, r"accumulate_grad_batches must be 2, found 1"),
        ({}, {"precision": "bf16-mixed"}, "precision must be '32-true' or '64-true'"),
        ({}, {"gradient_clip_val": 0.5}, "max_grad_norm of make_private clips"),
        ({"grad_sample_mode": "ghost"}, {}, "'ghost' needs its own loss"),
        ({"parts": 2}, {"accumulate_grad_batches": 2, "limit_train_batches": 3}, "whole batches of 2 parts"),
    ],
)
def test_a_trainer_that_does_something_else_is_refused(
    ledger: Ledger, options: dict[str, Any], trainer: dict[str, Any], message: str
) -> None:
    dataset = dataset_of(ledger)
    if options.get("grad_sample_mode") == "ghost":
        options = {**options, "criterion": torch.nn.CrossEntropyLoss()}
    with pytest.raises(ValueError, match=message):
        Job(dataset, **options).fit(**trainer)

    assert charged(dataset) == 0


def test_optimizers_and_loaders_that_are_not_private_are_refused(ledger: Ledger) -> None:
    with pytest.raises(ValueError, match="charges nothing"):
        ledger_callback(engine())
    job = Job(dataset_of(ledger))
    private = job.task.optimizer
    plain = torch.optim.SGD(job.task.parameters(), lr=0.1)
    for optimizers in (plain, [private, plain]):
        job.task.optimizer = optimizers
        job.task.automatic_optimization = False
        with pytest.raises(ValueError, match="the one optimizer"):
            job.fit()
    job.task.optimizer, job.task.automatic_optimization = private, True
    job.loader = torch.utils.data.DataLoader(images(), batch_size=BATCH)
    with pytest.raises(ValueError, match="the one loader"):
        job.fit()
    mixed = Job(dataset_of(ledger))
    mixed.task.beside = torch.nn.BatchNorm1d(3)
    with pytest.raises(ValueError, match="batch normalisation"):
        mixed.fit()


def test_the_documented_script_is_ten_lines_more_than_without(ledger: Ledger) -> None:
    script = documented("Lightning")
    ledger.dataset("mnist").open({"accounting": "rdp", "epsilon": 5.0, "delta": 1e-5}, records=RECORDS)
    loader = torch.utils.data.DataLoader(images(), batch_size=BATCH)
    names = {"ledger": ledger, "task": Task(linear()), "loader": loader, "options": QUIET}
    exec(compile(script, "documentation", "exec"), {**names, "Trainer": lightning.Trainer})

    assert 0 < charged(ledger.dataset("mnist")) <= 2 * STEPS
    assert len([line for line in script.splitlines() if line]) - 2 <= 10
