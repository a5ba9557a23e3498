"""Pure queries, answered in this process: neither a service nor a database is needed."""

import json
from typing import Any

from pydantic import BaseModel, ValidationError

from dpledger.accounting.errors import AccountingError
from dpledger.accounting.orders import DEFAULT_ORDERS
from dpledger.accounting.stepcost import cost_of
from dpledger.accounting.validation import check_orders
from dpledger.api.http.problems import invalid_body, problem_of
from dpledger.api.queries.evaluation import canonical, reply
from dpledger.api.queries.requests import CalibrationBody, ConversionBody
from dpledger.api.schemas.requests import CostRequest
from dpledger.api.schemas.responses import CostAnswer
from dpledger.cli.failures import failure_of

__all__ = ["evaluate", "evaluate_reply"]

_SHAPES: dict[str, type[BaseModel]] = {"calibrations": CalibrationBody, "conversions": ConversionBody}


def evaluate(query: str, body: dict[str, Any]) -> dict[str, Any]:
    """What the service would answer at ``/v1/<query>``, by the same functions."""
    try:
        if query == "costs":
            return _cost(CostRequest.model_validate(body))
        asked = _SHAPES[query].model_validate(body)
    except (ValidationError, AccountingError) as error:
        problem = problem_of(invalid_body(error) if isinstance(error, ValidationError) else error)
        raise failure_of(problem.kind.slug, problem.kind.status, problem.detail) from None
    return evaluate_reply(canonical(asked))


def evaluate_reply(query: str) -> dict[str, Any]:
    """The answer to a canonical query."""
    status, text = reply(query)
    found: dict[str, Any] = json.loads(text)
    if status != 200:
        raise failure_of(found["type"].removeprefix("/problems/"), status, found["detail"])
    return found


def _cost(asked: CostRequest) -> dict[str, Any]:
    orders = DEFAULT_ORDERS if asked.orders is None else check_orders(asked.orders)
    return CostAnswer.of(cost_of(asked.step(), orders)).model_dump()
