"""AboveThreshold against exact divergences of explicit searches, and its recursion on far finer grids."""

import functools
import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mpmath import mp
from scipy import special

from dpledger.accounting.errors import InvalidInput, Unproven
from dpledger.accounting.mechanisms.above_threshold import AboveThreshold
from dpledger.accounting.mechanisms.above_threshold_chain import (
    GAUSSIAN_NOISE,
    LAPLACE_NOISE,
    QueryNoise,
    ThresholdChain,
    chain_log_moment,
)
from dpledger.accounting.mechanisms.above_threshold_terms import log_gain_excess, log_loss_excess
from dpledger.accounting.mechanisms.laplace import laplace_curve
from dpledger.accounting.mechanisms.pure import pure_curve
from dpledger.accounting.orders import DEFAULT_ORDERS
from dpledger.accounting.sampling import Adjacency
from dpledger.accounting.steps import mechanism_from_fields
from dpledger.accounting.validation import Floats
from tests.accounting.references import SOME_ORDERS, digits, log_uniform, moderately

NOISES: dict[str, QueryNoise] = {"laplace": LAPLACE_NOISE, "gaussian": GAUSSIAN_NOISE}


def laplace_log_survival(x: Floats) -> Floats:
    return np.where(x >= 0.0, -np.abs(x) - math.log(2.0), np.log1p(-0.5 * np.exp(-np.abs(x))))


def gaussian_log_survival(x: Floats) -> Floats:
    survival: Floats = special.log_ndtr(-x)
    return survival


LOG_SURVIVALS: dict[str, Callable[[Floats], Floats]] = {
    "laplace": laplace_log_survival,
    "gaussian": gaussian_log_survival,
}


def threshold_nodes(noise: str, scale: float, kinks: Floats) -> tuple[Floats, Floats]:
    """Nodes and weights for an expectation over the threshold's noise: Gauss-Legendre between kinks."""
    if scale == 0.0:
        return np.zeros(1), np.ones(1)
    reach = (40.0 if noise == "laplace" else 12.0) * scale
    inner = kinks[np.abs(kinks) < reach] if noise == "laplace" else np.zeros(0)
    edges = np.unique(np.concatenate([np.linspace(-reach, reach, 17), inner]))
    nodes, weights = np.polynomial.legendre.leggauss(24)
    half, centre = np.diff(edges)[:, None] / 2.0, (edges[1:] + edges[:-1])[:, None] / 2.0
    z = (centre + half * nodes).ravel()
    density = np.exp(-np.abs(z) / scale) if noise == "laplace" else np.exp(-((z / scale) ** 2) / 2.0)
    mass = (half * weights).ravel() * density
    return z, mass / mass.sum()


def log_stopping_probabilities(noise: str, threshold: float, scale: float, queries: Floats) -> Floats:
    """log P(the search stops at 1, 2, …, K, or never), the threshold's noise integrated out."""
    z, mass = threshold_nodes(noise, threshold, queries)
    distance = (z[:, None] - queries) / scale
    above, below = LOG_SURVIVALS[noise](distance), LOG_SURVIVALS[noise](-distance)
    reached = np.hstack([np.zeros((z.size, 1)), np.cumsum(below, axis=1)])
    paths = reached + np.hstack([above, np.zeros((z.size, 1))])
    probabilities: Floats = special.logsumexp(paths, axis=0, b=mass[:, None])
    return probabilities


def exact_divergences(
    noise: str, threshold: float, scale: float, first: Floats, second: Floats, orders: Floats
) -> Floats:
    """D_α between the searches over two lists of query values, at every order."""
    p = log_stopping_probabilities(noise, threshold, scale, first)
    q = log_stopping_probabilities(noise, threshold, scale, second)
    moments = special.logsumexp(np.outer(orders, p) + np.outer(1.0 - orders, q), axis=1)
    return np.asarray(moments / (orders - 1.0))


def exact_divergence(
    noise: str, threshold: float, scale: float, first: Floats, second: Floats, order: float
) -> float:
    return float(exact_divergences(noise, threshold, scale, first, second, np.array([order]))[0])


def epsilon_at(mechanism: AboveThreshold, order: float) -> float:
    return float(mechanism.cost(np.array([order]), Adjacency.ADD_REMOVE).epsilons[0])


def with_scales(noise: str, threshold: float, scale: float, queries: int | None) -> AboveThreshold:
    return AboveThreshold(noise, 1.0, threshold_scale=threshold, query_scale=scale, max_queries=queries)


# Never below the truth


@moderately
@given(
    st.sampled_from(["laplace", "gaussian"]),
    st.one_of(st.just(0.0), log_uniform(0.3, 30.0)),
    log_uniform(0.5, 30.0),
    st.lists(st.tuples(st.floats(-4.0, 4.0), st.floats(-1.0, 1.0)), min_size=1, max_size=6),
    log_uniform(1.05, 60.0),
)
def test_never_below_the_exact_divergence_of_a_search(
    noise: str, threshold: float, scale: float, drawn: list[tuple[float, float]], order: float
) -> None:
    levels, shifts = np.array(drawn).T
    first, second = levels * scale, levels * scale + shifts
    bound = epsilon_at(with_scales(noise, threshold, scale, len(drawn)), order)
    for one, other in ((first, second), (second, first)):
        assert bound >= exact_divergence(noise, threshold, scale, one, other, order) - 1e-12 * order


@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
@pytest.mark.parametrize("ratio", [0.05, 0.7])
def test_never_below_any_corner_of_three_queries(noise: str, ratio: float) -> None:
    scale, threshold = 1.0 / ratio, 0.5 / ratio
    orders = np.array([1.2, 2.0, 8.0, 32.0])
    bounds = with_scales(noise, threshold, scale, 3).cost(orders, Adjacency.REPLACE_ONE).epsilons
    for levels in itertools.product((-scale, 0.0, scale), repeat=3):
        for signs in itertools.product((-1.0, 1.0), repeat=3):
            queries = np.array(levels)
            shifted = queries + np.array(signs)
            assert (bounds >= exact_divergences(noise, threshold, scale, shifted, queries, orders)).all()


def alternating_search(queries: int, start: float) -> tuple[Floats, Floats]:
    """Rising queries, moved up and down in turns, so that no shift of the threshold hides the moves."""
    share = np.arange(queries) / queries
    values = start + 38.0 * share + 96.0 * share**2
    return values, values + np.where(np.arange(queries) % 2, 1.0, -1.0)


@pytest.mark.parametrize(
    ("queries", "start", "known"),
    [(400, -157.0, 0.002713), (1000, -172.0, 0.003310), (4000, -194.0, 0.004263)],
)
def test_theorem_5_3_for_gaussian_noise_is_below_the_truth(queries: int, start: float, known: float) -> None:
    rho, order = 0.00125, 2.0
    first, second = alternating_search(queries, start)
    true = exact_divergence("gaussian", math.sqrt(1.5 / rho), math.sqrt(3.0 / rho), second, first, order)
    assert order * rho < known <= true
    assert true <= epsilon_at(AboveThreshold("gaussian", 1.0, rho=rho, max_queries=queries), order)


def published(epsilon: float, order: float) -> float:
    """(5.3), Theorem 5.2, with ε1 = 2ε2 = ε/2."""
    first = special.logsumexp([(order - 1.0) * epsilon / 2.0, -order * epsilon / 2.0], b=[order, order - 1.0])
    return float(2.0 * (first - math.log(2.0 * order - 1.0)) / (order - 1.0))


def test_theorem_5_2_is_nearly_reached_and_covered() -> None:
    epsilon, order, queries = 4.0, 32.0, 20
    first = np.concatenate([np.full(queries - 1, 0.4494), [-0.6666]])
    second = first + np.concatenate([np.full(queries - 1, -1.0), [1.0]])
    true = exact_divergence("laplace", 2.0 / epsilon, 4.0 / epsilon, second, first, order)
    claimed = published(epsilon, order)
    assert 0.96 < true / claimed < 0.97
    assert true <= epsilon_at(AboveThreshold("laplace", 1.0, epsilon=epsilon, max_queries=queries), order)


@pytest.mark.parametrize("epsilon", [0.01, 0.3, 4.0])
def test_not_above_theorem_5_2_nor_the_pure_curve(epsilon: float) -> None:
    cost = AboveThreshold("laplace", 1.0, epsilon=epsilon, max_queries=20).cost(
        SOME_ORDERS, Adjacency.ADD_REMOVE
    )
    claims = np.array([published(epsilon, float(order)) for order in SOME_ORDERS])
    assert (cost.epsilons <= claims * (1.0 + 1e-3)).all()
    assert (cost.epsilons <= pure_curve(epsilon, SOME_ORDERS) * (1.0 + 1e-9)).all()


def test_line_search_at_order_32_is_the_tightest_proven() -> None:
    bound = epsilon_at(AboveThreshold("laplace", 1.0, epsilon=0.01, max_queries=20), 32.0)
    assert 2.0e-4 < bound <= 2.17e-4
    assert published(0.01, 32.0) == pytest.approx(7.95e-4, rel=2e-3)
    assert pure_curve(0.01, np.array([32.0]))[0] == pytest.approx(1.57e-3, rel=5e-3)


# Tightness


def test_without_threshold_noise_the_bound_is_attained() -> None:
    """Every query near the threshold and moved down: stopping late becomes more likely."""
    ratio, order, queries = 0.025, 8.0, 50
    bound = epsilon_at(with_scales("laplace", 0.0, 1.0 / ratio, queries), order)
    values = np.full(queries, 0.5)
    true = exact_divergence("laplace", 0.0, 1.0 / ratio, values - 1.0, values, order)
    assert 0.00511 < true <= bound <= 0.00612
    assert bound <= 1.005 * true


def recursion_on_a_grid(
    noise: str, order: float, ratio: float, share: float, queries: int, points: int = 20_001
) -> float:
    """log W_K with the supremum taken over many points: from below, and as close as they are dense."""
    log_excess, log_below = [], []
    for shift in ((share - 1.0) * ratio, (share + 1.0) * ratio):
        if shift == 0.0:
            continue
        x = _dense(noise, order, shift, points)
        survival = LOG_SURVIVALS[noise]
        above = order * survival(x - shift) + (1.0 - order) * survival(x)
        below = order * survival(shift - x) + (1.0 - order) * survival(-x)
        total = np.logaddexp(above, below)
        small = np.log(np.maximum(np.expm1(np.minimum(total, 30.0)), 1e-300))
        log_excess.append(np.where(total > 30.0, total, small))
        log_below.append(below)
    lines = np.concatenate(log_excess), np.concatenate(log_below)
    log_w = -math.inf
    for _ in range(queries):
        log_w = max(log_w, float(np.max(np.logaddexp(lines[0], lines[1] + log_w))))
    return float(np.logaddexp(0.0, log_w))


def _dense(noise: str, order: float, shift: float, points: int) -> Floats:
    if noise == "laplace":
        near_kink = shift * (1.0 - np.geomspace(1e-6, 1.0, points))
        return np.concatenate([shift * np.linspace(0.0, 1.0, points), near_kink])
    width = 9.0 + abs(shift)
    centres = (0.0, order * shift)
    return np.concatenate([centre + np.linspace(-width, width, points) for centre in centres])


@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
@pytest.mark.parametrize("ratio", [0.003, 0.05, 0.6])
@pytest.mark.parametrize(("share", "queries"), [(0.0, 1), (0.0, 40), (0.35, 20), (1.0, 60)])
def test_bounds_the_recursion_closely(noise: str, ratio: float, share: float, queries: int) -> None:
    orders = np.array([1.1, 2.0, 5.5, 32.0, 300.0])
    chain = ThresholdChain(NOISES[noise], ratio, None, queries)
    fine = _log_moments(chain, orders, share, fine=True)
    coarse = _log_moments(chain, orders, share, fine=False)
    for order, close, rough in zip(orders, fine, coarse, strict=True):
        reference = recursion_on_a_grid(noise, float(order), ratio, share, queries)
        assert reference * (1.0 - 1e-8) <= close <= reference * 1.002
        assert reference * (1.0 - 1e-8) <= rough


def _log_moments(chain: ThresholdChain, orders: Floats, share: float, *, fine: bool) -> Floats:
    resolution = chain.noise.fine if fine else chain.noise.coarse
    return chain.bound(orders, np.full_like(orders, share), resolution) * (orders - 1.0)


@functools.cache
def best_recursion(noise: str, order: float, ratio: float, threshold_ratio: float, queries: int) -> float:
    """The recursion's own minimum over the share of the threshold, searched without the package."""

    def bound(share: float) -> float:
        shift = share * threshold_ratio
        spent = float(laplace_curve(shift, np.array([order]))[0]) if noise == "laplace" and shift else 0.0
        if noise == "gaussian":
            spent = order * shift**2 / 2.0
        return spent + recursion_on_a_grid(noise, order, ratio, share, queries, 2_001) / (order - 1.0)

    low, high = 0.0, 1.0
    for _ in range(4):
        shares = np.linspace(low, high, 9)
        best = int(np.argmin([bound(float(share)) for share in shares]))
        low, high = float(shares[max(best - 1, 0)]), float(shares[min(best + 1, 8)])
    return min(bound(float(share)) for share in np.linspace(low, high, 5))


@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
@pytest.mark.parametrize(("order", "ratio"), [(2.0, 0.5), (8.0, 0.025), (32.0, 0.025), (128.0, 0.0025)])
def test_finds_the_best_share_of_the_threshold(noise: str, order: float, ratio: float) -> None:
    found = epsilon_at(with_scales(noise, 0.5 / ratio, 1.0 / ratio, 20), order)
    best = best_recursion(noise, order, ratio, 2.0 * ratio, 20)
    assert best * (1.0 - 2e-3) <= found <= best * 1.003


@pytest.mark.parametrize("ratio", [1e-4, 1e-7, 1e-60])
@pytest.mark.parametrize("order", [1.0 + 1e-6, 1.5, 40.0])
def test_keeps_its_digits_for_a_tiny_ratio(ratio: float, order: float) -> None:
    """One query: W_1 − 1 is the divergence of two coins, largest between 0 and the shift."""
    found = epsilon_at(with_scales("laplace", 0.0, 1.0 / ratio, 1), order)
    with digits(160):
        shift, a = mp.mpf(1) / mp.mpf(1.0 / ratio), mp.mpf(order)
        moments = []
        for point in mp.linspace(0, 1, 41):
            stays = 1 - mp.exp(-shift * point) / 2
            moved = mp.exp(-shift * (1 - point)) / 2
            pairs = ((moved, stays), (1 - moved, 1 - stays))
            moments.append(mp.fsum(p**a * q ** (1 - a) for p, q in pairs))
        exact = float(mp.log(max(moments)) / (a - 1))
    assert exact <= found <= exact * (1.0 + 2e-3)


@pytest.mark.parametrize("ratio", [1e-3, 1e-6, 1e-18])
def test_gaussian_noise_keeps_its_digits_for_a_tiny_ratio(ratio: float) -> None:
    """For a shift to 0 the divergence of two coins is (α/2)·shift²·φ²/(SF), largest at 0: α·shift²/π."""
    found = epsilon_at(with_scales("gaussian", 0.0, 1.0 / ratio, 1), 3.0)
    limit = 3.0 * ratio**2 / math.pi
    assert limit * (1.0 - 3.0 * ratio) <= found <= limit * (1.0 + 3.0 * ratio + 1e-3)


@pytest.mark.parametrize("order", [1.0 + 1e-9, 1.01, 2.0, 77.0, 1e6])
@pytest.mark.parametrize("size", [1e-80, 1e-7, 1e-3, 0.3, 2.0, 30.0])
def test_power_excess_at_50_digits(order: float, size: float) -> None:
    for u, function in ((size, log_gain_excess), (-size, log_loss_excess)):
        found = function(np.array([order]), np.array([u]))[0]
        with digits(220):
            a, v = mp.mpf(order), mp.mpf(u)
            exact = mp.log(mp.expm1(a * v) - a * mp.expm1(v))
        assert abs(found - float(exact)) <= 1e-13 * max(1.0, abs(float(exact)))


# Shape


@pytest.mark.parametrize(
    "mechanism",
    [
        AboveThreshold("laplace", 1.0, epsilon=0.02, max_queries=20),
        AboveThreshold("gaussian", 2.0, rho=0.00125, max_queries=20),
        AboveThreshold("laplace", 1.0, threshold_scale=0.0, query_scale=40.0, max_queries=50),
    ],
)
def test_does_not_fall_with_the_order(mechanism: AboveThreshold) -> None:
    found = mechanism.cost(DEFAULT_ORDERS, Adjacency.ADD_REMOVE).epsilons
    assert (np.diff(found) >= 0.0).all()
    alone = [epsilon_at(mechanism, float(order)) for order in DEFAULT_ORDERS[::16]]
    assert alone == pytest.approx(found[::16], rel=2e-3)


@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
@pytest.mark.parametrize("threshold", [0.0, 2.0])
def test_does_not_fall_with_the_number_of_queries(noise: str, threshold: float) -> None:
    orders = np.array([1.5, 8.0, 300.0])
    counts = [1, 2, 7, 63, 1000, 10**6]
    found = np.array(
        [
            with_scales(noise, threshold, 4.0, count).cost(orders, Adjacency.ADD_REMOVE).epsilons
            for count in counts
        ]
    )
    assert (np.diff(found, axis=0) >= -1e-3 * found[:-1]).all()
    assert np.isfinite(found).all()


def test_a_long_chain_equals_its_steps_taken_one_by_one() -> None:
    rng = np.random.default_rng(7)
    excess, slope = rng.uniform(1e-4, 1e-2, (5, 30)), rng.uniform(0.5, 1.0, (5, 30))
    slope[0] = 1.0 + 1e-3 * slope[0]
    w = np.zeros(5)
    for _ in range(3000):
        w = np.maximum(w, (excess + slope * w[:, None]).max(axis=1))
    found = np.expm1(chain_log_moment(np.log(excess), np.log(slope), 3000))
    assert (found >= w * (1.0 - 1e-9)).all()
    assert found == pytest.approx(w, rel=2e-3)


def test_a_chain_without_limit_ends_at_its_fixed_point() -> None:
    excess, slope = np.array([[0.01, 0.02], [0.01, 0.02]]), np.array([[0.9, 0.5], [1.0, 0.5]])
    found = chain_log_moment(np.log(excess), np.log(slope), None)
    assert found[0] == pytest.approx(math.log1p(0.1))
    assert found[1] == math.inf


def test_a_chain_too_steep_for_floats_grows_by_its_steepest_line() -> None:
    found = chain_log_moment(np.array([[0.0, -5.0]]), np.array([[-1.0, 900.0]]), 4)
    assert found[0] == pytest.approx(3 * 900.0, rel=1e-9)


def test_unlimited_laplace_search_costs_no_less_than_a_long_one() -> None:
    orders = np.array([1.5, 8.0, 64.0, 8193.0])
    endless = AboveThreshold("laplace", 1.0, epsilon=0.2).cost(orders, Adjacency.ADD_REMOVE)
    long = AboveThreshold("laplace", 1.0, epsilon=0.2, max_queries=10**6).cost(orders, Adjacency.ADD_REMOVE)
    assert endless.epsilons == pytest.approx(long.epsilons, rel=3e-3)
    assert endless.pure_epsilon == pytest.approx(0.2)


def test_gaussian_is_cheaper_for_short_searches_and_laplace_for_long_ones() -> None:
    """At equal standard deviations of threshold and queries."""
    ratios = {}
    for queries in (5, 20, 60):
        laplace = with_scales("laplace", 50.0 / math.sqrt(2.0), 100.0 / math.sqrt(2.0), queries)
        gaussian = with_scales("gaussian", 50.0, 100.0, queries)
        ratios[queries] = epsilon_at(gaussian, 8.0) / epsilon_at(laplace, 8.0)
    assert ratios[5] < ratios[20] < 1.0 < ratios[60]


@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
@pytest.mark.parametrize("threshold", [0.0, 0.1])
@pytest.mark.parametrize("scale", [1e-3, 0.05, 1e3])
def test_finite_at_extreme_orders_and_scales(noise: str, threshold: float, scale: float) -> None:
    orders = np.array([1.0 + 1e-9, 1.5, 8193.0, 1e6])
    found = with_scales(noise, threshold, scale, 100).cost(orders, Adjacency.ADD_REMOVE).epsilons
    assert np.isfinite(found).all()
    assert (np.diff(found) >= 0.0).all()


def test_more_orders_than_fit_at_once() -> None:
    orders = np.linspace(1.5, 20.0, 300)
    mechanism = AboveThreshold("laplace", 1.0, epsilon=0.1, max_queries=5)
    found = mechanism.cost(orders, Adjacency.ADD_REMOVE).epsilons
    assert found[[0, 299]] == pytest.approx(
        [epsilon_at(mechanism, 1.5), epsilon_at(mechanism, 20.0)], rel=2e-3
    )


# Notions beside the curve, and the wire


def test_laplace_noise_on_both_gives_pure_dp() -> None:
    cost = with_scales("laplace", 10.0, 8.0, 7).cost(SOME_ORDERS, Adjacency.ADD_REMOVE)
    assert cost.pure_epsilon == pytest.approx(1.0 / 10.0 + 2.0 / 8.0)
    assert cost.pure_epsilon is not None
    assert cost.pure_epsilon >= 0.35
    assert cost.rho == pytest.approx(0.35 * math.tanh(0.175))
    assert cost.mu is not None
    assert (cost.epsilons <= cost.pure_epsilon).all()


@pytest.mark.parametrize(
    "mechanism", [with_scales("laplace", 0.0, 8.0, 7), with_scales("gaussian", 9.0, 8.0, 7)]
)
def test_no_pure_dp_otherwise(mechanism: AboveThreshold) -> None:
    cost = mechanism.cost(SOME_ORDERS, Adjacency.ADD_REMOVE)
    assert (cost.rho, cost.mu, cost.pure_epsilon) == (None, None, None)


def test_named_budgets_stand_for_the_scales_of_algorithm_5_1() -> None:
    pairs = [
        (AboveThreshold("laplace", 3.0, epsilon=0.4, max_queries=9), ("laplace", 3.0 / 0.2, 3.0 / 0.1)),
        (
            AboveThreshold("gaussian", 3.0, rho=0.02, max_queries=9),
            ("gaussian", 3.0 * math.sqrt(75.0), 3.0 * math.sqrt(150.0)),
        ),
    ]
    for named, (noise, threshold, scale) in pairs:
        spelled = AboveThreshold(noise, 3.0, threshold_scale=threshold, query_scale=scale, max_queries=9)
        for order in (2.0, 50.0):
            assert epsilon_at(named, order) == pytest.approx(epsilon_at(spelled, order), rel=1e-9)


def test_queries_that_cannot_change_cost_nothing() -> None:
    still = AboveThreshold("gaussian", 0.0, threshold_scale=0.0, query_scale=1.0, max_queries=3)
    cost = still.cost(SOME_ORDERS, Adjacency.ADD_REMOVE)
    assert not cost.epsilons.any()
    assert cost.pure_epsilon == 0.0


def test_endless_search_without_threshold_noise_is_refused_where_it_diverges() -> None:
    endless = with_scales("laplace", 0.0, 40.0, None)
    assert epsilon_at(endless, 8.0) == pytest.approx(0.00611, rel=5e-3)
    with pytest.raises(Unproven, match=r"order 64.*max_queries"):
        endless.cost(np.array([8.0, 64.0]), Adjacency.ADD_REMOVE)


def test_noise_too_small_for_floats_is_refused() -> None:
    with pytest.raises(Unproven, match="little noise"):
        with_scales("gaussian", 1e-250, 1e-250, 3).cost(SOME_ORDERS, Adjacency.ADD_REMOVE)


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"noise": "cauchy", "epsilon": 1.0}, "noise"),
        ({"noise": "laplace"}, "epsilon"),
        ({"noise": "laplace", "epsilon": 1.0, "rho": 1.0}, "epsilon"),
        ({"noise": "laplace", "rho": 1.0}, "rho"),
        ({"noise": "gaussian", "epsilon": 1.0, "max_queries": 3}, "epsilon"),
        ({"noise": "gaussian", "rho": 1.0}, "max_queries"),
        ({"noise": "gaussian", "rho": -1.0, "max_queries": 3}, "rho"),
        ({"noise": "laplace", "epsilon": 0.0}, "epsilon"),
        ({"noise": "laplace", "epsilon": float("nan")}, "epsilon"),
        ({"noise": "laplace", "threshold_scale": 1.0}, "query_scale"),
        ({"noise": "laplace", "query_scale": 1.0}, "threshold_scale"),
        ({"noise": "laplace", "threshold_scale": -1.0, "query_scale": 1.0}, "threshold_scale"),
        ({"noise": "laplace", "threshold_scale": 0.0, "query_scale": 0.0}, "query_scale"),
        ({"noise": "laplace", "epsilon": 1.0, "max_queries": 0}, "max_queries"),
        ({"noise": "laplace", "epsilon": 1.0, "max_queries": 2.5}, "max_queries"),
        ({"noise": "laplace", "epsilon": 1.0, "sensitivity": -1.0}, "sensitivity"),
    ],
)
def test_out_of_range_is_refused(fields: dict[str, Any], named: str) -> None:
    with pytest.raises(InvalidInput, match=named):
        AboveThreshold(**{"sensitivity": 1.0, **fields})


def test_wire_form_round_trips() -> None:
    wire = {
        "mechanism": "above-threshold",
        "noise": "laplace",
        "sensitivity": 1.0,
        "threshold_scale": 0.0,
        "query_scale": 40.0,
        "max_queries": 50,
    }
    assert mechanism_from_fields(wire).fields() == wire
    assert hash(mechanism_from_fields(wire)) == hash(mechanism_from_fields(dict(wire)))
