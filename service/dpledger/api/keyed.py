"""What routes share: who asks, the intent behind a request, its decision told once, its answer."""

from collections.abc import Callable, Sequence
from typing import Annotated, Any

from fastapi import Depends, Request, Response
from pydantic import BaseModel

from dpledger.api.answering import as_told
from dpledger.api.house import House
from dpledger.api.idempotency import hashed_key, hashed_request
from dpledger.api.outcomes import told
from dpledger.api.routing import caller_of
from dpledger.auth.gatekeeper import Caller
from dpledger.ledger.ports import Intent
from dpledger.ledger.requests import Answer, Spend

__all__ = ["SHORT_LIST", "CallerOf", "HouseOf", "IntentOf", "answered", "decided", "decided_list", "house_of"]

SHORT_LIST = 32


def house_of(request: Request) -> House:
    """The running service behind a request."""
    house: House = request.app.state.house
    return house


async def intent_of(request: Request) -> Intent:
    """Who asks, under which key, for what; If-Match is part of what is asked."""
    asked: bytes | None = getattr(request.state, "asked", None)
    if asked is None:
        asked = hashed_request({"body": await request.json(), "if_match": request.headers.get("if-match")})
    key = hashed_key(request.scope["path"], request.state.key)
    return Intent(caller_of(request).id, key, asked)


async def answered(house: House, question: BaseModel, caller: Caller) -> Response:
    """The worker's answer to a question, which waits in the line of its token."""
    found = await house.questions.ask(question, caller.id)
    return as_told(found, house.questions.retry_seconds).response()


CallerOf = Annotated[Caller, Depends(caller_of)]
HouseOf = Annotated[House, Depends(house_of)]
IntentOf = Annotated[Intent, Depends(intent_of)]


async def decided(house: House, intent: Intent, work: Callable[..., Answer], *arguments: Any) -> Response:
    """Have ``work`` decide an intent in a writer's thread, and tell what it said."""
    with house.in_flight.deciding(intent):
        return told(await house.write(house.metrics.counted(work), *arguments, intent)).response()


async def decided_list(house: House, intent: Intent, spends: Sequence[Spend], mode: str) -> Response:
    """Have the ledger decide a list; a long one in a lane of its own, where it gives way to others."""
    work = house.metrics.counted(house.ledger.authorize_all)
    with house.in_flight.deciding(intent):
        if len(spends) <= SHORT_LIST:
            return told(await house.write(work, spends, mode, intent)).response()
        house.lists.deciding += 1
        try:
            return told(await house.lists.run(work, spends, mode, intent)).response()
        finally:
            house.lists.deciding -= 1
