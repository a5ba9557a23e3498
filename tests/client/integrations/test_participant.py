"""A participant of distributed training: what it answers, what it pays, and what it does after a kill."""

import fcntl
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dpledger_client import (
    Account,
    Dataset,
    Journal,
    Ledger,
    NoAnswer,
    Retries,
    UnexpectedAnswer,
    insecure_testing_noise,
)
from dpledger_client._arrays import Floats
from dpledger_client.integrations.aggregator import Aggregator, FederatedResult
from dpledger_client.integrations.participant import LocalParticipant, Refusal, Update, answer_safely
from dpledger_client.objectives import L2, Logistic
from dpledger_client.optimizers import FederatedMethod, minimize
from dpledger_client.optimizers.methods.a_ddp import ADDP
from dpledger_client.optimizers.methods.dp_fedavg import DPFedAvg, DPFedSGD
from tests.client.optimizers.contract import curve_budget

OBJECTIVE = Logistic(L2(0.05))
METHOD = ADDP(4, clip=1.0, noise_multiplier=3.0, step_size=0.5, batch_size=3)
FIXED = {"adjacency": "replace-one", "partition_key": "fixed"}
START = np.zeros(3)
SEED = 11
CANARY = "canary-6.02214"
Opened = Callable[..., Dataset]


def _data(number: int, records: int = 8) -> tuple[Floats, Floats]:
    random = np.random.default_rng(number)
    rows = random.normal(size=(records, 3))
    return rows, np.where(rows @ [1.0, -1.0, 0.5] > 0.0, 1.0, -1.0)


def _opened(open_dataset: Opened, participants: int = 1, budget: dict[str, Any] | None = None) -> Dataset:
    dataset = open_dataset(budget=curve_budget(), **FIXED)
    dataset.open_partitions([f"part-{number}" for number in range(participants)], budget or curve_budget())
    return dataset


def _participant(
    dataset: Dataset,
    journals: Path,
    number: int = 0,
    method: FederatedMethod = METHOD,
    objective: Logistic = OBJECTIVE,
) -> LocalParticipant:
    account = dataset.run("job", partition=f"part-{number}")
    return LocalParticipant(method, objective, *_data(number), account, journals=journals / str(number))


def _entries(dataset: Dataset) -> list[dict[str, Any]]:
    return list(dataset.entries(kind="authorized"))


class _Looks(Logistic):
    """Counts looks at the data, and fails at them while it should."""

    def __init__(self, failure: BaseException | None = None) -> None:
        super().__init__(L2(0.05))
        self.looks = 0
        self.failure = failure

    def clipped_gradient_sum(self, *given: Any, **more: Any) -> Floats:
        self.looks += 1
        if self.failure is not None:
            raise self.failure
        return super().clipped_gradient_sum(*given, **more)


def _federated(participants: list[LocalParticipant], method: FederatedMethod) -> FederatedResult:
    """A training without any transport: every participant is asked in turn."""

    def collect(aggregator: Aggregator, _deadline: float) -> None:
        for each in participants:
            if each.name not in aggregator.dropped:
                aggregator.take(each.answer(aggregator.iteration, aggregator.w))
        assert aggregator.complete

    return Aggregator(method, START, len(participants), OBJECTIVE.regularizer).train(collect)


@pytest.mark.parametrize(
    "method",
    [
        METHOD,
        DPFedSGD(3, clip=0.5, noise_multiplier=2.0, step_size=1.0),
        DPFedAvg(3, clip=0.5, noise_multiplier=2.0, step_size=1.0, batch_size=4, local_steps=3),
    ],
    ids=lambda method: str(method.name),
)
def test_it_gives_the_numbers_of_the_in_process_training(
    open_dataset: Opened, tmp_path: Path, method: FederatedMethod
) -> None:
    dataset, other = _opened(open_dataset, 3), _opened(open_dataset, 3)
    with insecure_testing_noise(SEED):
        found = _federated([_participant(dataset, tmp_path, n, method) for n in range(3)], method)
    accounts = [other.run("job", partition=f"part-{number}") for number in range(3)]
    X, y = zip(*[_data(number) for number in range(3)], strict=True)
    with insecure_testing_noise(SEED):
        expected = minimize(OBJECTIVE, X, y, account=accounts, method=method, progress=False)

    np.testing.assert_array_equal(found.w, expected.w)
    assert found.stop_reason == expected.stop_reason == "finished"
    mine, theirs = ([entry["step"] for entry in _entries(each)] for each in (dataset, other))
    assert mine == theirs
    assert len(mine) == 3 * method.steps


def test_whoever_has_no_budget_left_drops_out_and_is_charged_for_what_it_did(
    open_dataset: Opened, tmp_path: Path
) -> None:
    dataset = _opened(open_dataset, 2)
    _federated([_participant(dataset, tmp_path / "first", 0)], METHOD)
    cost = np.max([entry["cost"]["epsilons"] for entry in _entries(dataset)], axis=0)
    poor = _opened(open_dataset, 1, curve_budget([2.0 * each * (1.0 + 1e-9) for each in cost]))
    poor.open_partitions(["part-1"], curve_budget())

    found = _federated([_participant(poor, tmp_path / "poor", number) for number in range(2)], METHOD)

    assert found.rounds == (("part-0", "part-1"),) * 2 + (("part-1",),) * 2
    assert found.dropped == {"part-0": "budget-exhausted"}
    taken = [entry["partition"] for entry in _entries(poor)]
    assert (taken.count("part-0"), taken.count("part-1")) == (2, 4)


def test_a_request_that_comes_again_is_answered_as_before(open_dataset: Opened, tmp_path: Path) -> None:
    dataset, objective = _opened(open_dataset), _Looks()
    first = _participant(dataset, tmp_path, objective=objective).answer(1, START)
    again = _participant(dataset, tmp_path, objective=objective).answer(1, START.copy())

    assert isinstance(first, Update)
    assert isinstance(again, Update)
    np.testing.assert_array_equal(first.value, again.value)
    assert first.entry == again.entry
    assert objective.looks == 1
    assert len(_entries(dataset)) == 1


def test_a_request_that_comes_twice_at_once_is_answered_once_and_charged_once(
    open_dataset: Opened, tmp_path: Path, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset = _opened(open_dataset)
    answers: list[Any] = []
    second = threading.Thread(target=lambda: answers.append(_participant(dataset, tmp_path).answer(1, START)))
    perform = ledger._wire.perform
    free: list[bool] = []

    def try_journal() -> None:
        [path] = (tmp_path / "0").iterdir()
        lock = Journal.at(path)._lock
        free.append(lock.acquire(blocking=False))
        if free[0]:
            lock.release()

    def interrupted(call: Any, key: str | None = None) -> Any:
        if call.path.endswith("/authorizations") and not free:
            other = threading.Thread(target=try_journal)
            other.start()
            other.join()
            second.start()
        return perform(call, key)

    monkeypatch.setattr(ledger._wire, "perform", interrupted)
    answers.append(_participant(dataset, tmp_path).answer(1, START))
    assert free == [False]
    second.join()

    assert [type(answer) for answer in answers] == [Update, Update]
    assert np.array_equal(answers[0].value, answers[1].value)
    assert len(_entries(dataset)) == 1


def test_other_parameters_another_round_and_another_run_are_paid_for(
    open_dataset: Opened, tmp_path: Path
) -> None:
    dataset = _opened(open_dataset)
    participant = _participant(dataset, tmp_path)
    other = LocalParticipant(
        METHOD,
        OBJECTIVE,
        *_data(0),
        dataset.run("another", partition="part-0"),
        journals=tmp_path / "0",
    )
    answers = [
        participant.answer(1, START),
        participant.answer(1, START + 1e-12),
        participant.answer(2, START),
        other.answer(1, START),
    ]
    assert len({answer.entry for answer in answers if isinstance(answer, Update)}) == 4
    assert len(_entries(dataset)) == 4


def test_what_was_paid_and_not_released_is_released_once_for_what_was_paid(
    open_dataset: Opened, tmp_path: Path
) -> None:
    dataset = _opened(open_dataset)
    with pytest.raises(KeyboardInterrupt):
        _participant(dataset, tmp_path, objective=_Looks(KeyboardInterrupt())).answer(1, START)
    assert len(_entries(dataset)) == 1

    answer = _participant(dataset, tmp_path).answer(1, START)

    assert isinstance(answer, Update)
    assert [entry["id"] for entry in _entries(dataset)] == [answer.entry]


@contextmanager
def _losing_answers(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Authorizations reach the ledger, and what it answers reaches nobody."""
    perform = ledger._wire.perform

    def lost(call: Any, key: str | None = None) -> Any:
        answer = perform(call, key)
        if call.path.endswith("/authorizations"):
            raise NoAnswer("the connection broke", key)
        return answer

    with monkeypatch.context() as patched:
        patched.setattr(ledger._wire, "perform", lost)
        yield


def test_a_round_whose_answer_was_lost_is_charged_once(
    open_dataset: Opened, tmp_path: Path, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset, objective = _opened(open_dataset), _Looks()
    with _losing_answers(ledger, monkeypatch):
        silent = _participant(dataset, tmp_path, objective=objective).answer(1, START)
    assert silent == Refusal("part-0", "unreachable", final=False)
    assert objective.looks == 0
    assert len(_entries(dataset)) == 1

    answer = _participant(dataset, tmp_path, objective=objective).answer(1, START)

    assert isinstance(answer, Update)
    assert [entry["id"] for entry in _entries(dataset)] == [answer.entry]


def test_without_a_ledger_nothing_is_released(tmp_path: Path) -> None:
    nowhere = Ledger("http://127.0.0.1:9", retries=Retries(attempts=1)).dataset("phones")
    objective = _Looks()
    answer = _participant(nowhere, tmp_path, objective=objective).answer(1, START)
    assert answer == Refusal("part-0", "unreachable", final=False)
    assert objective.looks == 0


def test_a_refusal_is_not_kept_and_a_larger_budget_lets_it_in_again(
    open_dataset: Opened, tmp_path: Path
) -> None:
    dataset = open_dataset(budget=curve_budget([1e-9] * 4), **FIXED)
    account, objective = dataset.run("job"), _Looks()
    participant = LocalParticipant(METHOD, objective, *_data(0), account, journals=tmp_path)
    assert participant.answer(1, START) == Refusal(dataset.name, "budget-exhausted", final=True)
    assert objective.looks == 0
    assert not list(tmp_path.iterdir())

    dataset.change_budget(curve_budget(), "more", sequence=dataset.budget().sequence)

    assert isinstance(participant.answer(1, START), Update)


def test_another_refusal_is_sent_as_its_kind(open_dataset: Opened, tmp_path: Path) -> None:
    dataset = _opened(open_dataset)
    assert _participant(dataset, tmp_path, number=7).answer(1, START) == Refusal(
        "part-7", "not-found", final=True
    )


def test_what_answers_and_is_no_ledger_gets_no_release(
    open_dataset: Opened, tmp_path: Path, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset, objective = _opened(open_dataset), _Looks()

    def other(*_given: Any) -> Any:
        raise UnexpectedAnswer("200 from something else")

    monkeypatch.setattr(ledger._wire, "perform", other)
    answer = _participant(dataset, tmp_path, objective=objective).answer(1, START)
    assert answer == Refusal("part-0", "failed", final=False)
    assert objective.looks == 0


@pytest.mark.parametrize("w", [np.zeros(4), np.zeros(2), [np.nan, 0.0, 0.0], "w", None, np.zeros((3, 1))])
def test_parameters_of_another_shape_are_not_paid_for(open_dataset: Opened, tmp_path: Path, w: Any) -> None:
    dataset = _opened(open_dataset)
    assert _participant(dataset, tmp_path).answer(1, w) == Refusal("part-0", "bad-parameters", final=False)
    assert not _entries(dataset)


def test_a_participant_with_other_settings_does_not_answer_an_old_request(
    open_dataset: Opened, tmp_path: Path
) -> None:
    dataset = _opened(open_dataset)
    _participant(dataset, tmp_path).answer(1, START)
    other = ADDP(4, clip=2.0, noise_multiplier=3.0, step_size=0.5, batch_size=3)
    answer = _participant(dataset, tmp_path, method=other).answer(1, START)
    assert answer == Refusal("part-0", "journal", final=False)
    assert len(_entries(dataset)) == 1


def test_of_two_processes_one_answers(open_dataset: Opened, tmp_path: Path) -> None:
    dataset = _opened(open_dataset)
    _participant(dataset, tmp_path).answer(1, START)
    [journal] = (tmp_path / "0").iterdir()
    with journal.open("r+b") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert _participant(dataset, tmp_path).answer(1, START) == Refusal("part-0", "busy", final=False)
    assert isinstance(_participant(dataset, tmp_path).answer(1, START), Update)


def test_journals_are_for_the_participant_alone(open_dataset: Opened, tmp_path: Path) -> None:
    _participant(_opened(open_dataset), tmp_path).answer(1, START)
    [journal] = (tmp_path / "0").iterdir()
    assert [os.stat(path).st_mode & 0o077 for path in (tmp_path / "0", journal)] == [0, 0]


def test_the_text_of_a_failure_stays_where_it_happened(
    open_dataset: Opened, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    dataset = _opened(open_dataset)
    failing = _participant(dataset, tmp_path, objective=_Looks(ValueError(f"could not parse {CANARY!r}")))
    answer = answer_safely(lambda: failing, 1, START)
    assert answer == Refusal("part-0", "failed", final=False)
    assert CANARY not in repr(answer)
    assert CANARY in caplog.text

    def unreadable() -> LocalParticipant:
        raise OSError(f"line 3: {CANARY!r}")

    assert answer_safely(unreadable, 1, START) == Refusal("", "failed", final=False)


def test_the_released_value_has_the_noise_that_is_on_record(open_dataset: Opened, tmp_path: Path) -> None:
    dataset = _opened(open_dataset)
    method = DPFedAvg(1, clip=0.25, noise_multiplier=4.0, step_size=1.0)
    answer = _participant(dataset, tmp_path, method=method).answer(1, START)
    [entry] = _entries(dataset)
    [release] = entry["step"]["releases"]
    assert (release["sensitivity"], release["noise_std"]) == (0.5, 2.0)
    assert entry["step"]["sample"]["scheme"] == "full"
    assert isinstance(answer, Update)
    assert np.linalg.norm(answer.value) > 0.25, "with this noise it is shorter in one of a thousand draws"


def test_what_would_not_survive_a_restart_is_refused(open_dataset: Opened, tmp_path: Path) -> None:
    dataset = _opened(open_dataset)
    adaptive = ADDP(4, clip=1.0, noise_multiplier=lambda _: 2.0, step_size=0.5)
    with pytest.raises(ValueError, match="noise_multiplier must be a number"):
        _participant(dataset, tmp_path, method=adaptive)
    account: Account = dataset.run("job", partition="part-0", journal=tmp_path / "own")
    with pytest.raises(ValueError, match="no journal"):
        LocalParticipant(METHOD, OBJECTIVE, *_data(0), account, journals=tmp_path)
