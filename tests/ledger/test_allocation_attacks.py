"""Adversaries against allocations, by exact enumeration over everything that they may do.

An adversary opens allocations, spends, reserves, settles and returns in any order, each action chosen from
all outputs so far; the ledger's own ``decide`` grants or refuses. What is released is the worst that a step's
declared (ε₀, δ₀) allows: randomized response with ratio e^ε₀, and with probability δ₀ the truth. The value
of an adversary is the hockey-stick divergence of its whole transcript at the dataset's ε, in rational
numbers; the best adversary is found by looking at all of them.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, ClassVar, Literal

import numpy as np
import pytest

from dpledger.accounting.cost import Cost
from dpledger.accounting.exact import Exact, as_given
from dpledger.accounting.sampling import Adjacency
from dpledger.accounting.steps import Step
from dpledger.accounting.theorem import Theorem
from dpledger.accounting.validation import Floats
from dpledger.ledger.charges import charge_for
from dpledger.ledger.decide import Granted, Stamp, decide
from dpledger.ledger.model.allocation import Allocation, inner_budget
from dpledger.ledger.model.budget import Budget
from dpledger.ledger.model.commands import (
    Allocate,
    Authorize,
    Command,
    Reservation,
    Reserve,
    ReturnAllocation,
    Settle,
)
from dpledger.ledger.model.entries import Charge
from dpledger.ledger.model.filter import Filter, Meter, read_epsilon_delta, read_target, register, unregister
from dpledger.ledger.model.state import ExactTotals, LedgerState
from tests.ledger.builders import ADD_REMOVE, budget_of, opened

EPSILON, DELTA = 1.2, 0.03125
"""Of the dataset; large, so that what breaks the claim breaks it by far. No double of it is rounded up."""


class BasicFilter(Filter):
    """Σε ≤ ε_j and Σδ ≤ δ_j of steps that declare both: nothing is lost inside, so the claim is sharp."""

    name = "basic"
    fields = frozenset({"epsilon", "delta", "additive_delta"})
    theorem = Theorem("basic", "Σε ≤ ε, Σδ ≤ δ", "adaptive", "Rogers et al. 2016")
    summary = "basic composition"
    picture: ClassVar[Literal["sum", "curve", "items"]] = "sum"

    def open(self, fields: dict[str, Any], adjacency: Adjacency) -> Budget:
        epsilon, delta, _ = read_epsilon_delta(fields)
        return Budget(
            self.name, np.empty(0), np.array([epsilon, delta]), read_target(fields, "epsilon", "delta")
        )

    def read_limits(self, budget: Budget) -> list[Fraction]:
        return [as_given(float(budget.limits[0]))]

    def change(self, budget: Budget, fields: dict[str, Any], adjacency: Adjacency) -> Budget:
        return self.open(fields, adjacency)

    def cost(self, budget: Budget, step: Step) -> Cost:
        return Cost(np.empty(0), np.empty(0), step.releases[0].fields()["delta"])

    def amounts(self, budget: Budget, step: Step, cost: Cost, item: str | None) -> Floats:
        return np.array([step.releases[0].fields()["epsilon"], cost.delta])

    def exact_amounts(self, budget: Budget, step: Step, amounts: Floats) -> Exact:
        return Exact.of([as_given(each) for each in amounts.tolist()])

    def coordinates(self, budget: Budget, amounts: Floats) -> dict[str, Any]:
        return {"epsilon": float(amounts[0])}

    def meters(self, budget: Budget, amounts: Floats) -> list[Meter]:
        return [Meter("ε", float(amounts[0]), float(budget.limits[0]))]

    def indicative_epsilon(self, budget: Budget, amounts: Floats, delta: float) -> float | None:
        return float(amounts[0])


@pytest.fixture(autouse=True)
def _basic() -> Iterator[None]:
    register(BasicFilter())
    yield
    unregister("basic")


@dataclass(frozen=True)
class Release:
    """A step of declared (ε₀, δ₀), and the worst pair of distributions that satisfies it."""

    epsilon: float
    delta: float

    @property
    def fields(self) -> dict[str, Any]:
        return {"mechanism": "approximate", "epsilon": self.epsilon, "delta": self.delta}

    def outcomes(self) -> list[tuple[Fraction, Fraction]]:
        """The probabilities of each outcome on either dataset; the ratio is at most e^ε₀."""
        ratio, gives_away = Fraction(math.exp(self.epsilon)).limit_denominator(64), as_given(self.delta)
        while ratio > Fraction(math.exp(self.epsilon) * (1 - 1e-12)):
            ratio -= Fraction(1, 64)
        likely, rest = ratio / (1 + ratio), 1 - gives_away
        return [
            (gives_away, Fraction(0)),
            (Fraction(0), gives_away),
            (rest * likely, rest * (1 - likely)),
            (rest * (1 - likely), rest * likely),
        ]


@dataclass(frozen=True, eq=False)
class Node:
    """Where a game stands: the ledger, its allocations, and open reservations with what ran of each."""

    state: LedgerState
    allocations: tuple[Allocation, ...] = ()
    holds: tuple[tuple[Reservation, int], ...] = ()

    def after(self, command: Command) -> "Node | None":
        """The game after a command; None where the ledger refuses it."""
        outcome = decide(self.state, command, Stamp(1, "eve"))
        if not isinstance(outcome, Granted):
            return None
        moved = outcome.allocation
        if moved is None:
            return replace(self, state=outcome.state)
        others = {each.name: each for each in (*self.allocations, moved)}
        return replace(self, state=outcome.state, allocations=tuple(others.values()))


@dataclass(frozen=True)
class Game:
    """What an adversary may do, and how long."""

    kind: dict[str, Any]
    offers: tuple[tuple[float, float], ...]
    releases: tuple[Release, ...]
    returns_used: bool = False
    """Whether an allocation may be returned after something was released from it: unsound."""
    refunds_used: bool = False
    """Whether a settlement may say that nothing ran when something did: a lie."""

    def value(self, actions: int) -> Fraction:
        """The best adversary's hockey-stick divergence at the dataset's ε, rounded up."""
        budget = budget_of(accounting="shared", epsilon=EPSILON, delta=DELTA)
        return self._best(Node(opened(budget)[0]), Fraction(1), Fraction(1), actions)

    def _best(self, node: Node, p: Fraction, q: Fraction, actions: int) -> Fraction:
        stopped = max(Fraction(0), p - EXP_EPSILON * q)
        if not actions or not p:
            return stopped
        if not q:
            return p
        moves = [
            sum((self._best(then, p * a, q * b, actions - 1) for a, b in outcomes), Fraction(0))
            for then, outcomes in self._moves(node)
        ]
        return max([stopped, *moves])

    def _moves(self, node: Node) -> Iterator[tuple[Node, list[tuple[Fraction, Fraction]]]]:
        """Every action, the game after it, and the probabilities of what it releases."""
        silent = [(Fraction(1), Fraction(1))]
        for epsilon, delta in self.offers:
            inside = inner_budget(self.kind, epsilon, delta, ADD_REMOVE)
            name = f"part-{len(node.allocations)}"
            then = node.after(Allocate(name, "eve", epsilon, delta, inside))
            if then is not None:
                yield then, silent
        for allocation in node.allocations:
            yield from self._spends(node, allocation)
            then = self._give_back(node, allocation)
            if then is not None:
                yield then, silent
        for at, (held, ran) in enumerate(node.holds):
            yield from self._uses(node, at, held, ran)

    def _spends(
        self, node: Node, allocation: Allocation
    ) -> Iterator[tuple[Node, list[tuple[Fraction, Fraction]]]]:
        for release in self.releases:
            charge = self._charge(allocation, release)
            then = node.after(Authorize(charge, "run", allocation=allocation))
            if then is not None:
                yield then, release.outcomes()
            reserve = Reserve(charge, "run", 2, 10**9, allocation=allocation)
            then = None if node.holds else node.after(reserve)
            if then is not None:
                held = Reservation(then.state.sequence, charge, "run", 2, 10**9, None, "eve", allocation)
                yield replace(then, holds=((held, 0),)), [(Fraction(1), Fraction(1))]

    def _charge(self, allocation: Allocation, release: Release) -> Charge:
        step = Step.from_fields([release.fields], None, "add-remove")
        return charge_for(allocation.budget, step, "", allocated=True)

    def _uses(
        self, node: Node, at: int, held: Reservation, ran: int
    ) -> Iterator[tuple[Node, list[tuple[Fraction, Fraction]]]]:
        others = (*node.holds[:at], *node.holds[at + 1 :])
        if ran < held.times:
            fields = held.charge.step.releases[0].fields()
            release = Release(fields["epsilon"], fields["delta"])
            yield replace(node, holds=(*others, (held, ran + 1))), release.outcomes()
        assert held.allocation is not None
        standing = next(each for each in node.allocations if each.name == held.allocation.name)
        stated = 0 if self.refunds_used else ran
        then = node.after(Settle(replace(held, allocation=standing), stated))
        if then is not None:
            yield replace(then, holds=others), [(Fraction(1), Fraction(1))]

    def _give_back(self, node: Node, allocation: Allocation) -> Node | None:
        if self.returns_used and not (allocation.returned or allocation.totals.open_reservations):
            allocation = replace(allocation, releases=0, totals=_emptied(allocation))
        if not allocation.is_untouched:
            return None
        return node.after(ReturnAllocation(allocation, "reason"))


def _emptied(allocation: Allocation) -> ExactTotals:
    return ExactTotals.zero(allocation.budget.size)


EXP_EPSILON = Fraction(math.exp(EPSILON) * (1 - 1e-12))
"""e^ε, rounded down."""
WHOLE, HALF = (1.2, DELTA), (0.6, DELTA / 2)
LOUD, QUIET = Release(0.6, DELTA / 2), Release(0.3, DELTA / 4)
SHARP = Game({"accounting": "basic"}, (WHOLE, HALF), (LOUD,))


@pytest.mark.parametrize(
    ("game", "actions"),
    [
        (SHARP, 8),
        (Game({"accounting": "basic"}, (HALF,), (LOUD, QUIET)), 7),
        (Game({"accounting": "basic"}, (HALF, (0.3, DELTA * 3 / 4), (0.9, DELTA / 4)), (QUIET,)), 6),
        (Game({"accounting": "basic"}, (WHOLE,), (Release(1.2, DELTA), QUIET)), 7),
    ],
)
def test_no_adversary_exceeds_delta_at_epsilon(game: Game, actions: int) -> None:
    value = game.value(actions)

    assert value <= as_given(DELTA)
    assert value >= Fraction(9, 10) * as_given(DELTA)  # an adversary that gets nearly all of it is among them


@pytest.mark.parametrize(
    "kind",
    [
        {"accounting": "zcdp", "additive_delta": DELTA / 4},
        {"accounting": "rdp", "additive_delta": DELTA / 4},
        {"accounting": "rdp-order", "additive_delta": DELTA / 4, "order": 8},
    ],
    ids=lambda kind: kind["accounting"],
)
def test_no_adversary_exceeds_it_with_the_ledgers_own_kinds_inside(kind: dict[str, Any]) -> None:
    """Steps are what these filters grant several of; each allocation's additive δ is a part of its own."""
    game = Game(kind, (HALF, WHOLE), (Release(0.1, DELTA / 8),))

    value = game.value(6)

    assert Fraction(0) < value <= as_given(DELTA)


def test_returning_what_was_released_from_would_break_it() -> None:
    value = replace(SHARP, returns_used=True).value(7)

    assert value > 2 * as_given(DELTA)


def test_refunding_what_ran_would_break_it() -> None:
    game = Game({"accounting": "basic"}, (WHOLE,), (LOUD,))
    assert game.value(6) <= as_given(DELTA)

    assert replace(game, refunds_used=True).value(6) > as_given(DELTA)


def test_one_release_of_all_that_is_claimed_is_granted_and_attains_it() -> None:
    whole = Game({"accounting": "basic"}, (WHOLE,), (Release(1.2, DELTA),))
    beyond = Game({"accounting": "basic"}, (WHOLE,), (Release(1.2, DELTA * 1.0001),))

    assert whole.value(2) == as_given(DELTA)
    assert beyond.value(2) == 0
