"""Builds the service's components at startup and closes them at shutdown."""

import asyncio
import contextlib
import functools
import importlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import anyio
import anyio.to_thread

from dpledger.api.http.admission import InFlight
from dpledger.api.lanes import Lane
from dpledger.api.metrics import Metrics
from dpledger.api.responses import ResponseWriter
from dpledger.api.standby import StandbyWatch
from dpledger.auth.gatekeeper import Caller, Gatekeeper, bearer_token
from dpledger.auth.issuer import Issuer
from dpledger.auth.keys import load_keys
from dpledger.auth.sessions import SessionKeeper
from dpledger.auth.tokens import WebToken
from dpledger.ledger.batching import GroupCommitter, resolve
from dpledger.ledger.clock import Clock
from dpledger.ledger.errors import Unavailable
from dpledger.ledger.marks import HighWaterMarks
from dpledger.ledger.model.entries import Charge
from dpledger.ledger.model.requests import Spend
from dpledger.ledger.preview import PreviewExecutor
from dpledger.ledger.reader import LedgerReader
from dpledger.ledger.receipts import Signer
from dpledger.ledger.results import Decided
from dpledger.ledger.service import LedgerService
from dpledger.logs import log_event, log_failure
from dpledger.queries.worker_pool import WorkerPool
from dpledger.settings import Settings
from dpledger.storage.engine.session import Database
from dpledger.storage.mark_file import MarkFile, UnusableMarkFile
from dpledger.storage.read_models.fractions import fractions_left
from dpledger.storage.replication import has_several_hosts
from dpledger.storage.repositories.tokens import TokenStore
from dpledger.storage.repository import open_storage
from dpledger.storage.sessions import SessionStore

if TYPE_CHECKING:
    from dpledger.auth.federated import Federated

__all__ = ["Services", "is_expensive", "opened_marks"]

T = TypeVar("T")
Ticket = asyncio.Future[Decided | Exception]
_COMMITTERS = {"sqlite": 1, "postgresql": 4}
"""How many datasets are written at once: SQLite has one writer."""
_LOADED_LATER = ("scipy.optimize", "scipy.fft")
"""What accounting loads when it is first used, and takes a fifth of a second."""
_LOADING_PAUSE_SECONDS = 0.5
_WRITERS = 8
_COMPUTERS = 2
_LONG_COMPUTERS = 1
_VERIFIERS = 4
"""Threads that an issuer may hang in: whoever shows a token of ours is looked up in others."""
_BODY_READERS = 1
"""One: two threads that only compute would take the interpreter from the event loop in turns."""


def is_expensive(spend: Spend) -> bool:
    """Whether computing what a spend is charged may take long."""
    return any(release.mechanism.expensive for release in spend.releases)


class Services:
    """A database opened, migrated and looked after, with the ledger on top of it."""

    def __init__(self, settings: Settings, clock: Clock, metrics: Metrics) -> None:
        self.settings = settings
        self.clock = clock
        self.metrics = metrics
        self.storage = open_storage(settings.database)
        self.storage.on_locked = metrics.lock_waited
        self.tokens = TokenStore(self.storage.database)
        try:
            keys = load_keys(settings.keys_path(), has_tokens=self.tokens.any)
            self.storage.marks = opened_marks(settings, self.storage.instance())
        except Exception:
            self.storage.close()
            raise
        self.signer = Signer(keys.receipt_seed, keys.retired_public_keys)
        ended = SessionStore(self.storage.database)
        federation = _federated(settings, self.tokens, ended, keys.token_key, clock)
        self.sign_on = None if federation is None else federation.sign_on
        web_tokens = None if federation is None else federation.bearers
        self.gatekeeper = Gatekeeper(self.tokens, keys.token_key, clock, web_tokens=web_tokens)
        self.issuer = Issuer(self.tokens, keys.token_key, clock)
        self.sessions = SessionKeeper(self.tokens, ended, keys.token_key, clock)
        self.responses = ResponseWriter(self.signer)
        self.ledger = LedgerService(self.storage, clock, self.responses)
        self.preview = LedgerService(self.storage, clock, self.responses, PreviewExecutor)
        self.reader = LedgerReader(self.storage)
        self.standby = _standby_watch(settings, self.storage.database)
        self.in_flight = InFlight()
        self.queries = WorkerPool(deciding=lambda: bool(self.in_flight))
        # Writers wait for locks: with places of their own, they never keep readers from a thread.
        self._writers = anyio.CapacityLimiter(_WRITERS)
        self._computers = anyio.CapacityLimiter(_COMPUTERS)
        self._long_computers = anyio.CapacityLimiter(_LONG_COMPUTERS)
        self._verifiers = anyio.CapacityLimiter(_VERIFIERS)
        self._body_readers = anyio.CapacityLimiter(_BODY_READERS)
        self.lists = Lane(lambda: len(self.in_flight) > self.lists.deciding)
        self._tell_more()

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Take requests on ``loop``."""
        self.loop = loop
        call_soon: Any = loop.call_soon_threadsafe
        self.committer = GroupCommitter(
            self.metrics.observe_groups(self.ledger.batches.decide),
            functools.partial(call_soon, resolve),
            workers=_COMMITTERS[self.database],
        )
        self._tasks = [loop.create_task(self._expire_now_and_then()), loop.create_task(self._load_the_rest())]
        if self.standby is not None:
            self._tasks.append(loop.create_task(self.standby.watch(self.settings.standby_seconds)))

    async def close(self) -> None:
        """Finish what was accepted, then let go of the database."""
        for task in self._tasks:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
        await self.queries.close()
        await anyio.to_thread.run_sync(self.committer.stop)
        self.storage.close()

    @property
    def database(self) -> str:
        """Which database it is, ``sqlite`` or ``postgresql``."""
        return self.storage.database.engine.dialect.name

    async def caller(self, authorization: str | None) -> Caller:
        """Who is calling; a thread asks the database where memory does not know."""
        token = bearer_token(authorization)
        known = self.gatekeeper.find_cached(token)
        if known is not None:
            return known
        limiter = self._verifiers if isinstance(token, WebToken) else None
        return await anyio.to_thread.run_sync(self.gatekeeper.caller, authorization, limiter=limiter)

    async def write(self, work: Callable[..., T], *arguments: Any) -> T:
        """Run what locks and commits in a thread of the writers."""
        return await anyio.to_thread.run_sync(functools.partial(work, *arguments), limiter=self._writers)

    async def compute(self, work: Callable[..., T], *arguments: Any) -> T:
        """Run what needs the processor for long in a thread of its own kind."""
        return await anyio.to_thread.run_sync(functools.partial(work, *arguments), limiter=self._computers)

    async def read(self, work: Callable[..., T], *arguments: Any) -> T:
        """Parse and validate a large body: one after another, beside the event loop."""
        return await anyio.to_thread.run_sync(functools.partial(work, *arguments), limiter=self._body_readers)

    async def price(self, spend: Spend) -> Charge:
        """Compute what a spend that takes long is charged: one after another, and in nobody else's way."""
        return await anyio.to_thread.run_sync(self.ledger.charge, spend, limiter=self._long_computers)

    async def compose(self, work: Callable[..., object], *arguments: Any) -> None:
        """Make a budget ahead of the request that opens it: plans one after another, in no writer's way."""
        await anyio.to_thread.run_sync(functools.partial(work, *arguments), limiter=self._long_computers)

    def _tell_more(self) -> None:
        """Have the metrics tell what others know anyway, when they are asked for."""
        queries, names = self.queries, self.settings.metrics_datasets
        self.metrics.look_at_gauge(
            "dpledger_questions_waiting",
            "Queries in front of the worker process.",
            (),
            lambda: {(): queries.waiting},
        )
        self.metrics.look_at_counter(
            "dpledger_questions",
            "Queries by how they were answered.",
            ("outcome",),
            lambda: {(outcome,): count for outcome, count in dict(queries.outcomes).items()},
        )
        self.metrics.look_at_gauge(
            "dpledger_synchronous_standbys",
            "Standbys that commits wait for, where PostgreSQL is watched for them.",
            (),
            lambda: {} if self.standby is None else self.standby.gauge(),
        )
        self.metrics.look_at_gauge(
            "dpledger_marks_unsaved",
            "Datasets whose high-water mark is not in its file yet.",
            (),
            lambda: {(): self.storage.marks.unsaved},
        )
        self.metrics.look_at_gauge(
            "dpledger_lists_waiting",
            "Long lists of spends that are being decided or wait for it.",
            (),
            lambda: {(): self.lists.waiting},
        )
        self.metrics.look_at_gauge(
            "dpledger_remaining_fraction",
            "The part of a dataset's budget that is neither spent nor reserved, rounded down.",
            ("dataset",),
            lambda: {(name,): left for name, left in fractions_left(self.storage.database, names).items()},
        )

    async def _load_the_rest(self) -> None:
        """Load what a start does not need, before the first budget or plan that does has to wait for it."""
        await asyncio.sleep(_LOADING_PAUSE_SECONDS)
        for name in _LOADED_LATER:
            try:
                await self.compute(importlib.import_module, name)
            except Exception as error:  # it concerns whoever needs it, and not the shutdown
                log_failure(error)

    async def _expire_now_and_then(self) -> None:
        while True:
            await asyncio.sleep(self.settings.expiry_seconds)
            try:
                expired = await self.write(self.ledger.expire_due)
            except Unavailable as error:
                log_event("reservations not checked", reason=str(error))
            except Exception as error:  # whatever it is, what falls due later must not wait for a restart
                log_failure(error)
            else:
                if expired:
                    log_event("reservations expired", datasets=expired)


def _standby_watch(settings: Settings, database: Database) -> StandbyWatch | None:
    """The watch over the standby: where one is required, or where a fail-over is prepared for."""
    if settings.require_standby or has_several_hosts(settings.database):
        return StandbyWatch(database, settings.require_standby)
    return None


def _federated(
    settings: Settings, tokens: TokenStore, ended: SessionStore, key: bytes, clock: Clock
) -> "Federated | None":
    """What an issuer vouches for, where one is trusted; its libraries are an extra, and loaded here alone."""
    federation = settings.federation()
    if federation is None:
        return None
    from dpledger.auth.federated import open_federation

    return open_federation(federation, tokens, ended, key, clock)


def opened_marks(settings: Settings, instance: str) -> HighWaterMarks:
    """The marks of a ledger; where nobody has named a file and none can be made, in memory alone."""
    try:
        return HighWaterMarks(MarkFile(settings.marks_path(), instance))
    except UnusableMarkFile as error:
        if settings.mark_file is not None:
            raise
        log_event("high-water marks are kept in memory alone", reason=str(error))
        return HighWaterMarks()
