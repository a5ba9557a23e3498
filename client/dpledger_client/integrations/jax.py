"""JAX under a ledger: :class:`PrivateGradients` asks before each step, for any Optax optimizer.

It needs the extra ``jax``::

    gradients = PrivateGradients(
        loss, ledger.dataset("adult").run("job-1"), X, y,
        batch_size=100, clip=1.0, noise_multiplier=1.1)              # loss(params, row, target) -> a number
    with gradients:
        for _ in range(1000):
            updates, state = optimizer.update(gradients(params), state, params)
            params = optax.apply_updates(params, updates)

A call is a step on the host and no part of a ``jit``: a pure function can neither ask a ledger nor draw noise
that is new each time. JAX computes the gradients of single examples. They are clipped and added up in double
precision on the host, and the client's own sampler adds the noise, after the ledger's yes.
"""

import atexit
import importlib
import weakref
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Any, Self

import numpy as np

from dpledger_client._arrays import Floats, as_numbers
from dpledger_client._checks import check_count
from dpledger_client.errors import MissingExtra
from dpledger_client.ledger import Account
from dpledger_client.objectives.base import clip_factors, limit_under, usable
from dpledger_client.optimizers.support.blocks import Blocks
from dpledger_client.optimizers.support.planning import Item
from dpledger_client.optimizers.support.stochastic import NoisyGradient
from dpledger_client.optimizers.training import Batch, Source

__all__ = ["PrivateGradients"]


def _jax(name: str = "jax") -> Any:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise MissingExtra("JAX functions need: pip install 'dpledger-client[jax]'") from error


class PrivateGradients:
    """Noisy mean gradients of Poisson samples, one for each call.

    Parameters
    ----------
    loss
        From the parameters, the row and the target of one example to a scalar, in operations of JAX. It must
        not look at other records.
    account
        What asks.
    X, y
        The records.
    batch_size
        How many records a sample is to have; must not come from the private data.
    clip, noise_multiplier
        Each example's gradient is shortened to an L2 norm of at most ``clip``, and the noise of their sum has
        ``noise_multiplier`` times its sensitivity.
    classes
        How many classes there are, if targets are classes from 0 on. An example whose target is none of them
        counts as zero, since an error would tell of it. None: targets are numbers.
    records
        The public number of records of a partition. That of a dataset is in the ledger.
    reserve, block
        How many equal steps are asked for at once, as in ``minimize``.
    chunk_size
        How many examples' gradients are held at once. Rounding errors of sums are covered by clipping's
        margin for up to 2¹⁹ records with chunks of 128.
    vectorize
        Form the gradients of a chunk together, by ``vmap``, for accelerators, which one example at a time
        leaves idle. XLA may then round an example's gradient by its place, so that one record more changes
        the last bits of others, which no margin covers. By default they follow one another in a compiled
        loop, whose turns are all the same code on the same shapes: an example is rounded the same whoever is
        beside it.

    Notes
    -----
    Under add-remove adjacency samples are Poisson, under replace-one without replacement, at the rate that
    follows from ``batch_size`` and the public number of records; sums are divided by the expected size. What
    is reserved is settled at the end of a ``with``, by :meth:`close`, or when the process ends. With a
    journal, a restarted job gets its old outputs.
    """

    def __init__(
        self,
        loss: Callable[[Any, Any, Any], Any],
        account: Account,
        X: Any,
        y: Any,
        *,
        batch_size: int,
        clip: float,
        noise_multiplier: float,
        classes: int | None = None,
        records: int | None = None,
        reserve: int | None = None,
        block: int | None = None,
        chunk_size: int = 128,
        vectorize: bool = False,
    ) -> None:
        self._jax, self._tree = _jax(), _jax("jax.flatten_util")
        self._source = Source.of(X, y, account, records)
        self._step = NoisyGradient.of(self._source, batch_size, clip, noise_multiplier)
        self._source.check(self._step.sample)
        self._classes = None if classes is None else check_count("classes", classes, least=2)
        self._chunk_size = check_count("chunk_size", chunk_size)
        self._examples = self._jax.jit(self._gradients_of(loss, vectorize))
        self._blocks = Blocks(account, reserve=reserve, block=block)
        # Registered now, it runs at exit before an embedded ledger stops; a finalizer's own turn is later.
        self._settle = weakref.finalize(self, self._blocks.settle)
        self._settle.atexit = False
        atexit.register(self._settle)

    def __call__(self, params: Any) -> Any:
        """Ask for a step, look at a fresh sample, and give its noisy mean gradient in the form of ``params``.

        Raises :class:`~dpledger_client.BudgetExhausted` if the ledger refuses, before anything is looked at.
        """
        flat, unravel = self._tree.ravel_pytree(params)
        permit = self._blocks.permit((self._step.release,), self._step.sample, most=None)
        noisy = permit.release(lambda: self._clipped_sum(params, flat, self._source.drawn(self._step.sample)))
        return unravel(self._jax.numpy.asarray(noisy / self._step.size, dtype=flat.dtype))

    def item(self, times: int, name: str = "sgd") -> Item:
        """So many of these steps, as an item of a plan."""
        return self._step.item(times, name)

    def close(self) -> None:
        """Settle what was reserved; a further step reserves anew."""
        self._blocks.settle()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, cause: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._blocks.leave(kind, cause, trace)

    def _gradients_of(self, loss: Callable[[Any, Any, Any], Any], vectorize: bool) -> Callable[..., Any]:
        """From parameters, rows and targets to the gradient of each example, as a vector."""
        jax, gradient, ravel = self._jax, self._jax.grad(loss), self._tree.ravel_pytree

        def one(params: Any, row: Any, target: Any) -> Any:
            return ravel(gradient(params, row, target))[0]

        if vectorize:
            return jax.vmap(one, in_axes=(None, 0, 0))  # type: ignore[no-any-return]
        return lambda params, *examples: jax.lax.map(lambda each: one(params, *each), examples)

    def _clipped_sum(self, params: Any, flat: Any, batch: Batch) -> Floats:
        """The sum of the examples' gradients, each shortened; secret until it has its noise."""
        total, limit = np.zeros(len(flat)), limit_under(self._step.clip)
        for rows, targets, known in self._chunks(batch, flat.dtype):
            gradients = self._example_gradients(params, rows, targets)
            factors = clip_factors(np.sqrt(np.vecdot(gradients, gradients)), limit) * known
            total += factors @ usable(gradients, factors)
        return total

    def _example_gradients(self, params: Any, rows: Any, targets: Any) -> Floats:
        """A row for each example, in doubles. JAX must not stop at a NaN: an error would tell of a record."""
        with self._jax.debug_nans(False), self._jax.debug_infs(False):
            return np.asarray(self._examples(params, rows, targets), dtype=np.float64)

    def _chunks(self, batch: Batch, dtype: Any) -> Iterator[tuple[Any, Any, Floats]]:
        """Rows, targets, and 1 for each that counts; of one size, so that XLA compiles once."""
        for start in range(0, len(batch), self._chunk_size):
            chosen = slice(start, start + self._chunk_size)
            rows, labels = as_numbers(batch.X[chosen]), as_numbers(batch.y[chosen])
            if self._classes is None:
                known, targets = np.ones(len(labels)), self._padded(labels, dtype)
            else:
                known = np.isin(labels, np.arange(self._classes)).astype(np.float64)
                targets = self._padded(np.where(known > 0.0, labels, 0.0), np.int32)
            yield self._padded(rows, dtype), targets, self._padded(known, np.float64)

    def _padded(self, values: Floats, dtype: Any) -> Any:
        padded = np.zeros((self._chunk_size, *values.shape[1:]), dtype=dtype)
        with np.errstate(over="ignore", invalid="ignore"):  # a warning would tell of a record
            padded[: len(values)] = values
        return padded
