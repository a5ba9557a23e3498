"""``dpledger entries``, ``verify`` and ``export``, through a service and directly on its database."""

import contextlib
import json
import os
import shutil
import sqlite3
from collections.abc import Iterator
from functools import partialmethod
from pathlib import Path
from unittest import mock

import httpx2
import pytest

from dpledger.cli.remote import Remote
from tests.cli.running import Served, run


def test_entries_are_listed_as_the_api_lists_them(ledger_target: list[str], service: Served) -> None:
    assert run("entries", "adult", *ledger_target, "--json").json == service.get("datasets/adult/entries")
    lines = run("entries", "adult", *ledger_target).out.splitlines()
    kinds = ["opened", "partitions-opened", *["authorized"] * 3, "reserved", "settled"]
    assert [line.split()[3] for line in lines[2:]] == kinds
    authorized = lines[4].split()
    assert (authorized[4], authorized[5]) == ("run-0", "gradient")
    assert authorized[-1] == service.get("datasets/adult/entries/3")["hash"][:12]


@pytest.mark.parametrize(
    ("options", "sequences"),
    [
        (["--run", "run-1"], [4]),
        (["--kind", "reserved"], [6]),
        (["--partition", "ann"], []),
        (["--newest-first", "--limit", "2"], [7, 6]),
    ],
)
def test_entries_are_chosen(ledger_target: list[str], options: list[str], sequences: list[int]) -> None:
    found = run("entries", "adult", *options, *ledger_target, "--json").json
    assert [each["sequence"] for each in found["items"]] == sequences
    reported = run("entries", "adult", *options, *ledger_target).out
    assert (reported == "no such entries\n") == (sequences == [])


def test_a_long_list_of_entries_is_gathered_page_by_page(ledger_target: list[str], service: Served) -> None:
    with mock.patch("dpledger.cli.ledgers.PAGE_LIMIT", 2):
        found = run("entries", "adult", "--limit", "5", *ledger_target, "--json").json
    assert [each["sequence"] for each in found["items"]] == [1, 2, 3, 4, 5]
    rest = run("entries", "adult", "--next", found["next"], *ledger_target, "--json").json
    assert found["items"] + rest["items"] == service.get("datasets/adult/entries")["items"]
    assert f"more: --next {found['next']}" in run("entries", "adult", "--limit", "5", *ledger_target).out


def test_a_ledger_is_verified(ledger_target: list[str], service: Served) -> None:
    ended = run("verify", "adult", *ledger_target, "--json")
    assert ended.json == service.get("datasets/adult/verification")
    assert (ended.code, ended.err) == (0, "")
    head = service.get("datasets/adult/verification")["head"]
    assert run("verify", "adult", *ledger_target).out.splitlines()[-1].split() == [
        "adult",
        "holds",
        "7",
        head[:16],
    ]


def test_every_ledger_is_verified_by_default(ledger_target: list[str]) -> None:
    found = run("verify", *ledger_target, "--json").json
    assert [(each["dataset"], each["valid"]) for each in found["items"]] == [("adult", True), ("mnist", True)]
    two = run("verify", "mnist", "adult", "--quiet", *ledger_target, "--json").json
    assert [each["dataset"] for each in two["items"]] == ["mnist", "adult"]


@pytest.fixture
def copy(service: Served, tmp_path: Path) -> Path:
    """A copy of the database, as a backup is made of one in use."""
    target = tmp_path / "copy.db"
    with (
        contextlib.closing(sqlite3.connect(service.database.removeprefix("sqlite:///"))) as source,
        contextlib.closing(sqlite3.connect(target)) as made,
    ):
        source.backup(made)
    return target


def _change(database: Path, statement: str) -> None:
    with contextlib.closing(sqlite3.connect(database)) as connection:
        triggers = connection.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall()
        for (name,) in triggers:
            connection.execute(f"DROP TRIGGER {name}")
        assert connection.execute(statement).rowcount > 0
        connection.commit()


ADULT = "dataset_id = (SELECT id FROM datasets WHERE name = 'adult')"
HASH = f"UPDATE entries SET hash = (SELECT hash FROM entries WHERE {ADULT} AND sequence = 3)"


@pytest.mark.parametrize(
    ("statement", "problem"),
    [
        (f"{HASH} WHERE {ADULT} AND sequence = 4", "adult: entry 4: its hash does not match"),
        (f"DELETE FROM entries WHERE {ADULT} AND sequence = 5", "adult: entry 6: follows entry 4"),
        (
            f"UPDATE entries SET detail = 'nonsense' WHERE {ADULT} AND sequence = 1",
            "adult: entry 1: its hash",
        ),
        ("UPDATE entries SET actor = 'nobody' WHERE sequence = 4", "adult: cannot be replayed"),
    ],
)
def test_a_changed_history_is_broken_and_no_other_with_it(copy: Path, statement: str, problem: str) -> None:
    where = ["--database", f"sqlite:///{copy}"]
    assert run("verify", *where).code == 0
    _change(copy, statement)

    reported = run("verify", *where)
    assert (reported.code, reported.err) == (7, "")
    assert [line.split()[1] for line in reported.out.splitlines()[2:4]] == ["BROKEN", "holds"]
    assert reported.out.splitlines()[4].startswith(problem)
    found = run("verify", *where, "--json")
    assert found.code == 7
    assert [each["valid"] for each in found.json["items"]] == [False, True]
    assert set(found.json["items"][0]) == set(found.json["items"][1])


def test_of_many_problems_the_first_are_reported(copy: Path) -> None:
    _change(copy, "UPDATE datasets SET spent = reserved, head = zeroblob(32), sequence = sequence")
    ended = run("verify", "adult", "--database", f"sqlite:///{copy}")
    assert ended.code == 7
    assert ended.out.count("adult: ") >= 2


def test_an_export_holds_every_entry(ledger_target: list[str], service: Served, tmp_path: Path) -> None:
    ended = run("export", "adult", *ledger_target)
    assert (ended.code, ended.err) == (0, "")
    lines = [json.loads(line) for line in ended.out.splitlines()]
    assert lines == service.get("datasets/adult/entries")["items"]

    target = tmp_path / "adult.ndjson"
    assert run("export", "adult", "--output", str(target), "--quiet", *ledger_target).out == ""
    assert target.read_text() == ended.out
    run("export", "adult", "-o", str(target), *ledger_target).failed(3, "exists; --force replaces it")
    assert run("export", "mnist", "-o", str(target), "--force", *ledger_target).code == 0
    assert len(target.read_text().splitlines()) == 1
    assert list(tmp_path.iterdir()) == [target]


def test_a_failed_export_leaves_nothing_behind(ledger_target: list[str], tmp_path: Path) -> None:
    run("export", "nobody", "-o", str(tmp_path / "x"), *ledger_target).failed(
        4, "there is no dataset 'nobody'"
    )
    run("export", "adult", "-o", str(tmp_path / "no" / "x"), *ledger_target).failed(1, "cannot write")
    assert list(tmp_path.iterdir()) == []


def test_an_export_that_ends_early_is_not_taken_for_whole(service: Served, tmp_path: Path) -> None:
    def short(_self: Remote, _name: str) -> Iterator[bytes]:
        yield b'{"sequence":1}\n{"sequ'

    target = tmp_path / "x"
    with mock.patch.object(Remote, "export", short):
        ended = run("export", "adult", "-o", str(target), "--url", service.address, "--token", service.token)
    ended.failed(6, "ended early, after 1 of 7 entries")
    assert not target.exists()


def test_an_export_of_a_ledger_with_a_gap_is_broken(copy: Path, tmp_path: Path) -> None:
    _change(copy, f"DELETE FROM entries WHERE {ADULT} AND sequence = 5")
    target = tmp_path / "x"
    run("export", "adult", "-o", str(target), "--database", f"sqlite:///{copy}").failed(
        7, "adult counts 7 entries, and 6 are there"
    )
    assert not target.exists()


def test_a_connection_lost_in_an_export_is_reported(service: Served, tmp_path: Path) -> None:
    class Lost(httpx2.SyncByteStream):
        def __iter__(self) -> Iterator[bytes]:
            yield b"{}\n"
            raise httpx2.RemoteProtocolError("peer closed connection")

    class Broken(httpx2.HTTPTransport):
        """A network that loses the connection in the middle of an export."""

        def handle_request(self, request: httpx2.Request) -> httpx2.Response:
            if request.url.path.endswith("/export"):
                return httpx2.Response(200, stream=Lost())
            return super().handle_request(request)

    with mock.patch.object(Remote, "__init__", partialmethod(Remote.__init__, transport=Broken())):
        ended = run(
            "export", "adult", "-o", str(tmp_path / "x"), "--url", service.address, "--token", service.token
        )
    ended.failed(6, "cannot be reached: peer closed connection")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("ending", ["", "-wal", "-shm", ".keys.json"])
def test_an_export_is_never_written_over_the_ledger(copy: Path, ending: str) -> None:
    shutil.copyfile(copy, f"{copy}.before")
    target = f"{copy}{ending}"
    ended = run("export", "adult", "--force", "-o", target, "--database", f"sqlite:///{copy}")
    ended.failed(3, "belongs to the ledger itself")
    assert copy.read_bytes() == Path(f"{copy}.before").read_bytes()


def test_an_export_never_takes_the_place_of_what_is_no_file(ledger_target: list[str], tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)

    for target in (pipe, tmp_path):
        run("export", "adult", "--force", "-o", str(target), *ledger_target).failed(3, "is no ordinary file")

    assert pipe.is_fifo()


@pytest.mark.parametrize("command", ["entries", "verify", "export"])
def test_an_unknown_dataset_is_not_found(ledger_target: list[str], command: str) -> None:
    run(command, "nobody", *ledger_target).failed(4, "there is no dataset 'nobody'")


def test_a_name_that_is_no_text_is_no_broken_ledger(service: Served) -> None:
    run("verify", "\udcff", "--database", service.database, "--json").failed(2, "no UTF-8")
