"""``dpledger partition``: open disjoint parts of a dataset, list them, show what one has left."""

from collections.abc import Sequence
from typing import Annotated

import typer

from dpledger.cli.failures import ExitCode, Failed
from dpledger.cli.formatting import parse_description
from dpledger.cli.items import coordinates_text, show_curve, show_used_items
from dpledger.cli.ledgers import Fields, open_ledger
from dpledger.cli.listing import list_command
from dpledger.cli.output import (
    amount_text,
    left_text,
    limit_text,
    number_down,
    number_up,
    percent_left,
    print_json,
    show_pairs,
    show_table,
    show_warnings,
)
from dpledger.cli.targets import AsJson, DatasetName, Key, LedgerTarget, at_a_ledger, new_key

__all__ = ["partitions"]

partitions = typer.Typer(
    no_args_is_help=True, help="Open disjoint parts of a dataset, list them, show what one has left."
)


@partitions.command("open")
@at_a_ledger
def open_partitions(
    ledger_target: LedgerTarget,
    dataset: DatasetName,
    names: Annotated[
        list[str] | None, typer.Argument(metavar="PARTITION", help="Names of the partitions to open.")
    ] = None,
    count: Annotated[int | None, typer.Option(min=1, help="Open so many, named by their numbers.")] = None,
    budget: Annotated[
        str | None,
        typer.Option(
            metavar="BUDGET", help="A budget of their own beside the dataset's: zcdp:rho=0.5, JSON…"
        ),
    ] = None,
    idempotency_key: Key = None,
    as_json: AsJson = False,
) -> None:
    """Open partitions by name, or by number with --count.

    Needs an admin token, also directly in a database: its id is recorded in the entry.
    """
    if bool(names) == (count is not None):
        raise Failed(ExitCode.USAGE, "name the partitions, or say how many by --count")
    body: Fields = {"names": names} if names else {"count": count}
    if budget is not None:
        body["budget"] = parse_description("--budget", budget, "accounting")
    with open_ledger(ledger_target) as ledger:
        made = ledger.open_partitions(dataset, body, idempotency_key or new_key())
    if as_json:
        print_json(made)
    else:
        opened, first = made["opened"], made["first"]
        which = f"partition {first}" if opened == 1 else f"{opened} partitions, {first} to {made['last']}"
        typer.echo(f"opened {which}, of {dataset} by entry {made['sequence']}")
    show_warnings(made)


@list_command(partitions, lambda ledger, *page: ledger.partitions(*page))
def list_partitions(items: Sequence[Fields]) -> None:
    """List partitions in the order in which they were opened, with what each has left."""
    rows = [[each["name"], *_left(each["remaining"])] for each in items]
    show_table(("partition", "left", "left>"), rows, "no partitions; dpledger partition open opens some")


def _left(left: Fields) -> tuple[str, str]:
    amount, percent = amount_text(left), percent_left(left["fraction"])
    return "" if amount == percent else amount, percent


@partitions.command("show")
@at_a_ledger
def show_partition(
    ledger_target: LedgerTarget,
    dataset: DatasetName,
    name: Annotated[str, typer.Argument(metavar="PARTITION", help="The partition's name.")],
    as_json: AsJson = False,
) -> None:
    """Show what a record in a partition bears and has left; what was spent on the whole is included."""
    with open_ledger(ledger_target) as ledger:
        found = ledger.partition(dataset, name)
    if as_json:
        return print_json(found)
    own = found["own_budget"]
    show_pairs(
        [
            ("partition", f"{found['name']} of {dataset}, true at entry {found['sequence']}"),
            ("budget", "the dataset's" if own is None else f"its own, {limit_text(own)}"),
            ("limit", coordinates_text(found["limit"], number_down)),
            ("spent", f"{coordinates_text(found['spent'], number_up)}, the spend on the whole included"),
            (
                "reserved",
                f"{found['reserved']['open']} open, {coordinates_text(found['reserved'], number_up)}",
            ),
            ("left", left_text(found["remaining"])),
        ]
    )
    show_curve(found)
    return show_used_items(found)
