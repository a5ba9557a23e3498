"""Learning to rank: PrivBR, and ListNet and ListMLE with clipped lists.

The textbook forms are losses written out plainly; their gradients come from complex steps:
f'(w) = Im f(w + ih)/h, exact to rounding.
"""

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np

from dpledger_client import Poisson, WithoutReplacement
from dpledger_client._arrays import Floats
from dpledger_client.objectives import L2
from dpledger_client.objectives.ranking import BayesRank, LinearScorer, ListMLE, ListNet, MLPScorer
from dpledger_client.optimizers.methods.dp_sgd import DPSGD
from dpledger_client.optimizers.methods.noisy_gd import NoisyGradientDescent
from dpledger_client.optimizers.methods.priv_br import PrivBR
from dpledger_client.samples import FreshSample, Full
from tests.client.optimizers.contract import Case

STEPS, ETA, LAMBDA, SIGMA = 15, 1.5, 0.02, 3.0
FEATURES, HIDDEN = 3, 2
LISTS = 16
TINY = 1e-30
Lists = list[Floats]
Loss = Callable[[Any, Any, Floats], Any]


def ranking(lists: int = LISTS, seed: int = 4) -> tuple[Lists, Lists]:
    """Three to five documents a list, relevances 0 to 2 by a hidden direction."""
    random = np.random.default_rng(seed)
    X = [random.normal(size=(3 + number % 3, FEATURES)) for number in range(lists)]
    wanted = [
        documents @ np.array([1.0, -0.5, 0.3]) + 0.3 * random.normal(size=len(documents)) for documents in X
    ]
    return X, [np.clip(np.round(value + 0.5), 0.0, 2.0) for value in wanted]


def linear(w: Any, documents: Floats) -> Any:
    return documents @ w


def network(w: Any, documents: Floats) -> Any:
    """A score at a time, parameters cut out by hand."""
    inner, bias = w[: FEATURES * HIDDEN].reshape(FEATURES, HIDDEN), w[FEATURES * HIDDEN :][:HIDDEN]
    return np.array([np.tanh(row @ inner + bias) @ w[-HIDDEN:] for row in documents])


def minus_ndcg(k: int, single: bool = False) -> Loss:
    """−Σ NDCG@k(π)·p(π) over every order of the first k.

    With ``single``, the mean of that over the most relevant documents, each as the only relevant one.
    """

    def loss(_w: Any, scores: Any, relevances: Floats) -> Any:
        gain = 2.0**relevances - 1.0
        if not single:
            return of_gain(scores, gain)
        kept = [d for d, value in enumerate(gain) if value == max(gain)]
        alone = [np.where(np.arange(len(gain)) == d, gain, 0.0) for d in kept]
        return sum(of_gain(scores, each) for each in alone) / len(kept)

    def of_gain(scores: Any, gain: Floats) -> Any:
        best = sum(value / np.log2(i + 2) for i, value in enumerate(sorted(gain, reverse=True)[:k]))
        if best == 0.0:
            return 0.0
        total: Any = 0.0
        for order in itertools.permutations(range(len(scores)), k):
            left, chance, gained = list(range(len(scores))), 1.0, 0.0
            for database_target, document in enumerate(order):
                chance = chance * np.exp(scores[document]) / sum(np.exp(scores[d]) for d in left)
                gained += gain[document] / np.log2(database_target + 2)
                left.remove(document)
            total = total - gained / best * chance
        return total

    return loss


def listnet(_w: Any, scores: Any, relevances: Floats) -> Any:
    wanted = np.exp(relevances) / np.exp(relevances).sum()
    return -np.sum(wanted * (scores - np.log(np.exp(scores).sum())))


def listmle(_w: Any, scores: Any, relevances: Floats) -> Any:
    total: Any = 0.0
    for place, relevance in enumerate(relevances):
        if relevance > min(relevances):
            left = [d for d in range(len(scores)) if relevances[d] <= relevance]
            total = total + np.log(sum(np.exp(scores[d]) for d in left)) - scores[place]
    return total


def descended(
    score: Callable[[Any, Floats], Any],
    loss: Loss,
    start: Floats,
    sample: FreshSample,
    spectral: bool = False,
) -> Callable[[Lists, Lists], Floats]:
    """Gradient descent on samples of lists."""

    def trained(X: Lists, y: Lists) -> Floats:
        w = start.copy()
        for _ in range(STEPS):
            rows = sample.draw(len(X))
            mean = np.zeros_like(w)
            for coordinate in range(len(w)):
                moved = w.astype(complex)
                moved[coordinate] += 1j * TINY
                total = sum(loss(moved, score(moved, X[j]), y[j]) for j in rows)
                mean[coordinate] = np.imag(total) / TINY / sample.expected_size(len(X))
            w = w - ETA * (mean + LAMBDA * w)
            if spectral:
                w = _normalised(w)
        return w

    return trained


def _normalised(w: Floats) -> Floats:
    end = FEATURES * HIDDEN
    largest = np.linalg.svd(w[:end].reshape(FEATURES, HIDDEN))[1][0]
    out = w[-HIDDEN:] / np.sqrt(np.sum(w[-HIDDEN:] ** 2))
    return np.concatenate([w[:end] / largest, w[end:-HIDDEN], out])


def _privately(**more: Any) -> PrivBR:
    given: dict[str, Any] = {"noise_multiplier": SIGMA, "rate": 0.5, "step_size": ETA} | more
    return PrivBR(ranking()[0], STEPS, **given)


def _clipped(clip: float) -> NoisyGradientDescent:
    return NoisyGradientDescent(STEPS, clip=clip, noise_multiplier=SIGMA, step_size=ETA)


NET = MLPScorer(FEATURES, HIDDEN)
CASES = [
    Case(
        name="priv-br",
        method=_privately(),
        objective=BayesRank(LinearScorer(FEATURES), regularizer=L2(LAMBDA)),
        data=ranking,
        textbook=descended(linear, minus_ndcg(1), np.zeros(FEATURES), Poisson(0.5)),
        repeats=7,
    ),
    Case(
        name="priv-br top two, single, all lists, replace-one",
        method=_privately(rate=1.0),
        objective=BayesRank(LinearScorer(FEATURES), k=2, single=True, regularizer=L2(LAMBDA)),
        data=ranking,
        adjacency="replace-one",
        textbook=descended(linear, minus_ndcg(2, single=True), np.zeros(FEATURES), Full()),
        rho=lambda result: result.iterations / (2.0 * SIGMA**2),
        repeats=7,
    ),
    Case(
        name="priv-br network, spectral, without replacement",
        method=_privately(spectral=True),
        objective=BayesRank(NET, regularizer=L2(LAMBDA)),
        data=ranking,
        adjacency="replace-one",
        textbook=descended(network, minus_ndcg(1), NET.initial(), WithoutReplacement(0.5), spectral=True),
        repeats=2,
    ),
    Case(
        name="priv-br bound of the batch",
        method=_privately(bound="batch"),
        objective=BayesRank(LinearScorer(FEATURES), single=True, regularizer=L2(LAMBDA)),
        data=ranking,
        adjacency="replace-one",
        textbook=descended(linear, minus_ndcg(1, single=True), np.zeros(FEATURES), WithoutReplacement(0.5)),
        repeats=7,
    ),
    Case(
        name="listnet by dp-sgd",
        method=DPSGD(STEPS, 8, clip=2.0, noise_multiplier=SIGMA, step_size=ETA),
        quiet=DPSGD(STEPS, 8, clip=100.0, noise_multiplier=SIGMA, step_size=ETA),
        objective=ListNet(LinearScorer(FEATURES), regularizer=L2(LAMBDA)),
        data=ranking,
        textbook=descended(linear, listnet, np.zeros(FEATURES), Poisson(8 / LISTS)),
        repeats=7,
    ),
    Case(
        name="listmle network",
        method=_clipped(2.0),
        quiet=_clipped(100.0),
        objective=ListMLE(NET, regularizer=L2(LAMBDA)),
        data=ranking,
        adjacency="replace-one",
        textbook=descended(network, listmle, NET.initial(), Full()),
        repeats=2,
    ),
]
