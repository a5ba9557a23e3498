"""The Prometheus endpoint."""

from typing import Any

from fastapi import APIRouter, Request, Response

from dpledger.api.deps import ServicesDependency
from dpledger.api.http.routing import GuardedRoute, caller_of, require_scope
from dpledger.api.metrics import CONTENT_TYPE
from dpledger.auth.scopes import Scope

__all__ = ["router"]

router = APIRouter(tags=["operations"], route_class=GuardedRoute)
_TEXT: dict[int | str, dict[str, Any]] = {200: {"content": {"text/plain": {"schema": {"type": "string"}}}}}


@router.get("/metrics", responses=_TEXT, response_class=Response, summary="Metrics for Prometheus")
@require_scope(Scope.READ)
def get_metrics(request: Request, services: ServicesDependency) -> Response:
    """Answer counts, times and levels; they concern every dataset, and so must the token."""
    caller_of(request).require_all_datasets()
    return Response(services.metrics.text(), media_type=CONTENT_TYPE)
