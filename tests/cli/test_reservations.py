"""``dpledger reservation``, through a service and directly on its database."""

import itertools
from typing import Any

import pytest

from tests.cli.running import GAUSSIAN, Served, run

_numbers = itertools.count()


@pytest.fixture
def dataset(service: Served) -> str:
    """A dataset of which nothing is reserved."""
    name = f"held-{next(_numbers)}"
    service.post("datasets", f"open-{name}", {"name": name, "budget": {"accounting": "zcdp", "rho": 0.5}})
    return name


def reserve(service: Served, dataset: str, **more: Any) -> Any:
    held = {"run": "sgd", "releases": [GAUSSIAN], "times": 10, "expires_in_seconds": 3600, **more}
    return service.post(f"datasets/{dataset}/reservations", f"hold-{next(_numbers)}", held)


def test_what_is_held_is_listed_as_the_api_lists_it(
    ledger_target: list[str], service: Served, dataset: str
) -> None:
    assert run("reservation", "list", dataset, *ledger_target).out == "no open reservations\n"
    held = [reserve(service, dataset, run=name) for name in ("sgd", "adam")]

    listed = run("reservation", "list", dataset, *ledger_target, "--json").json
    assert listed == service.get(f"datasets/{dataset}/reservations")
    header, _, *rows = run("reservation", "list", dataset, *ledger_target).out.splitlines()
    assert header.split() == ["reservation", "run", "times", "holds", "expires", "(UTC)"]
    step = "gaussian:noise_std=10,sensitivity=1"
    for row, name, each in zip(rows, ("sgd", "adam"), held, strict=True):
        expires = each["expires_at"][:19].replace("T", " ")
        assert row.split() == [each["id"], name, "10", step, "full", *expires.split()]
    first = run("reservation", "list", dataset, "--limit", "1", *ledger_target).out.splitlines()
    rest = run("reservation", "list", dataset, *first[-1].split()[1:], *ledger_target).out.splitlines()
    assert [first[2].split(), rest[2].split()] == [row.split() for row in rows]


def test_a_reservation_of_a_part_names_it(ledger_target: list[str], service: Served, dataset: str) -> None:
    service.post(f"datasets/{dataset}/partitions", f"parts-{dataset}", {"names": ["ann"]})
    reserve(service, dataset, partition="ann")
    reserve(service, dataset)

    header, _, *rows = run("reservation", "list", dataset, *ledger_target).out.splitlines()
    at = header.index(" of ") + 1
    assert [row[at:].split()[0] for row in rows] == ["ann", "10"]


def test_settling_gives_back_what_was_not_used_and_says_why(
    ledger_target: list[str], service: Served, dataset: str
) -> None:
    held = reserve(service, dataset)["id"]
    settling = ["reservation", "settle", held, "--used", "4", "--reason", "the job's node is gone"]

    reported = run(*settling, "--idempotency-key", f"settle-{dataset}", *ledger_target)

    left = "ρ = 0.479999 (95.9 %) is left"
    assert (reported.code, reported.err) == (0, "")
    assert reported.out == f"settled {held} by entry 3: 6 of 10 returned; {left}\n"
    entry = service.get(f"datasets/{dataset}/entries/3")
    assert (entry["kind"], entry["used"]) == ("settled", 4)
    assert "the job's node is gone" in str(entry["detail"])
    at_service = ["--url", service.address, "--token", service.token]
    again = run(*settling, "--idempotency-key", f"settle-{dataset}", *at_service, "--json").json
    assert (again["used"], again["returned"], again["sequence"]) == (4, 6, 3)


def test_a_token_settles_its_own_and_an_admin_says_why_he_settles_for_another(
    service: Served, dataset: str
) -> None:
    at_service = ["--url", service.address, "--token", service.token]
    body = {"scopes": ["spend"], "description": "a job"}
    job = service.post("tokens", f"token-{dataset}", body)["token"]
    as_job = ["--url", service.address, "--token", job]
    mine, other = reserve(service, dataset)["id"], reserve(service, dataset)["id"]

    run("reservation", "settle", mine, "--used", "2", *as_job).failed(5)
    run("reservation", "settle", mine, "--used", "11", *at_service).failed(2, "used")
    assert run("reservation", "settle", mine, "--used", "2", *at_service).code == 0
    assert run("reservation", "settle", other, "--used", "10", *at_service).code == 0


@pytest.mark.parametrize("name", ["adult~99999", "nobody~1", "adult", "a/b"])
def test_what_is_no_reservation_is_not_found(service: Served, name: str) -> None:
    at_service = ["--url", service.address, "--token", service.token]
    run("reservation", "settle", name, "--used", "0", *at_service).failed(4)


def test_settling_needs_a_token_also_in_a_database(service: Served) -> None:
    run("reservation", "settle", "adult~1", "--used", "0", "--database", service.database).failed(
        5, "--token"
    )
