"""The process that evaluates queries: one line in, one line out.

It stands apart from the service because a bound may need the processor for seconds, and a thread
that computes would share the interpreter with the authorizations. It runs at low priority, within
limits of processor time and memory, and ends when its input does.
"""

import contextlib
import os
import signal
import sys
from collections.abc import Iterator
from typing import IO, Any

from dpledger.ledger.filters import register_added
from dpledger.logs import configure_logs
from dpledger.queries.evaluation import outcome_of
from dpledger.queries.outcomes import Failure, FailureKind, Outcome, to_line

__all__ = ["CPU_SECONDS", "READY", "main"]

READY = b"ready\n"
CPU_SECONDS = 5.0
MEMORY_BYTES = 4 * 2**30
LOW_PRIORITY = 10
"""A tenth of a processor that others want too; at the lowest, no query would be answered in time."""


class _TooLong(BaseException):
    """The processor time is used up; no handler for ordinary errors may stop it."""


def main() -> None:
    """Answer the lines of standard input until it ends; arguments are kinds of budgets added to ours."""
    configure_logs()
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    # Whatever a library prints must not stand among the answers.
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _step_back()
    register_added(sys.argv[1:])
    _send(answers, READY)
    for line in sys.stdin.buffer:
        _send(answers, to_line(bounded_outcome(line.decode())))


def _send(answers: IO[bytes], line: bytes) -> None:
    answers.write(line)
    answers.flush()


def bounded_outcome(line: str, cpu_seconds: float = CPU_SECONDS) -> Outcome:
    """The outcome, unless it takes more than there is."""
    try:
        with _limit(cpu_seconds):
            return outcome_of(line)
    except _TooLong:
        return Failure(FailureKind.TOO_HARD, f"No answer within {cpu_seconds:g} s of processor time.")
    except MemoryError:
        return Failure(FailureKind.TOO_HARD, "No answer within the memory that a query may take.")


@contextlib.contextmanager
def _limit(cpu_seconds: float) -> Iterator[None]:
    """Interrupt the block when it has used its processor time, where the system can tell."""
    if not hasattr(signal, "setitimer"):
        yield
        return
    previous = signal.signal(signal.SIGPROF, _interrupt)
    signal.setitimer(signal.ITIMER_PROF, cpu_seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0.0)
        signal.signal(signal.SIGPROF, previous)


def _interrupt(_signal: int, _frame: Any) -> None:
    raise _TooLong


def _step_back() -> None:
    """Give way to the service, and take no more memory than allowed; where the system knows how."""
    if hasattr(os, "nice"):
        os.nice(LOW_PRIORITY)
    with contextlib.suppress(ImportError, ValueError, OSError):
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))


if __name__ == "__main__":
    main()
