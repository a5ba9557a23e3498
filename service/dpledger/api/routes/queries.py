"""Questions about costs: conversions, amplifications, compositions, calibrations, forecasts.

Nothing is recorded. Whatever needs the processor for long is answered by the worker process, so that no
question can hold up an authorization.
"""

import json

import anyio.to_thread
from fastapi import APIRouter, Response

from dpledger.api.answering import BUSY, as_told
from dpledger.api.forecasting import charge_question, forecast, read_state
from dpledger.api.keyed import CallerOf, HouseOf, answered
from dpledger.api.problems import ADJACENCY_MISMATCH, UNPROVEN, UNREACHABLE
from dpledger.api.query_answers import (
    AmplificationAnswer,
    CalibrationAnswer,
    CompositionAnswer,
    ConversionAnswer,
    ForecastAnswer,
)
from dpledger.api.query_bodies import (
    AmplificationBody,
    CalibrationBody,
    CompositionBody,
    ConversionBody,
    ForecastBody,
)
from dpledger.api.rendering import tagged
from dpledger.api.routing import GuardedRoute, guarded
from dpledger.api.worker import TOO_HARD
from dpledger.auth.scopes import Scope

__all__ = ["router"]

router = APIRouter(prefix="/v1", tags=["accounting"], route_class=GuardedRoute)
_PROBLEMS = (BUSY, TOO_HARD, ADJACENCY_MISMATCH, UNPROVEN)


@router.post("/conversions", responses={200: {"model": ConversionAnswer}}, summary="Convert a guarantee")
@guarded(Scope.READ, may_answer=_PROBLEMS)
async def post_conversions(body: ConversionBody, house: HouseOf, caller: CallerOf) -> Response:
    """Answer what a guarantee implies in another notion, or with ``goal`` what may be spent to reach it."""
    return await answered(house, body, caller)


@router.post("/amplifications", responses={200: {"model": AmplificationAnswer}}, summary="Cost on a sample")
@guarded(Scope.READ, may_answer=_PROBLEMS)
async def post_amplifications(body: AmplificationBody, house: HouseOf, caller: CallerOf) -> Response:
    """Answer what releases, or an (ε, δ), cost on a sample, by the tightest theorem or a named one."""
    return await answered(house, body, caller)


@router.post("/compositions", responses={200: {"model": CompositionAnswer}}, summary="Compose a fixed plan")
@guarded(Scope.READ, may_answer=_PROBLEMS)
async def post_compositions(body: CompositionBody, house: HouseOf, caller: CallerOf) -> Response:
    """Answer the total of steps fixed in advance; adaptive work is what a dataset's budget is for."""
    return await answered(house, body, caller)


@router.post("/calibrations", responses={200: {"model": CalibrationAnswer}}, summary="Calibrate a plan")
@guarded(Scope.READ, may_answer=[*_PROBLEMS, UNREACHABLE])
async def post_calibrations(body: CalibrationBody, house: HouseOf, caller: CallerOf) -> Response:
    """Answer the least noise, or the most steps or the highest rate, with which a plan meets its target."""
    return await answered(house, body, caller)


@router.post(
    "/datasets/{dataset}/forecast",
    responses={200: {"model": ForecastAnswer}},
    summary="How many more such steps fit",
)
@guarded(Scope.READ, may_answer=_PROBLEMS)
async def post_forecast(dataset: str, body: ForecastBody, house: HouseOf, caller: CallerOf) -> Response:
    """Answer the largest reservation of such steps that would be granted; ETag is when it is true."""
    state = await anyio.to_thread.run_sync(read_state, house.storage, dataset, body.partition)
    found = await house.questions.ask(charge_question(body, state[0]), caller.id)
    if found[0] != 200:
        return as_told(found, house.questions.retry_seconds).response()
    return tagged(forecast(state, json.loads(found[1])))
