"""``dpledger registry``: a dataset's entry for the Differential Privacy Deployments Registry."""

import re
from pathlib import Path
from typing import Annotated

import typer

from dpledger.cli.datasets import DatasetName
from dpledger.cli.failures import ExitCode, Failed
from dpledger.cli.formatting import number
from dpledger.cli.history import open_file, refuse_to_overwrite
from dpledger.cli.ledgers import open_ledger
from dpledger.cli.output import print_json
from dpledger.cli.targets import AsJson, LedgerTarget, at_a_ledger
from dpledger.ledger.deployment import Model, ProductType, Sector

__all__ = ["registry"]

_FILE_NAME = re.compile(r"[a-z0-9_]+\.yaml")
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")


@at_a_ledger
def registry(
    ledger_target: LedgerTarget,
    name: DatasetName,
    curator: Annotated[list[str], typer.Option(help="Who curates the data; may be repeated.")],
    use: Annotated[str, typer.Option(help="What the data product is used for.")],
    product: Annotated[ProductType, typer.Option(help="What is published.")],
    region: Annotated[str, typer.Option(help="Where the data product is about.")],
    published: Annotated[str, typer.Option(metavar="DATE", help="When it is published, YYYY-MM-DD.")],
    tier: Annotated[int, typer.Option(min=1, max=3, help="The registry's tier.")],
    description: Annotated[str | None, typer.Option(help="Of the data; else the dataset's own.")] = None,
    sector: Annotated[Sector | None, typer.Option(help="Of the data product.")] = None,
    model: Annotated[Model | None, typer.Option(help="Where the noise is added.")] = None,
    author: Annotated[list[str] | None, typer.Option(help="Who writes the entry; may be repeated.")] = None,
    delta: Annotated[
        float | None,
        typer.Option(
            parser=number, metavar="NUMBER", help="Where ε is stated for a budget without a δ of its own."
        ),
    ] = None,
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FILE", help="File to write; - is standard output.")
    ] = Path("-"),
    force: Annotated[bool, typer.Option("--force", help="Replace the file if it exists.")] = False,
    as_json: AsJson = False,
) -> None:
    """Draft a dataset's entry for the Differential Privacy Deployments Registry, as YAML.

    What the ledger cannot know is asked for; nothing is made up. Read the draft before you send it.
    """
    if not _DATE.fullmatch(published):
        raise Failed(ExitCode.USAGE, f"--published takes a date such as 2026-07-15, found {published!r}")
    if output != Path("-"):
        if not _FILE_NAME.fullmatch(output.name):
            raise Failed(ExitCode.USAGE, "a file name is of a-z, 0-9 and _, such as adult_census.yaml")
        refuse_to_overwrite(ledger_target, output, force)
    said = {
        "data_curators": curator,
        "intended_use": use,
        "data_product_type": product.value,
        "data_product_region": region,
        "publication_date": published,
        "tier": tier,
        "description": description,
        "data_product_sector": None if sector is None else sector.value,
        "model_name": None if model is None else model.value,
        "registry_authors": author or None,
        "delta": delta,
    }
    with open_ledger(ledger_target) as ledger:
        query = {each: value for each, value in said.items() if value is not None}
        document = ledger.deployment(name, query)
    if as_json:
        return print_json(document)
    from dpledger.api.responses import yaml_text

    with open_file(output) as file:
        file.write(yaml_text(document).encode())
    return None
