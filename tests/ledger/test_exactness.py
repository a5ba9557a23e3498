"""What is granted is what exact arithmetic on the numbers as given grants; that is written down anew here."""

import hashlib
from dataclasses import replace
from fractions import Fraction
from typing import Any

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpledger.accounting.exact import MOST_BITS, Exact
from dpledger.ledger.decide import Granted, Stamp, authorize_in_a_row
from dpledger.ledger.model.budget import Budget
from dpledger.ledger.model.commands import Authorize
from dpledger.ledger.model.entries import Charge
from dpledger.ledger.model.state import ExactTotals
from dpledger.ledger.replay import Replay, differences
from tests.ledger.builders import ADD_REMOVE, POISSON, budget_of, charge_of, gaussian
from tests.ledger.driver import Driver

APPROXIMATE = {"mechanism": "approximate", "epsilon": 0.01}


def granted(driver: Driver, charge: Charge, most: int = 10_000) -> int:
    for times in range(most):
        if not isinstance(driver.authorize(charge), Granted):
            return times
    return most


def paper(text: str) -> Fraction:
    return Fraction(text)


@pytest.mark.parametrize(
    ("budget", "release", "times"),
    [
        ({"accounting": "zcdp", "rho": 1.0}, {"noise_std": 1.0}, 2),
        ({"accounting": "zcdp", "rho": 0.5}, {"noise_std": 10.0}, 100),
        ({"accounting": "zcdp", "rho": 1.0}, {"noise_std": 3.0}, 18),
        ({"accounting": "zcdp", "rho": 0.3}, {"sensitivity": 0.1, "noise_std": 0.1}, 0),
        ({"accounting": "zcdp", "rho": 50.0}, {"noise_std": 1.1}, 121),
        ({"accounting": "gdp", "mu": 1.0}, {"noise_std": 10.0}, 100),
        ({"accounting": "gdp", "mu": 0.3}, {"sensitivity": 0.1, "noise_std": 1.0}, 9),
        ({"accounting": "rdp-curve", "orders": [1.1], "epsilons": [1.1]}, {"noise_std": 1.0}, 2),
        ({"accounting": "rdp-curve", "orders": [2, 4.7], "epsilons": [0.3, 0.705]}, {"noise_std": 10.0}, 30),
    ],
)
def test_a_round_budget_is_used_up_to_its_last_step(
    budget: dict[str, Any], release: dict[str, Any], times: int
) -> None:
    driver = Driver.of(Budget.from_fields(budget, ADD_REMOVE))
    charge = charge_of(driver.state.budget, {"mechanism": "gaussian", "sensitivity": 1.0, **release})
    stamps = [Stamp(1, "ann")] * (times + 3)
    in_a_row, _, _ = authorize_in_a_row(driver.state, Authorize(charge, "run"), stamps)

    assert granted(driver, charge) == times == len(in_a_row)
    if times:
        assert driver.state.fraction_left(None) == 0.0


def test_additive_deltas_that_add_up_to_the_limit_are_granted() -> None:
    driver = Driver.of(budget_of(accounting="zcdp", rho=1.0, additive_delta=0.3))
    tenth, fifth = (charge_of(driver.state.budget, {**APPROXIMATE, "delta": d}) for d in (0.1, 0.2))

    assert isinstance(driver.authorize(tenth), Granted)
    assert isinstance(driver.authorize(fifth), Granted)
    assert driver.state.shown_for(None)[-1] == 0.3
    assert not isinstance(
        driver.authorize(charge_of(driver.state.budget, {**APPROXIMATE, "delta": 1e-300})), Granted
    )


def test_a_sampled_delta_is_its_rate_times_it_on_paper() -> None:
    driver = Driver.of(budget_of(accounting="rdp", epsilon=9.0, delta=0.4, additive_delta=0.3))
    sampled = charge_of(
        driver.state.budget, {**APPROXIMATE, "delta": 0.1}, sample={"scheme": "poisson", "rate": 0.1}
    )

    assert granted(driver, sampled) == 30


def test_reservations_hold_settle_and_expire_exactly() -> None:
    driver = Driver.of(budget_of(accounting="zcdp", rho=1.0))
    charge = gaussian(driver.state.budget, 3.0)  # ρ = 1/18, which is no decimal

    driver.reserve(charge, 17)
    assert isinstance(driver.authorize(charge), Granted)
    assert not isinstance(driver.authorize(charge), Granted)
    driver.close(2, 5)
    assert isinstance(driver.reserve(charge, 12), Granted)
    driver.close(max(driver.held), None)

    assert driver.state.shown_for(None)[0] == 1.0
    assert not isinstance(driver.authorize(charge), Granted)


def test_a_partition_is_used_up_to_its_last_step() -> None:
    driver = Driver.of(budget_of(accounting="zcdp", rho=1.0))
    driver.open("a", "b")
    charge = gaussian(driver.state.budget, 3.0)
    for _ in range(9):
        driver.authorize(charge)

    for number in (0, 1):
        assert [isinstance(driver.authorize(charge, number), Granted) for _ in range(10)] == [True] * 9 + [
            False
        ]


# Decimals as they are written; what they are on paper is what decides.
decimals = st.tuples(st.integers(1, 9999), st.integers(0, 4)).map(lambda pair: f"{pair[0]}e-{pair[1]}")
round_numbers = st.sampled_from(["1", "2", "3", "0.5", "0.1", "0.2", "0.3", "2.5", "10", "1.1", "0.7"])
numbers = st.one_of(round_numbers, decimals)
ORDERS = ["1.1", "2", "4.7", "16"]


@st.composite
def releases(draw: st.DrawFn) -> dict[str, str]:
    kind = draw(st.sampled_from(["gaussian", "discrete-gaussian", "zcdp", "gdp"]))
    if kind in ("zcdp", "gdp"):
        return {"mechanism": kind, "rho" if kind == "zcdp" else "mu": draw(numbers)}
    return {"mechanism": kind, "sensitivity": draw(numbers), "noise_std": draw(numbers)}


def squared_mu(release: dict[str, str]) -> Fraction:
    if release["mechanism"] == "zcdp":
        return 2 * paper(release["rho"])
    if release["mechanism"] == "gdp":
        return paper(release["mu"]) ** 2
    return (paper(release["sensitivity"]) / paper(release["noise_std"])) ** 2


def as_floats(release: dict[str, str]) -> dict[str, Any]:
    return {name: value if name == "mechanism" else float(value) for name, value in release.items()}


def limits_on_paper(kind: str, size: str, budget: Budget) -> tuple[list[Fraction], list[Fraction]]:
    """Factors of μ² at each coordinate, and the limits there."""
    if kind == "zcdp":
        return [Fraction(1, 2)], [paper(size)]
    if kind == "gdp":
        return [Fraction(1)], [paper(size) ** 2]
    if kind == "rdp-curve":
        return [paper(order) / 2 for order in ORDERS], [paper(size) * paper(order) for order in ORDERS]
    return [Fraction(order) / 2 for order in budget.orders.tolist()], [
        Fraction(limit) for limit in budget.limits[:-1].tolist()
    ]


def budget_for(kind: str, size: str) -> Budget:
    if kind == "rdp-curve":
        curve = [float(paper(size) * paper(order)) for order in ORDERS]
        return budget_of(accounting=kind, orders=[float(order) for order in ORDERS], epsilons=curve)
    if kind in ("zcdp", "gdp"):
        return budget_of(accounting=kind, **{"rho" if kind == "zcdp" else "mu": float(size)})
    return budget_of(accounting=kind, epsilon=5.0 + float(size), delta=1e-5)


def holds(kind: str, spent: Fraction, factors: list[Fraction], limits: list[Fraction]) -> bool:
    within = [spent * factor <= limit for factor, limit in zip(factors, limits, strict=True)]
    return any(within) if kind == "rdp" else all(within)


@pytest.mark.parametrize("kind", ["zcdp", "gdp", "rdp-order", "rdp", "rdp-curve"])
@settings(max_examples=150)
@given(
    size=numbers,
    steps=st.lists(st.tuples(releases(), st.integers(1, 6)), min_size=1, max_size=8),
    data=st.data(),
)
def test_grants_are_those_of_exact_arithmetic(
    kind: str, size: str, steps: list[tuple[dict[str, str], int]], data: Any
) -> None:
    if kind == "gdp":
        steps = [(each, n) for each, n in steps if each["mechanism"] in ("gaussian", "gdp")]
    if steps and kind in ("zcdp", "gdp") and data.draw(st.booleans()):
        # A limit that a whole number of steps meets, where it can be written down.
        size = _met_by(steps[0][0], kind, data.draw(st.integers(1, 40))) or size
    budget = budget_for(kind, size)
    factors, limits = limits_on_paper(kind, size, budget)
    driver, spent = Driver.of(budget), Fraction(0)

    for release, times in steps:
        charge, cost = charge_of(budget, as_floats(release)), squared_mu(release)
        for _ in range(times):
            expected = holds(kind, spent + cost, factors, limits)
            assert isinstance(driver.authorize(charge), Granted) == expected
            spent += cost if expected else 0
        expected = holds(kind, spent + times * cost, factors, limits)
        assert isinstance(driver.reserve(charge, times), Granted) == expected
        if expected:
            used = data.draw(st.integers(0, times))
            driver.close(max(driver.held), used)
            spent += used * cost


def _met_by(release: dict[str, str], kind: str, times: int) -> str | None:
    total = times * squared_mu(release) / (2 if kind == "zcdp" else 1)
    if kind == "gdp":
        return None
    text = repr(float(total))
    return text if Fraction(text) == total and total > 0 else None


@settings(max_examples=60)
@given(
    limit=numbers,
    deltas=st.lists(st.integers(1, 400).map(lambda n: f"{n}e-3"), min_size=1, max_size=8),
    epsilon=st.sampled_from(["0.1", "0.3", "1.7"]),
)
def test_what_is_no_rational_number_is_never_granted_too_often(
    limit: str, deltas: list[str], epsilon: str
) -> None:
    driver = Driver.of(budget_of(accounting="zcdp", rho=float(limit), additive_delta=0.3))
    with mpmath.workdps(60):
        each = mpmath.mpf(epsilon) * mpmath.tanh(mpmath.mpf(epsilon) / 2)
        rho, delta = mpmath.mpf(0), Fraction(0)
        for given_delta in deltas:
            fields = {"mechanism": "approximate", "epsilon": float(epsilon), "delta": float(given_delta)}
            outcome = driver.authorize(charge_of(driver.state.budget, fields))
            fits = delta + paper(given_delta) <= paper("0.3")
            roomy = rho + each * (1 + mpmath.mpf(10) ** -12) <= mpmath.mpf(limit)
            assert isinstance(outcome, Granted) <= (fits and rho + each <= mpmath.mpf(limit))
            assert isinstance(outcome, Granted) or not (fits and roomy)
            if isinstance(outcome, Granted):
                rho, delta = rho + each, delta + paper(given_delta)


@settings(max_examples=40)
@given(
    script=st.lists(
        st.tuples(st.sampled_from([None, 0, 1]), st.sampled_from(["3", "7", "1.1", "0.7", "12"])), max_size=25
    ),
    own=st.booleans(),
)
def test_with_partitions_nothing_is_granted_that_exact_arithmetic_refuses(
    script: list[tuple[int | None, str]], own: bool
) -> None:
    budget = budget_of(accounting="zcdp", rho=1.1)
    driver = Driver.of(budget)
    driver.open("a", budget=budget_of(accounting="zcdp", rho=0.7) if own else None)
    driver.open("b")
    limits = [paper("0.7" if own else "1.1"), paper("1.1")]
    whole, parts = Fraction(0), [Fraction(0), Fraction(0)]

    for number, noise in script:
        cost = 1 / (2 * paper(noise) ** 2)
        outcome = driver.authorize(gaussian(budget, float(noise)), number)
        touched = (0, 1) if number is None else (number,)
        fits = all(whole + parts[each] + cost <= limits[each] for each in touched)
        if number is not None:
            assert isinstance(outcome, Granted) == fits
        roomy = all(
            whole + parts[each] + cost <= limits[each] * (1 - Fraction(1, 10**12)) for each in touched
        )
        assert isinstance(outcome, Granted) <= fits
        assert isinstance(outcome, Granted) or not roomy
        if isinstance(outcome, Granted):
            whole += cost if number is None else 0
            parts = [spent + (cost if number == each else 0) for each, spent in enumerate(parts)]


def test_totals_stay_small_however_many_noise_levels_there_are() -> None:
    driver = Driver.of(budget_of(accounting="rdp", epsilon=50.0, delta=1e-5))
    random = np.random.default_rng(7)
    sums = [Fraction(0)] * driver.state.budget.size
    for noise in random.uniform(20.0, 90.0, 60).tolist():
        charge = gaussian(driver.state.budget, noise)
        assert isinstance(driver.authorize(charge), Granted)
        mu_squared = (1 / Fraction(repr(noise))) ** 2
        orders = [Fraction(order) for order in driver.state.budget.orders.tolist()]
        sums = [
            a + b
            for a, b in zip(sums, [*(order * mu_squared / 2 for order in orders), Fraction(0)], strict=True)
        ]

    assert isinstance(driver.state.whole, ExactTotals)
    kept = driver.state.whole.exact_spent
    assert kept.denominator.bit_length() <= MOST_BITS + 256
    for total, exact in zip(kept.fractions(), sums, strict=True):
        assert exact <= total <= exact + Fraction(60, 2**256)


@given(
    first=st.lists(st.fractions(0, 100, max_denominator=10**6), min_size=3, max_size=3),
    second=st.lists(st.fractions(0, 100, max_denominator=10**6), min_size=3, max_size=3),
    times=st.integers(1, 1000),
)
def test_exact_vectors_add_and_subtract_as_fractions_do(
    first: list[Fraction], second: list[Fraction], times: int
) -> None:
    total = Exact.of(first).plus(Exact.of(second), times)

    assert total.fractions() == [a + times * b for a, b in zip(first, second, strict=True)]
    assert total.minus(Exact.of(second), times).fractions() == first
    assert Exact.from_text(total.text) == total
    assert all(
        Fraction(above) >= value
        for above, value in zip(total.above().tolist(), total.fractions(), strict=True)
    )


def test_what_was_rounded_when_it_was_held_is_never_given_back_in_excess() -> None:
    primes = [2**127 - 1, 2**107 - 1, 2**89 - 1, 2**61 - 1, 10**18 + 9, 10**18 + 3]
    vectors = [Exact((1, 3), prime**3) for prime in primes]
    total = Exact.zero(2)
    for each in vectors:
        total = total.plus(each, 7)
    for each in vectors[:-1]:
        total = total.minus(each, 7)

    assert all(
        left >= 7 * value for left, value in zip(total.fractions(), vectors[-1].fractions(), strict=True)
    )


OLD = [
    (
        '{"accounting":"zcdp","limits":[1.0,1e-06],"orders":[],"target":{"additive_delta":1e-06,"rho":1.0},'
        '"weights":null}',
        16,
        "c12a86282cb4042db7512140296ea21ae07bb37b0d24546b941e959df13d40ef",
        "e82d9238eded93b57a8614e25219bebece20699cfee54b91e10be6397ccc5b64",
    ),
    (
        '{"accounting":"rdp-order","limits":[1.4748253705783423,1e-06],"orders":[16.0],"target":'
        '{"additive_delta":1e-06,"delta":1e-05,"epsilon":2.0},"weights":null}',
        0,
        "e4f9be5f6a9566a2f958c998f5e7cf7e0589d280f022a02a22b3d729811784b8",
        "421ec17d3acbf0bd1ce5332d16aa67313ba788246acf62c61af165f7ea83d21d",
    ),
]
"""Ledgers as the first release wrote them: opening budget, steps granted, last hash, hash of the totals."""


@pytest.mark.parametrize(("document", "times", "head", "totals"), OLD)
def test_a_ledger_from_before_goes_on_bit_for_bit(document: str, times: int, head: str, totals: str) -> None:
    budget = Budget.from_document(document)
    driver = Driver.of(budget)
    small = gaussian(budget, 7.0)
    approximate = charge_of(budget, {**APPROXIMATE, "delta": 1e-7})
    driver.authorize(small)
    driver.authorize(approximate)
    driver.reserve(small, 5)
    driver.close(4, 3)
    driver.reserve(approximate, 4)
    driver.close(6, None)
    driver.open("a", "b")
    driver.authorize(small, 0)
    driver.authorize(small)

    assert granted(driver, gaussian(budget, 3.0)) == times
    state = driver.state
    vectors = (state.whole.spent, state.extremes.headroom, driver.partitions[0].totals.spent)
    assert budget.document == document
    assert state.head.hex() == head
    assert hashlib.sha256(b"".join(vector.tobytes() for vector in vectors)).hexdigest() == totals


def test_an_old_budget_that_is_changed_goes_on_in_floats() -> None:
    old = replace(budget_of(accounting="zcdp", rho=1.0), exact=None)

    changed = old.with_limit({"accounting": "zcdp", "rho": 2.0}, ADD_REMOVE)

    assert changed.exact is None
    assert budget_of(accounting="zcdp", rho=1.0).with_limit(
        {"accounting": "zcdp", "rho": 0.1}, ADD_REMOVE
    ).exact == (
        Fraction(1, 10),
        Fraction(0),
    )


@pytest.mark.parametrize("sample", [None, POISSON])
def test_replay_of_exact_totals_gives_the_same_numbers(sample: dict[str, Any] | None) -> None:
    driver = Driver.of(budget_of(accounting="rdp", epsilon=3.0, delta=1e-5))
    charge = charge_of(
        driver.state.budget, {"mechanism": "gaussian", "sensitivity": 0.1, "noise_std": 0.7}, sample=sample
    )
    for _ in range(5):
        driver.authorize(charge)
    replay = Replay(1, "adult")
    for stored in driver.stored:
        # As read back from a database, where what is exact follows from the description.
        kept = stored.charge and replace(stored.charge)
        replay.take(replace(stored, charge=kept))

    assert isinstance(replay.state.whole, ExactTotals)
    assert differences(driver.state, replay.state, []) == []
