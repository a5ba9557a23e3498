"""Group commit: what arrives together for one dataset is decided in one transaction.

Requests wait in a queue of their dataset; a worker takes all that wait there (up to a limit), has
them decided one after another in one transaction, and answers them after it has committed. While a
transaction commits, the next group forms: the busier it gets, the larger the groups.
"""

import logging
import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from dpledger.ledger.errors import Unavailable
from dpledger.ledger.model.requests import Authorization

__all__ = ["GroupCommitter", "resolve"]

logger = logging.getLogger(__name__)
MAX_GROUP = 256
Decide = Callable[[str, Sequence[Authorization]], Sequence[Any]]
Deliver = Callable[[list[tuple[Any, Any]]], object]


@dataclass
class _Queue:
    waiting: deque[tuple[Authorization, Any]] = field(default_factory=deque)
    busy: bool = False


class GroupCommitter:
    """Workers that turn waiting requests into groups.

    Parameters
    ----------
    decide
        Decides a group in one transaction (``BatchDecider.decide``).
    deliver
        Called from a worker, once per group, with the tickets handed in and what was decided for each,
        or the error that ended the transaction.
    workers
        How many datasets may be written at once: one for SQLite, which has one writer anyway.
    """

    def __init__(self, decide: Decide, deliver: Deliver, *, workers: int) -> None:
        self._decide = decide
        self._deliver = deliver
        self._queues: OrderedDict[str, _Queue] = OrderedDict()
        self._changed = threading.Condition()
        self._stopping = False
        self._threads = [
            threading.Thread(target=self._work, name=f"ledger-{index}", daemon=True)
            for index in range(workers)
        ]
        for thread in self._threads:
            thread.start()

    def submit(self, requests: Iterable[tuple[Authorization, Any]]) -> None:
        """Queue requests, each with the ticket with which its reply is delivered."""
        with self._changed:
            if self._stopping:
                raise Unavailable("the service is shutting down")
            idle = 0
            for request, ticket in requests:
                queue = self._queues.setdefault(request.spend.dataset, _Queue())
                idle += not (queue.busy or queue.waiting)
                queue.waiting.append((request, ticket))
            self._changed.notify(idle)

    def stop(self) -> None:
        """Finish everything that was accepted, then end the workers."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        for thread in self._threads:
            thread.join()

    def _work(self) -> None:
        name: str | None = None
        while (taken := self._take(name)) is not None:
            name, group = taken
            try:
                decided = self._decide(name, [request for request, _ in group])
            except Exception as error:  # a failed transaction concerns all of its group
                decided = [error] * len(group)
            try:
                self._deliver([(ticket, each) for (_, ticket), each in zip(group, decided, strict=True)])
            except Exception:  # whoever waited is gone; the others must not wait for ever
                logger.exception("replies could not be delivered")

    def _take(self, finished: str | None) -> tuple[str, list[tuple[Authorization, Any]]] | None:
        """Let go of the dataset that was finished and wait for the next group; None at the end."""
        with self._changed:
            if finished is not None:
                queue = self._queues.pop(finished)
                if queue.waiting:  # behind the others, so that datasets take turns
                    queue.busy = False
                    self._queues[finished] = queue
                self._changed.notify_all()
            while True:
                for name, queue in self._queues.items():
                    if queue.waiting and not queue.busy:
                        queue.busy = True
                        count = min(MAX_GROUP, len(queue.waiting))
                        return name, [queue.waiting.popleft() for _ in range(count)]
                if self._stopping and not any(queue.waiting for queue in self._queues.values()):
                    return None
                self._changed.wait()


def resolve(decided: list[tuple[Any, Any]]) -> None:
    """Give each waiting future its decision; called in the futures' own event loop."""
    for future, each in decided:
        if not future.done():
            future.set_result(each)
