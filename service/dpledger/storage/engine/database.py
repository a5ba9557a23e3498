"""Opening sessions on a database, and what its errors mean to whoever asked."""

import contextlib
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any

from sqlalchemy import Engine

from dpledger.ledger.errors import Unavailable
from dpledger.storage.engine.engines import BUSY_SECONDS, reading_engine
from dpledger.storage.engine.failures import Busy, translate_error
from dpledger.storage.engine.session import PostgresqlSession, Session, SqliteSession

__all__ = ["Database"]


class Database:
    """Sessions on one engine, and on another of the same database to read.

    SQLite has one writer at a time. Threads of this process queue for it here, in turn and at once;
    left to SQLite they would poll with growing pauses.
    """

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.reading = reading_engine(engine)
        self._is_sqlite = engine.dialect.name == "sqlite"
        self._session: type[Session] = SqliteSession if self._is_sqlite else PostgresqlSession
        self._turn = threading.Lock()

    def begin(self) -> AbstractContextManager[Session]:
        """A writing transaction: committed when the block ends, undone on an exception."""
        return self._in_turn() if self._is_sqlite else self._open(writing=True)

    def read(self) -> AbstractContextManager[Session]:
        """One consistent look at what is committed; locks nothing."""
        return self._open(writing=False)

    def close(self) -> None:
        """Close every connection."""
        self.engine.dispose()
        self.reading.dispose()

    def is_transient(self, error: BaseException) -> bool:
        """Whether running the whole transaction again may succeed."""
        return isinstance(error, Busy)

    @contextlib.contextmanager
    def _in_turn(self) -> Iterator[Session]:
        if not self._turn.acquire(timeout=BUSY_SECONDS):
            raise Unavailable("the database stays busy")
        try:
            with self._open(writing=True) as session:
                yield session
        finally:
            self._turn.release()

    @contextlib.contextmanager
    def _open(self, *, writing: bool) -> Iterator[Session]:
        started = time.monotonic()
        try:
            with _connection(self.engine if writing else self.reading) as raw:
                session = self._session(raw)
                session.begin(writing=writing)
                yield session
                if writing:
                    session.commit()
        except Exception as error:
            meaning = translate_error(error)
            if meaning is None:
                raise
            if isinstance(meaning, Busy) and time.monotonic() - started >= BUSY_SECONDS:
                meaning = Unavailable("the database stays busy")
            raise meaning from error


@contextlib.contextmanager
def _connection(engine: Engine) -> Iterator[Any]:
    """A connection of the pool; what was not committed is rolled back when it returns there."""
    pooled = engine.raw_connection()
    raw: Any = pooled.driver_connection
    try:
        yield raw
    except Exception as error:
        if engine.dialect.is_disconnect(error, raw, None):  # type: ignore[arg-type]
            pooled.invalidate(error)
        raise
    finally:
        pooled.close()
