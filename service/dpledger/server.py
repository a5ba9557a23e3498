"""The service as it is served: the API with the dashboard beside it, neither of which knows the other."""

from typing import Any

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Mount, Route

from dpledger.api.app import LedgerApp, create_app
from dpledger.dashboard.app import create_dashboard
from dpledger.settings import Settings

__all__ = ["create_server"]

DASHBOARD = "/dashboard"


def create_server(settings: Settings, **options: Any) -> LedgerApp:
    """Build the application; ``options`` are those of :func:`dpledger.api.app.create_app`."""
    app = create_app(settings, **options)
    dashboard = create_dashboard(lambda: app.state.house)
    app.router.routes.extend([Route(DASHBOARD, _to_dashboard), Mount(DASHBOARD, dashboard)])
    return app


def _to_dashboard(_request: Request) -> Response:
    return RedirectResponse(f"{DASHBOARD}/")
