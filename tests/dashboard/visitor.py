"""A browser without a window: keeps the dashboard's cookie, sends the headers that browsers send."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import httpx2
from fastapi.testclient import TestClient

from dpledger.dashboard.security import COOKIE
from dpledger.server import create_server
from dpledger.settings import Settings
from tests.api.service import Service, SetClock

ROOT = "/dashboard"
ORIGIN = "http://testserver"


@contextmanager
def serving(database: str, keys: Path, token: str = "", **chosen: Any) -> Iterator[Service]:
    """The service as it is served, with a clock that the test sets; a new ledger announces its token."""
    reported: list[str] = []
    clock = SetClock()
    settings = Settings(database, keys, expiry_seconds=3600.0, **chosen)
    app = create_server(settings, clock=clock, announce=reported.append)
    with TestClient(app, raise_server_exceptions=False, follow_redirects=False) as client:
        yield Service(client, reported[0] if reported else token, clock)


class Visitor:
    """Somebody at the dashboard of a service."""

    def __init__(self, service: Service) -> None:
        self._client = service.client
        self.cookie: str | None = None

    def get(self, path: str = "/", headers: dict[str, str] | None = None) -> httpx2.Response:
        return self._client.get(f"{ROOT}{path}", headers={**self._cookies(), **(headers or {})})

    def page(self, path: str = "/") -> str:
        """A page that is there, as one line."""
        answer = self.get(path)
        assert answer.status_code == 200, answer.text
        return re.sub(r"\s+", " ", answer.text)

    def post(
        self, path: str, form: dict[str, str] | None = None, headers: dict[str, str] | None = None
    ) -> httpx2.Response:
        sent = {"Origin": ORIGIN} if headers is None else headers
        sent = {**self._cookies(), "Content-Type": "application/x-www-form-urlencoded", **sent}
        return self._client.post(f"{ROOT}{path}", content=urlencode(form or {}), headers=sent)

    def log_in(self, token: str, wanted: str = "") -> httpx2.Response:
        """Log in and keep the cookie."""
        answer = self.post("/login", {"token": token, "next": wanted})
        self._client.cookies.clear()
        found = re.match(rf"{COOKIE}=([^;]*);", answer.headers.get("set-cookie", ""))
        self.cookie = None if found is None else found[1]
        return answer

    def _cookies(self) -> dict[str, str]:
        return {} if self.cookie is None else {"Cookie": f"{COOKIE}={self.cookie}"}


def datasets_in(page: str) -> list[str]:
    """The datasets that a page lists, in its order."""
    return re.findall(r'<th scope="row"><a href="/dashboard/datasets/([^"]+)">', page)


def section(page: str, part: str) -> str:
    """The part of a page with an id, up to the next section."""
    found = re.search(rf'id="{part}"(.*?)</section>', page)
    assert found is not None, part
    return found[1]


def entries_in(page: str) -> list[int]:
    """The entries that a page lists, in its order."""
    table = re.search(r'<table class="entries cards">(.*?)</table>', page)
    return [] if table is None else [int(each) for each in re.findall(r'/entries/(\d+)">', table[1])]
