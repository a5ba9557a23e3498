"""Does one tenant's worst behaviour hold up another tenant?

One service takes a steady, modest flow of authorizations from one tenant, in rounds that take turns: alone,
and beside an attack that another token makes from a process of its own: bodies of 4 MB of unknown keys or
of empty lists, lists of 1,000 spends, 800 requests sent by half, queries without end. A latency counts from
the moment a request is due, so that a server that stops to answer cannot hide it. What is printed is
the median over rounds of the p99 beside the attack over the p99 alone, and the worst of those last.
"""

import contextlib
import json
import selectors
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections import Counter, deque
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.attacks import ATTACKS, OTHERS, Attack
from benchmarks.baseline import BUDGET, DATASET, STEP
from benchmarks.ledger import Server, service
from benchmarks.load import Connection, Order, Result
from benchmarks.servers import HOST, another_database, postgresql

ROUNDS = 3
SECONDS = 2.0
WARM_UP_SECONDS = 0.3
REQUESTS_PER_SECOND = 60
MOST_CONNECTIONS = 64
HALF_SENT = 800
GOAL = 5.0


def steady(order: Order) -> Result:
    """Send requests when they are due, over as many connections as that takes; latency counts from then."""
    requests, idle, busy = order.requests(), deque[Connection](), 0
    began = time.perf_counter()
    count = int((order.warm_up_seconds + order.seconds) * REQUESTS_PER_SECOND)
    due = deque(began + number / REQUESTS_PER_SECOND for number in range(count))
    sent: dict[Connection, float] = {}
    found: list[tuple[float, float, str]] = []
    with selectors.DefaultSelector() as selector:
        while due or busy:
            now = time.perf_counter()
            while due and due[0] <= now and (idle or len(sent) < MOST_CONNECTIONS):
                connection = idle.popleft() if idle else _connected(order, selector)
                sent[connection] = due.popleft()
                connection.send(next(requests))
                busy += 1
            pause = max(0.0, due[0] - time.perf_counter()) if due else 10.0
            for ready, _ in selector.select(pause):
                status = ready.data.receive()
                if status is not None:
                    found.append((sent[ready.data], time.perf_counter() - sent[ready.data], status.decode()))
                    idle.append(ready.data)
                    busy -= 1
    for connection in sent:
        connection.socket.close()
    counted = [each for each in found if each[0] >= began + order.warm_up_seconds]
    statuses = Counter(status for _, _, status in counted)
    return Result(dict(statuses), order.seconds, sorted(latency for _, latency, _ in counted))


def _connected(order: Order, selector: selectors.BaseSelector) -> Connection:
    connection = Connection(order)
    selector.register(connection.socket, selectors.EVENT_READ, connection)
    return connection


def checked(result: Result) -> Result:
    """Only a yes counts."""
    if set(result.statuses) != {"201"}:
        raise RuntimeError(f"the quiet tenant was answered {result.statuses}")
    return result


@contextlib.contextmanager
def attacked(order: Attack) -> Iterator[None]:
    """Run an attack beside the block."""
    command = [sys.executable, "-m", "benchmarks.attacks", json.dumps(asdict(order))]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    process.stdout.readline()
    try:
        yield
    finally:
        reported, _ = process.communicate(timeout=60.0)
        print(f"    {order.name} was answered {reported.strip()}", flush=True)


@dataclass(frozen=True)
class Tenants:
    """A service with two tenants: the quiet one, and one who reads or spends elsewhere."""

    server: Server
    quiet: str
    reader: str
    spender: str

    def order(self, keys: str) -> Order:
        """One round of the quiet tenant."""
        path, body = f"/v1/datasets/{DATASET}/authorizations", json.dumps(STEP)
        warm = WARM_UP_SECONDS
        return Order(
            self.server.port, path, "POST", self.quiet, body, keys, seconds=SECONDS, warm_up_seconds=warm
        )

    def attack(self, name: str) -> Attack:
        """An attack by the other tenant."""
        if name in ("bulk", "each"):
            return Attack(name, self.server.port, "/v1/authorizations", self.spender, STEP)
        if name == "half-sent":
            path = f"/v1/datasets/{OTHERS}/authorizations"
            return Attack(name, self.server.port, path, self.spender, STEP, HALF_SENT)
        path = "/v1/calibrations" if name == "queries" else "/v1/costs"
        return Attack(name, self.server.port, path, self.reader, STEP)


def tenants(server: Server) -> Tenants:
    """Open the attackers' dataset and make everybody's token."""
    post(server, "/v1/datasets", {"name": OTHERS, "budget": {**BUDGET, "epsilon": 1e6}})
    quiet = post(server, "/v1/tokens", {"scopes": ["spend"], "datasets": [DATASET]})
    reader = post(server, "/v1/tokens", {"scopes": ["read"], "datasets": [OTHERS]})
    spender = post(server, "/v1/tokens", {"scopes": ["spend"], "datasets": [OTHERS]})
    return Tenants(server, quiet["token"], reader["token"], spender["token"])


def post(server: Server, path: str, body: dict[str, Any]) -> Any:
    """Post as the admin."""
    headers = {
        "Authorization": f"Bearer {server.token}",
        "Content-Type": "application/json",
        "Idempotency-Key": f"set-up-{json.dumps(body)}"[:255],
    }
    url = f"http://{HOST}:{server.port}{path}"
    request = urllib.request.Request(url, json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request) as answer:
        return json.load(answer)


def ratio(both: Tenants, name: str) -> float:
    """The median over rounds of the quiet tenant's p99 beside an attack over its p99 alone."""
    ratios = []
    for number in range(ROUNDS):
        alone = checked(steady(both.order(f"{name}-{number}-alone"))).latency(0.99)
        with attacked(both.attack(name)):
            beside = checked(steady(both.order(f"{name}-{number}-beside"))).latency(0.99)
        ratios.append(beside / alone)
        print(
            f"  {both.server.name:<11} {name:<10} p99 alone {1e3 * alone:7.1f} ms, "
            f"beside it {1e3 * beside:7.1f} ms: {ratios[-1]:.2f}",
            flush=True,
        )
    return statistics.median(ratios)


def main(names: list[str]) -> None:
    """Measure and print."""
    found: dict[str, float] = {}
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        databases = {
            "sqlite": f"sqlite:///{folder / 'ledger.db'}",
            "postgresql": another_database(stack.enter_context(postgresql(folder)), "ledger"),
        }
        for database, url in databases.items():
            with service(database, url, folder) as server:
                both = tenants(server)
                for name in names or ATTACKS:
                    found[f"{database} {name}"] = ratio(both, name)
    for name, each in found.items():
        print(f"{name:<22} {each:.2f}")
    print(f"p99 beside each attack over p99 alone, median of {ROUNDS} rounds; goal: at most {GOAL:g}")
    print(f"ratio worst={max(found.values()):.2f}")


if __name__ == "__main__":
    main(sys.argv[1:])
