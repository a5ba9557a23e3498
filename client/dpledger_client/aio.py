"""The same client for asyncio."""

import asyncio
import os
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, replace
from time import monotonic
from types import TracebackType
from typing import Any

from dpledger_client import _calls, _leases
from dpledger_client._bulk import Spend, results_of, sampled_before
from dpledger_client._calls import Answer, Call, about
from dpledger_client._embedded import database_path
from dpledger_client._leases import Lease
from dpledger_client._models import Budget, Cost, as_budget, as_cost, to_grant
from dpledger_client._opening import EXIST_OK_NOTE, FIRST_ENTRY, compare_allocated, compare_opened
from dpledger_client._settling import record_failed_settlement, record_settlement
from dpledger_client._wire import AsyncWire, Connection, Retries
from dpledger_client.errors import AlreadyExists, DPLedgerError, Refused
from dpledger_client.journal import FRESH_SAMPLE_COVERED, Journal, new_key
from dpledger_client.ledger import (
    EMBEDDED_URL,
    PAGE,
    as_journal,
    fixed_facts,
    partition_names,
    warn_of,
)
from dpledger_client.mechanisms.base import Mechanism
from dpledger_client.permits import Authorization, Hold, claim_key
from dpledger_client.releases import Release, Releases, as_releases
from dpledger_client.samples import Sample

__all__ = ["AsyncAccount", "AsyncDataset", "AsyncLedger", "AsyncReservation"]


class AsyncLedger:
    """A ledger service, asked without blocking the event loop; see :class:`~dpledger_client.Ledger`."""

    def __init__(
        self,
        url: str,
        token: str | None = None,
        *,
        timeout_seconds: float = 30.0,
        retries: Retries | None = None,
        transport: Any = None,
    ) -> None:
        self._wire = AsyncWire(
            Connection(url, token, timeout_seconds, retries or Retries(), transport=transport)
        )

    @classmethod
    def embedded(cls, path: str | os.PathLike[str], *, token: str | None = None) -> "AsyncLedger":
        """A ledger in a file, served inside this process; needs the extra ``embedded``."""
        ledger = cls(EMBEDDED_URL)
        ledger._wire = AsyncWire(Connection(EMBEDDED_URL, token, database=database_path(path)))
        return ledger

    def __repr__(self) -> str:
        return f"AsyncLedger({self._wire.connection.database or self._wire.connection.url!r})"

    async def __aenter__(self) -> "AsyncLedger":
        return self

    async def __aexit__(self, *_error: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Let go of sockets, and of an embedded service; they come back if they are needed again."""
        await self._wire.close()

    def dataset(self, name: str) -> "AsyncDataset":
        """A handle of a dataset; nothing is asked."""
        return AsyncDataset(self, name)

    def datasets(self, search: str | None = None) -> AsyncIterator[dict[str, Any]]:
        """Every dataset that the token reaches, by name."""
        return self._pages("/v1/datasets", search=search)

    async def cost(
        self,
        releases: Releases,
        *,
        adjacency: str,
        sample: Sample | None = None,
        orders: Sequence[float] | None = None,
    ) -> Cost:
        """What a step would cost; nothing is recorded."""
        call = _calls.costing(releases, sample, adjacency, orders)
        return as_cost((await self._wire.perform(call)).body["cost"])

    async def ask(self, query: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Ask what records nothing: ``conversions``, ``compositions``, ``calibrations``, …"""
        return (await self._wire.perform(_calls.asking(query, body))).body

    async def key_set(self) -> dict[str, Any]:
        """The public keys of receipts; keep them to verify receipts without the service."""
        return (await self._wire.perform(_calls.getting("/.well-known/dpledger-keys.json"))).body

    async def authorize_all(
        self,
        spends: Sequence[Spend],
        *,
        mode: str = "each",
        journal: "str | os.PathLike[str] | Journal | None" = None,
        key: str | None = None,
    ) -> list[Authorization | Refused]:
        """Authorize several steps in one request; see :meth:`Ledger.authorize_all`."""
        shared = as_journal(journal)
        answer = await self._send_idempotent(
            _calls.bulk([spend.item() for spend in spends], mode), shared, key
        )
        return results_of(spends, answer, shared, await self._not_resumable(answer, shared, *spends))

    async def _not_resumable(self, answer: Answer, journal: Journal | None, *spends: Spend) -> set[str]:
        """The datasets whose kind of budget does not cover a fresh sample for the rest of a step."""
        names = sampled_before(spends, answer, journal)
        with about(answer):
            kinds = {name: (await self.dataset(name).facts())["accounting"] for name in names}
        return {name for name, kind in kinds.items() if kind not in FRESH_SAMPLE_COVERED}

    async def _send_idempotent(
        self, call: Call, journal: Journal | None = None, key: str | None = None
    ) -> Answer:
        """Send what changes something under one key, which a journal keeps."""
        if journal is not None:
            owner = await asyncio.to_thread(self._wire.token_id)
            key = journal.call(owner, call.path, call.body, key)
        answer = await self._wire.perform(call, key or new_key())
        claim_key(str(answer.key), None if journal is None else journal.path)
        return answer

    async def _get(self, path: str, **params: Any) -> dict[str, Any]:
        return (await self._wire.perform(_calls.getting(path, **params))).body

    async def _pages(self, path: str, **params: Any) -> AsyncIterator[dict[str, Any]]:
        cursor: str | None = None
        while True:
            page = await self._get(path, limit=PAGE, next=cursor, **params)
            for item in page["items"]:
                yield item
            cursor = page["next"]
            if cursor is None:
                return


@dataclass(frozen=True)
class AsyncDataset:
    """A handle of a dataset; see :class:`~dpledger_client.ledger.Dataset`."""

    ledger: AsyncLedger
    name: str

    async def open(
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
    ) -> "AsyncDataset":
        """Open it, with scope ``admin``; see :meth:`Dataset.open`."""
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
            answer = await self.ledger._send_idempotent(call)
        except AlreadyExists as taken:
            if not exist_ok:
                taken.add_note(EXIST_OK_NOTE)
                raise
            opened = await self.ledger._get(_calls.dataset_path(self.name, FIRST_ENTRY))
            shown, limit = await self.show(), (await self.budget()).limit
            compare_opened(call.body, shown, limit, opened, taken)
        else:
            warn_of(answer.body)
        return self

    async def show(self) -> dict[str, Any]:
        """The dataset as the service describes it: adjacency, unit, records, budget."""
        return await self.ledger._get(_calls.dataset_path(self.name))

    async def facts(self) -> Mapping[str, Any]:
        """What :meth:`show` says and never changes, asked for once per ledger; see :meth:`Dataset.facts`."""
        facts = self.ledger._wire.facts
        if self.name not in facts:
            facts[self.name] = fixed_facts(await self.show())
        return facts[self.name]

    async def budget(self, delta: float | None = None) -> Budget:
        """Limit, spent, reserved and remaining; ``delta`` is where the running ε is shown."""
        return as_budget(await self.ledger._get(_calls.dataset_path(self.name, "/budget"), delta=delta))

    async def change_budget(self, budget: Mapping[str, Any], reason: str, *, sequence: int) -> dict[str, Any]:
        """Set another limit, if nothing happened since ``sequence``; see :meth:`Dataset.change_budget`."""
        call = _calls.changing_budget(self.name, budget, reason, sequence)
        changed = (await self.ledger._send_idempotent(call)).body
        warn_of(changed)
        return changed

    async def open_partitions(
        self, wanted: int | Sequence[str], budget: Mapping[str, Any] | None = None
    ) -> list[str]:
        """Open partitions, so many or by name; returns their names."""
        call = _calls.opening_partitions(self.name, wanted, budget)
        answer = (await self.ledger._send_idempotent(call)).body
        warn_of(answer)
        return partition_names(wanted, answer)

    async def set_renewal(self, period: str, budget: Mapping[str, Any] | None, reason: str) -> dict[str, Any]:
        """Set the budget of each new epoch of a calendar ``period``, or end that; with scope ``admin``.

        See :meth:`open_epoch`; ``period`` is ``day``, ``week``, ``month``, ``quarter`` or ``year``.
        """
        call = _calls.renewing(self.name, period, budget, reason)
        return (await self.ledger._send_idempotent(call)).body

    async def renewal(self) -> dict[str, Any]:
        """The policy of renewal, and which epochs may be opened now."""
        return await self.ledger._get(_calls.dataset_path(self.name, "/renewal"))

    async def open_epoch(self, epoch: str, statement: str) -> str:
        """Open the partition of the present or the next epoch, with the policy's budget; returns its name.

        By calling it you state that its records were in no other partition; ``statement`` says why.
        """
        call = _calls.opening_epoch(self.name, epoch, statement)
        return str((await self.ledger._send_idempotent(call)).body["first"])

    def partitions(self) -> AsyncIterator[dict[str, Any]]:
        """Every partition with what it has left."""
        return self.ledger._pages(_calls.dataset_path(self.name, "/partitions"))

    def entries(self, **chosen: Any) -> AsyncIterator[dict[str, Any]]:
        """The ledger's entries, all or those of a ``kind``, ``run``, ``partition`` or ``allocation``."""
        return self.ledger._pages(_calls.dataset_path(self.name, "/entries"), **chosen)

    def runs(self) -> AsyncIterator[dict[str, Any]]:
        """What each run has spent."""
        return self.ledger._pages(_calls.dataset_path(self.name, "/runs"))

    def allocations(self) -> AsyncIterator[dict[str, Any]]:
        """Every allocation of the budget, with what it has left."""
        return self.ledger._pages(_calls.dataset_path(self.name, "/allocations"))

    async def return_allocation(self, name: str, reason: str) -> dict[str, Any]:
        """Give an allocation back from which nothing was released."""
        call = _calls.returning_allocation(self.name, name, reason)
        return (await self.ledger._send_idempotent(call)).body

    async def request_budget(
        self,
        reason: str,
        *,
        budget: Mapping[str, Any] | None = None,
        allocation: Mapping[str, Any] | None = None,
        quota: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        """Ask an admin for what the token may not do by itself; see :meth:`Dataset.request_budget`."""
        asked = {"budget": budget, "allocation": allocation, "quota": quota}
        call = _calls.requesting_budget(self.name, reason, asked)
        return (await self.ledger._send_idempotent(call)).body

    def budget_requests(self, state: str | None = None) -> AsyncIterator[dict[str, Any]]:
        """Every request for budget, or those in one ``state``."""
        return self.ledger._pages(_calls.budget_request_path(self.name), state=state)

    async def budget_request(self, request: str) -> dict[str, Any]:
        """A request for budget by its id: its ``state``, and what was decided."""
        return await self.ledger._get(_calls.budget_request_path(self.name, request))

    async def decide_budget_request(
        self, request: str, decision: str, reason: str | None = None
    ) -> dict[str, Any]:
        """``approve`` or ``reject`` a request; see :meth:`Dataset.decide_budget_request`."""
        call = _calls.deciding_request(self.name, request, decision, reason)
        decided = (await self.ledger._send_idempotent(call)).body
        warn_of(decided)
        return decided

    async def withdraw_budget_request(self, request: str, reason: str | None = None) -> dict[str, Any]:
        """Withdraw a request that this token made."""
        call = _calls.withdrawing_request(self.name, request, reason)
        return (await self.ledger._send_idempotent(call)).body

    async def verification(self) -> dict[str, Any]:
        """Whether the chain of entries holds and the totals are what they say."""
        return await self.ledger._get(_calls.dataset_path(self.name, "/verification"))

    async def forecast(
        self,
        releases: Releases,
        sample: Sample | None = None,
        partition: str | None = None,
        allocation: str | None = None,
    ) -> dict[str, Any]:
        """How many more such steps fit, as ``fits``; of a ``shared`` budget, in one ``allocation``."""
        call = _calls.forecasting(self.name, releases, sample, partition, allocation)
        return (await self.ledger._wire.perform(call)).body

    def run(
        self,
        name: str,
        *,
        partition: str | None = None,
        allocation: str | None = None,
        journal: "str | os.PathLike[str] | Journal | None" = None,
    ) -> "AsyncAccount":
        """The account of a training job; see :meth:`Dataset.run`."""
        return AsyncAccount(self, name, partition, as_journal(journal), allocation)


@dataclass(frozen=True, repr=False)
class AsyncAccount:
    """What a training job asks before each noisy step; see :class:`~dpledger_client.ledger.Account`."""

    dataset: AsyncDataset
    name: str
    partition: str | None = None
    journal: Journal | None = None
    allocation: str | None = None

    def __repr__(self) -> str:
        part = "" if self.partition is None else f", partition={self.partition!r}"
        part += "" if self.allocation is None else f", allocation={self.allocation!r}"
        return f"AsyncAccount(dataset={self.dataset.name!r}, run={self.name!r}{part})"

    async def allocate(
        self,
        name: str,
        *,
        epsilon: float,
        delta: float,
        budget: Mapping[str, Any] | None = None,
        plan: Sequence[Mapping[str, Any]] | None = None,
        exist_ok: bool = False,
    ) -> "AsyncAccount":
        """Allocate a part of the dataset's budget, and spend from it; see :meth:`Account.allocate`."""
        call = _calls.allocating(self.dataset.name, name, epsilon, delta, budget, plan)
        try:
            answer = await self.dataset.ledger._send_idempotent(call, self.journal)
        except AlreadyExists as taken:
            if not exist_ok:
                taken.add_note(EXIST_OK_NOTE)
                raise
            shown = await self.dataset.ledger._get(_calls.allocation_path(self.dataset.name, name))
            compare_allocated(call.body, shown, taken)
        else:
            warn_of(answer.body)
        return replace(self, allocation=name)

    async def authorize(
        self,
        releases: Releases,
        *,
        sample: Sample | None = None,
        item: str | None = None,
        key: str | None = None,
    ) -> Authorization:
        """Ask for one step; see :meth:`Account.authorize`."""
        spend = self.spend(releases, sample=sample, item=item)
        call = _calls.spending(self.dataset.name, spend.body())
        answer = await self.dataset.ledger._send_idempotent(call, self.journal, key)
        granted = to_grant(answer.body, answer)
        lost = await self.dataset.ledger._not_resumable(answer, self.journal, spend)
        return Authorization(granted, spend.releases, self.journal, str(answer.key), resumable=not lost)

    async def release(
        self,
        mechanism: Mechanism | Release,
        value: Any,
        *,
        sample: Sample | None = None,
        item: str | None = None,
        key: str | None = None,
    ) -> Any:
        """Ask, and after a yes release ``value`` with the mechanism's noise."""
        return (await self.authorize(mechanism, sample=sample, item=item, key=key)).release(value)

    def reserve(
        self,
        releases: Releases,
        *,
        times: int,
        expires_in_seconds: float = 3600.0,
        sample: Sample | None = None,
        item: str | None = None,
        key: str | None = None,
    ) -> "AsyncReservation":
        """Ask for up to ``times`` repetitions of a step; use it with ``async with``."""
        spend = self.spend(releases, sample=sample, item=item)
        return AsyncReservation(self.dataset.ledger, spend, times, expires_in_seconds, self.journal, key)

    def spend(self, releases: Releases, *, sample: Sample | None = None, item: str | None = None) -> Spend:
        """A step described for :meth:`AsyncLedger.authorize_all`; nothing is asked."""
        return Spend(
            self.dataset.name,
            self.name,
            self.partition,
            as_releases(releases),
            sample,
            self.allocation,
            item,
        )


class AsyncReservation:
    """Reserves on entry and settles on exit what was used; see :class:`Reservation`."""

    def __init__(
        self,
        ledger: AsyncLedger,
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
        self._watch: asyncio.Task[None] | None = None
        self._journal = journal
        self._key = key
        self._hold: Hold | None = None

    async def __aenter__(self) -> Hold:
        asked_at = monotonic()
        answer = await self._ledger._send_idempotent(self._call, self._journal, self._key)
        granted = to_grant(answer.body, answer)
        lease = Lease(asked_at, self._seconds)
        if granted.replayed:
            await self._confirm(lease, granted.id)
        lost = await self._ledger._not_resumable(answer, self._journal, self._spend)
        self._hold = Hold(granted, self._spend.releases, self._journal, lease, resumable=not lost)
        self._watch = asyncio.create_task(self._confirm_often(lease, granted.id))
        return self._hold

    async def _confirm(self, lease: Lease, reservation: str) -> None:
        """Ask whether it is open; where no answer comes, it is not used until one does."""
        asked_at = monotonic()
        try:
            answer = await self._ledger._wire.perform(_calls.showing_reservation(reservation))
        except (DPLedgerError, OSError) as error:
            lease.fail(error)
        else:
            lease.note(asked_at, answer.body)

    async def _confirm_often(self, lease: Lease, reservation: str) -> None:
        """Ask in the background: taking a repetition does not wait, so it cannot ask by itself."""
        while not lease.over:
            await asyncio.wait([asyncio.get_running_loop().create_future()], timeout=_leases.CONFIRM_SECONDS)
            await self._confirm(lease, reservation)

    async def __aexit__(
        self, _kind: type[BaseException] | None, cause: BaseException | None, _trace: TracebackType | None
    ) -> None:
        hold = self._hold
        if hold is None or hold.forked:
            return
        if self._watch is not None:
            self._watch.cancel()
            await asyncio.wait([self._watch])
        call = _calls.settling(hold.granted.id, hold.close())
        try:
            record_settlement(hold, await self._ledger._send_idempotent(call, self._journal))
        except (DPLedgerError, OSError) as error:
            record_failed_settlement(hold, error, cause)
