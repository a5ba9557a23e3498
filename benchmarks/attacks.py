"""The attacks of ``make bench-neighbours``, each from a process of its own.

``python -m benchmarks.attacks ORDER`` attacks until its standard input ends, and then prints the answers by
status. It imports little, because it is started for every round.
"""

import asyncio
import contextlib
import json
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

__all__ = ["ATTACKS", "OTHERS", "Attack"]

HOST = "127.0.0.1"
ATTACKERS = 4
LISTED = 1_000
OTHERS = "others"
"""The attackers' own dataset."""


@dataclass(frozen=True)
class Attack:
    """What an attacker sends: one request over and over, or the beginning of one that never ends."""

    name: str
    port: int
    path: str
    token: str
    step: dict[str, Any] = field(repr=False)
    connections: int = ATTACKERS
    seconds: float = 30.0

    def requests(self) -> Iterator[bytes]:
        """Requests without end; each with a key of its own."""
        body, number = ATTACKS[self.name](self.step).encode(), os.getpid() * 10**6
        while True:
            number += 1
            if self.name == "queries":
                body = _calibration(number % 10**9).encode()
            head = (
                f"POST {self.path} HTTP/1.1\r\nHost: {HOST}:{self.port}\r\n"
                f"Authorization: Bearer {self.token}\r\nContent-Type: application/json\r\n"
                f"Content-Length: {len(body)}\r\nIdempotency-Key: attack-{number}\r\n\r\n"
            )
            yield head.encode() + body


def _spends(mode: str, step: dict[str, Any]) -> str:
    return json.dumps({"mode": mode, "items": [{"dataset": OTHERS, **step}] * LISTED})


def _calibration(number: int) -> str:
    """How much noise a plan needs; for another target each time."""
    release = {"mechanism": "gaussian", "sensitivity": 1.0}
    target = {"epsilon": 1.0 + number * 1e-6, "delta": 1e-5}
    step = {"releases": [release], "sample": {"scheme": "poisson", "rate": 0.01}, "steps": 1000}
    return json.dumps({"solve_for": "noise_std", "adjacency": "add-remove", "target": target, **step})


ATTACKS: dict[str, Callable[[dict[str, Any]], str]] = {
    "keys": lambda _: "{" + ",".join(f'"k{number:06d}":1' for number in range(300_000)) + "}",
    "lists": lambda _: '{"releases":[' + "[]," * 1_300_000 + "[]]}",
    "bulk": lambda step: _spends("all-or-nothing", step),
    "each": lambda step: _spends("each", step),
    "half-sent": json.dumps,
    "queries": lambda _: "",
}
"""The body of each attack; no two queries are alike."""


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


if __name__ == "__main__":
    print(json.dumps(asyncio.run(attack(Attack(**json.loads(sys.argv[1]))))))
