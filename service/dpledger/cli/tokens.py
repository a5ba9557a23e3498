"""``dpledger token``: make, list and revoke tokens."""

import datetime as dt
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from dpledger.auth.scopes import Scope
from dpledger.cli.formatting import number
from dpledger.cli.ledgers import collect_pages, open_ledger
from dpledger.cli.listing import print_page
from dpledger.cli.output import moment_text, print_json, show_table
from dpledger.cli.targets import AsJson, Cursor, Key, LedgerTarget, Limit, at_a_ledger, new_key

__all__ = ["tokens"]

tokens = typer.Typer(no_args_is_help=True, help="Create, list and revoke tokens.")


@tokens.command("create")
@at_a_ledger
def create_token(
    ledger_target: LedgerTarget,
    scope: Annotated[list[Scope], typer.Option(help="What it may do; may be repeated.")],
    dataset: Annotated[
        list[str] | None, typer.Option(help="Limit it to this dataset; may be repeated.")
    ] = None,
    description: Annotated[str, typer.Option(help="A note for the list of tokens.")] = "",
    expires_in_seconds: Annotated[
        float | None, typer.Option(parser=number, metavar="NUMBER", help="How long it is valid, in seconds.")
    ] = None,
    team: Annotated[str | None, typer.Option(help="The team that its spends are attributed to.")] = None,
    new_keys: Annotated[
        bool,
        typer.Option("--new-keys", help="Make a key file although there are tokens of a lost one: they end."),
    ] = False,
    idempotency_key: Key = None,
    as_json: AsJson = False,
) -> None:
    """Make a token and print it; it is shown only now.

    In a database this needs no token, but its key file; an empty database is made into a ledger.
    """
    body = {
        "scopes": sorted({each.value for each in scope}),
        "datasets": sorted(set(dataset)) if dataset else None,
        "description": description,
        "expires_in_seconds": expires_in_seconds,
        "team": team,
    }
    given = {name: value for name, value in body.items() if value is not None}
    with open_ledger(ledger_target) as ledger:
        made = ledger.create_token(given, idempotency_key or new_key(), new_keys=new_keys)
    if as_json:
        print_json(made)
    else:
        typer.echo(made["token"])


@tokens.command("list")
@at_a_ledger
def list_tokens(
    ledger_target: LedgerTarget, limit: Limit = 1000, cursor: Cursor = None, as_json: AsJson = False
) -> None:
    """List tokens, without their secrets."""
    with open_ledger(ledger_target) as ledger:
        page = collect_pages(ledger.tokens, limit, cursor)
    print_page(page, _show_tokens, as_json)


def _show_tokens(items: Sequence[dict[str, Any]]) -> None:
    columns = ("id", "scopes", "datasets", "team?", "state", "expires?", "description?")
    show_table(columns, [_row(item) for item in items], "no tokens; dpledger token create makes one")


def _row(item: dict[str, Any]) -> list[str]:
    return [
        item["id"],
        ", ".join(item["scopes"]),
        "all" if item["datasets"] is None else ", ".join(item["datasets"]),
        item.get("team", ""),
        _state(item),
        moment_text(item["expires_at"]),
        item["description"],
    ]


def _state(item: dict[str, Any]) -> str:
    if item["revoked_at"]:
        return "revoked"
    ends = item["expires_at"]
    return "expired" if ends and dt.datetime.fromisoformat(ends) <= dt.datetime.now(dt.UTC) else "good"


@tokens.command("revoke")
@at_a_ledger
def revoke_token(
    ledger_target: LedgerTarget,
    token_id: Annotated[str, typer.Argument(help="The middle part of the token.")],
    as_json: AsJson = False,
) -> None:
    """Revoke a token; from now on it decides nothing."""
    with open_ledger(ledger_target) as ledger:
        ledger.revoke_token(token_id)
    if as_json:
        print_json({"id": token_id, "revoked": True})
    else:
        typer.echo(f"revoked {token_id}")
