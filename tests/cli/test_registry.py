"""``dpledger registry``, through a service and directly on its database."""

from pathlib import Path

import jsonschema
import pytest
import yaml

from tests.cli.running import run
from tests.support.registry_schema import REGISTRY_SCHEMA

OPTIONS = (
    "--curator=Census Bureau",
    "--use=Teaching",
    "--product=Machine learning model",
    "--region=United States",
    "--published=2026-11-18",
    "--tier=3",
    "--description=Census records",
    "--delta=1e-6",
)


def test_the_draft_is_printed_and_written(ledger_target: list[str], tmp_path: Path) -> None:
    printed = run("registry", "adult", *OPTIONS, *ledger_target)
    assert printed.code == 0, printed.err
    found = yaml.safe_load(printed.out)
    jsonschema.validate(found, REGISTRY_SCHEMA, jsonschema.Draft7Validator)
    assert found["deployment"]["basic"]["data_curators"] == ["Census Bureau"]
    file = tmp_path / "adult_census.yaml"
    assert run("registry", "adult", *OPTIONS, "--output", str(file), *ledger_target).code == 0
    assert file.read_text(encoding="utf-8") == printed.out
    assert run("registry", "adult", *OPTIONS, "--json", *ledger_target).json == found
    run("registry", "adult", *OPTIONS, "-o", str(file), *ledger_target).failed(3, "exists", "--force")


@pytest.mark.parametrize(
    ("options", "word"),
    [
        (["--published", "today"], "--published"),
        (["--output", "Adult.yml"], "adult_census.yaml"),
    ],
)
def test_what_the_registry_would_reject_is_refused(
    ledger_target: list[str], options: list[str], word: str
) -> None:
    run("registry", "adult", *OPTIONS, *options, *ledger_target).failed(2, word)


def test_an_unknown_dataset_is_told(ledger_target: list[str]) -> None:
    run("registry", "nobody", *OPTIONS, *ledger_target).failed(4, "nobody")
