"""``dpledger quota``: limit how much of a budget a team may use, show what is left of it, remove it."""

from collections.abc import Sequence
from typing import Annotated, Any

import typer

from dpledger.cli.formatting import number
from dpledger.cli.ledgers import Fields, open_ledger
from dpledger.cli.listing import list_command
from dpledger.cli.output import moment_text, percent_left, print_json, show_table
from dpledger.cli.targets import AsJson, DatasetName, Key, LedgerTarget, at_a_ledger, new_key

__all__ = ["quotas"]

quotas = typer.Typer(no_args_is_help=True, help="Limit how much of a dataset's budget a team may use.")
Team = Annotated[str, typer.Argument(metavar="TEAM", help="The label that the team's tokens were made with.")]
Window = Annotated[
    int | None, typer.Option("--window-seconds", help="The window that it is of; without, all that is used.")
]
Reason = Annotated[str, typer.Option(help="Why; it stands in the entry.")]


@quotas.command("set")
@at_a_ledger
def set_quota(
    ledger_target: LedgerTarget,
    dataset: DatasetName,
    team: Team,
    fraction: Annotated[
        float, typer.Option(parser=number, metavar="NUMBER", help="The part of the budget, at most 1.")
    ],
    reason: Reason,
    window_seconds: Window = None,
    idempotency_key: Key = None,
    as_json: AsJson = False,
) -> None:
    """Set a team's quota, or change its fraction: one that is there goes on counting.

    A quota limits use; what is proven of the releases is the dataset's budget.
    """
    body = {"team": team, "fraction": fraction, "window_seconds": window_seconds, "reason": reason}
    _change(ledger_target, dataset, body, idempotency_key, as_json)


@quotas.command("remove")
@at_a_ledger
def remove_quota(
    ledger_target: LedgerTarget,
    dataset: DatasetName,
    team: Team,
    reason: Reason,
    window_seconds: Window = None,
    idempotency_key: Key = None,
    as_json: AsJson = False,
) -> None:
    """Remove a team's quota; one that is set later begins to count anew."""
    body = {"team": team, "fraction": None, "window_seconds": window_seconds, "reason": reason}
    _change(ledger_target, dataset, body, idempotency_key, as_json)


def _change(
    ledger_target: LedgerTarget, dataset: str, body: dict[str, Any], key: str | None, as_json: bool
) -> None:
    with open_ledger(ledger_target) as ledger:
        made = ledger.change_quota(dataset, body, key or new_key())
    if as_json:
        return print_json(made)
    at = f"by entry {made['sequence']} of {dataset}"
    if made["fraction"] is None:
        return typer.echo(f"removed the quota of {made['team']} {at}")
    left = percent_left(made["remaining"]["fraction"])
    return typer.echo(f"{made['team']} may use {_limit(made)} {at}: {left} of the budget is left to it")


def _limit(quota: dict[str, Any]) -> str:
    part = f"{quota['fraction']:.6g} of the budget"
    return part if quota["window_seconds"] is None else f"{part} in {quota['window_seconds']} s"


@list_command(quotas, lambda ledger, *page: ledger.quotas(*page))
def list_quotas(items: Sequence[Fields]) -> None:
    """List the quotas in force, with the part of the budget that each leaves to its team now."""
    rows = [
        [
            each["team"],
            _limit(each),
            percent_left(each["remaining"]["fraction"]),
            "" if each["frees_at"] is None else moment_text(each["frees_at"]),
            str(each["sequence"]),
        ]
        for each in items
    ]
    columns = ("team", "quota", "left>", "window frees?", "entry>")
    show_table(columns, rows, "no quotas; dpledger quota set makes one")
