"""Datasets and their budgets."""

from typing import Annotated, Any

from fastapi import APIRouter, Header, Query, Request, Response

from dpledger.accounting.errors import InvalidInput
from dpledger.api.deps import IdempotentRequestDependency, ServicesDependency, decide_once
from dpledger.api.http.pagination import DEFAULT_LIMIT, Cursor, Limit, page, text_after
from dpledger.api.http.problems import (
    ADJACENCY_MISMATCH,
    ALREADY_EXISTS,
    INVALID_INPUT,
    PRECONDITION_FAILED,
    PRECONDITION_REQUIRED,
    UNPROVEN,
    UNREACHABLE,
    RefusedRequest,
)
from dpledger.api.http.routing import GuardedRoute, caller_of, require_scope
from dpledger.api.responses import to_json_response, with_etag
from dpledger.api.schemas.requests import BudgetChangeBody, DatasetBody, Search
from dpledger.api.schemas.responses import (
    BudgetAnswer,
    BudgetChangeAnswer,
    DatasetAnswer,
    DatasetPage,
    OpenedAnswer,
)
from dpledger.auth.scopes import Scope
from dpledger.ledger.errors import NotFound
from dpledger.ledger.model.budget import Budget
from dpledger.ledger.planning import plan_of
from dpledger.ledger.ports import IdempotentRequest, NewDataset
from dpledger.ledger.reader import LedgerReader
from dpledger.ledger.results import DatasetOpening, StoredResult
from dpledger.ledger.service import LedgerService

__all__ = ["router"]

router = APIRouter(prefix="/v1/datasets", tags=["datasets"], route_class=GuardedRoute)
_BUDGET_PROBLEMS = (ADJACENCY_MISMATCH, UNPROVEN, UNREACHABLE)


@router.post("", status_code=201, responses={201: {"model": OpenedAnswer}}, summary="Open a dataset")
@require_scope(Scope.ADMIN, idempotent=True, may_answer=[ALREADY_EXISTS, *_BUDGET_PROBLEMS])
async def post_dataset(
    request: Request, body: DatasetBody, services: ServicesDependency, call: IdempotentRequestDependency
) -> Response:
    """Open a dataset; its budget's rule, orders and weights are fixed from here on."""
    caller_of(request).require_dataset(body.name)
    await services.compose(Budget.from_fields, body.budget.fields(), body.adjacency)
    return await decide_once(services, call, open_dataset, services.ledger, body)


def open_dataset(
    ledger: LedgerService, body: DatasetBody, call: IdempotentRequest
) -> DatasetOpening | StoredResult:
    """Read the budget and open the dataset."""
    fields = body.budget.fields()
    dataset = NewDataset(
        name=body.name,
        description=body.description,
        adjacency=body.adjacency.value,
        unit=body.unit,
        records=body.records,
        partition_key=body.partition_key_or_default(),
        budget=Budget.from_fields(fields, body.adjacency),
        at_us=0,
        plan=plan_of(fields, body.adjacency),
        units_in_one_partition=body.units_in_one_partition,
    )
    return ledger.open_dataset(dataset, call)


@router.get("", responses={200: {"model": DatasetPage}}, summary="List datasets")
@require_scope(Scope.READ, may_answer=[INVALID_INPUT])
def get_datasets(
    request: Request,
    services: ServicesDependency,
    limit: Limit = DEFAULT_LIMIT,
    cursor: Cursor = None,
    search: Annotated[Search | None, Query(description="Part of the name or description.")] = None,
) -> Response:
    """List the datasets that the token reaches, by name."""
    after, allowed = text_after(cursor), caller_of(request).datasets
    if allowed is None:
        found = services.reader.datasets(after, limit + 1, search)
    else:
        found = _visible(services.reader, sorted(allowed), after, limit + 1, search)
    return to_json_response(page(found, limit, lambda item: item["name"]))


def _visible(
    reader: LedgerReader, names: list[str], after: str, limit: int, search: str | None
) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for name in names:
        if name > after and len(found) < limit:
            try:
                shown_there = reader.dataset(name)
            except NotFound:
                continue
            if _mentions(shown_there, (search or "").lower()):
                found.append(shown_there)
    return found


def _mentions(item: dict[str, Any], wanted: str) -> bool:
    return wanted in item["name"].lower() or wanted in item["description"].lower()


@router.get("/{dataset}", responses={200: {"model": DatasetAnswer}}, summary="Show a dataset")
@require_scope(Scope.READ)
def get_dataset(dataset: str, services: ServicesDependency) -> Response:
    """Show a dataset; ETag is the sequence number that it is true at."""
    return with_etag(services.reader.dataset(dataset))


@router.get("/{dataset}/budget", responses={200: {"model": BudgetAnswer}}, summary="What is left")
@require_scope(Scope.READ, may_answer=[INVALID_INPUT])
def get_budget(
    dataset: str,
    services: ServicesDependency,
    delta: Annotated[float | None, Query(description="The δ at which the running ε is shown.")] = None,
) -> Response:
    """Show limit, spent, reserved and remaining; ETag is the sequence number that they are true at."""
    return with_etag(services.reader.budget(dataset, delta))


@router.post(
    "/{dataset}/budget-changes",
    status_code=201,
    responses={201: {"model": BudgetChangeAnswer}},
    summary="Change a budget",
)
@require_scope(
    Scope.ADMIN,
    idempotent=True,
    may_answer=[PRECONDITION_FAILED, PRECONDITION_REQUIRED, *_BUDGET_PROBLEMS],
)
async def post_budget_change(
    dataset: str,
    body: BudgetChangeBody,
    services: ServicesDependency,
    call: IdempotentRequestDependency,
    if_match: Annotated[str | None, Header(description="The ETag of the dataset or its budget.")] = None,
) -> Response:
    """Set another limit under the same rule; below what is spent it closes the dataset to spending."""
    fields, sequence = body.budget.fields(), _sequence(if_match)
    return await decide_once(
        services, call, services.ledger.change_budget, dataset, fields, body.reason, sequence
    )


def _sequence(if_match: str | None) -> int:
    if if_match is None:
        raise RefusedRequest(PRECONDITION_REQUIRED, "Send If-Match with the ETag of the state you looked at.")
    digits = if_match.strip().removeprefix('"').removesuffix('"')
    if not (digits.isascii() and digits.isdigit() and len(digits) < 19):
        raise InvalidInput("If-Match", "the ETag of a dataset or its budget", if_match)
    return int(digits)
