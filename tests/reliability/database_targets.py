"""Databases to be unkind to: an SQLite file, and a real PostgreSQL server of our own."""

import contextlib
import itertools
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dpledger.auth.issuer import Issuer, TokenRequest
from dpledger.auth.keys import load_keys
from dpledger.auth.scopes import Scope
from dpledger.ledger.clock import SystemClock
from dpledger.storage.repositories.tokens import TokenStore
from dpledger.storage.repository import open_storage
from tests.support.postgresql_processes import start_server

KINDS = ("sqlite", "postgresql")
_numbers = itertools.count()


@dataclass(frozen=True)
class DatabaseTarget:
    """A ledger's database and key file, and an admin token for it."""

    database: str
    key_file: Path
    token: str


@contextlib.contextmanager
def postgresql_server() -> Iterator[Any]:
    """A PostgreSQL server with its default, durable settings; yields its handle."""
    # Not pytest's folder: a path that long cannot name a socket.
    folder = Path(tempfile.mkdtemp(prefix="pg-"))
    server = start_server(folder)
    try:
        yield server
    finally:
        server.cleanup()
        shutil.rmtree(folder, ignore_errors=True)


def sqlite_place(folder: Path) -> DatabaseTarget:
    """A new SQLite file."""
    return with_token(f"sqlite:///{folder / 'budget.db'}", folder / "keys.json")


def postgresql_place(server: Any, folder: Path) -> DatabaseTarget:
    """A new database on ``server``."""
    name = f"ledger_{next(_numbers)}"
    server.psql(f"CREATE DATABASE {name};")
    return with_token(server.get_uri(database=name), folder / "keys.json")


def with_token(database: str, key_file: Path) -> DatabaseTarget:
    """A database with its tables, its keys and an admin token."""
    storage = open_storage(database)
    try:
        issuer = Issuer(TokenStore(storage.database), load_keys(key_file).token_key, SystemClock())
        token = issuer.create(TokenRequest(frozenset({Scope.ADMIN})))
    finally:
        storage.close()
    return DatabaseTarget(database, key_file, token.text)
