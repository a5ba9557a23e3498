"""How fast one hot dataset is authorized against, side by side with an empty FastAPI route.

Four servers on loopback: an empty FastAPI route, the service on SQLite (``synchronous=FULL``), the
service on PostgreSQL, and the plain one-transaction-per-request version on PostgreSQL. The service on SQLite
has two more hot datasets, with a zCDP and with a plan budget for one step. Short rounds take turns, so that
all of them meet the same noise; what is printed is the median round, and ratios are medians of ratios within
a round. Every request has its own idempotency key, every yes is on disk.
"""

import json
import statistics
import sys
import tempfile
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks.baseline import BUDGET, DATASET, SECRET, STEP
from benchmarks.load import Order, Result, fire
from benchmarks.servers import COMMAND, HOST, another_database, free_port, make_token, postgresql, serving

CONNECTIONS = (1, 8, 32, 128)
GOAL_CONNECTIONS = 32
ROUNDS = 3
GOAL_ROUNDS = 5
SECONDS = 3.0
FULL_STEP: dict[str, Any] = {
    "run": "bench",
    "releases": [{"mechanism": "gaussian", "sensitivity": 1.0, "noise_std": 1e6}],
}
KINDS: dict[str, dict[str, Any]] = {
    "zcdp": {"accounting": "zcdp", "rho": 1.0},
    "plan": {
        "accounting": "plan",
        "epsilon": 1.0,
        "delta": 1e-5,
        "items": [{"name": "look", "releases": FULL_STEP["releases"], "times": 10**8}],
    },
}
"""Kinds of budgets that are compared with each other, on the service on SQLite."""


@dataclass(frozen=True)
class Server:
    """Something that takes authorizations."""

    name: str
    port: int
    token: str
    dataset: str = DATASET
    step: str = json.dumps(STEP)

    def order(self, connections: int, number: int) -> Order:
        """One round's order."""
        keys = f"{self.name}-{connections}-{number}"
        return Order(
            self.port,
            f"/v1/datasets/{self.dataset}/authorizations",
            "POST",
            self.token,
            self.step,
            keys,
            connections=connections,
            seconds=SECONDS,
        )


@contextmanager
def plain_server(name: str, *database: str) -> Iterator[Server]:
    """The empty route, or with a database the plain version."""
    port = free_port()
    with serving([sys.executable, "-m", "benchmarks.baseline", str(port), *database], port):
        yield Server(name, port, SECRET)


@contextmanager
def service(name: str, database: str, folder: Path) -> Iterator[Server]:
    """The service as ``dpledger serve`` starts it, with the hot dataset opened."""
    port, keys = free_port(), folder / f"{name}.keys.json"
    where = ["--database", database, "--key-file", str(keys)]
    token = make_token(database, keys)
    with serving([COMMAND, "serve", "--host", HOST, "--port", str(port), *where], port):
        open_dataset(port, token, DATASET, BUDGET)
        for kind, budget in KINDS.items():
            open_dataset(port, token, kind, budget)
        yield Server(name, port, token)


def open_dataset(port: int, token: str, name: str, budget: dict[str, Any]) -> None:
    """Open a hot dataset."""
    headers = {
        "Authorization": f"Bearer {token}",
        "Content-Type": "application/json",
        "Idempotency-Key": f"open-{name}",
    }
    body = json.dumps({"name": name, "budget": budget}).encode()
    urllib.request.urlopen(urllib.request.Request(f"http://{HOST}:{port}/v1/datasets", body, headers)).close()


@contextmanager
def servers() -> Iterator[list[Server]]:
    """All four, each with what it needs."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        first = stack.enter_context(postgresql(folder))
        sqlite = stack.enter_context(service("sqlite", f"sqlite:///{folder / 'ledger.db'}", folder))
        yield [
            stack.enter_context(plain_server("empty")),
            sqlite,
            *(replace(sqlite, name=kind, dataset=kind, step=json.dumps(FULL_STEP)) for kind in KINDS),
            stack.enter_context(service("postgresql", another_database(first, "ledger"), folder)),
            stack.enter_context(plain_server("baseline", first)),
        ]


Rounds = list[dict[str, Result]]


def measure(competing: list[Server], connections: int) -> Rounds:
    """Rounds in which the servers take turns."""
    rounds = GOAL_ROUNDS if connections == GOAL_CONNECTIONS else ROUNDS
    return [
        {server.name: checked(server, fire(server.order(connections, number))) for server in competing}
        for number in range(rounds)
    ]


def checked(server: Server, result: Result) -> Result:
    """Only a yes counts."""
    wanted = {"200" if server.name == "empty" else "201"}
    if set(result.statuses) != wanted:
        raise RuntimeError(f"{server.name} answered {result.statuses}")
    return result


def ratio(rounds: Rounds, name: str, to: str) -> float:
    """The median over rounds of one server's rate over another's."""
    return statistics.median(each[name].rate / each[to].rate for each in rounds)


def show(connections: int, rounds: Rounds) -> None:
    """One line per server."""
    for name in rounds[0]:
        results = [each[name] for each in rounds]
        rate = statistics.median(result.rate for result in results)
        middle, late = (
            statistics.median(1e3 * result.latency(share) for result in results) for share in (0.5, 0.99)
        )
        share = ratio(rounds, name, "empty")
        print(
            f"{connections:>11} {name:<11} {rate:>10.0f} {middle:>9.2f} {late:>9.2f} {share:>9.3f}",
            flush=True,
        )


def main() -> None:
    """Measure and print."""
    print(
        f"{'connections':>11} {'server':<11} {'requests/s':>10} {'p50 ms':>9} {'p99 ms':>9} {'of empty':>9}"
    )
    found: dict[int, Rounds] = {}
    with servers() as competing:
        for connections in CONNECTIONS:
            found[connections] = measure(competing, connections)
            show(connections, found[connections])
    goal = found[GOAL_CONNECTIONS]
    of_empty = {name: ratio(goal, name, "empty") for name in ("sqlite", "postgresql")}
    print(f"goals at {GOAL_CONNECTIONS}: sqlite 0.6 and postgresql 0.45 of empty, 2.5 times the baseline")
    print(
        f"ratio sqlite={of_empty['sqlite']:.2f} postgresql={of_empty['postgresql']:.2f} "
        f"baseline={ratio(goal, 'postgresql', 'baseline'):.2f} plan={ratio(goal, 'plan', 'zcdp'):.2f}"
    )


if __name__ == "__main__":
    main()
