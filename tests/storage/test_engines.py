"""How each database is connected to."""

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine
from sqlalchemy.exc import ArgumentError

from dpledger.ledger.errors import Unavailable
from dpledger.storage.engine.engines import make_engine, normalized_url, reading_engine
from dpledger.storage.repository import SqlStorage, open_storage
from tests.support.databases import PostgresqlServer


@pytest.mark.parametrize(
    ("url", "driver", "database"),
    [
        ("sqlite:///budget.db", "sqlite", "budget.db"),
        ("sqlite+pysqlite:////var/budget.db", "sqlite", "/var/budget.db"),
        ("postgresql://h/d", "postgresql+psycopg", "d"),
        ("postgres://h/d", "postgresql+psycopg", "d"),
        ("postgresql+psycopg2://h/d", "postgresql+psycopg", "d"),
    ],
)
def test_a_url_names_a_database_and_we_choose_the_driver(url: str, driver: str, database: str) -> None:
    normalized = normalized_url(url)

    assert (normalized.drivername, normalized.database) == (driver, database)


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://u:p%40w@h1:5432,h2:5433/d?sslmode=require",
        "postgresql://u:p%40w@/d?host=h1:5432&host=h2:5433&sslmode=require",
    ],
)
def test_several_hosts_are_read_in_both_spellings(url: str) -> None:
    engine = make_engine(url)

    _, arguments = engine.dialect.create_connect_args(engine.url)

    assert arguments["host"] == "h1,h2"
    assert arguments["port"] == "5432,5433"
    assert (arguments["user"], arguments["password"]) == ("u", "p@w")
    assert (arguments["sslmode"], arguments["dbname"]) == ("require", "d")
    assert arguments["target_session_attrs"] == "read-write"


@pytest.mark.parametrize("url", ["sqlite://", "sqlite:///:memory:", "sqlite:///file:x?mode=memory&uri=true"])
def test_a_ledger_is_not_kept_in_memory(url: str) -> None:
    with pytest.raises(ArgumentError, match="file"):
        make_engine(url)


@pytest.mark.parametrize("url", ["mysql://h/d", "nonsense", ""])
def test_other_databases_are_refused(url: str) -> None:
    with pytest.raises(ArgumentError):
        make_engine(url)


@pytest.fixture
def file(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'ledger.db'}"


def pragmas(engine: Engine, *names: str) -> dict[str, Any]:
    with engine.connect() as connection:
        return {name: connection.exec_driver_sql(f"PRAGMA {name}").scalar() for name in names}


@pytest.mark.parametrize("reading", [False, True])
def test_sqlite_is_durable_and_keeps_its_constraints(file: str, reading: bool) -> None:
    writing = make_engine(file)
    engine = reading_engine(writing) if reading else writing

    names = ("journal_mode", "synchronous", "foreign_keys", "busy_timeout", "query_only")
    assert pragmas(engine, *names) == {
        "journal_mode": "wal",
        "synchronous": 2,
        "foreign_keys": 1,
        "busy_timeout": 5000,
        "query_only": int(reading),
    }


def test_sqlite_takes_its_write_lock_when_a_writing_transaction_begins(file: str) -> None:
    said: list[str] = []
    engines = (make_engine(file), reading_engine(make_engine(file)))
    for engine in engines:
        with engine.connect() as connection:
            raw: Any = connection.connection.driver_connection
            connection.exec_driver_sql("SELECT 1")
            connection.rollback()
            raw.set_trace_callback(said.append)
            connection.exec_driver_sql("SELECT 2")

    assert said == ["BEGIN IMMEDIATE", "SELECT 2", "ROLLBACK", "BEGIN", "SELECT 2", "ROLLBACK"]


def test_a_new_file_and_those_beside_it_are_the_owners_alone(file: str) -> None:
    old = os.umask(0o022)
    try:
        storage = open_storage(file)
        path = Path(file.removeprefix("sqlite:///"))
        found = {each.name: each.stat().st_mode & 0o777 for each in path.parent.iterdir()}
        storage.close()
    finally:
        os.umask(old)

    assert found == {f"{path.name}{ending}": 0o600 for ending in ("", "-wal", "-shm")}


def test_another_file_under_the_name_is_connected_to_anew(file: str, tmp_path: Path) -> None:
    path = Path(file.removeprefix("sqlite:///"))
    for each in (file, f"sqlite:///{tmp_path / 'other.db'}"):
        open_storage(each).close()
    storage = SqlStorage(make_engine(file))
    before = storage.instance()
    os.replace(tmp_path / "other.db", path)

    assert storage.instance() != before
    storage.close()


def test_many_may_open_a_new_file_at_once(file: str) -> None:
    with ThreadPoolExecutor(8) as pool:
        stores = list(pool.map(open_storage, [file] * 8))

    assert len({store.ready()["instance"] for store in stores}) == 1
    for store in stores:
        store.close()


@pytest.fixture
def postgresql_url(postgresql: PostgresqlServer) -> str:
    return postgresql.create()


@pytest.mark.parametrize("encoding", ["SQL_ASCII", "LATIN1"])
def test_a_postgresql_database_that_cannot_hold_every_name_is_refused(
    postgresql: PostgresqlServer, encoding: str
) -> None:
    with pytest.raises(ArgumentError, match=f"UTF8, not {encoding}"):
        open_storage(postgresql.create(encoding))


@pytest.fixture
def connected(postgresql_url: str) -> Iterator[tuple[Engine, Engine]]:
    writing = make_engine(postgresql_url)
    reading = reading_engine(writing)
    yield writing, reading
    for engine in (writing, reading):
        engine.dispose()


def shown(engine: Engine, *names: str) -> dict[str, Any]:
    with engine.connect() as connection:
        return {name: connection.exec_driver_sql(f"SHOW {name}").scalar() for name in names}


def test_postgresql_reads_committed_and_waits_no_longer_than_it_says(
    connected: tuple[Engine, Engine],
) -> None:
    writing, reading = connected
    names = ("transaction_isolation", "transaction_read_only", "lock_timeout", "synchronous_commit")

    assert shown(writing, *names) == {
        "transaction_isolation": "read committed",
        "transaction_read_only": "off",
        "lock_timeout": "5s",
        "synchronous_commit": "on",
    }
    assert shown(reading, *names[:2]) == {
        "transaction_isolation": "repeatable read",
        "transaction_read_only": "on",
    }


def test_what_the_url_says_of_the_server_is_kept(postgresql_url: str) -> None:
    engine = make_engine(f"{postgresql_url}&options=-c%20lock_timeout%3D7s&application_name=mine")
    names = ("lock_timeout", "application_name", "statement_timeout")

    assert shown(engine, *names) == {
        "lock_timeout": "7s",
        "application_name": "mine",
        "statement_timeout": "30s",
    }
    engine.dispose()


@pytest.mark.parametrize("mode", ["off", "local", "remote_write"])
def test_commits_that_do_not_wait_for_the_disk_are_refused(postgresql_url: str, mode: str) -> None:
    """At the start in one line, and later, should a new connection lead elsewhere, as unavailable."""
    url = f"{postgresql_url}&options=-c%20synchronous_commit%3D{mode}"
    with pytest.raises(
        ArgumentError, match=f"synchronous_commit is {mode} on the connection, and must be on"
    ):
        open_storage(url)
    storage = SqlStorage(make_engine(url))
    with pytest.raises(Unavailable, match=f"synchronous_commit is {mode}"), storage.begin():
        pass
    storage.close()


def test_of_several_hosts_one_that_answers_is_used(postgresql_url: str) -> None:
    engine = make_engine(postgresql_url.replace("?host=", "?host=127.0.0.1:1&host="))

    assert shown(engine, "server_encoding") == {"server_encoding": "UTF8"}
    engine.dispose()
