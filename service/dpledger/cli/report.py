"""``dpledger report``: what an auditor asks of a dataset, as tables, JSON or a page."""

from pathlib import Path
from typing import Annotated

import typer

from dpledger.cli.datasets import DatasetName
from dpledger.cli.failures import ExitCode
from dpledger.cli.history import open_file, refuse_to_overwrite
from dpledger.cli.items import coordinates_text, show_used_items, step_text
from dpledger.cli.ledgers import Fields, open_ledger
from dpledger.cli.output import (
    guarantee_text,
    limit_text,
    moment_text,
    number_down,
    number_up,
    percent_left,
    percent_spent,
    print_json,
    show_pairs,
    show_table,
)
from dpledger.cli.progress import show_bar
from dpledger.cli.targets import AsJson, LedgerTarget, Quiet, at_a_ledger

__all__ = ["report"]


@at_a_ledger
def report(
    ledger_target: LedgerTarget,
    name: DatasetName,
    page: Annotated[
        Path | None, typer.Option("--html", metavar="FILE", help="Write a page that needs no other file.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace the file if it exists.")] = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Report what is proven of a dataset and what was spent, and replay its ledger; exit 7 if it is broken.

    The page can be printed; - writes it to standard output.
    """
    if page is not None and page != Path("-"):
        refuse_to_overwrite(ledger_target, page, force)
    with open_ledger(ledger_target) as ledger, show_bar(f"verifying {name}", quiet or as_json) as step:
        found = ledger.report(name, step)
    if page is not None:
        _write_page(page, found)
    if as_json:
        print_json(found)
    elif page is None:
        _show(found)
    elif page != Path("-"):
        typer.echo(f"wrote {page}; {_verdict(found['verification'])}")
    if not found["verification"]["valid"]:
        raise typer.Exit(ExitCode.BROKEN)


def _write_page(page: Path, found: Fields) -> None:
    from dpledger.dashboard.pages import Pages

    with open_file(page) as file:
        file.write(Pages().render_report(found).encode())


def _show(found: Fields) -> None:
    dataset, budget, rule = found["dataset"], found["budget"], found["rule"]
    show_pairs(
        [
            ("dataset", f"{dataset['name']}, true at entry {found['sequence']}"),
            ("description", dataset["description"] or None),
            ("adjacency", f"{dataset['adjacency']}, one {dataset['unit']}"),
            ("records", None if dataset["records"] is None else str(dataset["records"])),
            ("partitions", str(dataset["partitions"]) if dataset["partitions"] else None),
            ("guarantee", guarantee_text(budget["guarantee"])),
            ("limit", limit_text(dataset["budget"])),
            ("rule", rule["summary"]),
            ("theorem", rule["theorem"]),
            ("conditions", rule["conditions"]),
            ("source", rule["source"]),
            ("spent", ", ".join([percent_spent(1.0 - budget["fraction"]), *_amounts(budget["spent"])])),
            ("reserved", ", ".join([f"{budget['reserved']['open']} open", *_amounts(budget["reserved"])])),
            ("left", percent_left(budget["fraction"])),
            *_audit_pairs(budget),
            ("refused", f"{found['refusals']} requests"),
            ("verification", _verdict(found["verification"])),
            ("head", found["head"]),
        ]
    )
    for problem in found["verification"]["problems"]:
        typer.echo(f"{dataset['name']}: {problem}")
    show_used_items(budget)
    _show_spenders(found["runs"], "run")
    _show_spenders(found["purposes"], "purpose")
    _show_steps(found["steps"])
    _show_changes(found["changes"])
    for cut in found["truncated"]:
        typer.echo(f"of {cut}, {len(found[cut])} are listed")


def _amounts(amounts: Fields) -> list[str]:
    """Amounts that are numbers of their own; curves are in the JSON, items in a table below."""
    numbers = {name: value for name, value in amounts.items() if name not in ("orders", "items")}
    found = coordinates_text(numbers, number_up)
    return [found] if found else []


def _audit_pairs(budget: Fields) -> list[tuple[str, str]]:
    """What is proven of a plan as a whole, whether it is spent already or not."""
    if "plan" not in budget:
        return []
    plan, audit = budget["plan"], budget["plan"]["audit"]
    bounds = f"{number_down(plan['epsilon_lower_bound'])} to {number_up(plan['epsilon'])}"
    return [
        ("planned", f"ε = {bounds} at δ = {budget['limit']['delta']:g} if all of it is released"),
        ("equivalent", f"a Gaussian of μ = {number_up(audit['equivalent_mu'])}"),
        ("advantage", f"of any membership attack at most {percent_spent(audit['advantage'])}"),
    ]


def _verdict(found: Fields) -> str:
    verdict = "valid" if found["valid"] else "BROKEN"
    return f"{verdict} up to entry {found['sequence']}, replayed {moment_text(found['at'])} UTC"


def _show_spenders(rows: list[Fields], kind: str) -> None:
    if rows:
        columns = (kind, "spent>", "reserved>", "entries>")
        show_table(columns, [_spender(each, kind) for each in rows], "none")


def _spender(each: Fields, kind: str) -> list[str]:
    """A share, or under a shared budget the count of entries alone."""
    held, fraction = each["reserved"], each["fraction"]
    reserved = percent_spent(held["fraction"]) if held.get("fraction") else ""
    return [each[kind], "" if fraction is None else percent_spent(fraction), reserved, str(each["entries"])]


def _show_steps(steps: list[Fields]) -> None:
    rows = [
        [step_text(each["step"]), each["purpose"], "declared" if each["declared"] else "computed"]
        for each in steps
    ]
    if rows:
        show_table(("granted step", "purpose?", "cost?"), rows, "none")


def _show_changes(changes: list[Fields]) -> None:
    rows = [
        [str(each["sequence"]), moment_text(each["at"]), each["kind"], each["detail"]["reason"]]
        for each in changes
    ]
    if rows:
        show_table(("entry>", "time (UTC)", "change", "reason"), rows, "none")
