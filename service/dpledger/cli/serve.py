"""``dpledger serve`` and ``dpledger migrate``: what an operator does to a whole database."""

import functools
import gc
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dpledger.cli.failures import ExitCode, Failed
from dpledger.cli.output import print_json
from dpledger.cli.targets import DATABASE_VARIABLE, KEY_FILE_VARIABLE, AsJson

if TYPE_CHECKING:
    from sqlalchemy import Engine

__all__ = ["DEFAULT_DATABASE", "Database", "KeyFile", "migrate", "serve"]

GRACE_SECONDS = 30
DEFAULT_DATABASE = "sqlite:///budget.db"
_REVISION = re.compile(r"[A-Za-z0-9]+")

Database = Annotated[
    str,
    typer.Option(envvar=DATABASE_VARIABLE, help="URL of the ledger, SQLite or PostgreSQL.", metavar="URL"),
]
KeyFile = Annotated[
    Path | None,
    typer.Option(
        envvar=KEY_FILE_VARIABLE,
        help="File with the server's secrets. Default for SQLite: <database>.keys.json, made if absent.",
    ),
]


def serve(
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on.")] = 8000,
    database: Database = DEFAULT_DATABASE,
    key_file: KeyFile = None,
    access_log: Annotated[bool, typer.Option(help="Log every request.")] = False,
    token_file: Annotated[
        Path | None,
        typer.Option(help="Write the first admin token to this new file, mode 0600.", metavar="FILE"),
    ] = None,
) -> None:
    """Start the service; the first start on a new ledger prints an admin token, once."""
    # Nothing that is loaded from here on is garbage, and looking for it would take a tenth of the start.
    gc.disable()
    # Only a service needs all of its components, which take a second to load.
    import uvicorn

    from dpledger.cli.databases import check_files, one_line_failures, refuse_foreign
    from dpledger.logs import configure_logs
    from dpledger.server import bounded_protocol, create_server
    from dpledger.settings import Settings, misspelt

    for written, meant in misspelt(os.environ).items():
        typer.echo(f"{written} is no setting and has no effect; is {meant} meant?", err=True)
    # What cannot start is reported in one line; from inside the web server it would be a stack of frames.
    with one_line_failures():
        settings = Settings.from_environment(os.environ, database=database, key_file=key_file)
        refuse_foreign(settings.database)
        check_files(settings)
        server = create_server(settings, announce=functools.partial(_announce, token_file))
    configure_logs()
    # What is loaded by now stays for good. To look through it for garbage, which a long list of spends brings
    # about, would stop every thread for a tenth of a second.
    gc.collect()
    gc.freeze()
    gc.enable()
    try:
        uvicorn.run(
            server,
            host=host,
            port=port,
            access_log=access_log,
            log_config=None,
            http=bounded_protocol(server, settings),
            # Nothing here asks for the caller's address.
            proxy_headers=False,
            server_header=False,
            timeout_graceful_shutdown=GRACE_SECONDS,
        )
    except SystemExit as ended:
        # The web server has said why; its own numbers mean something else here.
        raise typer.Exit(ExitCode.FAILURE if ended.code else ExitCode.DONE) from None


def _announce(token_file: Path | None, token: str) -> None:
    """Tell the first token: in its file, or where none can be made, on standard output.

    The token is on the ledger by now, so that it must be shown somewhere.
    """
    if token_file is not None:
        try:
            with open(os.open(token_file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
                file.write(f"{token}\n")
        except OSError as error:
            typer.echo(f"--token-file: cannot make {token_file}: {error.strerror}", err=True)
        else:
            return typer.echo(f"First admin token, kept only there: {token_file}")
    return typer.echo(f"First admin token, shown only now: {token}")


def migrate(
    database: Database = DEFAULT_DATABASE,
    to: Annotated[
        str | None, typer.Option(help="Revision to stop at; the newest that this version knows by default.")
    ] = None,
    create: Annotated[bool, typer.Option("--create", help="Create the SQLite file if missing.")] = False,
    check: Annotated[
        bool, typer.Option("--check", help="Change nothing; exit 3 if there is something to do.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Bring a database's schema up to date, and say from which revision to which.

    Back up first. It never goes back: undoing a migration would lose what was recorded since.
    """
    from dpledger.cli.databases import one_line_failures, refuse_foreign, refuse_missing
    from dpledger.storage.engine.engines import make_engine

    with one_line_failures():
        if not create:
            refuse_missing(database)
        refuse_foreign(database)
        engine = make_engine(database)
        try:
            found, wanted = _migrate(engine, to, check)
        finally:
            engine.dispose()
    if as_json:
        print_json({"from": found, "to": wanted, "changed": found != wanted and not check})
    else:
        typer.echo(_migration_text(found, wanted, check))
    if check and found != wanted:
        raise typer.Exit(ExitCode.REFUSED)


def _migration_text(found: str | None, wanted: str, check: bool) -> str:
    if found == wanted:
        return f"the schema is at {wanted}; nothing to do"
    return f"the schema {'is to go' if check else 'went'} from {found or 'nothing'} to {wanted}"


def _migrate(engine: "Engine", to: str | None, check: bool) -> tuple[str | None, str]:
    """The revisions before and after, or before and wanted where nothing is to change."""
    from alembic.util import CommandError

    from dpledger.storage import migrate as migrations

    found, wanted = migrations.revision(engine), to or str(migrations.head_revision())
    if not _REVISION.fullmatch(wanted) or wanted in ("base", "head", "heads"):
        raise Failed(ExitCode.USAGE, f"--to takes the name of a revision, not {wanted}")
    if found == wanted or check:
        return found, wanted
    try:
        migrations.upgrade(engine, wanted)
    except CommandError as error:
        raise _unknown_revision(found, wanted, str(error)) from None
    if migrations.revision(engine) != wanted:
        raise Failed(
            ExitCode.REFUSED,
            f"the schema is at {found}, past {wanted}; going back would lose what was recorded",
        )
    return found, wanted


def _unknown_revision(found: str | None, wanted: str, said: str) -> Failed:
    if found is not None and f"'{found}'" in said:
        return Failed(
            ExitCode.REFUSED,
            f"the schema is at {found}, which a newer dpledger made; this one does not know it",
        )
    return Failed(ExitCode.REFUSED, f"this dpledger knows no way from {found or 'nothing'} to {wanted}")
