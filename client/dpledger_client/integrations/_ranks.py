"""One decision for all processes of a distributed training."""

import contextlib
import importlib
import pickle  # torch sends objects between ranks by it  # nosec B403
from collections.abc import Callable, Sequence
from typing import Any

__all__ = ["decide_together"]


def decide_together(ranks: int, facts: Any, check: Callable[[], None], ask: Callable[[], None]) -> None:
    """Check on every rank, ask on the first, and raise on all of them what any of them raised.

    All ranks call this at the same step, before they add up gradients. None goes on unless every rank's
    check passed and the first was granted the step; so a refusal leaves nobody waiting.

    Parameters
    ----------
    ranks
        How many processes there are; one decides for itself, without ``torch.distributed``.
    facts
        What must be equal on all ranks: the first asks for all.
    """
    if ranks == 1:
        check()
        ask()
        return
    distributed = importlib.import_module("torch.distributed")
    found: list[Any] = [None] * ranks
    distributed.all_gather_object(found, (facts, _failure(check)))
    _raise_first([failure for _, failure in found])
    if any(other != facts for other, _ in found):
        raise ValueError(f"all ranks must train with the same numbers, found {[other for other, _ in found]}")
    decision = [_failure(ask) if distributed.get_rank() == 0 else None]
    distributed.broadcast_object_list(decision, src=0)
    _raise_first(decision)


def _failure(action: Callable[[], None]) -> Exception | None:
    """What an action raises, in a form that other processes can read; None if it does not."""
    try:
        action()
    except Exception as error:
        with contextlib.suppress(Exception):
            pickle.loads(pickle.dumps(error))  # what was written on this very line  # nosec B301
            return error
        return RuntimeError(f"{type(error).__name__}: {error}")
    return None


def _raise_first(failures: Sequence[Exception | None]) -> None:
    for failure in failures:
        if failure is not None:
            raise failure
