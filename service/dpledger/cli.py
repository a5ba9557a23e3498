"""The command ``dpledger``."""

import json
from pathlib import Path
from typing import Annotated

import typer
import uvicorn

from dpledger import __version__
from dpledger.api.logs import configure_logs
from dpledger.api.routes.tokens import token_fields
from dpledger.auth.issuer import Issuer, TokenRequest
from dpledger.auth.keys import BadKeyFile, load_keys
from dpledger.auth.scopes import Scope
from dpledger.ledger.clock import SystemClock
from dpledger.ledger.errors import LedgerError
from dpledger.server import create_server
from dpledger.settings import DEFAULT_DATABASE, InvalidSettings, Settings
from dpledger.storage.repository import open_storage
from dpledger.storage.tokens import TokenStore

__all__ = ["app", "main"]

GRACE_SECONDS = 30

app = typer.Typer(no_args_is_help=True, add_completion=False)
tokens = typer.Typer(no_args_is_help=True, help="Make, list and revoke tokens.")
app.add_typer(tokens, name="token")

Database = Annotated[
    str, typer.Option(envvar="DPLEDGER_DATABASE", help="URL of the ledger, SQLite or PostgreSQL.")
]
KeyFile = Annotated[
    Path | None,
    typer.Option(
        envvar="DPLEDGER_KEY_FILE",
        help="File with the server's secrets. Default for SQLite: <database>.keys.json, made if absent.",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"dpledger {__version__}")
        raise typer.Exit


@app.callback()
def dpledger(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Keep the privacy budget of every dataset."""


@app.command()
def serve(
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on.")] = 8000,
    database: Database = DEFAULT_DATABASE,
    key_file: KeyFile = None,
    access_log: Annotated[bool, typer.Option(help="Log every request.")] = False,
) -> None:
    """Start the service; the first start on a new ledger prints an admin token, once."""
    settings = _settings(database, key_file)
    _refuse_what_cannot_start(settings)
    configure_logs()
    uvicorn.run(
        create_server(settings, announce=_announce),
        host=host,
        port=port,
        access_log=access_log,
        log_config=None,
        # Nothing here asks for the caller's address.
        proxy_headers=False,
        server_header=False,
        timeout_graceful_shutdown=GRACE_SECONDS,
    )


def _refuse_what_cannot_start(settings: Settings) -> None:
    """Say in one line what would otherwise be a stack of the web server's."""
    try:
        load_keys(settings.keys_path())
        open_storage(settings.database).close()
    except (BadKeyFile, LedgerError) as error:
        raise _failed(error) from None


def _announce(token: str) -> None:
    typer.echo(f"First admin token, shown only now: {token}")


def _settings(database: str, key_file: Path | None) -> Settings:
    try:
        return Settings(database, key_file)
    except InvalidSettings as error:
        raise typer.BadParameter(str(error), param_hint=error.option) from None


def _store(settings: Settings) -> TokenStore:
    try:
        return TokenStore(open_storage(settings.database).database)
    except LedgerError as error:
        raise _failed(error) from None


def _failed(error: Exception) -> typer.Exit:
    typer.echo(f"Error: {error}", err=True)
    return typer.Exit(1)


@tokens.command("create")
def create_token(
    scope: Annotated[list[Scope], typer.Option(help="What it may do; may be repeated.")],
    dataset: Annotated[
        list[str] | None, typer.Option(help="Limit it to this dataset; may be repeated.")
    ] = None,
    description: Annotated[str, typer.Option(help="A note for the list of tokens.")] = "",
    expires_in_seconds: Annotated[float | None, typer.Option(min=1, help="How long it is good.")] = None,
    database: Database = DEFAULT_DATABASE,
    key_file: KeyFile = None,
    as_json: AsJson = False,
) -> None:
    """Make a token and print it; it is shown only now."""
    settings = _settings(database, key_file)
    store = _store(settings)
    request = TokenRequest(
        frozenset(scope),
        frozenset(dataset) if dataset else None,
        description,
        None if expires_in_seconds is None else int(expires_in_seconds * 1e6),
    )
    try:
        keys = load_keys(settings.keys_path())
        token = Issuer(store, keys.token_key, SystemClock()).create(request)
    except (BadKeyFile, LedgerError) as error:
        raise _failed(error) from None
    typer.echo(json.dumps({"token": token.text, "id": token.id}) if as_json else token.text)


@tokens.command("list")
def list_tokens(
    database: Database = DEFAULT_DATABASE, key_file: KeyFile = None, as_json: AsJson = False
) -> None:
    """List tokens, without their secrets."""
    store, after = _store(_settings(database, key_file)), ""
    while rows := store.list(after, 1000):
        for row in rows:
            fields = token_fields(row)
            typer.echo(json.dumps(fields) if as_json else _line(fields))
        after = rows[-1].id


def _line(fields: dict[str, object]) -> str:
    state = "revoked" if fields["revoked_at"] else "good"
    listed = [fields["id"], ",".join(map(str, _listed(fields["scopes"]))), state, fields["description"]]
    return "  ".join(str(value) for value in listed).rstrip()


def _listed(value: object) -> list[object]:
    return list(value) if isinstance(value, list) else []


@tokens.command("revoke")
def revoke_token(
    token_id: Annotated[str, typer.Argument(help="The middle part of the token.")],
    database: Database = DEFAULT_DATABASE,
    key_file: KeyFile = None,
) -> None:
    """Revoke a token; from now on it decides nothing."""
    store = _store(_settings(database, key_file))
    try:
        store.revoke(token_id, SystemClock().now_us())
    except LedgerError as error:
        raise _failed(error) from None
    typer.echo(f"revoked {token_id}")


def main() -> None:
    """Run the command line."""
    app()
