"""Asks for steps: each by itself, or equal ones in blocks that grow.

A reservation of n repetitions costs what n authorizations cost, and what did not run is settled back, so that
a training that repeats one step loses nothing by asking for several at once. What a block risks is a job that
is killed: its reservation expires and is charged in full. So blocks begin at one step, whose time tells how
long the next is: as long as the step stays the same, only until asking takes ``ASKING_SHARE`` of the time.
That is some hundred steps where a step takes a millisecond, one where it takes a second. None is longer than
``MOST_STEPS`` steps or what ``MOST_SECONDS`` of training use up.
"""

import math
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from time import monotonic
from types import TracebackType
from typing import Any, TypeAlias

from dpledger_client._calls import dataset_path
from dpledger_client._checks import check_count
from dpledger_client.errors import BudgetExhausted
from dpledger_client.ledger import Account
from dpledger_client.permits import Authorization, Hold
from dpledger_client.releases import Release
from dpledger_client.samples import FreshSample

__all__ = ["RESERVED_AT_COST", "BlockSizes", "Blocks", "Permit"]

ASKING_SHARE = 0.01
MOST_STEPS = 1024
MOST_SECONDS = 30.0
EXPIRES_SECONDS = 300.0
"""For how long a block is reserved at least: a job may pause, to evaluate or to save what it has."""
RESERVED_AT_COST = frozenset({"zcdp", "gdp", "rdp", "rdp-order", "rdp-curve", "plan", "shared"})
"""The kinds of budget under which n reserved repetitions cost what n authorizations do."""
Permit: TypeAlias = Hold | Authorization
"""What was granted: a reservation with repetitions left, or one step."""


class BlockSizes:
    """How many repetitions of a step to ask for at once.

    Parameters
    ----------
    most
        The largest block; 1 to ask for each step by itself.
    """

    def __init__(self, most: int | None = None) -> None:
        self.most = MOST_STEPS if most is None else check_count("block", most)
        self._step: Any = None
        self._size = 0
        self._longest = 0.0

    @property
    def expires_in_seconds(self) -> float:
        """For how long to reserve: longer than any block so far took."""
        return EXPIRES_SECONDS + 2.0 * self._longest

    def next(self, step: Any, made: int, training_seconds: float, asking_seconds: float) -> int:
        """The size of the next block, of this step.

        Parameters
        ----------
        made, training_seconds
            How many steps of the last block were made, and how long they took.
        asking_seconds
            How long it took to ask for them.
        """
        if self._size and step == self._step:
            self._longest = max(self._longest, training_seconds)
            each = max(training_seconds / max(made, 1), 1e-9)
            enough = math.ceil(asking_seconds / (ASKING_SHARE * each))
            size = int(min(enough, self.most, MOST_SECONDS / each))
            self._size = size if size > 2 else 1  # two reserved steps are two requests, as two single ones
        else:
            self._step, self._size = step, 1
        return self._size

    def restart(self) -> None:
        """Begin at one step again: the budget nears its end, or how long a step takes is not known."""
        self._size = 0


class Blocks:
    """What asks an account for steps, and settles what did not run.

    Parameters
    ----------
    reserve
        Reserve so many equal steps at once.
    block
        Let blocks of equal steps grow to so many at most; 1 to ask for each step by itself.
    clock
        Seconds that never go back.
    """

    def __init__(
        self,
        account: Account,
        *,
        reserve: int | None = None,
        block: int | None = None,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        if reserve is not None and block is not None:
            raise ValueError("give reserve, for reservations of one size, or block, for growing ones")
        self._account = account
        self.reserve = None if reserve is None else check_count("reserve", reserve)
        self._sizes = BlockSizes(block)
        self._clock = clock
        self._granted_at = clock()
        self._asking_seconds = 0.0
        self._open = ExitStack()
        self._held: tuple[tuple[Release, ...], FreshSample, Hold] | None = None

    def permit(
        self, releases: tuple[Release, ...], sample: FreshSample, *, most: int | None, alone: bool = False
    ) -> Permit:
        """The reservation at hand if it has more of this very step, or what is granted anew.

        ``most`` is how many steps there can still be. ``alone`` asks for this one by itself.
        """
        if self._held is not None:
            for_releases, for_sample, hold = self._held
            if not alone and (for_releases, for_sample) == (releases, sample) and hold.ready():
                return hold
        if self.reserve is not None:
            self.settle()
            return self._next_reservation(releases, sample, self.reserve if most is None else most)
        return self._next_block(releases, sample, 1 if alone else most)

    def settle(self) -> Mapping[str, Any] | None:
        """Settle what is held; what the ledger said is left after that, if it was asked."""
        return self.leave(None, None, None)

    def leave(
        self, kind: type[BaseException] | None, cause: BaseException | None, trace: TracebackType | None
    ) -> Mapping[str, Any] | None:
        """The same at the end of a ``with``, which an error may have ended."""
        held, self._held = self._held, None
        self._open.__exit__(kind, cause, trace)
        settlement = None if held is None else held[2].settlement
        return None if settlement is None else settlement.remaining

    def _next_reservation(self, releases: tuple[Release, ...], sample: FreshSample, most: int) -> Hold:
        """One of the size asked for, or of as many as the budget still covers."""
        times = max(1, min(self.reserve or 1, most))
        while True:
            try:
                hold = self._hold(releases, sample, times)
            except BudgetExhausted as refused:
                fits = int(refused.fits.get("times") or 0)
                if not 1 <= fits < times:
                    raise
                hold = self._hold(releases, sample, fits)
            if hold.left:  # a journal's reservation that was settled before gives nothing more
                return hold
            self.settle()

    def _next_block(self, releases: tuple[Release, ...], sample: FreshSample, most: int | None) -> Permit:
        """A block that is as large as its step and the time that it takes allow."""
        asked_at = self._clock()
        made = 1 if self._held is None else self._held[2].used
        self.settle()
        times = self._sizes.next((releases, sample), made, asked_at - self._granted_at, self._asking_seconds)
        permit = self._grant(releases, sample, times if most is None else max(1, min(times, most)))
        self._granted_at = self._clock()
        self._asking_seconds = self._granted_at - asked_at
        return permit

    def _grant(self, releases: tuple[Release, ...], sample: FreshSample, times: int) -> Permit:
        """So many steps, or fewer where the budget ends: down to one, which is refused last."""
        while True:
            times, seconds = self._as_recorded(releases, sample, times if self._is_free else 1)
            if times == 1 and seconds is None:
                return self._account.authorize(releases, sample=sample)
            try:
                hold = self._hold(releases, sample, times, seconds or self._sizes.expires_in_seconds)
            except BudgetExhausted as refused:
                self._sizes.restart()
                times = _fewer(times, refused)
                continue
            if hold.left:
                return hold
            self.settle()

    @property
    def _is_free(self) -> bool:
        return self._account.dataset.facts()["accounting"] in RESERVED_AT_COST

    def _as_recorded(
        self, releases: tuple[Release, ...], sample: FreshSample, times: int
    ) -> tuple[int, float | None]:
        """How many steps a job asked for here before a restart, and for how long, if a journal has it.

        Sizes depend on how long steps took, and a restarted job must repeat its requests.
        """
        journal, dataset = self._account.journal, self._account.dataset
        if journal is None:
            return times, None
        record = journal.upcoming(dataset.ledger._wire.token_id())
        if record is None:
            return times, None
        self._sizes.restart()
        asked = {**record["body"]} if isinstance(record["body"], dict) else {}
        again = int(asked.pop("times", 1)), asked.pop("expires_in_seconds", None)
        kind = "/authorizations" if again[1] is None else "/reservations"
        same = asked == self._account.spend(releases, sample=sample).body()
        return again if same and record["intent"] == dataset_path(dataset.name, kind) else (times, None)

    def _hold(
        self,
        releases: tuple[Release, ...],
        sample: FreshSample,
        times: int,
        expires_in_seconds: float = 3600.0,
    ) -> Hold:
        reservation = self._account.reserve(
            releases, times=times, sample=sample, expires_in_seconds=expires_in_seconds
        )
        hold = self._open.enter_context(reservation)
        self._held = releases, sample, hold
        return hold


def _fewer(times: int, refused: BudgetExhausted) -> int:
    """How many to ask for where so many were refused: what fits, if the refusal says so, or half."""
    if times == 1:
        raise refused
    fits = refused.fits.get("times")
    return max(1, min(times - 1, times // 2 if fits is None else int(fits)))
