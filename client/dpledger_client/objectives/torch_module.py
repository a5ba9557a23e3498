"""Any torch module as an objective, by ``torch.func``: needs the extra ``torch``.

Gradients of single examples come a chunk at a time (``vmap`` over ``grad``), and those of Linear and Conv2d
layers by what enters and leaves them (:mod:`dpledger_client.objectives._example_gradients`). They are clipped
in double precision, whatever the module's own is.
"""

import importlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from dpledger_client._arrays import Floats, as_numbers
from dpledger_client._checks import check_count
from dpledger_client.errors import MissingExtra
from dpledger_client.objectives._example_gradients import ExampleGradients, Part
from dpledger_client.objectives.base import Objective, clip_factors, limit_under, parameters
from dpledger_client.objectives.regularizers import Regularizer

__all__ = ["TorchModule"]


def _torch(name: str = "torch") -> Any:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise MissingExtra("torch modules need: pip install 'dpledger-client[torch]'") from error


class TorchModule(Objective):
    """A mean loss of a module's outputs.

    Parameters
    ----------
    module
        A ``torch.nn.Module`` whose output for an example depends on that example alone: no batch
        normalisation. Its parameters that require a gradient are trained, the others stay as they are. It is
        not changed; :meth:`load` puts parameters into it.
    loss
        From the outputs and the target of one example, each with a first dimension of 1, to a scalar that
        is not negative, such as ``torch.nn.functional.cross_entropy`` (the default).
    classes
        How many classes there are, if targets are classes from 0 on. An example whose target is none of them
        counts as zero, since an error would tell of it. None: targets are numbers.
    chunk_size
        How many examples' gradients are formed at once. Rounding errors of sums are covered by clipping's
        margin for up to 2¹⁹ records with chunks of 256. With 1 a gradient is rounded the same whoever is
        beside it; in a chunk torch may round it by its place, which matters where a margin is all rounding.

    Notes
    -----
    The start is the module's own parameters, which must not come from the private data. Randomness inside
    the module, such as dropout, is refused by ``vmap``.
    """

    def __init__(
        self,
        module: Any,
        loss: Callable[[Any, Any], Any] | None = None,
        regularizer: Regularizer | None = None,
        *,
        classes: int | None = None,
        chunk_size: int = 256,
    ) -> None:
        super().__init__(regularizer)
        self._torch = _torch()
        self._func = _torch("torch.func")
        self.module = module
        self.loss_of = loss or self._torch.nn.functional.cross_entropy
        self.classes = None if classes is None else check_count("classes", classes, least=2)
        self.chunk_size = check_count("chunk_size", chunk_size)
        trained = _find_trainable(module)
        self._shapes = {name: value.shape for name, value in trained.items()}
        self._like = next(iter(trained.values()))
        self._examples = ExampleGradients(self._torch, module, list(trained), self.loss_of)

    def dimension(self, X: Any, y: Any) -> int:
        return sum(shape.numel() for shape in self._shapes.values())

    def initial(self, X: Any, y: Any) -> Floats:
        values = dict(self.module.named_parameters())
        return np.concatenate([_numbers(values[name]).ravel() for name in self._shapes])

    def losses(self, w: Floats, X: Any, y: Any) -> Floats:
        each = self._func.vmap(self._loss, in_dims=(None, 0, 0))
        named = self._by_name(w)
        found = [_numbers(each(named, *chunk)) * known for *chunk, known in self._chunks(X, y)]
        return _join(found)

    def gradient_sum(self, w: Floats, X: Any, y: Any) -> Floats:
        total = np.zeros(len(w))
        for parts, known in self._gradients(w, X, y):
            total += self._weighted_sum(parts, known)
        return total

    def clipped_gradient_sum(
        self,
        w: Floats,
        X: Any,
        y: Any,
        clip: float,
        row_norms: Floats | None = None,
    ) -> Floats:
        """The sum of the examples' clipped gradients; ``row_norms`` save nothing here and are not used."""
        total, limit = np.zeros(len(w)), limit_under(clip)
        for parts, known in self._gradients(w, X, y):
            total += self._weighted_sum(parts, clip_factors(_norms(parts), limit) * known)
        return total

    def gradient_norms(self, w: Floats, X: Any, y: Any) -> Floats:
        return _join([_norms(parts) * known for parts, known in self._gradients(w, X, y)])

    def predict(self, w: Floats, X: Any) -> Floats:
        """The module's outputs."""
        with self._torch.no_grad():
            return _numbers(self._func.functional_call(self.module, self._by_name(w), (self._rows(X[:]),)))

    def load(self, w: Floats) -> Any:
        """Put parameters into the module, and return it."""
        with self._torch.no_grad():
            values = dict(self.module.named_parameters())
            for name, value in self._by_name(w).items():
                values[name].copy_(value)
        return self.module

    def _loss(self, named: dict[str, Any], row: Any, target: Any) -> Any:
        output = self._func.functional_call(self.module, named, (row.unsqueeze(0),))
        return self.loss_of(output, target.unsqueeze(0))

    def _gradients(self, w: Floats, X: Any, y: Any) -> Iterator[tuple[list[Part], Floats]]:
        """The gradients of each chunk's examples by each parameter, and 1 for those that count."""
        named = self._by_name(w)
        for rows, targets, known in self._chunks(X, y):
            yield self._examples.parts(named, rows, targets), known

    def _weighted_sum(self, parts: list[Part], weights: Floats) -> Floats:
        factors = self._torch.as_tensor(weights)
        return np.concatenate([part.weighted_sum(factors).cpu().numpy() for part in parts])

    def _chunks(self, X: Any, y: Any) -> Iterator[tuple[Any, Any, Floats]]:
        """Rows, targets, and 1 for each example whose target is one."""
        for start in range(0, len(X), self.chunk_size):
            chosen = slice(start, start + self.chunk_size)
            rows, labels = self._rows(as_numbers(X[chosen])), as_numbers(y[chosen])
            if self.classes is None:
                yield rows, self._rows(labels), np.ones(len(labels))
            else:
                known = np.isin(labels, np.arange(self.classes))
                codes = np.where(known, labels, 0).astype(np.int64)
                targets = self._torch.as_tensor(codes, device=self._like.device)
                yield rows, targets, known.astype(np.float64)

    def _rows(self, X: Any) -> Any:
        return self._torch.as_tensor(np.asarray(X), dtype=self._like.dtype, device=self._like.device)

    def _by_name(self, w: Floats) -> dict[str, Any]:
        """The flat parameters by the module's names."""
        flat = self._rows(parameters(w))
        sizes = [shape.numel() for shape in self._shapes.values()]
        pieces = self._torch.split(flat, sizes)
        return {
            name: piece.reshape(shape)
            for piece, (name, shape) in zip(pieces, self._shapes.items(), strict=True)
        }


def _find_trainable(module: Any) -> dict[str, Any]:
    """The parameters that require a gradient, by name."""
    found = {name: value for name, value in module.named_parameters() if value.requires_grad}
    if not found:
        raise ValueError("module must have a parameter that requires a gradient")
    return found


def _numbers(tensor: Any) -> Floats:
    found: Floats = tensor.detach().cpu().double().numpy()
    return found


def _norms(parts: list[Part]) -> Floats:
    found: Floats = sum(part.squares() for part in parts).sqrt().cpu().numpy()
    return found


def _join(parts: list[Floats]) -> Floats:
    return np.concatenate(parts) if parts else np.empty(0)
