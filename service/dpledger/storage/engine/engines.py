"""Engines: how each database is connected to, so that a commit is durable and a lock is a lock.

SQLite: write-ahead log, ``synchronous=FULL``, foreign keys, a busy timeout. Python's own transaction
mode begins too late and too weakly (16 of 16 concurrent requests pass a budget of one), so it is off
and ``BEGIN IMMEDIATE`` is said here.

PostgreSQL: READ COMMITTED, in which ``SELECT … FOR UPDATE`` waits and then reads what the other
transaction left. Several hosts may be named; the one that takes writes is used.
"""

import contextlib
import math
import os
import re
import select
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from sqlalchemy import Engine, create_engine, event
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, DisconnectionError

__all__ = [
    "BUSY_SECONDS",
    "POOLER",
    "UnkeptSettings",
    "make_engine",
    "normalized_url",
    "reading_engine",
    "sqlite_file",
]

BUSY_SECONDS = 5.0
"""How long a transaction waits for another one before it gives up."""

_POOL: dict[str, Any] = {
    "pool_size": 8,
    "max_overflow": 8,
    "pool_timeout": BUSY_SECONDS,
    # The connection used last has its statements prepared and its pages read.
    "pool_use_lifo": True,
}
_REST_SECONDS = 1.0
_HOST_LIST = re.compile(r"^(?P<scheme>postgres\w*(?:\+\w+)?)://(?P<user>[^@/]*@)?(?P<hosts>[^/?]*,[^/?]*)")


def make_engine(url: str) -> Engine:
    """An engine for a ledger; SQLite needs a file, because nothing else survives the process.

    Parameters
    ----------
    url
        ``sqlite:///budget.db`` or ``postgresql://user:password@host/database``; several hosts are
        written as a list, ``host1:5432,host2:5432``, as PostgreSQL's own tools write them.
    """
    parsed = normalized_url(url)
    if parsed.get_backend_name() == "sqlite":
        return _sqlite_engine(parsed)
    return _postgresql_engine(parsed)


def reading_engine(engine: Engine) -> Engine:
    """Connections of their own to the same database, on which nothing can be written.

    A transaction there sees one state of the database from its first statement to its last.
    """
    if engine.dialect.name == "sqlite":
        return _sqlite_engine(engine.url, reading=True)
    return _postgresql_engine(engine.url, reading=True)


def normalized_url(url: str) -> URL:
    """The URL as SQLAlchemy reads it, with the driver that this project uses."""
    listed = _HOST_LIST.match(url)
    if listed is not None:
        rest = url[listed.end() :]
        hosts = listed["hosts"].split(",")
        url = f"{listed['scheme']}://{listed['user'] or ''}{rest}"
        parsed = make_url(url).update_query_pairs([("host", host) for host in hosts])
    else:
        parsed = make_url(url)
    if parsed.get_backend_name() in ("postgresql", "postgres"):
        return parsed.set(drivername="postgresql+psycopg")
    if parsed.get_backend_name() != "sqlite":
        raise ArgumentError(f"a ledger is kept in sqlite or postgresql, not in {parsed.get_backend_name()}")
    return parsed.set(drivername="sqlite")


def _sqlite_engine(url: URL, *, reading: bool = False) -> Engine:
    if url.database in (None, "", ":memory:") or url.query.get("mode") == "memory":
        raise ArgumentError("a ledger needs a file: sqlite:///budget.db")
    engine = create_engine(url, connect_args={"timeout": BUSY_SECONDS}, **_POOL)
    _keep_to_the_file(engine, sqlite_file(url))
    event.listen(engine, "connect", _prepare_sqlite)
    if reading:
        event.listen(engine, "connect", lambda raw, _: raw.execute("PRAGMA query_only=ON"))
    begin = "BEGIN" if reading else "BEGIN IMMEDIATE"
    event.listen(engine, "begin", lambda connection: connection.exec_driver_sql(begin))
    return engine


def sqlite_file(url: URL) -> Path:
    """The file that an SQLite URL names."""
    return Path((url.database or "").removeprefix("file:").partition("?")[0])


def _keep_to_the_file(engine: Engine, file: Path) -> None:
    """Make the file for its owner alone, and connect anew when another one has taken its name.

    A connection stays with the file that it opened, also when that has no name any more: what was written
    there would be gone with the process. SQLite gives the files beside it the same mode.
    """

    def create_file(_dialect: object, _record: object, _arguments: object, _options: object) -> None:
        # Where it cannot be made, SQLite says why.
        with contextlib.suppress(OSError):
            os.close(os.open(file, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))

    def note_file(_connection: object, record: Any) -> None:
        record.info["file"] = None
        with contextlib.suppress(OSError):
            record.info["file"] = os.stat(file)

    def check_file(_connection: object, record: Any, _fairy: object) -> None:
        with contextlib.suppress(OSError):
            found, opened = os.stat(file), record.info["file"]
            if opened is None or not os.path.samestat(found, opened):
                raise DisconnectionError("another file has taken the database's name")

    event.listen(engine, "do_connect", create_file)
    event.listen(engine, "connect", note_file)
    event.listen(engine, "checkout", check_file)


_SQLITE_SETTINGS = (
    "synchronous=FULL",
    # Elsewhere than on macOS this changes nothing; there, only this reaches the disk.
    "fullfsync=ON",
    "foreign_keys=ON",
    "cache_size=-16384",
    "trusted_schema=OFF",
)


def _prepare_sqlite(connection: Any, _record: object) -> None:
    connection.isolation_level = None
    _use_write_ahead_log(connection)
    for setting in _SQLITE_SETTINGS:
        connection.execute(f"PRAGMA {setting}")


def _use_write_ahead_log(connection: Any) -> None:
    """Switch the file's mode; SQLite does not wait its busy timeout for this, so we do."""
    give_up = time.monotonic() + BUSY_SECONDS
    while True:
        try:
            connection.execute("PRAGMA journal_mode=WAL")
            return
        except connection.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > give_up:
                raise
        time.sleep(0.01)


_POSTGRESQL_DEFAULTS = {
    "application_name": "dpledger",
    "target_session_attrs": "read-write",
    "connect_timeout": "5",
    # A host that vanishes is noticed in about ten seconds, also while its answer is awaited.
    "keepalives_idle": "5",
    "keepalives_interval": "2",
    "keepalives_count": "3",
    "tcp_user_timeout": "10000",
}
_SERVER_SETTINGS = {
    "statement_timeout": "30s",
    "lock_timeout": f"{BUSY_SECONDS:.0f}s",
    # A process that stops in the middle of a transaction must not hold its datasets for ever.
    "idle_in_transaction_session_timeout": "30s",
    # Whatever the server's default: a commit that was answered is on disk, and on the standby.
    "synchronous_commit": "on",
    # Every query has its index. In a new database a plan made while a table was tiny would read all of
    # it, and would be kept while the table grows.
    "enable_seqscan": "off",
    "jit": "off",
}


def _postgresql_engine(url: URL, *, reading: bool = False) -> Engine:
    missing = {name: value for name, value in _POSTGRESQL_DEFAULTS.items() if name not in url.query}
    configured = url.update_query_dict({**missing, "options": _server_options(url)})
    level = "REPEATABLE READ" if reading else "READ COMMITTED"
    engine = create_engine(configured, isolation_level=level, **_POOL)
    # Before SQLAlchemy's own queries, which stumble over another encoding.
    event.listen(engine, "connect", _refuse_unkept(url), insert=True)
    event.listen(engine, "connect", _refuse_encoding, insert=True)
    _ask_after_rest(engine)
    if reading:
        event.listen(engine, "connect", _only_read)
    return engine


def _refuse_encoding(connection: Any, _record: object) -> None:
    encoding = connection.info.parameter_status("server_encoding")
    if encoding != "UTF8":
        raise ArgumentError(f"the encoding of a PostgreSQL database must be UTF8, not {encoding}")


class UnkeptSettings(ArgumentError):
    """A server, or what stands before it, that does not keep what durability rests on."""


POOLER = (
    "connect to the server itself, not through a pooler such as pgbouncer: the service has a pool of its own"
)
_DURABLE = ("on", "remote_apply")
_SETTINGS_NOW = ", ".join(f"current_setting('{name}')" for name in _SERVER_SETTINGS)


def _refuse_unkept(url: URL) -> Callable[[Any, object], None]:
    """Read back what was asked for: a pooler may drop it without a word, or give a session to another.

    A pooler shows itself by the server's process: the one that was announced is not the one that answers.
    Settings that the URL itself makes are the operator's own, except that a commit must reach the disk.
    """
    own = _own_options(url)
    wanted = {name: value for name, value in _SERVER_SETTINGS.items() if name not in own}

    def refuse(connection: Any, _record: object) -> None:
        connection.autocommit = True  # not every pooler takes a transaction
        pid, *values = connection.execute(f"SELECT pg_backend_pid(), {_SETTINGS_NOW}").fetchone()
        connection.autocommit = False
        found = dict(zip(_SERVER_SETTINGS, values, strict=True))
        problem = _unkept(found, wanted, shared=pid != connection.info.backend_pid)
        if problem is not None:
            connection.close()
            raise UnkeptSettings(problem)

    return refuse


def _unkept(found: Mapping[str, str], wanted: Mapping[str, str], *, shared: bool) -> str | None:
    """What is wrong with a connection; None if it keeps everything."""
    if found["synchronous_commit"] not in _DURABLE:
        return f"synchronous_commit is {found['synchronous_commit']} on the connection, and must be on"
    for name, value in wanted.items():
        if found[name] != value and name != "synchronous_commit":
            return f"{name} is {found[name]} and not {value}, as asked for; {POOLER}"
    return f"sessions are not kept apart here; {POOLER}" if shared else None


def _ask_after_rest(engine: Engine) -> None:
    """Ask the server whether it is still there before a connection that rested is used again.

    One that was in use a moment ago is asked only if its socket has something to say, which between
    two transactions is that the server is gone: else every transaction would cost a round trip more.
    """

    def on_return(_connection: Any, record: Any) -> None:
        record.info["returned_at"] = time.monotonic()

    def check_alive(connection: Any, record: Any, _fairy: object) -> None:
        rested = time.monotonic() - record.info.get("returned_at", math.inf) > _REST_SECONDS
        if (rested or _has_something_to_say(connection)) and not _answers(connection):
            raise DisconnectionError

    event.listen(engine, "checkin", on_return)
    event.listen(engine, "checkout", check_alive)


def _has_something_to_say(connection: Any) -> bool:
    if not hasattr(select, "poll"):  # Windows: then it is asked each time
        return True
    try:
        socket = connection.fileno()
    except connection.Error:
        return True
    poll = select.poll()
    poll.register(socket, select.POLLIN)
    return bool(poll.poll(0))


def _answers(connection: Any) -> bool:
    try:
        connection.execute("")
        connection.rollback()
    except connection.Error:
        return False
    return True


def _only_read(connection: Any, _record: object) -> None:
    connection.read_only = True


def _own_options(url: URL) -> str:
    """What the URL itself says to the server."""
    given = url.query.get("options", "")
    return given if isinstance(given, str) else " ".join(given)


def _server_options(url: URL) -> str:
    own = _own_options(url)
    added = [f"-c {name}={value}" for name, value in _SERVER_SETTINGS.items() if name not in own]
    return " ".join([*added, own]).strip()
