"""The service as operators run it: processes of their own, started by the command ``dpledger``."""

import contextlib
import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.reliability.database_targets import DatabaseTarget
from tests.reliability.wire import HOST

START_SECONDS = 60.0
STOP_SECONDS = 30.0
_COMMAND = Path(sys.executable).with_name("dpledger")


@dataclass(frozen=True)
class Running:
    """A service process that takes requests."""

    process: "subprocess.Popen[bytes]"
    port: int
    log: Path

    def end(self) -> None:
        """Ask it to stop, and wait until it has."""
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(STOP_SECONDS)

    def events(self) -> list[str]:
        """What it logged so far."""
        lines = self.log.read_text(encoding="utf-8").splitlines()
        return [json.loads(line)["event"] for line in lines]


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
        return port


def lasting_port() -> int:
    """A port that nobody listens on, and that no outgoing connection is given while a server restarts."""
    lowest = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    while True:
        with socket.socket() as probe:
            port = random.randrange(lowest // 2, lowest)
            with contextlib.suppress(OSError):
                probe.bind((HOST, port))
                return port


def start_service(database_target: DatabaseTarget, **settings: str) -> Running:
    """Start a service process, with more settings in its environment; it may not take requests yet."""
    port = free_port()
    where = ["--database", database_target.database, "--key-file", str(database_target.key_file)]
    command = [str(_COMMAND), "serve", "--host", HOST, "--port", str(port), *where]
    log = database_target.key_file.with_name(f"service-{port}.log")
    with log.open("wb") as file:
        environment = {**os.environ, **settings}
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=file, env=environment)
    return Running(process, port, log)


def await_service(running: Running) -> None:
    """Wait until a service process takes connections."""
    give_up = time.monotonic() + START_SECONDS
    while not listens(running.port):
        assert running.process.poll() is None, f"the service ended with {running.process.returncode}"
        assert time.monotonic() < give_up, "the service does not listen"
        time.sleep(0.02)


def listens(port: int) -> bool:
    """Whether somebody takes connections there."""
    try:
        socket.create_connection((HOST, port), timeout=1.0).close()
    except OSError:
        return False
    return True


@contextlib.contextmanager
def services(database_target: DatabaseTarget, count: int) -> Iterator[list[Running]]:
    """``count`` service processes on one database, started together."""
    started = [start_service(database_target) for _ in range(count)]
    try:
        for running in started:
            await_service(running)
        yield started
    finally:
        for running in started:
            running.process.kill()
            running.process.wait()
