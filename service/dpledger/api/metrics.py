"""Prometheus metrics of a running service.

A request on the way of authorizations costs one number put on a list, and a group of them one call:
everything is sorted into buckets and counted when somebody looks, or when much has piled up.
"""

import platform
import threading
import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from dpledger import __version__
from dpledger.ledger.model.requests import Authorization
from dpledger.ledger.results import Decided, Result

__all__ = ["AUTHORIZATIONS", "CONTENT_TYPE", "METHODS", "Distribution", "Metrics", "template_of"]

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
AUTHORIZATIONS = "/v1/datasets/{dataset}/authorizations"
"""The route of the fast path."""
SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
_PILE = 4096
METHODS = frozenset({"DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT"})
Decide = Callable[[str, Sequence[Authorization]], Sequence[Decided]]
ResultT = TypeVar("ResultT", bound=Result)
Labels = tuple[str, ...]


class Distribution:
    """Numbers by size. To note one is to append it; any thread may."""

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = bounds
        self._notes: list[float] = []
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0
        self._sorting = threading.Lock()

    def note(self, value: float) -> None:
        """Take a number."""
        self._notes.append(value)
        if len(self._notes) >= _PILE:
            self._sort()

    def buckets(self) -> tuple[list[tuple[str, float]], float]:
        """Counts up to each bound, added up, as Prometheus writes them; and the sum of all numbers."""
        self._sort()
        names = [*(f"{bound:g}" for bound in self._bounds), "+Inf"]
        with self._sorting:
            running, found = 0, []
            for name, count in zip(names, self._counts, strict=True):
                running += count
                found.append((name, float(running)))
            return found, self._sum

    def _sort(self) -> None:
        with self._sorting:
            # Each step is one operation of the interpreter's own: what is appended meanwhile stays.
            taken = self._notes[:]
            del self._notes[: len(taken)]
            for value in taken:
                self._counts[bisect_left(self._bounds, value)] += 1
            self._sum += sum(taken)


@dataclass(frozen=True)
class _Looked:
    """A number that is asked for only when somebody looks."""

    family: type[CounterMetricFamily] | type[GaugeMetricFamily]
    name: str
    help: str
    labels: Labels
    read: Callable[[], Mapping[Labels, float]]

    def metric(self) -> Metric:
        """The number now."""
        family = self.family(self.name, self.help, labels=self.labels)
        for values, number in self.read().items():
            family.add_metric(values, number)
        return family


class Metrics(Collector):
    """Everything that one service counts."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry(auto_describe=False)
        self._requests: dict[Labels, Distribution] = {("POST", AUTHORIZATIONS): Distribution(SECONDS)}
        self._decisions: Counter[Labels] = Counter()
        self._counting = threading.Lock()
        self._sizes = Distribution(SIZES)
        self._groups = Distribution(SECONDS)
        self._locks = Distribution(SECONDS)
        # By name: an application that is started again looks at its new parts.
        self._looked: dict[str, _Looked] = {}
        self.lock_waited = self._locks.note
        """Takes the seconds from the wish for a transaction until its datasets were locked."""
        self.registry.register(self)
        ProcessCollector(registry=self.registry)

    def observe_request(self, method: str, route: str, seconds: float) -> None:
        """Take note of a request."""
        labels = (method if method in METHODS else "other", route)
        # Of two that meet here for the first time, setdefault keeps one.
        found = self._requests.get(labels) or self._requests.setdefault(labels, Distribution(SECONDS))
        found.note(seconds)

    def count_outcomes(self, work: Callable[..., ResultT]) -> Callable[..., ResultT]:
        """``work``, with what it decides counted under its own name."""

        def work_and_note(*arguments: Any) -> ResultT:
            label = "error"
            try:
                result = work(*arguments)
                label = "replayed" if result.replayed else result.outcome
                return result
            finally:
                with self._counting:
                    self._decisions[work.__name__, label] += 1

        return work_and_note

    def observe_groups(self, decide: Decide) -> Decide:
        """``decide``, with its groups counted and timed: once for each group."""

        def decide_and_note(name: str, group: Sequence[Authorization]) -> Sequence[Decided]:
            started = time.perf_counter()
            labels = ["error"] * len(group)
            try:
                found = decide(name, group)
                labels = [
                    "error" if isinstance(e, Exception) else "replayed" if e.replayed else e.outcome
                    for e in found
                ]
                return found
            finally:
                self._groups.note(time.perf_counter() - started)
                self._sizes.note(len(group))
                with self._counting:
                    self._decisions.update([("authorize", label) for label in labels])

        return decide_and_note

    def look_at_counter(
        self, name: str, help: str, labels: Labels, read: Callable[[], Mapping[Labels, float]]
    ) -> None:
        """Tell a count that somebody else keeps."""
        self._looked[name] = _Looked(CounterMetricFamily, name, help, labels, read)

    def look_at_gauge(
        self, name: str, help: str, labels: Labels, read: Callable[[], Mapping[Labels, float]]
    ) -> None:
        """Tell a level that somebody else knows."""
        self._looked[name] = _Looked(GaugeMetricFamily, name, help, labels, read)

    def text(self) -> bytes:
        """Everything, as Prometheus reads it."""
        return generate_latest(self.registry)

    def describe(self) -> Iterable[Metric]:
        """Nothing: to describe would be to collect."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """Every number, in the order of the documentation."""
        yield self._build()
        yield self._decisions_now()
        yield _histogram(
            "dpledger_request_seconds",
            "Time from a request's arrival until its answer was handed over.",
            ("method", "route"),
            dict(self._requests),
        )
        groups = "Requests for one dataset that were decided in one transaction."
        yield _histogram("dpledger_group_size", groups, (), {(): self._sizes})
        commit = "Time to decide one group and to commit it."
        yield _histogram("dpledger_group_seconds", commit, (), {(): self._groups})
        waited = "Time from the wish for a writing transaction until its datasets were locked."
        yield _histogram("dpledger_lock_wait_seconds", waited, (), {(): self._locks})
        for each in list(self._looked.values()):
            yield each.metric()

    def _build(self) -> Metric:
        family = GaugeMetricFamily(
            "dpledger_build_info", "The version that runs.", labels=("version", "python")
        )
        family.add_metric((__version__, platform.python_version()), 1.0)
        return family

    def _decisions_now(self) -> Metric:
        family = CounterMetricFamily(
            "dpledger_decisions",
            "Decisions by what was asked and how it ended.",
            labels=("operation", "outcome"),
        )
        with self._counting:
            for labels, count in self._decisions.items():
                family.add_metric(labels, count)
        return family


def _histogram(
    name: str, help: str, labels: Labels, found: Mapping[Labels, Distribution]
) -> HistogramMetricFamily:
    family = HistogramMetricFamily(name, help, labels=labels)
    for values, distribution in found.items():
        buckets, total = distribution.buckets()
        family.add_metric(values, buckets, total)
    return family


def template_of(scope: Mapping[str, Any]) -> str:
    """The route of a request that was answered, as it is written in the API's description."""
    path = getattr(scope.get("route"), "path", None)
    if not isinstance(path, str):
        return "unknown"
    root: str = scope.get("root_path", "")
    # What a mounted application calls its root begins with ours, which a proxy may have moved.
    return root.removeprefix(scope.get("app_root_path", root)) + path
