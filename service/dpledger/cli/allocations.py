"""``dpledger allocation``: hand out parts of a shared budget, show them, give them back."""

from collections.abc import Sequence
from typing import Annotated

import typer

from dpledger.cli.formatting import number, parse_description
from dpledger.cli.items import show_planned_items, show_used_items
from dpledger.cli.ledgers import Fields, open_ledger
from dpledger.cli.listing import list_command
from dpledger.cli.output import (
    left_text,
    limit_text,
    number_down,
    percent_left,
    print_json,
    show_pairs,
    show_table,
    show_warnings,
)
from dpledger.cli.targets import AsJson, DatasetName, Key, LedgerTarget, at_a_ledger, new_key

__all__ = ["allocations"]

allocations = typer.Typer(
    no_args_is_help=True, help="Hand out parts of a shared budget, show them, give them back."
)
AllocationName = Annotated[str, typer.Argument(metavar="ALLOCATION", help="The allocation's name.")]
_NUMBER = {"parser": number, "metavar": "NUMBER"}


@allocations.command("create")
@at_a_ledger
def create_allocation(
    ledger_target: LedgerTarget,
    dataset: DatasetName,
    name: AllocationName,
    epsilon: Annotated[float, typer.Option(**_NUMBER, help="The part of ε that it takes.")],
    delta: Annotated[float, typer.Option(**_NUMBER, help="The part of δ that it takes.")],
    budget: Annotated[
        str,
        typer.Option(
            metavar="BUDGET",
            help="The kind of budget inside, without a limit: rdp, zcdp, rdp-order:order=16, JSON or @file.",
        ),
    ] = "rdp",
    reason: Annotated[str | None, typer.Option(help="What it is for; it stands in the entry.")] = None,
    idempotency_key: Key = None,
    as_json: AsJson = False,
) -> None:
    """Take a part of a shared budget; the token that asks owns it.

    Needs a spend token, also directly in a database: its id stands in the entry.
    """
    body: Fields = {
        "name": name,
        "epsilon": epsilon,
        "delta": delta,
        "budget": parse_description("--budget", budget, "accounting"),
        **({} if reason is None else {"reason": reason}),
    }
    with open_ledger(ledger_target) as ledger:
        made = ledger.create_allocation(dataset, body, idempotency_key or new_key())
    if as_json:
        print_json(made)
    else:
        left = f"{_part(made['remaining'])} of {dataset} is left to allocate"
        typer.echo(f"allocated {made['name']}: {limit_text(made['budget'])}; {left}")
        show_planned_items(made["budget"])
    show_warnings(made)


def _part(amounts: Fields) -> str:
    return f"ε = {number_down(amounts['epsilon'])}, δ = {number_down(amounts['delta'])}"


@list_command(allocations, lambda ledger, *page: ledger.allocations(*page))
def list_allocations(items: Sequence[Fields]) -> None:
    """List allocations in the order in which they were opened, with what each has left."""
    rows = [
        [
            each["name"],
            each["state"],
            limit_text(each["budget"]),
            percent_left(each["remaining"]["fraction"]),
            each["owner"],
            str(each["entries"]),
        ]
        for each in items
    ]
    columns = ("allocation", "state", "budget", "left>", "owner?", "entries>?")
    show_table(columns, rows, "no allocations; dpledger allocation create makes one")


@allocations.command("show")
@at_a_ledger
def show_allocation(
    ledger_target: LedgerTarget, dataset: DatasetName, name: AllocationName, as_json: AsJson = False
) -> None:
    """Show an allocation and what is left to spend from it."""
    with open_ledger(ledger_target) as ledger:
        found = ledger.allocation(dataset, name)
    if as_json:
        return print_json(found)
    held = found["open_reservations"]
    show_pairs(
        [
            ("allocation", f"{found['name']} of {dataset}, by entry {found['sequence']}"),
            ("state", found["state"]),
            ("owner", found["owner"]),
            ("takes", _part(found)),
            ("budget", limit_text(found["budget"])),
            ("left", left_text(found["remaining"])),
            ("reserved", f"{held} open" if held else None),
            ("entries", str(found["entries"])),
        ]
    )
    return show_used_items(found)


@allocations.command("return")
@at_a_ledger
def return_allocation(
    ledger_target: LedgerTarget,
    dataset: DatasetName,
    name: AllocationName,
    reason: Annotated[str, typer.Option(help="Why; it stands in the entry.")],
    idempotency_key: Key = None,
    as_json: AsJson = False,
) -> None:
    """Give back an allocation from which nothing was released; for its owner or an admin.

    What was authorized, settled as used or expired counts for good.
    """
    with open_ledger(ledger_target) as ledger:
        returned = ledger.return_allocation(dataset, name, {"reason": reason}, idempotency_key or new_key())
    if as_json:
        return print_json(returned)
    left = f"{_part(returned['remaining'])} of {dataset} is left to allocate"
    typer.echo(f"returned {name} by entry {returned['sequence']}: {left}")
    return None
