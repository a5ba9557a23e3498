"""What is proven of all outputs together, after a budget was changed."""

import itertools
from typing import Any

import numpy as np
import pytest
from scipy import signal, special, stats

from dpledger.accounting import filters
from dpledger.accounting.conversion.renyi import epsilon_at
from dpledger.accounting.cost import Cost
from dpledger.accounting.gaussian_profile import gaussian_mu_within
from dpledger.accounting.validation import Floats
from dpledger.ledger.decide import Granted, Stamp, decide
from dpledger.ledger.guarantee import covering, guarantee_fields, limit_warnings
from dpledger.ledger.model.budget import Budget
from dpledger.ledger.model.commands import ChangeBudget
from dpledger.ledger.model.state import LedgerState
from tests.ledger.builders import ADD_REMOVE, BUDGETS, PLAN, budget_of, opened

STAMP = Stamp(1, "admin")


def changed(state: LedgerState, **fields: Any) -> LedgerState:
    """The state after another limit under the same rule."""
    budget = state.budget.with_limit({"accounting": state.budget.accounting, **fields}, ADD_REMOVE)
    granted = decide(state, ChangeBudget(budget, "a reason"), STAMP)
    assert isinstance(granted, Granted)
    return granted.state


def test_the_largest_limit_stays_when_the_limit_is_lowered() -> None:
    state, _ = opened(budget_of(accounting="zcdp", rho=0.5))

    lowered = changed(state, rho=0.2)
    raised = changed(lowered, rho=0.4)
    above = changed(raised, rho=0.9)

    assert [guarantee_fields(each) for each in (state, lowered, raised, above)] == [
        {"rho": 0.5, "since": 1, "lowered": False},
        {"rho": 0.5, "since": 1, "lowered": True},
        {"rho": 0.5, "since": 1, "lowered": True},
        {"rho": 0.9, "since": 4, "lowered": False},
    ]
    assert limit_warnings(above) == []
    (warning,) = limit_warnings(lowered)
    assert "what is still to come" in warning
    assert "rho 0.5" in warning


@pytest.mark.parametrize("accounting", ["zcdp", "gdp"])
def test_the_larger_number_has_its_own_epsilon_and_delta(accounting: str) -> None:
    state, _ = opened(budget_of(accounting=accounting, epsilon=1.0, delta=1e-5))

    after = changed(state, epsilon=2.0, delta=1e-8)

    larger = max((state.budget, after.budget), key=lambda each: float(each.limits[0]))
    assert after.guarantee is larger


def test_rdp_limits_that_cross_are_covered_by_the_larger_epsilon_and_delta() -> None:
    state, _ = opened(budget_of(accounting="rdp", epsilon=1.0, delta=1e-4))
    after = changed(state, epsilon=2.0, delta=1e-9)
    limits = np.maximum(state.budget.limits, after.budget.limits)

    assert not (state.budget.limits <= after.budget.limits).all()
    assert not (state.budget.limits >= after.budget.limits).all()
    assert after.guarantee.target == {"epsilon": 2.0, "delta": 1e-4}
    assert np.array_equal(after.guarantee.limits, limits)
    weights = after.budget.weights
    assert weights is not None
    allowed = filters.order_budgets(2.0, 1e-4, after.budget.orders, weights)
    assert (limits[:-1] <= allowed).all()


@pytest.mark.parametrize("accounting", ["rdp", "rdp-order", "zcdp", "gdp"])
def test_additive_shares_that_changed_add_up(accounting: str) -> None:
    """The filter's share of one and the additive share of the other: the larger δ alone is too little."""
    state, _ = opened(budget_of(accounting=accounting, epsilon=1.0, delta=1e-5))
    after = changed(state, epsilon=1.0, delta=1e-5, additive_delta=9e-6)

    target = after.guarantee.target

    assert target["epsilon"] == 1.0
    assert 1.9e-5 <= target["delta"] <= 1.9e-5 * (1 + 1e-12)
    assert target["additive_delta"] == 9e-6
    again = changed(after, epsilon=1.0, delta=1e-5)
    assert again.guarantee is after.guarantee


def test_equal_additive_shares_leave_the_larger_delta() -> None:
    state, _ = opened(budget_of(accounting="rdp", epsilon=1.0, delta=1e-4, additive_delta=1e-6))

    after = changed(state, epsilon=2.0, delta=1e-5, additive_delta=1e-6)

    assert after.guarantee.target == {"epsilon": 2.0, "delta": 1e-4, "additive_delta": 1e-6}


def test_curves_that_cross_are_converted_anew() -> None:
    state, _ = opened(budget_of(accounting="rdp-curve", epsilon=1.0, delta=1e-5, plan=PLAN))
    steeper = Budget(
        "rdp-curve",
        state.budget.orders,
        np.where(np.arange(state.budget.size) < 4, 2.0, 0.5) * state.budget.limits,
        {"epsilon": 1.0, "delta": 1e-5},
    )

    both = covering(state.guarantee, steeper)

    curve = np.maximum(state.budget.limits, steeper.limits)[:-1]
    assert both.target["epsilon"] == epsilon_at(Cost(state.budget.orders, curve), 1e-5)[0]
    assert both.target["delta"] == 1e-5


def test_terms_that_one_budget_lacks_are_not_claimed() -> None:
    state, _ = opened(budget_of(accounting="zcdp", epsilon=1.0, delta=1e-5))
    rho = state.budget.target["rho"]

    after = changed(state, rho=rho / 2, additive_delta=1e-6)

    assert after.guarantee.target == {"rho": rho, "additive_delta": 1e-6}


@pytest.mark.parametrize("fields", BUDGETS)
def test_whatever_any_limit_lets_in_the_guarantee_lets_in(fields: dict[str, Any]) -> None:
    first = Budget.from_fields(fields, ADD_REMOVE)
    random = np.random.default_rng(7)
    seen, guarantee = [first], first
    for _ in range(30):
        factors = np.exp(random.normal(size=first.size))
        seen.append(
            Budget(first.accounting, first.orders, first.limits * factors, first.target, first.weights)
        )
        guarantee = covering(guarantee, seen[-1])

    for budget, _ in itertools.product(seen, range(20)):
        amounts = budget.limits * np.exp(random.normal(size=first.size))
        assert not budget.admits(amounts) or guarantee.admits(amounts)


# The attack: raised sixty times, and stopped where the loss passed the limit of that moment.

DELTA = 1e-3
EPSILONS = np.linspace(0.5, 8.0, 61)
MU_SQUARED = np.array([gaussian_mu_within(float(epsilon), DELTA) ** 2 for epsilon in EPSILONS])


def hockey_stick(losses: Floats, epsilon: float) -> Floats:
    gain: Floats = -special.expm1(np.minimum(0.0, epsilon - losses))
    return gain


def true_deltas() -> tuple[float, float]:
    """E[(1 − e^(ε − L))₊] at the ε last raised to, and at the largest ε, by convolution of exact Gaussians.

    After spending μ² the loss is N(μ²/2, μ²); each further Gaussian adds an independent one. The strategy
    spends all that each limit allows, and stops raising when the loss is above the limit's ε.
    """
    top = float(MU_SQUARED[-1])
    losses = np.linspace(-12.0 * np.sqrt(top), 12.0 * np.sqrt(top) + top, 20_001)
    width = float(losses[1] - losses[0])
    shifts = width * np.arange(1 - losses.size, losses.size)
    density = stats.norm.pdf(losses, MU_SQUARED[0] / 2.0, np.sqrt(MU_SQUARED[0])) * width
    last_shown = largest = 0.0
    for number, epsilon in enumerate(EPSILONS):
        ended = np.where((losses > epsilon) | (number == 60), density, 0.0)
        last_shown += float(ended @ hockey_stick(losses, epsilon))
        largest += float(ended @ hockey_stick(losses, EPSILONS[-1]))
        if number < 60:
            more = MU_SQUARED[number + 1] - MU_SQUARED[number]
            steps = stats.norm.pdf(shifts, more / 2.0, np.sqrt(more)) * width
            density = signal.fftconvolve(density - ended, steps)[losses.size - 1 : 2 * losses.size - 1]
    return last_shown, largest


def test_raises_that_stop_at_the_loss_exceed_the_limit_last_shown_but_not_the_guarantee() -> None:
    """Opened with the largest limit and lowered at once: that guarantee is shown wherever it stops."""
    state, _ = opened(budget_of(accounting="gdp", epsilon=float(EPSILONS[-1]), delta=DELTA))
    for epsilon in EPSILONS:
        state = changed(state, epsilon=float(epsilon), delta=DELTA)
        assert state.budget.target["epsilon"] == epsilon
        assert guarantee_fields(state)["epsilon"] == 8.0
        assert guarantee_fields(state)["since"] == 1

    last_shown, largest = true_deltas()

    assert last_shown == pytest.approx(5.48 * DELTA, rel=0.01)
    assert largest <= DELTA
