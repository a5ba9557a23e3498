"""The service in the test's own process, with a clock that the test sets."""

import functools
import itertools
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
from fastapi.testclient import TestClient

from dpledger.api.app import LedgerApp, create_app
from dpledger.settings import Settings

GAUSSIAN: dict[str, Any] = {"mechanism": "gaussian", "sensitivity": 1.0, "noise_std": 2.0}
SUBSAMPLED: dict[str, Any] = {**GAUSSIAN, "noise_std": 1.1}
POISSON: dict[str, Any] = {"scheme": "poisson", "rate": 0.01}
ZCDP: dict[str, Any] = {"accounting": "zcdp", "rho": 0.51}
"""Room for four full looks with a Gaussian of σ = 2, ρ = 0.125 each, and not for a fifth."""
START_US = 1_700_000_000_000_000


@dataclass
class SetClock:
    """A clock that stands still until it is moved."""

    at_us: int = START_US

    def now_us(self) -> int:
        return self.at_us

    def advance(self, seconds: float) -> None:
        self.at_us += int(seconds * 1e6)


@dataclass
class Service:
    """A client of a running service; each request gets a key of its own unless it brings one."""

    client: TestClient
    token: str
    clock: SetClock
    keys: Iterator[int] = field(default_factory=itertools.count)

    @property
    def app(self) -> LedgerApp:
        assert isinstance(self.client.app, LedgerApp)
        return self.client.app

    def as_bearer(self, token: str) -> "Service":
        """The same service for somebody else."""
        return Service(self.client, token, self.clock, self.keys)

    def headers(self, **more: str) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.token}", **more}

    def get(self, path: str, **query: Any) -> httpx2.Response:
        return self._declared(self.client.get(path, params=query, headers=self.headers()))

    def shown(self, path: str, **query: Any) -> Any:
        answer = self.get(path, **query)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def post(
        self, path: str, body: Any, key: str | None = None, headers: dict[str, str] | None = None
    ) -> httpx2.Response:
        chosen = f"key-{next(self.keys)}" if key is None else key
        own = {"Content-Type": "application/json", "Idempotency-Key": chosen, **(headers or {})}
        return self._declared(self.client.post(path, content=json.dumps(body), headers=self.headers(**own)))

    def delete(self, path: str) -> httpx2.Response:
        return self._declared(self.client.delete(path, headers=self.headers()))

    def _declared(self, answer: httpx2.Response) -> httpx2.Response:
        """The answer, whose status the API's description lists, and whose problem is among its kinds."""
        method, path = answer.request.method.lower(), answer.request.url.path
        for template, operations in _described().items():
            if method in operations and re.fullmatch(re.sub(r"{\w+}", "[^/]+", template), path):
                listed = operations[method]["responses"]
                assert str(answer.status_code) in listed, f"{method} {path} answers {answer.status_code}"
                if answer.status_code >= 400:
                    schema = listed[str(answer.status_code)]["content"]["application/problem+json"]["schema"]
                    assert answer.json()["type"] in schema["properties"]["type"]["enum"], answer.text
                break
        return answer

    def open(self, name: str = "adult", budget: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
        answer = self.post("/v1/datasets", {"name": name, "budget": budget or ZCDP, **more})
        return made(answer)

    def authorize(
        self, *releases: dict[str, Any], dataset: str = "adult", key: str | None = None, **more: Any
    ) -> httpx2.Response:
        body = {"run": "run-1", "releases": list(releases) or [GAUSSIAN], **more}
        return self.post(f"/v1/datasets/{dataset}/authorizations", body, key)

    def reserve(
        self, times: int, dataset: str = "adult", key: str | None = None, seconds: float = 60.0, **more: Any
    ) -> httpx2.Response:
        body = {"run": "run-1", "releases": [GAUSSIAN], "times": times, "expires_in_seconds": seconds, **more}
        return self.post(f"/v1/datasets/{dataset}/reservations", body, key)

    def settle(self, reservation: str, used: int, key: str | None = None) -> httpx2.Response:
        return self.post(f"/v1/reservations/{reservation}/settlement", {"used": used}, key)

    def bulk(self, mode: str, *items: dict[str, Any], key: str | None = None) -> httpx2.Response:
        return self.post("/v1/authorizations", {"mode": mode, "items": list(items)}, key)

    def budget(self, dataset: str = "adult", **query: Any) -> dict[str, Any]:
        found: dict[str, Any] = self.shown(f"/v1/datasets/{dataset}/budget", **query)
        return found

    def sequence(self, dataset: str = "adult") -> int:
        found: int = self.shown(f"/v1/datasets/{dataset}")["sequence"]
        return found

    def make_token(self, *scopes: str, **more: Any) -> "Service":
        return self.as_bearer(made(self.post("/v1/tokens", {"scopes": scopes, **more}))["token"])

    def verified(self, dataset: str = "adult") -> None:
        found = self.shown(f"/v1/datasets/{dataset}/verification")
        assert found["valid"], found


@functools.cache
def _described() -> dict[str, Any]:
    """The paths of the API's description: it takes longer to write than most tests."""
    paths: dict[str, Any] = create_app(Settings()).openapi()["paths"]
    return paths


def made(answer: httpx2.Response) -> dict[str, Any]:
    assert answer.status_code == 201, answer.text
    body: dict[str, Any] = answer.json()
    return body


def problem(answer: httpx2.Response, status: int, slug: str) -> dict[str, Any]:
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    content: dict[str, Any] = answer.json()
    assert content["type"] == f"/problems/{slug}"
    assert content["status"] == status
    assert content["title"]
    assert content["detail"]
    return content


@contextmanager
def running(database: str, keys: Path, clock: SetClock | None = None, **more: Any) -> Iterator[Service]:
    """A service on a database; whoever starts it first on an empty one gets the admin token."""
    reported: list[str] = []
    clock = clock or SetClock()
    # The background task is kept out of the way: tests say themselves when something expires.
    settings = Settings(database, keys, expiry_seconds=3600.0, **more)
    app = create_app(settings, clock=clock, announce=reported.append)
    with TestClient(app, raise_server_exceptions=False) as client:
        yield Service(client, reported[0] if reported else "", clock)
