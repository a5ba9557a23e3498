"""Service processes that start in a moment and whose clock jumps: ``python -m tests.chaos.nursery``.

Starting Python takes longer than a storm leaves between two kills, so one process imports the service once
and forks a process for each order that it reads. That runs the command ``dpledger serve`` itself; only the
ledger's clock is the machine's plus an offset, which is read from a file whenever the time is asked.
"""

import json
import mmap
import os
import signal
import struct
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

from dpledger.ledger.clock import SystemClock
from tests.reliability.wire import HOST

__all__ = ["ClockOffset", "Nursery", "Order"]

_FORMAT = "<q"


@dataclass(frozen=True)
class Order:
    """A service process to start."""

    port: int
    database: str
    key_file: str
    clock_file: str
    log: str


class ClockOffset:
    """How far a clock is off, in microseconds, in a file that two processes share."""

    def __init__(self, path: Path) -> None:
        if not path.exists():
            path.write_bytes(struct.pack(_FORMAT, 0))
        with path.open("r+b") as file:
            self._shared = mmap.mmap(file.fileno(), struct.calcsize(_FORMAT))

    def get(self) -> int:
        """The offset."""
        (offset,) = struct.unpack(_FORMAT, self._shared[:])
        return int(offset)

    def set(self, offset_us: int) -> None:
        """Let the clock jump."""
        self._shared[:] = struct.pack(_FORMAT, offset_us)


class JumpingClock(SystemClock):
    """The machine's clock with an offset."""

    offset: ClockOffset

    def now_us(self) -> int:
        return super().now_us() + self.offset.get()


def main() -> None:
    """For each order on standard input: fork, and say the number of the process."""
    import dpledger.server  # what takes long to load
    from dpledger.api import app
    from dpledger.cli.application import main as run_command

    assert dpledger.server is not None
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    for line in sys.stdin:
        order = Order(**json.loads(line))
        child = os.fork()
        if child == 0:
            _prepare(order)
            vars(app)["SystemClock"] = JumpingClock
            where = ["--database", order.database, "--key-file", order.key_file]
            sys.argv = ["dpledger", "serve", "--host", HOST, "--port", str(order.port), *where]
            run_command()
            os._exit(0)
        sys.stdout.write(f"{child}\n")
        sys.stdout.flush()


def _prepare(order: Order) -> None:
    """A process group of its own, with its own log and clock."""
    os.setpgid(0, 0)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    log = os.open(order.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)
    os.dup2(nothing, 1)
    os.dup2(log, 2)
    JumpingClock.offset = ClockOffset(Path(order.clock_file))


class Nursery:
    """The other end: orders service processes."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.chaos.nursery"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()

    def start(self, order: Order) -> int:
        """The process, which is the leader of its group; it may not listen yet."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(asdict(order)) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, "the process that starts services has ended"
        return int(line)


if __name__ == "__main__":
    main()
