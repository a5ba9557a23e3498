"""What the writing routes share: the intent behind a request, and its decision told once."""

from collections.abc import Callable
from typing import Annotated, Any

from fastapi import Depends, Request, Response

from dpledger.api.house import House
from dpledger.api.idempotency import hashed_key, hashed_request
from dpledger.api.outcomes import told
from dpledger.api.routing import caller_of
from dpledger.ledger.ports import Intent
from dpledger.ledger.requests import Answer

__all__ = ["HouseOf", "IntentOf", "decided", "house_of"]


def house_of(request: Request) -> House:
    """The running service behind a request."""
    house: House = request.app.state.house
    return house


async def intent_of(request: Request) -> Intent:
    """Who asks, under which key, for what; If-Match is part of what is asked."""
    content = {"body": await request.json(), "if_match": request.headers.get("if-match")}
    key = hashed_key(request.scope["path"], request.state.key)
    return Intent(caller_of(request).id, key, hashed_request(content))


HouseOf = Annotated[House, Depends(house_of)]
IntentOf = Annotated[Intent, Depends(intent_of)]


async def decided(house: House, intent: Intent, work: Callable[..., Answer], *arguments: Any) -> Response:
    """Have ``work`` decide an intent in a writer's thread, and tell what it said."""
    with house.in_flight.deciding(intent):
        return told(await house.write(house.metrics.counted(work), *arguments, intent)).response()
