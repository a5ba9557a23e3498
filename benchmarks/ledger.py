"""How fast one hot dataset is authorized against, side by side with what disk and framework allow.

Six servers on loopback: an empty FastAPI route; the durable floors of a file and of PostgreSQL
(:mod:`benchmarks.floor`); the service on SQLite (``synchronous=FULL``) and on PostgreSQL; and the plain
one-transaction-per-request version on PostgreSQL. The service on SQLite has two more hot datasets, with a
zCDP and with a plan budget for one step. Short rounds take turns, so that all of them meet the same noise;
what is printed is the median round, and ratios are medians of ratios within a round. Every request has its
own idempotency key, every yes is on disk.

    python -m benchmarks.ledger [<seconds per round> [<rounds>]]

Last line: the worst ratio over the numbers of connections of each service to its own floor, and that of
PostgreSQL to the plain version at 32.
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
KINDS_CONNECTIONS = 32
"""Where kinds of budgets, and the plain version, are compared."""
ROUNDS = 5
SECONDS = 2.0
FLOORS = {"sqlite": "file-floor", "postgresql": "row-floor"}
"""The durable floor that each service is held to."""
GOALS = {"sqlite": 0.75, "postgresql": 0.65}
GOAL_LATE = 2.5
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

    def order(self, connections: int, number: int, seconds: float) -> Order:
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
            seconds=seconds,
        )


@contextmanager
def plain_server(name: str, *database: str) -> Iterator[Server]:
    """The empty route, or with a database the plain version."""
    port = free_port()
    with serving([sys.executable, "-m", "benchmarks.baseline", str(port), *database], port):
        yield Server(name, port, SECRET)


@contextmanager
def floor(name: str, target: str) -> Iterator[Server]:
    """A durable floor, on a file or a database."""
    port = free_port()
    with serving([sys.executable, "-m", "benchmarks.floor", str(port), target], port):
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
    """All of them, each with what it needs."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        first = stack.enter_context(postgresql(folder))
        sqlite = stack.enter_context(service("sqlite", f"sqlite:///{folder / 'ledger.db'}", folder))
        yield [
            stack.enter_context(plain_server("empty")),
            stack.enter_context(floor("file-floor", str(folder / "floor"))),
            sqlite,
            *(replace(sqlite, name=kind, dataset=kind, step=json.dumps(FULL_STEP)) for kind in KINDS),
            stack.enter_context(floor("row-floor", another_database(first, "floor"))),
            stack.enter_context(service("postgresql", another_database(first, "ledger"), folder)),
            stack.enter_context(plain_server("baseline", first)),
        ]


Rounds = list[dict[str, Result]]


def measure(competing: list[Server], connections: int, seconds: float, rounds: int) -> Rounds:
    """Rounds in which the servers take turns."""
    if connections != KINDS_CONNECTIONS:
        competing = [server for server in competing if server.name not in {*KINDS, "baseline"}]
    return [
        {server.name: checked(server, fire(server.order(connections, each, seconds))) for server in competing}
        for each in range(rounds)
    ]


def checked(server: Server, result: Result) -> Result:
    """Only a yes counts."""
    wanted = {"200" if server.name in {"empty", *FLOORS.values()} else "201"}
    if set(result.statuses) != wanted:
        raise RuntimeError(f"{server.name} answered {result.statuses}")
    return result


def ratio(rounds: Rounds, name: str, to: str) -> float:
    """The median over rounds of one server's rate over another's."""
    return statistics.median(each[name].rate / each[to].rate for each in rounds)


def late(rounds: Rounds, name: str, to: str) -> float:
    """The median over rounds of one server's p99 over another's."""
    return statistics.median(each[name].latency(0.99) / each[to].latency(0.99) for each in rounds)


def show(connections: int, rounds: Rounds) -> None:
    """One line per server."""
    for name in rounds[0]:
        results = [each[name] for each in rounds]
        rate = statistics.median(result.rate for result in results)
        p50, p99 = (
            statistics.median(1e3 * result.latency(share) for result in results) for share in (0.5, 0.99)
        )
        line = f"{connections:>11} {name:<11} {rate:>10.0f} {p50:>9.2f} {p99:>9.2f}"
        line += f" {ratio(rounds, name, 'empty'):>9.3f}"
        if name in FLOORS:
            line += f" {ratio(rounds, name, FLOORS[name]):>9.3f} {late(rounds, name, FLOORS[name]):>10.2f}"
        print(line, flush=True)


def worst(found: dict[int, Rounds], name: str) -> tuple[float, float]:
    """The worst over the numbers of connections: of the floor's rate, and of times the floor's p99."""
    to = FLOORS[name]
    return (
        min(ratio(rounds, name, to) for rounds in found.values()),
        max(late(rounds, name, to) for rounds in found.values()),
    )


def main() -> None:
    """Measure and print."""
    given = sys.argv[1:]
    seconds = float(given[0]) if given else SECONDS
    rounds = int(given[1]) if given[1:] else ROUNDS
    print(
        f"{'connections':>11} {'server':<11} {'requests/s':>10} {'p50 ms':>9} {'p99 ms':>9} {'of empty':>9}"
        f" {'of floor':>9} {'p99/floor':>10}"
    )
    found: dict[int, Rounds] = {}
    with servers() as competing:
        for connections in CONNECTIONS:
            found[connections] = measure(competing, connections, seconds, rounds)
            show(connections, found[connections])
    at_32 = found[KINDS_CONNECTIONS]
    rates = {name: worst(found, name) for name in FLOORS}
    goals = " and ".join(f"{name} {goal}" for name, goal in GOALS.items())
    print(f"goals: {goals} of the floor, p99 at most {GOAL_LATE} times its, at each; 2.5 times the baseline")
    of_empty = " ".join(f"{name}={ratio(at_32, name, 'empty'):.2f}" for name in FLOORS)
    p99 = " ".join(f"{name}={times:.2f}" for name, (_, times) in rates.items())
    print(f"at {KINDS_CONNECTIONS}: of empty {of_empty}, plan={ratio(at_32, 'plan', 'zcdp'):.2f}; p99 {p99}")
    of_floor = " ".join(f"{name}={share:.2f}" for name, (share, _) in rates.items())
    print(f"ratio {of_floor} baseline={ratio(at_32, 'postgresql', 'baseline'):.2f}")


if __name__ == "__main__":
    main()
