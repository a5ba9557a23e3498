"""``dpledger backup`` and ``restore``: copies of a whole ledger, verified on the way out and in."""

import contextlib
import os
import secrets
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dpledger.cli.failures import ExitCode, Failed
from dpledger.cli.ledgers import Fields
from dpledger.cli.output import print_json, show_table
from dpledger.cli.serve import DEFAULT_DATABASE, Database, KeyFile
from dpledger.cli.targets import KEY_FILE_VARIABLE, AsJson

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from dpledger.storage.repository import SqlStorage

__all__ = ["backup", "restore"]

_ALL = 2**31 - 1


def backup(
    output: Annotated[Path, typer.Argument(metavar="FILE", help="File to write.")],
    database: Database = DEFAULT_DATABASE,
    force: Annotated[bool, typer.Option("--force", help="Replace the file if it exists.")] = False,
    as_json: AsJson = False,
) -> None:
    """Copy a whole ledger to a file, also while services use it, and verify it.

    SQLite by its online backup, PostgreSQL by pg_dump. The key file and the high-water marks are not in it.
    """
    from dpledger.cli.databases import files_of, refuse_foreign, refuse_missing

    named = os.environ.get(KEY_FILE_VARIABLE)
    if output.resolve() in files_of(database, Path(named) if named else None):
        raise Failed(ExitCode.REFUSED, f"{output} belongs to the ledger itself")
    if output.exists() and not (force and output.is_file()):
        raise Failed(ExitCode.REFUSED, f"{output} exists; --force replaces a file")
    with _one_line_failures():
        refuse_missing(database)
        refuse_foreign(database)
        partial = output.with_name(f".{output.name}.{secrets.token_hex(4)}")
        try:
            found = _copy(database, partial)
            partial.replace(output)
        finally:
            partial.unlink(missing_ok=True)
    _show(found, as_json)
    if not as_json:
        typer.echo(f"backed up to {output}")


def _copy(database: str, partial: Path) -> list[Fields]:
    """Make the copy; the verdict on each dataset. A copy that does not hold is refused."""
    from dpledger.storage.backup import copy_ledger

    copy_ledger(database, partial)
    found = _verify_copy(partial) if _is_sqlite(database) else _verify_source(database)
    broken = [each for each in found if not each["valid"]]
    if broken:
        first = f"{broken[0]['dataset']}: {broken[0]['problems'][0]}"
        raise Failed(ExitCode.BROKEN, f"the ledger does not hold, so it is no backup: {first}")
    return found


def _verify_copy(copy: Path) -> list[Fields]:
    """Verify an SQLite copy at this version's schema, in a copy of its own if it is at another one."""
    from dpledger.storage.backup import copy_file, sqlite_url
    from dpledger.storage.repository import open_storage

    scratch = copy.with_name(f"{copy.name}.verified")
    try:
        copy_file(copy, scratch)
        with contextlib.closing(open_storage(sqlite_url(scratch))) as storage:
            return _verdicts(storage)
    finally:
        for ending in ("", "-wal", "-shm"):
            scratch.with_name(f"{scratch.name}{ending}").unlink(missing_ok=True)


def _verify_source(database: str) -> list[Fields]:
    """Verify a PostgreSQL ledger where it is; one at an older schema is verified when it is restored."""
    from dpledger.storage import migrate
    from dpledger.storage.engine.engines import make_engine
    from dpledger.storage.repository import SqlStorage

    with contextlib.closing(SqlStorage(make_engine(database))) as storage:
        found, wanted = migrate.revision(storage.database.reading), migrate.head_revision()
        if found == wanted:
            return _verdicts(storage)
    typer.echo(f"not verified: the schema is at {found}, not {wanted}; restore verifies", err=True)
    return []


def _verdicts(storage: "SqlStorage") -> list[Fields]:
    from dpledger.ledger.reader import LedgerReader

    reader = LedgerReader(storage)
    return [reader.verification(each["name"]) for each in reader.datasets("", _ALL)]


def restore(
    source: Annotated[Path, typer.Argument(metavar="FILE", help="What dpledger backup wrote.")],
    database: Database = DEFAULT_DATABASE,
    key_file: KeyFile = None,
    replace: Annotated[
        bool,
        typer.Option("--replace", help="Replace the ledger there; an SQLite file is kept aside."),
    ] = False,
    without_marks: Annotated[
        bool,
        typer.Option("--without-marks", help="Go on although no high-water marks are there to compare with."),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Put a backup in a ledger's place and verify it; exit 7 if it does not hold or is behind its marks.

    Stop the services first. What was spent after the backup is forgotten by it, so a dataset behind its
    high-water mark takes no writes until dpledger accept-rollback gives up what is lost.
    """
    from dpledger.cli.databases import refuse_foreign

    if not source.is_file():
        raise Failed(ExitCode.UNAVAILABLE, f"there is no backup {source}")
    with _one_line_failures():
        refuse_foreign(database)
        _refuse_unmarked(database, key_file, without_marks)
        _put_back(source, database, replace)
    found = _verify_in_place(database, key_file)
    _show(found, as_json)
    if not all(each["valid"] for each in found):
        raise typer.Exit(ExitCode.BROKEN)


def _refuse_unmarked(database: str, key_file: Path | None, without_marks: bool) -> None:
    """Without marks nobody could say that a ledger was longer: it would be spent from again."""
    from dpledger.settings import Settings, variable

    named = os.environ.get(variable("mark_file"))
    path = Settings(database, key_file, Path(named) if named else None).marks_path()
    if not path.is_file() and not without_marks:
        raise Failed(
            ExitCode.REFUSED,
            f"there are no high-water marks at {path}: what was spent after the backup would be spent again"
            " unnoticed. Name their file by DPLEDGER_MARK_FILE, or, if they are lost, say --without-marks and"
            " lower each budget",
        )


def _put_back(source: Path, database: str, replace: bool) -> None:
    from dpledger.storage import backup as copies
    from dpledger.storage import migrate
    from dpledger.storage.engine.engines import make_engine, normalized_url, sqlite_file

    if _is_sqlite(database):
        target = sqlite_file(normalized_url(database))
        if target.exists() and not replace:
            raise Failed(ExitCode.REFUSED, f"{target} exists; --replace moves it aside")
        aside = _put_back_file(source, target)
        if aside is not None:
            typer.echo(f"what was there is {aside}", err=True)
        return
    copies.check_readable(source)
    engine = make_engine(database)
    try:
        holds_ledger = migrate.revision(engine) is not None
        if holds_ledger:
            _refuse_to_drop(source, engine, replace)
        engine.dispose()
        copies.put_back_postgresql(source, database, replace=holds_ledger)
        migrate.upgrade(engine)
    finally:
        engine.dispose()


def _refuse_to_drop(source: Path, engine: "Engine", replace: bool) -> None:
    """Refuse to replace a ledger unasked, or by one of a schema that knows fewer tables.

    An archive drops what it brings, and the tables that it does not know refer to that.
    """
    from sqlalchemy import inspect

    from dpledger.storage.backup import archived_tables
    from dpledger.storage.tables import metadata

    if not replace:
        raise Failed(ExitCode.REFUSED, "the database holds a ledger; --replace drops it")
    newer = (metadata.tables.keys() & set(inspect(engine).get_table_names())) - archived_tables(source)
    if newer:
        raise Failed(
            ExitCode.REFUSED,
            f"the backup is of an older schema, without {', '.join(sorted(newer))}: put it into an empty"
            " database",
        )


def _put_back_file(source: Path, target: Path) -> Path | None:
    """A copy of the backup is brought to this schema and verified before it takes the ledger's name."""
    from dpledger.cli.databases import refuse_foreign
    from dpledger.storage.backup import copy_ledger, put_back_sqlite, sqlite_url

    refuse_foreign(sqlite_url(source))
    checked = target.with_name(f".{target.name}.{secrets.token_hex(4)}")
    try:
        copy_ledger(sqlite_url(source), checked)
        broken = [each for each in _verify_copy(checked) if not each["valid"]]
        if broken:
            first = f"{broken[0]['dataset']}: {broken[0]['problems'][0]}"
            raise Failed(ExitCode.BROKEN, f"{source} does not hold, and nothing is changed: {first}")
        return put_back_sqlite(checked, target)
    finally:
        checked.unlink(missing_ok=True)


def _verify_in_place(database: str, key_file: Path | None) -> list[Fields]:
    """Every dataset as the service will find it, compared with its mark, and those that are gone."""
    from dpledger.cli.direct import Direct
    from dpledger.cli.ledgers import collect_pages
    from dpledger.storage.repository import open_storage

    with _one_line_failures():
        open_storage(database).close()  # brings an older backup to this version's schema
    with contextlib.closing(Direct(database, key_file, None)) as ledger:
        listed = collect_pages(lambda many, after: ledger.datasets(None, many, after), sys.maxsize, None)
        found = [ledger.verification(each["name"], lambda _done, _total: None) for each in listed["items"]]
        return found + ledger.lost()


def _show(found: list[Fields], as_json: bool) -> None:
    if as_json:
        print_json({"items": found, "next": None})
        return
    rows = [
        [each["dataset"], "holds" if each["valid"] else "BROKEN", str(each["sequence"])] for each in found
    ]
    show_table(("dataset", "verdict", "entries>"), rows, "no datasets")
    for each in found:
        for problem in each["problems"]:
            typer.echo(f"{each['dataset']}: {problem}")


def _is_sqlite(database: str) -> bool:
    from dpledger.storage.engine.engines import normalized_url

    return normalized_url(database).get_backend_name() == "sqlite"


@contextlib.contextmanager
def _one_line_failures() -> Iterator[None]:
    from dpledger.cli.databases import one_line_failures
    from dpledger.storage.backup import BackupFailed

    try:
        with one_line_failures():
            yield
    except BackupFailed as failed:
        raise Failed(ExitCode.UNAVAILABLE, str(failed)) from None
    except OSError as error:
        raise Failed(ExitCode.FAILURE, f"cannot write the copy: {error}") from None
