"""``dpledger serve`` and ``dpledger migrate``."""

import contextlib
import json
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import httpx2
import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

import dpledger
from dpledger.storage.migrate import head_revision
from tests.cli.running import run

START_SECONDS = 60
FIRST = "0001"


@pytest.fixture
def database(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'ledger.db'}"


def test_the_version_is_reported() -> None:
    assert run("--version").out == f"dpledger {dpledger.__version__}\n"


@pytest.fixture
def started() -> Iterator[mock.Mock]:
    """What the web server would be started with; logging is left as the tests have it."""
    with (
        mock.patch("uvicorn.run") as started,
        mock.patch("dpledger.logs.configure_logs"),
        mock.patch("dpledger.cli.databases.check_files"),
    ):
        yield started


def test_serve_starts_the_application_where_its_options_say(started: mock.Mock, database: str) -> None:
    ended = run("serve", "--host", "0.0.0.0", "--port", "81", "--database", database)

    assert (ended.code, ended.out, ended.err) == (0, "", "")
    (app,) = started.call_args.args
    assert isinstance(app, FastAPI)
    assert app.state.settings.database == database
    options = started.call_args.kwargs
    assert (options["host"], options["port"], options["access_log"]) == ("0.0.0.0", 81, False)
    assert options["timeout_graceful_shutdown"] > 0


def test_serve_takes_its_settings_from_the_environment(
    started: mock.Mock, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("DPLEDGER_DATABASE", "postgresql://ann@host/ledger")
    monkeypatch.setenv("DPLEDGER_KEY_FILE", str(tmp_path / "keys.json"))

    assert run("serve").code == 0

    settings = started.call_args.args[0].state.settings
    assert (settings.database, settings.key_file) == ("postgresql://ann@host/ledger", tmp_path / "keys.json")


def test_serve_takes_the_other_settings_from_the_environment_too(
    started: mock.Mock, monkeypatch: pytest.MonkeyPatch, database: str
) -> None:
    monkeypatch.setenv("DPLEDGER_EXPIRY_SECONDS", "7.5")
    assert run("serve", "--database", database).code == 0
    assert started.call_args.args[0].state.settings.expiry_seconds == 7.5
    monkeypatch.setenv("DPLEDGER_EXPIRY_SECONDS", "-1")
    run("serve", "--database", database).failed(2, "DPLEDGER_EXPIRY_SECONDS")
    monkeypatch.delenv("DPLEDGER_EXPIRY_SECONDS")
    monkeypatch.setenv("DPLEDGER_ALERT_URL", "https://example.org/hook")
    run("serve", "--database", database).failed(2, "DPLEDGER_ALERT_SECRET_FILE")


def test_a_web_server_that_gives_up_is_a_failure(started: mock.Mock, database: str) -> None:
    started.side_effect = SystemExit(3)
    assert run("serve", "--database", database).code == 1


def _first_start(started: mock.Mock) -> None:
    """What the web server does with the application first."""
    with TestClient(started.call_args.args[0]) as client:
        assert client.get("/readyz").status_code == 200


def test_the_first_token_is_written_for_its_owner_alone(
    started: mock.Mock, database: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "token"
    assert run("serve", "--database", database, "--token-file", str(file)).code == 0
    _first_start(started)
    token = file.read_text(encoding="utf-8").strip()
    assert token.startswith("dpl_")
    assert file.stat().st_mode & 0o777 == 0o600
    reported = capsys.readouterr()
    assert str(file) in reported.out
    assert token not in reported.out + reported.err


def test_a_file_that_is_there_is_left_alone_and_the_token_is_printed(
    started: mock.Mock, database: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "token"
    file.write_text("mine", encoding="utf-8")
    assert run("serve", "--database", database, "--token-file", str(file)).code == 0
    _first_start(started)
    assert file.read_text(encoding="utf-8") == "mine"
    reported = capsys.readouterr()
    assert "dpl_" in reported.out
    assert str(file) in reported.err


def test_serve_refuses_a_schema_of_a_newer_version(database: str, tmp_path: Path) -> None:
    run("migrate", "--create", "--database", database)
    _set_revision(tmp_path / "ledger.db", "9999", oldest_serving="9999")
    run("serve", "--database", database).failed(3, "schema", "9999")


def test_serve_starts_on_a_newer_schema_that_says_it_may(
    started: mock.Mock, database: str, tmp_path: Path
) -> None:
    run("migrate", "--create", "--database", database)
    _set_revision(tmp_path / "ledger.db", "9999", oldest_serving=head_revision())
    assert run("serve", "--database", database).code == 0
    started.assert_called_once()


def _set_revision(file: Path, revision: str, *, oldest_serving: str | None = None) -> None:
    with contextlib.closing(sqlite3.connect(file)) as connection:
        connection.execute("UPDATE alembic_version SET version_num = ?", [revision])
        if oldest_serving is not None:
            connection.execute("UPDATE meta SET value = ? WHERE name = 'oldest_serving'", [oldest_serving])
        connection.commit()


def test_migrate_says_from_where_to_where(database: str) -> None:
    head = head_revision()
    made = run("migrate", "--create", "--database", database)
    assert made.out == f"the schema went from nothing to {head}\n"
    again = run("migrate", "--database", database)
    assert again.out == f"the schema is at {head}; nothing to do\n"
    reported = run("migrate", "--database", database, "--json").json
    assert reported == {"from": head, "to": head, "changed": False}
    assert run("dataset", "list", "--database", database).code == 0


def test_migrate_in_machine_words(database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DPLEDGER_DATABASE", database)
    head = head_revision()
    assert run("migrate", "--create", "--json").json == {"from": None, "to": head, "changed": True}


def test_migrate_can_look_without_changing(database: str, tmp_path: Path) -> None:
    sqlite3.connect(tmp_path / "ledger.db").close()
    (tmp_path / "ledger.db").touch()
    for _ in range(2):
        checked = run("migrate", "--check", "--database", database, "--json")
        assert checked.code == 3
        assert json.loads(checked.out) == {"from": None, "to": head_revision(), "changed": False}
    assert run("migrate", "--check", "--database", database).out.startswith(
        "the schema is to go from nothing"
    )
    run("migrate", "--database", database)
    assert run("migrate", "--check", "--database", database).code == 0


def test_migrate_makes_no_file_unasked(database: str, tmp_path: Path) -> None:
    run("migrate", "--database", database).failed(6, "there is no database file")
    assert list(tmp_path.iterdir()) == []


def test_migrate_stops_at_a_revision(database: str) -> None:
    head = str(head_revision())
    assert run("migrate", "--create", "--to", head, "--database", database).code == 0
    run("migrate", "--to", "nowhere", "--database", database).failed(3, "knows no way", "nowhere")


@pytest.mark.parametrize("target", ["base", "head", "-1", "+1", "a b"])
def test_migrate_takes_the_name_of_a_revision(database: str, target: str) -> None:
    run("migrate", "--create", f"--to={target}", "--database", database).failed(2, "name of a revision")


def test_migrate_leaves_a_schema_of_a_newer_version_alone(database: str, tmp_path: Path) -> None:
    run("migrate", "--create", "--database", database)
    _set_revision(tmp_path / "ledger.db", "9999")
    run("migrate", "--database", database).failed(3, "9999", "newer dpledger")


def test_migrate_goes_forward_step_by_step_and_never_back(database: str) -> None:
    head = str(head_revision())
    assert run("migrate", "--create", "--to", FIRST, "--database", database, "--json").json["to"] == FIRST
    assert run("migrate", "--database", database, "--json").json == {
        "from": FIRST,
        "to": head,
        "changed": True,
    }

    run("migrate", "--to", FIRST, "--database", database).failed(3, FIRST)
    assert run("migrate", "--database", database, "--json").json["from"] == head


@pytest.mark.parametrize("command", [["dataset", "list"], ["verify"], ["token", "list"], ["export", "adult"]])
def test_an_outdated_schema_is_never_changed_on_the_way(
    database: str, tmp_path: Path, command: list[str]
) -> None:
    run("migrate", "--create", "--database", database)
    _set_revision(tmp_path / "ledger.db", "0000")
    run(*command, "--database", database).failed(3, "schema at 0000", "dpledger migrate")
    run("token", "create", "--scope", "read", "--database", database).failed(3, "dpledger migrate")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _wait_until_healthy(address: str, process: "subprocess.Popen[str]") -> httpx2.Response:
    deadline = time.monotonic() + START_SECONDS
    while True:
        try:
            return httpx2.get(f"{address}/healthz")
        except httpx2.TransportError:
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.1)


def test_the_installed_command_serves_prints_one_token_and_stops_when_asked(tmp_path: Path) -> None:
    command = [str(Path(sys.executable).with_name("dpledger"))]
    said = [_served_once(tmp_path, command), _served_once(tmp_path, [sys.executable, "-m", "dpledger.cli"])]

    (first, log), (second, _) = said
    token = first.strip().rpartition(" ")[2]
    assert token.startswith("dpl_")
    assert second == ""
    assert {json.loads(line)["event"] for line in log.splitlines()} >= {"started", "stopped"}
    assert token not in log
    with contextlib.closing(sqlite3.connect(tmp_path / "budget.db")) as connection:
        assert connection.execute("SELECT count(*) FROM tokens").fetchone() == (1,)


def _served_once(folder: Path, command: list[str]) -> tuple[str, str]:
    """Standard output and error of one short life."""
    port = _free_port()
    with subprocess.Popen(
        [*command, "serve", "--port", str(port)],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert _wait_until_healthy(f"http://127.0.0.1:{port}", process).json() == {"status": "ok"}
        finally:
            process.send_signal(signal.SIGTERM)
        output, log = process.communicate(timeout=START_SECONDS)
        assert process.returncode in {0, -signal.SIGTERM}
        return output, log
