"""The durable floor: an empty FastAPI route whose answer waits until a record of its own is on disk.

    python -m benchmarks.floor <port> <file>
    python -m benchmarks.floor <port> <PostgreSQL URL>

It is what disk and framework allow together: no token, no body, no decision, no history. All requests that
wait are made durable together by the one write that an engineer would choose first: 300 bytes each, appended
to a file in one system call and synced by ``fdatasync``, or inserted as a row each by one statement that
commits itself. While it is under way the next group forms.
"""

import asyncio
import gc
import os
import sys
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Any

import psycopg
import uvicorn
from fastapi import FastAPI

__all__ = ["GroupWriter", "appender", "create_floor", "inserter"]

RECORD = bytes(300)
"""About what one entry of the ledger takes (``make bench-scale``)."""
Write = Callable[[int], object]


def appender(path: str) -> Write:
    """Appends records to a file, durably."""
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def append(count: int) -> None:
        os.write(file, RECORD * count)
        os.fdatasync(file)

    return append


def inserter(url: str) -> Write:
    """Inserts records as rows in one statement, which is a transaction of its own."""
    connection = psycopg.connect(url, autocommit=True)
    connection.execute("SET synchronous_commit = on")
    connection.execute("CREATE TABLE records (number bigserial PRIMARY KEY, body bytea NOT NULL)")

    def insert(count: int) -> None:
        # Beyond a handful of executions the driver prepares it.
        connection.execute("INSERT INTO records (body) SELECT unnest(%b::bytea[])", ([RECORD] * count,))

    return insert


class GroupWriter:
    """Makes everything that waits durable in one write at a time, in one thread."""

    def __init__(self, write: Write) -> None:
        self._write = write
        self._thread = ThreadPoolExecutor(1)
        self._waiting: list[asyncio.Future[Any]] = []
        self._came = asyncio.Event()

    def record(self) -> asyncio.Future[Any]:
        """A future that is done when its record is durable."""
        ticket = asyncio.get_running_loop().create_future()
        self._waiting.append(ticket)
        self._came.set()
        return ticket

    async def run(self) -> None:
        """Write group after group."""
        loop = asyncio.get_running_loop()
        while True:
            await self._came.wait()
            self._came.clear()
            group, self._waiting = self._waiting, []
            await loop.run_in_executor(self._thread, self._write, len(group))
            for ticket in group:
                if not ticket.done():
                    ticket.set_result(None)


def create_floor(write: Write) -> FastAPI:
    """A FastAPI application with one route, which answers when its record is durable."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        app.state.writer = writer = GroupWriter(write)
        running = asyncio.create_task(writer.run())
        yield
        running.cancel()

    app = FastAPI(lifespan=lifespan)

    @app.post("/v1/datasets/{name}/authorizations")
    async def record() -> dict[str, str]:
        await app.state.writer.record()
        return {}

    return app


def main() -> None:
    """Serve on a port, with a file or a database."""
    port, target = sys.argv[1:]
    if "://" in target:
        write = inserter(target.replace("postgresql+psycopg://", "postgresql://"))
    else:
        write = appender(target)
    app = create_floor(write)
    # As the service does: the one must not stop for garbage where the other does not.
    gc.collect()
    gc.freeze()
    uvicorn.run(
        app,
        host="127.0.0.1",
        port=int(port),
        access_log=False,
        log_level="warning",
        proxy_headers=False,
        server_header=False,
    )


if __name__ == "__main__":
    main()
