"""Several service processes on one database, reached through proxies, and what is done to them."""

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

from tests.chaos.faults import Tally, stream
from tests.chaos.nursery import ClockOffset, Nursery, Order
from tests.chaos.proxy import Link, Proxies, RequestProxy
from tests.deploy.clusters import PASSWORD, Server, make_primary, server
from tests.reliability.database_targets import DatabaseTarget, sqlite_place, with_token
from tests.reliability.processes import START_SECONDS, lasting_port, listens

__all__ = ["REPLICAS", "Database", "Replica", "Site", "SmallDisk", "site", "small_disk"]

REPLICAS = {"sqlite": 2, "postgresql": 3}
REQUEST_RATE = 0.35
LINK_RATE = 0.004
_DISK_BYTES = 2**28
_BALLAST = bytes(2**16)


class Replica:
    """One service process, started again under the same port after each death."""

    def __init__(self, nursery: Nursery, database: str, key_file: Path) -> None:
        self.port = lasting_port()
        self._nursery = nursery
        folder = key_file.parent
        clock = folder / f"clock-{self.port}"
        self.clock = ClockOffset(clock)
        self.log = folder / f"service-{self.port}.log"
        self._order = Order(self.port, database, str(key_file), str(clock), str(self.log))
        self._group = 0

    def start(self) -> None:
        """Start it unless it lives."""
        if not self.lives:
            self._group = self._nursery.start(self._order)

    def await_start(self) -> None:
        """Wait until it takes connections; one that could not start is started again."""
        give_up = time.monotonic() + START_SECONDS
        while not listens(self.port):
            assert time.monotonic() < give_up, f"does not start: {self.log.read_text()[-2000:]}"
            self.start()
            time.sleep(0.05)

    @property
    def lives(self) -> bool:
        """Whether the process is there."""
        try:
            os.kill(self._group, 0)
        except OSError:
            return False
        return self._group != 0

    def send(self, what: signal.Signals) -> None:
        """Send a signal to it and its own processes."""
        if self._group:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._group, what)

    def kill(self) -> None:
        """SIGKILL, and wait until it is gone."""
        self.send(signal.SIGKILL)
        give_up = time.monotonic() + START_SECONDS
        while self.lives:
            assert time.monotonic() < give_up, "does not die"
            time.sleep(0.005)

    def processes(self) -> list[int]:
        """Its numbers."""
        return [self._group] if self.lives else []


class SmallDisk:
    """A file system of its own in memory, small enough to be filled to the last byte."""

    def __init__(self, folder: Path) -> None:
        self._ballast = folder / "ballast"

    def fill(self) -> None:
        """Leave no room."""
        with contextlib.suppress(OSError), self._ballast.open("wb", buffering=0) as file:
            while True:
                file.write(_BALLAST)

    def empty(self) -> None:
        """Make room again."""
        self._ballast.unlink(missing_ok=True)


@contextlib.contextmanager
def small_disk(folder: Path) -> Iterator[SmallDisk | None]:
    """One at this folder; None where this user may not mount anything."""
    owner = folder.stat()
    options = f"size={_DISK_BYTES},uid={owner.st_uid},gid={owner.st_gid},mode=700"
    mount = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)]
    if subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        yield None
        return
    try:
        yield SmallDisk(folder)
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], capture_output=True, check=True)


class Database:
    """A PostgreSQL server that is killed, stopped and started again; an SQLite file has none."""

    def __init__(self, running: Server, disk: SmallDisk | None) -> None:
        self._server = running
        self.disk = disk

    def processes(self) -> list[int]:
        """The server and its children."""
        process = self._server.process
        if process is None or process.poll() is not None:
            return []
        listed = subprocess.run(
            ["ps", "-o", "pid=", "--ppid", str(process.pid)], capture_output=True, text=True, check=False
        )
        return [process.pid, *map(int, listed.stdout.split())]

    def send(self, what: signal.Signals) -> None:
        """Send a signal to all of them."""
        for pid in self.processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, what)

    def kill(self) -> None:
        """SIGKILL for all: the next start recovers from the write-ahead log.

        The server is stopped first, so that none of its children is born while they are listed. A new
        server refuses to start as long as one of them is still about to end.
        """
        process = self._server.process
        if process is None or process.poll() is not None:
            return
        process.send_signal(signal.SIGSTOP)
        killed = self.processes()
        self.send(signal.SIGKILL)
        process.wait(START_SECONDS)
        give_up = time.monotonic() + START_SECONDS
        while any(_lives(pid) for pid in killed):
            assert time.monotonic() < give_up, "a server process does not die"
            time.sleep(0.005)

    def start(self) -> None:
        """Start it unless it runs, and wait until it answers."""
        if self.processes():
            return
        give_up = time.monotonic() + START_SECONDS
        while True:
            try:
                self._server.serve()
                return
            except AssertionError:
                if time.monotonic() > give_up:
                    raise
                time.sleep(0.1)


def _lives(pid: int) -> bool:
    """Whether a process runs; one that only waits for its parent to look has ended."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] not in ("Z", "X")


class Site:
    """Everything that a storm goes over."""

    def __init__(
        self, target: DatabaseTarget, replicas: list[Replica], database: Database | None, links: list[Link]
    ) -> None:
        self.target = target
        self.replicas = replicas
        self.database = database
        self.links = links
        self.proxy_port = 0
        self.requests: RequestProxy | None = None

    def heal(self) -> None:
        """End all that goes on: everything runs, nothing is spoiled, clocks are right."""
        if self.requests is not None:
            self.requests.rate = 0.0
        for link in self.links:
            link.rate, link.down = 0.0, False
        if self.database is not None:
            if self.database.disk is not None:
                self.database.disk.empty()
            self.database.send(signal.SIGCONT)
            self.database.start()
        for replica in self.replicas:
            replica.clock.set(0)
            replica.send(signal.SIGCONT)
            replica.await_start()

    def close(self) -> None:
        """Kill every service process."""
        for replica in self.replicas:
            replica.send(signal.SIGCONT)
            replica.kill()


def forbid_growth(pids: list[int], *, forbidden: bool) -> None:
    """Let no file of these processes take another byte, as on a disk that is full, or let them again.

    By the owner of each process, because a container may not let even root do it for another.
    """
    limit = "0:unlimited" if forbidden else "unlimited:unlimited"
    for pid in pids:
        try:
            owner = Path(f"/proc/{pid}").stat().st_uid
        except FileNotFoundError:
            continue
        command = ["prlimit", f"--pid={pid}", f"--fsize={limit}"]
        done = subprocess.run(command, user=owner, capture_output=True, text=True, check=False)
        assert done.returncode == 0 or not Path(f"/proc/{pid}").exists(), f"no disk is full: {done.stderr}"


@contextlib.contextmanager
def site(kind: str, seed: int, tally: Tally, proxies: Proxies) -> Iterator[Site]:
    """A database of this kind with its service processes, healthy, behind proxies that spoil what passes."""
    with contextlib.ExitStack() as stack:
        nursery = stack.enter_context(Nursery())
        folder = Path(tempfile.mkdtemp(prefix="chaos-"))
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        database, links = None, []
        if kind == "sqlite":
            target = sqlite_place(folder)
            urls = [target.database] * REPLICAS[kind]
        else:
            primary = stack.enter_context(server())
            disk = stack.enter_context(small_disk(primary.folder))
            primary.settings = {"max_wal_size": "64MB", "min_wal_size": "32MB"}
            stack.callback(primary.end, signal.SIGQUIT)
            make_primary(primary)
            database = Database(primary, disk)
            target = with_token(_url(primary.port), folder / "keys.json")
            links = [
                Link(primary.port, stream(seed, kind, "link", number), tally, 0.0)
                for number in range(REPLICAS[kind])
            ]
            urls = [_url(proxies.listen(link)) for link in links]
        replicas = [Replica(nursery, url, target.key_file) for url in urls]
        made = Site(target, replicas, database, links)
        stack.callback(made.close)
        made.heal()
        ports = [replica.port for replica in replicas]
        made.requests = RequestProxy(ports, stream(seed, kind, "requests"), tally, 0.0)
        made.proxy_port = proxies.listen(made.requests)
        yield made


def _url(port: int) -> str:
    return f"postgresql://dpledger:{quote(PASSWORD)}@127.0.0.1:{port}/postgres"
