"""Datasets of every kind under names of their own, and requests to them that are valid, nearly valid or odd.

The valid ones are those of the recorded session (tests/wire/requests.py), which goes over every route.
"""

import itertools
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any
from urllib.parse import quote, urlencode

from tests.fuzz.judge import Answer
from tests.fuzz.mutation import TEXTS, Mutator, Raw
from tests.wire.requests import Request, session

__all__ = ["Ask", "World"]

QUERIES = re.compile(r"/v1/(costs|conversions|amplifications|compositions|calibrations)|.*/forecast")
HOLDER = re.compile(r"/v1/reservations/[^/]+")
TARGET = re.compile(r"(/v1/datasets/)([^/?]+)(.*)")
QUERY_NAMES = (
    "limit",
    "next",
    "search",
    "kind",
    "run",
    "newest_first",
    "delta",
    "allocation",
    "item",
    "partition",
    "x",
)
METHODS = ("GET", "POST", "PUT", "DELETE", "PATCH", "HEAD", "OPTIONS", "TRACE")
ODD_PATHS = (
    "",
    "/",
    "/%00",
    "/%2e%2e",
    "/..%2f..",
    "/é",
    "/%ff",
    "/" + "a" * 2000,
    "//",
    "/~1",
    "/%0d%0aX:%201",
    ";a",
)
MEDIA_TYPES = (
    "text/plain",
    "",
    "application/json; charset=utf-16",
    "APPLICATION/JSON",
    "application/xml",
    "x" * 300,
)
IF_MATCH = ('"1"', '"0"', "*", "", '"', 'W/"1"', '"99999999999999999999"', '"1", "2"')
_SHARES = {"query": 0.03, "read": 0.3, "write": 0.67}
_KEPT = 50


@dataclass(frozen=True)
class Ask:
    """One request as it goes out."""

    method: str
    path: str
    headers: dict[str, str]
    content: bytes | None = None

    def shown(self) -> str:
        """The request for a reader who wants to repeat it; the token is left out."""
        headers = {name: value for name, value in self.headers.items() if name != "Authorization"}
        return f"{self.method} {self.path[:300]} {headers} {self.content!r}"


@dataclass
class World:
    """One set of datasets; what was learned from answers goes into later requests."""

    name: str
    random: Random
    tokens: dict[str, str]
    opened: list[str] = field(default_factory=list)
    granted: set[tuple[str, int]] = field(default_factory=set)
    _learned: dict[str, list[str]] = field(
        default_factory=lambda: {"reservation": [], "next": [], "token": []}
    )
    _numbers: Iterator[int] = field(default_factory=itertools.count)

    def __post_init__(self) -> None:
        self._mutate = Mutator(self.random)
        self._requests = [self._own(each) for each in session() if each.bearer in ("admin", None)]
        self._groups: dict[str, list[Request]] = {"query": [], "read": [], "write": []}
        for request in self._requests:
            self._groups[_group(request)].append(request)

    def beginnings(self) -> Iterator[Ask]:
        """The requests that open the datasets, their partitions and allocations, and begin to spend."""
        for request in self._groups["write"]:
            yield self._ask(request, json.dumps(request.body).encode(), f"{self.name}-{next(self._numbers)}")

    def next_ask(self) -> Ask:
        """A request: two in seven valid, four with another body, one odd in its head."""
        group = self.random.choices(list(_SHARES), list(_SHARES.values()))[0]
        request = self._aim(self.random.choice(self._groups[group]))
        key = f"{self.name}-{next(self._numbers)}"
        draw = self.random.randrange(7)
        if request.body is None:
            ask = self._ask(request, None, key)
            return self._odd_query(ask) if draw < 4 else self._odd_head(ask) if draw == 4 else ask
        if draw < 4:
            return self._ask(request, self._mutate.body(request.body), key)
        ask = self._ask(request, json.dumps(request.body).encode(), key)
        return self._odd_head(ask) if draw == 4 else ask

    def learn(self, ask: Ask, answer: Answer) -> None:
        """Remember what an answer made or named."""
        if answer.status not in (200, 201) or answer.media_type != "application/json":
            return
        content = json.loads(answer.content)
        if answer.status == 200:
            self._keep("next", content.get("next"))
        elif ask.path == "/v1/datasets":
            self.opened.append(content["name"])
        elif ask.path == "/v1/tokens":
            self._keep("token", content["id"])
        elif ask.path.endswith("/reservations"):
            self._keep("reservation", content["id"])
        elif "sequence" in content and "dataset" in content:
            self.granted.add((content["dataset"], content["sequence"]))

    def _keep(self, kind: str, value: Any) -> None:
        if isinstance(value, str):
            kept = self._learned[kind]
            kept.append(value)
            del kept[:-_KEPT]

    def _own(self, request: Request) -> Request:
        """The request with this world's names of datasets."""
        path = TARGET.sub(lambda found: found[1] + self._renamed(found[2]) + found[3], request.path)
        path = HOLDER.sub(lambda found: f"{found[0].replace('~', f'.{self.name}~')}", path)
        body = _walk(request.body, self._rename)
        if request.path == "/v1/datasets" and isinstance(body, dict):
            body["name"] = self._renamed(body["name"])
        return replace(request, path=path, body=body)

    def _renamed(self, dataset: str) -> str:
        return f"{dataset}.{self.name}"

    def _rename(self, key: str, value: Any) -> Any:
        if key == "dataset":
            return self._renamed(value)
        if key == "datasets":
            return [self._renamed(each) for each in value]
        return value.replace("~", f".{self.name}~") if key == "id" else value

    def _aim(self, request: Request) -> Request:
        """At a new name, at a dataset that was opened since, or at what an answer named."""
        draw = self.random.random()
        if request.path == "/v1/datasets" and request.method == "POST":
            body = {**request.body, "name": f"{request.body['name']}-{next(self._numbers)}"}
            return replace(request, body=body) if draw < 0.9 else request
        if HOLDER.match(request.path) and self._learned["reservation"] and draw < 0.8:
            found = self.random.choice(self._learned["reservation"])
            return replace(request, path=HOLDER.sub(f"/v1/reservations/{found}", request.path))
        if "/tokens/" in request.path and self._learned["token"]:
            return replace(request, path=f"/v1/tokens/{self.random.choice(self._learned['token'])}")
        if self.opened and draw < 0.2:
            found = self.random.choice(self.opened)
            return replace(request, path=TARGET.sub(rf"\g<1>{found}\g<3>", request.path))
        return request

    def _ask(self, request: Request, content: bytes | None, key: str) -> Ask:
        headers = {"Authorization": f"Bearer {self.tokens['admin']}", **request.headers}
        if self.random.random() < 0.03:
            headers["Authorization"] = f"Bearer {self.random.choice(list(self.tokens.values()))}"
        if content is not None:
            headers.setdefault("Content-Type", "application/json")
            headers["Idempotency-Key"] = key
        return Ask(request.method, request.path, headers, content)

    def _odd_query(self, ask: Ask) -> Ask:
        pairs = [
            (self.random.choice(QUERY_NAMES), self._query_value()) for _ in range(self.random.randint(1, 2))
        ]
        return replace(ask, path=f"{ask.path.partition('?')[0]}?{urlencode(pairs, errors='replace')}")

    def _query_value(self) -> str:
        draw = self.random.randrange(4)
        if draw == 0 and self._learned["next"]:
            return self.random.choice(self._learned["next"])
        if draw == 1:
            return str(
                self.random.choice((0, 1, 2, -1, 100, 1001, 2**31, 2**63, "1e-6", "nan", "inf", "true"))
            )
        text = self.random.choice(TEXTS)
        return text.strip('"') if isinstance(text, Raw) else str(text)

    def _odd_head(self, ask: Ask) -> Ask:
        """The request with one header, its method or its address changed."""
        changes: tuple[Callable[[], Ask], ...] = (
            lambda: replace(ask, method=self.random.choice(METHODS)),
            lambda: replace(ask, path=ask.path + quote(self.random.choice(ODD_PATHS), safe="/%?;")),
            lambda: self._with_header(ask, "Content-Type", self.random.choice(MEDIA_TYPES)),
            lambda: self._with_header(
                ask, "Idempotency-Key", self.random.choice(("", "k" * 256, "é", "same", "a b"))
            ),
            lambda: self._with_header(ask, "If-Match", self.random.choice(IF_MATCH)),
            lambda: self._with_header(ask, "Authorization", self._odd_bearer()),
            lambda: self._with_header(
                ask, "X-Request-Id", self.random.choice(("", "é", "a" * 200, "{}", "dpl_x_y"))
            ),
        )
        return self.random.choice(changes)()

    def _odd_bearer(self) -> str:
        token = self.tokens["admin"]
        odd = ("", "Bearer", "Basic YTpi", f"bearer {token}", f"Bearer {token[:-1]}", f"Bearer {token}a", "é")
        return self.random.choice(odd)

    def _with_header(self, ask: Ask, name: str, value: str) -> Ask:
        return replace(ask, headers={**ask.headers, name: value})


def _group(request: Request) -> str:
    if QUERIES.fullmatch(request.path):
        return "query"
    return "read" if request.body is None else "write"


def _walk(value: Any, rename: Callable[[str, Any], Any], key: str = "") -> Any:
    if isinstance(value, dict):
        return {name: _walk(each, rename, name) for name, each in value.items()}
    if isinstance(value, list) and key != "datasets":
        return [_walk(each, rename) for each in value]
    return rename(key, value) if isinstance(value, (str, list)) else value
