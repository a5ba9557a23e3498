"""Liveness and readiness."""

from typing import Literal

from fastapi import APIRouter
from pydantic import BaseModel

from dpledger.api.deps import ServicesDependency
from dpledger.api.http.problems import UNAVAILABLE
from dpledger.api.http.routing import GuardedRoute, public

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
def readyz(services: ServicesDependency) -> Readiness:
    """Answer while the database can be reached and has the schema, and the standby, that are needed."""
    found = services.storage.ready()
    if services.standby is not None:
        services.standby.refuse_unready()
    return Readiness(database=found["database"], schema_revision=found["schema"])
