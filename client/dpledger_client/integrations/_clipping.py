"""Holds the sums of Opacus to what is charged: one clipped gradient for each record drawn.

A gradient that is infinite or no number would make the whole sum one, which no noise hides. Numbers of half
precision are so far apart that last digits give a sum away: of outputs of bfloat16 between 1 and 2, with
noise of 1, half end in an odd digit where the sum is 0, and none where it is 2⁻⁸.
"""

from typing import Any
from weakref import ref

__all__ = ["Clipping"]

_PRECISE = ("torch.float32", "torch.float64")
_SECURE = ("torch.float32",)
"""In ``secure_mode`` Opacus draws noise of this precision: other digits of a sum of doubles would stay."""


class Clipping:
    """The clipping of one optimizer, from here on watched.

    Attributes
    ----------
    rows
        Of how many records clipped gradients were added up since :meth:`restart`.
    """

    def __init__(self, optimizer: Any) -> None:
        self.rows = 0
        self._reference = ref(optimizer)
        self._clipped: list[tuple[Any, int]] | None = None
        self._normed = 0
        self._foreign = False
        self._ghost: Any = None
        if hasattr(optimizer, "accumulate"):
            optimizer.accumulate = self._accumulate_clipped
        else:
            optimizer.clip_and_accumulate = self._clip_usable

    @property
    def _optimizer(self) -> Any:
        return self._reference()

    def restart(self) -> None:
        """Another batch begins."""
        self.rows = 0

    def check(self, drawn: int | None) -> None:
        """Refuse a sum in which a record may count for more than the clip.

        Parameters
        ----------
        drawn
            How many records the batch has; None if that is not known.
        """
        foreign, self._foreign = self._foreign, False
        if foreign:
            raise ValueError(
                "with grad_sample_mode='ghost' the loss must be that of the criterion which make_private "
                "returned, and its backward pass the last: what another leaves is not clipped"
            )
        ghost, norm = self._ghost, self._optimizer.max_grad_norm
        if ghost is not None and ghost.max_grad_norm != norm:
            raise ValueError(
                f"max_grad_norm of the model must stay {norm!r}, by which the noise is scaled, "
                f"found {ghost.max_grad_norm!r}: with grad_sample_mode='ghost' the model clips"
            )
        if drawn is not None and self.rows > drawn:
            raise ValueError(
                "a batch must have one gradient for each record, found more: the model or the loader makes "
                "several rows of one record, each of which is clipped by itself. Keep the first dimension"
            )
        self._check_digits()

    def _check_digits(self) -> None:
        optimizer = self._optimizer
        covered = _SECURE if getattr(optimizer, "secure_mode", False) else _PRECISE
        found = {str(each.dtype) for value in optimizer.params for each in (value, *_samples_of(value))}
        if not found <= set(covered):
            raise ValueError(
                f"parameters and gradients must be {' or '.join(covered)}, found {', '.join(sorted(found))}: "
                "gradients are clipped as they are computed, and noise does not hide the digits that it lacks"
            )

    def require_criterion(self, module: Any) -> None:
        """Take gradients of ghost clipping only as the loss of ``make_private`` left them.

        A backward pass of any other loss leaves the sum of gradients that nobody clipped.
        """
        self._ghost = module
        norms, enable = module.get_clipping_coef, module.enable_hooks

        def noted_norms() -> Any:
            found = norms()
            self._clipped, self._normed = [], len(found)
            return found

        def noted_end() -> None:
            enable()
            if self._clipped is not None:
                values = [value.grad for value in self._optimizer.params]
                self._clipped = [(each, each._version) for each in values if each is not None]

        module.get_clipping_coef, module.enable_hooks = noted_norms, noted_end

    def _accumulate_clipped(self) -> None:
        optimizer, clipped = self._optimizer, self._clipped or []
        found = [value.grad for value in optimizer.params if value.grad is not None]
        left = [(id(each), version) for each, version in clipped]
        self._foreign |= [(id(each), each._version) for each in found] != left
        self._clipped = None
        self.rows += self._normed
        type(optimizer).accumulate(optimizer)

    def _clip_usable(self) -> None:
        optimizer = self._optimizer
        for batch in zip(*(_samples_of(value) for value in optimizer.params), strict=False):
            self.rows += len(batch[0])
            _drop_unusable(batch)
        type(optimizer).clip_and_accumulate(optimizer)


def _samples_of(value: Any) -> list[Any]:
    """The gradients of single records by a parameter, of each backward pass."""
    found = getattr(value, "grad_sample", None)
    return [] if found is None else found if isinstance(found, list) else [found]


def _drop_unusable(samples: tuple[Any, ...]) -> None:
    """Let records count for nothing of which a number is not finite, by any parameter."""
    if len({len(each) for each in samples}) != 1 or not len(samples[0]):
        return
    sums = [each.reshape(len(each), -1).sum(dim=1).to(samples[0].device) for each in samples]
    unusable = ~sum(sums[1:], start=sums[0]).isfinite()
    if unusable.any():
        for each in samples:
            each.masked_fill_(unusable.to(each.device).reshape(-1, *[1] * (each.ndim - 1)), 0.0)
