"""Lightning under a ledger: :func:`ledger_callback` stops a trainer before the step that is refused.

The training is made private by :func:`dpledger_client.integrations.opacus.make_private`, as in a loop of
one's own; the callback sees to it that the trainer does what is charged, and nothing else::

    engine = PrivacyEngine()
    task.net, task.optimizer, loader = make_private(
        engine, account, module=task.net, optimizer=task.optimizer, data_loader=loader,
        noise_multiplier=1.1, max_grad_norm=1.0)
    Trainer(callbacks=[ledger_callback(engine)]).fit(task, loader)
"""

import functools
from typing import Any

from dpledger_client.integrations._generators import import_torch
from dpledger_client.integrations._stopping import Stopping, check_backward, check_plain
from dpledger_client.integrations.opacus import LedgerAccountant

__all__ = ["ledger_callback"]

_PRECISIONS = ("32-true", "64-true")


def ledger_callback(engine: Any, package: str = "lightning.pytorch") -> Any:
    """A Lightning callback that ends a fit before the step that the ledger refuses.

    Parameters
    ----------
    engine
        The engine that ``make_private`` was given.
    package
        ``lightning.pytorch`` or ``pytorch_lightning``, whichever the trainer comes from.

    Returns
    -------
    Callback
        Its ``refusal`` is the ledger's no, or None. What was left is logged as a warning.

    Notes
    -----
    With ``make_private(…, parts=k)`` and ``accumulate_grad_batches=k``, one step is charged for the k parts
    of a batch. The callback's state is the accountant's: a checkpoint settles what is reserved, and loading
    one charges nothing.
    """
    accountant = engine.accountant
    if not isinstance(accountant, LedgerAccountant):
        raise ValueError(
            "the engine charges nothing: make the training private by make_private(engine, account, …) of "
            f"dpledger_client.integrations.opacus first, found a {type(accountant).__name__}"
        )
    return _callback_class(package)(accountant)


@functools.cache
def _callback_class(package: str) -> Any:
    """The hooks as a callback of this package; it is imported when one is made."""
    base = import_torch(package, "Lightning needs: pip install lightning").Callback
    return type("LedgerCallback", (_Hooks, base), {"__doc__": _Hooks.__doc__})


class _Hooks:
    """What a trainer calls."""

    def __init__(self, accountant: LedgerAccountant) -> None:
        self.accountant = accountant
        self._trainer: Any = None
        self._refused_step = False
        self._stopping = Stopping(accountant, self._stop)

    @property
    def refusal(self) -> Any:
        """The ledger's no, if there was one."""
        return self._stopping.refusal

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """Check the trainer before it touches the model."""
        if stage != "fit":
            return
        check_backward(self.accountant.optimizer)
        check_plain(
            {
                "accumulate_grad_batches": (
                    trainer.accumulate_grad_batches,
                    (self.accountant.parts,),
                    "a step is one batch: pass make_private(…, parts=k) to have each split into k parts",
                ),
                "precision": (trainer.precision, _PRECISIONS, "gradients are clipped as they are computed"),
                "gradient_clip_val": (
                    trainer.gradient_clip_val,
                    (None, 0, 0.0),
                    "max_grad_norm of make_private clips each record's gradient",
                ),
                "world_size": (
                    trainer.world_size,
                    (self.accountant.ranks,),
                    "wrap the module in Opacus' DifferentiallyPrivateDistributedDataParallel before "
                    "make_private, on every rank",
                ),
            }
        )
        if trainer.world_size > 1:
            self._keep_unwrapped(trainer)

    def _keep_unwrapped(self, trainer: Any) -> None:
        """Let Opacus alone add gradients up: torch's DDP would do so before they are clipped."""
        if not hasattr(trainer.strategy, "configure_ddp"):
            raise ValueError(
                f"strategy must be 'ddp' on several ranks, found {type(trainer.strategy).__name__}"
            )
        trainer.strategy.configure_ddp = lambda: None

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Check what the trainer trains with, before the first step."""
        self._trainer = trainer
        self._check_optimizers(trainer)
        loaders = trainer.train_dataloader
        if not self.accountant.draws(loaders):
            raise ValueError(
                "the training batches must come from the one loader that make_private returned; where the "
                "trainer replaces its sampler, pass Trainer(use_distributed_sampler=False). Found "
                f"{type(loaders).__name__} of {type(getattr(loaders, 'batch_sampler', None)).__name__}"
            )
        if trainer.num_training_batches % self.accountant.parts:
            raise ValueError(
                f"limit_train_batches must leave whole batches of {self.accountant.parts} parts, found "
                f"{trainer.num_training_batches}"
            )
        mixing = [name for name, each in pl_module.named_modules() if "BatchNorm" in type(each).__name__]
        if mixing:
            raise ValueError(f"batch normalisation mixes records, which clipping cannot undo: {mixing}")

    def _check_optimizers(self, trainer: Any) -> None:
        if trainer.optimizers != [self.accountant.optimizer]:
            raise ValueError(
                "configure_optimizers must return the one optimizer that make_private returned, found "
                f"{', '.join(type(each).__name__ for each in trainer.optimizers)}: others are not charged"
            )

    def on_after_backward(self, trainer: Any, pl_module: Any) -> None:
        """Clip a part of a batch and add it up."""
        self._check_optimizers(trainer)
        self.accountant.add_part()

    def on_before_backward(self, trainer: Any, pl_module: Any, loss: Any) -> None:
        """Undo the trainer's division by the number of parts: each record's gradient is clipped by itself."""
        if self.accountant.parts > 1:
            loss.mul_(self.accountant.parts)

    def on_train_batch_end(self, trainer: Any, pl_module: Any, *_batch: Any) -> None:
        """Count no step that was refused."""
        if self._refused_step:
            self._refused_step = False
            loop = trainer.fit_loop.epoch_loop
            if pl_module.automatic_optimization:
                progress = loop.automatic_optimization.optim_progress.optimizer.step
            else:
                progress = loop.manual_optimization.optim_step_progress
            for counts in (progress.total, progress.current):
                counts.ready -= 1
                counts.completed -= 1

    def on_fit_end(self, trainer: Any, pl_module: Any) -> None:
        """Settle what is reserved."""
        self.accountant.close()

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """Settle what is reserved."""
        self.accountant.close()

    def state_dict(self) -> dict[str, Any]:
        """The accountant's, for a checkpoint."""
        return dict(self.accountant.state_dict())

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take the history of a checkpoint, whose steps were charged when they were made."""
        self.accountant.load_state_dict(state_dict)

    def _stop(self) -> None:
        self._refused_step = True
        self._trainer.should_stop = True
