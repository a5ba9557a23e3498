"""Requests over real sockets: many are sent before the first answer is read, so they meet in the service."""

import contextlib
import http.client
import itertools
import json
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

HOST = "127.0.0.1"
ANSWER_SECONDS = 60.0
RETRY_SECONDS = 0.02
_LOST = (http.client.HTTPException, OSError)


@dataclass(frozen=True)
class Ask:
    """One request; ``key`` is its idempotency key."""

    path: str
    body: dict[str, Any] | None = None
    key: str | None = None
    method: str = "POST"
    if_match: int | None = None

    def headers(self, token: str) -> dict[str, str]:
        own = {} if self.key is None else {"Idempotency-Key": self.key}
        seen = {} if self.if_match is None else {"If-Match": f'"{self.if_match}"'}
        return {"Authorization": f"Bearer {token}", "Content-Type": "application/json", **own, **seen}

    def text(self) -> str | None:
        return None if self.body is None else json.dumps(self.body)

    def altered(self) -> "Ask":
        """Another request under the same key: valid, but not what was asked for."""
        body = dict(self.body or {})
        name = next(name for name in ("used", "reason", "mode", "names", "run", "name") if name in body)
        return replace(self, body={**body, name: _other(body[name])})


def _other(value: Any) -> Any:
    if isinstance(value, int):
        return value + 1
    if isinstance(value, list):
        return [*value, "other"]
    return {"each": "all-or-nothing", "all-or-nothing": "each"}.get(value, f"{value}-other")


@dataclass(frozen=True)
class Heard:
    """One answer."""

    status: int
    body: Any
    replayed: bool = False

    @property
    def problem(self) -> str | None:
        """The slug of the problem that the answer is, if it is one."""
        kind = self.body.get("type") if isinstance(self.body, dict) else None
        return kind.removeprefix("/problems/") if isinstance(kind, str) else None

    @property
    def postponed(self) -> bool:
        """Whether the caller has to come back with the same key."""
        return self.problem == "idempotency-key-in-flight" or self.status == 503


class Line:
    """One connection to one service process."""

    def __init__(self, port: int, token: str) -> None:
        self._token = token
        self._connection = http.client.HTTPConnection(HOST, port, timeout=ANSWER_SECONDS)
        self._connection.connect()

    def send(self, ask: Ask) -> None:
        self._connection.request(ask.method, ask.path, ask.text(), ask.headers(self._token))

    def hear(self) -> Heard:
        answer = self._connection.getresponse()
        content = answer.read()
        replayed = answer.getheader("Idempotency-Replayed") == "true"
        return Heard(answer.status, json.loads(content) if content else None, replayed)

    def close(self) -> None:
        self._connection.close()


def ask(port: int, token: str, request: Ask) -> Heard:
    """Ask one service process over a connection of its own."""
    line = Line(port, token)
    try:
        line.send(request)
        return line.hear()
    finally:
        line.close()


def volley(ports: Sequence[int], token: str | Sequence[str], requests: Iterable[Ask]) -> list[Heard | None]:
    """Send all requests, dealt out over the processes, then read the answers; None where none came.

    Of several tokens, each request shows the next.
    """
    chosen = list(requests)
    shown = itertools.cycle([token] if isinstance(token, str) else token)
    lines = [_line(port, each) for _, port, each in zip(chosen, itertools.cycle(ports), shown, strict=False)]
    for line, request in zip(lines, chosen, strict=True):
        _send(line, request)
    return [_heard(line) for line in lines]


def _line(port: int, token: str) -> Line | None:
    try:
        return Line(port, token)
    except _LOST:
        return None


def _send(line: Line | None, request: Ask) -> None:
    if line is not None:
        with contextlib.suppress(*_LOST):
            line.send(request)


def _heard(line: Line | None) -> Heard | None:
    if line is None:
        return None
    try:
        return line.hear()
    except _LOST:
        return None
    finally:
        line.close()


def ask_until_answered(port: int, token: str, request: Ask) -> Heard:
    """Ask again with the same key as long as the service says that it cannot tell yet."""
    give_up = time.monotonic() + ANSWER_SECONDS
    while (answer := ask(port, token, request)).postponed:
        assert time.monotonic() < give_up, f"still postponed: {answer}"
        time.sleep(RETRY_SECONDS)
    return answer


def as_first(answer: Heard) -> Heard:
    """The answer without the mark that it was given before."""
    return replace(answer, replayed=False)
