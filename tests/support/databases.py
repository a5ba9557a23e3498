"""Databases to test on: for each test an empty ledger in SQLite and one in PostgreSQL.

Import the fixtures into a ``conftest.py``. One PostgreSQL server is started in each test process. Each
kind of database is migrated once; SQLite's file is then copied, PostgreSQL's tables are emptied.
"""

import itertools
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from sqlalchemy import Engine

from dpledger.storage.engine.engines import make_engine
from dpledger.storage.migrate import upgrade
from dpledger.storage.repository import SqlStorage
from dpledger.storage.tables import metadata
from tests.support.postgresql_processes import await_running, start_server

__all__ = [
    "KINDS",
    "PostgresqlServer",
    "database_url",
    "engine",
    "engine_kind",
    "postgresql",
    "storage",
    "template",
]

KINDS = ("sqlite", "postgresql")
_EMPTIED = set(metadata.tables) - {"meta"}
_END_OTHERS = (
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
    " WHERE datname = current_database() AND pid <> pg_backend_pid()"
)


class PostgresqlServer:
    """A PostgreSQL server of our own, reached by a socket in its folder."""

    def __init__(self, folder: Path) -> None:
        self._server: Any = start_server(folder)
        self._numbers = itertools.count()
        self._skip_fsync()

    def create(self, encoding: str = "UTF8") -> str:
        """The URL of a new database without any table."""
        name = f"ledger_{next(self._numbers)}"
        with self.connect() as connection:
            connection.execute(f"CREATE DATABASE {name} ENCODING '{encoding}' LOCALE 'C' TEMPLATE template0")
        return str(self._server.get_uri(database=name))

    def empty(self, url: str) -> None:
        """End every other connection to a migrated database and empty its ledger."""
        with self.connect(url) as connection:
            connection.execute(_END_OTHERS)
            connection.execute(f"TRUNCATE {', '.join(sorted(_EMPTIED))} RESTART IDENTITY")

    def _skip_fsync(self) -> None:
        """The tests write many files, and none of them cuts the power."""
        with self.connect() as connection:
            for setting in ("fsync", "full_page_writes"):
                connection.execute(f"ALTER SYSTEM SET {setting} = off")
            connection.execute("SELECT pg_reload_conf()")

    def connect(self, url: str | None = None) -> psycopg.Connection[Any]:
        """A plain connection beside the ones under test."""
        return psycopg.connect(self._server.get_uri() if url is None else url, autocommit=True)

    def stop(self) -> None:
        """Stop the server, as an operator or a failing machine would."""
        self._server.stop()

    def start(self) -> None:
        """Start it again."""
        await_running(self._server)

    def close(self) -> None:
        """Stop it for good."""
        self._server.cleanup()


@pytest.fixture(scope="session")
def postgresql() -> Iterator[PostgresqlServer]:
    # Not in pytest's folder: a path that long cannot name a socket.
    folder = Path(tempfile.mkdtemp(prefix="pg-"))
    server = PostgresqlServer(folder)
    try:
        yield server
    finally:
        server.close()
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session", params=KINDS)
def template(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The URL of a migrated database."""
    if request.param == "sqlite":
        url = f"sqlite:///{tmp_path_factory.mktemp('template') / 'template.db'}"
    else:
        url = request.getfixturevalue("postgresql").create()
    engine = make_engine(url)
    upgrade(engine)
    engine.dispose()
    return url


@pytest.fixture
def database_url(template: str, request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of a migrated database without any dataset."""
    if template.startswith("sqlite"):
        copy = tmp_path / "ledger.db"
        shutil.copyfile(template.removeprefix("sqlite:///"), copy)
        return f"sqlite:///{copy}"
    server: PostgresqlServer = request.getfixturevalue("postgresql")
    server.empty(template)
    return template


@pytest.fixture
def engine(database_url: str) -> Iterator[Engine]:
    engine = make_engine(database_url)
    yield engine
    engine.dispose()


@pytest.fixture
def engine_kind(engine: Engine) -> str:
    return engine.dialect.name


@pytest.fixture
def storage(engine: Engine) -> Iterator[SqlStorage]:
    storage = SqlStorage(engine)
    yield storage
    storage.close()
