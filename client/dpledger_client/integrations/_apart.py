"""Keeps the records of a batch apart, and what a model keeps of them out of it.

Opacus refuses batch normalisation where it has trained parameters of its own, and buffers of trained layers.
A normalisation without, or a frozen one, passes its check: it lets one record move the gradients of all
others, and its running means and variances, which have no noise, are saved with the model.
"""

from typing import Any
from weakref import ref

__all__ = ["keep_apart"]

_MIXING = "BatchNorm"


def keep_apart(module: Any, optimizer: Any) -> None:
    """Refuse forward passes that mix records or change a buffer, as long as the optimizer is there."""
    present = ref(optimizer)
    for name, each in module.named_modules():
        if _MIXING in type(each).__name__:
            each.register_forward_pre_hook(_Unmixed(name, present))
        elif any(True for _ in each.buffers(recurse=False)):
            unchanged = _Unchanged(name, present)
            each.register_forward_pre_hook(unchanged.note)
            each.register_forward_hook(unchanged.compare)


class _Unmixed:
    """Refuses a normalisation over the records of a batch; in evaluation it is by fixed numbers."""

    def __init__(self, name: str, present: Any) -> None:
        self._name, self._present = name, present

    def __call__(self, module: Any, _given: Any) -> None:
        if module.training and self._present() is not None:
            raise ValueError(
                "batch normalisation mixes records, which clipping cannot undo: put "
                f"{self._name or 'it'} into evaluation after each model.train(), or take GroupNorm"
            )


class _Unchanged:
    """Refuses a layer that keeps something of the records that pass it."""

    def __init__(self, name: str, present: Any) -> None:
        self._name, self._present = name, present
        self._before: list[tuple[int, int]] = []

    def note(self, module: Any, _given: Any) -> None:
        """Before the pass."""
        self._before = _states(module)

    def compare(self, module: Any, _given: Any, _output: Any) -> None:
        """After it."""
        if _states(module) != self._before and module.training and self._present() is not None:
            raise ValueError(
                f"buffers must not change with the records that pass, since they have no noise: {self._name} "
                "has one that did. Put it into evaluation after each model.train(), and load the model anew"
            )


def _states(module: Any) -> list[tuple[int, int]]:
    """Which buffers a layer has, and how often each was written to."""
    return [(id(each), each._version) for each in module.buffers(recurse=False)]
