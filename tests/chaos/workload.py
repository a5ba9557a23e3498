"""What the clients ask for: all kinds of budget, steps, reservations, lists, partitions and allocations."""

import random
import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from tests.chaos.history import Asked
from tests.reliability.wire import Ask

__all__ = ["KINDS", "Scenery", "Workload"]

_GAUSSIAN = {"mechanism": "gaussian", "sensitivity": 1.0, "noise_std": 4.0}
_POISSON = {"sample": {"scheme": "poisson", "rate": 0.01}, "releases": [{**_GAUSSIAN, "noise_std": 1.1}]}
_ITEMS = [{"name": "sgd", **_POISSON, "times": 60}, {"name": "cap", "zcdp": {"rho": 0.5}}]
BUDGETS: dict[str, dict[str, Any]] = {
    "zcdp": {"accounting": "zcdp", "rho": 1.5},
    "gdp": {"accounting": "gdp", "mu": 1.8},
    "rdp": {"accounting": "rdp", "epsilon": 8.0, "delta": 1e-6},
    "rdp-order": {"accounting": "rdp-order", "epsilon": 8.0, "delta": 1e-6, "order": 8.0},
    "rdp-curve": {"accounting": "rdp-curve", "orders": [2.0, 4.0, 8.0], "epsilons": [3.0, 6.0, 12.0]},
    "plan": {"accounting": "plan", "epsilon": 8.0, "delta": 1e-4, "items": _ITEMS},
    "shared": {"accounting": "shared", "epsilon": 3.0, "delta": 1e-3},
}
KINDS = tuple(BUDGETS)
_INNER: tuple[dict[str, Any], ...] = ({"accounting": "zcdp"}, {"accounting": "gdp"}, {"accounting": "rdp"})
_PARTS = ("north", "east", "south")
_MOST_OPEN = 40


@dataclass(frozen=True)
class Dataset:
    """A dataset to ask of. Those with reservations are in no list that is taken as a whole or not at all.

    Such a list is decided on a state in which what is due has expired, and leaves no trace of that if it is
    refused, so that nobody could say afterwards which state it saw.
    """

    name: str
    kind: str
    reserves: bool
    partitioned: bool


@dataclass
class Scenery:
    """What all clients know: datasets that are open, allocations, and reservations to be settled."""

    guard: threading.Lock = field(default_factory=threading.Lock)
    datasets: list[Dataset] = field(default_factory=list)
    allocations: list[tuple[str, str]] = field(default_factory=list)
    holds: list[tuple[str, int]] = field(default_factory=list)
    answered: list[Asked] = field(default_factory=list)
    opened: int = 0
    learned: set[str | None] = field(default_factory=set)

    def is_new(self, key: str | None) -> bool:
        """Whether this key's answer was not learned before."""
        with self.guard:
            new = key not in self.learned
            self.learned.add(key)
            return new

    def number(self) -> int:
        """The next dataset's."""
        with self.guard:
            self.opened += 1
            return self.opened


class Workload:
    """One client's requests, drawn by its own dice."""

    def __init__(self, name: str, scenery: Scenery, dice: random.Random) -> None:
        self._name = name
        self._scenery = scenery
        self._dice = dice
        self._number = 0

    def next(self) -> Ask:
        """What to ask next."""
        if len(self._scenery.datasets) < len(KINDS):
            return self.opening()
        choices: list[tuple[Callable[[], Ask | None], int]] = [
            (self._step, 50),
            (self._reservation, 12),
            (self._settlement, 10),
            (self._list, 8),
            (self._allocation, 5),
            (self._return, 3),
            (self._repetition, 6),
            (self.opening, 3),
        ]
        drawn = self._dice.choices([make for make, _ in choices], [weight for _, weight in choices])[0]
        return drawn() or self._step() or self.opening()

    def _key(self) -> str:
        self._number += 1
        return f"{self._name}-{self._number}"

    def _choose(self, *, shared: bool, reserves: bool | None = None) -> Dataset | None:
        with self._scenery.guard:
            found = [
                each
                for each in self._scenery.datasets[-_MOST_OPEN:]
                if (each.kind == "shared") is shared and reserves in (None, each.reserves)
            ]
        return self._dice.choice(found) if found else None

    def opening(self) -> Ask:
        """A new dataset; kinds take turns."""
        number = self._scenery.number()
        kind = KINDS[number % len(KINDS)]
        name = f"{kind}-{number}" + self._dice.choice(["", ".held"])
        body = {"name": name, "budget": BUDGETS[kind], "description": "chaos"}
        return Ask("/v1/datasets", body, self._key())

    def partitions(self, name: str) -> Ask:
        """Partitions of a dataset that was just opened."""
        return Ask(f"/v1/datasets/{name}/partitions", {"names": list(_PARTS)}, self._key())

    def change(self, name: str, sequence: int) -> Ask:
        """Another limit for a dataset that was just opened."""
        body = {"budget": {"accounting": "zcdp", "rho": 0.75}, "reason": "a smaller study"}
        return Ask(f"/v1/datasets/{name}/budget-changes", body, self._key(), if_match=sequence)

    def _spend(self, dataset: Dataset) -> dict[str, Any]:
        dice = self._dice
        step: dict[str, Any] = {"run": f"run-{dice.randint(1, 5)}"}
        if dataset.kind in ("plan", "rdp") and dice.random() < 0.5:
            return {**step, **_POISSON}
        step["releases"] = [{**_GAUSSIAN, "noise_std": dice.choice([3.0, 4.0, 6.0])}]
        if dataset.partitioned and dice.random() < 0.7:
            step["partition"] = dice.choice(_PARTS)
        return step

    def _any_spend(self, *, reserves: bool | None = None) -> tuple[str, dict[str, Any]] | None:
        """A step of a dataset, or from an allocation."""
        with self._scenery.guard:
            allocations = list(self._scenery.allocations[-_MOST_OPEN:])
        if allocations and reserves is not False and self._dice.random() < 0.2:
            name, part = self._dice.choice(allocations)
            step = {"run": "part", "releases": [{**_GAUSSIAN, "noise_std": 25.0}], "allocation": part}
            return name, step
        dataset = self._choose(shared=False, reserves=reserves)
        return None if dataset is None else (dataset.name, self._spend(dataset))

    def _step(self) -> Ask | None:
        found = self._any_spend()
        return (
            None if found is None else Ask(f"/v1/datasets/{found[0]}/authorizations", found[1], self._key())
        )

    def _reservation(self) -> Ask | None:
        found = self._any_spend(reserves=True)
        if found is None:
            return None
        seconds = self._dice.choice([0.5, 2.0, 3600.0, 86_400.0])
        body = {**found[1], "times": self._dice.randint(1, 4), "expires_in_seconds": seconds}
        return Ask(f"/v1/datasets/{found[0]}/reservations", body, self._key())

    def _settlement(self) -> Ask | None:
        with self._scenery.guard:
            if not self._scenery.holds:
                return None
            held, times = self._scenery.holds.pop(self._dice.randrange(len(self._scenery.holds)))
        return Ask(f"/v1/reservations/{held}/settlement", {"used": self._dice.randint(0, times)}, self._key())

    def _list(self) -> Ask | None:
        mode = self._dice.choice(["each", "all-or-nothing"])
        found = [
            self._any_spend(reserves=None if mode == "each" else False)
            for _ in range(self._dice.choice([2, 3, 5, 20]))
        ]
        items = [{"dataset": each[0], **each[1]} for each in found if each is not None]
        return Ask("/v1/authorizations", {"mode": mode, "items": items}, self._key()) if items else None

    def _allocation(self) -> Ask | None:
        dataset = self._choose(shared=True)
        if dataset is None:
            return None
        key = self._key()
        share = self._dice.choice([0.1, 0.3, 0.5])
        body = {"name": f"part-{key}", "epsilon": share, "delta": 1e-5, "budget": self._dice.choice(_INNER)}
        return Ask(f"/v1/datasets/{dataset.name}/allocations", body, key)

    def _return(self) -> Ask | None:
        with self._scenery.guard:
            if not self._scenery.allocations:
                return None
            name, part = self._dice.choice(self._scenery.allocations[-_MOST_OPEN:])
        return Ask(f"/v1/datasets/{name}/allocations/{part}/return", {"reason": "spare"}, self._key())

    def _repetition(self) -> Ask | None:
        """Something that was answered before, asked again under its key."""
        with self._scenery.guard:
            if not self._scenery.answered:
                return None
            return replace(self._dice.choice(self._scenery.answered[-200:]).request)

    def learn(self, asked: Asked) -> list[Ask]:
        """Take over what an answer brought; what is to be asked next because of it."""
        answer, scenery = asked.answer, self._scenery
        if answer is None or not asked.recorded or not scenery.is_new(asked.request.key):
            return []
        with scenery.guard:
            scenery.answered.append(asked)
        if asked.refused:
            return []
        route = asked.request.path.rsplit("/", 1)[-1]
        if route == "datasets":
            return self._learn_opening(answer.body["name"])
        with scenery.guard:
            if route == "allocations":
                scenery.allocations.append((answer.body["dataset"], answer.body["name"]))
            elif route == "reservations":
                scenery.holds.append((answer.body["id"], answer.body["times"]))
            elif route in ("partitions", "budget-changes"):
                scenery.datasets.append(_dataset(answer.body.get("dataset") or answer.body["name"]))
        return []

    def _learn_opening(self, name: str) -> list[Ask]:
        """Some are divided, some get another limit, before anybody spends from them."""
        dataset = _dataset(name)
        if dataset.partitioned:
            return [self.partitions(name)]
        if dataset.kind == "zcdp":
            return [self.change(name, 1)]
        with self._scenery.guard:
            self._scenery.datasets.append(dataset)
        return []


def _dataset(name: str) -> Dataset:
    kind, _, number = name.removesuffix(".held").rpartition("-")
    divided = kind in ("zcdp", "gdp", "rdp-curve") and int(number) % 2 == 0
    return Dataset(name, kind, name.endswith(".held"), divided)
