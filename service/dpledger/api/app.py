"""The web application."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any

import anyio.to_thread
from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from fastapi.telemetry import TelemetryConfig
from opentelemetry.trace import TracerProvider
from starlette.types import ASGIApp

from dpledger import __version__
from dpledger.api.describing import describe_kinds
from dpledger.api.fast_path import AuthorizationEndpoint, FastPath
from dpledger.api.http.admission import RequestContext
from dpledger.api.http.problems import install_problem_handlers
from dpledger.api.http.routing import SECURITY_SCHEME
from dpledger.api.metrics import Metrics
from dpledger.api.routes import (
    allocations,
    authorizations,
    budget_requests,
    costs,
    datasets,
    deployments,
    docs,
    entries,
    health,
    keys,
    metrics,
    partitions,
    queries,
    quotas,
    renewals,
    reports,
    reservations,
    rollbacks,
    tokens,
)
from dpledger.api.schemas.requests import SpendBody
from dpledger.api.schemas.responses import Problem
from dpledger.api.services import Services
from dpledger.ledger.clock import Clock, SystemClock
from dpledger.logs import log_event
from dpledger.settings import Settings

__all__ = ["LedgerApp", "create_app"]

_ROUTES = (
    allocations,
    authorizations,
    budget_requests,
    costs,
    datasets,
    deployments,
    docs,
    entries,
    health,
    keys,
    metrics,
    partitions,
    quotas,
    queries,
    renewals,
    reports,
    reservations,
    rollbacks,
    tokens,
)
Announce = Callable[[str], None]


class LedgerApp(FastAPI):
    """The application: authorizations take the fast path, everything else the framework's."""

    authorizations: AuthorizationEndpoint
    metrics: Metrics

    def build_middleware_stack(self) -> ASGIApp:
        """Put the fast path in front of the framework's own middleware; spans stand around both."""
        return FastPath(super().build_middleware_stack(), self.metrics)

    def openapi(self) -> dict[str, Any]:
        """The API's description, with what routes outside the framework's reading take and answer."""
        if self.openapi_schema is None:
            found = get_openapi(title=self.title, version=self.version, routes=self.routes)
            components = found.setdefault("components", {})
            components["securitySchemes"] = {SECURITY_SCHEME: {"type": "http", "scheme": "bearer"}}
            for model in (Problem, SpendBody):
                schema = model.model_json_schema(ref_template="#/components/schemas/{model}")
                components["schemas"].update(schema.pop("$defs", {}))
                components["schemas"][model.__name__] = schema
            describe_kinds(components["schemas"])
            self.openapi_schema = found
        return self.openapi_schema


def create_app(
    settings: Settings,
    *,
    clock: Clock | None = None,
    announce: Announce | None = None,
    tracer_provider: TracerProvider | None = None,
) -> LedgerApp:
    """Build the application; nothing is shared between two of them.

    Parameters
    ----------
    settings
        Where the ledger and its keys are.
    clock
        What tells the time; the machine's clock unless a test brings its own.
    announce
        Called once with the first admin token, when the ledger has no token yet.
    tracer_provider
        Where spans go if ``settings.otel``; where ``OTEL_*`` say unless a test brings its own.
    """
    app = LedgerApp(
        title="dpledger",
        version=__version__,
        # FastAPI's own pages load scripts from outside; ours do not.
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        lifespan=_lifespan(settings, clock or SystemClock(), announce),
        telemetry=_telemetry(settings.otel, tracer_provider),
    )
    app.state.settings = settings
    app.metrics = Metrics()
    install_problem_handlers(app)
    for module in _ROUTES:
        app.include_router(module.router)
    app.add_middleware(RequestContext, metrics=app.metrics)
    return app


def _telemetry(wanted: bool, tracer_provider: TracerProvider | None) -> TelemetryConfig:
    """FastAPI's own OpenTelemetry; what it logs, our logs say already."""
    return {
        "tracing": wanted,
        "metrics": wanted,
        "logs": False,
        "auto_configure": wanted and tracer_provider is None,
        "tracer_provider": tracer_provider,
    }


def _lifespan(settings: Settings, clock: Clock, announce: Announce | None) -> Any:
    @contextlib.asynccontextmanager
    async def lifespan(app: LedgerApp) -> AsyncIterator[None]:
        services = await anyio.to_thread.run_sync(Services, settings, clock, app.metrics)
        first = None if announce is None else await services.write(services.issuer.first_token)
        if first is not None and announce is not None:
            announce(first.text)
        services.start(asyncio.get_running_loop())
        app.state.services = services
        app.authorizations = AuthorizationEndpoint(services)
        log_event("started", version=__version__, database=services.database)
        try:
            yield
        finally:
            await services.close()
            log_event("stopped")

    return lifespan
