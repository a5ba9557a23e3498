"""The file with the high-water marks: closed to others, only ever raised, and of one ledger."""

import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import pytest

from dpledger.ledger.errors import Unavailable
from dpledger.ledger.marks import HighWaterMarks, Mark
from dpledger.storage.engine.session import Session, SqliteSession
from dpledger.storage.mark_file import BadMarkFile, MarkFile, UnusableMarkFile
from dpledger.storage.repository import SqlStorage
from tests.storage.ledgers import open_ledger, spend

ONE, TWO, THREE = (Mark(number, bytes([number]) * 32) for number in (1, 2, 3))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "marks"


@pytest.fixture
def file(path: Path) -> Iterator[MarkFile]:
    file = MarkFile(path, "this")
    yield file
    file.close()


def test_it_is_made_for_its_owner_alone(file: MarkFile, path: Path) -> None:
    file.advance({"adult": ONE})

    assert path.stat().st_mode & 0o777 == 0o600
    assert list(path.parent.iterdir()) == [path]


def test_marks_are_only_raised(file: MarkFile) -> None:
    file.advance({"adult": TWO})
    file.advance({"adult": ONE, "trips": THREE})

    assert (file.get("adult"), file.get("trips"), file.get("other")) == (TWO, THREE, None)
    assert file.names() == ["adult", "trips"]


def test_what_was_given_up_is_replaced_and_nothing_further(file: MarkFile) -> None:
    file.advance({"adult": TWO})
    file.replace("adult", ONE, ONE)
    assert file.get("adult") == TWO
    file.replace("adult", TWO, ONE)
    assert file.get("adult") == ONE


def test_two_processes_share_it(file: MarkFile, path: Path) -> None:
    other = MarkFile(path, "this")
    threads = [
        threading.Thread(target=each.advance, args=({f"{at}-{id(each)}": ONE},))
        for each in (file, other)
        for at in range(10)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(other.names()) == 20
    other.close()


def test_it_is_of_one_ledger(file: MarkFile, tmp_path: Path) -> None:
    with pytest.raises(BadMarkFile, match="another ledger"):
        MarkFile(file.path, "that")
    with pytest.raises(UnusableMarkFile, match="cannot be used"):
        MarkFile(tmp_path / "missing" / "marks", "this")
    (tmp_path / "text").write_text("no database" * 100)
    with pytest.raises(UnusableMarkFile, match="cannot be used"):
        MarkFile(tmp_path / "text", "this")


def test_a_mark_that_cannot_be_read_is_no_reason_to_go_on(file: MarkFile, path: Path) -> None:
    """A dataset of which nothing is known is refused for now; a mark in memory counts."""
    marks = HighWaterMarks(file)
    file.advance({"adult": ONE})
    assert marks.get("adult") == ONE
    with sqlite3.connect(path) as connection:
        connection.execute("DROP TABLE marks")
    connection.close()

    assert marks.reread("adult") == ONE
    with pytest.raises(Unavailable, match="high-water marks cannot be used"):
        marks.get("trips")
    marks.close()


def test_a_commit_raises_the_mark_and_a_rollback_does_not(
    storage: SqlStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_ledger(storage)
    spend(storage, "adult", 3)
    mark = storage.marks.get("adult")
    monkeypatch.setattr(Session, "commit", mock.Mock(side_effect=RuntimeError("no")))
    monkeypatch.setattr(SqliteSession, "commit", Session.commit)
    with pytest.raises(RuntimeError):
        spend(storage, "adult", 1)

    assert mark == storage.marks.get("adult") == (4, storage.dataset("adult").state.head)
