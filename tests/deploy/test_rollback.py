"""An older copy of a ledger in its place is noticed, and nothing is spent from it until that is accepted."""

import itertools
import os
import shlex
import shutil
import sqlite3
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from dpledger.storage.mark_file import BadMarkFile
from tests.api.service import GAUSSIAN, Service, made, problem, running
from tests.deploy.clusters import binaries
from tests.support.databases import PostgresqlServer

ROOMY = {"accounting": "zcdp", "rho": 1000.0}
SLUG = "ledger-rolled-back"


def copy_sqlite(source: Path, target: Path) -> None:
    with closing(sqlite3.connect(source)) as old, closing(sqlite3.connect(target)) as new:
        old.backup(new)


def put_back(copy: Path, ledger: Path) -> None:
    """As an operator does: the file in its place, and nothing left of the newer one's log."""
    for ending in ("-wal", "-shm"):
        ledger.with_name(ledger.name + ending).unlink(missing_ok=True)
    shutil.copyfile(copy, ledger.with_name("new"))
    os.replace(ledger.with_name("new"), ledger)


@pytest.fixture
def ledger(tmp_path: Path) -> Path:
    return tmp_path / "ledger.db"


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    return tmp_path / "keys.json"


@pytest.fixture
def service(ledger: Path, keys: Path) -> Iterator[Service]:
    with running(f"sqlite:///{ledger}", keys) as service:
        service.open("adult", ROOMY)
        yield service


def spent(service: Service, many: int) -> list[dict[str, Any]]:
    return [made(service.authorize()) for _ in range(many)]


def accept(service: Service, found: dict[str, Any], **more: Any) -> Any:
    body = {"sequence": found["sequence"], "entry": found["entry"], "reason": "restored after a fire", **more}
    return service.post(f"/v1/datasets/{found['dataset']}/rollback-acceptances", body)


def write_attempts(service: Service, reservation: str) -> dict[str, Callable[[], Any]]:
    budget = {"budget": {**ROOMY, "rho": 2.0}, "reason": "less"}
    item = {"dataset": "adult", "run": "r", "releases": [GAUSSIAN]}
    return {
        "authorization": service.authorize,
        "reservation": lambda: service.reserve(3),
        "settlement": lambda: service.settle(reservation, 0),
        "list": lambda: service.bulk("each", item),
        "budget change": lambda: service.post(
            "/v1/datasets/adult/budget-changes", budget, headers={"If-Match": '"2"'}
        ),
        "partitions": lambda: service.post("/v1/datasets/adult/partitions", {"count": 2}),
    }


def test_a_copy_put_back_under_a_running_service_is_refused(
    service: Service, ledger: Path, tmp_path: Path
) -> None:
    held = made(service.reserve(3))["id"]
    copy_sqlite(ledger, tmp_path / "old.db")
    before = spent(service, 12)
    put_back(tmp_path / "old.db", ledger)

    for what, attempt in write_attempts(service, held).items():
        found = problem(attempt(), 409, SLUG)
        assert found["sequence"] == before[-1]["sequence"] == 14, what
        assert found["found"] == 2
        assert "dpledger accept-rollback adult --lost 14:" in found["detail"]
    assert service.sequence() == 2
    verdict = service.shown("/v1/datasets/adult/verification")
    assert not verdict["valid"]
    assert "14" in verdict["problems"][0]


def test_a_copy_put_back_over_a_restart_is_refused(ledger: Path, keys: Path, tmp_path: Path) -> None:
    with running(f"sqlite:///{ledger}", keys) as service:
        service.open("adult", ROOMY)
        copy_sqlite(ledger, tmp_path / "old.db")
        spent(service, 12)
        token = service.token
    put_back(tmp_path / "old.db", ledger)

    with running(f"sqlite:///{ledger}", keys) as service:
        service = service.as_bearer(token)
        assert problem(service.authorize(), 409, SLUG)["sequence"] == 13
        assert service.sequence() == 1


def test_the_mark_is_on_disk_within_its_lag_although_the_process_dies(
    ledger: Path, keys: Path, tmp_path: Path
) -> None:
    """The files as a killed process leaves them: copied while it runs, a second after the last answer."""
    with running(f"sqlite:///{ledger}", keys) as service:
        service.open("adult", ROOMY)
        copy_sqlite(ledger, tmp_path / "old.db")
        spent(service, 5)
        time.sleep(1.0)
        (tmp_path / "after").mkdir()
        shutil.copyfile(f"{keys}.marks", tmp_path / "after" / "keys.json.marks")
        shutil.copy(keys, tmp_path / "after" / "keys.json")
        token = service.token

    with running(f"sqlite:///{tmp_path / 'old.db'}", tmp_path / "after" / "keys.json") as service:
        assert problem(service.as_bearer(token).authorize(), 409, SLUG)["sequence"] == 6


def test_an_accepted_rollback_is_recorded_and_goes_on(service: Service, ledger: Path, tmp_path: Path) -> None:
    copy_sqlite(ledger, tmp_path / "old.db")
    lost = spent(service, 4)
    put_back(tmp_path / "old.db", ledger)
    found = problem(service.authorize(), 409, SLUG)

    accepted = made(accept(service, found))

    assert accepted["sequence"] == 2
    entry = service.shown("/v1/datasets/adult/entries/2")
    assert entry["kind"] == "rollback-accepted"
    assert entry["detail"] == {
        "lost": {"sequence": lost[-1]["sequence"], "entry": found["entry"]},
        "reason": "restored after a fire",
    }
    assert made(service.authorize())["sequence"] == 3
    service.verified()


def test_one_acceptance_excuses_one_rollback(service: Service, ledger: Path, tmp_path: Path) -> None:
    copy_sqlite(ledger, tmp_path / "old.db")
    spent(service, 4)
    put_back(tmp_path / "old.db", ledger)
    made(accept(service, problem(service.authorize(), 409, SLUG)))
    copy_sqlite(ledger, tmp_path / "accepted.db")
    spent(service, 2)

    put_back(tmp_path / "accepted.db", ledger)
    assert problem(service.authorize(), 409, SLUG)["sequence"] == 4
    put_back(tmp_path / "old.db", ledger)
    assert problem(service.authorize(), 409, SLUG)["sequence"] == 4


def test_what_the_ledger_still_holds_cannot_be_given_up(service: Service) -> None:
    spent(service, 2)
    entry = service.shown("/v1/datasets/adult/entries/2")

    held = accept(service, {"dataset": "adult", "sequence": 2, "entry": entry["hash"]})
    problem(held, 422, "invalid-input")
    problem(accept(service, {"dataset": "adult", "sequence": 2, "entry": "zz"}), 422, "invalid-input")
    reader = service.make_token("spend", "read")
    problem(accept(reader, {"dataset": "adult", "sequence": 9, "entry": "00" * 32}), 403, "forbidden")


def test_a_ledger_that_went_another_way_is_refused(
    service: Service, ledger: Path, keys: Path, tmp_path: Path
) -> None:
    """The old copy was spent from elsewhere and is longer now: its entries are others."""
    copy_sqlite(ledger, tmp_path / "other.db")
    spent(service, 3)
    shutil.copy(keys, tmp_path / "elsewhere.json")
    with running(f"sqlite:///{tmp_path / 'other.db'}", tmp_path / "elsewhere.json") as other:
        other.clock.advance(1.0)
        spent(other.as_bearer(service.token), 8)
    put_back(tmp_path / "other.db", ledger)

    found = problem(service.authorize(), 409, SLUG)
    assert (found["sequence"], found["found"]) == (4, 9)


def test_a_dataset_that_is_gone_is_neither_spent_from_nor_opened_again(
    service: Service, ledger: Path, tmp_path: Path
) -> None:
    copy_sqlite(ledger, tmp_path / "old.db")
    service.open("trips", ROOMY)
    made(service.authorize(dataset="trips"))
    put_back(tmp_path / "old.db", ledger)

    assert problem(service.authorize(dataset="trips"), 409, SLUG)["found"] == 0
    again = service.post("/v1/datasets", {"name": "trips", "budget": ROOMY})
    assert problem(again, 409, SLUG)["found"] == 0
    assert service.get("/v1/datasets/trips").status_code == 404


def test_a_postgresql_ledger_restored_from_an_older_dump_is_refused(
    postgresql: PostgresqlServer, keys: Path, tmp_path: Path
) -> None:
    """Restored into the same database under a running service, and after a restart."""
    url = postgresql.create()
    dump = tmp_path / "old.dump"

    def run(command: str) -> None:
        name, *rest = shlex.split(command)
        subprocess.run([str(binaries() / name), *rest], check=True, capture_output=True)

    with running(url, keys) as service:
        service.open("adult", ROOMY)
        run(f"pg_dump --format=custom --file={dump} --dbname={shlex.quote(url)}")
        ids = {each["id"] for each in spent(service, 6)}
        run(f"pg_restore --clean --no-owner --exit-on-error --dbname={shlex.quote(url)} {dump}")
        assert problem(service.authorize(), 409, SLUG)["sequence"] == 7
        token = service.token

    with running(url, keys) as service:
        service = service.as_bearer(token)
        found = problem(service.authorize(), 409, SLUG)
        assert f"adult~{found['sequence']}" in ids
        made(accept(service, found))
        made(service.authorize())
        service.verified()


def test_another_replica_goes_on_by_the_same_acceptance(
    postgresql: PostgresqlServer, keys: Path, tmp_path: Path
) -> None:
    """Each has a mark of its own; what is accepted stands in the ledger, where both find it."""
    url, dump = postgresql.create(), tmp_path / "old.dump"
    (tmp_path / "two").mkdir()
    with running(url, keys) as one:
        shutil.copy(keys, tmp_path / "two" / "keys.json")
        with running(url, tmp_path / "two" / "keys.json") as two:
            two = Service(two.client, one.token, two.clock, itertools.count(1000))
            one.open("adult", ROOMY)
            pg = [str(binaries() / "pg_dump"), "--format=custom", f"--file={dump}", f"--dbname={url}"]
            subprocess.run(pg, check=True, capture_output=True)
            spent(one, 2)
            spent(two, 3)
            spent(one, 1)
            restore = [str(binaries() / "pg_restore"), "--clean", "--no-owner", f"--dbname={url}", str(dump)]
            subprocess.run(restore, check=True, capture_output=True)

            first, second = (problem(each.authorize(), 409, SLUG) for each in (one, two))
            assert (first["sequence"], second["sequence"]) == (7, 6)
            made(accept(one, first))
            made(accept(one, second))
            assert made(two.authorize())["sequence"] == 4
            assert made(one.authorize())["sequence"] == 5


def test_replicas_that_take_turns_are_never_refused(postgresql: PostgresqlServer, keys: Path) -> None:
    url = postgresql.create()
    with running(url, keys) as one, running(url, keys) as two:
        two = two.as_bearer(one.token)
        one.open("adult", ROOMY)
        answers: list[int] = []

        def ask(service: Service, many: int) -> None:
            answers.extend(service.authorize(key=f"{id(service)}-{n}").status_code for n in range(many))

        threads = [threading.Thread(target=ask, args=(each, 40)) for each in (one, two)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert answers == [201] * 80


def test_a_fresh_ledger_in_the_place_of_one_with_marks_does_not_start(ledger: Path, keys: Path) -> None:
    with running(f"sqlite:///{ledger}", keys) as service:
        service.open("adult", ROOMY)
    ledger.unlink()

    refused = pytest.raises(BadMarkFile, match=r"keys\.json\.marks.*another ledger")
    with refused, running(f"sqlite:///{ledger}", keys):
        pass
