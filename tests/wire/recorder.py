"""Plays the recorded session against the service in this process, and records what it answers.

``python -m tests.wire.recorder`` records what is new: the API's description, and the answers to requests that
were added at the end of the session. Those that were recorded before stay as they are, but for those whose
numbers follow the command: where a bound became tighter they are recorded anew, and CHANGELOG.md says why.
"""

import hashlib
import json
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from fastapi.testclient import TestClient

from dpledger.api.app import create_app
from dpledger.auth.keys import ServerKeys, _document
from dpledger.auth.tokens import TokenHasher, TokenSecret
from dpledger.settings import Settings
from dpledger.storage.repositories.tokens import TokenRow, TokenStore
from dpledger.storage.repository import open_storage
from tests.api.service import START_US, SetClock
from tests.wire.requests import Request, session

RECORDED = Path(__file__).parent / "recorded"
SESSION = RECORDED / "session.ndjson"
OPENAPI = RECORDED / "openapi.json"
KEYS = ServerKeys(hashlib.sha256(b"tokens").digest(), hashlib.sha256(b"receipts").digest())
ADMIN = TokenSecret("recorded", f"dpl_recorded_{'a' * 52}")
SHOWN_HEADERS = ("allow", "content-type", "etag", "idempotency-replayed", "retry-after", "x-request-id")

Exchange = dict[str, Any]


def play(folder: Path) -> Iterator[Exchange]:
    """Each request with its answer, from a service on a new ledger in ``folder``."""
    keys, database = write_keys(folder), f"sqlite:///{folder / 'ledger.db'}"
    _add_admin(database)
    clock = SetClock()
    app = create_app(Settings(database, keys, expiry_seconds=3600.0), clock=clock)
    with TestClient(app, raise_server_exceptions=False) as client:
        player = Player(client, clock)
        for number, request in enumerate(session()):
            yield player.exchange(number, request)


def write_keys(folder: Path) -> Path:
    """The key file of the recorded service."""
    keys = folder / "keys.json"
    keys.write_text(_document(KEYS), encoding="ascii")
    keys.chmod(0o600)
    return keys


def _add_admin(database: str) -> None:
    with closing(open_storage(database)) as storage:
        hashed = TokenHasher(KEYS.token_key).hash(ADMIN)
        row = TokenRow(ADMIN.id, hashed, ("admin",), None, "recorded", START_US, None)
        TokenStore(storage.database).add(row)


class Player:
    """Sends requests one after another and remembers the tokens that it was given."""

    def __init__(self, client: TestClient, clock: SetClock) -> None:
        self._client = client
        self._clock = clock
        self._tokens = {"admin": ADMIN.text, "unknown": f"dpl_unknown_{'a' * 52}"}
        self._ids: dict[str, str] = {}

    def exchange(self, number: int, request: Request) -> Exchange:
        """Send one request; its record."""
        self._clock.advance(request.advance)
        path = request.path.format(**self._ids) if "{" in request.path else request.path
        answer = self._client.request(
            request.method,
            path,
            headers=self._headers(number, request),
            content=None if request.body is None else json.dumps(request.body),
        )
        self._remember(request, answer.text)
        shown = {name: answer.headers[name] for name in SHOWN_HEADERS if name in answer.headers}
        sent = {"method": request.method, "path": path, "body": request.body, "bearer": request.bearer}
        return {"request": sent, "status": answer.status_code, "headers": shown, "body": answer.text}

    def _headers(self, number: int, request: Request) -> dict[str, str]:
        headers = {"X-Request-ID": f"request-{number:03}"}
        if request.bearer is not None:
            headers["Authorization"] = f"Bearer {self._tokens[request.bearer]}"
        if request.key is not None:
            headers["Idempotency-Key"] = request.key
        if request.body is not None:
            headers["Content-Type"] = "application/json"
        return {**headers, **request.headers}

    def _remember(self, request: Request, body: str) -> None:
        if request.path == "/v1/tokens" and request.key is not None:
            made = json.loads(body)
            self._tokens[request.key], self._ids[request.key] = made["token"], made["id"]


def record(anew: Sequence[int]) -> None:
    """Write the API's description, the answers to what follows the recorded session, and some anew."""
    known = SESSION.read_text(encoding="utf-8").splitlines()
    with tempfile.TemporaryDirectory() as name:
        played = list(play(Path(name)))
    again = [json.loads(line)["request"] for line in known]
    if [each["request"] for each in played[: len(known)]] != again:
        raise SystemExit("requests are added at the end of the session; those before it were changed")
    for number in anew:
        if played[number]["status"] != json.loads(known[number])["status"]:
            raise SystemExit(f"the answer to request {number} is another decision")
        known[number] = json.dumps(played[number], ensure_ascii=False)
    lines = known + [json.dumps(exchange, ensure_ascii=False) for exchange in played[len(known) :]]
    SESSION.write_text("\n".join(lines) + "\n", encoding="utf-8")
    document = create_app(Settings()).openapi()
    OPENAPI.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    record([int(number) for number in sys.argv[1:]])
