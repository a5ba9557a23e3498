"""What goes wrong is one line on stderr, with an exit code of its own; never a stack of frames."""

import contextlib
import http.server
import json
import socket
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from typer.testing import CliRunner

from dpledger import cli
from dpledger.cli.failures import ExitCode, failure_of, one_line
from tests.cli.running import STEP, Ended, Served, run

ASKING = {
    "dataset open": ["dataset", "open", "new", "--budget", "zcdp:rho=1"],
    "dataset list": ["dataset", "list"],
    "dataset show": ["dataset", "show", "adult"],
    "dataset budget": ["dataset", "budget", "adult"],
    "dataset runs": ["dataset", "runs", "adult"],
    "dataset change-budget": ["dataset", "change-budget", "adult", "--budget", "zcdp:rho=1", "--reason", "r"],
    "entries": ["entries", "adult"],
    "verify": ["verify"],
    "export": ["export", "adult"],
    "forecast": ["forecast", "adult", STEP],
    "token create": ["token", "create", "--scope", "read"],
    "token list": ["token", "list"],
    "token revoke": ["token", "revoke", "abcd"],
}
PURE = {
    "cost": ["cost", STEP],
    "convert": ["convert", "--from", "zcdp:rho=1", "--to", "approximate:delta=1e-6"],
    "calibrate": ["calibrate", "gaussian:sensitivity=1", "--rho", "1"],
}
REMOTE = {**ASKING, **PURE}
OTHER_TOKEN = "dpl_abcdefgh_" + "a" * 52


@pytest.fixture(scope="module")
def nowhere() -> str:
    """An address at which nobody listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{probe.getsockname()[1]}"


@pytest.mark.parametrize("command", REMOTE)
def test_a_wrong_token(service: Served, command: str) -> None:
    ended = run(*REMOTE[command], "--url", service.address, "--token", OTHER_TOKEN)
    ended.failed(5, service.address, "the token is wrong, revoked or expired")
    assert OTHER_TOKEN not in ended.err


@pytest.mark.parametrize("command", ["dataset list", "token create", "cost"])
def test_no_token(service: Served, command: str) -> None:
    run(*REMOTE[command], "--url", service.address).failed(5, "no token was given")


@pytest.mark.parametrize("command", REMOTE)
def test_a_service_that_is_down(nowhere: str, command: str) -> None:
    run(*REMOTE[command], "--url", nowhere, "--token", OTHER_TOKEN).failed(6, nowhere, "cannot be reached")


def test_what_may_have_been_recorded_can_be_asked_again(nowhere: str) -> None:
    ended = run(*ASKING["dataset open"], "--url", nowhere, "--token", OTHER_TOKEN)
    ended.failed(6, "whether it was recorded is not known", "--idempotency-key")


def test_the_environment_names_the_service(service: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DPLEDGER_URL", service.address + "/")
    monkeypatch.setenv("DPLEDGER_TOKEN", service.token)
    assert run("dataset", "show", "adult", "--json").json["name"] == "adult"
    assert run(*PURE["cost"], "--json").code == 0

    monkeypatch.setenv("DPLEDGER_DATABASE", "sqlite:///elsewhere.db")
    run("dataset", "list").failed(2, "DPLEDGER_URL and DPLEDGER_DATABASE are both set")
    run("dataset", "list", "--database", service.database, "--url", service.address).failed(2, "not both")
    run("dataset", "list", "--database", "sqlite:///elsewhere.db").failed(6, "no database file elsewhere.db")
    assert run("dataset", "list", "--url", service.address).code == 0


@pytest.mark.parametrize("url", ["127.0.0.1:8000", "ftp://ledger", "http://a b", "http://[::1", "http://x:y"])
def test_an_address_that_is_none(url: str) -> None:
    ended = run("dataset", "list", "--url", url, "--token", OTHER_TOKEN)
    assert ended.code in (2, 6)
    ended.failed(ended.code)


def test_a_token_that_no_header_carries(service: Served) -> None:
    run("dataset", "list", "--url", service.address, "--token", "dpl_ü_\n").failed(2, "cannot be sent")


class _Stranger(http.server.BaseHTTPRequestHandler):
    """Some other web server: its path says how it answers."""

    def do_GET(self) -> None:
        status, body = json.loads(httpx2.URL(self.path).path.split("/")[1]), b"<html>\x1b[31mhello</html>"
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *_: Any) -> None:
        assert format


@pytest.fixture(scope="module")
def stranger() -> Iterator[str]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Stranger) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.mark.parametrize(("status", "code"), [(200, 1), (301, 1), (404, 1), (500, 1), (502, 6), (504, 6)])
@pytest.mark.parametrize("command", ["dataset list", "verify"])
def test_somebody_else_answers(stranger: str, command: str, status: int, code: int) -> None:
    ended = run(*ASKING[command], "--url", f"{stranger}/{status}")
    ended.failed(code, f"answers {status}, and not as a dpledger service does")


def test_a_wrong_path_is_not_taken_for_an_answer(service: Served) -> None:
    ended = run("dataset", "show", "adult", "--url", f"{service.address}/elsewhere", "--token", service.token)
    ended.failed(1, "not as a dpledger service does")


def test_a_service_that_does_not_answer() -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        run("dataset", "list", "--url", url, "--timeout-seconds", "0.1").failed(6, "does not answer in time")


@pytest.mark.parametrize("command", [["dataset", "list"], ["dataset", "list", "--json"], ["export", "adult"]])
def test_a_disk_that_is_full(service: Served, command: list[str]) -> None:
    asked = [sys.executable, "-m", "dpledger.cli", *command, "--database", service.database]
    with open("/dev/full", "wb") as full:
        ended = subprocess.run(asked, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    Ended(ended.returncode, "", ended.stderr).failed(1, "the output: No space left on device")


# Directly in a database.


@pytest.fixture
def database(tmp_path: Path) -> Path:
    """A ledger of its own."""
    file = tmp_path / "own.db"
    assert run("token", "create", "--scope", "admin", "--database", f"sqlite:///{file}").code == 0
    return file


@pytest.fixture
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dpledger.storage.engine.engines.BUSY_SECONDS", 0.05)
    monkeypatch.setattr("dpledger.storage.engine.session.BUSY_SECONDS", 0.05)


@contextlib.contextmanager
def _locked(file: Path) -> Iterator[None]:
    """Somebody has the file for himself, readers kept out."""
    with contextlib.closing(sqlite3.connect(file, isolation_level=None)) as holder:
        holder.execute("PRAGMA locking_mode=EXCLUSIVE")
        holder.execute("BEGIN EXCLUSIVE")
        holder.execute("UPDATE meta SET value = value")
        yield
        holder.execute("ROLLBACK")


@pytest.mark.usefixtures("_impatient")
@pytest.mark.parametrize("command", [*ASKING, "migrate", "serve"])
def test_a_locked_file(database: Path, command: str) -> None:
    asked = ASKING.get(command, [command])
    token = ["--token", OTHER_TOKEN] if command in ASKING else []
    with _locked(database):
        ended = run(*asked, "--database", f"sqlite:///{database}", *token)
    ended.failed(6, "busy")


@pytest.mark.usefixtures("_impatient")
@pytest.mark.parametrize("command", ["token create", "token revoke"])
def test_a_file_that_somebody_else_writes(database: Path, command: str) -> None:
    with contextlib.closing(sqlite3.connect(database, isolation_level=None)) as writer:
        writer.execute("BEGIN IMMEDIATE")
        run(*ASKING[command], "--database", f"sqlite:///{database}").failed(6, "busy")
        assert run("dataset", "list", "--database", f"sqlite:///{database}").code == 0
        writer.execute("ROLLBACK")


@pytest.mark.parametrize("command", sorted(set(ASKING) - {"token create"}))
def test_a_file_that_is_not_there(tmp_path: Path, command: str) -> None:
    asked = [*ASKING[command], "--token", OTHER_TOKEN]
    run(*asked, "--database", f"sqlite:///{tmp_path / 'absent.db'}").failed(6, "no database file")
    run(*asked).failed(6, "there is no database file budget.db")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("command", [["serve"], ["token", "create", "--scope", "read"]])
def test_a_folder_that_is_not_there(tmp_path: Path, command: list[str]) -> None:
    where = ["--database", f"sqlite:///{tmp_path / 'missing' / 'ledger.db'}"]
    run(*command, *where, "--key-file", str(tmp_path / "keys.json")).failed(6, "unable to open database file")


def test_a_misspelt_setting_is_reported_when_the_service_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DPLEDGER_ALERT_TRESHOLDS", "0.5")
    ended = run("serve", "--database", f"sqlite:///{tmp_path / 'missing' / 'ledger.db'}")
    assert ended.err.splitlines()[0] == (
        "DPLEDGER_ALERT_TRESHOLDS is no setting and has no effect; is DPLEDGER_ALERT_THRESHOLDS meant?"
    )


@pytest.mark.parametrize("command", [*ASKING, "migrate", "serve"])
def test_a_file_that_is_no_database(tmp_path: Path, command: str) -> None:
    (tmp_path / "text.db").write_text("not a database, whatever its name says " * 100)
    token = ["--token", OTHER_TOKEN] if command in ASKING else []
    asked = [*ASKING.get(command, [command]), "--database", f"sqlite:///{tmp_path / 'text.db'}", *token]
    run(*asked).failed(6, "not a database")


def test_an_empty_file_has_no_ledger_in_it(tmp_path: Path) -> None:
    (tmp_path / "empty.db").touch()
    where = ["--database", f"sqlite:///{tmp_path / 'empty.db'}"]
    run("dataset", "list", *where).failed(3, "has no ledger in it; dpledger migrate")
    assert run("token", "create", "--scope", "read", *where).code == 0
    assert run("dataset", "list", *where).out == "no datasets; dpledger dataset open makes one\n"
    assert run("verify", *where).out == "no datasets; dpledger dataset open makes one\n"


@pytest.mark.parametrize("command", [*ASKING, "migrate", "serve"])
def test_a_file_of_another_program_is_left_alone(tmp_path: Path, command: str) -> None:
    file = tmp_path / "other.db"
    with contextlib.closing(sqlite3.connect(file)) as connection:
        connection.execute("CREATE TABLE bookmarks (address TEXT)")
    before = file.read_bytes()

    token = ["--token", OTHER_TOKEN] if command in ASKING else []
    asked = [*ASKING.get(command, [command]), "--database", f"sqlite:///{file}", *token]
    run(*asked).failed(3, "holds the tables of another program, and no ledger")
    assert file.read_bytes() == before
    assert list(tmp_path.iterdir()) == [file]


@pytest.mark.parametrize("command", [["serve"], ["token", "create", "--scope", "read"]])
def test_a_key_file_open_to_others(database: Path, command: list[str]) -> None:
    keys = Path(f"{database}.keys.json")
    keys.chmod(0o644)
    run(*command, "--database", f"sqlite:///{database}").failed(1, "closed to others")


@pytest.mark.parametrize(
    "command", [["serve"], ["token", "list"], ["token", "create", "--scope", "read"], ["migrate"], ["verify"]]
)
@pytest.mark.parametrize("url", ["mysql://ann:secret@host/x", "sqlite://", "nonsense", "sqlite:///:memory:"])
def test_a_database_that_none_can_be(command: list[str], url: str) -> None:
    ended = run(*command, "--database", url)
    ended.failed(2, "--database: ")
    assert "secret" not in ended.err


@pytest.mark.parametrize("command", [["serve"], ["token", "create", "--scope", "read"]])
def test_postgresql_needs_its_key_file(command: list[str]) -> None:
    ended = run(*command, "--database", "postgresql://ann:secret@host/x")
    ended.failed(2, "--key-file")
    assert "secret" not in ended.err


def test_a_postgresql_server_that_is_down(nowhere: str) -> None:
    host = nowhere.removeprefix("http://")
    ended = run("dataset", "list", "--database", f"postgresql://ann:secret@{host}/x")
    ended.failed(6, "database")
    assert "secret" not in ended.err


def test_a_token_of_nobody_changes_nothing(database: Path) -> None:
    where = ["--database", f"sqlite:///{database}", "--token", OTHER_TOKEN]
    run(*ASKING["dataset open"], *where).failed(5, "the token is wrong, revoked or expired")
    assert run("dataset", "list", *where, "--json").json["items"] == []


# The words themselves.


def test_a_line_is_one_line_without_secrets() -> None:
    reported = one_line("a\nb\x1b[31m dpl_abc_secret postgresql://ann:pass@host\u202e")
    assert reported == "a b?[31m dpl_abc_… postgresql://ann:…@host?"
    assert len(one_line("x" * 10_000)) == 600


@pytest.mark.parametrize(
    ("slug", "status", "code"),
    [
        ("malformed-json", 400, ExitCode.USAGE),
        ("invalid-input", 422, ExitCode.USAGE),
        ("unproven", 422, ExitCode.REFUSED),
        ("question-too-hard", 422, ExitCode.REFUSED),
        ("budget-exhausted", 409, ExitCode.REFUSED),
        ("precondition-failed", 412, ExitCode.REFUSED),
        ("unauthenticated", 401, ExitCode.UNAUTHORIZED),
        ("forbidden", 403, ExitCode.UNAUTHORIZED),
        ("not-found", 404, ExitCode.NOT_FOUND),
        ("internal-error", 500, ExitCode.FAILURE),
        ("unavailable", 503, ExitCode.UNAVAILABLE),
        ("questions-busy", 503, ExitCode.UNAVAILABLE),
    ],
)
def test_every_problem_has_its_code(slug: str, status: int, code: ExitCode) -> None:
    assert failure_of(slug, status, "x").code is code


@pytest.mark.parametrize(
    "command", [["dataset", "show"], ["entries", "adult", "--run"], ["token", "revoke"], ["cost"], ["verify"]]
)
def test_an_argument_that_is_no_text(service: Served, command: list[str]) -> None:
    ledger_target = [] if command == ["cost"] else ["--database", service.database]
    run(*command, "\udcff", *ledger_target).failed(2)


def test_a_terminal_that_has_no_such_letter(service: Served) -> None:
    asked = ["dataset", "list", "--database", service.database]
    reported = CliRunner(charset="ascii").invoke(cli.app, asked)
    assert (reported.exit_code, reported.stderr) == (
        1,
        "Error: the output takes ascii only; --json always fits\n",
    )
    assert CliRunner(charset="ascii").invoke(cli.app, [*asked, "--json"]).exit_code == 0
