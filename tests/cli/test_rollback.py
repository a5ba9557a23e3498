"""``verify`` against marks, receipts and journals, and ``accept-rollback``."""

import json
import os
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from dpledger_client import Gaussian, Ledger
from tests.api.service import made, running
from tests.cli.running import GAUSSIAN, furnished, run, served

ROOMY = {"accounting": "zcdp", "rho": 1000.0}


class Rolled:
    """A ledger that was put back by four entries: its URL, its admin token, and what clients hold."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "ledger.db"
        self.database = f"sqlite:///{self.file}"
        self.keys = folder / "keys.json"
        self.receipts = folder / "receipts"
        self.early = folder / "early"
        with running(self.database, self.keys) as service:
            self.token = service.token
            service.open("adult", ROOMY)
            self.early.write_text(made(service.authorize())["receipt"] + "\n")
            with closing(sqlite3.connect(self.file)) as old, closing(sqlite3.connect(folder / "old")) as new:
                old.backup(new)
            answers = [made(service.authorize()) for _ in range(4)]
            service.open("trips", ROOMY)
            self.receipts.write_text("".join(json.dumps(each) + "\n" for each in answers))
            self.last = service.shown("/v1/datasets/adult/verification")["head"]
            self.gone = service.shown("/v1/datasets/trips/verification")["head"]
        os.replace(folder / "old", self.file)

    @property
    def ledger_target(self) -> list[str]:
        return ["--database", self.database, "--key-file", str(self.keys), "--token", self.token]


@pytest.fixture
def rolled(tmp_path: Path) -> Rolled:
    return Rolled(tmp_path)


def problems(ended: Any) -> dict[str, list[str]]:
    assert ended.code == 7, ended
    return {each["dataset"]: each["problems"] for each in json.loads(ended.out)["items"]}


def test_verify_says_which_ledgers_are_behind_their_marks(rolled: Rolled) -> None:
    found = problems(run("verify", *rolled.ledger_target, "--json"))

    assert set(found) == {"adult", "trips"}
    assert f"--lost 6:{rolled.last}" in found["adult"][0]
    assert "is not there any more" in found["trips"][0]
    assert "BROKEN" in run("verify", "adult", *rolled.ledger_target).out


def test_verify_compares_receipts_also_where_there_are_no_marks(rolled: Rolled) -> None:
    Path(f"{rolled.keys}.marks").unlink()
    assert run("verify", *rolled.ledger_target, "--receipts", str(rolled.early)).code == 0
    many = run(
        "verify", *rolled.ledger_target, "--receipts", str(rolled.early), "--receipts", str(rolled.receipts)
    )

    assert many.code == 7
    assert "compared 5 receipts" in many.out
    found = problems(run("verify", *rolled.ledger_target, "--receipts", str(rolled.receipts), "--json"))
    assert [each.partition(": ")[2] for each in found["adult"]] == [
        f"a receipt of entry {number}, which the ledger does not have" for number in (3, 4, 5, 6)
    ]


def test_verify_finds_receipts_of_entries_that_were_issued_again(rolled: Rolled) -> None:
    Path(f"{rolled.keys}.marks").unlink()
    with running(rolled.database, rolled.keys) as service:
        service.clock.advance(1.0)
        for number in range(4):
            made(service.as_bearer(rolled.token).authorize(key=f"again-{number}"))

    found = problems(run("verify", *rolled.ledger_target, "--receipts", str(rolled.receipts), "--json"))
    assert [each.partition(": ")[2] for each in found["adult"]] == [
        f"a receipt of entry {number}, which is another one in the ledger" for number in (3, 4, 5, 6)
    ]


def test_a_forged_receipt_is_none(rolled: Rolled, tmp_path: Path) -> None:
    Path(f"{rolled.keys}.marks").unlink()
    text = rolled.early.read_text().strip()
    (tmp_path / "forged").write_text(f"{text[:-6]}AAAAAA\nnonsense\n{{}}\n")

    found = problems(run("verify", *rolled.ledger_target, "--receipts", str(tmp_path / "forged"), "--json"))
    assert len(found["?"]) == 3


def test_verify_compares_the_outputs_of_a_journal(tmp_path: Path) -> None:
    file, journal = tmp_path / "budget.db", tmp_path / "job.journal"
    with Ledger.embedded(file) as ledger:
        dataset = ledger.dataset("adult")
        dataset.open(ROOMY)
        account = dataset.run("job", journal=journal)
        account.release(Gaussian(1.0, 10.0), 5.0)
        with closing(sqlite3.connect(file)) as old, closing(sqlite3.connect(tmp_path / "old")) as new:
            old.backup(new)
        account.release(Gaussian(1.0, 10.0), 6.0)
        with account.reserve(Gaussian(1.0, 10.0), times=3) as hold:
            hold.release(7.0)
    ledger_target = ["--database", f"sqlite:///{file}"]
    kept = run("verify", *ledger_target, "--journal", str(journal))
    assert kept.code == 0
    assert "3 requests of journals" in kept.out

    Path(f"{file}.keys.json.marks").unlink()
    os.replace(tmp_path / "old", file)
    found = problems(run("verify", *ledger_target, "--journal", str(journal), "--json"))
    assert len(found["adult"]) == 2
    assert all("whose request the ledger does not have" in each for each in found["adult"])


def test_what_cannot_be_compared_is_said_in_one_line(rolled: Rolled, tmp_path: Path) -> None:
    (tmp_path / "text").write_text("hello\n")
    run("verify", *rolled.ledger_target, "--journal", str(tmp_path / "text")).failed(
        2, "is not the journal of a job"
    )
    run("verify", *rolled.ledger_target, "--receipts", str(tmp_path / "none")).failed(2, "cannot read")


def test_a_rollback_is_accepted_at_the_terminal(rolled: Rolled) -> None:
    lost = ["--lost", f"6:{rolled.last}", "--reason", "restored"]
    run("accept-rollback", "adult", "--lost", "6", "--reason", "x", *rolled.ledger_target).failed(
        2, "--lost takes"
    )
    ended = run("accept-rollback", "adult", *lost, *rolled.ledger_target)
    assert (ended.code, ended.out) == (0, "adult goes on at entry 3\n")
    gone = ["--lost", f"1:{rolled.gone}", "--reason", "never used"]
    ended = run("accept-rollback", "trips", *gone, *rolled.ledger_target)
    assert "the mark of trips is given up" in ended.out
    run("accept-rollback", "trips", *gone, *rolled.ledger_target).failed(4, "no such mark")

    assert run("verify", *rolled.ledger_target).code == 0
    with running(rolled.database, rolled.keys) as service:
        service = service.as_bearer(rolled.token)
        assert made(service.authorize(key="new"))["sequence"] == 4
        made(service.post("/v1/datasets", {"name": "trips", "budget": ROOMY}, key="again"))


def test_a_service_compares_receipts_and_accepts_rollbacks(tmp_path: Path) -> None:
    """Over HTTP; journals need the database, since asking again might spend."""
    with served(tmp_path) as service:
        furnished(service)
        ledger_target = ["--url", service.address, "--token", service.token]
        step = {"run": "r", "releases": [GAUSSIAN]}
        (tmp_path / "kept").write_text(json.dumps(service.post("datasets/adult/authorizations", "k", step)))
        (tmp_path / "job").write_text(
            '{"journal":1,"token":"t"}\n{"intent":"/v1/x","body":0,"key":"k"}\n{"output":"k/0/0","value":[1]}\n'
        )
        kept = run("verify", *ledger_target, "--receipts", str(tmp_path / "kept"))
        assert kept.code == 0
        assert kept.out.splitlines()[-1] == "compared 1 receipts and 0 requests of journals"
        lost = ["--lost", f"99:{'ab' * 32}", "--reason", "of another replica"]
        assert run("accept-rollback", "adult", *lost, *ledger_target).out == "adult goes on at entry 9\n"
        run("verify", *ledger_target, "--journal", str(tmp_path / "job")).failed(
            2, "--journal needs --database"
        )
        run("token", "create", "--scope", "read", "--new-keys", *ledger_target).failed(2, "--new-keys needs")


def test_a_lost_key_file_is_not_silently_replaced(rolled: Rolled) -> None:
    shutil.move(rolled.keys, f"{rolled.keys}.away")

    for command in (["token", "create", "--scope", "read"], ["serve", "--port", "0"]):
        database = ["--database", rolled.database, "--key-file", str(rolled.keys)]
        run(*command, *database).failed(1, "there is no key file", "--new-keys")
    assert not rolled.keys.exists()
    run("verify", *rolled.ledger_target, "--receipts", str(rolled.early)).failed(1, "there is no key file")

    ended = run("token", "create", "--scope", "admin", "--new-keys", *rolled.ledger_target)
    assert ended.code == 0
    with running(rolled.database, rolled.keys) as service:
        assert service.as_bearer(ended.out.strip()).get("/v1/datasets").status_code == 200
        assert service.as_bearer(rolled.token).get("/v1/datasets").status_code == 401
