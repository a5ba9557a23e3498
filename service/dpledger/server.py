"""The service as it is served: the API, the dashboard beside it, and the watch over thresholds.

None of the three knows the others.
"""

import contextlib
from collections.abc import AsyncIterator
from typing import Any

import anyio.to_thread
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Mount, Route

from dpledger.alerts.watch import Watch
from dpledger.alerts.webhook import Webhook
from dpledger.api.app import LedgerApp, create_app
from dpledger.api.connections import BoundedProtocol, Connections
from dpledger.dashboard.app import create_dashboard
from dpledger.settings import Settings
from dpledger.storage.repositories.alerts import AlertStore

__all__ = ["bounded_protocol", "create_server"]

DASHBOARD = "/dashboard"


def create_server(settings: Settings, **options: Any) -> LedgerApp:
    """Build the application; ``options`` are those of :func:`dpledger.api.app.create_app`."""
    app = create_app(settings, **options)
    dashboard = create_dashboard(lambda: app.state.services)
    leading = [Route(path, _to_dashboard) for path in ("/", DASHBOARD)]
    app.router.routes.extend([*leading, Mount(DASHBOARD, dashboard)])
    if settings.alert_url is not None:
        _watch_thresholds(app, settings, Webhook(settings.alert_url, settings.alert_secret()))
    return app


def bounded_protocol(app: LedgerApp, settings: Settings) -> type[BoundedProtocol]:
    """The web server's side of each connection, within the settings' bounds and counted in the metrics."""
    connections = Connections(settings.max_connections, settings.head_seconds, settings.body_seconds)
    app.metrics.look_at_gauge(
        "dpledger_connections", "Connections that are open.", (), lambda: {(): len(connections.open)}
    )
    app.metrics.look_at_counter(
        "dpledger_connections_ended",
        "Connections that were ended because of a bound.",
        ("reason",),
        lambda: {(reason,): count for reason, count in dict(connections.ended).items()},
    )
    return connections.protocol()


def _to_dashboard(_request: Request) -> Response:
    return RedirectResponse(f"{DASHBOARD}/")


def _watch_thresholds(app: LedgerApp, settings: Settings, webhook: Webhook) -> None:
    """Watch from the moment the API has its database until before it lets go of it."""
    serve = app.router.lifespan_context

    @contextlib.asynccontextmanager
    async def lifespan(served: Any) -> AsyncIterator[Any]:
        async with serve(served) as state:
            store = AlertStore(app.state.services.storage.database)
            watch = await anyio.to_thread.run_sync(
                Watch, store, webhook, settings.alert_thresholds, app.state.services.clock
            )
            _count_alerts(app, store, watch)
            async with watch.running(settings.alert_seconds):
                yield state

    app.router.lifespan_context = lifespan


def _count_alerts(app: LedgerApp, store: AlertStore, watch: Watch) -> None:
    app.metrics.look_at_counter(
        "dpledger_alerts",
        "Attempts to tell that a dataset has passed a threshold.",
        ("outcome",),
        lambda: {(outcome,): count for outcome, count in dict(watch.outcomes).items()},
    )
    app.metrics.look_at_gauge(
        "dpledger_alerts_waiting",
        "Alerts that nobody has taken yet.",
        (),
        lambda: {(): store.waiting()},
    )
