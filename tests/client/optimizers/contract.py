"""What every optimizer must show, and how it is watched while it does.

A :class:`Case` is one method on one small problem. ``test_contract.py`` runs all cases of the files
``cases_*.py`` through the same tests.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from dpledger_client import Account, Authorization, BudgetExhausted, Dataset, Ledger
from dpledger_client._arrays import Floats
from dpledger_client.ledger import Reservation
from dpledger_client.mechanisms import Gaussian, Laplace, Mechanism, OutputMixture
from dpledger_client.objectives import Logistic, Objective
from dpledger_client.optimizers import Iterate, Method, Result, minimize
from dpledger_client.permits import Hold, Step

SEED = 20_261
RECORDS = 120
FEATURES = 4
ORDERS = (2.0, 4.0, 8.0, 16.0)
PLENTY = 1e6
Textbook = Callable[[Any, Any], Floats]


def classification(seed: int = 5) -> tuple[Floats, Floats]:
    """Rows of norm at most 1 with labels −1 and 1 that a noisy plane divides."""
    random = np.random.default_rng(seed)
    rows = random.normal(size=(RECORDS, FEATURES))
    rows /= np.maximum(1.0, np.linalg.norm(rows, axis=1, keepdims=True))
    plane = np.arange(1.0, FEATURES + 1.0)
    return rows, np.where(rows @ plane + 0.3 * random.normal(size=RECORDS) > 0.0, 1.0, -1.0)


def curve_budget(epsilons: Iterable[float] = (PLENTY,) * len(ORDERS)) -> dict[str, Any]:
    """A budget that every kind of step can be charged to."""
    return {"accounting": "rdp-curve", "orders": list(ORDERS), "epsilons": list(epsilons)}


@dataclass(frozen=True)
class Case:
    """One method on one small problem.

    Attributes
    ----------
    method
        As it is used.
    textbook
        The method without noise, written out plainly. It runs with the seed that the method ran with,
        so that samples drawn in the same order are the same.
    quiet
        The method for the comparison with the textbook, where that must be another: for example with a
        clip so large that nothing is clipped.
    rho
        The closed form of what a run must be charged in zCDP, from its result, where there is one.
    repeats
        How many runs the noise test needs for at least 300 draws.
    options
        More arguments of ``minimize``.
    """

    name: str
    method: Method
    textbook: Textbook
    quiet: Method | None = None
    objective: Objective = field(default_factory=Logistic)
    data: Callable[[], tuple[Any, Any]] = classification
    adjacency: str = "add-remove"
    rho: Callable[[Result], float] | None = None
    repeats: int = 1
    options: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return self.name

    def opened(self, ledger: Ledger, name: str, budget: dict[str, Any] | None = None) -> Dataset:
        """A dataset for one run."""
        records = len(self.data()[0])
        return ledger.dataset(name).open(budget or curve_budget(), adjacency=self.adjacency, records=records)

    def run(self, account: Account, method: Method | None = None, data: Any = None, **more: Any) -> Result:
        """Run the method on the problem."""
        X, y = self.data() if data is None else data
        chosen = method or self.method
        return minimize(
            self.objective, X, y, account=account, method=chosen, progress=False, **(self.options | more)
        )


@dataclass(frozen=True)
class Draw:
    """One release as it happened."""

    mechanism: Mechanism
    value: Any
    output: Any

    @property
    def residuals(self) -> Floats | None:
        """The noise over its declared width, for mechanisms that add it."""
        if isinstance(self.mechanism, Gaussian | OutputMixture):
            return np.ravel(np.asarray(self.output) - self.value) / self.mechanism.noise_std
        if isinstance(self.mechanism, Laplace):
            return np.ravel(np.asarray(self.output) - self.value) / self.mechanism.scale
        return None


class Watch:
    """Records each request, each read of the data and each draw of noise, in their order."""

    def __init__(self) -> None:
        self.events: list[str] = []
        self.draws: list[Draw] = []
        self.iterates: list[Floats] = []
        self.inside: list[str] = []
        self.seen: set[str] = set()
        self.dataset: Dataset | None = None

    def wrap(self, array: Any) -> "Watched":
        """Data that tell this watch when they are looked at."""
        return Watched(array, self)

    def accessed(self) -> None:
        """The data were looked at: inside a release whose entry is in the ledger already, or it fails."""
        assert self.inside, "the data were looked at outside a release"
        current = self.inside[-1]
        if current not in self.seen:
            self._in_the_ledger(current)
            self.seen.add(current)
        self.events.append(f"access {current}")

    def _in_the_ledger(self, current: str) -> None:
        if self.dataset is not None:
            assert current in {entry["id"] for entry in self.dataset.entries()}

    def noted(self, permit: str, mechanism: Mechanism, value: Any, release: Callable[[Any], Any]) -> Any:
        """Release a value under a permit, and keep what was given and what came out."""
        given: list[Any] = []

        def compute() -> Any:
            found = value() if callable(value) else value
            given.append(np.array(found, copy=True) if isinstance(found, np.ndarray) else found)
            return found

        self.inside.append(permit)
        try:
            output = release(compute)
        finally:
            self.inside.pop()
        self.draws.append(Draw(mechanism, given[0] if given else None, output))
        return output

    def note(self, iterate: Iterate) -> None:
        """A callback that keeps the iterates."""
        self.iterates.append(iterate.w)


class Indexed:
    """Rows that are found by an index, as a frame's or a series' are; here it is not their place."""

    def __init__(self, array: Any) -> None:
        self._array = array
        self.shape = array.shape

    def __len__(self) -> int:
        return len(self._array)

    def __getitem__(self, rows: Any) -> Any:
        return self._array[(np.arange(len(self))[rows] + 1) % len(self)]

    def to_numpy(self) -> Any:
        """The rows by their place."""
        return self._array


def _as_array(data: Any) -> Any:
    """An array as it is, or a list of arrays as an array of them."""
    if not isinstance(data, list):
        return np.asarray(data)
    items = np.empty(len(data), dtype=object)
    for database_target, item in enumerate(data):
        items[database_target] = item
    return items


class Watched:
    """An array, or a list of arrays, whose every look is noted; its shape is public."""

    def __init__(self, array: Any, watch: Watch) -> None:
        self._array = _as_array(array)
        self._watch = watch
        self.shape = self._array.shape
        self.ndim = self._array.ndim
        self.dtype = self._array.dtype

    def __len__(self) -> int:
        return len(self._array)

    def __getitem__(self, rows: Any) -> Any:
        self._watch.accessed()
        return self._array[rows]

    def __array__(self, *given: Any, **named: Any) -> Any:
        self._watch.accessed()
        return np.array(self._array, *given, **named)

    def __iter__(self) -> Iterator[Any]:
        self._watch.accessed()
        return iter(self._array)


@contextmanager
def watching(dataset: Dataset | None = None) -> Iterator[Watch]:
    """Watch everything that goes through permits and accounts."""
    watch = Watch()
    watch.dataset = dataset
    with pytest.MonkeyPatch.context() as patch:
        _watch_releases(patch, watch)
        _watch_requests(patch, watch)
        yield watch


def _watch_releases(patch: pytest.MonkeyPatch, watch: Watch) -> None:
    release, release_held = Step.release, Hold.release

    def watched(step: Step, value: Any, which: int | str = 0) -> Any:
        mechanism = step.releases[step._number(which)].mechanism
        return watch.noted(step.granted.id, mechanism, value, lambda given: release(step, given, which))

    def watched_hold(hold: Hold, value: Any, which: int | str = 0) -> Any:
        if which != 0 or hold._journal is not None:  # it takes a step, which is watched
            return release_held(hold, value, which)
        mechanism = hold.releases[0].mechanism
        return watch.noted(hold.granted.id, mechanism, value, lambda given: release_held(hold, given))

    patch.setattr(Step, "release", watched)
    patch.setattr(Hold, "release", watched_hold)


def _watch_requests(patch: pytest.MonkeyPatch, watch: Watch) -> None:
    def watched(ask: Callable[..., Any]) -> Callable[..., Any]:
        def asked(*args: Any, **named: Any) -> Any:
            try:
                yes = ask(*args, **named)
            except BudgetExhausted:
                watch.events.append("refused")
                raise
            watch.events.append(f"granted {yes.granted.id}")
            return yes

        return asked

    patch.setattr(Account, "authorize", watched(Account.authorize))
    patch.setattr(Reservation, "__enter__", watched(Reservation.__enter__))
    authorize_all = Ledger.authorize_all

    def all_asked(ledger: Ledger, *args: Any, **named: Any) -> Any:
        answers = authorize_all(ledger, *args, **named)
        watch.events.append("asked for several")
        for answer in answers:
            answered = f"granted {answer.granted.id}" if isinstance(answer, Authorization) else "refused"
            watch.events.append(answered)
        return answers

    patch.setattr(Ledger, "authorize_all", all_asked)


def charged_entries(dataset: Dataset) -> list[dict[str, Any]]:
    """The entries that charged something, in order."""
    return [entry for entry in dataset.entries() if entry["kind"] in ("authorized", "reserved")]


def charged_steps(dataset: Dataset) -> int:
    """How many steps were charged: those authorized, and of those reserved what was not given back."""
    steps: dict[str, int] = {}
    for entry in dataset.entries():
        if entry["kind"] in ("authorized", "reserved"):
            steps[entry["id"]] = entry.get("times", 1)
        elif entry["kind"] == "settled":
            steps[entry["reservation"]] = entry["used"]
    return sum(steps.values())
