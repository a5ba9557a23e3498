"""The client: a ledger, its datasets, and the accounts that training jobs spend from."""

import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from time import monotonic
from types import TracebackType
from typing import Any

from dpledger_client import _calls
from dpledger_client._bulk import Spend, results_of, sampled_before
from dpledger_client._calls import Answer, Call, about
from dpledger_client._embedded import database_path
from dpledger_client._leases import Lease
from dpledger_client._models import Budget, Cost, as_budget, as_cost, to_grant
from dpledger_client._opening import EXIST_OK_NOTE, FIRST_ENTRY, compare_allocated, compare_opened
from dpledger_client._settling import record_failed_settlement, record_settlement
from dpledger_client._wire import Connection, Retries, Wire
from dpledger_client.errors import AlreadyExists, BudgetWarning, DPLedgerError, Refused
from dpledger_client.journal import FRESH_SAMPLE_COVERED, Journal, new_key
from dpledger_client.mechanisms.base import Mechanism
from dpledger_client.permits import Authorization, Hold, claim_key
from dpledger_client.releases import Release, Releases, as_releases
from dpledger_client.samples import Sample

__all__ = ["Account", "Dataset", "Ledger", "Reservation"]

EMBEDDED_URL = "http://embedded"
PAGE = 1000
FACTS = ("adjacency", "unit", "records", "partition_key")
"""What is fixed when a dataset is opened."""


class Ledger:
    """A ledger service.

    Parameters
    ----------
    url
        Its address, such as ``http://127.0.0.1:8000``.
    token
        ``dpl_…``; it is sent with every request and never shown.
    timeout_seconds
        How long one attempt may take.
    retries
        How often and how long to try again where no answer came.
    transport
        An ``httpx2`` transport to be used instead of the network, for tests.

    Notes
    -----
    Ledgers, datasets and accounts can be pickled, copied and used from several threads. Their state is
    where the service is and the token; sockets are opened when they are needed.

    Examples
    --------
    >>> ledger = Ledger("http://127.0.0.1:8000", token="dpl_id_secret")
    >>> ledger.dataset("adult").run("agd-7")
    Account(dataset='adult', run='agd-7')
    """

    def __init__(
        self,
        url: str,
        token: str | None = None,
        *,
        timeout_seconds: float = 30.0,
        retries: Retries | None = None,
        transport: Any = None,
    ) -> None:
        self._wire = Wire(Connection(url, token, timeout_seconds, retries or Retries(), transport=transport))

    @classmethod
    def embedded(cls, path: str | os.PathLike[str], *, token: str | None = None) -> "Ledger":
        """A ledger in a file, served inside this process; needs the extra ``embedded``.

        Everything goes the same way as over a network: the same requests, answers, checks and
        guarantees, without a socket. Unless a token is given, the ledger's own for such use is taken.
        """
        ledger = cls(EMBEDDED_URL)
        ledger._wire = Wire(Connection(EMBEDDED_URL, token, database=database_path(path)))
        return ledger

    def __repr__(self) -> str:
        return f"Ledger({self._wire.connection.database or self._wire.connection.url!r})"

    def __enter__(self) -> "Ledger":
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of sockets, and of an embedded service; they come back if they are needed again."""
        self._wire.close()

    def dataset(self, name: str) -> "Dataset":
        """A handle of a dataset; nothing is asked."""
        return Dataset(self, name)

    def datasets(self, search: str | None = None) -> Iterator[dict[str, Any]]:
        """Every dataset that the token reaches, by name."""
        return self._pages("/v1/datasets", search=search)

    def cost(
        self,
        releases: Releases,
        *,
        adjacency: str,
        sample: Sample | None = None,
        orders: Sequence[float] | None = None,
    ) -> Cost:
        """What a step would cost; nothing is recorded."""
        return as_cost(self._wire.perform(_calls.costing(releases, sample, adjacency, orders)).body["cost"])

    def ask(self, query: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Ask what records nothing: ``conversions``, ``compositions``, ``calibrations``, …"""
        return self._wire.perform(_calls.asking(query, body)).body

    def key_set(self) -> dict[str, Any]:
        """The public keys of receipts; keep them to verify receipts without the service."""
        return self._wire.perform(_calls.getting("/.well-known/dpledger-keys.json")).body

    def authorize_all(
        self,
        spends: Sequence[Spend],
        *,
        mode: str = "each",
        journal: "str | os.PathLike[str] | Journal | None" = None,
        key: str | None = None,
    ) -> list[Authorization | Refused]:
        """Authorize several steps, across datasets and partitions, in one request.

        Parameters
        ----------
        spends
            Made by :meth:`Account.spend`.
        mode
            ``each``: every step is decided by itself, and the result has an error in the place of
            each that is refused. ``all-or-nothing``: one that is refused refuses all, and raises.
        """
        shared = as_journal(journal)
        answer = self._send_idempotent(_calls.bulk([spend.item() for spend in spends], mode), shared, key)
        return results_of(spends, answer, shared, self._not_resumable(answer, shared, *spends))

    def _not_resumable(self, answer: Answer, journal: Journal | None, *spends: Spend) -> set[str]:
        """The datasets whose kind of budget does not cover a fresh sample for the rest of a step."""
        names = sampled_before(spends, answer, journal)
        with about(answer):
            kinds = {name: self.dataset(name).facts()["accounting"] for name in names}
        return {name for name, kind in kinds.items() if kind not in FRESH_SAMPLE_COVERED}

    def _send_idempotent(self, call: Call, journal: Journal | None = None, key: str | None = None) -> Answer:
        """Send what changes something under one key, which a journal keeps."""
        if journal is not None:
            key = journal.call(self._wire.token_id(), call.path, call.body, key)
        answer = self._wire.perform(call, key or new_key())
        claim_key(str(answer.key), None if journal is None else journal.path)
        return answer

    def _get(self, path: str, **params: Any) -> dict[str, Any]:
        return self._wire.perform(_calls.getting(path, **params)).body

    def _pages(self, path: str, **params: Any) -> Iterator[dict[str, Any]]:
        cursor: str | None = None
        while True:
            page = self._get(path, limit=PAGE, next=cursor, **params)
            yield from page["items"]
            cursor = page["next"]
            if cursor is None:
                return


def fixed_facts(shown: Mapping[str, Any]) -> dict[str, Any]:
    """What the service says of a dataset and never changes."""
    fixed = {name: shown.get(name) for name in FACTS}
    return {**fixed, "accounting": shown.get("budget", {}).get("accounting")}


def as_journal(journal: "str | os.PathLike[str] | Journal | None") -> Journal | None:
    """A journal, from itself or from its file's name."""
    return journal if journal is None or isinstance(journal, Journal) else Journal.at(journal)


def warn_of(answer: Mapping[str, Any]) -> None:
    """Warn whoever called a handle's method of what the service warns of."""
    for warning in answer.get("warnings", ()):
        warnings.warn(warning, BudgetWarning, stacklevel=3)


def partition_names(wanted: int | Sequence[str], answer: Mapping[str, Any]) -> list[str]:
    """The names of the partitions that were opened; those asked for by number are numbered."""
    if not isinstance(wanted, int):
        return list(wanted)
    return [str(number) for number in range(int(answer["first"]), int(answer["last"]) + 1)]


@dataclass(frozen=True)
class Dataset:
    """A handle of a dataset."""

    ledger: Ledger
    name: str

    def open(
        self,
        budget: Mapping[str, Any] | None = None,
        *,
        plan: Sequence[Mapping[str, Any]] | None = None,
        epsilon: float | None = None,
        delta: float | None = None,
        adjacency: str | None = None,
        unit: str | None = None,
        records: int | None = None,
        description: str | None = None,
        partition_key: str | None = None,
        units_in_one_partition: bool | None = None,
        exist_ok: bool = False,
    ) -> "Dataset":
        """Open it, with scope ``admin``; what is None is the service's default.

        Parameters
        ----------
        budget
            Such as ``{"accounting": "zcdp", "epsilon": 1.0, "delta": 1e-6}``. A plan in it that fits fewer
            steps than it names gives a :class:`BudgetWarning`.
        plan, epsilon, delta
            Instead of a budget, the items that will be asked for, as ``optimizers.plan`` gives them, and the
            (ε, δ) that they must be within.
        exist_ok
            Take a dataset of this name that is open already, if it is this one: of the same adjacency,
            unit and partition key, with as many ``records`` where they are given, and opened with this
            budget or having it now. Else :class:`DatasetMismatch` tells both. Where the budget was changed
            since the opening and is another one now, a :class:`BudgetChangedWarning` tells.
        """
        call = _calls.opening(
            self.name,
            _calls.budget_body(budget, plan, epsilon, delta),
            adjacency=adjacency,
            unit=unit,
            records=records,
            description=description,
            partition_key=partition_key,
            units_in_one_partition=units_in_one_partition,
        )
        try:
            answer = self.ledger._send_idempotent(call)
        except AlreadyExists as taken:
            if not exist_ok:
                taken.add_note(EXIST_OK_NOTE)
                raise
            opened = self.ledger._get(_calls.dataset_path(self.name, FIRST_ENTRY))
            compare_opened(call.body, self.show(), self.budget().limit, opened, taken)
        else:
            warn_of(answer.body)
        return self

    def show(self) -> dict[str, Any]:
        """The dataset as the service describes it: adjacency, unit, records, budget."""
        return self.ledger._get(_calls.dataset_path(self.name))

    def facts(self) -> Mapping[str, Any]:
        """What :meth:`show` says and never changes, asked for once per ledger.

        ``adjacency``, ``unit``, ``records``, ``partition_key`` and the budget's ``accounting``.
        """
        facts = self.ledger._wire.facts
        if self.name not in facts:
            facts[self.name] = fixed_facts(self.show())
        return facts[self.name]

    def budget(self, delta: float | None = None) -> Budget:
        """Limit, spent, reserved and remaining; ``delta`` is where the running ε is shown."""
        return as_budget(self.ledger._get(_calls.dataset_path(self.name, "/budget"), delta=delta))

    def change_budget(self, budget: Mapping[str, Any], reason: str, *, sequence: int) -> dict[str, Any]:
        """Set another limit, if nothing happened since ``sequence``; with scope ``admin``.

        A lower limit limits what is still to come, which a :class:`BudgetWarning` says.
        """
        changed = self.ledger._send_idempotent(
            _calls.changing_budget(self.name, budget, reason, sequence)
        ).body
        warn_of(changed)
        return changed

    def open_partitions(
        self, wanted: int | Sequence[str], budget: Mapping[str, Any] | None = None
    ) -> list[str]:
        """Open partitions, so many or by name, with a budget of their own or not; returns their names."""
        answer = self.ledger._send_idempotent(_calls.opening_partitions(self.name, wanted, budget)).body
        warn_of(answer)
        return partition_names(wanted, answer)

    def set_renewal(self, period: str, budget: Mapping[str, Any] | None, reason: str) -> dict[str, Any]:
        """Set the budget of each new epoch of a calendar ``period``, or end that; with scope ``admin``.

        See :meth:`open_epoch`; ``period`` is ``day``, ``week``, ``month``, ``quarter`` or ``year``.
        """
        call = _calls.renewing(self.name, period, budget, reason)
        return self.ledger._send_idempotent(call).body

    def renewal(self) -> dict[str, Any]:
        """The policy of renewal, and which epochs may be opened now."""
        return self.ledger._get(_calls.dataset_path(self.name, "/renewal"))

    def open_epoch(self, epoch: str, statement: str) -> str:
        """Open the partition of the present or the next epoch, with the policy's budget; returns its name.

        By calling it you state that its records were in no other partition; ``statement`` says why.
        """
        call = _calls.opening_epoch(self.name, epoch, statement)
        return str((self.ledger._send_idempotent(call)).body["first"])

    def partitions(self) -> Iterator[dict[str, Any]]:
        """Every partition with what it has left."""
        return self.ledger._pages(_calls.dataset_path(self.name, "/partitions"))

    def entries(self, **chosen: Any) -> Iterator[dict[str, Any]]:
        """The ledger's entries, all or those of a ``kind``, ``run``, ``partition`` or ``allocation``."""
        return self.ledger._pages(_calls.dataset_path(self.name, "/entries"), **chosen)

    def runs(self) -> Iterator[dict[str, Any]]:
        """What each run has spent."""
        return self.ledger._pages(_calls.dataset_path(self.name, "/runs"))

    def allocations(self) -> Iterator[dict[str, Any]]:
        """Every allocation of the budget, with what it has left."""
        return self.ledger._pages(_calls.dataset_path(self.name, "/allocations"))

    def return_allocation(self, name: str, reason: str) -> dict[str, Any]:
        """Give an allocation back from which nothing was released."""
        call = _calls.returning_allocation(self.name, name, reason)
        return self.ledger._send_idempotent(call).body

    def request_budget(
        self,
        reason: str,
        *,
        budget: Mapping[str, Any] | None = None,
        allocation: Mapping[str, Any] | None = None,
        quota: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        """Ask an admin for what the token may not do by itself, one of three; nothing is charged.

        The request has an ``id`` and a ``state``, which is ``open`` until an admin decides.

        Parameters
        ----------
        budget
            Another budget, such as ``{"accounting": "zcdp", "rho": 0.7}``.
        allocation
            A part of a ``shared`` budget: its ``name``, ``epsilon``, ``delta`` and the ``budget`` inside.
        quota
            A larger ``fraction`` for the quota of the token's team, with the quota's ``window_seconds``.
        """
        asked = {"budget": budget, "allocation": allocation, "quota": quota}
        return self.ledger._send_idempotent(_calls.requesting_budget(self.name, reason, asked)).body

    def budget_requests(self, state: str | None = None) -> Iterator[dict[str, Any]]:
        """Every request for budget, or those that are ``open``, ``approved``, ``rejected``, ``withdrawn``."""
        return self.ledger._pages(_calls.budget_request_path(self.name), state=state)

    def budget_request(self, request: str) -> dict[str, Any]:
        """A request for budget by its id: its ``state``, and what was decided."""
        return self.ledger._get(_calls.budget_request_path(self.name, request))

    def decide_budget_request(self, request: str, decision: str, reason: str | None = None) -> dict[str, Any]:
        """``approve`` a request, which carries it out, or ``reject`` it and say why; with scope ``admin``."""
        call = _calls.deciding_request(self.name, request, decision, reason)
        decided = self.ledger._send_idempotent(call).body
        warn_of(decided)
        return decided

    def withdraw_budget_request(self, request: str, reason: str | None = None) -> dict[str, Any]:
        """Withdraw a request that this token made."""
        return self.ledger._send_idempotent(_calls.withdrawing_request(self.name, request, reason)).body

    def verification(self) -> dict[str, Any]:
        """Whether the chain of entries holds and the totals are what they say."""
        return self.ledger._get(_calls.dataset_path(self.name, "/verification"))

    def forecast(
        self,
        releases: Releases,
        sample: Sample | None = None,
        partition: str | None = None,
        allocation: str | None = None,
    ) -> dict[str, Any]:
        """How many more such steps fit, as ``fits``; of a ``shared`` budget, in one ``allocation``."""
        call = _calls.forecasting(self.name, releases, sample, partition, allocation)
        return self.ledger._wire.perform(call).body

    def run(
        self,
        name: str,
        *,
        partition: str | None = None,
        allocation: str | None = None,
        journal: "str | os.PathLike[str] | Journal | None" = None,
    ) -> "Account":
        """The account of a training job, named in every entry that it makes.

        Parameters
        ----------
        partition
            Spend on this partition only.
        allocation
            Spend from this allocation of the budget, made by :meth:`Account.allocate`.
        journal
            A file that lets the job be restarted without paying twice; see :mod:`dpledger_client.journal`.
        """
        return Account(self, name, partition, as_journal(journal), allocation)


@dataclass(frozen=True, repr=False)
class Account:
    """What a training job asks before each noisy step."""

    dataset: Dataset
    name: str
    partition: str | None = None
    journal: Journal | None = None
    allocation: str | None = None

    def __repr__(self) -> str:
        part = "" if self.partition is None else f", partition={self.partition!r}"
        part += "" if self.allocation is None else f", allocation={self.allocation!r}"
        return f"Account(dataset={self.dataset.name!r}, run={self.name!r}{part})"

    def allocate(
        self,
        name: str,
        *,
        epsilon: float,
        delta: float,
        budget: Mapping[str, Any] | None = None,
        plan: Sequence[Mapping[str, Any]] | None = None,
        exist_ok: bool = False,
    ) -> "Account":
        """Allocate a part of the dataset's budget, and spend from it.

        Parameters
        ----------
        name
            Of the allocation; ``dataset.run(name, allocation=…)`` finds it again.
        epsilon, delta
            What it takes of a dataset whose budget is ``shared``.
        budget, plan
            The kind of budget that it is inside, such as ``{"accounting": "zcdp"}``, or the items of a plan.
        exist_ok
            Take an allocation of this name that is open already, if it is this one: of the same ε and δ, with
            the same kind of budget and items inside. Else :class:`DatasetMismatch` tells both.

        Returns
        -------
        Account
            The same job, whose steps are charged to the allocation.
        """
        call = _calls.allocating(self.dataset.name, name, epsilon, delta, budget, plan)
        try:
            answer = self.dataset.ledger._send_idempotent(call, self.journal)
        except AlreadyExists as taken:
            if not exist_ok:
                taken.add_note(EXIST_OK_NOTE)
                raise
            shown = self.dataset.ledger._get(_calls.allocation_path(self.dataset.name, name))
            compare_allocated(call.body, shown, taken)
        else:
            warn_of(answer.body)
        return replace(self, allocation=name)

    def authorize(
        self,
        releases: Releases,
        *,
        sample: Sample | None = None,
        item: str | None = None,
        key: str | None = None,
    ) -> Authorization:
        """Ask for one step: releases that all look at one sample, which is the whole dataset if None.

        Returns the yes, with which each release's noise is drawn; raises :class:`BudgetExhausted` or
        another refusal. ``item`` names the item of a plan that the step is to use up; without it the service
        takes the one that is equal, or the first that dominates it.
        """
        spend = self.spend(releases, sample=sample, item=item)
        answer = self.dataset.ledger._send_idempotent(
            _calls.spending(self.dataset.name, spend.body()), self.journal, key
        )
        granted = to_grant(answer.body, answer)
        lost = self.dataset.ledger._not_resumable(answer, self.journal, spend)
        return Authorization(granted, spend.releases, self.journal, str(answer.key), resumable=not lost)

    def release(
        self,
        mechanism: Mechanism | Release,
        value: Any,
        *,
        sample: Sample | None = None,
        item: str | None = None,
        key: str | None = None,
    ) -> Any:
        """Ask, and after a yes release ``value`` with the mechanism's noise.

        Parameters
        ----------
        value
            What the mechanism takes, or better a function without arguments that computes it: then
            the data are not even looked at before the yes.
        """
        return self.authorize(mechanism, sample=sample, item=item, key=key).release(value)

    def reserve(
        self,
        releases: Releases,
        *,
        times: int,
        expires_in_seconds: float = 3600.0,
        sample: Sample | None = None,
        item: str | None = None,
        key: str | None = None,
    ) -> "Reservation":
        """Ask for up to ``times`` repetitions of a step, each on a fresh sample; use it with ``with``.

        Examples
        --------
        A training loop that asks once::

            with account.reserve(Gaussian(1.0, 1.1), times=1000, sample=Poisson(0.01)) as hold:
                while hold.left:
                    noisy = hold.release(lambda: gradient_sum(w, X[sample.draw(n)]))
        """
        return Reservation(
            self.dataset.ledger,
            self.spend(releases, sample=sample, item=item),
            times,
            expires_in_seconds,
            self.journal,
            key,
        )

    def spend(self, releases: Releases, *, sample: Sample | None = None, item: str | None = None) -> Spend:
        """A step described for :meth:`Ledger.authorize_all`; nothing is asked."""
        return Spend(
            self.dataset.name,
            self.name,
            self.partition,
            as_releases(releases),
            sample,
            self.allocation,
            item,
        )


class Reservation:
    """Reserves on entry and settles on exit what was used; what cannot be settled, expiry charges in full."""

    def __init__(
        self,
        ledger: Ledger,
        spend: Spend,
        times: int,
        expires_in_seconds: float,
        journal: Journal | None,
        key: str | None,
    ) -> None:
        self._ledger = ledger
        self._spend = spend
        self._call = _calls.reserving(spend.dataset, spend.body(), times, expires_in_seconds)
        self._seconds = float(expires_in_seconds)
        self._journal = journal
        self._key = key
        self._hold: Hold | None = None

    def __enter__(self) -> Hold:
        asked_at = monotonic()
        answer = self._ledger._send_idempotent(self._call, self._journal, self._key)
        granted = to_grant(answer.body, answer)
        state = _calls.showing_reservation(granted.id)
        lease = Lease(asked_at, self._seconds, lambda: self._ledger._wire.perform(state).body)
        lost = self._ledger._not_resumable(answer, self._journal, self._spend)
        self._hold = Hold(granted, self._spend.releases, self._journal, lease, resumable=not lost)
        return self._hold

    def __exit__(
        self, _kind: type[BaseException] | None, cause: BaseException | None, _trace: TracebackType | None
    ) -> None:
        hold = self._hold
        if hold is None or hold.forked:
            return
        call = _calls.settling(hold.granted.id, hold.close())
        try:
            record_settlement(hold, self._ledger._send_idempotent(call, self._journal))
        except (DPLedgerError, OSError) as error:
            record_failed_settlement(hold, error, cause)
