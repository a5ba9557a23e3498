"""Do queries slow authorizations down?

One service on SQLite takes the load of ``make bench-ledger`` at 32 connections, in rounds that take turns:
alone, and beside connections that ask one calibration or composition after another, no two of them
equal, until 5,000 have been answered. What is printed is the median over pairs of rounds of the rate
beside queries over the rate alone.
"""

import itertools
import json
import selectors
import statistics
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from benchmarks.ledger import KINDS_CONNECTIONS, Server, checked, service
from benchmarks.load import Connection, Order, fire

QUERIES = 5_000
ASKERS = 4
ROUNDS_AT_LEAST = 5
SECONDS = 10.0
ROUNDS_AT_MOST = 80


SAMPLE = {"scheme": "poisson", "rate": 0.01}
GAUSSIAN = {"mechanism": "gaussian", "sensitivity": 1.0}


def calibration(number: int) -> dict[str, Any]:
    """How much noise a plan needs; for another target each time."""
    target = {"epsilon": 1.0 + number * 1e-6, "delta": 1e-5}
    step = {"releases": [GAUSSIAN], "sample": SAMPLE, "steps": 1000}
    return {"solve_for": "noise_std", "adjacency": "add-remove", "target": target, **step}


def composition(number: int) -> dict[str, Any]:
    """What a plan costs in all; another noise each time."""
    release = {**GAUSSIAN, "noise_std": 1.0 + number * 1e-6}
    return {
        "adjacency": "add-remove",
        "plan": [{"releases": [release], "sample": SAMPLE, "times": 1000}],
        "delta": 1e-5,
        "method": "rdp",
    }


def requests(port: int, token: str, first: int) -> Iterator[bytes]:
    """Queries without end, in turns of both kinds."""
    for number in itertools.count(first):
        path, query = ("calibrations", calibration) if number % 2 else ("compositions", composition)
        yield next(Order(port, f"/v1/{path}", "POST", token, json.dumps(query(number))).requests())


def ask(port: int, token: str, first: int) -> None:
    """Ask over a few connections until standard input ends; then print the answers by status.

    A first line tells that the first query was answered: the process that computes has started.
    """
    source, statuses = requests(port, token, first), Counter[str]()
    with selectors.DefaultSelector() as selector:
        for _ in range(ASKERS):
            connection = Connection(Order(port, "/"))
            selector.register(connection.socket, selectors.EVENT_READ, connection)
            connection.send(next(source))
        selector.register(sys.stdin, selectors.EVENT_READ)
        while True:
            for ready, _ in selector.select():
                if ready.data is None:
                    json.dump(statuses, sys.stdout)
                    return
                status = ready.data.receive()
                if status is not None:
                    if not statuses:
                        print("asking", flush=True)
                    statuses[status.decode()] += 1
                    ready.data.send(next(source))


class Asker:
    """A process that asks from the beginning of the block to its end."""

    def __init__(self, server: Server, first: int) -> None:
        command = [sys.executable, "-m", "benchmarks.queries", str(server.port), server.token, str(first)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        self._process.stdout.readline()

    def stop(self) -> int:
        """End it; returns how many queries were answered."""
        reported, _ = self._process.communicate()
        statuses: dict[str, int] = json.loads(reported)
        if set(statuses) - {"200"}:
            raise RuntimeError(f"queries were answered {statuses}")
        return sum(statuses.values())


def rate(server: Server, number: int) -> float:
    """Authorizations a second in one round."""
    order = server.order(KINDS_CONNECTIONS, number, SECONDS)
    return checked(server, fire(order)).rate


def pair(server: Server, number: int, asked: int) -> tuple[float, float, int]:
    """The rates alone and beside queries, and how many queries were answered meanwhile."""
    alone = rate(server, 2 * number)
    asker = Asker(server, asked)
    beside = rate(server, 2 * number + 1)
    return alone, beside, asker.stop()


def main() -> None:
    """Measure and print."""
    ratios: list[float] = []
    answered = 0
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        server = stack.enter_context(service("sqlite", f"sqlite:///{folder / 'ledger.db'}", folder))
        while len(ratios) < ROUNDS_AT_LEAST or answered < QUERIES:
            if len(ratios) == ROUNDS_AT_MOST:
                raise RuntimeError(f"only {answered} queries were answered in {ROUNDS_AT_MOST} rounds")
            alone, beside, more = pair(server, len(ratios), len(ratios) * QUERIES)
            answered += more
            ratios.append(beside / alone)
            print(
                f"alone {alone:6.0f}/s  beside {more:4d} queries {beside:6.0f}/s  {ratios[-1]:.2f}",
                flush=True,
            )
    print(f"{answered} calibrations and compositions; goal: at least 0.8 of the rate without them")
    print(f"ratio authorize={statistics.median(ratios):.2f}")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        ask(int(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
    else:
        main()
