"""``dpledger reservation``: list what is held, settle what a job left behind."""

from collections.abc import Sequence
from typing import Annotated, Any

import typer

from dpledger.cli.items import step_text
from dpledger.cli.ledgers import Fields, open_ledger
from dpledger.cli.listing import list_command
from dpledger.cli.output import left_text, moment_text, print_json, show_table
from dpledger.cli.targets import AsJson, Key, LedgerTarget, at_a_ledger, new_key

__all__ = ["reservations"]

reservations = typer.Typer(no_args_is_help=True, help="List open reservations, settle them.")


@list_command(reservations, lambda ledger, *page: ledger.reservations(*page))
def list_reservations(items: Sequence[Fields]) -> None:
    """List open reservations, the oldest first: whose they are, what they hold, when they expire."""
    columns = ["reservation", "run", "of?", "times>", "holds", "expires (UTC)"]
    rows = [_row(each) for each in items]
    if not any(row[2] for row in rows):
        columns.pop(2)
        rows = [row[:2] + row[3:] for row in rows]
    show_table(columns, rows, "no open reservations")


def _row(held: Fields) -> list[str]:
    """A reservation; its third column is the partition or the allocation that it is of."""
    part: Any = held.get("partition") or held.get("allocation") or ""
    step = step_text(held["step"])
    return [held["id"], held["run"], part, str(held["times"]), step, moment_text(held["expires_at"])]


@reservations.command("settle")
@at_a_ledger
def settle_reservation(
    ledger_target: LedgerTarget,
    reservation: Annotated[str, typer.Argument(metavar="RESERVATION", help="Its id, such as adult~5.")],
    used: Annotated[int, typer.Option(min=0, help="How many repetitions ran; the rest is given back.")],
    reason: Annotated[
        str | None,
        typer.Option(help="Why the rest was not and will not be released; kept in the entry."),
    ] = None,
    idempotency_key: Key = None,
    as_json: AsJson = False,
) -> None:
    """Close a reservation; that gives back what was not used, and cannot be undone.

    For the token that reserved. An admin may settle for another one: in full, or with a --reason.
    """
    body: Fields = {"used": used} if reason is None else {"used": used, "statement": reason}
    with open_ledger(ledger_target) as ledger:
        settled = ledger.settle(reservation, body, idempotency_key or new_key())
    if as_json:
        return print_json(settled)
    left = f"{left_text(settled['remaining'])} is left"
    by = f"by entry {settled['sequence']}: {settled['returned']} of {settled['times']} returned; {left}"
    typer.echo(f"settled {reservation} {by}")
    return None
