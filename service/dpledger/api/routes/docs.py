"""Pages for people who read the API's description; they say no more than ``/openapi.json``."""

from fastapi import APIRouter, Response

from dpledger.api.docs_ui import ASSETS, asset, docs_page, redoc_page
from dpledger.api.http.routing import GuardedRoute, public
from dpledger.ledger.errors import NotFound

__all__ = ["router"]

router = APIRouter(route_class=GuardedRoute, include_in_schema=False)


@router.get("/docs")
@public()
def get_docs() -> Response:
    """Answer the page of Swagger UI."""
    return docs_page()


@router.get("/redoc")
@public()
def get_redoc() -> Response:
    """Answer the page of Redoc."""
    return redoc_page()


@router.get("/docs/{name}")
@public()
def get_asset(name: str) -> Response:
    """Answer a file of theirs."""
    if name not in ASSETS:
        raise NotFound("file", name)
    return asset(name)
