"""Running a transaction again: only what was rolled back, and not for ever."""

import contextlib
from collections.abc import Iterator

import pytest

from dpledger.ledger.errors import Unavailable
from dpledger.ledger.idempotency import run_in_transaction
from dpledger.storage.engine.failures import Busy


class Flaky:
    """Fails a number of times, at the end of the block."""

    def __init__(self, *errors: Exception) -> None:
        self._errors = list(errors)
        self.begun = 0

    @contextlib.contextmanager
    def begin(self) -> Iterator[int]:
        self.begun += 1
        yield self.begun
        if self._errors:
            raise self._errors.pop(0)

    def is_transient(self, error: BaseException) -> bool:
        return isinstance(error, Busy)


def test_what_succeeds_is_run_once() -> None:
    storage, pauses = Flaky(), list[float]()

    found = run_in_transaction(storage, lambda attempt: f"attempt {attempt}", pause=pauses.append)

    assert found == "attempt 1"
    assert (storage.begun, pauses) == (1, [])


def test_what_was_rolled_back_is_run_again_after_growing_pauses() -> None:
    """The longest that each pause could be; nobody really waits."""
    storage, pauses = Flaky(*[Busy()] * 6), list[float]()

    assert run_in_transaction(storage, lambda attempt: attempt, pause=pauses.append) == 7
    assert len(pauses) == 6
    assert pauses == sorted(pauses)
    assert pauses[0] < pauses[-1] <= 0.2


@pytest.mark.parametrize("attempts", [1, 2, 5])
def test_after_the_last_attempt_the_caller_gets_an_error(attempts: int) -> None:
    storage = Flaky(*[Busy(str(number)) for number in range(1, 100)])

    with pytest.raises(Unavailable, match=str(attempts)):
        run_in_transaction(storage, lambda _: None, attempts, pause=lambda _: None)
    assert storage.begun == attempts


@pytest.mark.parametrize("error", [Unavailable(), ValueError(), KeyboardInterrupt()])
def test_anything_else_is_not_run_again(error: Exception) -> None:
    storage = Flaky(error)

    with pytest.raises(type(error)):
        run_in_transaction(storage, lambda _: None)
    assert storage.begun == 1
