"""Training: where an optimizer asks the ledger, looks at the data after its yes, and notes both.

An optimizer never touches the data itself. It describes a step (:meth:`Training.look`), and hands each
release a function of the batch, which runs after the ledger's yes::

    look = training.look(Release(Gaussian(sensitivity, noise_std), purpose="gradient"), Poisson(0.01))
    noisy = look.release(lambda batch: objective.clipped_gradient_sum(w, batch.X, batch.y, clip))
    training.record(w, step_size=0.1)
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self, TypeAlias

import numpy as np

from dpledger_client._arrays import Floats, Integers, by_place
from dpledger_client._checks import check_count
from dpledger_client.errors import HoldClosed
from dpledger_client.ledger import Account, Ledger
from dpledger_client.mechanisms import AboveThreshold
from dpledger_client.objectives.base import Objective, parameters
from dpledger_client.optimizers.support.blocks import Blocks, Permit
from dpledger_client.optimizers.support.progress import Progress, no_progress
from dpledger_client.optimizers.support.results import History, Iterate, IterationLog, Noted, Result, Run
from dpledger_client.permits import Authorization, Hold, Step
from dpledger_client.releases import Release, Releases, as_releases
from dpledger_client.samples import FreshSample, Full, WithoutReplacement

__all__ = [
    "Asking",
    "AuthorizedBatch",
    "Batch",
    "Callback",
    "Source",
    "StopTraining",
    "Training",
    "check_equally_many",
    "equally_many",
]

Callback: TypeAlias = Callable[[Iterate], bool | None]
"""Called after each iteration; True ends the training."""

_LISTS = (list, tuple)
MESSAGES = {
    "finished": "All iterations were made.",
    "budget-exhausted": "The ledger refused the next step; this is the last good iterate.",
    "callback": "The callback asked to stop.",
    "diverged": "An iterate was not finite; this is the last that was.",
}


class StopTraining(Exception):
    """Ends the training with what it has; ``reason`` becomes the result's ``stop_reason``."""

    def __init__(self, reason: str, message: str | None = None) -> None:
        super().__init__(message or MESSAGES.get(reason, reason))
        self.reason = reason


def equally_many(account: Account) -> bool:
    """Whether neighbours have equally many records, so that their number is public.

    So they have under replace-one, but not in a partition by a private key, which a record may leave.
    """
    facts = account.dataset.facts()
    stays = account.partition is None or facts["partition_key"] == "fixed"
    return bool(facts["adjacency"] == "replace-one" and stays)


def check_equally_many(account: Account, what: str) -> None:
    """Refuse what is proven for neighbours with equally many records alone."""
    if not equally_many(account):
        raise ValueError(
            f"{what} needs neighbours with equally many records: replace-one, and of a partition that "
            "records do not leave. Open the dataset with partition_key='fixed' if they do not"
        )


@dataclass(slots=True)
class Batch:
    """The rows that a look looks at. Secret: use it inside a release only."""

    X: Any
    y: Any

    def __len__(self) -> int:
        return len(self.X)


@dataclass(frozen=True)
class Source:
    """Private data, and what is public about them.

    Attributes
    ----------
    X, y
        The records. Only a look's release may index them.
    account
        What asks before that.
    records
        The public number of records that noisy sums are divided by.
    adjacency
        The dataset's.
    """

    X: Any
    y: Any
    account: Account
    records: int
    adjacency: str

    @classmethod
    def of(
        cls,
        X: Any,
        y: Any,
        account: Account,
        records: int | None = None,
        shown: Mapping[str, Any] | None = None,
    ) -> "Source":
        """The data as the ledger knows the dataset; where their number is secret, one must be given.

        ``shown`` is what the ledger says of the dataset, if it was asked before.
        """
        if len(X) != len(y):
            raise ValueError(f"X and y must be equally long, found {len(X)} and {len(y)}")
        shown = account.dataset.facts() if shown is None else shown
        adjacency = str(shown["adjacency"])
        if records is None and account.partition is None:
            records = shown.get("records")
        if records is None and equally_many(account):
            records = len(X)
        if records is None:
            raise ValueError(
                "records must be given: under add-remove, and in a partition by a private key, the number "
                "of rows is secret, and noisy sums are divided by a public one. Open the dataset with "
                "records=…, or pass records=…"
            )
        return cls(by_place(X), by_place(y), account, check_count("records", int(records)), adjacency)

    def check(self, sample: FreshSample) -> None:
        """Refuse a sample whose own size would tell the number of records, before it is asked for."""
        if type(sample) is WithoutReplacement:
            check_equally_many(self.account, "sampling without replacement")

    def drawn(self, sample: FreshSample) -> Batch:
        """The rows of a fresh sample."""
        X = self.X
        if type(sample) is Full:  # isinstance asks abc, which takes its time at every step
            return Batch(X, self.y)
        rows = sample.draw(len(X))
        plain = type(X) is type(self.y) is np.ndarray
        return Batch(X[rows], self.y[rows]) if plain else self.batch(rows)

    def batch(self, rows: Integers | None) -> Batch:
        """The rows of a sample, or all."""
        if rows is None:
            return Batch(self.X, self.y)
        if isinstance(self.X, _LISTS) or isinstance(self.y, _LISTS):
            return Batch(_taken(self.X, rows), _taken(self.y, rows))
        return Batch(self.X[rows], self.y[rows])


def _taken(data: Any, rows: Integers) -> Any:
    """The rows of an array, or the items of a list."""
    return [data[row] for row in rows] if isinstance(data, _LISTS) else data[rows]


def _finite(w: Floats) -> bool:
    return bool(np.isfinite(w).all())


def _same(details: Mapping[str, Any], known: Mapping[str, Any]) -> bool:
    """Whether these are the very same; to compare them by value is not for arrays."""
    for name, value in details.items():
        if known.get(name, known) is not value:
            return False
    return len(details) == len(known)


class AuthorizedBatch:
    """One sample that the ledger said yes to look at, drawn when the first release needs it.

    After a restart from a journal a step of which some outputs are known looks at a fresh sample for
    the others. Under Rényi curves that costs no more: looks at independent samples cost at most as much
    as looks at one. Under privacy-loss distributions it may, and the permit refuses: see ``journal``.
    """

    def __init__(self, source: Source, sample: FreshSample, step: Step) -> None:
        self.step = step
        self.sample = sample
        self._source = source
        self._batch: Batch | None = None

    def release(self, compute: Callable[[Batch], Any], which: int | str = 0) -> Any:
        """Release what ``compute`` makes of the batch, with the noise of one of the step's releases."""
        return self.step.release(lambda: compute(self._drawn()), which)

    def left(self, which: int | str = 0) -> int:
        """How often a release may still be used."""
        return self.step.left(which)

    @property
    def records(self) -> int:
        """The public number of records that it is a look at."""
        return self._source.records

    def _drawn(self) -> Batch:
        if self._batch is None:
            self._batch = self._source.drawn(self.sample)
            if self._reads_again:
                self.step.watch(self._batch.X, self._batch.y)
        return self._batch

    @property
    def _reads_again(self) -> bool:
        """Whether the permit reads data more than once that somebody else may change meanwhile.

        The sample of an array is a copy. A line search computes its queries one after the other.
        """
        copied = type(self.sample) is not Full and not isinstance(self._source.X, _LISTS)
        several = sum(release.count for release in self.step.releases) > 1
        searches = any(isinstance(release.mechanism, AboveThreshold) for release in self.step.releases)
        return not copied and (several or searches)


class Asking:
    """What asks the ledger for looks at one source, and notes every charge.

    A step that is repeated is asked for in growing blocks where that is free: see
    :mod:`dpledger_client.optimizers.support.blocks`. What of a block did not run is settled when another step
    is asked for, and at the end, however that comes.

    Parameters
    ----------
    reserve
        Reserve so many equal steps at once.
    block
        Let blocks of equal steps grow to so many at most; 1 to ask for each step by itself.
    steps
        How many iterations are planned, so that no reservation is for more.
    """

    def __init__(
        self,
        source: Source,
        *,
        steps: int | None = None,
        reserve: int | None = None,
        block: int | None = None,
    ) -> None:
        self.source = source
        self.steps = steps
        self.iteration = 0
        self.remaining: Mapping[str, Any] = {}
        self._history = IterationLog()
        self._charges: list[Noted] = []
        self._held: tuple[Release, FreshSample, Hold] | None = None
        """The reservation that :meth:`release` takes repetitions of, and of which step."""
        self._counted = 0
        """How many of its repetitions are among the charges, or in a run."""
        self._run: Run | None = None
        """The iterations of which each made one repetition of it, to the last noted."""
        self._blocks = Blocks(source.account, reserve=reserve, block=block)

    @property
    def records(self) -> int:
        """The public number of records."""
        return self.source.records

    @property
    def adjacency(self) -> str:
        """The dataset's adjacency."""
        return self.source.adjacency

    @property
    def ledger(self) -> Ledger:
        """The ledger that is asked."""
        return self.source.account.dataset.ledger

    @property
    def reserves(self) -> bool:
        """Whether every step is reserved; a sample of such a step cannot be looked at again."""
        return self._blocks.reserve is not None

    def authorized(
        self, releases: Releases, sample: FreshSample | None = None, *, alone: bool = False
    ) -> AuthorizedBatch:
        """Ask for one step; raises :class:`BudgetExhausted`, which ends the training, if refused.

        ``alone`` asks for this step by itself, so that its sample can be looked at :meth:`again`.
        """
        listed = (releases,) if type(releases) is Release else as_releases(releases)
        drawn = sample or Full()
        return self._look(self._permit(listed, drawn, alone), drawn)

    def release(self, release: Release, sample: FreshSample, compute: Callable[[Batch], Any]) -> Any:
        """Ask for a step of one release, look once, and release: ``look(release, sample).release(compute)``.

        Of a reservation it takes the shortest way, for steps that are made by the thousand.
        """
        held = self._held
        if held is not None and held[0] is release and held[1] is sample and held[2].used < held[2].limit:
            source = self.source
            try:
                return held[2].release(lambda: compute(source.drawn(sample)))
            except HoldClosed:  # before anything was computed; another reservation is asked for
                self._write_charges()
        permit = self._permit((release,), sample)
        if not isinstance(permit, Hold):
            return self._look(permit, sample).release(compute)
        self._held, self._counted = (release, sample, permit), permit.used
        return permit.release(lambda: compute(self.source.drawn(sample)))

    def again(self, authorized: AuthorizedBatch, releases: Releases) -> AuthorizedBatch:
        """Ask to look at a look's own sample once more, at the raw cost, without amplification."""
        if not isinstance(authorized.step, Authorization):
            raise ValueError("a repetition of a reservation cannot be looked at again")
        seen, listed = authorized.step.same_sample, as_releases(releases)
        step = self.source.account.authorize(listed, sample=seen)
        self._write_charges()
        self._charges.append((step.granted, listed, seen, None))
        self.remaining = step.granted.remaining
        repeated = AuthorizedBatch(self.source, authorized.sample, step)
        repeated._batch = authorized._batch
        return repeated

    def _note(self, details: Mapping[str, Any]) -> None:
        """Note an iteration; those that follow are counted with it where only their repetition differs."""
        self._write_charges()
        charges, self._charges = self._charges, []
        run = self._history.add(self.iteration, charges, details)
        if self._held is not None and len(charges) == 1 and charges[0][0] is self._held[2].granted:
            self._run = run

    def _write_charges(self) -> None:
        """Write down, after the charges so far, repetitions that were only counted."""
        if self._held is None:
            return
        _release, sample, hold = self._held
        if self._run is not None:
            self._counted += self._run.count - 1
            self._run = None
        for repetition in range(self._counted, hold.used):
            self._charges.append((hold.granted, hold.releases, sample, repetition))
        self._counted = hold.used

    def _permit(self, releases: tuple[Release, ...], sample: FreshSample, alone: bool = False) -> Permit:
        """What was granted for a step like this, asked for if there is none left."""
        self._write_charges()
        self._held = None
        self.source.check(sample)
        most = None if self.steps is None else self.steps - self.iteration
        permit = self._blocks.permit(releases, sample, most=most, alone=alone)
        self.remaining = permit.granted.remaining
        return permit

    def _look(self, permit: Permit, sample: FreshSample) -> AuthorizedBatch:
        """The look that one step of a permit allows, noted as charged."""
        if isinstance(permit, Hold):
            step, repetition = permit.take(), permit.used - 1
        else:
            step, repetition = permit, None
        self._charges.append((permit.granted, permit.releases, sample, repetition))
        return AuthorizedBatch(self.source, sample, step)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, cause: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.remaining = self._blocks.leave(kind, cause, trace) or self.remaining


class Training(Asking):
    """One training: what a method asks, looks at and records.

    Parameters
    ----------
    objective, source
        What is minimised, over which data.
    w0
        Where to start; the objective's own start if None.
    reserve, block
        How many equal steps are asked for at once; see :class:`Asking`.
    steps
        How many iterations are planned, for the progress bar and for reservations.
    """

    def __init__(
        self,
        objective: Objective,
        source: Source,
        *,
        method: str,
        steps: int | None = None,
        w0: Any = None,
        reserve: int | None = None,
        block: int | None = None,
        callback: Callback | None = None,
        progress: Progress = no_progress,
    ) -> None:
        super().__init__(source, steps=steps, reserve=reserve, block=block)
        self.objective = objective
        self.method = method
        start = objective.initial(source.X, source.y) if w0 is None else w0
        self.w: Floats = parameters(start).copy()
        self._callback = callback
        self._progress = progress
        self._output = self.w

    def record(self, w: Floats, *, output: Floats | None = None, **details: Any) -> None:
        """Note a completed iteration; ``output`` is what to return if it was the last, ``w`` if None."""
        chosen = w if output is None else output
        # The sum of squares tells at once, unless it overflows; vdot does so without a warning.
        if not ((math.isfinite(np.vdot(w, w)) or _finite(w)) and (chosen is w or _finite(chosen))):
            raise StopTraining("diverged")
        self.w, self._output = w, chosen
        self.iteration += 1
        run, held = self._run, self._held
        if (
            run is not None
            and held is not None
            and held[2].used == self._counted + run.count
            and _same(details, run.details)
        ):
            run.count += 1
        else:
            self._note(details)
        if self._progress is not no_progress:
            self._progress(self.iteration, self.steps, self.remaining)
        if self._callback is not None:
            shown = Iterate(self.iteration, chosen.copy(), details, self.remaining)
            if self._callback(shown):
                raise StopTraining("callback")

    def result(self, reason: str, message: str | None = None) -> Result:
        """What there is, at the end."""
        self._write_charges()
        if self._charges:
            self._note({"completed": False})
        text = message or MESSAGES.get(reason, reason)
        return Result(
            self._output.copy(),
            self.method,
            reason,
            text,
            self.iteration,
            History(self._history),
            self.remaining,
        )
