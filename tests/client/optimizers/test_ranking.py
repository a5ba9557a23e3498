"""Ranking: what one list can change, what the bound of a batch costs, metrics, and that it learns."""

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import average_precision_score, ndcg_score

from dpledger_client import Dataset, Gaussian, Ledger, WithoutReplacement, insecure_testing_noise
from dpledger_client._arrays import Floats
from dpledger_client.objectives import Logistic
from dpledger_client.objectives.ranking import (
    BayesRank,
    LinearScorer,
    ListMLE,
    ListNet,
    MLPScorer,
    Ranking,
    Scorer,
)
from dpledger_client.optimizers import Result, minimize
from dpledger_client.optimizers.methods.noisy_gd import NoisyGradientDescent
from dpledger_client.optimizers.methods.priv_br import PrivBR, SpectralNormalization
from dpledger_client.ranking_metrics import average_precision, mean_average_precision, mean_ndcg, ndcg
from tests.client.optimizers.cases_ranking import FEATURES, Lists, ranking
from tests.client.optimizers.contract import charged_entries, curve_budget, watching

Opened = Callable[..., Dataset]
LINEAR, NET = LinearScorer(FEATURES), MLPScorer(FEATURES, 4)
relevances = st.lists(st.floats(allow_nan=True, allow_infinity=True), min_size=4, max_size=4)
seeds = st.integers(0, 2**32 - 1)


def _list(seed: int) -> Floats:
    return np.random.default_rng(seed).normal(size=(4, FEATURES))


def _gradient(objective: BayesRank, w: Floats, documents: Floats, judged: Any) -> Floats:
    return objective.gradient_sum(w, [documents], [np.array(judged)])


@pytest.mark.parametrize("scorer", [LINEAR, NET], ids=["linear", "network"])
@pytest.mark.parametrize("single", [False, True])
@pytest.mark.parametrize("k", [1, 2])
@settings(max_examples=40, deadline=None)
@given(first=relevances, second=relevances, seed=seeds)
def test_other_relevances_move_a_gradient_by_no_more_than_its_bound(
    scorer: Scorer, single: bool, k: int, first: list[float], second: list[float], seed: int
) -> None:
    objective, documents = BayesRank(scorer, k=k, single=single), _list(seed)
    w = np.random.default_rng(seed).normal(size=scorer.dimension)
    one, other = (_gradient(objective, w, documents, judged) for judged in (first, second))
    for moved, change in ((one - other, "relabelled"), (one, "removed"), (2.0 * one, "exchanged")):
        assert np.linalg.norm(moved) <= objective.list_bound(w, documents, change) * (1.0 + 1e-9) + 1e-15


def test_the_reduced_bounds_are_reached() -> None:
    documents, w = np.array([[3.0, 0.0, 0.0], [-3.0, 0.0, 0.0]]), np.zeros(3)
    objective = BayesRank(LINEAR, single=True)
    up, down = (_gradient(objective, w, documents, judged) for judged in ([1.0, 0.0], [0.0, 1.0]))
    assert np.linalg.norm(up - down) == pytest.approx(objective.list_bound(w, documents, "relabelled"))
    assert np.linalg.norm(up) == pytest.approx(objective.list_bound(w, documents, "removed"))


@pytest.mark.parametrize("scorer", [LINEAR, NET], ids=["linear", "network"])
@pytest.mark.parametrize("single", [False, True])
def test_a_bound_is_the_sum_of_the_norms_of_what_the_ndcg_multiplies(scorer: Scorer, single: bool) -> None:
    """By gradients of lists in which one document alone is relevant, which for k = 1 are v(π) = u(d)."""
    documents, w = _list(5), np.random.default_rng(5).normal(size=scorer.dimension)
    objective = BayesRank(scorer, single=single)
    norms = sorted(np.linalg.norm(_gradient(objective, w, documents, only)) for only in np.eye(4))
    expected = (norms[-1], norms[-1] + norms[-2]) if single else (sum(norms), sum(norms))
    found = [objective.list_bound(w, documents, change) for change in ("removed", "relabelled")]
    assert found == pytest.approx(expected, rel=1e-5)
    assert all(one >= other for one, other in zip(found, expected, strict=True))


def test_keeping_one_document_makes_the_bound_smaller() -> None:
    documents = np.random.default_rng(1).normal(size=(40, FEATURES))
    whole, reduced = (BayesRank(LINEAR, single=single) for single in (False, True))
    bounds = [each.list_bound(np.zeros(FEATURES), documents, "relabelled") for each in (whole, reduced)]
    assert bounds[1] < bounds[0] / 8.0


WILD: list[tuple[Any, Any]] = [
    (np.full((4, FEATURES), np.nan), np.ones(4)),
    (np.full((4, FEATURES), 1e200), np.array([1.0, 0.0, 0.0, 2.0])),
    (1e4 * _list(3), np.array([0.0, 1.0, np.inf, 0.0])),
    (_list(3), np.full(4, np.nan)),
    (_list(3), np.ones(2)),
    (np.ones((4, 9)), np.ones(4)),
    (np.ones(4), np.ones(4)),
    (_list(3), np.array(1.0)),
    (np.empty((0, FEATURES)), np.empty(0)),
    (np.array([["a"] * FEATURES] * 4), np.ones(4)),
    ([[10**400] * FEATURES] * 4, np.ones(4)),
]


@pytest.mark.parametrize("number", range(len(WILD)))
@pytest.mark.parametrize("change", ["removed", "relabelled", "exchanged"])
def test_a_list_of_any_kind_stays_within_the_bound(number: int, change: str) -> None:
    """Also one that is not among the public documents."""
    objective, bound = BayesRank(LINEAR), 0.05
    w, (X, y) = np.ones(FEATURES), ranking(3)
    documents, judged = WILD[number]
    without = objective.bounded_gradient_sum(w, X, y, bound, change)
    added = objective.bounded_gradient_sum(w, [*X, documents], [*y, judged], bound, change)
    assert np.isfinite(added).all()
    assert np.linalg.norm(added - without) <= bound / (2.0 if change == "exchanged" else 1.0)


@pytest.mark.parametrize("number", range(len(WILD)))
@pytest.mark.parametrize("kind", [ListNet, ListMLE, BayesRank])
def test_a_list_of_any_kind_stays_within_the_clip(number: int, kind: type[Ranking]) -> None:
    objective, clip = kind(LINEAR), 0.2
    w, (X, y) = np.ones(FEATURES), ranking(3)
    without = objective.clipped_gradient_sum(w, X, y, clip)
    added = objective.clipped_gradient_sum(w, [*X, WILD[number][0]], [*y, WILD[number][1]], clip)
    assert np.isfinite(added).all()
    assert np.linalg.norm(added - without) <= clip


@pytest.mark.parametrize("kind", [ListNet, ListMLE, BayesRank])
def test_norms_losses_and_gradients_agree(kind: type[Ranking]) -> None:
    objective = kind(NET)
    X, y = ranking(1200)
    w = NET.initial()
    norms = objective.gradient_norms(w, X, y)
    assert np.linalg.norm(objective.gradient_sum(w, X[:1], y[:1])) == pytest.approx(norms[0])
    one_by_one = sum(objective.gradient_sum(w, X[j : j + 1], y[j : j + 1]) for j in range(len(X)))
    np.testing.assert_allclose(objective.gradient_sum(w, X, y), one_by_one, atol=1e-9)
    losses = objective.losses(w, X, y)
    assert (losses >= 0.0).all()
    direction = np.random.default_rng(0).normal(size=len(w))
    ahead, behind = (objective.loss(w + h * direction, X, y) for h in (1e-6, -1e-6))
    assert (ahead - behind) / 2e-6 == pytest.approx(objective.gradient(w, X, y) @ direction, abs=1e-7)


def _minus_log_probability(scores: Floats, order: tuple[int, ...], first: int) -> float:
    """−log of the probability of drawing the first documents of an order, one after another by softmax."""
    weights = np.exp(scores)
    chances = [weights[order[place]] / weights[list(order[place:])].sum() for place in range(first)]
    return -float(np.log(chances).sum())


@pytest.mark.parametrize("judged", [[2, 0, 1, 3], [1, 0, 1, 2], [0, 1, 0, 0], [1, 1, 1, 1], [2, 2, 0, 1]])
def test_listmle_bounds_every_order_of_ties_and_is_exact_without(judged: list[int]) -> None:
    scores, relevances = np.array([0.3, -1.2, 0.8, 0.1]), np.array(judged, dtype=float)
    ranked = int(np.sum(relevances > relevances.min()))
    orders = [
        order
        for order in itertools.permutations(range(4))
        if all(relevances[a] >= relevances[b] for a, b in itertools.pairwise(order))
    ]
    exact = [_minus_log_probability(scores, order, ranked) for order in orders]
    found = ListMLE(LINEAR).list_loss(scores, relevances)
    assert found >= max(exact) - 1e-12
    if len(set(relevances[relevances > relevances.min()])) == ranked:
        np.testing.assert_allclose(exact, found, atol=1e-12)


@pytest.mark.parametrize("kind", [ListNet, ListMLE, BayesRank])
def test_the_stored_order_of_documents_does_not_matter(kind: type[Ranking]) -> None:
    """Data are often stored by relevance, or by a search engine's rank: training must not learn that."""
    X, y = ranking(40)
    w = np.array([0.5, -1.0, 0.25])
    random = np.random.default_rng(1)
    orders = [random.permutation(len(judged)) for judged in y]
    shuffled = [rows[order] for rows, order in zip(X, orders, strict=True)]
    judged = [each[order] for each, order in zip(y, orders, strict=True)]
    assert any(len(set(each)) < len(each) for each in y)
    objective = kind(LINEAR)
    np.testing.assert_allclose(objective.losses(w, X, y), objective.losses(w, shuffled, judged), atol=1e-12)
    np.testing.assert_allclose(
        objective.gradient_sum(w, X, y), objective.gradient_sum(w, shuffled, judged), atol=1e-9
    )


def test_a_list_that_does_not_fit_has_no_loss() -> None:
    assert np.isnan(ListNet(LINEAR).losses(np.zeros(3), [np.ones((2, 3))], [np.ones(3)])).all()
    assert ListNet(LINEAR).clipped_loss_sum(np.zeros(3), [np.ones((2, 3))], [np.ones(3)], 1.0) <= 1.0


def _trained(
    dataset: Dataset, objective: Ranking, method: Any, data: tuple[Lists, Lists], **more: Any
) -> Result:
    X, y = data
    with insecure_testing_noise(7):
        return minimize(objective, X, y, account=dataset.run("job"), method=method, records=len(X), **more)


@pytest.mark.parametrize("adjacency", ["add-remove", "replace-one"])
@pytest.mark.parametrize("rate", [0.5, 1.0])
def test_neighbours_release_values_within_the_sensitivity(
    open_dataset: Opened, adjacency: str, rate: float
) -> None:
    """The same samples are drawn; the neighbour's relevances are others, or none."""
    X, y = ranking()
    changed = [*y[:4], y[4][::-1] + 1.0 if adjacency == "replace-one" else np.zeros_like(y[4]), *y[5:]]
    method = PrivBR(X, 1, noise_multiplier=1.0, rate=rate, step_size=1.0)
    values = []
    for judged in (y, changed):
        dataset = open_dataset(budget=curve_budget(), adjacency=adjacency)
        with watching() as watch:
            _trained(dataset, BayesRank(LINEAR), method, (X, judged))
        (draw,) = watch.draws
        values.append(draw.value)
        assert isinstance(draw.mechanism, Gaussian)
        assert draw.mechanism.sensitivity == 1.0
    assert 0.0 < np.linalg.norm(values[0] - values[1]) <= 1.0


def test_the_bound_of_a_batch_is_charged_as_if_the_sample_were_published(
    open_dataset: Opened, ledger: Ledger
) -> None:
    """q = 0.01, σ = 1, α = 2: 0.01704, where amplifying would charge less than 3e-4."""
    X, y = ranking(100)
    dataset = open_dataset(budget=curve_budget(), adjacency="replace-one")
    method = PrivBR(X, 1, noise_multiplier=1.0, rate=0.01, step_size=1.0, bound="batch")
    result = _trained(dataset, BayesRank(LINEAR), method, (X, y))
    assert result.spent.epsilons[0] == pytest.approx(np.log(0.99 + 0.01 * np.e), rel=1e-9)
    assert result.spent.epsilons[0] == pytest.approx(0.01704, abs=5e-6)
    amplified = ledger.cost(
        Gaussian(1.0, 1.0), adjacency="replace-one", sample=WithoutReplacement(0.01), orders=[2.0]
    )
    assert amplified.epsilons[0] < result.spent.epsilons[0] / 50.0


def test_the_bound_of_all_lists_is_never_below_that_of_a_batch(open_dataset: Opened) -> None:
    X, y = ranking()
    bounds = {}
    for bound in ("all", "batch"):
        dataset = open_dataset(budget=curve_budget(), adjacency="replace-one")
        method = PrivBR(X, 4, noise_multiplier=50.0, rate=0.25, step_size=1e-9, bound=bound)
        result = _trained(dataset, BayesRank(LINEAR), method, (X, y))
        bounds[bound] = [record.details["bound"] for record in result.history]
    assert np.ptp(bounds["all"]) < 1e-6 * bounds["all"][0]
    assert np.ptp(bounds["batch"]) > 0.0
    assert max(bounds["batch"]) <= min(bounds["all"])


def test_steps_can_be_reserved_because_all_are_alike(open_dataset: Opened) -> None:
    X, y = ranking()
    dataset = open_dataset(budget=curve_budget())
    method = PrivBR(X, 6, noise_multiplier=2.0, rate=0.5, step_size=0.5)
    result = _trained(dataset, BayesRank(LINEAR), method, (X, y), reserve=6)
    assert result.iterations == 6
    assert [entry["kind"] for entry in charged_entries(dataset)] == ["reserved"]


@pytest.mark.parametrize(
    ("objective", "private"),
    [
        (BayesRank(LINEAR), True),
        (BayesRank(NET, single=True), True),
        (ListNet(LINEAR), False),
        (ListMLE(NET), False),
    ],
    ids=["bayes-rank", "bayes-rank network", "listnet", "listmle network"],
)
def test_it_learns(open_dataset: Opened, objective: Ranking, private: bool) -> None:
    X, y = ranking(80)
    method: Any = (
        PrivBR(X, 30, noise_multiplier=0.5, rate=0.5, step_size=8.0)
        if private
        else NoisyGradientDescent(40, clip=2.0, noise_multiplier=0.5, step_size=0.5)
    )
    result = _trained(open_dataset(budget=curve_budget()), objective, method, (X, y))
    start = objective.initial(X, y)
    before, after = (mean_ndcg(objective.scores(w, X), y, 1) for w in (start, result.w))
    assert after > max(0.75, before + 0.1)


def test_spectral_normalisation() -> None:
    w = 5.0 * np.random.default_rng(2).normal(size=NET.dimension)
    normal = SpectralNormalization(NET)(w)
    weights = normal[: FEATURES * 4].reshape(FEATURES, 4)
    assert np.linalg.svd(weights)[1][0] == pytest.approx(1.0)
    assert np.linalg.norm(normal[-4:]) == pytest.approx(1.0)
    np.testing.assert_array_equal(normal[FEATURES * 4 : -4], w[FEATURES * 4 : -4])
    np.testing.assert_array_equal(SpectralNormalization(LINEAR)(np.zeros(3)), np.zeros(3))
    X, _ = ranking()
    grown = np.concatenate([NET.initial()[:-4], 20.0 * NET.initial()[-4:]])
    bounds = [
        max(BayesRank(NET).list_bound(each, documents, "removed") for documents in X)
        for each in (grown, SpectralNormalization(NET)(grown))
    ]
    assert bounds[1] < bounds[0]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"documents": []}, "documents must be a list of matrices"),
        ({"documents": [np.array([[np.nan]])]}, "documents must be a list of matrices"),
        ({"bound": "some"}, "bound must be one of all, batch"),
        ({"rate": 2.0}, "rate must be"),
        ({"noise_multiplier": -1.0}, "noise_multiplier must be"),
        ({"steps": 0}, "steps must be"),
    ],
)
def test_parameters_are_refused(given: dict[str, Any], message: str) -> None:
    common: dict[str, Any] = {"steps": 3, "noise_multiplier": 1.0, "rate": 0.5, "step_size": 0.1}
    with pytest.raises(ValueError, match=message):
        PrivBR(**({"documents": ranking()[0]} | common | given))


def test_what_the_bound_of_a_batch_needs_is_checked_before_anything_is_asked(
    open_dataset: Opened, tmp_path: Any
) -> None:
    X, y = ranking()
    method = PrivBR(X, 1, noise_multiplier=1.0, rate=0.5, step_size=1.0, bound="batch")
    added, replaced = (
        open_dataset(budget=curve_budget(), adjacency=adjacency)
        for adjacency in ("add-remove", "replace-one")
    )
    with pytest.raises(ValueError, match="proven under replace-one"):
        _trained(added, BayesRank(LINEAR), method, (X, y))
    with pytest.raises(ValueError, match="documents must be of 15 lists, found 16"):
        _trained(replaced, BayesRank(LINEAR), method, (X[1:], y[1:]))
    account = replaced.run("job", journal=tmp_path / "job.journal")
    with pytest.raises(ValueError, match="cannot be restarted"):
        minimize(BayesRank(LINEAR), X, y, account=account, method=method)
    with pytest.raises(TypeError, match="minimises BayesRank, found Logistic"):
        minimize(Logistic(), np.ones((16, 2)), np.ones(16), account=replaced.run("job"), method=method)
    alone = PrivBR([np.ones((1, FEATURES))], 1, noise_multiplier=1.0, rate=1.0, step_size=1.0)
    with pytest.raises(ValueError, match="some list a gradient"):
        _trained(replaced, BayesRank(LINEAR), alone, (X, y))
    assert not charged_entries(added) + charged_entries(replaced)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 3), min_size=2, max_size=9), seeds, st.integers(1, 10))
def test_ndcg_is_what_scikit_learn_computes(judged: list[int], seed: int, k: int) -> None:
    scores = np.random.default_rng(seed).permutation(len(judged)).astype(float)
    expected = ndcg_score([2.0 ** np.array(judged) - 1.0], [scores], k=k)
    assert ndcg(scores, judged, k) == pytest.approx(expected)
    if any(judged):
        relevant = np.array(judged) > 0
        assert average_precision(scores, judged) == pytest.approx(average_precision_score(relevant, scores))


def test_metrics_by_hand() -> None:
    scores = [5.0, 4.0, 3.0, 2.0, 1.0, 0.0]
    assert average_precision(scores, [1, 0, 1, 1, 0, 1], k=5) == pytest.approx((1 + 2 / 3 + 3 / 4) / 3)
    assert ndcg([1.0, 2.0], [1, 0], k=1) == 0.0
    assert ndcg([1.0, 2.0], [1, 0]) == pytest.approx(1.0 / np.log2(3.0))
    assert ndcg([1.0, 2.0], [0, 0]) == average_precision([1.0, 2.0], [0, 0]) == 0.0
    lists = [[2.0, 1.0], [1.0, 2.0]], [[1, 0], [1, 0]]
    assert mean_ndcg(*lists, k=1) == 0.5
    assert mean_average_precision(*lists) == pytest.approx(0.75)
    with pytest.raises(ValueError, match="a score for each relevance"):
        ndcg([1.0], [1, 0])


def test_a_list_with_one_document_kept_does_not_depend_on_their_order() -> None:
    documents, judged = _list(3), np.array([2.0, 0.0, 2.0, 1.0])
    w = np.random.default_rng(3).normal(size=LINEAR.dimension)
    objective = BayesRank(LINEAR, single=True)
    gradient = _gradient(objective, w, documents, judged)
    for order in itertools.permutations(range(4)):
        places = list(order)
        assert np.allclose(_gradient(objective, w, documents[places], judged[places]), gradient, atol=1e-12)
    drawn = [_gradient(objective, w, documents, np.eye(4)[kept]) for kept in (0, 2)]
    assert np.allclose(gradient, np.mean(drawn, axis=0), atol=1e-12)


@pytest.mark.parametrize("k", [1, 2, 3])
def test_the_slopes_of_listnet_are_its_derivatives(k: int) -> None:
    objective = ListNet(LINEAR, k=k)
    scores, judged = np.array([0.3, -1.0, 0.6, 0.1]), np.array([1.0, 0.0, 2.0, 0.0])
    steps = 1e-6 * np.eye(4)
    slopes = [
        (objective.list_loss(scores + step, judged) - objective.list_loss(scores - step, judged)) / 2e-6
        for step in steps
    ]
    assert np.allclose(objective.list_slopes(scores, judged), slopes, atol=1e-7)


def test_listnet_of_more_places_is_the_cross_entropy_of_orders() -> None:
    scores, judged = np.array([0.3, -1.0, 0.6]), np.array([1.0, 0.0, 2.0])

    def chance(values: Floats, order: tuple[int, ...]) -> float:
        powers = np.exp(values)
        return float(
            np.prod([powers[d] / (powers.sum() - powers[list(order[:i])].sum()) for i, d in enumerate(order)])
        )

    orders = list(itertools.permutations(range(3), 2))
    expected = -sum(chance(judged, order) * np.log(chance(scores, order)) for order in orders)
    assert ListNet(LINEAR, k=2).list_loss(scores, judged) == pytest.approx(expected)


def test_a_quantile_of_the_bounds_scales_the_noise_and_the_lists_above_it(dataset: Dataset) -> None:
    X, y = ranking()
    objective = BayesRank(LINEAR)
    bounds = [objective.list_bound(objective.initial(X, y), documents, "removed") for documents in X]
    method = PrivBR(X, 1, noise_multiplier=1.0, rate=1.0, step_size=1.0, bound_quantile=0.5)
    result = minimize(objective, X, y, account=dataset.run("job"), method=method, records=len(X))

    assert result.history[0].details["bound"] == pytest.approx(
        np.quantile(bounds, 0.5, method="higher"), rel=1e-5
    )
    assert np.sum(np.array(bounds) > result.history[0].details["bound"]) > len(X) // 4
    for documents, judged in zip(X, y, strict=True):
        one = objective.bounded_gradient_sum(np.zeros(FEATURES), [documents], [judged], 0.01, "removed")
        assert np.linalg.norm(one) <= 0.01


def test_a_list_with_too_many_orders_counts_as_zero_and_does_not_exhaust_memory() -> None:
    objective = ListNet(LINEAR, k=3)
    X, y = [np.ones((3_000, 3)), np.eye(3)], [np.ones(3_000), np.arange(3.0)]
    alone = objective.clipped_gradient_sum(np.ones(3), X[1:], y[1:], 1.0)
    np.testing.assert_array_equal(objective.clipped_gradient_sum(np.ones(3), X, y, 1.0), alone)
    assert np.linalg.norm(alone) > 0.1
    assert objective.clipped_loss_sum(np.ones(3), X[:1], y[:1], 2.0) == pytest.approx(2.0, rel=1e-5)
