"""A dataset's entry for the Differential Privacy Deployments Registry."""

from typing import Annotated

from fastapi import APIRouter, Query, Response

from dpledger.api.deps import ServicesDependency
from dpledger.api.http.problems import INVALID_INPUT
from dpledger.api.http.routing import GuardedRoute, require_scope
from dpledger.api.responses import to_json_response, yaml_text
from dpledger.api.schemas.requests import DeploymentQuery
from dpledger.api.schemas.responses import DeploymentAnswer
from dpledger.auth.scopes import Scope

__all__ = ["router"]

router = APIRouter(prefix="/v1/datasets/{dataset}", tags=["history"], route_class=GuardedRoute)
_YAML = "application/yaml"


@router.get(
    "/deployment",
    responses={200: {"model": DeploymentAnswer, "content": {_YAML: {"schema": {"type": "string"}}}}},
    summary="Draft a registry entry",
)
@require_scope(Scope.READ, may_answer=[INVALID_INPUT])
def get_deployment(
    dataset: str, services: ServicesDependency, query: Annotated[DeploymentQuery, Query()]
) -> Response:
    """Draft the dataset's entry for the Differential Privacy Deployments Registry, as JSON or YAML."""
    document = services.reader.deployment(dataset, query.details())
    if query.format == "json":
        return to_json_response(document)
    return Response(yaml_text(document), media_type=_YAML)
