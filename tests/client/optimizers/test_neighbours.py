"""Between neighbours no release of any method moves by more than was declared.

A method runs on some data, and again on a neighbour of theirs with everything released as it was: whatever
it computes from private data is then a release's value, and must be near that of the first run.
"""

import itertools
from typing import Any

import numpy as np
import pytest

from dpledger_client import Ledger, insecure_testing_noise, permits
from dpledger_client.mechanisms import (
    AboveThreshold,
    Exponential,
    Gaussian,
    Mechanism,
    NoisyMax,
    OutputMixture,
)
from dpledger_client.noise import current_noise
from dpledger_client.optimizers.methods.objective_perturbation import ObjectivePerturbation
from dpledger_client.samples import Poisson, WithoutReplacement
from tests.client.optimizers.contract import SEED, Case
from tests.client.optimizers.test_contract import CASES, fresh_name

PLACE = 3
WILD: dict[str, tuple[float, float]] = {
    "nan": (np.nan, 1.0),
    "infinite": (np.inf, -np.inf),
    "large": (1e200, 1.0),
    "tiny": (1e-170, 1e200),
    "plain": (-7.0, -1.0),
}
ADDITIVE = [case for case in CASES if not isinstance(case.method, ObjectivePerturbation)]
"""Of a perturbed objective it is not the value that is near, but the density; it has tests of its own."""


class Recorder:
    """Keeps each release's mechanism and value; with ``outputs``, releases those again."""

    def __init__(self, outputs: list[Any] | None = None) -> None:
        self.seen: list[tuple[Mechanism, Any]] = []
        self.outputs: list[Any] = []
        self._again = None if outputs is None else iter(outputs)

    def made(self, release: Any, value: Any) -> Any:
        found = value() if callable(value) else value
        if isinstance(release.mechanism, AboveThreshold):
            found = [query() for query in found]
        self.seen.append((release.mechanism, found))
        if self._again is not None:
            return next(self._again)
        self.outputs.append(release.mechanism.apply(found, current_noise()))
        return self.outputs[-1]


@pytest.fixture(autouse=True)
def _everybody_is_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """The worst that a sample can do is to hold the record."""
    for kind in (Poisson, WithoutReplacement):
        monkeypatch.setattr(kind, "draw", lambda _self, records: np.arange(records))


def _without(data: Any) -> Any:
    return [*data[:PLACE], *data[PLACE + 1 :]] if isinstance(data, list) else np.delete(data, PLACE, axis=0)


def _neighbour(case: Case, wild: str) -> tuple[Any, Any]:
    """The record is removed, or is another; of a list, whose documents are public, the relevances are."""
    X, y = case.data()
    if case.adjacency == "add-remove":
        return _without(X), _without(y)
    row, label = WILD[wild]
    if isinstance(X, list):
        changed = list(y)
        changed[PLACE] = np.full_like(np.asarray(y[PLACE], dtype=np.float64), row)
        return X, changed
    rows, labels = X.astype(np.float64), y.astype(np.float64)
    rows[PLACE], labels[PLACE] = row, label
    return rows, labels


def _spoiled(case: Case, wild: str) -> tuple[Any, Any]:
    """Under add-remove it is the record itself that is wild."""
    X, y = case.data()
    if case.adjacency != "add-remove" or isinstance(X, list):
        return X, y
    rows, labels = X.astype(np.float64), y.astype(np.float64)
    rows[PLACE], labels[PLACE] = WILD[wild]
    return rows, labels


def _allowed(mechanism: Mechanism) -> float:
    if isinstance(mechanism, OutputMixture):
        return max(mechanism.sensitivities)
    assert isinstance(mechanism, Gaussian | AboveThreshold | NoisyMax | Exponential)
    return mechanism.sensitivity


def _moved(mechanism: Mechanism, one: Any, other: Any) -> float:
    move = np.asarray(one, dtype=np.float64) - np.asarray(other, dtype=np.float64)
    if isinstance(mechanism, Gaussian | OutputMixture):
        return float(np.linalg.norm(move))
    monotonic = getattr(mechanism, "monotonic", False)
    return float(np.ptp(move) if monotonic else np.abs(move).max())


@pytest.mark.parametrize(("case", "wild"), list(zip(ADDITIVE, itertools.cycle(WILD), strict=False)), ids=str)
def test_no_release_moves_by_more_than_was_declared(
    case: Case, wild: str, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(data: Any, outputs: list[Any] | None = None) -> Recorder:
        recorder = Recorder(outputs)
        with monkeypatch.context() as patched, insecure_testing_noise(SEED):
            patched.setattr(permits, "_made", recorder.made)
            case.run(case.opened(ledger, fresh_name()).run("job"), data=data)
        return recorder

    first = run(_spoiled(case, wild))
    again = run(_neighbour(case, wild), first.outputs)

    assert len(first.seen) == len(again.seen) > 0
    for (mechanism, one), (same, other) in zip(first.seen, again.seen, strict=True):
        assert mechanism == same
        assert _moved(mechanism, one, other) <= _allowed(mechanism)
