"""Fail-overs under load: one service process, clients that ask without a pause, and leaders that die."""

import contextlib
import random
import re
import shutil
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from dpledger.auth.keys import load_keys
from tests.chaos.classes import Class
from tests.chaos.faults import stream
from tests.chaos.history import History
from tests.chaos.storm import Caller, attempt, look_back
from tests.chaos.verdict import Verdict, judge
from tests.chaos.workload import Scenery, Workload
from tests.ha.cluster import PATIENCE_SECONDS, Cluster
from tests.reliability.database_targets import DatabaseTarget, with_token
from tests.reliability.processes import Running, await_service, start_service
from tests.reliability.wire import HOST, Ask, ask

__all__ = ["FailOver", "Load", "await_ready", "load", "standbys_seen"]

CALLERS = 6
PROBE = "probe"
_ONE_MIGRATION = threading.Lock()
"""Alembic keeps what it migrates in variables of the process, and two clusters are made in one."""
_PROBE_BUDGET = {"accounting": "zcdp", "rho": 1000.0}
_PROBE_STEP = {"run": "probe", "releases": [{"mechanism": "zcdp", "rho": 1e-4}]}


@dataclass
class Probe:
    """A client that spends one small step after another, and remembers when each was acknowledged."""

    port: int
    token: str
    history: History
    over: threading.Event
    acknowledged: list[tuple[float, float]] = field(default_factory=list)
    """When the attempt that was answered was sent, and when its answer came."""

    def run(self) -> None:
        """Open the dataset and spend from it until it is over."""
        self._ask(Ask("/v1/datasets", {"name": PROBE, "budget": _PROBE_BUDGET}, PROBE))
        number = 0
        while not self.over.is_set():
            number += 1
            self._ask(Ask(f"/v1/datasets/{PROBE}/authorizations", _PROBE_STEP, f"{PROBE}-{number}"))
            time.sleep(0.01)

    def _ask(self, request: Ask) -> None:
        asked = self.history.begin(request)
        while not asked.answers:
            sent = time.monotonic()
            met, heard = attempt(self.port, self.token, request)
            asked.met.append(met)
            if met.kind is Class.FINAL and heard is not None:
                asked.answers.append(heard)
                self.acknowledged.append((sent, time.monotonic()))
            else:
                time.sleep(0.05)


@dataclass(frozen=True)
class FailOver:
    """One leader that was killed, and how long nothing was acknowledged after."""

    killed: str
    leads: str
    acknowledged_before: int
    resumed_seconds: float


@dataclass
class Load:
    """A service process and its clients, over some fail-overs."""

    cluster: Cluster
    target: DatabaseTarget
    running: Running
    history: History
    probe: Probe
    threads: list[threading.Thread]
    over: threading.Event
    give_up: threading.Event

    @property
    def acknowledged(self) -> int:
        """How many requests have their answer."""
        return sum(asked.recorded for asked in list(self.history.asked))

    def fail_over(self, *, restart: bool) -> FailOver:
        """Kill the leader; ``restart``: its machine comes back once another leads.

        Of two members the one that is left acknowledges nothing before that: it has nobody to wait for.
        """
        leader = self.cluster.leader()
        before = self.acknowledged
        leader.kill()
        killed_at = time.monotonic()
        follower = self.cluster.leader()
        assert follower is not leader
        if restart:
            leader.start()
        first = self._await_acknowledged(killed_at)
        return FailOver(leader.name, follower.name, before, first - killed_at)

    def _await_acknowledged(self, after: float) -> float:
        """When the first answer came to something that was sent after a moment."""
        give_up = time.monotonic() + PATIENCE_SECONDS
        while True:
            found = [answered for sent, answered in list(self.probe.acknowledged) if sent > after]
            if found:
                return found[0]
            assert time.monotonic() < give_up, f"silence: {self.running.log.read_text()[-3000:]}"
            time.sleep(0.05)

    def judge(self, seed: int) -> Verdict:
        """End the load; every answer and every ledger against the pure model."""
        self.over.set()
        for thread in self.threads:
            thread.join(PATIENCE_SECONDS)
        assert not any(thread.is_alive() for thread in self.threads), "a client waits for ever"
        look_back([self.running.port], self.target.token, self.history, stream(seed, "again"))
        actor = self.target.token.split("_")[1]
        return judge(self.history, actor, load_keys(self.target.key_file).receipt_seed)


@contextlib.contextmanager
def load(cluster: Cluster, seed: int) -> Iterator[Load]:
    """A service on the cluster that requires a standby, and clients that ask it from now on."""
    folder = Path(tempfile.mkdtemp(prefix="ha-service-"))
    with _ONE_MIGRATION:
        target = with_token(cluster.url, folder / "keys.json")
    running = start_service(target, DPLEDGER_REQUIRE_STANDBY="1", DPLEDGER_STANDBY_SECONDS="0.5")
    over, give_up = threading.Event(), threading.Event()
    try:
        await_service(running)
        history, scenery = History(), Scenery()
        callers = [
            Caller(running.port, target.token, _workload(number, scenery, seed), history, over, give_up)
            for number in range(CALLERS)
        ]
        probe = Probe(running.port, target.token, history, over)
        work: list[Callable[[], None]] = [probe.run, *[caller.run for caller in callers]]
        threads = [threading.Thread(target=each, daemon=True) for each in work]
        for thread in threads:
            thread.start()
        yield Load(cluster, target, running, history, probe, threads, over, give_up)
    finally:
        over.set()
        give_up.set()
        running.process.kill()
        running.process.wait()
        shutil.rmtree(folder, ignore_errors=True)


def _workload(number: int, scenery: Scenery, seed: int) -> Workload:
    dice: random.Random = stream(seed, "caller", number)
    return Workload(f"caller{number}", scenery, dice)


def await_ready(loaded: Load, status: int, reason: str = "") -> None:
    """Wait until the service says that it is ready, or why it is not."""
    give_up = time.monotonic() + PATIENCE_SECONDS
    while True:
        answer = ask(loaded.running.port, loaded.target.token, Ask("/readyz", method="GET"))
        if answer.status == status and reason in str(answer.body):
            return
        assert time.monotonic() < give_up, f"/readyz says {answer}, not {status} {reason}"
        time.sleep(0.2)


def standbys_seen(loaded: Load) -> float:
    """The gauge of synchronous standbys."""
    request = urllib.request.Request(
        f"http://{HOST}:{loaded.running.port}/metrics",
        headers={"Authorization": f"Bearer {loaded.target.token}"},
    )
    with urllib.request.urlopen(request, timeout=PATIENCE_SECONDS) as answer:
        found = re.findall(r"^dpledger_synchronous_standbys (\S+)$", answer.read().decode(), re.M)
    return float(found[0])
