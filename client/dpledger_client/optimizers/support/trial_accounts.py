"""Accounts of the trials of a tuning: the ledger said yes to all of them together, before the first.

A trial asks here as a training asks the ledger. What it is granted are the steps that its candidate was
described with, each as often as it was described, and nothing goes over the network: neither how many trials
there are nor how far one got is seen from outside.
"""

import json
import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Any

from dpledger_client._calls import step_body
from dpledger_client._models import Granted
from dpledger_client.errors import BudgetExhausted
from dpledger_client.ledger import Account, Dataset, Ledger, Reservation
from dpledger_client.permits import Authorization, Hold, Uncopied
from dpledger_client.releases import Releases, as_releases
from dpledger_client.samples import FreshSample, Full, Sample

__all__ = ["QuietLedger", "TrialAccount", "trial_step"]


def trial_step(releases: Releases, sample: Sample | None = None, times: int = 1) -> dict[str, Any]:
    """A step of a trial as it is described to the ledger; what it is for is left out."""
    body = step_body(releases, sample or Full())
    for release in body["releases"]:
        release.pop("purpose", None)
    return {"sample": body["sample"], "releases": body["releases"], "times": times}


class QuietLedger(Ledger):
    """Answers queries from memory once it is sealed: trials that ask would be counted by who listens."""

    def __init__(self, ledger: Ledger) -> None:
        self._wire = ledger._wire
        self._known: dict[str, dict[str, Any]] = {}
        self._sealed = False

    def seal(self) -> None:
        """Ask nobody from here on."""
        self._sealed = True

    def ask(self, query: str, body: Mapping[str, Any]) -> dict[str, Any]:
        key = json.dumps([query, body], sort_keys=True)
        if key not in self._known:
            if self._sealed:
                raise ValueError(f"a trial asked for {query} that its plan did not ask for")
            self._known[key] = super().ask(query, body)
        return self._known[key]


class TrialSteps(Uncopied):
    """The steps that a trial may still take: a permit without a request for each."""

    def __init__(self, steps: Sequence[Mapping[str, Any]] = ()) -> None:
        super().__init__()
        self._guard = threading.Lock()
        self._unused: Counter[str] = Counter()
        for step in steps:
            self._unused[_key(step)] += int(step["times"])

    def take(self, step: Mapping[str, Any], times: int) -> int | None:
        """Use up a step so many times, or give it back for a negative number; else how often there is."""
        if self.forked:
            self._refuse_fork()
        wanted = _key(step)
        with self._guard:
            if self._unused[wanted] < times:
                return self._unused[wanted]
            self._unused[wanted] -= times
            return None


@dataclass(frozen=True, repr=False)
class TrialAccount(Account):
    """The account of one trial; made anew for each, and not to be copied or used in a forked process."""

    granted: Granted | None = None
    unused: TrialSteps = field(default_factory=TrialSteps)

    @classmethod
    def of(
        cls, account: Account, dataset: Dataset, granted: Granted, steps: Sequence[Mapping[str, Any]]
    ) -> "TrialAccount":
        """For the steps of a candidate, under the yes to the tuning."""
        known = dataset, account.name, account.partition, None, account.allocation
        return cls(*known, granted=granted, unused=TrialSteps(steps))

    def authorize(
        self,
        releases: Releases,
        *,
        sample: Sample | None = None,
        item: str | None = None,
        key: str | None = None,
    ) -> Authorization:
        """A step of the trial; :class:`BudgetExhausted` once it was taken as often as it was described."""
        self.take(releases, sample, 1)
        return Authorization(self.grant(sample), as_releases(releases), None, "trial")

    def reserve(
        self,
        releases: Releases,
        *,
        times: int,
        expires_in_seconds: float = 3600.0,
        sample: Sample | None = None,
        item: str | None = None,
        key: str | None = None,
    ) -> "TrialReservation":
        """Repetitions of a step of the trial; what of them is not used is there for another time."""
        return TrialReservation(self, releases, sample, times)

    def take(self, releases: Releases, sample: Sample | None, times: int) -> None:
        """Use up a step so many times, or give it back for a negative number."""
        if sample is not None and not isinstance(sample, FreshSample):
            raise ValueError("a trial looks at each of its samples once")
        left = self.unused.take(trial_step(releases, sample), times)
        if left is not None:
            detail = "a trial takes no other steps than those its candidate was described with"
            members = {"requested": {"times": times}, "fits": {"times": left}}
            raise BudgetExhausted({"title": "The plan of the trial is used up", "detail": detail, **members})

    def grant(self, sample: Sample | None, times: int | None = None) -> Granted:
        """The yes to the tuning, as one to a step of it."""
        assert self.granted is not None
        return replace(self.granted, sample=(sample or Full()).fields(), times=times)


class TrialReservation(Reservation):
    """Reserves on entry, and gives back on exit what was not used."""

    def __init__(self, account: TrialAccount, releases: Releases, sample: Sample | None, times: int) -> None:
        self._account = account
        self._releases = as_releases(releases)
        self._sample = sample
        self._times = times
        self._taken: Hold | None = None

    def __enter__(self) -> Hold:
        self._account.take(self._releases, self._sample, self._times)
        self._taken = Hold(self._account.grant(self._sample, self._times), self._releases, None)
        return self._taken

    def __exit__(
        self, _kind: type[BaseException] | None, _cause: BaseException | None, _trace: TracebackType | None
    ) -> None:
        if self._taken is not None:
            self._account.take(self._releases, self._sample, self._taken.close() - self._times)


def _key(step: Mapping[str, Any]) -> str:
    return json.dumps([step["sample"], step["releases"]], sort_keys=True)
