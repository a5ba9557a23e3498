"""Writes JSON: the bodies of answers, the texts that are kept under idempotency keys, and HTTP responses.

A replay has the bytes of the first answer: bodies are written from what is stored, and a kept text is sent
as it is. Bodies of grants are written out by hand, since every step of every training job gets one.
"""

import functools
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import yaml
from starlette.responses import Response

from dpledger.api.http.problems import BUDGET_EXHAUSTED, MEDIA_TYPE, QUOTA_EXCEEDED, Problem, problem_of
from dpledger.ledger.bulk import no_pause
from dpledger.ledger.decide import Refused
from dpledger.ledger.model.entries import Charge, identifier, moment, quoted
from dpledger.ledger.ports import KeptGrant
from dpledger.ledger.quotas import quota_fields
from dpledger.ledger.reader import request_fields
from dpledger.ledger.receipts import Signer, grant_statement
from dpledger.ledger.renewals import renewal_fields
from dpledger.ledger.results import (
    AllocationOpening,
    AllocationRefusal,
    AllocationReturn,
    BudgetChange,
    DatasetOpening,
    Grant,
    ItemFailure,
    ItemRecord,
    ListItem,
    ListResult,
    PartitionOpening,
    QuotaChange,
    RenewalChange,
    RequestApproval,
    RequestRecord,
    ReservationGrant,
    Result,
    RollbackAcceptance,
    SettlementRecord,
    SpendRefusal,
    StoredResult,
)

__all__ = [
    "REPLAYED_HEADER",
    "RawResponse",
    "ResponseWriter",
    "error_response",
    "json_text",
    "number_text",
    "to_json_response",
    "with_etag",
    "yaml_text",
]

REPLAYED_HEADER = "Idempotency-Replayed"
_JSON_TYPE = (b"content-type", b"application/json")
_PROBLEM_TYPE = (b"content-type", MEDIA_TYPE.encode())
_REPLAYED = (REPLAYED_HEADER.lower().encode(), b"true")
_ENCODER = json.JSONEncoder(separators=(",", ":"), allow_nan=False)
_KEPT_CHARGES = 4096


def json_text(body: Mapping[str, Any]) -> str:
    """JSON whose floats round-trip exactly."""
    return _ENCODER.encode(body)


def number_text(body: Mapping[str, float]) -> str:
    """The same for an object of finite numbers alone."""
    return "{" + ",".join([f'"{name}":{float.__repr__(value)}' for name, value in body.items()]) + "}"


def _write_charge(charge: Charge) -> tuple[str, str]:
    """The sample and the cost of a charge as JSON; a charge is shared by all of its entries."""
    return json_text(charge.step.sample.fields()), json_text(charge.cost_fields)


# What is remembered keeps the charge itself alive, so that long ones are written each time.
_kept_texts = functools.lru_cache(maxsize=_KEPT_CHARGES)(_write_charge)


def yaml_text(document: Mapping[str, Any]) -> str:
    """YAML without folded scalars, which the registry rejects: lines are as long as their texts."""
    text: str = yaml.safe_dump(document, sort_keys=False, allow_unicode=True, width=float("inf"))
    return text


def to_json_response(
    body: Mapping[str, Any], status: int = 200, headers: Mapping[str, str] | None = None
) -> Response:
    """A body as it is."""
    return Response(json_text(body), status, headers, "application/json")


def with_etag(body: Mapping[str, Any]) -> Response:
    """A body with the sequence number that it is true at as its ETag."""
    return to_json_response(body, headers={"ETag": f'"{body["sequence"]}"'})


@dataclass(frozen=True)
class RawResponse:
    """Status, headers and body as they go out."""

    status: int
    headers: list[tuple[bytes, bytes]]
    body: bytes

    def response(self) -> Response:
        """The same for a route of the framework."""
        response = Response(self.body, self.status)
        response.raw_headers = list(self.headers)
        return response


def error_response(error: Exception) -> RawResponse:
    """The problem that an error is."""
    problem = problem_of(error)
    answer = _raw_response(problem.kind.status, _PROBLEM_TYPE, problem.body, replayed=False)
    answer.headers.extend(
        (name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in problem.headers.items()
    )
    return answer


def _raw_response(status: int, media_type: tuple[bytes, bytes], body: bytes, replayed: bool) -> RawResponse:
    headers = [(b"content-length", b"%d" % len(body)), media_type]
    if replayed:
        headers.append(_REPLAYED)
    return RawResponse(status, headers, body)


class ResponseWriter:
    """Writes results as responses and as kept texts; implements :class:`dpledger.ledger.ports.Renderer`."""

    def __init__(self, signer: Signer) -> None:
        self._signer = signer

    def respond(self, result: Result | Exception, pause: Callable[[], None] = no_pause) -> RawResponse:
        """The response to a decision: 201, 409 for a refusal, or the problem that an error is.

        ``pause`` is called between the items of a list.
        """
        if isinstance(result, Exception):
            return error_response(result)
        if result.outcome == "granted":
            text = self._grant_text(result) if isinstance(result, Grant) else self.body(result, pause)
            return _raw_response(201, _JSON_TYPE, text.encode(), result.replayed)
        problem = _refusal_problem(self._refusal_members(result, pause))
        return _raw_response(409, _PROBLEM_TYPE, problem.body, result.replayed)

    def body(self, result: Result, pause: Callable[[], None] = no_pause) -> str:
        """The body of a granted result."""
        if isinstance(result, StoredResult):
            return result.body
        if isinstance(result, Grant | ReservationGrant):
            return self._grant_text(result)
        if isinstance(result, ListResult):
            results = self._item_texts(result.items, pause)
            return f'{{"outcome":"{result.outcome}","results":[{",".join(results)}]}}'
        return json_text(_fields(result))

    def render_kept(self, result: Result) -> str:
        """The text that is kept of a result under its key."""
        if isinstance(result, ListResult):
            return json_text({"items": [_kept_item(item) for item in result.items]})
        if isinstance(result, (SpendRefusal, AllocationRefusal)):
            return json_text(_refusal_fields(result))
        return self.body(result)

    def parse_kept_list(self, body: str) -> list[KeptGrant | ItemRecord]:
        """The items of a list that was kept."""
        return [
            KeptGrant(item["dataset"], item["sequence"]) if "sequence" in item else ItemRecord(item)
            for item in json.loads(body)["items"]
        ]

    def _grant_text(self, grant: Grant | ReservationGrant) -> str:
        dataset, entry = grant.dataset, grant.entry
        write = _write_charge if grant.charge.is_long else _kept_texts
        sample_text, cost_text = write(grant.charge)
        if isinstance(grant, Grant):
            drawn_at = entry.sequence if entry.sample is None else entry.sample
            sample_text = f'{{"id":{quoted(identifier(dataset, drawn_at))},{sample_text[1:]}'
            ends = ""
        else:
            # Each repetition draws its own sample, so there is no id to name.
            ends = f',"times":{entry.times},"expires_at":"{moment(entry.expires_at_us or 0)}"'
        named = "" if grant.partition is None else f'"partition":{quoted(grant.partition)},'
        if grant.allocation is not None:
            named += f'"allocation":{quoted(grant.allocation)},'
        return (
            f'{{"id":{quoted(identifier(dataset, entry.sequence))},"sequence":{entry.sequence},'
            f'"dataset":{quoted(dataset)},"run":{quoted(entry.run or "")},{named}'
            f'"sample":{sample_text},"cost":{cost_text},'
            f'"remaining":{number_text(grant.budget.remaining_at(grant.fraction))},'
            f'"receipt":"{self._signer.sign(grant_statement(dataset, entry, grant.charge))}"{ends}}}'
        )

    def _item_texts(self, items: Sequence[ListItem], pause: Callable[[], None]) -> list[str]:
        texts: list[str] = []
        for item in items:
            if isinstance(item, Grant):
                texts.append(f'{{"granted":{self.body(item)}}}')
            else:
                texts.append(json_text(_kept_item(item)))
            pause()
        return texts

    def _refusal_members(self, result: Result, pause: Callable[[], None]) -> dict[str, Any]:
        """The fields of a refusal."""
        if isinstance(result, (SpendRefusal, AllocationRefusal)):
            return _refusal_fields(result)
        if isinstance(result, ListResult):
            fields = []
            for item in result.items:
                fields.append(_kept_item(item))
                pause()
            return {"outcome": result.outcome, "results": fields}
        assert isinstance(result, StoredResult), "nothing else is refused"
        members: dict[str, Any] = json.loads(result.body)
        return members


def _refusal_problem(members: Mapping[str, Any]) -> Problem:
    """A refusal as a problem; its detail is made from its fields, so that it is the same each time."""
    if "results" in members:
        refused = [each["refused"] for each in members["results"] if "refused" in each]
        if refused and all("quota" in each for each in refused):
            return Problem(QUOTA_EXCEEDED, "Quotas do not cover all items, so none was taken.", members)
        detail = "The budgets do not cover all items, so none was taken."
    elif "quota" in members:
        return Problem(QUOTA_EXCEEDED, _quota_text(members["dataset"], members["quota"]), members)
    else:
        name = members["dataset"]
        budget = f"The budget of {name}"
        if "run" in members and "allocation" in members:
            budget = f"The allocation {members['allocation']} of {name}"
        detail = f"{budget} does not cover this; fits says what would still be granted."
    return Problem(BUDGET_EXHAUSTED, detail, members)


def _quota_text(dataset: str, quota: Mapping[str, Any]) -> str:
    window = "" if quota["window_seconds"] is None else f" in {quota['window_seconds']} s"
    frees = "" if quota["frees_at"] is None else f"; its window frees something at {quota['frees_at']}"
    return (
        f"Team {quota['team']} may use {quota['fraction']!r} of the budget of {dataset}{window}, and "
        f"{quota['remaining']['fraction']:.6f} is left{frees}. The budget itself would cover this."
    )


def _kept_item(item: ListItem) -> Mapping[str, Any]:
    """An item of a list as it is kept; a grant is found again by its entry."""
    if isinstance(item, Grant):
        return {"dataset": item.dataset, "sequence": item.entry.sequence}
    if isinstance(item, SpendRefusal):
        named = {} if item.partition is None else {"partition": item.partition}
        return {"refused": {**_refusal_fields(item), **named}}
    if isinstance(item, ItemFailure):
        return {"failed": {"reason": item.reason, "detail": item.detail}}
    return item.fields if isinstance(item, ItemRecord) else {"not_taken": True}


def _refusal_fields(refusal: SpendRefusal | AllocationRefusal) -> dict[str, Any]:
    """What was asked, what is left, what would still fit; and the quota, where that refused it."""
    if isinstance(refusal, AllocationRefusal):
        return {
            "dataset": refusal.dataset,
            "allocation": refusal.name,
            "requested": {"epsilon": refusal.epsilon, "delta": refusal.delta},
            "remaining": refusal.refused.remaining,
            "fits": refusal.refused.fits,
            "sequence": refusal.refused.sequence,
            **_exceeded_fields(refusal.refused),
        }
    named = {} if refusal.allocation is None else {"allocation": refusal.allocation}
    return {
        "dataset": refusal.dataset,
        "run": refusal.run,
        **named,
        "requested": {"times": refusal.times, "cost": refusal.charge.cost_fields},
        "remaining": refusal.refused.remaining,
        "fits": refusal.refused.fits,
        "sequence": refusal.refused.sequence,
        **_exceeded_fields(refusal.refused),
    }


def _exceeded_fields(refused: Refused) -> dict[str, Any]:
    if refused.quota is None or refused.budget is None:
        return {}
    return {"quota": quota_fields(refused.quota, refused.budget, refused.quota.latest_us)}


@functools.singledispatch
def _fields(result: object) -> dict[str, Any]:
    """The fields of a result that is rendered by the library."""
    raise TypeError(f"{type(result).__name__} is written elsewhere")


@_fields.register
def _settlement_fields(result: SettlementRecord) -> dict[str, Any]:
    held, used = result.reservation, result.entry.used
    return {
        "id": identifier(result.dataset, held.sequence),
        "sequence": result.entry.sequence,
        "dataset": result.dataset,
        "run": held.run,
        "times": held.times,
        "used": used,
        "returned": held.times - (used or 0),
        "remaining": result.budget.remaining_at(result.fraction),
    }


@_fields.register
def _opening_fields(result: DatasetOpening) -> dict[str, Any]:
    dataset, budget = result.dataset, result.dataset.budget
    return {
        "name": dataset.name,
        "sequence": 1,
        "adjacency": dataset.adjacency,
        "unit": dataset.unit,
        "partition_key": dataset.partition_key,
        "budget": budget.shown,
        "orders": budget.orders.tolist(),
        "weights": None if budget.weights is None else budget.weights.tolist(),
        "opened_at": moment(dataset.at_us),
        **budget.filter.analysis(budget),
        "warnings": result.warnings,
    }


@_fields.register
def _budget_change_fields(result: BudgetChange) -> dict[str, Any]:
    return {
        "name": result.dataset,
        "sequence": result.sequence,
        "remaining": result.remaining,
        "guarantee": result.guarantee,
        "warnings": result.warnings,
    }


@_fields.register
def _rollback_fields(result: RollbackAcceptance) -> dict[str, Any]:
    return {"name": result.dataset, "sequence": result.sequence, "remaining": result.remaining}


@_fields.register
def _allocation_fields(result: AllocationOpening) -> dict[str, Any]:
    allocation, dataset = result.allocation, result.dataset
    return {
        "id": identifier(dataset, allocation.sequence),
        "name": allocation.name,
        "sequence": allocation.sequence,
        "dataset": dataset,
        "owner": allocation.owner,
        "epsilon": allocation.epsilon,
        "delta": allocation.delta,
        "budget": allocation.budget.shown,
        **allocation.budget.filter.analysis(allocation.budget),
        "remaining": result.remaining,
        "warnings": result.warnings,
    }


@_fields.register
def _return_fields(result: AllocationReturn) -> dict[str, Any]:
    allocation = result.allocation
    return {
        "id": identifier(result.dataset, allocation.sequence),
        "name": allocation.name,
        "sequence": result.sequence,
        "dataset": result.dataset,
        "owner": allocation.owner,
        "state": allocation.state,
        "epsilon": allocation.epsilon,
        "delta": allocation.delta,
        "remaining": result.remaining,
    }


@_fields.register
def _quota_change_fields(result: QuotaChange) -> dict[str, Any]:
    named = {"dataset": result.dataset, "sequence": result.entry.sequence}
    if result.quota is None:
        return {**named, "team": result.team, "fraction": None, "window_seconds": result.window_seconds}
    shown = quota_fields(result.quota, result.budget, result.entry.at_us)
    return {**named, **shown, "sequence": result.entry.sequence, "since": result.quota.sequence}


@_fields.register
def _renewal_fields(result: RenewalChange) -> dict[str, Any]:
    return renewal_fields(result.dataset, result.renewal, result.at_us)


@_fields.register
def _request_fields(result: RequestRecord) -> dict[str, Any]:
    return request_fields(result.dataset, result.request)


@_fields.register
def _approval_fields(result: RequestApproval) -> dict[str, Any]:
    return {
        **request_fields(result.dataset, result.request),
        "remaining": result.remaining,
        "guarantee": result.guarantee,
        "warnings": result.warnings,
    }


@_fields.register
def _partitions_fields(result: PartitionOpening) -> dict[str, Any]:
    return {
        "dataset": result.dataset,
        "sequence": result.sequence,
        "opened": len(result.names),
        "first": result.names[0],
        "last": result.names[-1],
        "warnings": result.warnings,
    }
