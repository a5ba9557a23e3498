"""Pure queries, evaluated in this process: neither a service nor a database is needed."""

import json
from typing import Any

from pydantic import ValidationError

from dpledger.api.http.problems import invalid_body, problem_of
from dpledger.api.schemas.queries import CalibrationBody, ConversionBody
from dpledger.api.schemas.requests import CostRequest
from dpledger.cli.failures import failure_of
from dpledger.queries.evaluation import evaluate as answer
from dpledger.queries.requests import Query

__all__ = ["evaluate", "evaluate_query"]

_SCHEMAS: dict[str, type[CalibrationBody] | type[ConversionBody] | type[CostRequest]] = {
    "calibrations": CalibrationBody,
    "conversions": ConversionBody,
    "costs": CostRequest,
}


def evaluate(route: str, body: dict[str, Any]) -> dict[str, Any]:
    """What the service would answer at ``/v1/<route>``, by the same functions."""
    try:
        query = _SCHEMAS[route].model_validate(body).to_query()
    except ValidationError as error:
        problem = problem_of(invalid_body(error))
        raise failure_of(problem.kind.slug, problem.kind.status, problem.detail) from None
    return evaluate_query(query)


def evaluate_query(query: Query) -> dict[str, Any]:
    """The answer to a query."""
    try:
        found: dict[str, Any] = json.loads(answer(query).text)
    except Exception as error:
        problem = problem_of(error)
        raise failure_of(problem.kind.slug, problem.kind.status, problem.detail) from None
    return found
