"""Counts what one warm authorization passes: files, functions and changes of file of this project.

    python -m benchmarks.hops

A profile function sees every call in every thread. Last line: ``hops files=<n> functions=<n> switches=<n>``.
"""

import itertools
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import dpledger

PACKAGE = str(Path(dpledger.__file__).parent)
WARM_UP = 20


class Trace:
    """The functions of this project that were called while it records, in order."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, str]] = []
        self._recording = False

    def profile(self, frame: FrameType, event: str, _argument: Any) -> None:
        """What the interpreter calls at every call of a function."""
        if not (self._recording and event == "call"):
            return
        code = frame.f_code
        # Comprehensions and lambdas are parts of the function that they stand in.
        if code.co_filename.startswith(PACKAGE) and not code.co_name.startswith("<"):
            self.calls.append((code.co_filename[len(PACKAGE) + 1 :], code.co_qualname))

    @contextmanager
    def record(self) -> Iterator[None]:
        """Note every call until the block ends."""
        self._recording = True
        try:
            yield
        finally:
            self._recording = False


def main() -> None:
    trace = Trace()
    # Threads take it over when they start, so it stands before the service does.
    threading.setprofile(trace.profile)
    sys.setprofile(trace.profile)
    from tests.api.service import made, running

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with running(f"sqlite:///{folder / 'ledger.db'}", folder / "keys.json") as service:
            service.open(budget={"accounting": "zcdp", "rho": 100.0})
            for _ in range(WARM_UP):
                made(service.authorize())
            with trace.record():
                answer = service.authorize()
            made(answer)
    sys.setprofile(None)
    threading.setprofile(None)
    _report(trace.calls)


def _report(calls: list[tuple[str, str]]) -> None:
    for file in dict.fromkeys(file for file, _ in calls):
        called = dict.fromkeys(function for each, function in calls if each == file)
        print(f"{file}: {', '.join(called)}")
    files, functions = {file for file, _ in calls}, set(calls)
    switches = sum(one[0] != other[0] for one, other in itertools.pairwise(calls))
    print(f"hops files={len(files)} functions={len(functions)} switches={switches}")


if __name__ == "__main__":
    main()
