"""Where migrations run: on the connection that the service hands over, or on the URL given to alembic."""

import os
from typing import Any

from alembic import context
from alembic.util import CommandError
from sqlalchemy import Connection

from dpledger.storage.engine.engines import make_engine
from dpledger.storage.migrate import migrating
from dpledger.storage.tables import metadata


def _migrate(connection: Connection) -> None:
    context.configure(
        connection=connection,
        on_version_apply=_refuse_data_loss,
        target_metadata=metadata,
        render_as_batch=connection.dialect.name == "sqlite",
    )
    with context.begin_transaction():
        context.run_migrations()


def _refuse_data_loss(ctx: Any, step: Any, heads: Any, run_args: Any) -> None:  # noqa: ARG001
    """Stop before a downgrade is committed: it drops tables with all that was recorded in them.

    Alembic calls it with these names after each step, inside of the transaction.
    """
    allowed = context.config.attributes.get("allow_data_loss") or _chosen("allow-data-loss") == "yes"
    if not (step.is_upgrade or allowed):
        raise CommandError(
            "a downgrade drops what the newer tables hold: back up first, then say -x allow-data-loss=yes"
        )


def _chosen(name: str) -> str | None:
    found: str | None = context.get_x_argument(as_dictionary=True).get(name)
    return found


def _url() -> str:
    return str(_chosen("database") or os.environ.get("DPLEDGER_DATABASE", "sqlite:///budget.db"))


handed_over = context.config.attributes.get("connection")
if handed_over is not None:
    _migrate(handed_over)
else:
    engine = make_engine(_url())
    try:
        with migrating(engine) as opened:
            _migrate(opened)
    finally:
        engine.dispose()
