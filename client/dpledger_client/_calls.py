"""HTTP requests and their parsed answers, without any input or output; shared by both clients."""

import contextlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from dpledger_client.errors import (
    NoAnswer,
    ServiceFailed,
    Unavailable,
    UnexpectedAnswer,
    refusal,
)
from dpledger_client.releases import Releases, as_releases
from dpledger_client.samples import Sample

__all__ = [
    "Again",
    "Answer",
    "Call",
    "about",
    "allocating",
    "allocation_path",
    "asking",
    "budget_body",
    "budget_request_path",
    "bulk",
    "changing_budget",
    "costing",
    "dataset_path",
    "deciding_request",
    "forecasting",
    "getting",
    "opening",
    "opening_epoch",
    "opening_partitions",
    "read_answer",
    "renewing",
    "requesting_budget",
    "reserving",
    "returning_allocation",
    "settling",
    "showing_reservation",
    "spend_body",
    "spending",
    "step_body",
    "withdrawing_request",
]

_GATEWAY_STATUSES = (502, 503, 504)
_IN_FLIGHT = "idempotency-key-in-flight"


@dataclass(frozen=True)
class Call:
    """One request; with ``idempotent`` it changes something and is sent under an idempotency key."""

    method: str
    path: str
    body: Any = None
    params: Mapping[str, Any] = field(default_factory=dict)
    idempotent: bool = False
    if_match: int | None = None

    def content(self) -> bytes | None:
        """The body's bytes; floats round-trip exactly."""
        if self.body is None:
            return None
        return json.dumps(self.body, separators=(",", ":"), allow_nan=False).encode()

    def headers(self, key: str | None) -> dict[str, str]:
        """Headers of its own."""
        found = {} if self.body is None else {"Content-Type": "application/json"}
        if key is not None:
            found["Idempotency-Key"] = key
        if self.if_match is not None:
            found["If-Match"] = f'"{self.if_match}"'
        return found


@dataclass(frozen=True)
class Answer:
    """What the service said; ``replayed`` if it had said so before, to the same key."""

    body: dict[str, Any]
    key: str | None = None
    replayed: bool = False


@contextlib.contextmanager
def about(answer: Answer) -> Iterator[None]:
    """Ask something more about an answer: what is raised where none comes has the answer's own key.

    So that the caller, who asks again under the error's key, asks for the same and pays nothing twice.
    """
    try:
        yield
    except NoAnswer as error:
        raise type(error)(error.reason, answer.key) from error


@dataclass(frozen=True)
class Again:
    """No answer yet: why, and after how long the service wants to be asked again."""

    error: NoAnswer
    after_seconds: float = 0.0


def read_answer(status: int, headers: Mapping[str, str], content: bytes, key: str | None) -> Answer | Again:
    """What a response means: an answer, or a reason to ask again. Raises what it refuses."""
    if status in _GATEWAY_STATUSES:
        error = Unavailable(f"the service is not available (HTTP {status})", key)
        return Again(error, _seconds(headers.get("retry-after")))
    body = _object(status, content)
    if status in (200, 201):
        return Answer(body, key, headers.get("idempotency-replayed") == "true")
    if status >= 500:
        raise ServiceFailed(f"{body.get('title', 'the service failed')} (HTTP {status})", key)
    if str(body.get("type", "")).endswith(_IN_FLIGHT):
        still = NoAnswer("the first request under this key is still being decided", key)
        return Again(still, _seconds(headers.get("retry-after")))
    if status < 400 or "type" not in body:
        raise UnexpectedAnswer(f"HTTP {status} is no answer of this service")
    raise refusal({"status": status, **body}, key)


def _object(status: int, content: bytes) -> dict[str, Any]:
    try:
        body = json.loads(content)
    except ValueError:
        body = None
    if not isinstance(body, dict):
        raise UnexpectedAnswer(f"HTTP {status} without a JSON object is no answer of this service")
    return body


def _seconds(retry_after: str | None) -> float:
    """Retry-After in seconds; a date, which this service never sends, counts as none."""
    return float(retry_after) if retry_after is not None and retry_after.isdecimal() else 0.0


def dataset_path(name: str, rest: str = "") -> str:
    """The address of a dataset, or of something of it."""
    return f"/v1/datasets/{quote(name, safe='')}{rest}"


def getting(path: str, **params: Any) -> Call:
    """Read something; parameters that are None are left out."""
    return Call("GET", path, params={name: value for name, value in params.items() if value is not None})


def asking(query: str, body: Mapping[str, Any]) -> Call:
    """Ask something that records nothing."""
    return Call("POST", f"/v1/{query}", dict(body))


def step_body(releases: Releases, sample: Sample | None) -> dict[str, Any]:
    """A step without a run."""
    body: dict[str, Any] = {"releases": [release.fields() for release in as_releases(releases)]}
    return body if sample is None else {**body, "sample": sample.fields()}


def costing(
    releases: Releases, sample: Sample | None, adjacency: str, orders: Sequence[float] | None
) -> Call:
    """Ask what a step costs."""
    chosen = {} if orders is None else {"orders": list(orders)}
    return asking("costs", {**step_body(releases, sample), "adjacency": adjacency, **chosen})


def forecasting(
    dataset: str, releases: Releases, sample: Sample | None, partition: str | None, allocation: str | None
) -> Call:
    """Ask how many more such steps fit."""
    part = {"partition": partition, "allocation": allocation}
    chosen = {name: value for name, value in part.items() if value is not None}
    return Call("POST", dataset_path(dataset, "/forecast"), {**step_body(releases, sample), **chosen})


def budget_body(
    budget: Mapping[str, Any] | None,
    plan: Sequence[Mapping[str, Any]] | None,
    epsilon: float | None = None,
    delta: float | None = None,
) -> dict[str, Any]:
    """A budget as it was given, or the one that a plan's items and their (ε, δ) are."""
    inside = _inside(budget, plan)
    if plan is None:
        if epsilon is not None or delta is not None:
            raise ValueError("epsilon and delta go with a plan: a budget has its own")
        return inside
    if epsilon is None or delta is None:
        raise ValueError("epsilon and delta must be given with a plan")
    return {**inside, "epsilon": float(epsilon), "delta": float(delta)}


def _inside(budget: Mapping[str, Any] | None, plan: Sequence[Mapping[str, Any]] | None) -> dict[str, Any]:
    """A budget of any kind; a plan's by its items."""
    if budget is not None and plan is None:
        return dict(budget)
    if budget is None and plan is not None:
        return {"accounting": "plan", "items": [dict(item) for item in plan]}
    raise ValueError("give either a budget or a plan")


def allocating(
    dataset: str,
    name: str,
    epsilon: float,
    delta: float,
    budget: Mapping[str, Any] | None,
    plan: Sequence[Mapping[str, Any]] | None,
) -> Call:
    """Allocate a part of a dataset's budget; ε and δ are the allocation's, whatever kind it is inside."""
    body = {"name": name, "epsilon": float(epsilon), "delta": float(delta), "budget": _inside(budget, plan)}
    return Call("POST", dataset_path(dataset, "/allocations"), body, idempotent=True)


def returning_allocation(dataset: str, name: str, reason: str) -> Call:
    """Return an allocation from which nothing was released."""
    return Call("POST", f"{allocation_path(dataset, name)}/return", {"reason": reason}, idempotent=True)


def allocation_path(dataset: str, name: str) -> str:
    """The address of an allocation of a dataset's budget."""
    return dataset_path(dataset, f"/allocations/{quote(name, safe='')}")


def requesting_budget(dataset: str, reason: str, asked: Mapping[str, Mapping[str, Any] | None]) -> Call:
    """Ask an admin for one of an ``allocation``, a larger ``quota`` and another ``budget``."""
    given = {kind: dict(fields) for kind, fields in asked.items() if fields is not None}
    if len(given) != 1:
        raise ValueError("give one of allocation, quota and budget")
    return Call("POST", budget_request_path(dataset), {**given, "reason": reason}, idempotent=True)


def deciding_request(dataset: str, request: str, decision: str, reason: str | None) -> Call:
    """Approve or reject a request for budget."""
    body = {"decision": decision, **({} if reason is None else {"reason": reason})}
    return Call("POST", f"{budget_request_path(dataset, request)}/decision", body, idempotent=True)


def withdrawing_request(dataset: str, request: str, reason: str | None) -> Call:
    """Withdraw a request for budget."""
    body = {} if reason is None else {"reason": reason}
    return Call("POST", f"{budget_request_path(dataset, request)}/withdrawal", body, idempotent=True)


def budget_request_path(dataset: str, request: str | None = None) -> str:
    """The address of a dataset's requests for budget, or of one."""
    one = "" if request is None else f"/{quote(request, safe='~')}"
    return dataset_path(dataset, f"/budget-requests{one}")


def opening(name: str, budget: Mapping[str, Any], **settings: Any) -> Call:
    """Open a dataset; settings that are None are left to the service."""
    given = {key: value for key, value in settings.items() if value is not None}
    return Call("POST", "/v1/datasets", {"name": name, "budget": dict(budget), **given}, idempotent=True)


def changing_budget(name: str, budget: Mapping[str, Any], reason: str, sequence: int) -> Call:
    """Change a budget as it was seen at ``sequence``."""
    body = {"budget": dict(budget), "reason": reason}
    return Call("POST", dataset_path(name, "/budget-changes"), body, idempotent=True, if_match=sequence)


def opening_partitions(
    name: str, wanted: int | Sequence[str], budget: Mapping[str, Any] | None = None
) -> Call:
    """Open partitions: so many, or by name."""
    body: dict[str, Any] = {"count": wanted} if isinstance(wanted, int) else {"names": list(wanted)}
    if budget is not None:
        body["budget"] = dict(budget)
    return Call("POST", dataset_path(name, "/partitions"), body, idempotent=True)


def renewing(name: str, period: str, budget: Mapping[str, Any] | None, reason: str) -> Call:
    """Set the policy of renewal; without a budget, end it."""
    body = {"period": period, "budget": None if budget is None else dict(budget), "reason": reason}
    return Call("POST", dataset_path(name, "/renewal"), body, idempotent=True)


def opening_epoch(name: str, epoch: str, statement: str) -> Call:
    """Open the partition of an epoch, stating that its records were in no other."""
    body = {"epoch": epoch, "records_are_new": True, "statement": statement}
    return Call("POST", dataset_path(name, "/epochs"), body, idempotent=True)


def spend_body(run: str, releases: Releases, sample: Sample | None, **settings: str | None) -> dict[str, Any]:
    """Releases on one sample, as the service reads them.

    ``settings`` are the partition, the allocation and the item of a plan, where they are not None.
    """
    given = {name: value for name, value in settings.items() if value is not None}
    return {"run": run, **step_body(releases, sample), **given}


def spending(dataset: str, body: Mapping[str, Any]) -> Call:
    """Authorize one step."""
    return Call("POST", dataset_path(dataset, "/authorizations"), dict(body), idempotent=True)


def reserving(dataset: str, body: Mapping[str, Any], times: int, expires_in_seconds: float) -> Call:
    """Reserve repetitions of a step."""
    held = {**body, "times": times, "expires_in_seconds": float(expires_in_seconds)}
    return Call("POST", dataset_path(dataset, "/reservations"), held, idempotent=True)


def settling(reservation: str, used: int) -> Call:
    """Settle a reservation."""
    path = f"/v1/reservations/{quote(reservation, safe='~')}/settlement"
    return Call("POST", path, {"used": used}, idempotent=True)


def showing_reservation(reservation: str) -> Call:
    """Ask whether a reservation is open."""
    return getting(f"/v1/reservations/{quote(reservation, safe='~')}")


def bulk(items: Sequence[Mapping[str, Any]], mode: str) -> Call:
    """Authorize a list across datasets and partitions."""
    return Call(
        "POST", "/v1/authorizations", {"mode": mode, "items": [dict(i) for i in items]}, idempotent=True
    )
