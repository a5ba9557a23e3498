"""Bringing a database's schema to where this code needs it.

The migrations lie beside this module in an installed package, and at the top of the repository in a
checkout.
"""

import contextlib
import functools
from collections.abc import Callable, Iterator
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from alembic.util import CommandError
from sqlalchemy import Connection, Engine, text
from sqlalchemy.exc import DBAPIError

from dpledger.storage.engine.failures import translate_error

__all__ = ["downgrade", "head_revision", "is_newer_and_served", "migrating", "revision", "upgrade"]

_PLACES = (Path(__file__).parent / "migrations", Path(__file__).parents[3] / "migrations")
# Any number will do, as long as every replica uses the same.
_LOCK = 0x6470_6C65_6467_6572
_OLDEST_SERVING = text("SELECT value FROM meta WHERE name = 'oldest_serving'")
_WAIT = (
    "SET LOCAL lock_timeout = 0",
    "SET LOCAL statement_timeout = 0",
    f"SELECT pg_advisory_xact_lock({_LOCK})",
)


def upgrade(engine: Engine, target: str = "head") -> None:
    """Run every migration that is missing; of several processes one does it while the others wait.

    A newer schema that this code serves as well is left as it is.
    """
    if target == "head" and is_newer_and_served(engine):
        return
    _run(engine, lambda config: command.upgrade(config, target))


def downgrade(engine: Engine, target: str, *, allow_data_loss: bool = False) -> None:
    """Undo migrations back to ``target``; refused unless it is allowed that what they stored is lost."""

    def undo(config: Config) -> None:
        config.attributes["allow_data_loss"] = allow_data_loss
        command.downgrade(config, target)

    _run(engine, undo)


def revision(engine: Engine) -> str | None:
    """The schema's revision, or None where there is no schema."""
    try:
        with engine.connect() as connection:
            return MigrationContext.configure(connection).get_current_revision()
    except DBAPIError as error:
        raise translate_error(error) or error from error


def is_newer_and_served(engine: Engine) -> bool:
    """Whether a newer version made the schema, and says in it that this code may serve it all the same.

    A migration that only adds, or changes what no code names, leaves the oldest such revision in ``meta``;
    one that takes something away raises it. So replicas of two versions serve together for a while.
    """
    found, known = revision(engine), head_revision()
    if found is None or known is None or found <= known:
        return False
    with engine.connect() as connection:
        oldest = connection.execute(_OLDEST_SERVING).scalar()
    return oldest is not None and str(oldest) <= known


@functools.cache
def head_revision() -> str | None:
    """The revision that this code needs."""
    return ScriptDirectory.from_config(_config()).get_current_head()


def _run(engine: Engine, action: Callable[[Config], None]) -> None:
    config = _config()
    try:
        with migrating(engine) as connection:
            _wait_for_others(connection)
            config.attributes["connection"] = connection
            action(config)
    except DBAPIError as error:
        raise translate_error(error) or error from error


@contextlib.contextmanager
def migrating(engine: Engine) -> Iterator[Connection]:
    """One transaction in which tables may be copied.

    SQLite alters a constraint by a copy that takes the table's name. Meanwhile references into the table
    are not enforced, which can be said only before the transaction, and are all looked at before it commits.
    """
    if engine.dialect.name != "sqlite":
        with engine.begin() as connection:
            yield connection
        return
    with engine.connect() as connection:
        raw = connection.connection
        raw.execute("PRAGMA foreign_keys=OFF")
        try:
            with connection.begin():
                yield connection
                dangling = connection.exec_driver_sql("PRAGMA foreign_key_check").fetchone()
                if dangling is not None:
                    raise CommandError(f"a row of {dangling[0]} would refer to nothing in {dangling[2]}")
        finally:
            raw.execute("PRAGMA foreign_keys=ON")


def _wait_for_others(connection: Connection) -> None:
    """On SQLite the transaction itself began by taking the only write lock."""
    if connection.dialect.name == "postgresql":
        for statement in _WAIT:
            connection.execute(text(statement))


def _config() -> Config:
    folder = next((place for place in _PLACES if (place / "env.py").is_file()), None)
    if folder is None:
        raise FileNotFoundError("this installation of dpledger was built without its migrations")
    config = Config()
    config.set_main_option("script_location", str(folder).replace("%", "%%"))
    return config
