"""The ``Trainer`` of transformers under a ledger: :func:`make_trainer` takes its place.

It asks before each optimizer step, ends before the one that is refused, and otherwise is the Trainer that it
was::

    trainer = make_trainer(account, noise_multiplier=1.1, model=model, args=args, train_dataset=records)
    trainer.train()

Three things are done in another way than by the Trainer, because its own are not private. Batches are
Poisson samples at the dataset's public rate. The loss is the mean of one number per record: by a mean over
all tokens of a batch, or over ``num_items_in_batch``, one record would change the others' gradients. And
nothing of a batch is kept or logged that has no noise: neither its loss, which the Trainer also writes into
checkpoints, nor the norm of its gradients, nor the operations it took, which tell how many records it had.
"""

import functools
import json
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from dpledger_client.integrations._generators import import_torch
from dpledger_client.integrations._stopping import Stopping, check_plain
from dpledger_client.integrations.opacus import make_private
from dpledger_client.ledger import Account

__all__ = ["make_trainer"]

_NEEDS = "the Trainer needs: pip install transformers accelerate opacus"
_STATE = "dpledger.json"
_LOSSES = ("loss", "train_loss", "total_flos")
_IN_BACKWARD = ("layerwise", "lomo")
"""Optimizers by whose names parameters move in the backward pass, before any noise."""
_TOGETHER = ("NO", "MULTI_CPU", "MULTI_GPU")


def make_trainer(
    account: Account,
    *,
    noise_multiplier: float,
    records: int | None = None,
    reserve: int | None = None,
    record_loss: Callable[[Any, Any], Any] | None = None,
    **arguments: Any,
) -> Any:
    """A Trainer that asks the ledger before each optimizer step.

    Parameters
    ----------
    account
        What asks. Its dataset has add-remove adjacency and a public number of records.
    noise_multiplier
        The noise's standard deviation over ``args.max_grad_norm``, the norm that each record's gradient is
        clipped to.
    records, reserve
        As in :func:`~dpledger_client.integrations.opacus.make_private`.
    record_loss
        From the model's outputs and the labels to one loss per record, which depends on that record alone.
        None: cross-entropy of ``logits`` with one class per record.
    arguments
        The Trainer's own. A step is a batch of ``per_device_train_batch_size × gradient_accumulation_steps``
        expected records per process.

    Returns
    -------
    Trainer
        Its ``refusal`` is the ledger's no, or None. What was left is logged as a warning.

    Notes
    -----
    A checkpoint settles what is reserved; resuming from one charges nothing, and each step after that is
    asked for. On several ranks the first asks, and all follow its answer. Losses of batches are not logged,
    and ``training_loss`` is NaN; ``evaluate`` on records that are yours to show says how good the model is.
    """
    asking = {"records": records, "reserve": reserve, "noise_multiplier": noise_multiplier}
    return _trainer_class()(account, asking, record_loss, **arguments)


@functools.cache
def _trainer_class() -> Any:
    """The private class; transformers is imported when a trainer is made."""
    base = import_torch("transformers", _NEEDS).Trainer
    return type("LedgerTrainer", (_Private, base), {"__doc__": _Private.__doc__})


_Base: Any = object
"""The Trainer, where there is one."""


class _Private(_Base):  # type: ignore[misc]
    """The Trainer's methods that a private training replaces."""

    loss_is_scaled_for_ga = True
    """Each record's gradient is clipped as it is, into however many parts a batch is split."""

    def __init__(
        self,
        account: Account,
        asking: Mapping[str, Any],
        record_loss: Callable[[Any, Any], Any] | None,
        **arguments: Any,
    ) -> None:
        super().__init__(**arguments)
        _check_trainer(self)
        self.model_accepts_loss_kwargs = False
        self._record_loss = record_loss or _class_loss
        self.create_optimizer()
        self.accountant, self.optimizer, self._private_loader = _make_private(self, account, asking)
        self._stopping = Stopping(self.accountant, self._stop)

    @property
    def refusal(self) -> Any:
        """The ledger's no, if there was one."""
        return self._stopping.refusal

    def train(self, *given: Any, **named: Any) -> Any:
        """As the Trainer's, without a training loss; settles what is reserved at the end."""
        try:
            made = super().train(*given, **named)
            kept = {name: value for name, value in made.metrics.items() if name not in _LOSSES}
            return made._replace(training_loss=math.nan, metrics=kept)
        finally:
            self.accountant.close()

    def get_train_dataloader(self) -> Any:
        """The Poisson batches, as they are: accelerate would shard them and fetch ahead."""
        return self._private_loader

    def num_examples(self, dataloader: Any) -> int:
        """The public number of records; the true one is a secret, and this one is logged."""
        return int(self.accountant.plan.records)

    def training_step(self, *given: Any, **named: Any) -> Any:
        """The backward pass of one part of a batch, whose clipped gradients are added up."""
        private = self.accountant.optimizer
        if getattr(self.optimizer, "optimizer", self.optimizer) is not private:
            raise ValueError("optimizer must stay the private one: a step of another is not charged")
        # The Trainer clears the model's gradients alone. Parts that were added up stay.
        private.zero_grad()
        loss = super().training_step(*given, **named)
        self.accountant.add_part()
        return loss.new_zeros(())  # The Trainer adds it up, and keeps and returns the mean.

    def compute_loss(
        self, model: Any, inputs: Any, return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Any:
        """The mean of the records' losses, zero of none."""
        given = dict(inputs)
        if "labels" not in given:
            raise ValueError(f"each batch must have labels, found {sorted(given)}")
        labels = given.pop("labels")
        outputs = model(**given)
        losses = self._record_loss(outputs, labels)
        if losses.shape != labels.shape[:1]:
            raise ValueError(
                f"record_loss must give one loss per record, found a shape of {tuple(losses.shape)} for "
                f"{len(labels)} records"
            )
        loss = losses.sum() / max(1, len(losses))
        return (loss, {"loss": loss, "logits": _logits(outputs)}) if return_outputs else loss

    def log(self, logs: Any, *given: Any, **named: Any) -> None:
        """As the Trainer's, without the losses of batches: they have no noise."""
        super().log({name: value for name, value in logs.items() if name not in _LOSSES}, *given, **named)

    def floating_point_ops(self, inputs: Any) -> int:
        """None: the Trainer keeps their sum, which tells how many records and tokens there were."""
        return 0

    def _clip_grad_norm(self, model: Any) -> None:
        """Leave clipping to the optimizer, which clips each record's gradient."""

    def _get_grad_norm(self, model: Any, grad_norm: Any = None) -> None:
        """Log no norm: that of a batch has no noise."""

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        super()._save_checkpoint(model, trial)
        state = dict(self.accountant.state_dict())
        if self.args.should_save:
            folder = Path(self._get_output_dir(trial=trial)) / f"checkpoint-{self.state.global_step}"
            (folder / _STATE).write_text(json.dumps(state))

    def _load_optimizer_and_scheduler(self, checkpoint: Any) -> None:
        super()._load_optimizer_and_scheduler(checkpoint)
        if checkpoint is not None:
            path = Path(checkpoint) / _STATE
            if not path.is_file():
                raise ValueError(f"the checkpoint must be one of a private trainer, found no {_STATE} in it")
            self.accountant.load_state_dict(json.loads(path.read_text()))

    def _stop(self) -> None:
        """End the training; the refused step, which the Trainer counts next, is not counted."""
        self.state.global_step -= 1
        self.control.should_training_stop = True


def _check_trainer(trainer: Any) -> None:
    """Refuse what would do something else than is charged."""
    arguments = trainer.args
    precise = "gradients are clipped as they are computed"
    check_plain(
        {
            "fp16": (arguments.fp16, (False,), precise),
            "bf16": (arguments.bf16, (False,), precise),
            "gradient_checkpointing": (
                arguments.gradient_checkpointing,
                (False,),
                "gradients of single records come from hooks that run once",
            ),
            "torch_compile": (arguments.torch_compile, (False,), "compiled modules have no hooks"),
            "auto_find_batch_size": (
                arguments.auto_find_batch_size,
                (False,),
                "the batch size is charged for; split batches by gradient_accumulation_steps",
            ),
            "label_smoothing_factor": (
                arguments.label_smoothing_factor,
                (0, 0.0),
                "pass a record_loss that smooths labels",
            ),
            "model_init": (
                trainer.model_init,
                (None,),
                "it makes a plain optimizer each time: pass model",
            ),
            "compute_loss_func": (
                trainer.compute_loss_func,
                (None,),
                "pass record_loss, one loss per record",
            ),
            "distributed_type": (
                trainer.accelerator.distributed_type.value,
                _TOGETHER,
                "sharded parameters are not covered",
            ),
            "include_num_input_tokens_seen": (
                arguments.include_num_input_tokens_seen,
                ("no", False),
                "the number of tokens in batches has no noise, and is logged and kept",
            ),
            "n_gpu": (arguments.n_gpu, (0, 1), "start one process per device, as with torchrun"),
        }
    )
    name = str(getattr(arguments.optim, "value", arguments.optim))
    if any(word in name for word in _IN_BACKWARD):
        raise ValueError(
            f"optim must not be {name!r}, which moves parameters in the backward pass, before there is noise"
        )
    if not (arguments.max_grad_norm or 0.0) > 0.0:
        raise ValueError(
            "max_grad_norm must be above 0, since each record's gradient is clipped to it, found "
            f"{arguments.max_grad_norm!r}"
        )


def _make_private(trainer: Any, account: Account, asking: Mapping[str, Any]) -> tuple[Any, Any, Any]:
    """The accountant, the optimizer and the loader of a private training of the trainer's model."""
    arguments, ranks = trainer.args, trainer.accelerator.num_processes
    parts = arguments.gradient_accumulation_steps
    module = trainer.model.train()
    if ranks > 1:
        # Opacus alone adds gradients up; torch's DDP, in which accelerate wraps models, does so unclipped.
        module = import_torch("opacus.distributed").DifferentiallyPrivateDistributedDataParallel(module)
        trainer.accelerator.prepare_model = lambda model, **_options: model
    collate = trainer._get_collator_with_removed_columns(trainer.data_collator)
    dataset = trainer.train_dataset
    engine = import_torch("opacus").PrivacyEngine()
    _, optimizer, loader = make_private(
        engine,
        account,
        module=module,
        optimizer=trainer.optimizer,
        data_loader=import_torch("torch.utils.data").DataLoader(
            dataset,
            batch_size=arguments.per_device_train_batch_size * parts * ranks,
            collate_fn=collate,
            num_workers=arguments.dataloader_num_workers,
        ),
        max_grad_norm=arguments.max_grad_norm,
        parts=parts,
        wrap_model=False,
        **asking,
    )
    loader.collate_fn = functools.partial(_collate, collate, dataset)
    return engine.accountant, optimizer, loader


def _collate(collate: Callable[[Any], Any], dataset: Any, chosen: list[Any]) -> Any:
    """A batch, which may be empty: then it has the shapes of one and nothing in it."""
    if chosen:
        return collate(chosen)
    return {name: value[:0] for name, value in collate([dataset[0]]).items()}


def _logits(outputs: Any) -> Any:
    return outputs["logits"] if isinstance(outputs, Mapping) else outputs


def _class_loss(outputs: Any, labels: Any) -> Any:
    """Cross-entropy with one class per record."""
    logits = _logits(outputs)
    if labels.dim() != 1 or labels.is_floating_point() or logits.dim() != 2:
        raise ValueError(
            "labels must be one class per record; for labels of another kind, such as one per token, pass "
            "record_loss(outputs, labels) with one loss per record: a mean over all tokens of a batch "
            f"depends on the others' lengths. Found labels of shape {tuple(labels.shape)}"
        )
    functional = import_torch("torch.nn.functional")
    return functional.cross_entropy(logits, labels, reduction="none")
