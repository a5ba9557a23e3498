"""Translates database errors: retry, unavailable, or a fault in this code.

Nothing whose outcome is unknown is ever tried again here: a connection lost during COMMIT may have
committed. The caller gets ``Unavailable``, and its idempotency key makes its own retry safe.
"""

import sqlite3
from typing import TYPE_CHECKING

from sqlalchemy import exc

from dpledger.ledger.errors import Unavailable
from dpledger.storage.engine.engines import POOLER, UnkeptSettings

if TYPE_CHECKING:
    import psycopg

__all__ = ["Busy", "translate_error"]

# Serialization failure and deadlock: the server says that it has rolled back.
_TRANSIENT_STATES = frozenset({"40001", "40P01"})
# Lock not available, statement completion unknown, read-only server, idle in transaction too long.
_AWAY_STATES = frozenset({"55P03", "40003", "25006", "25P03"})
# Connection, resources, operator intervention, system error.
_AWAY_CLASSES = frozenset({"08", "53", "57", "58"})

_SQLITE_AWAY = frozenset(
    {
        sqlite3.SQLITE_NOMEM,
        sqlite3.SQLITE_READONLY,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_PROTOCOL,
    }
)


_UNSUPPORTED = "unsupported startup parameter"


class Busy(Unavailable):
    """Lost against another transaction and rolled back; running all of it again may succeed."""


def translate_error(error: BaseException) -> Unavailable | None:
    """The ledger's word for a database error, or None where it is a fault and no circumstance."""
    if isinstance(error, exc.TimeoutError):
        return Unavailable("every connection to the database is in use")
    if isinstance(error, UnkeptSettings):
        return Unavailable(f"the database cannot be relied on: {error}")
    cause = error.orig if isinstance(error, exc.DBAPIError) else error
    if isinstance(cause, sqlite3.Error):
        return _from_sqlite(cause)
    # A service on SQLite starts without it.
    import psycopg

    return _from_postgresql(cause) if isinstance(cause, psycopg.Error) else None


def _from_sqlite(error: sqlite3.Error) -> Unavailable | None:
    # The low byte is the kind; the rest says more precisely which.
    kind = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
    if kind in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return Busy("the database is busy")
    return Unavailable(f"the database cannot be written: {error}") if kind in _SQLITE_AWAY else None


def _from_postgresql(error: "psycopg.Error") -> Unavailable | None:
    state = error.sqlstate
    if state in _TRANSIENT_STATES:
        return Busy("the transaction lost against another one")
    if state is None:
        # The driver itself: refused, lost or timed out; anything else it raises is a fault.
        if _UNSUPPORTED in str(error):
            return Unavailable(f"{_UNSUPPORTED}{str(error).partition(_UNSUPPORTED)[2].strip()}; {POOLER}")
        import psycopg

        away = isinstance(error, psycopg.OperationalError)
    else:
        away = state in _AWAY_STATES or state[:2] in _AWAY_CLASSES or _ends_session(error)
    return Unavailable("the database is away or does not answer in time") if away else None


def _ends_session(error: "psycopg.Error") -> bool:
    """Whether the server ended the session or itself, as when its log cannot be written at a commit."""
    return error.diag.severity_nonlocalized in ("FATAL", "PANIC")
