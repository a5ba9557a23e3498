"""A dataset's report for an auditor."""

from fastapi import APIRouter, Response

from dpledger.api.deps import ServicesDependency
from dpledger.api.http.routing import GuardedRoute, require_scope
from dpledger.api.responses import to_json_response
from dpledger.api.schemas.responses import ReportAnswer
from dpledger.auth.scopes import Scope
from dpledger.ledger.report import verified_report

__all__ = ["router"]

router = APIRouter(prefix="/v1/datasets/{dataset}", tags=["history"], route_class=GuardedRoute)


@router.get("/report", responses={200: {"model": ReportAnswer}}, summary="Report for an auditor")
@require_scope(Scope.READ)
def get_report(dataset: str, services: ServicesDependency) -> Response:
    """Show what is proven, what was spent and by whom, and what replaying every entry found."""
    return to_json_response(verified_report(services.storage, dataset, services.clock.now_us()))
