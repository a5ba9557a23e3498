"""The command ``dpledger`` and its subcommands."""

from typing import Annotated

import typer

from dpledger import __version__
from dpledger.cli.allocations import allocations
from dpledger.cli.backups import backup, restore
from dpledger.cli.datasets import datasets
from dpledger.cli.epochs import epochs
from dpledger.cli.failures import OneLineErrors
from dpledger.cli.history import accept_rollback, entries, export, verify
from dpledger.cli.partitions import partitions
from dpledger.cli.queries import calibrate, convert, cost, forecast
from dpledger.cli.quotas import quotas
from dpledger.cli.registry import registry
from dpledger.cli.report import report
from dpledger.cli.requests import requests
from dpledger.cli.reservations import reservations
from dpledger.cli.serve import migrate, serve
from dpledger.cli.tokens import tokens

__all__ = ["app", "main"]

app = typer.Typer(
    cls=OneLineErrors, no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False
)


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
    """Keep the privacy budget of every dataset.

    Commands about a ledger ask a service (--url, --token) or open a database (--database).
    Exit codes: 0 yes, 1 failure, 2 usage, 3 refused, 4 not found, 5 access denied, 6 unavailable, 7 broken.
    """


_OPERATING = (serve, migrate, backup, restore)
_HISTORY = (entries, verify, accept_rollback, export, report, registry)
for command in (*_OPERATING, *_HISTORY, cost, convert, calibrate, forecast):
    app.command()(command)
app.add_typer(tokens, name="token")
app.add_typer(datasets, name="dataset")
app.add_typer(partitions, name="partition")
app.add_typer(reservations, name="reservation")
app.add_typer(allocations, name="allocation")
app.add_typer(quotas, name="quota")
app.add_typer(requests, name="request")
app.add_typer(epochs, name="epoch")


def main() -> None:
    """Run the command line."""
    app()
