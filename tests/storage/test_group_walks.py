"""Random walks on two ledgers: what one decides in groups, the other decides one request after another.

The second is decided by the general rule alone, without the shorter ways of plain states. Both must
grant, refuse and answer the same, hold the same totals, and be what their entries say.
"""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from random import Random
from typing import Any, NamedTuple
from unittest import mock

import pytest

from dpledger.accounting.errors import AccountingError
from dpledger.accounting.sampling import Sample, Scheme
from dpledger.accounting.steps import Release
from dpledger.api.responses import ResponseWriter
from dpledger.ledger.authorization import try_charge
from dpledger.ledger.errors import LedgerError
from dpledger.ledger.model.budget import Budget
from dpledger.ledger.model.requests import Authorization, NewAllocation, NewQuota, Settlement, Spend
from dpledger.ledger.ports import IdempotentRequest
from dpledger.ledger.reader import LedgerReader
from dpledger.ledger.receipts import Signer
from dpledger.ledger.results import Grant, ReservationGrant, SpendRefusal, StoredResult
from dpledger.ledger.service import LedgerService
from dpledger.storage.repositories.tokens import TokenRow, TokenStore
from dpledger.storage.repository import SqlStorage
from tests.ledger.builders import ADD_REMOVE
from tests.storage.ledgers import new_dataset

GROUPED, APART = "grouped", "apart"
SECOND = 1_000_000
ACTIONS = 40
TEAMS = {"ann": "lab", "bob": "lab", "eve": "office", "ida": None, "old": "lab"}
ENDED = "old"
ADMIN = "ida"
PARTS = ("north", "south")
ALLOCATED = ("first", "second")
BUDGETS: dict[str, dict[str, Any]] = {
    "zcdp": {"accounting": "zcdp", "rho": 0.5},
    "gdp": {"accounting": "gdp", "mu": 1.0},
    "rdp": {"accounting": "rdp", "epsilon": 2.0, "delta": 1e-5, "additive_delta": 1e-6},
    "floats": {"accounting": "zcdp", "rho": 0.5},
    "plan": {
        "accounting": "plan",
        "epsilon": 8.0,
        "delta": 1e-4,
        "items": [
            {"name": "cap", "zcdp": {"rho": 0.3}},
            {
                "name": "steps",
                "releases": [{"mechanism": "gaussian", "sensitivity": 1.0, "noise_std": 9.0}],
                "times": 12,
            },
        ],
    },
    "shared": {"accounting": "shared", "epsilon": 3.0, "delta": 1e-4},
}
KINDS = [*BUDGETS, "parts-fixed", "parts-private", "zcdp-quota", "shared-quota"]
RELEASES: list[dict[str, Any]] = [
    {"mechanism": "gaussian", "sensitivity": 1.0, "noise_std": 8.0},
    {"mechanism": "gaussian", "sensitivity": 1.0, "noise_std": 9.0},
    {"mechanism": "zcdp", "rho": 0.023},
    {"mechanism": "pure", "epsilon": 0.15},
]
OF_ALLOCATIONS: list[dict[str, Any]] = [
    {"mechanism": "gaussian", "sensitivity": 1.0, "noise_std": 15.0},
    {"mechanism": "gaussian", "sensitivity": 1.0, "noise_std": 22.0},
    {"mechanism": "pure", "epsilon": 0.05},
]
POISSON = Sample(Scheme.POISSON, 0.05)
UNPROVEN = Sample(Scheme.WITHOUT_REPLACEMENT, 0.05)


@dataclass
class Clock:
    at_us: int = 1_700_000_000 * SECOND

    def now_us(self) -> int:
        return self.at_us


class Request(NamedTuple):
    """One of a group; ``priced`` where its charge comes with it."""

    spend: Spend
    priced: bool
    actor: str
    key: str
    request: str


@dataclass
class Walk:
    """Two datasets of one database, and what is asked of both."""

    storage: SqlStorage
    kind: str
    seed: int
    clock: Clock = field(default_factory=Clock)
    made: list[int] = field(default_factory=list)
    asked: int = 0
    earlier: list[Request] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.random = Random(f"{self.kind} {self.seed}")
        self.service = LedgerService(self.storage, self.clock, ResponseWriter(Signer(bytes(32))))
        store = TokenStore(self.storage.database)
        for name, team in TEAMS.items():
            ended = self.clock.at_us if name == ENDED else None
            store.add(TokenRow(name, name.encode(), ("spend",), None, "", 1, revoked_at_us=ended, team=team))
        budget = Budget.from_fields(self.fields, ADD_REMOVE)
        if self.kind == "floats":
            budget = replace(budget, exact=None)
        key = "private" if self.kind == "parts-private" else "fixed"
        for name in (GROUPED, APART):
            self.service.open_dataset(new_dataset(name, budget, partition_key=key), self.call(name))
        if self.kind.startswith("parts"):
            self.both(lambda name, call: self.service.open_partitions(name, PARTS, None, call))
        if self.kind.endswith("quota"):
            self.limit("lab", 0.4)
        self.allocate(ALLOCATED[0])

    @property
    def fields(self) -> dict[str, Any]:
        return BUDGETS.get(self.kind.partition("-")[0], BUDGETS["zcdp"])

    @property
    def allocates(self) -> bool:
        return self.kind.startswith("shared")

    def call(self, key: str, actor: str = ADMIN, request: str = "r") -> IdempotentRequest:
        hashed = [hashlib.blake2b(text.encode(), digest_size=16).digest() for text in (key, request)]
        return IdempotentRequest(actor, *hashed)

    def fresh(self, actor: str = ADMIN) -> Callable[[str], IdempotentRequest]:
        self.asked += 1
        number = self.asked
        return lambda name: self.call(f"{name} {number}", actor)

    # What is asked.

    def both(self, work: Callable[[str, IdempotentRequest], Any], actor: str = ADMIN) -> Any:
        """Ask the same of both, and return the first's answer."""
        call = self.fresh(actor)
        found = [_tried(partial(work, name, call(name))) for name in (GROUPED, APART)]
        assert _said(found[0]) == _said(found[1])
        return found[0]

    def spend(self) -> Spend:
        random = self.random
        releases = (Release.from_fields(random.choice(OF_ALLOCATIONS if self.allocates else RELEASES)),)
        sample = random.choices([Sample(), POISSON, UNPROVEN], [16, 3, 1])[0]
        part = random.choice([None, *PARTS, "nowhere"]) if self.kind.startswith("parts") else None
        allocation = random.choice([*ALLOCATED, "nowhere"]) if self.allocates else None
        allocation = random.choices([allocation, None, "nowhere"], [18, 1, 1])[0]
        seen = random.choice(self.made) if self.made and random.random() < 0.1 else None
        item = random.choice([None, "cap", "steps", "nothing"]) if self.kind == "plan" else None
        return Spend("", random.choice("ab"), releases, sample, "", part, seen, item, allocation)

    def group(self) -> list[Request]:
        """Requests, many of them equal neighbours; some were asked before, or come under a key that was."""
        random, group = self.random, list[Request]()
        for _ in range(random.randint(1, 6)):
            spend, priced = self.spend(), random.random() < 0.5
            actor = random.choices(list(TEAMS), [6, 2, 3, 3, 1])[0]
            for _ in range(random.choice([1, 1, 2, 5])):
                self.asked += 1
                actor = actor if random.random() < 0.8 else random.choice(list(TEAMS))
                group.append(Request(spend, priced, actor, f"step {self.asked}", repr(spend)))
            self.earlier += group[-1:]
            if random.random() < 0.3:
                again = random.choice(self.earlier[-random.choice([3, 1000]) :])
                group.append(again if random.random() < 0.8 else again._replace(request="another"))
        return group

    def authorize(self) -> None:
        group = self.group()
        together = self.requests(GROUPED, group)
        grouped = self.service.batches.decide(GROUPED, together)
        apart: list[Any] = []
        with generally():
            for request in self.requests(APART, group):
                apart += self.service.batches.decide(APART, [request])
        assert [_said(each) for each in grouped] == [_said(each) for each in apart]
        self.made += [each.entry.sequence for each in grouped if isinstance(each, Grant)]

    def requests(self, name: str, group: Sequence[Request]) -> list[Authorization]:
        """Equal spends and their charges are one object each, as the fast path has them."""
        spends: dict[int, Spend] = {}
        found = []
        for spend, priced, actor, key, request in group:
            own = spends.setdefault(id(spend), replace(spend, dataset=name))
            charge = try_charge(self.service._executor, own) if priced else None
            known = None if isinstance(charge, (LedgerError, AccountingError)) else charge
            found.append(Authorization(own, self.call(key, actor, request), known))
        return found

    def many(self) -> None:
        """A list in one request beside one request for each item, or for the whole by the general rule."""
        random = self.random
        mode, count = random.choice(["each", "all-or-nothing"]), random.choice([1, 3, 6, 20])
        spends, actor = [self.spend() for _ in range(count)], random.choice(["ann", "eve", "ida"])
        call = self.fresh(actor)
        given = [replace(each, dataset=GROUPED) for each in spends]
        grouped = _tried(lambda: self.service.authorize_all(given, mode, call(GROUPED)))
        with generally():
            own = [replace(each, dataset=APART) for each in spends]
            lists = [[each] for each in own] if mode == "each" else [own]
            found = [
                _tried(partial(self.service.authorize_all, part, mode, self.fresh(actor)(APART)))
                for part in lists
            ]
        if isinstance(grouped, Exception):
            assert [_said(each) for each in found] == [_said(grouped)]
            return
        said = [_said(item) for part in found for item in part.items]
        assert [_said(item) for item in grouped.items] == said

    def reserve(self) -> None:
        spend, times = self.spend(), self.random.randint(1, 4)
        seconds, actor = self.random.choice([5.0, 50.0, 5000.0]), self.random.choice(["ann", "eve", "ida"])
        self.both(
            lambda name, call: self.service.reserve(replace(spend, dataset=name), times, seconds, call), actor
        )

    def settle(self) -> None:
        held = self.storage.open_reservations(self.storage.dataset(GROUPED).state.dataset_id, 0, 100)
        if held:
            one, used = self.random.choice(held), self.random.randint(0, 5)
            self.both(
                lambda name, call: self.service.settle(Settlement(name, one.sequence, used), call), one.actor
            )

    def limit(self, team: str | None = None, fraction: float | None = None) -> None:
        team, window = team or self.random.choice(["lab", "office"]), self.random.choice([None, 64])
        fraction = fraction or self.random.choice([None, 0.1, 0.4, 1.0])
        quota = NewQuota(team, fraction, window, "agreed")
        self.both(lambda name, call: self.service.change_quota(name, quota, call))

    def allocate(self, name: str | None = None) -> None:
        if self.allocates:
            named = name or self.random.choice([*ALLOCATED, f"more {self.asked}"])
            inside = {"accounting": self.random.choice(["zcdp", "rdp", "gdp"])}
            asked = NewAllocation(named, self.random.choice([0.8, 1.2]), 1e-5, inside)
            actor = self.random.choice(["ann", "eve", "ida"])
            self.both(lambda dataset, call: self.service.allocate(dataset, asked, call), actor)

    def give_back(self) -> None:
        if self.allocates:
            name = self.random.choice(ALLOCATED)
            self.both(
                lambda dataset, call: self.service.return_allocation(dataset, name, "unused", True, call)
            )

    def change(self) -> None:
        if self.kind not in ("plan", "floats"):
            fields = dict(self.fields)
            name = next(each for each in ("rho", "mu", "epsilon") if each in fields)
            fields[name] *= self.random.choice([0.5, 1.0, 1.5])
            at = self.storage.dataset(GROUPED).state.sequence
            self.both(lambda name, call: self.service.change_budget(name, fields, "agreed", at, call))

    def wait(self) -> None:
        self.clock.at_us += self.random.choice([1, 3, 17, 64, 70, -30]) * SECOND

    def forget(self) -> None:
        """Another replica decides on, which knows nothing."""
        self.storage.database.known.clear()
        self.service = LedgerService(self.storage, self.clock, ResponseWriter(Signer(bytes(32))))

    def expire(self) -> None:
        self.service.expire_due()

    # What must hold.

    def check(self) -> None:
        reader = LedgerReader(self.storage)
        for name in (GROUPED, APART):
            verdict = reader.verification(name)
            assert (verdict["valid"], verdict["problems"]) == (True, [])
        assert self.stored(GROUPED) == self.stored(APART)

    def stored(self, name: str) -> list[Any]:
        """All that is kept but hashes, which cover the name, and sums by run, whose rounding may differ."""
        row = self.storage.dataset(name)
        state, number = row.state, row.state.dataset_id
        extremes = [getattr(state.extremes, each).tolist() for each in ("headroom", "first", "second")]
        parts = [(each.name, _totals(each.totals)) for each in self.storage.partitions(number, -1, 100)]
        opened = self.storage.allocations(number, 0, 100)
        allocations = [(each.name, _totals(each.totals), each.entries, each.returned) for each in opened]
        quotas = [each.document for each in self.storage.quotas(number, 0, 100)]
        runs = [(each.name, each.entries) for each in self.storage.runs(number, "", 100)]
        return [state.sequence, _totals(state.whole), extremes, parts, allocations, quotas, runs]


@contextmanager
def generally() -> Iterator[None]:
    """No state counts as plain, so that everything is decided by the general rule."""
    with (
        mock.patch("dpledger.ledger.decide.is_plain", return_value=False),
        mock.patch("dpledger.ledger.unit_of_work.is_plain", return_value=False),
    ):
        yield


def _tried(work: Callable[[], Any]) -> Any:
    try:
        return work()
    except (LedgerError, AccountingError) as error:
        return error


def _said(answer: Any) -> Any:
    """What an answer says, without the dataset's name and what follows from it."""
    if isinstance(answer, Exception):
        return type(answer), str(answer).replace(GROUPED, APART)
    if isinstance(answer, (Grant, ReservationGrant)):
        entry = answer.entry.canonical
        return type(answer), entry, answer.fraction, answer.budget.target, answer.replayed
    if isinstance(answer, SpendRefusal):
        refused = answer.refused
        quota = None if refused.quota is None else refused.quota.document
        left = refused.amounts.tolist(), refused.remaining, refused.sequence, refused.fits
        return ("again", "refused") if answer.replayed else (type(answer), left, quota)
    if isinstance(answer, StoredResult):  # a group answers from memory what it has refused itself
        return "again", answer.outcome
    return type(answer), getattr(answer, "sequence", None)


def _totals(totals: Any) -> Any:
    return (totals.spent.tolist(), totals.reserved.tolist(), totals.open_reservations)


def walk(storage: SqlStorage, kind: str, seed: int, actions: int) -> None:
    walked = Walk(storage, kind, seed)
    ways = {
        walked.authorize: 5,
        walked.many: 2,
        walked.reserve: 3,
        walked.settle: 2,
        walked.limit: 1,
        walked.allocate: 2,
        walked.give_back: 1,
        walked.change: 1,
        walked.wait: 3,
        walked.forget: 1,
        walked.expire: 1,
    }
    for _ in range(actions):
        walked.random.choices(list(ways), list(ways.values()))[0]()
    walked.check()


@pytest.mark.parametrize("kind", KINDS)
def test_a_group_decides_what_one_after_another_would(storage: SqlStorage, kind: str) -> None:
    walk(storage, kind, 1, ACTIONS)
