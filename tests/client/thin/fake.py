"""A stand-in for the service: answers from memory, repeats itself to a key, and fails when asked to."""

import json
from collections.abc import Callable
from typing import Any

import httpx2

Failure = Callable[[httpx2.Request], httpx2.Response]
COST = {"rho": 0.005, "mu": 0.1, "pure_epsilon": None, "delta": 0.0, "orders": [2.0], "epsilons": [0.01]}
LEFT = {"fraction": 0.5, "rho": 0.25}


def problem(status: int, slug: str, **members: Any) -> httpx2.Response:
    body = {"type": f"/problems/{slug}", "title": slug, "status": status, "detail": "because", **members}
    return httpx2.Response(status, json=body, headers={"content-type": "application/problem+json"})


class FakeService:
    """Says yes to everything; ``failures`` are used up first, one for each request."""

    def __init__(self, *failures: Failure) -> None:
        self.failures = list(failures)
        self.requests: list[httpx2.Request] = []
        self.entries: list[tuple[str, dict[str, Any]]] = []
        self.answers: dict[tuple[str, str], dict[str, Any]] = {}
        self.closed: dict[str, str] = {}
        self.seconds_left = 3600.0
        self.accounting = "rdp"

    @property
    def transport(self) -> httpx2.MockTransport:
        return httpx2.MockTransport(self.handle)

    @property
    def keys(self) -> list[str]:
        return [request.headers.get("idempotency-key", "") for request in self.requests]

    def handle(self, request: httpx2.Request) -> httpx2.Response:
        self.requests.append(request)
        if self.failures:
            return self.failures.pop(0)(request)
        return self.answer(request)

    def answer(self, request: httpx2.Request) -> httpx2.Response:
        if request.method == "GET" and "/v1/reservations/" in request.url.path:
            return httpx2.Response(200, json=self.reservation(request.url.path.rpartition("/")[2]))
        if request.method == "GET" and request.url.path == "/v1/datasets/d":
            return httpx2.Response(200, json={"name": "d", "budget": {"accounting": self.accounting}})
        if request.method == "GET":
            return httpx2.Response(200, json={"items": [{"path": request.url.path}], "next": None})
        identity = (request.url.path, request.headers["idempotency-key"])
        known = self.answers.get(identity)
        if known is None:
            body = json.loads(request.content)
            self.entries.append((request.url.path, body))
            known = self.answers[identity] = self._made(request.url.path, body)
            return httpx2.Response(201, json=known)
        return httpx2.Response(201, json=known, headers={"Idempotency-Replayed": "true"})

    def reservation(self, name: str) -> dict[str, Any]:
        """A reservation as it stands: open until it is settled, or put into ``closed``."""
        settled = any(path.endswith(f"/{name}/settlement") for path, _ in self.entries)
        state = self.closed.get(name, "settled" if settled else "open")
        return {"id": name, "state": state, "times": 9, "expires_in_seconds": self.seconds_left}

    def _made(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        sequence = len(self.entries)
        name = f"d~{sequence}"
        if path.endswith("/settlement"):
            held = path.split("/")[-2]
            return {"id": held, "sequence": sequence, "times": 9, "returned": 0, "remaining": LEFT, **body}
        if "items" in body:
            return {"results": [{"granted": self._made(path, item)} for item in body["items"]]}
        made = {
            "id": name,
            "sequence": sequence,
            "dataset": "d",
            "run": body.get("run", ""),
            "sample": {"id": name, "scheme": "full", **body.get("sample", {})},
            "cost": COST,
            "remaining": LEFT,
            "receipt": "a.b.c",
        }
        if "times" in body:
            made |= {"times": body["times"], "expires_at": "2030-01-01T00:00:00Z"}
        return made


class Looked:
    """A value that counts how often it is looked at."""

    def __init__(self, value: Any) -> None:
        self.value = value
        self.times = 0

    def __call__(self) -> Any:
        self.times += 1
        return self.value


def dropped(request: httpx2.Request) -> httpx2.Response:
    raise httpx2.ConnectError("no route", request=request)


def recorded_but_dropped(service: FakeService) -> Failure:
    """The service decides, and its answer is lost on the way."""

    def fail(request: httpx2.Request) -> httpx2.Response:
        service.answer(request)
        raise httpx2.ReadTimeout("too slow", request=request)

    return fail
