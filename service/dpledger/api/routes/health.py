"""Whether the process is alive, and whether it can serve."""

from typing import Literal

from fastapi import APIRouter
from pydantic import BaseModel

from dpledger.api.keyed import HouseOf
from dpledger.api.problems import UNAVAILABLE
from dpledger.api.routing import GuardedRoute, public

__all__ = ["router"]

router = APIRouter(tags=["health"], route_class=GuardedRoute)


class Health(BaseModel):
    """The answer while the process lives."""

    status: Literal["ok"] = "ok"


class Readiness(Health):
    """The answer while requests can be served."""

    database: str
    schema_revision: str


@router.get("/healthz", summary="The process is alive")
@public()
async def healthz() -> Health:
    """Answer as long as the event loop turns."""
    return Health()


@router.get("/readyz", summary="The process can serve")
@public(UNAVAILABLE)
def readyz(house: HouseOf) -> Readiness:
    """Answer while the database can be reached and has the schema, and the standby, that are needed."""
    found = house.storage.ready()
    if house.standby is not None:
        house.standby.refuse_unready()
    return Readiness(database=found["database"], schema_revision=found["schema"])
