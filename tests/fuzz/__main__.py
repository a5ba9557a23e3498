"""``python -m tests.fuzz --requests 100000 --seed 7``: odd requests to a served process, each answer judged.

One request in twenty is of a walk by schemathesis over the API's description, the others are valid ones that
were mutated. Several clients send at once, each to datasets of its own, whose ledgers are checked at the end
of every few thousand requests. The last line is ``requests=… errors_500=… hangs=… memory_growth=…``.
"""

import argparse
import functools
import os
import secrets
import statistics
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import httpx2

from dpledger.api.app import create_app
from dpledger.settings import Settings
from tests.fuzz.judge import Judge
from tests.fuzz.machine import machine_over, walk
from tests.fuzz.run import HANG_SECONDS, Findings, Sender, check_ledgers, existing, fuzz_world
from tests.fuzz.world import World
from tests.reliability.database_targets import DatabaseTarget, sqlite_place
from tests.reliability.processes import Running, services
from tests.reliability.wire import HOST

CLIENTS = 3
WORLD_REQUESTS = 3000
WALKED_SHARE = 0.05
WALK_STEPS = 25
SHOWN = 20
SAMPLE_SECONDS = 1.0
MOST_GROWTH = 1.1
"""Of the service's memory, from the second quarter of the run to the last: caches fill in the first."""
LEAST_JUDGED = 50_000
"""In a shorter run the caches are still filling in the last quarter, and memory is only shown."""


@dataclass
class Gauge:
    """The memory of the service, sampled."""

    process: int
    samples_mb: list[float] = field(default_factory=list)

    def sample(self) -> None:
        """Take one."""
        pages = int(Path(f"/proc/{self.process}/statm").read_text().split()[1])
        self.samples_mb.append(pages * os.sysconf("SC_PAGE_SIZE") / 2**20)

    @property
    def growth(self) -> float:
        """The median of the last quarter by that of the second."""
        quarter = max(1, len(self.samples_mb) // 4)
        early = self.samples_mb[quarter : 2 * quarter] or self.samples_mb
        return statistics.median(self.samples_mb[-quarter:]) / statistics.median(early)


@dataclass
class Run:
    """All clients of one served process."""

    target: DatabaseTarget
    port: int
    seed: int
    description: dict[str, Any]
    findings: Findings = field(default_factory=Findings)

    def sender(self) -> Sender:
        """A client of its own."""
        client = httpx2.Client(base_url=f"http://{HOST}:{self.port}", timeout=HANG_SECONDS)
        return Sender(client, Judge(self.description), self.findings)

    def walk(self, requests: int) -> None:
        """Walks over the description until so many requests were sent."""
        random, sender = Random(self.seed), self.sender()
        machine = machine_over(sender, self.description, self.target.token, random)
        while self.findings.requests < requests and self.findings.hold:
            walk(machine, random.getrandbits(32), 20, WALK_STEPS)
        check_ledgers(sender, existing(sender, self.target.token), set(), self.target.token)

    def mutate(self, number: int, tokens: dict[str, str], requests: int) -> None:
        """One client: worlds one after another until all clients together have sent enough."""
        sender, worlds = self.sender(), 0
        while self.findings.requests < requests and len(self.findings.faults) < SHOWN:
            random = Random(f"{self.seed}-{number}-{worlds}")
            left = (requests - self.findings.requests) // CLIENTS + 1
            world = World(f"w{number}-{worlds}", random, tokens)
            fuzz_world(sender, world, min(WORLD_REQUESTS, left))
            worlds += 1


def main() -> int:
    """Run, print what was found, and end with 0 if nothing was."""
    reader = argparse.ArgumentParser(prog="make fuzz")
    reader.add_argument("--requests", type=int, required=True)
    reader.add_argument("--seed", type=int, default=None)
    chosen = reader.parse_args()
    seed = secrets.randbits(32) if chosen.seed is None else chosen.seed
    _say(f"seed {seed}")
    with tempfile.TemporaryDirectory() as folder:
        target = sqlite_place(Path(folder))
        with services(target, 1) as (served,):
            run = Run(target, served.port, seed, create_app(Settings()).openapi())
            gauge = Gauge(served.process.pid)
            _drive(run, gauge, chosen.requests)
            alive = served.process.poll() is None
            return _report(run.findings, gauge, served) if alive else 1


def _drive(run: Run, gauge: Gauge, requests: int) -> None:
    """Let walks and then all clients run, and say now and then how far they are."""
    tokens = _tokens(run)
    _follow([functools.partial(run.walk, int(WALKED_SHARE * requests))], run, gauge, requests)
    clients = [functools.partial(run.mutate, each, tokens, requests) for each in range(CLIENTS)]
    _follow(clients, run, gauge, requests)


def _noting(part: Callable[[], None], findings: Findings) -> None:
    """A part that breaks off is a finding as well."""
    try:
        part()
    except Exception:
        findings.faults.append(f"broke off: {traceback.format_exc()[-1500:]}")


def _follow(parts: Sequence[Callable[[], None]], run: Run, gauge: Gauge, requests: int) -> None:
    threads = [threading.Thread(target=_noting, args=(part, run.findings)) for part in parts]
    for thread in threads:
        thread.start()
    said, began = 0, time.monotonic()
    while any(thread.is_alive() for thread in threads):
        time.sleep(SAMPLE_SECONDS)
        gauge.sample()
        if run.findings.requests >= said + max(1, requests // 20):
            said = run.findings.requests
            pace = said / max(1e-9, time.monotonic() - began)
            _say(f"  {said} requests, {gauge.samples_mb[-1]:.0f} MB, {pace:.0f}/s since this part began")


def _tokens(run: Run) -> dict[str, str]:
    """Tokens of every scope, and one for datasets that nobody has."""
    wanted: dict[str, dict[str, Any]] = {
        "read": {"scopes": ["read"]},
        "spend": {"scopes": ["spend"]},
        "elsewhere": {"scopes": ["admin"], "datasets": ["elsewhere"]},
    }
    found = {"admin": run.target.token, "none": f"dpl_unknown_{'a' * 52}"}
    with httpx2.Client(base_url=f"http://{HOST}:{run.port}") as client:
        for name, body in wanted.items():
            headers = {"Authorization": f"Bearer {run.target.token}", "Idempotency-Key": name}
            found[name] = client.post("/v1/tokens", json=body, headers=headers).json()["token"]
    return found


def _report(findings: Findings, gauge: Gauge, served: Running) -> int:
    for status, count in sorted(findings.statuses.items()):
        _say(f"  {status or 'no answer':>9} {count}")
    _say(f"  slowest answer {findings.slowest_seconds:.1f} s: {findings.slowest[:700]}")
    for found in [*findings.hangs[:SHOWN], *findings.faults[:SHOWN]]:
        _say(f"  found: {found[:2000]}")
    if not findings.hold:
        _say(f"  log: … {served.log.read_text(encoding='utf-8')[-5000:]}")
    flat = gauge.growth <= MOST_GROWTH or findings.requests < LEAST_JUDGED
    _say(
        f"requests={findings.requests} errors_500={findings.statuses[500]} hangs={len(findings.hangs)}"
        f" memory_growth={gauge.growth:.3f}"
    )
    return 0 if findings.hold and flat else 1


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
