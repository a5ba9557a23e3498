"""A load generator: connections that each send the next request as soon as they have an answer.

It runs in a process of its own (``python -m benchmarks.load``, the order on standard input, the result
on standard output) and speaks bare HTTP/1.1 over non-blocking sockets, so that what it measures is the
server and not itself.
"""

import itertools
import json
import selectors
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

__all__ = ["Connection", "Order", "Result", "fire", "run"]

_RECEIVE_BYTES = 65_536
_END_OF_HEAD = b"\r\n\r\n"
_LENGTH = b"content-length:"


@dataclass(frozen=True)
class Order:
    """What to send, over how many connections, for how long; every request has a key of its own."""

    port: int
    path: str
    method: str = "POST"
    token: str = ""
    body: str = ""
    keys: str = "load"
    connections: int = 1
    seconds: float = 1.0
    warm_up_seconds: float = 0.3
    host: str = "127.0.0.1"
    places: int = 1
    """How many numbers take the place of ``{}`` in the path, in turn."""

    def requests(self) -> Iterator[bytes]:
        """Requests without end, equal but for the idempotency key and the number in the path."""
        streams = [self._requests(self.path.replace("{}", str(place))) for place in range(self.places)]
        for place in itertools.cycle(streams):
            yield next(place)

    def _requests(self, path: str) -> Iterator[bytes]:
        head = f"{self.method} {path} HTTP/1.1\r\nHost: {self.host}:{self.port}\r\n"
        if self.token:
            head += f"Authorization: Bearer {self.token}\r\n"
        if self.method != "POST":
            while True:
                yield f"{head}\r\n".encode()
        body = self.body.encode()
        head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\nIdempotency-Key: "
        before, after, number = f"{head}{self.keys}-".encode(), _END_OF_HEAD + body, 0
        while True:
            number += 1
            yield b"%b%010d%b" % (before, number, after)


@dataclass(frozen=True)
class Result:
    """Answers by status, the seconds they took together, and each one's latency in seconds, sorted."""

    statuses: dict[str, int]
    seconds: float
    latencies: list[float] = field(repr=False)

    @property
    def rate(self) -> float:
        """Answers per second."""
        return len(self.latencies) / self.seconds

    def latency(self, share: float) -> float:
        """The latency in seconds that this share of the answers stayed within."""
        return self.latencies[min(len(self.latencies) - 1, int(share * len(self.latencies)))]


class Connection:
    """One keep-alive connection with at most one request under way."""

    def __init__(self, order: Order) -> None:
        self.socket = socket.create_connection((order.host, order.port), timeout=10.0)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._received = b""
        self.sent_at = 0.0

    def send(self, request: bytes) -> None:
        self.sent_at = time.perf_counter()
        self.socket.sendall(request)

    def receive(self) -> bytes | None:
        """The status of the answer once all of it is here."""
        chunk = self.socket.recv(_RECEIVE_BYTES)
        if not chunk:
            raise ConnectionError("the server closed a connection")
        self._received += chunk
        head, end, body = self._received.partition(_END_OF_HEAD)
        if not end or len(body) < _content_length(head):
            return None
        self._received = b""
        return head[9:12]


def _content_length(head: bytes) -> int:
    lowered = head.lower()
    start = lowered.index(_LENGTH) + len(_LENGTH)
    return int(lowered[start : start + 20].partition(b"\r\n")[0])


def run(order: Order) -> Result:
    """Keep every connection busy for the ordered time; what was answered in the warm-up is not counted."""
    requests = order.requests()
    connections = [Connection(order) for _ in range(order.connections)]
    with selectors.DefaultSelector() as selector:
        for connection in connections:
            selector.register(connection.socket, selectors.EVENT_READ, connection)
            connection.send(next(requests))
        _drive(selector, requests, order.warm_up_seconds)
        began = time.perf_counter()
        answers = _drive(selector, requests, order.seconds)
        took = time.perf_counter() - began
    for connection in connections:
        connection.socket.close()
    statuses = Counter(status.decode() for status, _ in answers)
    return Result(dict(statuses), took, sorted(latency for _, latency in answers))


def _drive(
    selector: selectors.BaseSelector, requests: Iterator[bytes], seconds: float
) -> list[tuple[bytes, float]]:
    answers: list[tuple[bytes, float]] = []
    clock = time.perf_counter
    until = clock() + seconds
    while clock() < until:
        for ready, _ in selector.select(timeout=10.0):
            connection = ready.data
            status = connection.receive()
            if status is not None:
                answers.append((status, clock() - connection.sent_at))
                connection.send(next(requests))
    return answers


def fire(order: Order) -> Result:
    """Run an order in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.load"]
    done = subprocess.run(
        command, input=json.dumps(asdict(order)), capture_output=True, text=True, check=True
    )
    return Result(**json.loads(done.stdout))


def main() -> None:
    """Carry out the order on standard input."""
    order: dict[str, Any] = json.load(sys.stdin)
    json.dump(asdict(run(Order(**order))), sys.stdout)


if __name__ == "__main__":
    main()
