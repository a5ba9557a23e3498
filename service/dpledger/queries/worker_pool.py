"""Queues queries for the worker process and caches their answers.

One worker answers one query after another. Whoever asks has a line of their own, and the worker takes
from each in turn: nobody's queries fill another's line. Few may wait in one: when it is full, the answer
is 503 at once, so that queries never pile up in front of authorizations. Equal queries share one answer,
and pure answers are kept and given again without the worker, at a measured pace. A query keeps its
place when its asker has to come back, so asking again goes on where it was.
"""

import asyncio
import contextlib
import hashlib
import math
import os
import sys
from asyncio.subprocess import PIPE, Process
from collections import Counter, OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass

from dpledger.ledger.filters import added_filters
from dpledger.logs import log_event
from dpledger.queries.outcomes import Failure, FailureKind, Outcome, from_line, is_lasting
from dpledger.queries.requests import Query, canonical
from dpledger.queries.worker import READY

__all__ = ["RETRY_SECONDS", "WorkerPool"]

MOST_WAITING = 32
MOST_WAITING_IN_ALL = 512
PATIENCE_SECONDS = 20.0
"""How long an asker is kept waiting for an answer; clients wait for 30 seconds by default."""
WALL_SECONDS = 30.0
START_SECONDS = 60.0
RETRY_SECONDS = 1
LONGEST_RETRY_SECONDS = 10
PACE_SECONDS = 0.01
BUSY_PACE_SECONDS = 0.04
BURST = 20
"""Beyond a burst, 100 queries per second, and 25 while authorizations are decided: reading them and
writing answers takes the event loop's time, computing them the processor's, and both may share one."""
LONGEST_PAUSE_SECONDS = 2.0
_KEPT = 1024
_AVERAGED = 8
"""The time that an answer takes is averaged over about so many."""
_FORGOTTEN_SECONDS = 10.0
_LONGEST_LINE = 16 * 2**20
_COMMAND = (sys.executable, "-m", "dpledger.queries.worker")
_ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
_FULL = Failure(FailureKind.BUSY, f"{MOST_WAITING} queries are waiting. Ask again in a moment.")
_LATE = Failure(FailureKind.BUSY, f"The machine did not get to the answer within {WALL_SECONDS:g} s.")
_LATER = Failure(
    FailureKind.BUSY, f"No answer within {PATIENCE_SECONDS:g} s; the query keeps its place. Ask again."
)


@dataclass(frozen=True)
class _Waiting:
    """A query in the line."""

    key: bytes
    line: bytes
    ticket: asyncio.Future[Outcome]


class _Lines:
    """One line for each asker; whoever takes goes round all of them."""

    def __init__(self) -> None:
        self._lines: OrderedDict[str, deque[_Waiting]] = OrderedDict()
        self._there = asyncio.Event()
        self.waiting = 0

    def put(self, asker: str, waiting: _Waiting) -> bool:
        """Stand in an asker's line; False if it is full."""
        line = self._lines.get(asker, ())
        if len(line) >= MOST_WAITING or self.waiting >= MOST_WAITING_IN_ALL:
            return False
        self._lines.setdefault(asker, deque()).append(waiting)
        self.waiting += 1
        self._there.set()
        return True

    async def take(self) -> _Waiting:
        """The first of the line whose turn it is."""
        while not self._lines:
            self._there.clear()
            await self._there.wait()
        asker, line = self._lines.popitem(last=False)
        waiting = line.popleft()
        if line:
            self._lines[asker] = line
        self.waiting -= 1
        return waiting


class WorkerPool:
    """Asks the worker, which is started with the first query."""

    def __init__(
        self, command: tuple[str, ...] = _COMMAND, *, deciding: Callable[[], bool] = lambda: False
    ) -> None:
        self._command = command
        self._deciding = deciding
        self._kept: OrderedDict[bytes, Outcome] = OrderedDict()
        self._asked: dict[bytes, asyncio.Future[Outcome]] = {}
        self._lines = _Lines()
        self._worker: Process | None = None
        self._work: asyncio.Task[None] | None = None
        self._free_at: dict[str, float] = {}
        self._seconds = 0.0
        self.outcomes: Counter[str] = Counter()

    @property
    def waiting(self) -> int:
        """How many queries stand in the lines."""
        return self._lines.waiting

    @property
    def retry_seconds(self) -> int:
        """After how long it is worth to ask again: about as long as half of those who wait will take."""
        return min(max(RETRY_SECONDS, math.ceil(self.waiting * self._seconds / 2)), LONGEST_RETRY_SECONDS)

    async def ask(self, query: Query, asker: str = "") -> Outcome:
        """The outcome of a pure query; ``asker`` says in whose line it waits."""
        if not await self._turn(asker):
            self.outcomes["full"] += 1
            return _FULL
        line = canonical(query).encode() + b"\n"
        key = hashlib.sha256(line).digest()
        known = self._kept.get(key)
        if known is not None:
            self._kept.move_to_end(key)
            self.outcomes["kept"] += 1
            return known
        ticket = self._asked.get(key) or self._enqueue(key, line, asker)
        found = _FULL if ticket is None else await _patiently(ticket)
        late = found is _LATE or found is _LATER
        self.outcomes["full" if ticket is None else "late" if late else "answered"] += 1
        return found

    async def close(self) -> None:
        """Let the worker go; who still waits gets an answer that says to ask again."""
        if self._work is not None:
            self._work.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._work
        for ticket in self._asked.values():
            ticket.set_result(_LATE)
        self._asked.clear()
        await self._dismiss()

    async def _turn(self, asker: str) -> bool:
        """Wait until it is this query's turn, so that many of them leave most of the loop to others.

        False at once if that would take too long. Those who ask much share the pace.
        """
        now = asyncio.get_running_loop().time()
        self._free_at = {each: at for each, at in self._free_at.items() if at > now - _FORGOTTEN_SECONDS}
        sharing = sum(1 for each, at in self._free_at.items() if at > now and each != asker)
        pace = (1 + sharing) * (BUSY_PACE_SECONDS if self._deciding() else PACE_SECONDS)
        at = max(self._free_at.get(asker, 0.0), now - BURST * pace)
        if at > now + LONGEST_PAUSE_SECONDS:
            return False
        self._free_at[asker] = at + pace
        if at > now:
            await asyncio.sleep(at - now)
        return True

    def _enqueue(self, key: bytes, line: bytes, asker: str) -> asyncio.Future[Outcome] | None:
        loop = asyncio.get_running_loop()
        ticket: asyncio.Future[Outcome] = loop.create_future()
        if not self._lines.put(asker, _Waiting(key, line, ticket)):
            return None
        self._work = self._work or loop.create_task(self._answer_all())
        self._asked[key] = ticket
        return ticket

    async def _answer_all(self) -> None:
        while True:
            waiting = await self._lines.take()
            began = asyncio.get_running_loop().time()
            found = await self._exchange(waiting.line)
            self._seconds += (asyncio.get_running_loop().time() - began - self._seconds) / _AVERAGED
            if is_lasting(found):
                self._keep(waiting.key, found)
            del self._asked[waiting.key]
            waiting.ticket.set_result(found)

    def _keep(self, key: bytes, found: Outcome) -> None:
        self._kept[key] = found
        if len(self._kept) > _KEPT:
            self._kept.popitem(last=False)

    async def _exchange(self, line: bytes) -> Outcome:
        try:
            worker = self._worker or await self._start()
            return from_line(await asyncio.wait_for(_exchange(worker, line), WALL_SECONDS))
        except (TimeoutError, OSError, ValueError) as error:
            log_event("query worker stopped", reason=type(error).__name__)
            await self._dismiss()
            return _LATE

    async def _start(self) -> Process:
        environment = {**os.environ, **_ONE_THREAD}
        self._worker = await asyncio.create_subprocess_exec(
            *self._command, *added_filters(), stdin=PIPE, stdout=PIPE, env=environment, limit=_LONGEST_LINE
        )
        assert self._worker.stdout is not None
        if await asyncio.wait_for(self._worker.stdout.readline(), START_SECONDS) != READY:
            raise OSError("the worker did not start")
        return self._worker

    async def _dismiss(self) -> None:
        worker, self._worker = self._worker, None
        if worker is None:
            return
        with contextlib.suppress(ProcessLookupError):
            worker.kill()
        # Reads what is left as well, so that no pipe stays open.
        await worker.communicate()


async def _patiently(ticket: asyncio.Future[Outcome]) -> Outcome:
    """The answer, if it comes before the asker would rather hear something."""
    try:
        # Shielded: whoever hangs up must not take the answer from others who asked the same.
        return await asyncio.wait_for(asyncio.shield(ticket), PATIENCE_SECONDS)
    except TimeoutError:
        return _LATER


async def _exchange(worker: Process, line: bytes) -> bytes:
    assert worker.stdin is not None
    assert worker.stdout is not None
    worker.stdin.write(line)
    await worker.stdin.drain()
    answer = await worker.stdout.readline()
    if not answer.endswith(b"\n"):
        raise OSError("the worker ended")
    return answer
