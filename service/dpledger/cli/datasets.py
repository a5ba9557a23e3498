"""``dpledger dataset``: open and list datasets, show what is left, change a budget."""

import enum
from collections.abc import Sequence
from typing import Annotated

import typer

from dpledger.cli.formatting import number, parse_description
from dpledger.cli.items import coordinates_text, show_curve, show_planned_items, show_used_items
from dpledger.cli.ledgers import Fields, collect_pages, open_ledger
from dpledger.cli.listing import list_command, print_page
from dpledger.cli.output import (
    amount_text,
    guarantee_text,
    left_text,
    limit_text,
    moment_text,
    number_down,
    number_up,
    percent_left,
    percent_spent,
    print_json,
    show_pairs,
    show_table,
    show_warnings,
)
from dpledger.cli.targets import AsJson, Cursor, DatasetName, Key, LedgerTarget, Limit, at_a_ledger, new_key

__all__ = ["Adjacency", "DatasetName", "datasets"]

datasets = typer.Typer(
    no_args_is_help=True, help="Open and list datasets, show what is left, change a budget."
)
Budget = Annotated[
    str,
    typer.Option(
        metavar="BUDGET",
        help="Filter and limit: @plan.json, zcdp:rho=0.5, gdp:mu=0.7, rdp:epsilon=1,delta=1e-6 or JSON.",
    ),
]


class Adjacency(enum.Enum):
    """What neighbours differ in."""

    ADD_REMOVE = "add-remove"
    REPLACE_ONE = "replace-one"


class PartitionKey(enum.Enum):
    """Whether neighbours keep their partition."""

    FIXED = "fixed"
    PRIVATE = "private"


@datasets.command("open")
@at_a_ledger
def open_dataset(
    ledger_target: LedgerTarget,
    name: DatasetName,
    budget: Budget,
    adjacency: Annotated[Adjacency, typer.Option(help="What neighbours differ in.")] = Adjacency.ADD_REMOVE,
    unit: Annotated[str, typer.Option(help="What is protected: record, user, session…")] = "record",
    records: Annotated[int | None, typer.Option(min=1, help="Its public size, if it has one.")] = None,
    description: Annotated[str, typer.Option(help="A note for the list of datasets.")] = "",
    partition_key: Annotated[
        PartitionKey | None, typer.Option(help="Whether neighbours keep their partition.")
    ] = None,
    units_in_one_partition: Annotated[
        bool,
        typer.Option(
            "--units-in-one-partition",
            help="State that each unit's data lie in one partition, which renewal by epochs needs.",
        ),
    ] = False,
    idempotency_key: Key = None,
    as_json: AsJson = False,
) -> None:
    """Open a dataset; its budget's rule, orders and weights are fixed from here on.

    Needs an admin token, also directly in a database: its id is recorded in the entry.
    """
    body: Fields = {"name": name, "adjacency": adjacency.value, "unit": unit, "description": description}
    body |= {} if records is None else {"records": records}
    body |= {} if partition_key is None else {"partition_key": partition_key.value}
    body |= {"units_in_one_partition": True} if units_in_one_partition else {}
    body["budget"] = parse_description("--budget", budget, "accounting")
    with open_ledger(ledger_target) as ledger:
        made = ledger.open_dataset(body, idempotency_key or new_key())
    if as_json:
        print_json(made)
    else:
        typer.echo(f"opened {made['name']}: {limit_text(made['budget'])}, {made['adjacency']}")
        show_planned_items(made["budget"])
    show_warnings(made)


@datasets.command("list")
@at_a_ledger
def list_datasets(
    ledger_target: LedgerTarget,
    search: Annotated[str | None, typer.Option(help="Part of the name or description.")] = None,
    limit: Limit = 1000,
    cursor: Cursor = None,
    as_json: AsJson = False,
) -> None:
    """List datasets by name, with what is left of each budget."""
    with open_ledger(ledger_target) as ledger:
        page = collect_pages(lambda many, after: ledger.datasets(search, many, after), limit, cursor)
    print_page(page, _show_datasets, as_json)


def _show_datasets(items: Sequence[Fields]) -> None:
    columns = ("dataset", "budget", "left", "left>", "entries>?", "partitions>?", "changed (UTC)?")
    show_table(columns, [_row(each) for each in items], "no datasets; dpledger dataset open makes one")


def _row(found: Fields) -> list[str]:
    left = found["remaining"]
    amount, percent = amount_text(left), percent_left(left["fraction"])
    return [
        found["name"],
        limit_text(found["budget"]),
        "" if amount == percent else amount,
        percent,
        str(found["sequence"]),
        str(found["partitions"]),
        moment_text(found["changed_at"]),
    ]


@datasets.command("show")
@at_a_ledger
def show_dataset(ledger_target: LedgerTarget, name: DatasetName, as_json: AsJson = False) -> None:
    """Show a dataset and what is left of its budget."""
    with open_ledger(ledger_target) as ledger:
        found = ledger.dataset(name)
    if as_json:
        return print_json(found)
    left = found["remaining"]
    show_pairs(
        [
            ("dataset", found["name"]),
            ("description", found["description"] or None),
            ("adjacency", found["adjacency"]),
            ("unit", found["unit"]),
            ("records", None if found["records"] is None else str(found["records"])),
            ("budget", limit_text(found["budget"])),
            ("guarantee", guarantee_text(found["guarantee"])),
            ("left", left_text(left)),
            (
                "partitions",
                f"{found['partitions']} ({found['partition_key']})" if found["partitions"] else None,
            ),
            ("entries", str(found["sequence"])),
            ("opened (UTC)", moment_text(found["opened_at"])),
            ("changed (UTC)", moment_text(found["changed_at"])),
        ]
    )
    show_planned_items(found["budget"])
    return None


@datasets.command("budget")
@at_a_ledger
def show_budget(
    ledger_target: LedgerTarget,
    name: DatasetName,
    delta: Annotated[
        float | None,
        typer.Option(parser=number, metavar="NUMBER", help="The δ at which the running ε is shown."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show limit, spent, reserved and remaining in the filter's own terms; spent includes reserved."""
    with open_ledger(ledger_target) as ledger:
        found = ledger.budget(name, delta)
    if as_json:
        return print_json(found)
    show_pairs(
        [
            ("dataset", f"{found['dataset']}, true at entry {found['sequence']}"),
            ("limit", coordinates_text(found["limit"], number_down)),
            ("guarantee", guarantee_text(found["guarantee"])),
            ("spent", f"{coordinates_text(found['spent'], number_up)}{_of_which(found)}"),
            (
                "reserved",
                f"{found['reserved']['open']} open, {coordinates_text(found['reserved'], number_up)}",
            ),
            ("remaining", coordinates_text(found["remaining"], number_down)),
            ("left", percent_left(found["fraction"])),
            ("planned", _planned(found.get("plan"))),
            ("allocations", _allocations_text(found.get("allocations"))),
        ]
    )
    show_curve(found)
    show_used_items(found)
    return None


def _planned(plan: Fields | None) -> str | None:
    """What is proven of all that is planned, between its bounds."""
    if plan is None:
        return None
    bounds = f"{number_down(plan['epsilon_lower_bound'])} to {number_up(plan['epsilon'])}"
    return f"ε = {bounds} if all of it is released, {number_down(plan['unused_epsilon'])} unused"


def _allocations_text(counts: Fields | None) -> str | None:
    """How many allocations a shared budget has."""
    return None if counts is None else f"{counts['open']} open, {counts['returned']} returned"


def _of_which(found: Fields) -> str:
    return ", what is reserved included" if found["reserved"]["open"] else ""


@list_command(datasets, lambda ledger, *page: ledger.runs(*page), name="runs")
def list_runs(items: Sequence[Fields]) -> None:
    """List runs with what each has spent, and what its open reservations hold beside that."""
    rows = [
        [
            each["run"],
            str(each["entries"]),
            "" if each["fraction"] is None else percent_spent(each["fraction"]),
            _reserved_text(each["reserved"]),
            moment_text(each["first_at"]),
            moment_text(each["last_at"]),
        ]
        for each in items
    ]
    show_table(
        ("run", "entries>", "spent>", "reserved>", "first (UTC)?", "last (UTC)?"),
        rows,
        "no run has spent anything",
    )


def _reserved_text(reserved: Fields) -> str:
    """What open reservations hold; under a shared budget how many there are."""
    if not reserved["open"]:
        return ""
    return percent_spent(reserved["fraction"]) if "fraction" in reserved else f"{reserved['open']} open"


@datasets.command("change-budget")
@at_a_ledger
def change_budget(
    ledger_target: LedgerTarget,
    name: DatasetName,
    budget: Budget,
    reason: Annotated[str, typer.Option(help="Why; recorded in the entry.")],
    if_match: Annotated[
        int | None,
        typer.Option(min=1, help="Refuse unless the dataset is at this entry. Default: where it is."),
    ] = None,
    idempotency_key: Key = None,
    as_json: AsJson = False,
) -> None:
    """Set another limit under the same rule; below what is spent it closes the dataset to spending.

    Needs an admin token, also directly in a database: its id is recorded in the entry.
    """
    body = {"budget": parse_description("--budget", budget, "accounting"), "reason": reason}
    with open_ledger(ledger_target) as ledger:
        sequence = ledger.dataset(name)["sequence"] if if_match is None else if_match
        changed = ledger.change_budget(name, body, sequence, idempotency_key or new_key())
    if as_json:
        print_json(changed)
    else:
        left = changed["remaining"]
        reported = f"{left_text(left)} is left"
        typer.echo(f"changed the budget of {name} by entry {changed['sequence']}: {reported}")
    show_warnings(changed)
