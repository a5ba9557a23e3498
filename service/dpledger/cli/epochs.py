"""``dpledger epoch``: renew a budget by epochs of new data: set the policy, show it, open an epoch."""

import enum
from typing import Annotated

import typer

from dpledger.cli.datasets import DatasetName
from dpledger.cli.formatting import parse_description
from dpledger.cli.ledgers import open_ledger
from dpledger.cli.output import limit_text, print_json, show_pairs
from dpledger.cli.targets import AsJson, Key, LedgerTarget, at_a_ledger, new_key

__all__ = ["epochs"]

epochs = typer.Typer(no_args_is_help=True, help="Renew a budget by epochs, each of new data.")


class Period(enum.Enum):
    """A calendar period in UTC."""

    DAY = "day"
    WEEK = "week"
    MONTH = "month"
    QUARTER = "quarter"
    YEAR = "year"


@epochs.command("policy")
@at_a_ledger
def set_policy(
    ledger_target: LedgerTarget,
    dataset: DatasetName,
    period: Annotated[Period, typer.Option(help="The period of an epoch; the first policy fixes it.")],
    reason: Annotated[str, typer.Option(help="Why; it stands in the entry.")],
    budget: Annotated[
        str | None,
        typer.Option(
            metavar="BUDGET", help="Of each new epoch, such as zcdp:rho=0.1; without, end the policy."
        ),
    ] = None,
    idempotency_key: Key = None,
    as_json: AsJson = False,
) -> None:
    """Set the budget of each new epoch; partitions that are there stay as they are. Needs an admin token."""
    own = None if budget is None else parse_description("--budget", budget, "accounting")
    body = {"period": period.value, "budget": own, "reason": reason}
    with open_ledger(ledger_target) as ledger:
        made = ledger.change_renewal(dataset, body, idempotency_key or new_key())
    if as_json:
        return print_json(made)
    each = (
        "no new epoch is opened"
        if made["budget"] is None
        else f"each new one has {limit_text(made['budget'])}"
    )
    return typer.echo(f"epochs of {dataset} by entry {made['sequence']}: one per {made['period']}, {each}")


@epochs.command("show")
@at_a_ledger
def show_policy(ledger_target: LedgerTarget, dataset: DatasetName, as_json: AsJson = False) -> None:
    """Show the policy, and which epochs may be opened now."""
    with open_ledger(ledger_target) as ledger:
        found = ledger.renewal(dataset)
    if as_json:
        return print_json(found)
    return show_pairs(
        [
            ("epochs", f"one per {found['period']}, by entry {found['sequence']}"),
            ("budget", "none: ended" if found["budget"] is None else limit_text(found["budget"])),
            ("reason", found["reason"]),
            ("present", found["current"]),
            ("next", found["next"]),
        ]
    )


@epochs.command("open")
@at_a_ledger
def open_epoch(
    ledger_target: LedgerTarget,
    dataset: DatasetName,
    epoch: Annotated[str, typer.Argument(metavar="EPOCH", help="The present or the next, such as 2026-12.")],
    statement: Annotated[
        str, typer.Option(help="Why its records were in no other partition; it stands in the entry.")
    ],
    idempotency_key: Key = None,
    as_json: AsJson = False,
) -> None:
    """Open the partition of an epoch, stating that its records are new.

    Needs a spend token, also directly in a database: its id stands in the entry.
    """
    body = {"epoch": epoch, "records_are_new": True, "statement": statement}
    with open_ledger(ledger_target) as ledger:
        made = ledger.open_epoch(dataset, body, idempotency_key or new_key())
    if as_json:
        return print_json(made)
    return typer.echo(f"opened epoch {made['first']} of {dataset} by entry {made['sequence']}")
