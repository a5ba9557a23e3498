"""Copies made while a ledger is used, put back and verified, with the commands of docs/operations.md."""

import re
import shlex
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from dpledger.auth.keys import BadKeyFile, load_keys
from tests.api.service import Service, made, problem, running
from tests.deploy.clusters import binaries
from tests.support.databases import PostgresqlServer

OPERATIONS = Path(__file__).resolve().parents[2] / "docs" / "operations.md"
ROOMY = {"accounting": "zcdp", "rho": 1000.0}


def documented(beginning: str) -> str:
    """The one command of the page that begins so."""
    (found,) = re.findall(rf"^    ({re.escape(beginning)}.*)$", OPERATIONS.read_text(encoding="utf-8"), re.M)
    return str(found)


def spend_until(service: Service, stop: threading.Event) -> None:
    while not stop.is_set():
        assert service.authorize().status_code == 201


@contextmanager
def being_used(service: Service) -> Iterator[None]:
    stop = threading.Event()
    spending = threading.Thread(target=spend_until, args=(service, stop))
    spending.start()
    try:
        yield
    finally:
        stop.set()
        spending.join()


def check_copy(url: str, keys: Path, token: str, least: int, most: int) -> None:
    """The copy is a whole ledger, of a moment while the copy was made; what came later is given up."""
    with running(url, keys) as copied:
        copied = copied.as_bearer(token)
        assert least <= copied.sequence() <= most
        behind = problem(copied.authorize(), 409, "ledger-rolled-back") if copied.sequence() < most else None
        if behind is not None:
            lost = {"sequence": behind["sequence"], "entry": behind["entry"], "reason": "a test of backups"}
            made(copied.post("/v1/datasets/adult/rollback-acceptances", lost, key="accept"))
        assert copied.authorize(key="on the copy").status_code == 201
        copied.verified()


def test_an_sqlite_ledger_is_copied_while_it_is_used(tmp_path: Path) -> None:
    keys = tmp_path / "keys.json"
    with running(f"sqlite:///{tmp_path / 'budget.db'}", keys) as service:
        service.open("adult", ROOMY)
        for _ in range(20):
            service.authorize()
        least = service.sequence()
        with being_used(service):
            command = shlex.split(documented('python -c "import sqlite3'))
            subprocess.run([sys.executable, *command[1:]], cwd=tmp_path, check=True)
        most, token = service.sequence(), service.token

    check_copy(f"sqlite:///{tmp_path / 'copy.db'}", keys, token, least, most)


def test_a_postgresql_ledger_is_dumped_while_it_is_used(postgresql: PostgresqlServer, tmp_path: Path) -> None:
    source, target = postgresql.create(), postgresql.create()
    keys = tmp_path / "keys.json"

    def run(beginning: str, url: str) -> None:
        command = documented(beginning).replace('"$DATABASE"', shlex.quote(url))
        name, *rest = shlex.split(command)
        subprocess.run([str(binaries() / name), *rest], cwd=tmp_path, check=True, capture_output=True)

    with running(source, keys) as service:
        service.open("adult", ROOMY)
        for _ in range(20):
            service.authorize()
        least = service.sequence()
        with being_used(service):
            run("pg_dump ", source)
        most, token = service.sequence(), service.token
    run("pg_restore ", target)

    check_copy(target, keys, token, least, most)


def test_a_copy_without_the_keys_lets_nobody_in(tmp_path: Path) -> None:
    """Which is why both are kept, apart from each other."""
    with running(f"sqlite:///{tmp_path / 'budget.db'}", tmp_path / "keys.json") as service:
        service.open("adult")
        token = service.token

    refused = pytest.raises(BadKeyFile, match="there is no key file")
    with refused, running(f"sqlite:///{tmp_path / 'budget.db'}", tmp_path / "other.json"):
        pass
    load_keys(tmp_path / "other.json")  # another one, made on purpose
    with running(f"sqlite:///{tmp_path / 'budget.db'}", tmp_path / "other.json") as service:
        assert service.as_bearer(token).get("/v1/datasets").status_code == 401


@pytest.mark.parametrize("beginning", ['python -c "import sqlite3', "pg_dump ", "pg_restore "])
def test_the_page_has_each_command_once(beginning: str) -> None:
    assert documented(beginning)
