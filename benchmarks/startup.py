"""How much does a start cost? Processor seconds of ``dpledger serve`` until ``/readyz`` says yes.

    python -m benchmarks.startup [<rounds>]

Each round starts the service on a new ledger and on the one that it left, and then an interpreter that only
imports what the service is built on. Processor time counts, user and system: the seconds on the wall
depend on who else is busy. The process that answers queries is counted apart, since nothing waits for it.

Last line: ``ratio new=<x> again=<x> seconds=<again>``, the medians by that of the bare imports.
"""

import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import httpx2

from benchmarks.servers import COMMAND, HOST, free_port

ROUNDS = 5
BARE = "import fastapi, numpy, sqlalchemy, uvicorn"
_TICKS = os.sysconf("SC_CLK_TCK")
_GIVE_UP_SECONDS = 60.0


def processor_seconds(process: int) -> float:
    """User and system time that a process has taken itself."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def start(folder: Path) -> tuple[float, float]:
    """Processor and wall seconds until the service is ready."""
    port = free_port()
    where = ["--database", f"sqlite:///{folder / 'ledger.db'}", "--key-file", str(folder / "keys.json")]
    began = time.perf_counter()
    process = subprocess.Popen(
        [COMMAND, "serve", "--host", HOST, "--port", str(port), *where],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        _await_ready(port)
        return processor_seconds(process.pid), time.perf_counter() - began
    finally:
        process.terminate()
        process.wait()


def _await_ready(port: int) -> None:
    give_up = time.monotonic() + _GIVE_UP_SECONDS
    while time.monotonic() < give_up:
        try:
            if httpx2.get(f"http://{HOST}:{port}/readyz").status_code == 200:
                return
        except httpx2.TransportError:
            pass
        time.sleep(0.02)
    raise TimeoutError("the service is not ready")


def bare() -> float:
    """Processor seconds of an interpreter that imports the libraries and ends."""
    before = os.times()
    subprocess.run([sys.executable, "-c", BARE], check=True)
    after = os.times()
    return after.children_user + after.children_system - before.children_user - before.children_system


def main() -> None:
    """Measure in rounds, so that a busy spell of the machine meets all alike."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else ROUNDS
    found: dict[str, list[float]] = {"new": [], "again": [], "bare": []}
    for _ in range(rounds):
        with tempfile.TemporaryDirectory() as name:
            for which in ("new", "again"):
                seconds, wall = start(Path(name))
                found[which].append(seconds)
                print(f"{which:<6} {seconds:6.2f} s of processor, {wall:6.2f} s on the wall", flush=True)
        found["bare"].append(bare())
        print(f"bare   {found['bare'][-1]:6.2f} s of processor", flush=True)
    medians = {name: statistics.median(seconds) for name, seconds in found.items()}
    ratios = {name: medians[name] / medians["bare"] for name in ("new", "again")}
    print(f"ratio new={ratios['new']:.2f} again={ratios['again']:.2f} seconds={medians['again']:.2f}")


if __name__ == "__main__":
    main()
