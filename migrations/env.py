"""Where migrations run: on the connection that the service hands over, or on the URL given to alembic."""

import os

from alembic import context
from sqlalchemy import Connection

from dpledger.storage.engines import make_engine
from dpledger.storage.tables import metadata


def _migrate(connection: Connection) -> None:
    context.configure(
        connection=connection,
        target_metadata=metadata,
        render_as_batch=connection.dialect.name == "sqlite",
    )
    with context.begin_transaction():
        context.run_migrations()


def _url() -> str:
    given = context.get_x_argument(as_dictionary=True).get("database")
    return str(given or os.environ.get("DPLEDGER_DATABASE", "sqlite:///budget.db"))


handed_over = context.config.attributes.get("connection")
if handed_over is not None:
    _migrate(handed_over)
else:
    engine = make_engine(_url())
    with engine.begin() as opened:
        _migrate(opened)
    engine.dispose()
