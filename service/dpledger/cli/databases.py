"""Databases that are opened directly: which are refused, and how what goes wrong in one is reported."""

import contextlib
import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path

from alembic.util import CommandError
from pydantic import ValidationError
from sqlalchemy.engine import URL
from sqlalchemy.exc import ArgumentError, DBAPIError

from dpledger.api.http.problems import DOMAIN_ERRORS, RefusedRequest, invalid_body, problem_of
from dpledger.api.services import opened_marks
from dpledger.auth.keys import BadKeyFile, load_keys
from dpledger.cli.failures import ExitCode, Failed, failure_of
from dpledger.ledger.replay import BrokenLedger
from dpledger.settings import InvalidSettings, Settings, variable
from dpledger.storage import migrate
from dpledger.storage.engine import engines, failures
from dpledger.storage.mark_file import BadMarkFile
from dpledger.storage.repositories.tokens import TokenStore
from dpledger.storage.repository import open_storage

__all__ = ["check_files", "files_of", "make_schema", "one_line_failures", "refuse_foreign", "refuse_missing"]

_PROBLEMS: tuple[type[Exception], ...] = (*DOMAIN_ERRORS, RefusedRequest, ValidationError)
_TABLES = "SELECT name FROM sqlite_master WHERE type = 'table'"


@contextlib.contextmanager
def one_line_failures() -> Iterator[None]:
    """Tell in one line what a database, its key file or the ledger in it refuses."""
    try:
        yield
    except (BadKeyFile, BadMarkFile, FileNotFoundError) as error:
        raise Failed(ExitCode.FAILURE, str(error)) from None
    except InvalidSettings as error:
        raise Failed(ExitCode.USAGE, f"{error.option}: {error}") from None
    except ArgumentError as error:
        raise Failed(ExitCode.USAGE, f"--database: {error}") from None
    except BrokenLedger as error:
        raise Failed(ExitCode.BROKEN, str(error)) from None
    except CommandError as error:
        raise Failed(ExitCode.REFUSED, f"the schema cannot be brought up to date: {error}") from None
    except _database_errors() as error:
        cause = error.orig if isinstance(error, DBAPIError) else error
        reported = failures.translate_error(error) or f"the database cannot be used: {cause}"
        raise Failed(ExitCode.UNAVAILABLE, str(reported)) from None
    except _PROBLEMS as error:
        problem = problem_of(invalid_body(error) if isinstance(error, ValidationError) else error)
        raise failure_of(problem.kind.slug, problem.kind.status, problem.detail) from None


def _database_errors() -> tuple[type[Exception], ...]:
    """What drivers raise; PostgreSQL's is loaded where an error has to be compared with it."""
    import psycopg

    return (DBAPIError, sqlite3.Error, psycopg.Error)


def refuse_missing(database: str) -> None:
    """Refuse a file that is not there: SQLite would make an empty one."""
    file = _file_of(database)
    if file is not None and not file.is_file():
        raise Failed(
            ExitCode.UNAVAILABLE, f"there is no database file {file}; --database names one, --url a service"
        )


def refuse_foreign(database: str) -> None:
    """Refuse a file that another program keeps, before anything of it is changed.

    Opening a ledger sets the file's mode, which is no business of ours in a file that holds none.
    """
    file = _file_of(database)
    if file is None or not file.is_file():
        return
    address = f"{file.resolve().as_uri()}?mode=ro"
    with contextlib.closing(sqlite3.connect(address, uri=True, timeout=engines.BUSY_SECONDS)) as connection:
        names = {name for (name,) in connection.execute(_TABLES)}
    if names and "alembic_version" not in names:
        raise Failed(ExitCode.REFUSED, f"{file} holds the tables of another program, and no ledger")


def check_files(settings: Settings) -> None:
    """Open what a service needs and close it again: the database, the key file and the marks."""
    with contextlib.closing(open_storage(settings.database)) as storage:
        load_keys(settings.keys_path(), has_tokens=TokenStore(storage.database).any)
        opened_marks(settings, storage.instance()).close()


def make_schema(database: str) -> None:
    """Make a ledger where there is nothing yet; an older one is left as it is."""
    engine = engines.make_engine(database)
    try:
        if migrate.revision(engine) is None:
            migrate.upgrade(engine)
    finally:
        engine.dispose()


def files_of(database: str, key_file: Path | None) -> set[Path]:
    """The files that a ledger keeps on this machine, which nothing else may be written over."""
    with one_line_failures():
        file = _file_of(database)
    endings = ("", "-wal", "-shm", "-journal", ".keys.json", ".keys.json.marks")
    beside = [] if file is None else [Path(f"{file}{ending}") for ending in endings]
    marks = None if key_file is None else Path(f"{key_file}.marks")
    named = os.environ.get(variable("mark_file"))
    others = (key_file, marks, Path(named) if named else None)
    return {each.resolve() for each in (*beside, *others) if each is not None}


def _file_of(database: str) -> Path | None:
    return _sqlite_file(engines.normalized_url(database))


def _sqlite_file(url: URL) -> Path | None:
    """The file that an SQLite URL names; None for a server, or where it names none."""
    if url.get_backend_name() != "sqlite" or not url.database or ":memory:" in url.database:
        return None
    return Path(url.database.removeprefix("file:").partition("?")[0])
