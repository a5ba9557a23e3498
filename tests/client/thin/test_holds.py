"""A hold is used until its deadline, and until somebody else is seen to have closed it."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from dpledger_client import (
    AsyncLedger,
    Gaussian,
    Hold,
    HoldClosed,
    Ledger,
    NoAnswer,
    ReservationClosed,
    Retries,
)
from tests.client.thin.fake import FakeService, dropped, problem, recorded_but_dropped

STEP = Gaussian(1.0, 10.0)
NO_RETRIES = Retries(attempts=1, patience_seconds=0.0)


class SetClock:
    """A clock of the holder's own, which stands still until it is moved."""

    def __init__(self) -> None:
        self.at = 1000.0

    def __call__(self) -> float:
        return self.at


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SetClock:
    clock = SetClock()
    for module in ("_leases", "ledger", "aio", "permits"):
        monkeypatch.setattr(f"dpledger_client.{module}.monotonic", clock)
    return clock


def _account(service: FakeService, **options: Any) -> Any:
    return Ledger("http://ledger", transport=service.transport, **options).dataset("d").run("job")


def test_a_hold_that_was_settled_elsewhere_gives_nothing_more(clock: SetClock) -> None:
    service = FakeService()
    with pytest.raises(HoldClosed, match="d~1 was settled elsewhere") as raised:
        _use_and_lose(service, clock)

    assert not any(kind.endswith("settlement") for kind, _ in service.entries)
    assert "was not settled" in raised.value.__notes__[0]


def _use_and_lose(service: FakeService, clock: SetClock) -> None:
    with _account(service).reserve(STEP, times=9) as hold:
        hold.release(0.0)
        service.closed["d~1"] = "settled"
        hold.release(0.0)  # nobody could know yet
        clock.at += 30.0
        service.failures = []
        with pytest.raises(HoldClosed):
            hold.release(0.0)
        assert (hold.used, hold.left) == (2, 0)
        service.failures = [lambda _: problem(409, "reservation-closed", how="settled")]
        hold.take()


def test_the_service_is_asked_once_in_a_while_and_not_for_each_use(clock: SetClock) -> None:
    service = FakeService()
    with _account(service).reserve(STEP, times=100) as hold:
        for _ in range(90):
            clock.at += 1.0
            hold.release(0.0)

    assert [request.method for request in service.requests] == ["POST", "GET", "GET", "GET", "POST"]


def test_a_hold_ends_before_its_deadline_and_is_settled_with_what_it_used(clock: SetClock) -> None:
    service = FakeService()
    with _account(service).reserve(STEP, times=9, expires_in_seconds=100.0) as hold:
        hold.release(0.0)
        clock.at += 97.9
        hold.release(0.0)
        clock.at += 0.2
        assert hold.left == 0
        with pytest.raises(HoldClosed, match="past its deadline"):
            hold.release(0.0)

    assert hold.settlement is not None
    assert hold.settlement.used == 2


def test_the_services_own_clock_may_shorten_a_deadline_and_never_lengthens_it(clock: SetClock) -> None:
    service = FakeService()
    with _account(service).reserve(STEP, times=9, expires_in_seconds=600.0) as hold:
        clock.at += 31.0
        hold.release(0.0)
        service.seconds_left = 20.0
        clock.at += 31.0
        hold.release(0.0)
        clock.at += 20.0

        assert hold.left == 0


def test_a_hold_that_nobody_confirms_is_not_used(clock: SetClock) -> None:
    service = FakeService()
    with _account(service, retries=NO_RETRIES).reserve(STEP, times=9) as hold:
        clock.at += 31.0
        service.failures = [dropped]
        with pytest.raises(NoAnswer):
            hold.release(0.0)
        assert hold.used == 0
        hold.release(0.0)

    assert hold.used == 1


def test_an_answer_given_again_is_confirmed_before_it_is_used() -> None:
    service = FakeService()
    service.failures = [recorded_but_dropped(service)]
    retries = Retries(attempts=2, first_pause_seconds=0.0)
    with _account(service, retries=retries).reserve(STEP, times=9) as hold:
        assert hold.granted.replayed
        hold.release(0.0)

    assert [request.method for request in service.requests] == ["POST", "POST", "GET", "POST"]


def test_where_that_gets_no_answer_the_first_use_asks_again() -> None:
    service = FakeService()
    account = _account(service, retries=NO_RETRIES)
    service.failures = [recorded_but_dropped(service)]
    with pytest.raises(NoAnswer) as raised, account.reserve(STEP, times=9):
        pass
    service.failures = [service.answer, dropped, dropped]
    with account.reserve(STEP, times=9, key=raised.value.key) as hold:
        with pytest.raises(NoAnswer):
            hold.release(0.0)
        hold.release(0.0)

    assert hold.used == 1


@pytest.mark.parametrize("state", ["settled", "expired"])
def test_a_restarted_job_gets_its_outputs_and_no_more_from_a_closed_reservation(
    state: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    service, journal = FakeService(), tmp_path / "job.journal"

    def run(many: int) -> list[Any]:
        account = Ledger("http://ledger", "dpl_a_b", transport=service.transport).dataset("d")
        account_of_job = account.run("job", journal=journal)
        try:
            with account_of_job.reserve(STEP, times=5) as hold:
                return [hold.release(0.0) for _ in range(many)]
        finally:
            assert account_of_job.journal is not None
            account_of_job.journal.close()

    with monkeypatch.context() as patched:
        patched.setattr("dpledger_client.ledger.Reservation.__exit__", lambda *_: None)
        first = run(2)
    service.closed["d~1"] = state

    with pytest.raises(HoldClosed, match=f"was {state} elsewhere"):
        run(3)
    assert [value for value in first if value != 0.0] == first


def test_the_async_client_notices_in_the_background(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dpledger_client._leases.CONFIRM_SECONDS", 0.01)
    service = FakeService()

    async def job() -> Any:
        account = AsyncLedger("http://ledger", transport=service.transport).dataset("d").run("job")
        async with account.reserve(STEP, times=9) as hold:
            hold.release(0.0)
            service.closed["d~1"] = "settled"
            while hold.left:
                await asyncio.sleep(0.01)
            with pytest.raises(HoldClosed):
                hold.take()
            service.failures = [lambda _: problem(409, "reservation-closed", how="settled")]

    with pytest.raises(ReservationClosed):
        asyncio.run(job())


def test_the_async_client_does_not_use_what_nobody_confirms(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dpledger_client._leases.CONFIRM_SECONDS", 0.01)
    service = FakeService()

    async def job() -> Any:
        ledger = AsyncLedger("http://ledger", transport=service.transport, retries=NO_RETRIES)
        async with ledger.dataset("d").run("job").reserve(STEP, times=999) as hold:
            service.failures = [dropped] * 5
            await asyncio.sleep(0.03)
            with pytest.raises(NoAnswer):
                await _take_all(hold)
            while service.failures:
                await asyncio.sleep(0.01)
            await asyncio.sleep(0.1)
            hold.take()
        return hold

    assert asyncio.run(job()).settlement is not None


async def _take_all(hold: Hold) -> None:
    while True:
        hold.take()
        await asyncio.sleep(0.005)
