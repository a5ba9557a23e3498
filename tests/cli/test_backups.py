"""Copies of a whole ledger: made while it is used, verified, put back, and never spent from unnoticed."""

import itertools
import os
import shutil
import sqlite3
import stat
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest

from dpledger.storage import migrate
from dpledger.storage.backup import BackupFailed, copy_ledger
from dpledger.storage.engine.engines import make_engine
from dpledger.storage.repository import SqlStorage
from tests.api.service import Service, made, problem, running
from tests.cli.running import run
from tests.deploy.clusters import binaries
from tests.deploy.test_backup import being_used
from tests.support.databases import PostgresqlServer, database_url, postgresql, template

__all__ = ["database_url", "postgresql", "template"]

ROOMY = {"accounting": "zcdp", "rho": 1000.0}


class Installation:
    """A ledger with its key file, and a folder for copies."""

    def __init__(self, url: str, folder: Path) -> None:
        self.url = url
        self.folder = folder
        self.keys = folder / "keys.json"
        self.copy = folder / "ledger.backup"
        self.token = ""
        self._numbers = itertools.count()

    @property
    def where(self) -> list[str]:
        return ["--database", self.url]

    def serve(self, work: Callable[[Service], Any]) -> Any:
        with running(self.url, self.keys) as service:
            self.token = self.token or service.token
            return work(Service(service.client, self.token, service.clock, self._numbers))

    def backup(self, *more: str) -> Any:
        return run("backup", str(self.copy), *self.where, *more)

    def restore(self, *more: str) -> Any:
        return run("restore", str(self.copy), *self.where, "--key-file", str(self.keys), *more)


@pytest.fixture
def installation(database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Installation:
    monkeypatch.setenv("PATH", f"{binaries()}:{os.environ['PATH']}")
    return Installation(database_url, tmp_path)


def furnish(service: Service) -> int:
    service.open("adult", ROOMY)
    for _ in range(5):
        service.authorize()
    return service.sequence()


def test_a_copy_made_while_the_ledger_is_used_is_put_back_and_holds(installation: Installation) -> None:
    def work(service: Service) -> tuple[int, int]:
        least = furnish(service)
        with being_used(service):
            done = installation.backup("--json")
        assert done.code == 0, done.err
        (found,) = done.json["items"]
        assert found["valid"]
        return least, service.sequence()

    least, most = installation.serve(work)
    assert stat.S_IMODE(installation.copy.stat().st_mode) == 0o600

    restored = installation.restore("--replace")

    assert restored.code in (0, 7), restored.err
    assert installation.serve(lambda service: least <= service.sequence() <= most)


def test_a_copy_of_the_last_state_goes_on(installation: Installation) -> None:
    installation.serve(furnish)
    assert installation.backup().code == 0

    done = installation.restore("--replace")

    assert (done.code, "holds" in done.out) == (0, True), done.err
    assert made(installation.serve(lambda service: service.authorize()))["sequence"] == 7


def test_an_older_copy_is_not_spent_from_until_that_is_accepted(installation: Installation) -> None:
    installation.serve(furnish)
    assert installation.backup().code == 0
    installation.serve(lambda service: [made(service.authorize()) for _ in range(3)])

    done = installation.restore("--replace")

    assert done.code == 7
    assert "dpledger accept-rollback adult --lost 9:" in done.out

    def work(service: Service) -> None:
        behind = problem(service.authorize(), 409, "ledger-rolled-back")
        assert (behind["sequence"], behind["found"]) == (9, 6)
        lost = {"sequence": 9, "entry": behind["entry"], "reason": "restored on purpose"}
        made(service.post("/v1/datasets/adult/rollback-acceptances", lost))
        made(service.authorize())
        service.verified()

    installation.serve(work)


def test_a_dataset_that_the_copy_does_not_know_is_named(installation: Installation) -> None:
    installation.serve(furnish)
    assert installation.backup().code == 0
    installation.serve(lambda service: service.open("trips", ROOMY))

    done = installation.restore("--replace", "--json")

    assert done.code == 7
    assert {each["dataset"]: each["valid"] for each in done.json["items"]} == {"adult": True, "trips": False}


def test_without_marks_nothing_is_put_back_unless_that_is_said(installation: Installation) -> None:
    installation.serve(furnish)
    assert installation.backup().code == 0
    Path(f"{installation.keys}.marks").unlink()

    installation.restore("--replace").failed(3, "no high-water marks", "--without-marks")
    assert installation.restore("--replace", "--without-marks").code == 0


def test_a_ledger_that_is_there_is_not_replaced_unasked(installation: Installation) -> None:
    installation.serve(furnish)
    assert installation.backup().code == 0

    installation.restore().failed(3, "--replace")
    installation.backup().failed(3, "exists; --force")
    assert installation.backup("--force").code == 0


def test_what_is_no_backup_is_refused_and_changes_nothing(installation: Installation) -> None:
    installation.serve(furnish)
    assert installation.backup().code == 0
    whole = installation.copy.read_bytes()
    installation.copy.write_bytes(whole[: len(whole) // 2])
    cut = installation.restore("--replace")
    installation.copy.write_bytes(b"no backup at all, and longer than the head of any database file" * 40)
    foreign = installation.restore("--replace")

    assert cut.code in (6, 7), cut
    assert foreign.code == 6, foreign
    assert installation.serve(lambda service: service.sequence()) == 6


def test_a_missing_backup_is_reported(installation: Installation) -> None:
    installation.serve(furnish)

    installation.restore("--replace").failed(6, "there is no backup")


@pytest.fixture
def file(tmp_path: Path) -> Installation:
    return Installation(f"sqlite:///{tmp_path / 'ledger.db'}", tmp_path)


def test_an_altered_ledger_is_no_backup(file: Installation) -> None:
    file.serve(furnish)
    with closing(sqlite3.connect(file.folder / "ledger.db")) as connection, connection:
        connection.execute("UPDATE entries SET at_us = at_us + 1 WHERE sequence = 3")

    file.backup().failed(7, "does not hold", "adult")
    assert not file.copy.exists()


def test_an_altered_backup_is_not_put_back(file: Installation) -> None:
    file.serve(furnish)
    assert file.backup().code == 0
    with closing(sqlite3.connect(file.copy)) as connection, connection:
        connection.execute("UPDATE entries SET at_us = at_us + 1 WHERE sequence = 3")

    file.restore("--replace").failed(7, "does not hold, and nothing is changed", "adult")
    assert file.serve(lambda service: service.verified()) is None


def test_a_file_that_a_service_has_open_is_not_replaced(file: Installation) -> None:
    def work(service: Service) -> None:
        furnish(service)
        assert file.backup().code == 0
        file.restore("--replace").failed(6, "stop its services first")
        made(service.authorize())

    file.serve(work)


def test_what_was_replaced_is_kept_aside(file: Installation) -> None:
    file.serve(furnish)
    assert file.backup().code == 0
    file.serve(lambda service: made(service.authorize()))

    done = file.restore("--replace")

    assert "ledger.db.replaced" in done.err
    shutil.copy(file.folder / "ledger.db.replaced", file.folder / "ledger.db")
    assert file.serve(lambda service: service.sequence()) == 7
    file.restore("--replace").failed(6, "exists, from an earlier restoration")


def test_the_ledgers_own_files_are_not_written_over(file: Installation) -> None:
    file.serve(furnish)

    run("backup", str(file.folder / "ledger.db"), *file.where, "--force").failed(3, "belongs to the ledger")


def test_postgresql_tools_that_are_missing_are_named(
    postgresql: PostgresqlServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installation = Installation(postgresql.create(), tmp_path)
    installation.serve(furnish)
    monkeypatch.setenv("PATH", str(tmp_path))

    installation.backup().failed(6, "pg_dump is not on the path")


def test_nobody_else_may_read_what_a_copy_is_verified_from(
    file: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    file.serve(furnish)
    modes: dict[str, int] = {}
    close = SqlStorage.close

    def look_and_close(storage: SqlStorage) -> None:
        modes.update({each.name: stat.S_IMODE(each.stat().st_mode) for each in file.folder.glob(".ledger*")})
        close(storage)

    monkeypatch.setattr(SqlStorage, "close", look_and_close)
    assert file.backup().code == 0
    assert file.restore("--replace").code == 0

    assert {name.rpartition(".")[2] for name in modes} >= {"verified", "verified-wal"}
    assert set(modes.values()) == {0o600}


def test_a_path_that_a_url_cannot_name_is_refused(file: Installation) -> None:
    """What would be verified is another file, an empty one."""
    file.serve(furnish)
    file.copy = file.folder / "which?.backup"

    file.backup().failed(6, "rename it, without ?")
    file.copy.write_bytes(b"")
    file.restore("--replace").failed(6, "rename it, without ?")
    assert not (file.folder / "which").exists()
    assert sorted(each.name for each in file.folder.glob(".*")) == []


@pytest.mark.parametrize("ending", ["-wal", "-journal"])
def test_a_log_that_a_lost_ledger_left_is_not_written_over_a_restored_one(
    file: Installation, ending: str
) -> None:
    file.serve(furnish)
    assert file.backup().code == 0
    ledger = file.folder / "ledger.db"
    for beside in file.folder.glob("ledger.db-*"):
        beside.unlink()
    left = ledger.with_name(f"{ledger.name}{ending}")
    ledger.rename(left)

    file.restore().failed(6, left.name, "move it away")
    assert not ledger.exists()
    left.rename(file.folder / "kept")
    assert file.restore().code == 0


@pytest.mark.parametrize("name", ["DPLEDGER_KEY_FILE", "DPLEDGER_MARK_FILE"])
def test_files_that_the_environment_names_are_not_written_over(
    file: Installation, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    file.serve(furnish)
    monkeypatch.setenv(name, str(file.keys))

    run("backup", str(file.keys), *file.where, "--force").failed(3, "belongs to the ledger")


def test_a_secret_that_only_a_command_line_could_carry_is_refused(
    file: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands: list[tuple[list[str], dict[str, str]]] = []

    def pg_dump(command: list[str], env: dict[str, str], **_options: Any) -> CompletedProcess[str]:
        commands.append((command, env))
        return CompletedProcess(command, 0, "", "")

    monkeypatch.setattr("dpledger.storage.backup.subprocess.run", pg_dump)
    monkeypatch.setenv("PATH", f"{binaries()}:{os.environ['PATH']}")
    copy_ledger("postgresql://ann:hunter2@db/ledger", file.folder / "first")
    copy_ledger("postgresql://ann@db/ledger?password=hunter2", file.folder / "second")
    with pytest.raises(BackupFailed, match="sslpassword would be on the command line"):
        copy_ledger("postgresql://ann@db/ledger?sslpassword=hunter2", file.folder / "third")

    assert [env.get("PGPASSWORD") for command, env in commands if "pg_dump" in command[0]] == ["hunter2"] * 2
    assert "hunter2" not in str([command for command, _ in commands])


def test_a_backup_without_the_tables_of_a_newer_schema_goes_into_an_empty_database(
    postgresql: PostgresqlServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", f"{binaries()}:{os.environ['PATH']}")
    installation = Installation(postgresql.create(), tmp_path)
    with closing(SqlStorage(make_engine(installation.url))) as storage:
        migrate.upgrade(storage.database.engine, "0005")
    assert installation.backup().code == 0
    installation.serve(furnish)

    installation.restore("--replace").failed(3, "older schema, without allocations", "empty database")
    assert installation.serve(lambda service: service.sequence()) == 6

    installation.url = postgresql.create()
    assert installation.restore("--replace").code == 7  # what was opened since is gone


def test_tables_of_another_program_are_not_dropped(
    postgresql: PostgresqlServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", f"{binaries()}:{os.environ['PATH']}")
    installation = Installation(postgresql.create(), tmp_path)
    installation.serve(furnish)
    assert installation.backup().code == 0
    installation.url = postgresql.create()
    with closing(SqlStorage(make_engine(installation.url))) as storage:
        with storage.database.engine.begin() as connection:
            connection.exec_driver_sql("CREATE TABLE tokens AS SELECT 17 AS number")
        installation.restore("--replace").failed(6, "already exists")
        with storage.database.engine.begin() as connection:
            assert connection.exec_driver_sql("SELECT number FROM tokens").scalar() == 17
