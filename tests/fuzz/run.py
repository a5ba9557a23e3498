"""Sends requests, judges each answer, and looks at what the ledgers say afterwards."""

import json
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import httpx2

from tests.fuzz.judge import Answer, Judge
from tests.fuzz.world import Ask, World

__all__ = ["HANG_SECONDS", "Findings", "Sender", "check_ledgers", "existing", "fuzz_world"]

HANG_SECONDS = 30.0
"""Longer than a query keeps its asker waiting; a client gives up then by default."""
_SLACK = 1e-9


@dataclass
class Findings:
    """What was counted and what was found, by all threads together."""

    statuses: Counter[int] = field(default_factory=Counter)
    hangs: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    slowest_seconds: float = 0.0
    slowest: str = ""
    lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def requests(self) -> int:
        """How many were sent."""
        return sum(self.statuses.values())

    @property
    def hold(self) -> bool:
        """Whether nothing was found."""
        return not (self.hangs or self.faults or self.statuses[500])

    def count(self, ask: Ask, status: int, seconds: float, fault: str | None) -> None:
        """Take one answer; status 0 for none."""
        with self.lock:
            self.statuses[status] += 1
            if seconds > self.slowest_seconds:
                self.slowest_seconds, self.slowest = seconds, ask.shown()
            if seconds > HANG_SECONDS:
                self.hangs.append(f"{seconds:.1f} s: {ask.shown()}")
            if fault is not None:
                self.faults.append(f"{fault} <- {ask.shown()}")


@dataclass
class Sender:
    """One client; it has the same face on a served process and on the application itself."""

    client: httpx2.Client
    judge: Judge
    findings: Findings

    def send(self, ask: Ask) -> Answer:
        """The answer, judged."""
        began = time.perf_counter()
        headers = {name: value.encode() for name, value in ask.headers.items()}
        try:
            got = self.client.request(ask.method, ask.path, headers=headers, content=ask.content)  # type: ignore[arg-type]
        except httpx2.TimeoutException:
            self.findings.count(ask, 0, HANG_SECONDS + time.perf_counter() - began, None)
            return Answer(0, "", b"")
        except httpx2.TransportError as error:
            self.findings.count(ask, 0, time.perf_counter() - began, f"no answer: {error!r}")
            return Answer(0, "", b"")
        media_type = got.headers.get("content-type", "").partition(";")[0]
        answer = Answer(got.status_code, media_type, got.content, "idempotency-replayed" in got.headers)
        # What HEAD would say, nobody reads.
        path = got.request.url.raw_path.decode("ascii").partition("?")[0]
        fault = (
            None
            if ask.method == "HEAD" and answer.status < 500
            else self.judge.fault(ask.method, path, answer)
        )
        self.findings.count(ask, answer.status, time.perf_counter() - began, fault)
        return answer

    def read(self, path: str, token: str) -> Any:
        """What a route shows; an answer other than 200 is a finding."""
        ask = Ask("GET", path, {"Authorization": f"Bearer {token}"})
        answer = self.send(ask)
        if answer.status != 200:
            self.findings.faults.append(f"{answer.status} for {path} afterwards: {answer.content[:300]!r}")
            return None
        lines = answer.content.splitlines()
        return (
            [json.loads(line) for line in lines]
            if "ndjson" in answer.media_type
            else json.loads(answer.content)
        )


def fuzz_world(sender: Sender, world: World, requests: int) -> None:
    """Open a world, send so many requests to it, and check its ledgers."""
    for ask in world.beginnings():
        world.learn(ask, sender.send(ask))
    for _ in range(requests):
        ask = world.next_ask()
        world.learn(ask, sender.send(ask))
    check_ledgers(sender, world.opened, world.granted, world.tokens["admin"])


def existing(sender: Sender, token: str) -> list[str]:
    """The names of all datasets."""
    found: list[str] = []
    cursor: str | None = ""
    while cursor is not None:
        page = sender.read(f"/v1/datasets?limit=100{cursor and '&next=' + cursor}", token)
        found += [each["name"] for each in page["items"]]
        cursor = page["next"]
    return found


def check_ledgers(sender: Sender, datasets: list[str], granted: set[tuple[str, int]], token: str) -> None:
    """Every ledger verifies by replay, holds what was acknowledged, and is within its limit."""
    faults = sender.findings.faults
    for name in datasets:
        verified = sender.read(f"/v1/datasets/{name}/verification", token)
        if verified is not None and not verified["valid"]:
            faults.append(f"{name} does not verify: {verified['problems']}")
        entries = sender.read(f"/v1/datasets/{name}/export", token) or []
        held = {entry["sequence"] for entry in entries}
        lost = {number for dataset, number in granted if dataset == name} - held
        if lost:
            faults.append(f"{name} lost entries {sorted(lost)}")
        budget = sender.read(f"/v1/datasets/{name}/budget", token)
        if budget is not None and (excess := _excess(budget, entries)) is not None:
            faults.append(f"{name} is overspent: {excess}")


def _excess(budget: dict[str, Any], entries: list[dict[str, Any]]) -> str | None:
    """What exceeds a limit that was never lowered; None if nothing does."""
    if budget["guarantee"]["lowered"] or any(entry["kind"] == "budget-changed" for entry in entries):
        return None
    if budget["fraction"] < 0.0:
        return f"fraction {budget['fraction']}"
    for name, limit in budget["limit"].items():
        spent = budget["spent"].get(name)  # with what is reserved
        if isinstance(limit, float) and isinstance(spent, float) and spent > limit * (1.0 + _SLACK):
            return f"{name} {spent} of {limit}"
    return _excess_rho(budget, entries)


def _excess_rho(budget: dict[str, Any], entries: list[dict[str, Any]]) -> str | None:
    """The entries' own ρ, added here and not by the ledger."""
    if budget["accounting"] != "zcdp" or "rho" not in budget["limit"]:
        return None
    whole = [entry for entry in entries if entry["kind"] == "authorized" and not entry.get("partition")]
    total = sum(entry["cost"]["rho"] for entry in whole if entry["cost"]["rho"] is not None)
    return f"Σρ = {total}" if total > budget["limit"]["rho"] * (1.0 + _SLACK) else None
