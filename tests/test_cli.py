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
from typer.testing import CliRunner

import dpledger
from dpledger import cli

START_SECONDS = 30


def invoke(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(cli.app, list(arguments))
    return result.exit_code, result.output


@pytest.fixture
def database(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'ledger.db'}"


def test_the_version_is_told() -> None:
    assert invoke("--version") == (0, f"dpledger {dpledger.__version__}\n")


@pytest.fixture
def served() -> Iterator[mock.Mock]:
    """What the web server would be started with; logging is left as the tests have it."""
    with (
        mock.patch("uvicorn.run") as run,
        mock.patch.object(cli, "configure_logs"),
        mock.patch.object(cli, "open_storage"),
    ):
        yield run


def test_serve_starts_the_application_where_it_is_told(served: mock.Mock, database: str) -> None:
    assert invoke("serve", "--host", "0.0.0.0", "--port", "81", "--database", database) == (0, "")

    (app,) = served.call_args.args
    assert isinstance(app, FastAPI)
    assert app.state.settings.database == database
    options = served.call_args.kwargs
    assert (options["host"], options["port"], options["access_log"]) == ("0.0.0.0", 81, False)
    assert options["timeout_graceful_shutdown"] > 0


def test_serve_takes_its_settings_from_the_environment(
    served: mock.Mock, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("DPLEDGER_DATABASE", "postgresql://ann@host/ledger")
    monkeypatch.setenv("DPLEDGER_KEY_FILE", str(tmp_path / "keys.json"))

    assert invoke("serve")[0] == 0

    settings = served.call_args.args[0].state.settings
    assert (settings.database, settings.key_file) == ("postgresql://ann@host/ledger", tmp_path / "keys.json")


@pytest.mark.parametrize(
    ("database", "option"),
    [("mysql://ann:secret@host/x", "--database"), ("postgresql://ann:secret@host/x", "--key-file")],
)
@pytest.mark.parametrize(
    "command",
    [["serve"], ["token", "list"], ["token", "create", "--scope", "read"], ["token", "revoke", "x"]],
)
def test_wrong_settings_are_named_without_telling_the_password(
    command: list[str], database: str, option: str
) -> None:
    status, output = invoke(*command, "--database", database)

    assert status == 2
    assert option in output
    assert "secret" not in output


def test_a_token_is_made_on_a_new_ledger_listed_and_revoked(database: str, tmp_path: Path) -> None:
    status, output = invoke("token", "create", "--scope", "admin", "--database", database, "--json")
    made = json.loads(output)
    assert status == 0
    assert made["token"].startswith(f"dpl_{made['id']}_")
    assert (tmp_path / "ledger.db.keys.json").stat().st_mode & 0o777 == 0o600

    limited = ["--scope", "spend", "--scope", "read", "--dataset", "adult", "--expires-in-seconds", "60"]
    status, output = invoke("token", "create", *limited, "--description", "job 7", "--database", database)
    plain = output.strip()
    assert status == 0
    assert plain.startswith("dpl_")

    status, output = invoke("token", "revoke", plain.split("_")[1], "--database", database)
    assert (status, output) == (0, f"revoked {plain.split('_')[1]}\n")
    rows = [
        json.loads(line) for line in invoke("token", "list", "--json", "--database", database)[1].splitlines()
    ]
    by_id = {row["id"]: row for row in rows}
    assert by_id[made["id"]]["revoked_at"] is None
    revoked = by_id[plain.split("_")[1]]
    assert (revoked["scopes"], revoked["datasets"], revoked["description"]) == (
        ["read", "spend"],
        ["adult"],
        "job 7",
    )
    assert revoked["revoked_at"]
    listed = invoke("token", "list", "--database", database)[1]
    assert f"{made['id']}  admin  good" in listed
    assert f"{revoked['id']}  read,spend  revoked  job 7" in listed
    assert made["token"].split("_")[2] not in listed


def test_an_unknown_token_cannot_be_revoked(database: str) -> None:
    status, output = invoke("token", "revoke", "abcd", "--database", database)

    assert status == 1
    assert "there is no token 'abcd'" in output


@pytest.mark.parametrize("command", [["serve"], ["token", "list"]])
def test_a_database_that_cannot_be_opened_is_a_plain_error(command: list[str], tmp_path: Path) -> None:
    where = ["--database", f"sqlite:///{tmp_path / 'missing' / 'ledger.db'}"]
    status, output = invoke(*command, *where, "--key-file", str(tmp_path / "keys.json"))

    assert status == 1
    assert output.startswith("Error: ")


@pytest.mark.parametrize("command", [["serve"], ["token", "create", "--scope", "read"]])
def test_a_key_file_open_to_others_is_a_plain_error(
    command: list[str], database: str, tmp_path: Path
) -> None:
    (tmp_path / "ledger.db.keys.json").write_text("{}")
    (tmp_path / "ledger.db.keys.json").chmod(0o644)

    status, output = invoke(*command, "--database", database)

    assert status == 1
    assert output.startswith("Error: ")
    assert "closed to others" in output


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
    said = [_served_once(tmp_path) for _ in range(2)]

    (first, log), (second, _) = said
    token = first.strip().rpartition(" ")[2]
    assert token.startswith("dpl_")
    assert second == ""
    assert {json.loads(line)["event"] for line in log.splitlines()} >= {"started", "stopped"}
    assert token not in log
    with sqlite3.connect(tmp_path / "budget.db") as connection:
        assert connection.execute("SELECT count(*) FROM tokens").fetchone() == (1,)
    connection.close()


def _served_once(folder: Path) -> tuple[str, str]:
    """Standard output and error of one short life."""
    port = _free_port()
    command = [str(Path(sys.executable).with_name("dpledger")), "serve", "--port", str(port)]
    with subprocess.Popen(
        command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            assert _wait_until_healthy(f"http://127.0.0.1:{port}", process).json() == {"status": "ok"}
        finally:
            process.send_signal(signal.SIGTERM)
        output, log = process.communicate(timeout=START_SECONDS)
        assert process.returncode in {0, -signal.SIGTERM}
        return output, log
