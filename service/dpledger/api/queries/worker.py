"""The process that evaluates queries: one line in, one line out.

It stands apart from the service because a bound may need the processor for seconds, and a thread
that computes would share the interpreter with the authorizations. It runs at low priority, within
limits of processor time and memory, and ends when its input does.
"""

import contextlib
import json
import os
import signal
import sys
from collections.abc import Iterator
from typing import IO, Any

from dpledger.api.http.problems import Problem, ProblemKind
from dpledger.api.logs import configure_logs
from dpledger.api.queries.evaluation import Reply, reply, to_reply
from dpledger.ledger.filters import register_added

__all__ = ["CPU_SECONDS", "READY", "TOO_HARD", "main"]

READY = b"ready\n"
CPU_SECONDS = 5.0
MEMORY_BYTES = 4 * 2**30
LOW_PRIORITY = 10
"""A tenth of a processor that others want too; at the lowest, no question would be answered in time."""
TOO_HARD = ProblemKind("question-too-hard", 422, "The question takes too much time or memory")


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
        status, body = bounded_reply(line.decode())
        _send(answers, json.dumps([status, body]).encode() + b"\n")


def _send(answers: IO[bytes], line: bytes) -> None:
    answers.write(line)
    answers.flush()


def bounded_reply(question: str, cpu_seconds: float = CPU_SECONDS) -> Reply:
    """The reply, unless it takes more than there is."""
    try:
        with _limit(cpu_seconds):
            return reply(question)
    except _TooLong:
        return to_reply(Problem(TOO_HARD, f"No answer within {cpu_seconds:g} s of processor time."))
    except MemoryError:
        return to_reply(Problem(TOO_HARD, "No answer within the memory that a question may take."))


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
