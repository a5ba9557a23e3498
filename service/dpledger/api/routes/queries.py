"""Cost queries: conversions, amplifications, compositions, calibrations, forecasts.

Nothing is recorded. Whatever needs the processor for long is answered by the worker process, so that no
query can hold up an authorization.
"""

import json

import anyio.to_thread
from fastapi import APIRouter, Response

from dpledger.api.deps import CallerOf, ServicesDependency, evaluate_query
from dpledger.api.http.problems import ADJACENCY_MISMATCH, ALLOCATION_RETURNED, UNPROVEN, UNREACHABLE
from dpledger.api.http.routing import GuardedRoute, require_scope
from dpledger.api.query_problems import BUSY, TOO_HARD, to_raw_response
from dpledger.api.responses import with_etag
from dpledger.api.schemas.queries import (
    AmplificationBody,
    CalibrationBody,
    CompositionBody,
    ConversionBody,
    ForecastBody,
)
from dpledger.api.schemas.query_responses import (
    AmplificationAnswer,
    CalibrationAnswer,
    CompositionAnswer,
    ConversionAnswer,
    ForecastAnswer,
)
from dpledger.auth.scopes import Scope
from dpledger.queries.forecast import charge_query, forecast, read_state
from dpledger.queries.outcomes import Failure

__all__ = ["router"]

router = APIRouter(prefix="/v1", tags=["accounting"], route_class=GuardedRoute)
_PROBLEMS = (BUSY, TOO_HARD, ADJACENCY_MISMATCH, UNPROVEN)


@router.post("/conversions", responses={200: {"model": ConversionAnswer}}, summary="Convert a guarantee")
@require_scope(Scope.READ, may_answer=_PROBLEMS)
async def post_conversions(body: ConversionBody, services: ServicesDependency, caller: CallerOf) -> Response:
    """Answer what a guarantee implies in another notion, or with ``goal`` what may be spent to reach it."""
    return await evaluate_query(services, body.to_query(), caller)


@router.post("/amplifications", responses={200: {"model": AmplificationAnswer}}, summary="Cost on a sample")
@require_scope(Scope.READ, may_answer=_PROBLEMS)
async def post_amplifications(
    body: AmplificationBody, services: ServicesDependency, caller: CallerOf
) -> Response:
    """Answer what releases, or an (ε, δ), cost on a sample, by the tightest theorem or a named one."""
    return await evaluate_query(services, body.to_query(), caller)


@router.post("/compositions", responses={200: {"model": CompositionAnswer}}, summary="Compose a fixed plan")
@require_scope(Scope.READ, may_answer=_PROBLEMS)
async def post_compositions(
    body: CompositionBody, services: ServicesDependency, caller: CallerOf
) -> Response:
    """Answer the total of steps fixed in advance; adaptive work is what a dataset's budget is for."""
    return await evaluate_query(services, body.to_query(), caller)


@router.post("/calibrations", responses={200: {"model": CalibrationAnswer}}, summary="Calibrate a plan")
@require_scope(Scope.READ, may_answer=[*_PROBLEMS, UNREACHABLE])
async def post_calibrations(
    body: CalibrationBody, services: ServicesDependency, caller: CallerOf
) -> Response:
    """Answer the least noise, or the most steps or the highest rate, with which a plan meets its target."""
    return await evaluate_query(services, body.to_query(), caller)


@router.post(
    "/datasets/{dataset}/forecast",
    responses={200: {"model": ForecastAnswer}},
    summary="How many more such steps fit",
)
@require_scope(Scope.READ, may_answer=[*_PROBLEMS, ALLOCATION_RETURNED])
async def post_forecast(
    dataset: str, body: ForecastBody, services: ServicesDependency, caller: CallerOf
) -> Response:
    """Answer the largest reservation of such steps that would be granted; ETag is when it is true."""
    query = body.to_query()
    state = await anyio.to_thread.run_sync(
        read_state, services.storage, dataset, query.partition, query.allocation
    )
    asked = charge_query(query, state.ledger)
    found = await services.queries.ask(asked, caller.id)
    if isinstance(found, Failure):
        return to_raw_response(found, services.queries.retry_seconds).response()
    return with_etag(forecast(state, asked, json.loads(found.text)))
