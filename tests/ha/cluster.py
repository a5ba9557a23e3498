"""A PostgreSQL cluster that Patroni keeps, on the loopback, with the files of ``deploy/patroni``.

etcd, Patroni and PostgreSQL are those of the system (Debian: etcd-server, patroni, postgresql); none of them
runs as a service of the system, and each has a port and a folder of its own.
"""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from tests.reliability.processes import lasting_port

__all__ = ["Cluster", "Node", "cluster", "missing_programs"]

T = TypeVar("T")
HOST = "127.0.0.1"
PASSWORD = "chosen-for-a-test"
PATIENCE_SECONDS = 120.0
_EXAMPLE = Path(__file__).resolve().parents[2] / "deploy" / "patroni"
# PostgreSQL refuses to run as root, which a container of the continuous integration may be.
_SERVANT = "nobody" if os.geteuid() == 0 else None


def binaries() -> Path | None:
    """Where the newest PostgreSQL of the system is."""
    found = sorted(
        Path("/usr/lib/postgresql").glob("*/bin/postgres"), key=lambda path: int(path.parts[-3].split(".")[0])
    )
    return found[-1].parent if found else None


def missing_programs() -> list[str]:
    """What this machine lacks."""
    missing = [name for name in ("patroni", "etcd") if shutil.which(name) is None]
    return missing if binaries() is not None else [*missing, "postgresql"]


@dataclass
class Node:
    """One member: Patroni and the PostgreSQL that it keeps."""

    name: str
    folder: Path
    etcd_port: int
    port: int = field(default_factory=lasting_port)
    rest_port: int = field(default_factory=lasting_port)
    process: "subprocess.Popen[bytes] | None" = None

    @property
    def environment(self) -> dict[str, str]:
        """What patroni.yml leaves to the environment."""
        own = {
            "NAME": self.name,
            "RESTAPI_LISTEN": f"{HOST}:{self.rest_port}",
            "RESTAPI_CONNECT_ADDRESS": f"{HOST}:{self.rest_port}",
            "POSTGRESQL_LISTEN": f"{HOST}:{self.port}",
            "POSTGRESQL_CONNECT_ADDRESS": f"{HOST}:{self.port}",
            "POSTGRESQL_DATA_DIR": str(self.folder / "data"),
            "POSTGRESQL_BIN_DIR": str(binaries()),
            "POSTGRESQL_PGPASS": str(self.folder / "pgpass"),
            "ETCD3_HOSTS": f"{HOST}:{self.etcd_port}",
            "SUPERUSER_USERNAME": "postgres",
            "SUPERUSER_PASSWORD": PASSWORD,
            "REPLICATION_USERNAME": "replicator",
            "REPLICATION_PASSWORD": PASSWORD,
        }
        path = f"{binaries()}:/usr/bin:/bin"
        named = {f"PATRONI_{name}": value for name, value in own.items()}
        return {"PATH": path, "LC_ALL": "C.UTF-8", "DPLEDGER_PASSWORD": PASSWORD, **named}

    def start(self) -> None:
        """Start Patroni, which does the rest."""
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                ["patroni", str(self.folder / "patroni.yml")],
                env=self.environment,
                user=_SERVANT,
                stdout=log,
                stderr=log,
                cwd=self.folder,
                start_new_session=True,
            )

    def kill(self) -> None:
        """SIGKILL Patroni, PostgreSQL and all its processes: the machine is gone."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()
        for pid in self._database_processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process = None

    def _database_processes(self) -> list[int]:
        try:
            first = int((self.folder / "data" / "postmaster.pid").read_text().split()[0])
        except (FileNotFoundError, IndexError):
            return []
        children = subprocess.run(
            ["ps", "-o", "pid=", "--ppid", str(first)], capture_output=True, text=True, check=False
        )
        return [first, *map(int, children.stdout.split())]

    def log_end(self) -> str:
        """The last of its log."""
        log = self.folder / "log"
        return log.read_text(errors="replace")[-3000:] if log.exists() else ""


@dataclass
class Cluster:
    """Some members and the etcd that they agree by."""

    nodes: list[Node]

    @property
    def url(self) -> str:
        """As the service gets it: every member, whichever leads."""
        hosts = ",".join(f"{HOST}:{node.port}" for node in self.nodes)
        return f"postgresql://dpledger:{PASSWORD}@{hosts}/dpledger?target_session_attrs=read-write"

    def members(self) -> list[dict[str, Any]]:
        """What Patroni says of the members that it knows; none while nobody answers."""
        for node in self.nodes:
            if node.process is not None:
                with contextlib.suppress(OSError, ValueError):
                    found: list[dict[str, Any]] = _asked(node, "cluster")["members"]
                    return found
        return []

    def leader(self) -> Node:
        """The one that leads; waits until there is one."""
        found = await_true("a leader", self, self._leader)
        assert found is not None
        return found

    def _leader(self) -> Node | None:
        names = [each["name"] for each in self.members() if each["role"] == "leader"]
        alive = [node for node in self.nodes if node.process is not None and node.name in names]
        return alive[0] if alive else None

    def await_synchronous(self) -> None:
        """Wait until some member follows synchronously."""
        await_true("a synchronous standby", self, lambda: self._roles("sync_standby") > 0)

    def await_members(self, count: int) -> None:
        """Wait until so many members run and follow."""
        await_true(
            f"{count} members", self, lambda: self._roles("leader", "replica", "sync_standby") >= count
        )

    def _roles(self, *roles: str) -> int:
        going = ("running", "streaming")
        return sum(each["role"] in roles and each["state"] in going for each in self.members())

    def configure(self, **settings: bool) -> None:
        """As ``patronictl edit-config``."""
        request = urllib.request.Request(
            f"http://{HOST}:{self.leader().rest_port}/config",
            json.dumps(settings).encode(),
            {"Content-Type": "application/json"},
            method="PATCH",
        )
        with urllib.request.urlopen(request, timeout=10.0):
            pass


def _asked(node: Node, what: str) -> Any:
    with urllib.request.urlopen(f"http://{HOST}:{node.rest_port}/{what}", timeout=5.0) as answer:
        return json.load(answer)


def await_true(what: str, where: Cluster, holds: Callable[[], T]) -> T:
    """Wait for something to hold; returns what it found."""
    give_up = time.monotonic() + PATIENCE_SECONDS
    while not (found := holds()):
        if time.monotonic() > give_up:
            logs = "\n".join(f"{node.name}: {node.log_end()}" for node in where.nodes)
            raise AssertionError(f"no {what} in {PATIENCE_SECONDS} s: {where.members()}\n{logs}")
        time.sleep(0.2)
    return found


def _folder(parent: Path, name: str) -> Path:
    made = parent / name
    made.mkdir()
    if _SERVANT is not None:
        shutil.chown(made, _SERVANT)
    return made


@contextlib.contextmanager
def _etcd(folder: Path) -> Iterator[int]:
    """One etcd; yields its port for clients."""
    port, peer = lasting_port(), lasting_port()
    near, far = f"http://{HOST}:{port}", f"http://{HOST}:{peer}"
    options = {
        "name": "etcd",
        "data-dir": str(folder / "data"),
        "listen-client-urls": near,
        "advertise-client-urls": near,
        "listen-peer-urls": far,
        "initial-advertise-peer-urls": far,
        "initial-cluster": f"etcd={far}",
    }
    command = ["etcd", *[f"--{name}={value}" for name, value in options.items()]]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, user=_SERVANT, stdout=log, stderr=log, cwd=folder)
    try:
        yield port
    finally:
        process.kill()
        process.wait()


def _node(parent: Path, number: int, etcd_port: int) -> Node:
    node = Node(f"db{number}", _folder(parent, f"db{number}"), etcd_port)
    script = node.folder / "post_bootstrap.sh"
    shutil.copy(_EXAMPLE / "post_bootstrap.sh", script)
    text = (_EXAMPLE / "patroni.yml").read_text(encoding="utf-8")
    assert text.count("/etc/patroni/post_bootstrap.sh") == 1
    text = text.replace("/etc/patroni/post_bootstrap.sh", str(script))
    (node.folder / "patroni.yml").write_text(text, encoding="utf-8")
    return node


@contextlib.contextmanager
def cluster(count: int) -> Iterator[Cluster]:
    """A new cluster of so many members, the first of which leads; all follow, one synchronously."""
    parent = Path(tempfile.mkdtemp(prefix="ha-"))
    parent.chmod(0o755)
    with contextlib.ExitStack() as stack:
        stack.callback(shutil.rmtree, parent, ignore_errors=True)
        port = stack.enter_context(_etcd(_folder(parent, "etcd")))
        made = Cluster([_node(parent, number, port) for number in range(1, count + 1)])
        stack.callback(_kill_all, made)
        made.nodes[0].start()
        assert made.leader() is made.nodes[0]
        for node in made.nodes[1:]:
            node.start()
        made.await_members(count)
        made.await_synchronous()
        yield made


def _kill_all(made: Cluster) -> None:
    for node in made.nodes:
        if node.process is not None:
            node.kill()
