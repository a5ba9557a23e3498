"""When the database fails: who gets which error, and that nothing is half done."""

import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from sqlalchemy import Engine, event, exc, text

from dpledger.ledger.errors import NotFound, Unavailable
from dpledger.ledger.idempotency import run_in_transaction
from dpledger.ledger.marks import HighWaterMarks
from dpledger.ledger.model.commands import Authorize
from dpledger.ledger.ports import EntryFilter
from dpledger.storage.engine import engines, session
from dpledger.storage.engine.engines import make_engine
from dpledger.storage.engine.failures import Busy, translate_error
from dpledger.storage.engine.session import LostTransaction
from dpledger.storage.migrate import upgrade
from dpledger.storage.repository import SqlStorage, SqlTransaction
from tests.storage.ledgers import charge, open_ledger, same_book, spend, write
from tests.support.databases import PostgresqlServer

NOWHERE = "postgresql://nobody@127.0.0.1:1/nothing"


def sqlite_error(code: int) -> sqlite3.Error:
    error = sqlite3.OperationalError("as SQLite says")
    error.sqlite_errorcode = code
    return error


BUSY = [
    sqlite_error(sqlite3.SQLITE_BUSY),
    sqlite_error(sqlite3.SQLITE_BUSY_SNAPSHOT),
    sqlite_error(sqlite3.SQLITE_BUSY_RECOVERY),
    psycopg.errors.SerializationFailure(),
    psycopg.errors.DeadlockDetected(),
    exc.OperationalError("", {}, psycopg.errors.DeadlockDetected()),
]
AWAY = [
    sqlite_error(sqlite3.SQLITE_FULL),
    sqlite_error(sqlite3.SQLITE_READONLY),
    sqlite_error(sqlite3.SQLITE_IOERR),
    sqlite_error(sqlite3.SQLITE_IOERR_FSYNC),
    sqlite_error(sqlite3.SQLITE_CANTOPEN),
    psycopg.OperationalError("the connection is closed"),
    psycopg.errors.ConnectionTimeout(),
    psycopg.errors.AdminShutdown(),
    psycopg.errors.DiskFull(),
    psycopg.errors.TooManyConnections(),
    psycopg.errors.QueryCanceled(),
    psycopg.errors.LockNotAvailable(),
    psycopg.errors.ReadOnlySqlTransaction(),
    psycopg.errors.IdleInTransactionSessionTimeout(),
    psycopg.errors.StatementCompletionUnknown(),
    psycopg.errors.IoError(),
    exc.OperationalError("", {}, sqlite_error(sqlite3.SQLITE_FULL)),
    exc.TimeoutError(),
]
FAULTS = [
    sqlite3.IntegrityError("unique"),
    sqlite_error(sqlite3.SQLITE_ERROR),
    sqlite_error(sqlite3.SQLITE_CORRUPT),
    psycopg.errors.UniqueViolation(),
    psycopg.errors.UndefinedTable(),
    psycopg.DataError("a text with a zero in it"),
    ValueError(),
    NotFound("dataset", "nowhere"),
]


@pytest.mark.parametrize("error", BUSY, ids=repr)
def test_what_was_rolled_back_may_be_run_again(error: Exception) -> None:
    assert isinstance(translate_error(error), Busy)


@pytest.mark.parametrize("error", AWAY, ids=repr)
def test_what_is_away_is_unavailable_and_never_run_again(error: Exception) -> None:
    meaning = translate_error(error)

    assert isinstance(meaning, Unavailable)
    assert not isinstance(meaning, Busy)


@pytest.mark.parametrize("error", FAULTS, ids=repr)
def test_a_fault_stays_what_it_is(error: Exception) -> None:
    assert translate_error(error) is None


# Sessions --------------------------------------------------------------------------------------------


def test_an_error_that_somebody_swallows_is_not_committed(storage: SqlStorage) -> None:
    state = open_ledger(storage)

    def swallow() -> None:
        with storage.begin() as transaction:
            locked = transaction.lock(["adult"])["adult"]
            with pytest.raises(transaction._session._raw.Error):
                transaction._session.rows(text("SELECT * FROM nowhere"), {})
            with pytest.raises(transaction._session._raw.Error):
                write(transaction, locked, Authorize(charge(), "run"))

    with pytest.raises(Exception, match="nowhere"):
        swallow()
    assert same_book(storage.dataset("adult").state, state)
    assert spend(storage, "adult", 1).sequence == 2


def test_a_refused_append_that_somebody_swallows_is_not_committed(storage: SqlStorage) -> None:
    state = open_ledger(storage)

    def swallow() -> None:
        with storage.begin() as transaction:
            locked = transaction.lock(["adult"])["adult"]
            transaction._session.change(text("UPDATE datasets SET sequence = 7"), {})
            with pytest.raises(Busy):
                write(transaction, locked, Authorize(charge(), "run"))

    with pytest.raises(Busy):
        swallow()
    assert same_book(storage.dataset("adult").state, state)


class ForgetfulConnection:
    """A connection whose COMMIT reaches the database, but whose answer does not arrive."""

    def __init__(self, real: Any) -> None:
        self._real = real

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    def commit(self) -> None:
        self._real.commit()
        if isinstance(self._real, psycopg.Connection):
            self._real.close()
            raise psycopg.OperationalError("consuming input failed: server closed the connection")
        raise sqlite_error(sqlite3.SQLITE_IOERR)


def test_a_commit_whose_outcome_is_unknown_is_not_run_again(storage: SqlStorage) -> None:
    open_ledger(storage)
    attempts = []

    def work(transaction: SqlTransaction) -> None:
        attempts.append(1)
        session = transaction._session
        session._raw = ForgetfulConnection(session._raw)
        write(transaction, transaction.lock(["adult"])["adult"], Authorize(charge(), "run"))

    with pytest.raises(Unavailable) as raised:
        run_in_transaction(storage, work)
    assert not storage.is_transient(raised.value)
    assert len(attempts) == 1
    assert storage.dataset("adult").state.sequence == 2
    assert spend(storage, "adult", 1).sequence == 3


# SQLite ----------------------------------------------------------------------------------------------


@pytest.fixture
def sqlite_url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'ledger.db'}"


@pytest.fixture
def limited(sqlite_url: str) -> Iterator[tuple[SqlStorage, dict[str, int]]]:
    """A ledger on a disk whose size, in pages, can be set."""
    pages = {"most": 1_000_000}
    engine = make_engine(sqlite_url)

    @event.listens_for(engine, "checkout")
    def limit(raw: Any, *_: object) -> None:
        raw.execute(f"PRAGMA max_page_count = {pages['most']}")

    storage = migrated(engine)
    yield storage, pages
    storage.close()


def migrated(engine: Engine) -> SqlStorage:
    upgrade(engine)
    return SqlStorage(engine)


def test_a_full_disk_is_unavailable_and_loses_nothing(limited: tuple[SqlStorage, dict[str, int]]) -> None:
    storage, pages = limited
    state = open_ledger(storage)
    with storage.database.read() as session:
        pages["most"] = session.rows(text("PRAGMA page_count"), {})[0][0] + 4
    granted = [state]

    def fill() -> None:
        while len(granted) < 1_000:
            granted.append(spend(storage, "adult", 32, f"run-{len(granted)}"))

    with pytest.raises(Unavailable, match="full") as raised:
        fill()
    assert not storage.is_transient(raised.value)
    assert len(granted) > 1
    assert same_book(storage.dataset("adult").state, granted[-1])
    stored = storage.entries(state.dataset_id, EntryFilter(limit=10_000))
    assert len(stored) == granted[-1].sequence
    assert all(each.entry.hash == each.hash for each in stored)

    pages["most"] = 1_000_000
    assert spend(storage, "adult", 32).sequence == granted[-1].sequence + 32


def test_a_transaction_that_sqlite_ended_by_itself_is_not_committed(sqlite_url: str) -> None:
    storage = migrated(make_engine(sqlite_url))

    def lose() -> None:
        with storage.begin() as transaction:
            transaction._session._raw.rollback()

    with pytest.raises(LostTransaction):
        lose()
    storage.close()


def test_a_file_that_cannot_be_written_is_unavailable(sqlite_url: str) -> None:
    engine = make_engine(sqlite_url)
    storage = migrated(engine)
    open_ledger(storage)
    event.listen(engine, "checkout", lambda raw, *_: raw.execute("PRAGMA query_only = ON"))

    with pytest.raises(Unavailable):
        spend(storage, "adult", 1)
    assert storage.dataset("adult").state.sequence == 1
    storage.close()


def test_a_file_in_a_folder_that_is_not_there_is_unavailable(tmp_path: Path) -> None:
    away = SqlStorage(make_engine(f"sqlite:///{tmp_path / 'nowhere' / 'ledger.db'}"))
    for attempt in (lambda: spend(away, "adult", 1), lambda: away.dataset("adult"), away.ready):
        with pytest.raises(Unavailable):
            attempt()


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait for others only a moment."""
    seconds = 0.3
    for module in (engines, session):
        monkeypatch.setattr(module, "BUSY_SECONDS", seconds)
    monkeypatch.setitem(engines._POOL, "pool_timeout", seconds)
    monkeypatch.setitem(engines._SERVER_SETTINGS, "lock_timeout", f"{int(1000 * seconds)}ms")


@pytest.mark.usefixtures("impatient")
def test_a_file_that_another_process_keeps_locked_is_unavailable(sqlite_url: str) -> None:
    storage = migrated(make_engine(sqlite_url))
    open_ledger(storage)
    other = sqlite3.connect(sqlite_url.removeprefix("sqlite:///"), isolation_level=None)
    other.execute("BEGIN IMMEDIATE")

    with pytest.raises(Unavailable, match="stays busy") as raised:
        spend(storage, "adult", 1)
    assert not storage.is_transient(raised.value)
    assert storage.dataset("adult").state.sequence == 1

    other.execute("ROLLBACK")
    other.close()
    assert spend(storage, "adult", 1).sequence == 2
    storage.close()


@pytest.mark.usefixtures("impatient")
def test_a_turn_that_does_not_come_is_unavailable(sqlite_url: str) -> None:
    storage = migrated(make_engine(sqlite_url))
    open_ledger(storage)
    seen: list[Exception] = []

    def ask() -> None:
        try:
            spend(storage, "adult", 1)
        except Unavailable as error:
            seen.append(error)

    with storage.begin() as transaction:
        transaction.lock(["adult"])
        waiting = threading.Thread(target=ask)
        waiting.start()
        waiting.join(20)
    assert [str(error) for error in seen] == ["the database stays busy"]
    storage.close()


# PostgreSQL ------------------------------------------------------------------------------------------


@pytest.fixture
def postgresql_url(postgresql: PostgresqlServer) -> str:
    return postgresql.create()


@pytest.fixture
def on_postgresql(postgresql_url: str, request: pytest.FixtureRequest) -> Iterator[SqlStorage]:
    request.getfixturevalue("impatient")
    storage = migrated(make_engine(postgresql_url))
    yield storage
    storage.close()


def test_a_server_that_is_not_there_is_unavailable() -> None:
    away = SqlStorage(make_engine(NOWHERE))
    for attempt in (lambda: spend(away, "adult", 1), lambda: away.dataset("adult"), away.ready):
        with pytest.raises(Unavailable):
            attempt()


def end_connections(postgresql: PostgresqlServer, storage: SqlStorage) -> None:
    name = storage.database.engine.url.database
    with postgresql.connect() as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", [name]
        )


@pytest.mark.parametrize("moment", ["before the append", "before the commit"])
def test_a_connection_lost_in_a_transaction_leaves_nothing(
    on_postgresql: SqlStorage, postgresql: PostgresqlServer, moment: str
) -> None:
    storage = on_postgresql
    open_ledger(storage)

    def lose() -> None:
        with storage.begin() as transaction:
            state = transaction.lock(["adult"])["adult"]
            if moment == "before the append":
                end_connections(postgresql, storage)
            write(transaction, state, Authorize(charge(), "run"))
            end_connections(postgresql, storage)

    with pytest.raises(Unavailable) as raised:
        lose()
    assert not storage.is_transient(raised.value)
    assert storage.dataset("adult").state.sequence == 1
    assert spend(storage, "adult", 1).sequence == 2


def test_a_dataset_that_another_transaction_keeps_locked_is_unavailable(
    on_postgresql: SqlStorage, postgresql_url: str
) -> None:
    storage = on_postgresql
    open_ledger(storage)
    with psycopg.connect(postgresql_url) as other:
        other.execute("SELECT * FROM datasets FOR UPDATE")
        with pytest.raises(Unavailable) as raised:
            spend(storage, "adult", 1)
        other.rollback()
    assert not storage.is_transient(raised.value)
    assert spend(storage, "adult", 1).sequence == 2


def test_a_server_that_is_stopped_and_started_serves_again(
    on_postgresql: SqlStorage, postgresql: PostgresqlServer
) -> None:
    storage = on_postgresql
    open_ledger(storage)
    spend(storage, "adult", 3)
    postgresql.stop()
    try:
        for attempt in (lambda: spend(storage, "adult", 1), lambda: storage.dataset("adult"), storage.ready):
            with pytest.raises(Unavailable):
                attempt()
    finally:
        postgresql.start()

    assert storage.ready()["database"] == "postgresql"
    assert storage.dataset("adult").state.sequence == 4
    assert spend(storage, "adult", 1).sequence == 5


@pytest.mark.usefixtures("impatient")
def test_when_every_connection_is_in_use_the_next_one_is_refused(
    postgresql_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(engines._POOL, "pool_size", 1)
    monkeypatch.setitem(engines._POOL, "max_overflow", 0)
    storage = migrated(make_engine(postgresql_url))
    open_ledger(storage)
    with storage.begin(), pytest.raises(Unavailable, match="in use"):
        spend(storage, "adult", 1)
    assert spend(storage, "adult", 1).sequence == 2
    storage.close()


def test_what_a_new_server_numbered_is_not_taken_from_memory(
    on_postgresql: SqlStorage, postgresql: PostgresqlServer, postgresql_url: str
) -> None:
    """After a fail-over that lost entries, numbers mean what they mean there.

    That entries were lost is noticed by their marks, which this test puts away: it is accepted here.
    """
    storage = on_postgresql
    state = open_ledger(storage)
    spend(storage, "adult", 1, "lost", charge(40.0))
    postgresql.empty(postgresql_url)
    storage.marks = HighWaterMarks()

    again = open_ledger(storage)
    spend(storage, "adult", 1, "kept", charge(50.0))
    spend(storage, "adult", 1, "lost", charge(40.0))

    assert again.dataset_id == state.dataset_id
    stored = storage.entries(again.dataset_id, EntryFilter(after=1))
    assert [each.entry.run for each in stored] == ["kept", "lost"]
    assert all(each.entry.hash == each.hash for each in stored)
    assert [each.charge.fingerprint for each in stored if each.charge] == [
        charge(50.0).fingerprint,
        charge(40.0).fingerprint,
    ]


def test_only_a_connection_that_rested_is_asked_whether_it_lives(
    on_postgresql: SqlStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[object] = []
    answers = engines._answers

    def noted(connection: Any) -> bool:
        asked.append(connection)
        return answers(connection)

    monkeypatch.setattr(engines, "_answers", noted)
    open_ledger(on_postgresql)
    spend(on_postgresql, "adult", 1)
    spend(on_postgresql, "adult", 1)
    assert not asked

    monkeypatch.setattr(engines, "_REST_SECONDS", 0.0)
    assert spend(on_postgresql, "adult", 1).sequence == 4
    assert len(asked) == 1
