"""Noise is drawn after a yes and only as often as it allows; a reservation is settled whatever happens."""

import contextlib
import copy
import functools
import os
import pickle
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from dpledger_client import (
    AboveThreshold,
    BudgetExhausted,
    Gaussian,
    Ledger,
    NoisyMax,
    NothingLeft,
    Poisson,
    Pure,
    Release,
    ReservationClosed,
    Retries,
    SeenSample,
    UnsettledWarning,
    no_noise_for_testing,
)
from tests.client.thin.fake import Failure, FakeService, Looked, dropped, problem

STEP = Gaussian(1.0, 10.0)


def _account(service: FakeService) -> Any:
    ledger = Ledger(
        "http://ledger", transport=service.transport, retries=Retries(attempts=2, first_pause_seconds=0.0)
    )
    return ledger.dataset("d").run("job")


def test_a_value_is_released_with_noise_after_a_yes() -> None:
    value = np.arange(100.0)

    released = _account(FakeService()).release(STEP, value)

    assert released.shape == value.shape
    assert 1.0 < np.abs(released - value).mean() < 30.0


def test_a_number_is_released_as_a_number() -> None:
    assert isinstance(_account(FakeService()).release(STEP, 1), float)


def test_after_a_no_the_data_are_not_looked_at() -> None:
    authorized = Looked(0.0)
    service = FakeService(lambda _: problem(409, "budget-exhausted"))

    with pytest.raises(BudgetExhausted):
        _account(service).release(STEP, authorized)
    assert authorized.times == 0


def test_the_data_are_looked_at_after_the_yes() -> None:
    service = FakeService()

    with no_noise_for_testing():
        assert _account(service).release(STEP, lambda: float(len(service.entries))) == 1.0


def test_each_release_of_a_step_is_used_up_by_itself() -> None:
    releases = [Release(STEP, purpose="gradient"), Release(NoisyMax("gumbel", 1.0, 1.0), count=2)]
    yes = _account(FakeService()).authorize(releases, sample=Poisson(0.5))

    yes.release(0.0, "gradient")
    assert yes.release([0.0, 1e6], 1) == 1
    assert (yes.left("gradient"), yes.left(1)) == (0, 1)
    yes.release([0.0, 1.0], 1)
    for which in ("gradient", 0, 1):
        with pytest.raises(NothingLeft):
            yes.release(0.0, which)


def test_a_release_that_is_not_there_is_not_found() -> None:
    yes = _account(FakeService()).authorize([Release(STEP, purpose="a"), Release(STEP, purpose="a")])

    for which in ("a", "b"):
        with pytest.raises(KeyError):
            yes.release(0.0, which)
    with pytest.raises(IndexError):
        yes.release(0.0, 2)


def test_a_step_needs_a_release() -> None:
    with pytest.raises(ValueError, match="at least one"):
        _account(FakeService()).authorize([])


def test_a_declared_release_is_the_callers_own() -> None:
    assert _account(FakeService()).release(Pure(0.1), lambda: "as it is") == "as it is"


def test_a_search_computes_no_query_after_the_one_that_is_above() -> None:
    queries = [Looked(-5.0), Looked(5.0), Looked(5.0)]
    search = AboveThreshold("laplace", 1.0, 1.0, 1.0, max_queries=3)
    with no_noise_for_testing():
        found = _account(FakeService()).release(search, queries)
        beyond = _account(FakeService()).release(search, [-1.0, -1.0, -1.0, 9.0])

    assert (found, [query.times for query in queries]) == (1, [1, 1, 0])
    assert beyond is None


def test_the_same_sample_can_be_named_again() -> None:
    service = FakeService()
    account = _account(service)
    yes = account.authorize(STEP, sample=Poisson(0.5))

    account.authorize(STEP, sample=yes.same_sample)

    assert yes.same_sample == SeenSample("d~1")
    assert service.entries[1][1]["sample"] == {"id": "d~1"}


def test_a_key_of_the_callers_own_gives_one_permit() -> None:
    account = _account(FakeService())

    account.authorize(STEP, key="mine-1")
    with pytest.raises(NothingLeft, match="mine-1"):
        account.authorize(STEP, key="mine-1")


def test_the_key_of_a_yes_gives_no_second_permit() -> None:
    """The service would say its yes again and charge nothing: noise drawn twice for one charge."""
    account = _account(FakeService())
    yes = account.authorize(STEP)
    with account.reserve(STEP, times=3) as hold:
        hold.take()

    with pytest.raises(NothingLeft, match=yes.granted.key):
        account.release(STEP, 0.0, key=yes.granted.key)
    with pytest.raises(NothingLeft), account.reserve(STEP, times=3, key=hold.granted.key):
        pytest.fail("the same repetitions were given twice")


@pytest.mark.parametrize("copier", [copy.copy, copy.deepcopy, pickle.dumps])
def test_permits_cannot_be_copied(copier: Callable[[Any], Any]) -> None:
    account = _account(FakeService())
    with account.reserve(STEP, times=2) as hold:
        for permit in (account.authorize(STEP), hold, hold.take()):
            with pytest.raises(TypeError, match="cannot be copied"):
                copier(permit)


def _forked(work: Callable[[], Any]) -> str:
    """What became of some work in a process forked here, which ends without any of its cleaning up."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        try:
            said = repr(work())
        except BaseException as error:
            said = type(error).__name__
        os.write(writing, said.encode())
        os._exit(0)
    os.close(writing)
    os.waitpid(child, 0)
    with os.fdopen(reading) as reported:
        return reported.read()


def test_a_forked_process_has_no_part_in_its_parents_permits() -> None:
    service = FakeService()
    account = _account(service)
    yes = account.authorize(STEP)
    with account.reserve(STEP, times=3) as hold:
        taken = hold.take()
        for use in (yes.release, hold.release, taken.release):
            assert _forked(functools.partial(use, 0.0)) == "NothingLeft"
            use(0.0)

    assert service.entries[-1][1] == {"used": 2}


def test_a_forked_process_does_not_settle_what_its_parent_reserved() -> None:
    service = FakeService()

    def settled(manager: Any) -> list[Any]:
        with contextlib.suppress(ZeroDivisionError):
            manager.__exit__(ZeroDivisionError, ZeroDivisionError(), None)
        return [body for path, body in service.entries if path.endswith("settlement")]

    manager = _account(service).reserve(STEP, times=3)
    with manager as hold:
        hold.take()
        assert _forked(lambda: settled(manager)) == "[]"
        hold.take()

    assert service.entries[-1][1] == {"used": 2}


def test_a_reservation_asks_once_and_settles_what_was_used() -> None:
    service = FakeService()

    with _account(service).reserve(STEP, times=9, expires_in_seconds=60, sample=Poisson(0.5)) as hold:
        for _ in range(3):
            hold.release(0.0)
        assert len(service.requests) == 1
        assert hold.left == 6

    (reserved, settled) = service.entries
    assert reserved[1]["times"] == 9
    assert reserved[1]["expires_in_seconds"] == 60.0
    assert settled == ("/v1/reservations/d~1/settlement", {"used": 3})
    assert hold.settlement is not None
    assert hold.settlement.used == 3


def test_a_reservation_gives_no_more_than_its_times_however_many_ask() -> None:
    with _account(FakeService()).reserve(STEP, times=50) as hold, ThreadPoolExecutor(8) as pool:

        def take(_number: int) -> bool:
            try:
                hold.take()
            except NothingLeft:
                return False
            return True

        assert sum(pool.map(take, range(200))) == 50
    assert hold.used == 50


def test_after_its_end_a_reservation_gives_nothing() -> None:
    with _account(FakeService()).reserve(STEP, times=2) as hold:
        pass

    assert hold.left == 0
    with pytest.raises(NothingLeft):
        hold.take()


def test_a_repetition_that_failed_counts_as_used() -> None:
    service = FakeService()

    with pytest.raises(ZeroDivisionError), _account(service).reserve(STEP, times=9) as hold:
        [hold.release(value) for value in (0.0, lambda: 1 / 0)]

    assert service.entries[-1] == ("/v1/reservations/d~1/settlement", {"used": 2})


def test_when_the_work_failed_and_settling_fails_too_the_work_is_what_is_raised() -> None:
    service = FakeService()

    def crash() -> None:
        service.failures = [dropped] * 9
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError) as raised, _account(service).reserve(STEP, times=9) as hold:
        hold.release(crash)

    assert any("was not settled" in note for note in raised.value.__notes__)


def _used_and_then(service: FakeService, *failures: Failure) -> Iterator[Any]:
    """Use a reservation once and settle it in the face of failures; then give the hold."""
    with _account(service).reserve(STEP, times=9) as hold:
        hold.release(0.0)
        service.failures = list(failures)
    yield
    yield hold


def test_what_cannot_be_settled_is_left_to_expire_with_a_warning() -> None:
    service = FakeService()

    hold = _used_and_then(service, *[dropped] * 9)
    with pytest.warns(UnsettledWarning, match=r"all 9 repetitions .* 1 were used"):
        next(hold)

    assert next(hold).settlement is None


def _closed(how: str) -> Failure:
    return lambda _: problem(409, "reservation-closed", how=how)


def test_a_reservation_that_expired_was_charged_in_full_and_is_no_error() -> None:
    hold = _used_and_then(FakeService(), _closed("expired"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        next(hold)

    assert next(hold).settlement is None


def test_a_reservation_that_somebody_else_settled_is_an_error() -> None:
    hold = _used_and_then(FakeService(), _closed("settled"))

    with pytest.raises(ReservationClosed):
        next(hold)


def test_a_refused_reservation_has_nothing_to_settle() -> None:
    service = FakeService(lambda _: problem(409, "budget-exhausted"))

    with pytest.raises(BudgetExhausted), _account(service).reserve(STEP, times=9):
        pytest.fail("the body of a refused reservation ran")

    assert len(service.requests) == 1
