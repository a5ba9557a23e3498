"""Service processes that kill themselves with SIGKILL at a chosen point of a chosen transaction.

The service itself has no fail points: here its storage and its application are wrapped from outside.
Starting Python takes longer than everything else, so one process imports the service once and then
forks a fresh, doomed process for each order that it reads: ``python -m tests.reliability.doomed``.
"""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

import uvicorn
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from dpledger.api.app import create_app
from dpledger.settings import Settings
from dpledger.storage import repository
from dpledger.storage.repository import SqlStorage
from tests.reliability.database_targets import DatabaseTarget
from tests.reliability.wire import HOST

AFTER_LOCK = "after-lock"
AFTER_APPEND = "after-append"
BEFORE_COMMIT = "before-commit"
AFTER_COMMIT = "after-commit"
ACKNOWLEDGEMENT = "acknowledgement"
POINTS = (AFTER_LOCK, AFTER_APPEND, BEFORE_COMMIT, AFTER_COMMIT, ACKNOWLEDGEMENT)
COMMITTED = (AFTER_COMMIT, ACKNOWLEDGEMENT)
"""Points at which the transaction that is under way is already on disk."""

_BACKLOG = 128


@dataclass(frozen=True)
class Order:
    """Die when ``point`` is passed for the ``passage``-th time."""

    point: str
    passage: int
    database: str
    key_file: str


class Fate:
    """Counts how often its point is passed, and ends the process when the time has come."""

    def __init__(self, order: Order) -> None:
        self._order = order
        self._passed = 0
        self._guard = threading.Lock()

    def passes(self, point: str) -> None:
        if point != self._order.point:
            return
        with self._guard:
            self._passed += 1
            if self._passed == self._order.passage:
                os.kill(os.getpid(), signal.SIGKILL)


class DoomedTransaction:
    """A transaction that may not live to see its end; everything else is the real one's."""

    def __init__(self, real: Any, fate: Fate) -> None:
        self._real = real
        self._fate = fate

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    def lock(self, *arguments: Any, **options: Any) -> Any:
        locked = self._real.lock(*arguments, **options)
        self._fate.passes(AFTER_LOCK)
        return locked

    def append(self, *arguments: Any) -> None:
        self._real.append(*arguments)
        self._fate.passes(AFTER_APPEND)


class DoomedStorage(SqlStorage):
    """The real storage, with a fate for every transaction."""

    fate: Fate

    @contextlib.contextmanager
    def begin(self) -> Iterator[Any]:
        with super().begin() as real:
            yield DoomedTransaction(real, self.fate)
            self.fate.passes(BEFORE_COMMIT)
        self.fate.passes(AFTER_COMMIT)


class DoomedApplication:
    """The real application, which may die when it is about to send an answer."""

    def __init__(self, real: ASGIApp, fate: Fate) -> None:
        self._real = real
        self._fate = fate

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_or_die(message: Message) -> None:
            if message["type"] == "http.response.start":
                self._fate.passes(ACKNOWLEDGEMENT)
            await send(message)

        await self._real(scope, receive, send_or_die)


def serve_until_death(order: Order, listener: socket.socket) -> None:
    """Serve on ``listener`` as the real service does, until fate strikes."""
    DoomedStorage.fate = Fate(order)
    repository.SqlStorage = DoomedStorage  # type: ignore[misc]
    app = create_app(Settings(order.database, Path(order.key_file)))
    config = uvicorn.Config(DoomedApplication(app, DoomedStorage.fate), log_config=None, access_log=False)
    uvicorn.Server(config).run(sockets=[listener])


def main() -> None:
    """For each order on standard input: fork, say the port, wait for the end, say its signal."""
    for line in sys.stdin:
        order = Order(**json.loads(line))
        listener = socket.create_server((HOST, 0), backlog=_BACKLOG)
        child = os.fork()
        if child == 0:
            serve_until_death(order, listener)
            os._exit(0)
        _say(listener.getsockname()[1])
        listener.close()
        _, status = os.waitpid(child, 0)
        _say(os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0)


def _say(number: int) -> None:
    sys.stdout.write(f"{number}\n")
    sys.stdout.flush()


class Executioner:
    """The other end: orders doomed services, one after another."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.reliability.doomed"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()

    def start(self, database_target: DatabaseTarget, point: str, passage: int) -> int:
        """Start a service that will die at this point; returns the port on which it serves."""
        order = Order(point, passage, database_target.database, str(database_target.key_file))
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(asdict(order)) + "\n")
        self._process.stdin.flush()
        return self._heard()

    def signal_of_death(self) -> int:
        """Wait until the service that was started last is gone; 0 if it ended in peace."""
        return self._heard()

    def _heard(self) -> int:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, "the process that starts doomed services has ended"
        return int(line)


if __name__ == "__main__":
    main()
