"""Connections that send nothing, or half, or too much: each is bounded, and everybody else is served."""

import contextlib
import http.client
import json
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import uvicorn

from dpledger.server import bounded_protocol, create_server
from dpledger.settings import Settings

WAIT_SECONDS = 30.0
SOON_SECONDS = 1.0
HEAD = "POST /v1/costs HTTP/1.1\r\nHost: ledger\r\n"
ALIVE = b"GET /healthz HTTP/1.1\r\nHost: ledger\r\n\r\n"


class Bounded:
    """A service behind a real socket, and what its metrics say."""

    def __init__(self, port: int, token: str) -> None:
        self._port = port
        self.token = token

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self._port), timeout=WAIT_SECONDS)

    def send(self, text: str | bytes) -> socket.socket:
        sent = self.connect()
        sent.sendall(text if isinstance(text, bytes) else text.encode())
        return sent

    def metric(self, name: str) -> float:
        request = (
            f"GET /metrics HTTP/1.1\r\nHost: ledger\r\nAuthorization: Bearer {self.token}\r\n"
            "Connection: close\r\n\r\n"
        )
        with self.send(request) as connection:
            lines = everything(connection).decode().splitlines()
        return float(next((line.split()[-1] for line in lines if line.startswith(name)), 0))


@contextlib.contextmanager
def bounded(folder: Path, most: int = 50, seconds: float = SOON_SECONDS) -> Iterator[Bounded]:
    settings = Settings(
        f"sqlite:///{folder / 'ledger.db'}",
        max_connections=most,
        head_seconds=seconds,
        body_seconds=seconds,
    )
    reported: list[str] = []
    app = create_server(settings, announce=reported.append)
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        protocol = bounded_protocol(app, settings)
        server = uvicorn.Server(uvicorn.Config(app, log_config=None, access_log=False, http=protocol))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        while not server.started:
            assert thread.is_alive()
            time.sleep(0.01)
        yield Bounded(listener.getsockname()[1], reported[0])
        server.should_exit = True
        thread.join(WAIT_SECONDS)
        assert not thread.is_alive()


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Bounded]:
    with bounded(tmp_path) as found:
        yield found


def everything(connection: socket.socket) -> bytes:
    """All that the service sends until it closes."""
    received = b""
    with contextlib.suppress(ConnectionResetError):
        while piece := connection.recv(65_536):
            received += piece
    return received


def answered(connection: socket.socket) -> int:
    """The status of one whole answer: its head and its body may come in pieces."""
    answer = http.client.HTTPResponse(connection)
    answer.begin()
    answer.read()
    return answer.status


@pytest.mark.parametrize("sent", ["", "P", HEAD, f"{HEAD}Content-Length: 5"], ids=["nothing", "P", "h", "l"])
def test_a_head_that_does_not_arrive_is_not_waited_for(service: Bounded, sent: str) -> None:
    with service.send(sent) as connection:
        reported = everything(connection)
    assert reported.startswith(b"HTTP/1.1 408 ")
    assert json.loads(reported.partition(b"\r\n\r\n")[2])["type"] == "/problems/request-timeout"
    assert service.metric('dpledger_connections_ended_total{reason="head_timeout"}') == 1


@pytest.mark.parametrize("path", ["/v1/costs", "/v1/datasets/adult/authorizations"])
def test_a_body_that_does_not_arrive_is_not_waited_for(service: Bounded, path: str) -> None:
    head = (
        f"POST {path} HTTP/1.1\r\nHost: ledger\r\nAuthorization: Bearer {service.token}\r\n"
        "Idempotency-Key: k\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{"
    )
    with service.send(head) as connection:
        assert everything(connection).startswith(b"HTTP/1.1 408 ")
    assert service.metric('dpledger_connections_ended_total{reason="body_timeout"}') == 1


def test_what_was_answered_before_its_body_arrived_is_not_answered_twice(service: Bounded) -> None:
    with service.send(f"{HEAD}Content-Length: 100\r\n\r\n{{") as connection:
        reported = everything(connection)
    assert reported.startswith(b"HTTP/1.1 401 ")
    assert reported.count(b"HTTP/1.1") == 1


def test_a_head_that_trickles_is_not_waited_for(service: Bounded) -> None:
    with service.send(HEAD) as connection, contextlib.suppress(ConnectionError):
        for number in range(40):
            connection.sendall(f"X-{number}: 1\r\n".encode())
            time.sleep(SOON_SECONDS / 10)
        pytest.fail("it went on and on")


def test_a_connection_may_rest_between_requests(service: Bounded) -> None:
    with service.send(ALIVE) as connection:
        assert answered(connection) == 200
        time.sleep(2 * SOON_SECONDS)
        connection.sendall(ALIVE)
        assert answered(connection) == 200


def test_half_sent_requests_make_room_for_whole_ones(tmp_path: Path) -> None:
    with bounded(tmp_path, most=10, seconds=WAIT_SECONDS) as service, contextlib.ExitStack() as stack:
        half = [stack.enter_context(service.send(HEAD)) for _ in range(30)]
        with service.send(ALIVE) as connection:
            assert answered(connection) == 200
        reported = everything(half[0])
        assert reported.startswith(b"HTTP/1.1 503 ")
        assert b"Retry-After: 1\r\n" in reported
        assert json.loads(reported.partition(b"\r\n\r\n")[2])["type"] == "/problems/too-many-connections"
        assert service.metric('dpledger_connections_ended_total{reason="too_many"}') >= 20


def test_where_nobody_can_make_room_the_new_connection_is_refused(tmp_path: Path) -> None:
    with bounded(tmp_path, most=3, seconds=WAIT_SECONDS) as service, contextlib.ExitStack() as stack:
        for _ in range(3):
            assert answered(stack.enter_context(service.send(ALIVE))) == 200
        with service.send(ALIVE) as connection:
            assert everything(connection).startswith(b"HTTP/1.1 503 ")


def test_a_refused_body_is_reported_and_the_connection_goes_on(service: Bounded) -> None:
    body = b" " * 1_000_000
    head = (
        f"{HEAD}Authorization: Bearer {service.token}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    with service.send(head.encode() + body) as connection:
        assert answered(connection) == 413
        connection.sendall(ALIVE)
        assert answered(connection) == 200
