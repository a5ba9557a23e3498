"""Gradients of single examples by ``torch.func``, in the form in which they are cheapest to clip.

``vmap`` keeps examples apart, whatever the module does. What it differentiates by is, for a Linear or a
Conv2d, a shift of the layer's output instead of its weights: with a what enters the layer and b the slope at
its output, the weight's gradient is b·aᵀ, summed over the places where the layer is applied. At one place
its norm is ‖a‖·‖b‖ and a weighted sum over examples is one product of matrices, so that no example's
gradient is formed. At several places it is formed: its norm from the Gram matrices of a and b (ghost
clipping, Li et al. 2022) may cancel to less than the true one, and an example would then count for more than
the limit.

All other parameters are differentiated by themselves.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias

from dpledger_client.objectives.base import LOST_SQUARES

__all__ = ["Dense", "ExampleGradients", "Outer", "Part"]

Loss: TypeAlias = Callable[[Any, Any], Any]
Shapes: TypeAlias = dict[str, Any]


@dataclass(frozen=True)
class Dense:
    """The gradients by one parameter, a row for each example, in doubles."""

    rows: Any

    def squares(self) -> Any:
        """The squared norm of each example's gradient."""
        return (self.rows * self.rows).sum(dim=1)

    def weighted_sum(self, weights: Any) -> Any:
        """The sum of the examples' gradients times their weights; an example of weight 0 is left out."""
        weights = weights.to(self.rows)
        return weights @ _usable(self.rows, weights)


@dataclass(frozen=True)
class Outer:
    """The gradients by a matrix, for each example the outer product of two rows, in doubles."""

    slopes: Any
    entering: Any

    def squares(self) -> Any:
        """The squared norm of each example's gradient, never below the true one by more than rounding."""
        slopes, entering = ((rows * rows).sum(dim=1) + LOST_SQUARES for rows in (self.slopes, self.entering))
        return slopes * entering

    def weighted_sum(self, weights: Any) -> Any:
        """The sum of the examples' gradients times their weights; an example of weight 0 is left out."""
        weights = weights.to(self.slopes)
        slopes = _usable(self.slopes, weights) * weights[:, None]
        return (slopes.T @ _usable(self.entering, weights)).ravel()


Part: TypeAlias = Dense | Outer


class ExampleGradients:
    """The gradients of single examples by the trained parameters of a module.

    Parameters
    ----------
    torch
        The library.
    module
        What is trained; it is not changed.
    names
        Of the parameters, in the order in which their gradients are wanted.
    loss
        From the outputs and the target of one example, each with a first dimension of 1, to a scalar.
    """

    def __init__(self, torch: Any, module: Any, names: Sequence[str], loss: Loss) -> None:
        self._torch = torch
        self._module = module
        self._names = list(names)
        self._loss = loss
        self._layers = _simple_layers(torch, module, set(self._names))
        self._outputs: dict[Any, Shapes] = {}

    def parts(self, named: Mapping[str, Any], rows: Any, targets: Any) -> list[Part]:
        """For each parameter, in order, the gradients of all examples."""
        shapes = self._output_shapes(named, rows)
        inside = {f"{layer}{name}" for layer in shapes for name in ("weight", "bias")}
        fixed = {name: self._laid_out(value) for name, value in named.items() if name in inside}
        variables = {
            "shifts": {layer: rows.new_zeros(shape) for layer, shape in shapes.items()},
            "others": {name: value for name, value in named.items() if name not in inside},
        }

        def evaluate(variables: Any, row: Any, target: Any) -> Any:
            entering: dict[str, Any] = {}
            with self._watch(self._shifting(variables["shifts"], entering)):
                values = {**fixed, **variables["others"]}
                output = self._torch.func.functional_call(self._module, values, (row.unsqueeze(0),))
            return self._loss(output, target.unsqueeze(0)), entering

        each = self._torch.func.grad(evaluate, has_aux=True)
        found, entering = self._torch.func.vmap(each, in_dims=(None, 0, 0))(variables, rows, targets)
        made: dict[str, Part] = {name: Dense(self._rows(value)) for name, value in found["others"].items()}
        for layer in shapes:
            made |= self._layer_parts(layer, entering[layer], found["shifts"][layer])
        return [made[name] for name in self._names]

    def _layer_parts(self, layer: str, entering: Any, slopes: Any) -> dict[str, Part]:
        """The gradients by a layer's parameters."""
        if isinstance(self._layers[layer], self._torch.nn.Conv2d):
            images, slopes = entering.flatten(0, 1), slopes.flatten(0, 1).flatten(2)
            weight: Part = Dense(self._rows(self._kernel_gradients(self._layers[layer], images, slopes)))
        else:
            entering, slopes = (each.flatten(1, -2).transpose(1, 2) for each in (entering, slopes))
            if slopes.shape[2] == 1:
                weight = Outer(self._rows(slopes), self._rows(entering))
            else:
                weight = Dense(self._rows(slopes @ entering.transpose(1, 2)))
        return {f"{layer}weight": weight, f"{layer}bias": Dense(self._rows(slopes.sum(dim=2)))}

    def _kernel_gradients(self, layer: Any, images: Any, slopes: Any) -> Any:
        """The gradients by a kernel; ``slopes`` are (examples, channels, places)."""
        high, wide = layer.padding
        windows = self._torch.nn.functional.pad(images, (wide, wide, high, high))
        for axis in (0, 1):
            windows = windows.unfold(2 + axis, layer.kernel_size[axis], layer.stride[axis])
        # Channels last, as the images are laid out, and back in the small result.
        patches = windows.permute(0, 2, 3, 4, 5, 1).flatten(3).flatten(1, 2)
        return (slopes @ patches).unflatten(2, (*layer.kernel_size, -1)).permute(0, 1, 4, 2, 3)

    def _rows(self, tensor: Any) -> Any:
        """A row of doubles for each example, where the tensor is, or on the processor."""
        tensor = tensor.detach()
        kept = tensor.cpu() if tensor.device.type == "mps" else tensor
        return kept.to(self._torch.float64, memory_format=self._torch.contiguous_format).flatten(1)

    def _laid_out(self, value: Any) -> Any:
        """A kernel with its channels last, since pooling what it makes is then eight times faster."""
        return value.to(memory_format=self._torch.channels_last) if value.dim() == 4 else value

    def _patches(self, layer: Any, images: Any) -> Any:
        """What the kernel sees at each place: (examples, places, channels and kernel)."""
        functional = self._torch.nn.functional
        if layer.dilation != (1, 1):
            columns = functional.unfold(
                images, layer.kernel_size, layer.dilation, layer.padding, layer.stride
            )
            return columns.transpose(1, 2)
        high, wide = layer.padding
        windows = functional.pad(images, (wide, wide, high, high))
        for axis in (0, 1):
            windows = windows.unfold(2 + axis, layer.kernel_size[axis], layer.stride[axis])
        return windows.permute(0, 2, 3, 1, 4, 5).flatten(3).flatten(1, 2)

    def _output_shapes(self, named: Mapping[str, Any], rows: Any) -> Shapes:
        """The outputs' shapes of the layers that are differentiated by a shift, for rows of this shape."""
        shape = rows.shape[1:]
        if shape not in self._outputs:
            self._outputs[shape] = self._probe(named, rows.new_zeros((1, *shape)))
        return self._outputs[shape]

    def _probe(self, named: Mapping[str, Any], row: Any) -> Shapes:
        """Which layers the module applies exactly once, and whose weights it uses nowhere else.

        One row of zeros goes through the module, cut at the outputs of the layers: a weight on which
        something outside of its layer depends still has a gradient then. No data are looked at.
        """
        leaves = {name: value.detach().clone().requires_grad_() for name, value in named.items()}
        buffers = {name: value.detach().clone() for name, value in self._module.named_buffers()}
        seen: dict[str, list[Any]] = {layer: [] for layer in self._layers}
        reached: list[Any] = []

        def cut(layer: str, arguments: Any, output: Any) -> Any:
            seen[layer].append(output.shape if len(arguments) == 1 else None)
            reached.extend(arguments)
            return output.detach().requires_grad_()

        with self._torch.enable_grad(), self._watch(cut):
            output = self._torch.func.functional_call(self._module, {**leaves, **buffers}, (row,))
            reached.append(output)
            used = self._reached_from(leaves, reached)
        return {
            layer: shapes[0]
            for layer, shapes in seen.items()
            if len(shapes) == 1 and shapes[0] is not None and not used & {f"{layer}weight", f"{layer}bias"}
        }

    def _reached_from(self, leaves: Mapping[str, Any], reached: Any) -> set[str]:
        """The parameters on which any of these tensors depends."""
        tensors = [
            each
            for each in self._torch.utils._pytree.tree_leaves(reached)
            if isinstance(each, self._torch.Tensor) and each.requires_grad
        ]
        if not tensors:
            return set()
        found = self._torch.autograd.grad(
            [each.sum() for each in tensors], list(leaves.values()), allow_unused=True
        )
        return {name for name, value in zip(leaves, found, strict=True) if value is not None}

    def _shifting(self, shifts: Mapping[str, Any], entering: dict[str, Any]) -> Callable[..., Any]:
        """What notes a layer's input and shifts its output."""

        def shift(layer: str, arguments: Any, output: Any) -> Any:
            if layer not in shifts:
                return output
            entering[layer] = arguments[0]
            return output + shifts[layer]

        return shift

    @contextmanager
    def _watch(self, action: Callable[..., Any]) -> Iterator[None]:
        """Let ``action(layer, arguments, output)`` replace what the layers return."""

        def hook_of(layer: str) -> Callable[..., Any]:
            return lambda _module, arguments, output: action(layer, arguments, output)

        handles = [module.register_forward_hook(hook_of(layer)) for layer, module in self._layers.items()]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()


def _simple_layers(torch: Any, module: Any, trained: set[str]) -> dict[str, Any]:
    """The layers whose gradients are known products, by the prefix of their parameters' names."""
    owners: dict[int, int] = {}
    for _, value in module.named_parameters(remove_duplicate=False):
        owners[id(value)] = owners.get(id(value), 0) + 1
    found = {}
    for name, layer in module.named_modules():
        own = dict(layer.named_parameters(recurse=False))
        prefix = f"{name}." if name else ""
        if (
            _is_simple(torch, layer)
            and any(prefix + each in trained for each in own)
            and all(owners[id(value)] == 1 for value in own.values())
        ):
            found[prefix] = layer
    return found


def _is_simple(torch: Any, layer: Any) -> bool:
    """Whether it is one of these layers itself, and nothing changes what enters or leaves it."""
    if layer._forward_hooks or layer._forward_pre_hooks or "forward" in vars(layer):
        return False
    if type(layer) is torch.nn.Linear:
        return True
    return (
        type(layer) is torch.nn.Conv2d
        and layer.groups == 1
        and layer.dilation == (1, 1)
        and layer.padding_mode == "zeros"
        and not isinstance(layer.padding, str)
    )


def _usable(rows: Any, weights: Any) -> Any:
    """The rows, with zeros for those of weight 0: they may hold what no factor makes harmless."""
    dropped = weights == 0.0
    return rows.masked_fill(dropped[:, None], 0.0) if dropped.any() else rows
