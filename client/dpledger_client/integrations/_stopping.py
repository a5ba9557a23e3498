"""Ending a training before the step that the ledger refuses, and saying what is left."""

import logging
from collections.abc import Callable
from types import MethodType
from typing import Any

from dpledger_client.errors import BudgetExhausted
from dpledger_client.integrations.opacus import LedgerAccountant

__all__ = ["Stopping", "check_backward", "check_plain"]

_LOG = logging.getLogger("dpledger_client")
_GHOST = "FastGradientClipping"


class Stopping:
    """Lets an optimizer return without a move where the ledger refuses, and notes that it did.

    Parameters
    ----------
    accountant
        Of :func:`~dpledger_client.integrations.opacus.make_private`.
    stop
        Called at a refusal: what makes the trainer end.

    Attributes
    ----------
    refusal
        The ledger's no, if there was one. Each further step asks again, and none moves without a yes.
    """

    def __init__(self, accountant: LedgerAccountant, stop: Callable[[], None]) -> None:
        self.accountant = accountant
        self.refusal: BudgetExhausted | None = None
        self._stop = stop
        optimizer = accountant.optimizer
        earlier = optimizer.step

        def step(_optimizer: Any, closure: Any = None) -> Any:
            try:
                return earlier(closure)
            except BudgetExhausted as refused:
                self._end(refused)
                return None

        # A method, as schedulers of learning rates expect it to be.
        optimizer.step = MethodType(step, optimizer)

    def _end(self, refused: BudgetExhausted) -> None:
        if self.refusal is None:
            account = self.accountant.account
            _LOG.warning(
                "The ledger refused step %d on dataset %s: training stops before it. Left: %s. Would fit: %s",
                len(self.accountant) + 1,
                account.dataset.name,
                refused.remaining,
                refused.fits,
            )
        self.refusal = refused
        self._stop()


def check_plain(settings: dict[str, tuple[Any, tuple[Any, ...], str]]) -> None:
    """Refuse a trainer's settings under which it would do something else than is charged.

    Parameters
    ----------
    settings
        By name: what was found, what is covered, and why nothing else is.
    """
    for name, (found, covered, reason) in settings.items():
        if found not in covered:
            raise ValueError(f"{name} must be {' or '.join(map(repr, covered))}, found {found!r}: {reason}")


def check_backward(optimizer: Any) -> None:
    """Refuse an optimizer whose loss a trainer cannot handle."""
    if _GHOST in type(optimizer).__name__:
        raise ValueError(
            "grad_sample_mode='ghost' needs its own loss and backward pass, which trainers replace: use "
            "'hooks' or 'functorch'"
        )
