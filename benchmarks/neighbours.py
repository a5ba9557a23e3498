"""Does one tenant's worst behaviour hold up another tenant?

One service takes a steady, modest flow of authorizations from one tenant, in rounds that take turns: alone,
and beside an attack that another token makes from a process of its own: bodies of 4 MB of unknown keys or
of empty lists, lists of 1,000 spends, 800 requests sent by half, questions without end. A latency counts from
the moment a request is due, so that a server that stops to answer cannot hide it. What is printed is
the median over rounds of the p99 beside the attack over the p99 alone, and the worst of those last.
"""

import asyncio
import contextlib
import json
import os
import selectors
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.baseline import BUDGET, DATASET, STEP
from benchmarks.ledger import Server, service
from benchmarks.load import Connection, Order, Result
from benchmarks.questions import calibration
from benchmarks.servers import HOST, another_database, postgresql

ROUNDS = 3
SECONDS = 2.0
WARM_UP_SECONDS = 0.3
REQUESTS_PER_SECOND = 60
MOST_CONNECTIONS = 64
ATTACKERS = 4
HALF_SENT = 800
LISTED = 1_000
OTHERS = "others"
"""The attackers' own dataset."""
GOAL = 5.0


@dataclass(frozen=True)
class Attack:
    """What an attacker sends: one request over and over, or the beginning of one that never ends."""

    name: str
    port: int
    path: str
    token: str
    connections: int = ATTACKERS
    seconds: float = 30.0

    def requests(self) -> Iterator[bytes]:
        """Requests without end; each with a key of its own."""
        body, number = BODIES[self.name]().encode(), os.getpid() * 10**6
        while True:
            number += 1
            if self.name == "questions":
                body = json.dumps(calibration(number % 10**9)).encode()
            head = (
                f"POST {self.path} HTTP/1.1\r\nHost: {HOST}:{self.port}\r\n"
                f"Authorization: Bearer {self.token}\r\nContent-Type: application/json\r\n"
                f"Content-Length: {len(body)}\r\nIdempotency-Key: attack-{number}\r\n\r\n"
            )
            yield head.encode() + body


def _spends(mode: str) -> str:
    item = {"dataset": OTHERS, **STEP}
    return json.dumps({"mode": mode, "items": [item] * LISTED})


BODIES: dict[str, Callable[[], str]] = {
    "keys": lambda: "{" + ",".join(f'"k{number:06d}":1' for number in range(300_000)) + "}",
    "lists": lambda: '{"releases":[' + "[]," * 1_300_000 + "[]]}",
    "bulk": lambda: _spends("all-or-nothing"),
    "each": lambda: _spends("each"),
    "half-sent": lambda: json.dumps(STEP),
    "questions": lambda: "",
}
"""The body of each attack; no two questions are alike."""


async def attack(order: Attack) -> Counter[str]:
    """Attack until standard input ends, or the time is over; returns the answers by status."""
    statuses: Counter[str] = Counter()
    enough = asyncio.Event()
    asyncio.get_running_loop().add_reader(sys.stdin, enough.set)
    work = _hold_half if order.name == "half-sent" else _send_all
    requests = order.requests()
    tasks = [asyncio.create_task(work(order, requests, statuses)) for _ in range(order.connections)]
    print("attacking", flush=True)
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(enough.wait(), order.seconds)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    return statuses


async def _send_all(order: Attack, requests: Iterator[bytes], statuses: Counter[str]) -> None:
    while True:
        with contextlib.suppress(OSError, EOFError):
            reader, writer = await asyncio.open_connection(HOST, order.port)
            with contextlib.closing(writer):
                while True:
                    writer.write(next(requests))
                    await writer.drain()
                    statuses[await _answered(reader)] += 1
        await asyncio.sleep(0.01)


async def _answered(reader: asyncio.StreamReader) -> str:
    head = await reader.readuntil(b"\r\n\r\n")
    length = head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0]
    await reader.readexactly(int(length))
    return head[9:12].decode()


async def _hold_half(order: Attack, requests: Iterator[bytes], statuses: Counter[str]) -> None:
    """Send half of a request, in its head or in its body, and wait until the server has enough of it."""
    request = next(requests)
    head = request.index(b"\r\n\r\n")
    half = request[: head // 2 if hash(request) % 2 else -5]
    while True:
        with contextlib.suppress(OSError, EOFError):
            reader, writer = await asyncio.open_connection(HOST, order.port)
            with contextlib.closing(writer):
                writer.write(half)
                statuses[(await reader.read(65_536))[9:12].decode() or "closed"] += 1
        await asyncio.sleep(0.1)


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


def fire_steadily(order: Order) -> Result:
    """Send a steady flow from a process of its own."""
    command = [sys.executable, "-m", "benchmarks.neighbours", "steady"]
    done = subprocess.run(
        command, input=json.dumps(asdict(order)), capture_output=True, text=True, check=True
    )
    result = Result(**json.loads(done.stdout))
    if set(result.statuses) != {"201"}:
        raise RuntimeError(f"the quiet tenant was answered {result.statuses}")
    return result


@contextlib.contextmanager
def attacked(order: Attack) -> Iterator[None]:
    """Run an attack beside the block."""
    command = [sys.executable, "-m", "benchmarks.neighbours", "attack", json.dumps(asdict(order))]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    process.stdout.readline()
    try:
        yield
    finally:
        told, _ = process.communicate(timeout=60.0)
        print(f"    {order.name} was answered {told.strip()}", flush=True)


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
            return Attack(name, self.server.port, "/v1/authorizations", self.spender)
        if name == "half-sent":
            path = f"/v1/datasets/{OTHERS}/authorizations"
            return Attack(name, self.server.port, path, self.spender, HALF_SENT)
        path = "/v1/calibrations" if name == "questions" else "/v1/costs"
        return Attack(name, self.server.port, path, self.reader)


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
        alone = fire_steadily(both.order(f"{name}-{number}-alone")).latency(0.99)
        with attacked(both.attack(name)):
            beside = fire_steadily(both.order(f"{name}-{number}-beside")).latency(0.99)
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
                for name in names or BODIES:
                    found[f"{database} {name}"] = ratio(both, name)
    for name, each in found.items():
        print(f"{name:<22} {each:.2f}")
    print(f"p99 beside each attack over p99 alone, median of {ROUNDS} rounds; goal: at most {GOAL:g}")
    print(f"ratio worst={max(found.values()):.2f}")


if __name__ == "__main__":
    if sys.argv[1:2] == ["steady"]:
        json.dump(asdict(steady(Order(**json.load(sys.stdin)))), sys.stdout)
    elif sys.argv[1:2] == ["attack"]:
        print(json.dumps(asyncio.run(attack(Attack(**json.loads(sys.argv[2]))))))
    else:
        main(sys.argv[1:])
