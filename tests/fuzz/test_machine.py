"""Schemathesis walks over the API's own description, in this process: every answer is as described."""

from pathlib import Path
from random import Random

import pytest

from tests.api.service import running
from tests.fuzz.judge import Judge
from tests.fuzz.machine import linked, machine_over, walk
from tests.fuzz.run import Findings, Sender, check_ledgers, existing

SEED = 13
WALKS, STEPS = 12, 15


def test_walks_over_the_description_find_nothing(tmp_path: Path) -> None:
    with running(f"sqlite:///{tmp_path / 'ledger.db'}", tmp_path / "keys.json") as service:
        description = service.app.openapi()
        sender = Sender(service.client, Judge(description), Findings())

        walk(machine_over(sender, description, service.token, Random(SEED)), SEED, WALKS, STEPS)
        check_ledgers(sender, existing(sender, service.token), set(), service.token)

    assert sender.findings.faults == []
    assert sender.findings.hold
    assert sender.findings.requests > WALKS


@pytest.mark.parametrize(
    ("source", "target"),
    [
        ("post /v1/datasets 201", "post /v1/datasets/{dataset}/authorizations"),
        ("post /v1/datasets/{dataset}/authorizations 201", "get /v1/datasets/{dataset}/entries/{sequence}"),
        ("post /v1/datasets/{dataset}/reservations 201", "post /v1/reservations/{reservation}/settlement"),
        (
            "post /v1/datasets/{dataset}/allocations 201",
            "post /v1/datasets/{dataset}/allocations/{allocation}/return",
        ),
    ],
)
def test_one_request_leads_to_the_next(tmp_path: Path, source: str, target: str) -> None:
    method, path, status = source.split(" ")
    with running(f"sqlite:///{tmp_path / 'ledger.db'}", tmp_path / "keys.json") as service:
        paths = linked(service.app.openapi())["paths"]

    link = paths[path][method]["responses"][status]["links"][target]

    to_method, to_path = target.split(" ")
    assert link["operationId"] == paths[to_path][to_method]["operationId"]
    assert set(link["parameters"]) <= {each["name"] for each in paths[to_path][to_method]["parameters"]}
