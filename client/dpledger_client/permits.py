"""Permits: what the ledger's yes allows, counted so that it is not used more often.

Noise is drawn here and nowhere else in the client. A permit exists only because the service answered
yes, and it cannot be copied, sent to another process or used in a forked one, because a copy would allow
everything twice.
"""

import contextlib
import os
import threading
from time import monotonic
from typing import Any, NoReturn

from dpledger_client._leases import Lease
from dpledger_client._models import Granted, Settlement
from dpledger_client._watching import Watch
from dpledger_client.errors import BadReceipt, HoldClosed, NoAnswer, NothingLeft, SampleLost
from dpledger_client.journal import Journal
from dpledger_client.noise import current_noise
from dpledger_client.receipts import verify_receipt
from dpledger_client.releases import Release
from dpledger_client.samples import SeenSample

__all__ = ["Authorization", "Hold", "Step", "Uncopied", "claim_key"]

_CLAIMED: dict[str, str | None] = {}
_CLAIMING = threading.Lock()


def claim_key(key: str, journal: str | None = None) -> None:
    """Note that the yes to a key was taken, one that the caller chose or not; a second time is refused.

    The service answers a repeated key as the first time and charges nothing. Drawing noise again from
    that answer would be a second release for one charge. The journal that it was taken with, by its file's
    name, may take it again: it has the outputs.
    """
    with _CLAIMING:
        if key in _CLAIMED and (journal is None or _CLAIMED[key] != journal):
            raise NothingLeft(f"the yes to key {key!r} was taken before")
        _CLAIMED[key] = journal


class _Process:
    """How many forks lead here; asking the system which process this is would be felt at every step."""

    forks = 0

    @classmethod
    def fork(cls) -> None:
        cls.forks += 1


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_Process.fork)


class Uncopied:
    """A thing of which there must be one: it allows noise, and a copy would allow it twice."""

    def __init__(self) -> None:
        self._forks = _Process.forks

    @property
    def forked(self) -> bool:
        """Whether this is the copy that a forked process has."""
        return self._forks != _Process.forks

    def _refuse_fork(self) -> NoReturn:
        raise NothingLeft(f"a {type(self).__name__} is for the process that asked, not for one forked")

    def __reduce_ex__(self, _protocol: object) -> NoReturn:
        raise TypeError(f"a {type(self).__name__} permits noise: it cannot be copied or pickled")


class Step(Uncopied):
    """One step that the ledger said yes to: releases on one sample, each up to its count.

    Attributes
    ----------
    granted
        What the service answered.
    releases
        What it answered to.
    """

    def __init__(
        self,
        granted: Granted,
        releases: tuple[Release, ...],
        journal: Journal | None,
        place: str,
        *,
        resumable: bool = True,
    ) -> None:
        super().__init__()
        self.granted = granted
        self.releases = releases
        self._journal = journal
        self._place = place
        self._used: dict[int, int] = {}
        self._guard = threading.Lock()
        self._watch: Watch | None = None
        # A sample is not kept over a restart, so that what is left of a step gets another one.
        sampled = granted.sample.get("scheme", "full") != "full"
        self._sample_lost = not resumable and sampled and journal is not None and journal.holds_part_of(place)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.granted.id} of run {self.granted.run!r}>"

    def release(self, value: Any, which: int | str = 0) -> Any:
        """Release a value: with the noise of one of the releases, by its number or its purpose.

        Parameters
        ----------
        value
            What the mechanism takes, or a function without arguments that computes it. A function is
            the better choice: it runs after the yes, and not at all where a journal has the output.
        which
            The release's number or purpose.

        Returns
        -------
        object
            What the mechanism releases: an array for additive noise, an index for a selection.
        """
        number = 0 if which == 0 else self._number(which)
        use = self._take(number)
        release = self.releases[number]
        if self._journal is None:
            return self._made_of_same_data(release, value)
        return self._journal.output(
            f"{self._place}/{number}/{use}", lambda: self._made_of_same_data(release, value)
        )

    def watch(self, *data: Any) -> None:
        """Refuse to release once these data are not what they are now, with :class:`DataChanged`.

        For a step of several releases: what one permit releases must come from the data at one moment.
        Arrays, lists, sparse matrices and tensors are recognised when changed, by their shapes and
        a checksum.
        """
        self._watch = Watch(data)

    def _made_of_same_data(self, release: Release, value: Any) -> Any:
        """What is released; checked before, and after what may have looked more than once."""
        if self._sample_lost:
            raise SampleLost(
                f"{self.granted.id} was begun before a restart on a sample that is not kept, and this kind "
                "of budget does not cover a fresh one for the rest: ask for a new step"
            )
        if self._watch is not None:
            self._watch.check(self.granted.id)
        output = _made(release, value)
        if self._watch is not None:
            self._watch.check(self.granted.id)
        return output

    def left(self, which: int | str = 0) -> int:
        """How often a release may still be used."""
        number = self._number(which)
        return self.releases[number].count - self._used.get(number, 0)

    def _number(self, which: int | str) -> int:
        if isinstance(which, int):
            return range(len(self.releases))[which]
        found = [number for number, release in enumerate(self.releases) if release.purpose == which]
        if len(found) != 1:
            raise KeyError(f"{len(found)} releases have the purpose {which!r}")
        return found[0]

    def _take(self, number: int) -> int:
        if self._forks != _Process.forks:
            self._refuse_fork()
        with self._guard:
            use = self._used.get(number, 0)
            if use >= self.releases[number].count:
                raise NothingLeft(f"release {number} of {self.granted.id} is used up")
            self._used[number] = use + 1
            return use


def _made(release: Release, value: Any) -> Any:
    """What is released of a value or of what a function computes; a number, not an array without shape."""
    output = release.mechanism.apply(value() if callable(value) else value, current_noise())
    return output[()] if getattr(output, "shape", None) == () else output


class Authorization(Step):
    """The yes to one step."""

    @property
    def same_sample(self) -> SeenSample:
        """This step's sample, to be looked at again at the raw cost."""
        return SeenSample(self.granted.sample["id"])

    def verify(self, key_set: Any) -> dict[str, Any]:
        """Check this authorization's receipt, and that it is this authorization's; see ``verify_receipt``."""
        return verify_receipt_of(self.granted, key_set)


class Hold(Uncopied):
    """The yes to up to ``times`` repetitions of a step, handed out one by one without a request for each.

    Every half minute of use the service is asked whether the reservation is still open. Once it was settled
    elsewhere or its time is nearly over, ``left`` is 0 and :class:`~dpledger_client.HoldClosed` is raised.

    Attributes
    ----------
    granted
        What the service answered.
    settlement
        How it was settled, after that; None if it was left to expire.
    used, limit
        How many repetitions were taken, and how many may be as long as the reservation is open.
    """

    def __init__(
        self,
        granted: Granted,
        releases: tuple[Release, ...],
        journal: Journal | None,
        lease: Lease | None = None,
        *,
        resumable: bool = True,
    ) -> None:
        super().__init__()
        self.granted = granted
        self.releases = releases
        self.settlement: Settlement | None = None
        self.used = 0
        self._journal = journal
        self._closed = False
        self._guard = threading.Lock()
        # A job that was settled when it stopped gets no more out of the same reservation than it had.
        before = None if journal is None else journal.settled(granted.id)
        self.limit = (granted.times or 0) if before is None else before
        # What a job before a restart has released is handed out again even if the reservation is closed.
        self._begun = 0 if journal is None else journal.repetitions(str(granted.key))
        self._lease = lease
        self._resumable = resumable
        if lease is not None and granted.replayed and before is None:
            lease.doubt()
            with contextlib.suppress(NoAnswer):  # then the first use asks again
                lease.confirm()

    def __repr__(self) -> str:
        return f"<Hold {self.granted.id}: {self.used} of {self.granted.times} used>"

    @property
    def left(self) -> int:
        """How many repetitions may still be taken."""
        return 0 if self._closed else max(0, self._present_limit() - self.used)

    def _present_limit(self) -> int:
        lease = self._lease
        return min(self.limit, self._begun) if lease is not None and lease.over else self.limit

    def ready(self) -> bool:
        """Whether the next repetition can be taken; asks whether the reservation is open if that is due."""
        if self._lease is not None and self.used >= self._begun:
            self._lease.confirm()
        return self.left > 0

    def take(self) -> Step:
        """The next repetition; it counts as used from here on."""
        place = f"{self.granted.key}#{self._use()}"
        return Step(self.granted, self.releases, self._journal, place, resumable=self._resumable)

    def release(self, value: Any, which: int | str = 0) -> Any:
        """Take the next repetition and release a value with it; see :meth:`Step.release`."""
        if which != 0 or self._journal is not None:
            return self.take().release(value, which)
        self._use()  # without a step that nobody else would see: this is what a training does most
        # Every release goes through one function, which tests and audits watch.
        return _made(self.releases[0], value)

    def _use(self) -> int:
        lease = self._lease
        with self._guard:
            used = self.used
            calm = lease is None or monotonic() < lease.calm_until
            if not calm or self._closed or used >= self.limit or self._forks != _Process.forks:
                self._check(used)
            self.used = used + 1
            return used

    def _check(self, used: int) -> None:
        """Refuse a use that is not covered, after asking whether the reservation is open if that is due."""
        if self.forked:
            self._refuse_fork()
        if self._lease is not None and used >= self._begun:
            self._lease.confirm()
        if self._closed or used >= self._present_limit():
            raise self._ended()

    def _ended(self) -> NothingLeft:
        lease, name = self._lease, self.granted.id
        if lease is not None and lease.over and not self._closed and self.used < self.limit:
            return HoldClosed(f"reservation {name} {lease.reason}: nothing more may be released from it")
        return NothingLeft(f"reservation {name} has nothing left")

    def verify(self, key_set: Any) -> dict[str, Any]:
        """Check this reservation's receipt, and that it is this reservation's."""
        return verify_receipt_of(self.granted, key_set)

    def close(self) -> int:
        """Hand out nothing more; returns how many were used, by a job before a restart too."""
        with self._guard:
            self._closed = True
        before = 0 if self._journal is None else self._journal.repetitions(str(self.granted.key))
        return max(self.used, before)


def verify_receipt_of(granted: Granted, key_set: Any) -> dict[str, Any]:
    """What a receipt states, if it is genuine and about this answer."""
    statement = verify_receipt(granted.receipt, key_set)
    expected = {"dataset": granted.dataset, "sequence": granted.sequence, "run": granted.run}
    if granted.times is not None:
        expected["times"] = granted.times
    for name, value in expected.items():
        if statement.get(name) != value:
            raise BadReceipt(f"the receipt states {name} {statement.get(name)!r}, the answer {value!r}")
    return statement
