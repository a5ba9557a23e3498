"""Verifications that somebody asked for on a page: one at a time, in the background, the last one kept.

Replaying a long ledger takes a while and a page must not wait for it. What is kept is this process's
own memory: another replica knows nothing of it, and ``GET /v1/datasets/{name}/verification`` asks afresh.
"""

import logging
import threading
from collections import OrderedDict
from dataclasses import dataclass, replace

from dpledger.ledger.clock import Clock
from dpledger.ledger.reader import LedgerReader

__all__ = ["Verdict", "Verifier"]

logger = logging.getLogger(__name__)
_KEPT = 1000
_PROGRESS_ENTRIES = 5000


@dataclass(frozen=True)
class Verdict:
    """How far a verification has come, or what it found."""

    started_at_us: int
    done: int = 0
    total: int = 0
    finished_at_us: int | None = None
    sequence: int = 0
    valid: bool = False
    problems: tuple[str, ...] = ()
    head: str | None = None

    @property
    def is_running(self) -> bool:
        """Whether it goes on."""
        return self.finished_at_us is None


class Verifier:
    """Runs verifications and remembers the last verdict of each dataset."""

    def __init__(self) -> None:
        self._verdicts: OrderedDict[str, Verdict] = OrderedDict()
        self._guard = threading.Lock()
        self._busy = False

    def last(self, dataset: str) -> Verdict | None:
        """The last verdict on a dataset, or the one that is coming."""
        with self._guard:
            return self._verdicts.get(dataset)

    def start(self, dataset: str, reader: LedgerReader, clock: Clock) -> bool:
        """Begin to verify; False where another verification is still running."""
        with self._guard:
            if self._busy:
                return False
            self._busy = True
        self._keep(dataset, Verdict(clock.now_us()))
        arguments = (dataset, reader, clock)
        threading.Thread(target=self._run, args=arguments, name="verification", daemon=True).start()
        return True

    def _run(self, dataset: str, reader: LedgerReader, clock: Clock) -> None:
        def progress(done: int, total: int) -> None:
            if done % _PROGRESS_ENTRIES == 0:
                self._change(dataset, done=done, total=total)

        try:
            found = reader.verification(dataset, progress)
            facts = {
                "sequence": found["sequence"],
                "valid": found["valid"],
                "problems": tuple(found["problems"]),
                "head": found["head"],
            }
        except Exception:  # a thread's error reaches nobody: the page must show it
            logger.exception("a verification could not be finished")
            facts = {"problems": ("it could not be finished; the service's log says why",)}
        finally:
            with self._guard:
                self._busy = False
        self._change(dataset, finished_at_us=clock.now_us(), **facts)

    def _change(self, dataset: str, **changes: object) -> None:
        known = self.last(dataset)
        if known is not None:
            self._keep(dataset, replace(known, **changes))  # type: ignore[arg-type]

    def _keep(self, dataset: str, verdict: Verdict) -> None:
        with self._guard:
            self._verdicts[dataset] = verdict
            self._verdicts.move_to_end(dataset)
            while len(self._verdicts) > _KEPT:
                self._verdicts.popitem(last=False)
