"""Commands that list: pages of a ledger to a table, or to JSON."""

from collections.abc import Callable, Sequence
from typing import TypeAlias

import typer

from dpledger.cli.ledgers import Fields, Ledger, Page, collect_pages, open_ledger
from dpledger.cli.output import print_json
from dpledger.cli.targets import AsJson, Cursor, DatasetName, LedgerTarget, Limit, at_a_ledger

__all__ = ["list_command", "print_page"]

ReadPage: TypeAlias = Callable[[Ledger, str, int, str | None], Page]
"""From a ledger, a dataset's name, how many and a cursor to a page."""
ShowItems: TypeAlias = Callable[[Sequence[Fields]], None]


def list_command(group: typer.Typer, read: ReadPage, name: str = "list") -> Callable[[ShowItems], ShowItems]:
    """Register a function that shows items as the command that lists them; its docstring is the help."""

    def register(show: ShowItems) -> ShowItems:
        def list_items(
            ledger_target: LedgerTarget,
            dataset: DatasetName,
            limit: Limit = 1000,
            cursor: Cursor = None,
            as_json: AsJson = False,
        ) -> None:
            with open_ledger(ledger_target) as ledger:
                page = collect_pages(lambda many, after: read(ledger, dataset, many, after), limit, cursor)
            print_page(page, show, as_json)

        list_items.__doc__ = show.__doc__
        group.command(name)(at_a_ledger(list_items))
        return show

    return register


def print_page(page: Page, show: ShowItems, as_json: bool) -> None:
    """A page as the API's own JSON, or as a table with the cursor behind it where there is more."""
    if as_json:
        return print_json(page)
    show(page["items"])
    if page["next"] is not None:
        typer.echo(f"more: --next {page['next']}")
    return None
