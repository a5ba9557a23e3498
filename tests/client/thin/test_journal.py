"""A restarted job neither pays nor releases twice."""

import asyncio
import json
import multiprocessing
import os
import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dpledger_client import (
    AsyncLedger,
    Gaussian,
    Journal,
    JournalBusy,
    JournalError,
    JournalMismatch,
    Ledger,
    NoAnswer,
    NoisyMax,
    NothingLeft,
    Poisson,
    Pure,
    Release,
    Retries,
    SampleLost,
)
from dpledger_client.journal import FRESH_SAMPLE_COVERED, _decode, _encode
from tests.client.thin.fake import FakeService, Looked, dropped, recorded_but_dropped

STEP = Gaussian(1.0, 10.0)
TOKEN = "dpl_abc_secretsecretsecret"


class Stop(Exception):
    """The process ends here."""


@pytest.fixture
def path(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path / "job.journal"
    Journal.at(tmp_path / "job.journal").close()


def _run(service: FakeService, path: Path, job: Callable[[Any], Any], token: str = TOKEN) -> Any:
    """Run a job as a process of its own would: the journal is read from its beginning."""
    ledger = Ledger("http://ledger", token, transport=service.transport, retries=Retries(attempts=1))
    Journal.at(path).close()
    return job(ledger.dataset("d").run("job", journal=path))


def test_a_job_that_starts_again_gets_what_it_had_and_pays_nothing_more(path: Path) -> None:
    service = FakeService()
    authorized = Looked(np.zeros(5))

    def job(account: Any) -> list[Any]:
        return [account.release(STEP, authorized) for _ in range(3)]

    first = _run(service, path, job)
    again = _run(service, path, job)

    assert len(service.entries) == 3
    assert authorized.times == 3
    assert np.array_equal(first, again)


def test_what_was_left_before_a_request_is_known_after_a_restart(path: Path) -> None:
    service = FakeService()
    left = iter([{"fits": 3.0}, {"fits": 2.0}, {"fits": 1.0}])

    def job(account: Any) -> list[Any]:
        found = []
        for _ in range(2):
            found += [account.journal.answer("abc", ["left", 1], lambda: next(left)) for _ in range(2)]
            account.release(STEP, 0.0)
        return found

    first = _run(service, path, job)

    assert first == [{"fits": 3.0}] * 2 + [{"fits": 2.0}] * 2
    assert _run(service, path, job) == first
    assert Journal.at(path).answer("abc", ["left", 2], lambda: next(left)) == {"fits": 1.0}


def test_a_job_goes_on_where_its_journal_ends(path: Path) -> None:
    service = FakeService()

    def job(account: Any, steps: int) -> list[Any]:
        return [account.release(STEP, 0.0) for _ in range(steps)]

    first = _run(service, path, lambda account: job(account, 2))
    again = _run(service, path, lambda account: job(account, 4))

    assert again[:2] == first
    assert len(set(again)) == 4
    assert len(service.entries) == 4


def test_an_intent_is_on_disk_before_it_is_sent(path: Path) -> None:
    service = FakeService()
    seen: list[str] = []

    def fail(request: Any) -> Any:
        seen.append(path.read_text().splitlines()[-1])
        return dropped(request)

    service.failures = [fail]
    with pytest.raises(NoAnswer):
        _run(service, path, lambda account: account.authorize(STEP))

    assert json.loads(seen[0])["key"] == service.keys[0]


def test_a_job_that_died_between_the_decision_and_its_answer_pays_once(path: Path) -> None:
    service = FakeService()
    service.failures = [recorded_but_dropped(service)]

    with pytest.raises(NoAnswer):
        _run(service, path, lambda account: account.release(STEP, 0.0))
    _run(service, path, lambda account: account.release(STEP, 0.0))

    assert len(service.entries) == 1


def test_a_job_that_died_after_the_yes_and_before_the_release_draws_noise_once(path: Path) -> None:
    service = FakeService()

    def dying(account: Any) -> None:
        account.authorize(STEP)
        raise Stop

    with pytest.raises(Stop):
        _run(service, path, dying)
    released = _run(service, path, lambda account: account.authorize(STEP).release(0.0))

    assert len(service.entries) == 1
    assert released != 0.0


def test_several_releases_of_a_step_are_kept_apart(path: Path) -> None:
    releases = [Release(STEP, count=2), NoisyMax("gumbel", 1.0, 1.0)]

    def job(account: Any) -> list[Any]:
        yes = account.authorize(releases)
        return [yes.release(0.0), yes.release(0.0), yes.release([1.0, 2.0], 1)]

    service = FakeService()
    first, again = _run(service, path, job), _run(service, path, job)

    assert first == again
    assert first[0] != first[1]


def _reserving(stop_after: int | None = None) -> Callable[[Any], list[Any]]:
    """Five steps from reservations of three, as often as that takes."""

    def job(account: Any) -> list[Any]:
        released: list[Any] = []
        while len(released) < 5:
            with account.reserve(STEP, times=3) as hold:
                while hold.left and len(released) < 5:
                    released.append(hold.release(0.0))
                    if len(released) == stop_after:
                        raise Stop
        return released

    return job


def test_a_reservation_is_resumed_after_a_job_died(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    service = FakeService()
    with monkeypatch.context() as patched:
        # The process is killed: nothing is settled.
        patched.setattr("dpledger_client.ledger.Reservation.__exit__", lambda *_: None)
        with pytest.raises(Stop):
            _run(service, path, _reserving(stop_after=2))

    released = _run(service, path, _reserving())

    assert len(set(released)) == 5
    spent = [(kind.rpartition("/")[2], body.get("used")) for kind, body in service.entries]
    assert spent == [("reservations", None), ("settlement", 3), ("reservations", None), ("settlement", 2)]


def test_a_reservation_that_was_settled_when_the_job_failed_gives_no_more_than_it_gave(path: Path) -> None:
    service = FakeService()
    with pytest.raises(Stop):
        _run(service, path, _reserving(stop_after=2))

    released = _run(service, path, _reserving())
    again = _run(service, path, _reserving())

    assert again == released
    assert len(set(released)) == 5
    used = [body["used"] for kind, body in service.entries if kind.endswith("settlement")]
    assert used == [2, 3]


def test_a_job_that_stops_earlier_than_before_settles_all_that_was_released(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = FakeService()
    with monkeypatch.context() as patched:
        patched.setattr("dpledger_client.ledger.Reservation.__exit__", lambda *_: None)
        with pytest.raises(Stop):
            _run(service, path, _reserving(stop_after=3))  # killed after three releases
    with pytest.raises(Stop):
        _run(service, path, _reserving(stop_after=1))  # interrupted while it repeats them

    used = [body["used"] for kind, body in service.entries if kind.endswith("settlement")]
    assert used == [3]


class Full:
    """A disk that takes ``room`` bytes more, the way a write without a buffer tells of it."""

    def __init__(self, file: Any, room: int) -> None:
        self._file = file
        self.room = room

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def write(self, line: bytes) -> int:
        if not self.room:
            raise OSError(28, "No space left on device")
        taken = int(self._file.write(line[: self.room]))
        self.room -= taken
        return taken


@pytest.mark.parametrize("room", [0, 1, 40])
def test_what_the_disk_has_no_room_for_is_not_released(path: Path, room: int) -> None:
    service = FakeService()

    def job(account: Any) -> Any:
        yes = account.authorize(STEP)
        journal = account.journal
        journal._file = Full(journal._file, room)
        with pytest.raises(OSError, match="No space"):
            yes.release(0.0)
        journal._file.room = 10_000
        return account.release(STEP, 0.0)

    later = _run(service, path, job)

    assert all(json.loads(line) for line in path.read_text().splitlines())
    again = _run(service, path, lambda account: [account.release(STEP, 0.0) for _ in range(2)])
    assert again[1] == later
    assert len(service.entries) == 2


def test_a_line_that_is_written_in_parts_is_whole(path: Path) -> None:
    service = FakeService()

    def job(account: Any) -> Any:
        yes = account.authorize(STEP)
        journal = account.journal
        file, journal._file = journal._file, Full(journal._file, 10)
        journal._file.write = lambda line: file.write(line[:10])
        return yes.release(np.zeros(50))

    first = _run(service, path, job)
    again = _run(service, path, lambda account: account.release(STEP, np.zeros(50)))
    assert np.array_equal(first, again)


def test_a_key_of_the_callers_own_gives_one_permit_whatever_journals_there_are(path: Path) -> None:
    service = FakeService()

    def job(account: Any) -> list[Any]:
        return [account.release(STEP, 0.0, key="mine-2") for _ in range(2)]

    first, again = _run(service, path, job)
    assert first == again

    ledger = Ledger("http://ledger", TOKEN, transport=service.transport)
    for journal in (None, path.with_suffix(".other")):
        with pytest.raises(NothingLeft, match="mine-2"):
            ledger.dataset("d").run("job", journal=journal).release(STEP, 0.0, key="mine-2")
    assert len(service.entries) == 1


def test_the_key_of_a_yes_gives_its_output_again_or_nothing(path: Path) -> None:
    service = FakeService()

    def job(account: Any) -> tuple[Any, str]:
        yes = account.authorize(STEP)
        return yes.release(0.0), yes.granted.key

    output, key = _run(service, path, job)
    ledger = Ledger("http://ledger", TOKEN, transport=service.transport)
    for journal in (None, path.with_suffix(".other")):
        with pytest.raises(NothingLeft, match=key):
            ledger.dataset("d").run("job", journal=journal).release(STEP, 0.0, key=key)
    assert _run(service, path, lambda account: account.release(STEP, 0.0, key=key)) == output
    assert len(service.entries) == 1


@pytest.mark.parametrize("lost", [0, 1, 2])
def test_what_is_asked_again_under_its_key_is_one_intent(path: Path, lost: int) -> None:
    """As the error of a lost answer advises. A restarted job, whose answers come, has the same outputs."""
    service = FakeService()

    def job(account: Any) -> list[Any]:
        released = []
        for _ in range(3):
            try:
                released.append(account.release(STEP, 0.0))
            except NoAnswer as error:
                released.append(account.release(STEP, 0.0, key=error.key))
        return released

    def failing(account: Any) -> list[Any]:
        answered = service.answer
        service.failures = [answered] * lost + [recorded_but_dropped(service)]
        return job(account)

    first = _run(service, path, failing)
    assert len(set(first)) == len(service.entries) == 3
    assert _run(service, path, job) == first
    assert _run(service, path, failing) == first
    assert len(service.entries) == 3


def test_a_job_that_does_something_else_is_refused(path: Path) -> None:
    service = FakeService()
    _run(service, path, lambda account: account.release(STEP, 0.0))

    with pytest.raises(JournalMismatch, match="number 1"):
        _run(service, path, lambda account: account.release(Gaussian(1.0, 20.0), 0.0))
    assert len(service.requests) == 1


def test_a_journal_of_another_token_is_refused(path: Path) -> None:
    service = FakeService()
    _run(service, path, lambda account: account.release(STEP, 0.0))

    with pytest.raises(JournalMismatch, match="token abc, not xyz"):
        _run(service, path, lambda account: account.release(STEP, 0.0), token="dpl_xyz_secretsecret")


@pytest.mark.parametrize("text", ["not json\n", '{"journal": 99, "token": "abc"}\n'])
def test_what_is_no_journal_is_refused_and_left_alone(path: Path, text: str) -> None:
    path.write_text(text)

    with pytest.raises(JournalMismatch):
        _run(FakeService(), path, lambda account: account.release(STEP, 0.0))
    assert path.read_text() == text


def test_half_a_line_was_never_acted_upon(path: Path) -> None:
    service = FakeService()
    first = _run(service, path, lambda account: account.release(STEP, 0.0))
    with path.open("ab") as file:
        file.write(b'{"intent": "/v1/data')

    def job(account: Any) -> list[Any]:
        return [account.release(STEP, 0.0), account.release(STEP, 0.0)]

    assert _run(service, path, job)[0] == first
    assert len(service.entries) == 2
    assert all(json.loads(line) for line in path.read_text().splitlines())


def test_the_journal_holds_no_token_and_is_closed_to_others(path: Path) -> None:
    _run(FakeService(), path, lambda account: account.release(STEP, 0.0))

    assert "secret" not in path.read_text()
    assert path.stat().st_mode & 0o077 == 0


def test_what_a_journal_cannot_keep_is_not_released(path: Path) -> None:
    with pytest.raises(TypeError, match="numbers and arrays"):
        _run(FakeService(), path, lambda account: account.release(Pure(0.1), object))


def test_a_permit_of_a_closed_journal_releases_nothing(path: Path) -> None:
    def job(account: Any) -> None:
        yes = account.authorize(STEP)
        account.journal.close()
        yes.release(0.0)

    with pytest.raises(JournalError, match="closed"):
        _run(FakeService(), path, job)


def test_handles_of_one_process_share_the_journal_of_a_file(path: Path) -> None:
    account = Ledger("http://ledger", TOKEN).dataset("d").run("job", journal=path)

    assert pickle.loads(pickle.dumps(account)).journal is account.journal
    assert Journal.at(str(path)) is account.journal


def _use(path: str, answers: Any) -> None:
    ledger = Ledger("http://ledger", TOKEN, transport=FakeService().transport)
    try:
        ledger.dataset("d").run("job", journal=path).authorize(STEP)
    except JournalBusy as error:
        answers.put(str(error))
    else:
        answers.put("used")


def test_two_processes_cannot_use_one_journal(path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    answers = context.Queue()

    def job(account: Any) -> str:
        account.authorize(STEP)
        process = context.Process(target=_use, args=(os.fspath(path), answers))
        process.start()
        answer: str = answers.get(timeout=60)
        process.join()
        return answer

    assert "in use by" in _run(FakeService(), path, job)


def test_a_forked_process_does_not_use_its_parents_journal(path: Path) -> None:
    def job(account: Any) -> None:
        account.authorize(STEP)
        # A fork copies the journal with its open file, whose lock it shares.
        Journal.at(path)._process = os.getppid()
        with pytest.raises(JournalBusy, match="forked"):
            account.authorize(STEP)

    _run(FakeService(), path, job)


@pytest.mark.parametrize(
    "value",
    [
        np.arange(6.0).reshape(2, 3),
        np.array([], dtype=np.float64),
        np.array([True, False]),
        np.array([1, 2**60]),
        np.float64(0.1),
        7,
        0.1,
        True,
        None,
    ],
)
def test_what_is_kept_comes_back_as_it_was(value: Any) -> None:
    again = _decode(json.loads(json.dumps(_encode(value))))

    assert type(again) is type(value)
    assert np.array_equal(again, value)
    assert getattr(again, "dtype", None) == getattr(value, "dtype", None)


@pytest.mark.parametrize(
    ("accounting", "sample", "goes_on"),
    [
        ("rdp", Poisson(0.1), True),
        ("zcdp", Poisson(0.1), True),
        ("plan", None, True),
        ("plan", Poisson(0.1), False),
        ("of-a-later-version", Poisson(0.1), False),
    ],
)
@pytest.mark.parametrize("way", ["authorize", "reserve", "bulk"])
def test_a_fresh_sample_for_the_rest_of_a_step_is_taken_only_where_it_is_covered(
    path: Path, accounting: str, sample: Any, goes_on: bool, way: str
) -> None:
    """Two looks at one sample may cost less than looks at two where privacy-loss distributions decide."""
    service = FakeService()
    service.accounting = accounting
    twice = Release(STEP, count=2)

    def job(account: Any, looks: int) -> list[Any]:
        if way == "bulk":
            spends = [account.spend(twice, sample=sample)]
            (step,) = account.dataset.ledger.authorize_all(spends, journal=account.journal)
        elif way == "reserve":
            step = account.reserve(twice, times=3, sample=sample).__enter__().take()
        else:
            step = account.authorize(twice, sample=sample)
        return [step.release(0.0) for _ in range(looks)]

    first = _run(service, path, lambda account: job(account, 1))
    assert _run(service, path, lambda account: job(account, 1)) == first
    if goes_on:
        assert _run(service, path, lambda account: job(account, 2))[0] == first[0]
    else:
        with pytest.raises(SampleLost, match="not kept"):
            _run(service, path, lambda account: job(account, 2))


def test_the_async_client_takes_a_fresh_sample_only_where_it_is_covered(path: Path) -> None:
    service = FakeService()
    service.accounting = "plan"

    async def job(looks: int) -> None:
        ledger = AsyncLedger("http://ledger", TOKEN, transport=service.transport)
        Journal.at(path).close()
        account = ledger.dataset("d").run("job", journal=path)
        step = await account.authorize(Release(STEP, count=2), sample=Poisson(0.1))
        for _ in range(looks):
            step.release(0.0)

    asyncio.run(job(1))
    with pytest.raises(SampleLost):
        asyncio.run(job(2))


def test_every_kind_of_budget_that_is_covered_adds_up_curves() -> None:
    assert frozenset({"zcdp", "gdp", "rdp", "rdp-order", "rdp-curve"}) == FRESH_SAMPLE_COVERED
