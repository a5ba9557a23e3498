"""Group commit: what waits together is decided together, everything accepted is answered."""

import threading
from collections.abc import Sequence
from typing import Any

import pytest

from dpledger.accounting.sampling import Sample
from dpledger.ledger.batching import MAX_GROUP, GroupCommitter
from dpledger.ledger.errors import NotFound, Unavailable
from dpledger.ledger.model.requests import Authorization, Spend
from dpledger.ledger.ports import IdempotentRequest
from dpledger.ledger.results import Decided, StoredResult

WAIT_SECONDS = 60


def request(dataset: str, run: str) -> Authorization:
    return Authorization(Spend(dataset, run, (), Sample()), IdempotentRequest("ann", b"k", b"r"))


class Decider:
    """Decides what it is asked to, one gate per group, and remembers the groups."""

    def __init__(self) -> None:
        self.groups: list[tuple[str, list[str]]] = []
        self.replies: dict[Any, Decided | Exception] = {}
        self.gate = threading.Event()
        self.gate.set()
        self.entered = threading.Semaphore(0)
        self.answered = threading.Semaphore(0)

    def decide(self, name: str, group: Sequence[Authorization]) -> list[Decided]:
        self.entered.release()
        assert self.gate.wait(WAIT_SECONDS)
        self.groups.append((name, [each.spend.run for each in group]))
        if name == "broken":
            raise Unavailable("away")
        return [
            NotFound("run", each.spend.run)
            if each.spend.run == "odd"
            else StoredResult("granted", each.spend.run)
            for each in group
        ]

    def deliver(self, replies: list[tuple[Any, Decided | Exception]]) -> None:
        self.replies.update(replies)
        for _ in replies:
            self.answered.release()

    def wait_for(self, many: int) -> None:
        for _ in range(many):
            assert self.answered.acquire(timeout=WAIT_SECONDS)

    def wait_until_deciding(self) -> None:
        assert self.entered.acquire(timeout=WAIT_SECONDS)


@pytest.fixture
def responses() -> Decider:
    return Decider()


def test_what_arrives_while_a_group_commits_forms_the_next_group(responses: Decider) -> None:
    responses.gate.clear()
    committer = GroupCommitter(responses.decide, responses.deliver, workers=1)
    committer.submit([(request("adult", "0"), 0)])
    responses.wait_until_deciding()
    for number in range(1, 4):
        committer.submit([(request("adult", str(number)), number)])
    responses.gate.set()
    responses.wait_for(4)
    committer.stop()

    assert responses.groups == [("adult", ["0"]), ("adult", ["1", "2", "3"])]
    assert responses.replies == {number: StoredResult("granted", str(number)) for number in range(4)}


def test_groups_are_limited(responses: Decider) -> None:
    responses.gate.clear()
    committer = GroupCommitter(responses.decide, responses.deliver, workers=1)
    committer.submit([(request("adult", "first"), "first")])
    responses.wait_until_deciding()
    for number in range(MAX_GROUP + 1):
        committer.submit([(request("adult", str(number)), number)])
    responses.gate.set()
    responses.wait_for(MAX_GROUP + 2)
    committer.stop()

    assert [len(runs) for _, runs in responses.groups] == [1, MAX_GROUP, 1]


def test_datasets_take_turns(responses: Decider) -> None:
    responses.gate.clear()
    committer = GroupCommitter(responses.decide, responses.deliver, workers=1)
    committer.submit([(request("a", "1"), 1)])
    responses.wait_until_deciding()
    for number, name in enumerate(["a", "b", "a", "c"], start=2):
        committer.submit([(request(name, str(number)), number)])
    responses.gate.set()
    responses.wait_for(5)
    committer.stop()

    assert responses.groups == [("a", ["1"]), ("b", ["3"]), ("c", ["5"]), ("a", ["2", "4"])]


def test_two_workers_never_decide_one_dataset_at_once(responses: Decider) -> None:
    running: list[str] = []
    overlaps: list[str] = []
    guard = threading.Lock()

    def decide(name: str, group: Sequence[Authorization]) -> list[Decided]:
        with guard:
            overlaps.extend(other for other in running if other == name)
            running.append(name)
        replies = responses.decide(name, group)
        with guard:
            running.remove(name)
        return replies

    committer = GroupCommitter(decide, responses.deliver, workers=4)
    for number in range(400):
        committer.submit([(request("ab"[number % 2], str(number)), number)])
    responses.wait_for(400)
    committer.stop()

    assert overlaps == []
    for name in "ab":
        decided = [run for group, runs in responses.groups if group == name for run in runs]
        assert decided == sorted(decided, key=int)


def test_a_dataset_that_is_being_decided_is_left_to_its_worker(responses: Decider) -> None:
    """The second worker passes over the busy dataset, though it is first in line, and serves the other."""
    entered, go_on = threading.Event(), threading.Event()
    began: list[str] = []

    def decide(name: str, group: Sequence[Authorization]) -> list[Decided]:
        began.append(name)
        if len(began) == 1:
            entered.set()
            assert go_on.wait(30.0)
        return responses.decide(name, group)

    committer = GroupCommitter(decide, responses.deliver, workers=2)
    committer.submit([(request("a", "1"), 1)])
    assert entered.wait(30.0)
    committer.submit([(request("a", "2"), 2), (request("b", "3"), 3)])
    responses.wait_for(1)
    served_meanwhile = began[1]
    go_on.set()
    responses.wait_for(2)
    committer.stop()

    assert served_meanwhile == "b"


def test_an_error_of_one_request_concerns_it_alone(responses: Decider) -> None:
    committer = GroupCommitter(responses.decide, responses.deliver, workers=1)
    for run in ("odd", "even"):
        committer.submit([(request("adult", run), run)])
    responses.wait_for(2)
    committer.stop()

    assert isinstance(responses.replies["odd"], NotFound)
    assert responses.replies["even"] == StoredResult("granted", "even")


def test_a_failed_transaction_concerns_its_whole_group_and_no_other(responses: Decider) -> None:
    committer = GroupCommitter(responses.decide, responses.deliver, workers=1)
    for ticket, name in enumerate(["broken", "broken", "adult"]):
        committer.submit([(request(name, "x"), ticket)])
    responses.wait_for(3)
    committer.stop()

    assert isinstance(responses.replies[0], Unavailable)
    assert isinstance(responses.replies[1], Unavailable)
    assert responses.replies[2] == StoredResult("granted", "x")


def test_stopping_finishes_what_was_accepted_and_takes_nothing_more(responses: Decider) -> None:
    responses.gate.clear()
    committer = GroupCommitter(responses.decide, responses.deliver, workers=2)
    for number in range(5):
        committer.submit([(request("adult", str(number)), number)])
    responses.wait_until_deciding()
    stopping = threading.Thread(target=committer.stop)
    stopping.start()
    while not committer._stopping:
        stopping.join(0.001)
    with pytest.raises(Unavailable, match="shutting down"):
        committer.submit([(request("adult", "late"), "late")])
    responses.gate.set()
    stopping.join(WAIT_SECONDS)

    assert not stopping.is_alive()
    assert sorted(responses.replies) == [0, 1, 2, 3, 4]


def test_a_reply_that_cannot_be_delivered_does_not_stop_the_others(responses: Decider) -> None:
    def deliver(replies: list[tuple[Any, Decided | Exception]]) -> None:
        responses.deliver(replies)
        if replies[0][0] == "gone":
            raise RuntimeError("nobody listens any more")

    committer = GroupCommitter(responses.decide, deliver, workers=1)
    committer.submit([(request("adult", "1"), "gone")])
    responses.wait_for(1)
    committer.submit([(request("adult", "2"), "here")])
    responses.wait_for(1)
    committer.stop()

    assert responses.replies["here"] == StoredResult("granted", "2")
