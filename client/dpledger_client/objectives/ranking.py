"""Learning to rank: X is a list with a matrix of documents for each query, y one with their relevances.

One list, a query with its documents and what a user thought of them, is one example: gradients are
clipped by list, and a list is what is added, removed or replaced. The gradient of a list's loss is
Jᵀ·s with J the Jacobian of its scores and s the loss's derivatives by the scores.
"""

import abc
import functools
import itertools
import math
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from dpledger_client._arrays import Bools, Floats, Integers, as_numbers
from dpledger_client._checks import check_choice, check_count, check_flag
from dpledger_client.objectives.base import Objective, clip_factors, limit_under, parameters
from dpledger_client.objectives.linear import softmax
from dpledger_client.objectives.regularizers import Regularizer
from dpledger_client.ranking_metrics import discounts, gains

__all__ = ["BayesRank", "LinearScorer", "ListMLE", "ListNet", "MLPScorer", "Ranking", "Scorer"]

_BLOCK_LISTS = 512
_ROUNDING = 2.0**-38
"""More than the relative rounding errors of sums of 2¹⁴ products."""
_MOST_NUMBERS = 1 << 27
"""Of the derivatives of all orders' probabilities: a gigabyte."""


class Scorer(abc.ABC):
    """A function that gives each document a score, with parameters ``w``."""

    features: int

    @property
    @abc.abstractmethod
    def dimension(self) -> int:
        """The number of parameters."""

    @abc.abstractmethod
    def initial(self) -> Floats:
        """Parameters to start from."""

    @abc.abstractmethod
    def scores(self, w: Floats, documents: Floats) -> Floats:
        """The score of each document."""

    @abc.abstractmethod
    def jacobian(self, w: Floats, documents: Floats) -> Floats:
        """The gradient of each document's score, a row each."""

    def gram(self, w: Floats, documents: Floats) -> Floats:
        """The inner products of the rows of the Jacobian."""
        rows = self.jacobian(w, documents)
        return rows @ rows.T

    @abc.abstractmethod
    def normalize(self, w: Floats) -> Floats:
        """Parameters with every weight matrix divided by its largest singular value, if it has one above 0.

        Spectral normalisation (Miyato, Kataoka, Koyama, Yoshida 2018): it keeps the Jacobian, and with it
        the noise, from growing.
        """


class LinearScorer(Scorer):
    """x·w."""

    def __init__(self, features: int) -> None:
        self.features = check_count("features", features)

    @property
    def dimension(self) -> int:
        return self.features

    def initial(self) -> Floats:
        return np.zeros(self.features)

    def scores(self, w: Floats, documents: Floats) -> Floats:
        return documents @ w

    def jacobian(self, w: Floats, documents: Floats) -> Floats:
        return documents

    def normalize(self, w: Floats) -> Floats:
        return _unit(w)


class MLPScorer(Scorer):
    """v·tanh(xW + b), one hidden layer; a bias of the output would change no ranking.

    Parameters are W, b and v, flat. The start is drawn from a public seed.
    """

    def __init__(self, features: int, hidden: int, seed: int = 0) -> None:
        self.features = check_count("features", features)
        self.hidden = check_count("hidden", hidden)
        self.seed = seed

    @property
    def dimension(self) -> int:
        return (self.features + 2) * self.hidden

    def initial(self) -> Floats:
        generator = np.random.default_rng(self.seed)
        weights = generator.normal(scale=self.features**-0.5, size=self.features * self.hidden)
        out = generator.normal(scale=self.hidden**-0.5, size=self.hidden)
        return np.concatenate([weights, np.zeros(self.hidden), out])

    def scores(self, w: Floats, documents: Floats) -> Floats:
        weights, bias, out = self._parts(w)
        scores: Floats = np.tanh(documents @ weights + bias) @ out
        return scores

    def jacobian(self, w: Floats, documents: Floats) -> Floats:
        slopes, active = self._backward(w, documents)
        by_weights = (documents[:, :, None] * slopes[:, None, :]).reshape(len(documents), -1)
        return np.hstack([by_weights, slopes, active])

    def gram(self, w: Floats, documents: Floats) -> Floats:
        """Without the Jacobian: a row of it is x ⊗ s, s and a next to each other."""
        slopes, active = self._backward(w, documents)
        return (slopes @ slopes.T) * (documents @ documents.T + 1.0) + active @ active.T

    def normalize(self, w: Floats) -> Floats:
        weights, bias, out = self._parts(w)
        return np.concatenate([_unit(weights).ravel(), bias, _unit(out)])

    def _backward(self, w: Floats, documents: Floats) -> tuple[Floats, Floats]:
        """The score's derivatives by what enters the hidden layer, and what leaves it."""
        weights, bias, out = self._parts(w)
        active = np.tanh(documents @ weights + bias)
        return (1.0 - np.square(active)) * out, active

    def _parts(self, w: Floats) -> tuple[Floats, Floats, Floats]:
        ends = [self.features * self.hidden, (self.features + 1) * self.hidden]
        weights, bias, out = np.split(w, ends)
        return weights.reshape(self.features, self.hidden), bias, out


def _unit(weights: Floats) -> Floats:
    """A vector or matrix over its largest singular value."""
    size = float(np.linalg.norm(weights, 2))
    return weights / size if size > 0.0 else weights


class Ranking(Objective):
    """A mean over lists of a loss of the documents' scores.

    A list whose documents are not a matrix with the scorer's features, or that has not one relevance a
    document, or that is not finite, counts as zero.
    """

    def __init__(self, scorer: Scorer, regularizer: Regularizer | None = None) -> None:
        super().__init__(regularizer)
        self.scorer = scorer

    @abc.abstractmethod
    def list_loss(self, scores: Floats, relevances: Floats) -> float:
        """The loss of one list."""

    @abc.abstractmethod
    def list_slopes(self, scores: Floats, relevances: Floats) -> Floats:
        """The derivative of one list's loss by each score."""

    def dimension(self, X: Any, y: Any) -> int:
        return self.scorer.dimension

    def initial(self, X: Any, y: Any) -> Floats:
        return self.scorer.initial()

    def scores(self, w: Floats, X: Any) -> list[Floats]:
        """The scores of every list's documents."""
        return [self.scorer.scores(parameters(w), np.asarray(documents, np.float64)) for documents in X]

    def losses(self, w: Floats, X: Any, y: Any) -> Floats:
        flat = parameters(w)
        with np.errstate(all="ignore"):
            found = [
                self.list_loss(self.scorer.scores(flat, lists[0]), lists[1]) if lists else np.nan
                for lists in self.lists(X, y)
            ]
        return np.array(found, dtype=np.float64)

    def gradient_sum(self, w: Floats, X: Any, y: Any) -> Floats:
        return block_sum(self.gradients(w, X, y), self.scorer.dimension)

    def clipped_gradient_sum(
        self,
        w: Floats,
        X: Any,
        y: Any,
        clip: float,
        row_norms: Floats | None = None,
    ) -> Floats:
        """The sum of the lists' gradients, each clipped; ``row_norms`` are not used."""
        limit = limit_under(clip)
        return block_sum(
            (shorten(gradient, limit) for gradient in self.gradients(w, X, y)), self.scorer.dimension
        )

    def gradient_norms(self, w: Floats, X: Any, y: Any) -> Floats:
        return np.array([np.linalg.norm(gradient) for gradient in self.gradients(w, X, y)])

    def gradients(self, w: Floats, X: Any, y: Any) -> Iterator[Floats]:
        """The gradient of each list's loss."""
        flat = parameters(w)
        with np.errstate(all="ignore"):
            for lists in self.lists(X, y):
                yield self._gradient(flat, *lists) if lists else np.zeros_like(flat)

    def lists(self, X: Any, y: Any) -> Iterator[tuple[Floats, Floats] | None]:
        """Documents and relevances of each list as doubles; None for a list of another shape."""
        for documents, relevances in zip(X, y, strict=True):
            yield _as_list(documents, relevances, self.scorer.features)

    def _gradient(self, w: Floats, documents: Floats, relevances: Floats) -> Floats:
        slopes = self.list_slopes(self.scorer.scores(w, documents), relevances)
        return slopes @ self.scorer.jacobian(w, documents)


def _as_list(documents: Any, relevances: Any, features: int) -> tuple[Floats, Floats] | None:
    try:
        rows, judged = as_numbers(documents), as_numbers(relevances)
    except Exception:  # whatever it is, it depends on a private list
        return None
    fits = judged.ndim == 1 and len(judged) > 0 and rows.shape == (len(judged), features)
    return (rows, judged) if fits else None


def block_sum(vectors: Iterable[Floats], dimension: int) -> Floats:
    """A sum in blocks, so that its rounding errors stay within what clipping leaves room for."""
    total, block = np.zeros(dimension), np.zeros(dimension)
    for number, vector in enumerate(vectors, start=1):
        block += vector
        if number % _BLOCK_LISTS == 0:
            total, block = total + block, np.zeros(dimension)
    return total + block


def shorten(gradient: Floats, limit: float) -> Floats:
    """A gradient of norm at most ``limit``; zero if it is not finite."""
    norm = np.array(np.linalg.norm(gradient))
    factor = float(clip_factors(norm, limit))
    return gradient * factor if np.isfinite(norm) else np.zeros_like(gradient)


class ListNet(Ranking):
    """−Σ P(π; y)·log P(π; scores) over orders π of the first k documents (Cao, Qin, Liu, Tsai, Li 2007).

    P draws documents one after another by softmax (Chen 2020, dissertation, (6.4)). With k = 1, the usual
    choice, it is the cross-entropy of two softmaxes; more go through n!/(n − k)! orders. A list with more
    than 2²⁷/n orders counts as one that is not finite: to run out of memory would tell of one long list.
    """

    def __init__(self, scorer: Scorer, regularizer: Regularizer | None = None, *, k: int = 1) -> None:
        super().__init__(scorer, regularizer)
        self.k = check_count("k", k)

    def list_loss(self, scores: Floats, relevances: Floats) -> float:
        if self._too_long(len(scores)):
            return math.nan
        if self.k > 1:
            wanted, predicted, _ = self._orders(scores, relevances)
            return float(-wanted @ np.log(predicted))
        wanted = softmax(relevances[None, :])[0]
        return float(np.logaddexp.reduce(scores) - wanted @ scores)

    def list_slopes(self, scores: Floats, relevances: Floats) -> Floats:
        if self._too_long(len(scores)):
            return np.full_like(scores, np.nan)
        if self.k > 1:
            wanted, predicted, slopes = self._orders(scores, relevances)
            return -(wanted / predicted) @ slopes
        found, wanted = softmax(np.stack([scores, relevances]))
        difference: Floats = found - wanted
        return difference

    def _too_long(self, documents: int) -> bool:
        return self.k > 1 and documents * math.perm(documents, min(self.k, documents)) > _MOST_NUMBERS

    def _orders(self, scores: Floats, relevances: Floats) -> tuple[Floats, Floats, Floats]:
        """The wanted and the predicted probability of each order, and the latter's derivatives."""
        prefixes = _prefixes(len(scores), min(self.k, len(scores)))
        return _probabilities(relevances, prefixes)[0], *_probabilities(scores, prefixes)


class ListMLE(Ranking):
    """−log of the probability of the order by relevance (Xia, Liu, Wang, Zhang, Li 2008; Chen 2020, (6.6)).

    Statement: the sum over documents d that are not of the least relevance of log Σ e^{s_j} − s_d, the sum
    over every document j at most as relevant as d. Where all relevances differ, this is ListMLE.
    Documents that are equally relevant are each drawn from all that are left when the first of them is
    (Breslow 1974, for tied times in Cox's likelihood), so that the loss is at least −log of the probability
    of any order of them, and does not depend on the order in which documents are stored. The least relevant
    add nothing: in some order they come last with probability 1.
    """

    def list_loss(self, scores: Floats, relevances: Floats) -> float:
        if not np.isfinite(relevances).all():
            return np.nan
        rest = self._rest(scores, relevances)
        return float(np.sum((rest - scores)[_above_least(relevances)]))

    def list_slopes(self, scores: Floats, relevances: Floats) -> Floats:
        ranked = _above_least(relevances)
        rest = self._rest(scores, relevances)
        # Document j is among those left for every ranked d that is at least as relevant.
        left = ranked[:, None] & (relevances[None, :] <= relevances[:, None])
        shares = np.where(left, np.exp(scores[None, :] - rest[:, None]), 0.0)
        slopes: Floats = shares.sum(axis=0) - ranked
        # Of a relevance that is no number nothing is known: the list then counts as zero.
        slopes[~np.isfinite(relevances)] = np.nan
        return slopes

    def _rest(self, scores: Floats, relevances: Floats) -> Floats:
        """log Σ e^{s_j} over the documents at most as relevant, for each document."""
        left = relevances[None, :] <= relevances[:, None]
        rest: Floats = np.logaddexp.reduce(np.where(left, scores[None, :], -np.inf), axis=1)
        return rest


def _above_least(relevances: Floats) -> Bools:
    """Which documents are more relevant than the least relevant of their list; all where one is no number."""
    above: Bools = ~(relevances <= np.min(relevances))
    return above


class BayesRank(Ranking):
    """1 − the expected NDCG@k of a ranking drawn by the scores (Kuo, Cheng, Wang 2009; Chen 2020, (6.7)).

    A ranking's first k documents π have the probability p(π) of drawing them one after another by softmax.
    Its gradient is −Σ NDCG@k(π, y)·∇p(π): the relevances appear in the NDCG alone.

    Parameters
    ----------
    k
        How many places count; all n!/(n − k)! orders of k documents are gone through.
    single
        Keep of each list only its most relevant document, or the mean of several: less signal, and a
        smaller :meth:`list_bound`. The dissertation (6.5.5) draws one of several at random, whose
        expectation this is; it does not depend on the order in which documents are stored.
    """

    def __init__(
        self, scorer: Scorer, k: int = 1, single: bool = False, regularizer: Regularizer | None = None
    ) -> None:
        super().__init__(scorer, regularizer)
        self.k = check_count("k", k)
        self.single = check_flag("single", single)

    def list_loss(self, scores: Floats, relevances: Floats) -> float:
        prefixes = _prefixes(len(scores), min(self.k, len(scores)))
        expected = self._ndcg(prefixes, relevances) @ _probabilities(scores, prefixes)[0]
        return float(np.maximum(1.0 - expected, 0.0))

    def list_slopes(self, scores: Floats, relevances: Floats) -> Floats:
        prefixes = _prefixes(len(scores), min(self.k, len(scores)))
        return -self._ndcg(prefixes, relevances) @ _probabilities(scores, prefixes)[1]

    def list_bound(self, w: Floats, documents: Floats, change: str) -> float:
        """How far a list's gradient may move, whatever its relevances are and become.

        Statement: with v(π) = ∇p(π) and every NDCG in [0, 1], a gradient Σ NDCG·v has norm at most
        S = Σ‖v(π)‖, and moves by at most S when relevances change. With ``single`` it is a mean of vectors
        u(d), d a document kept, or 0: its norm is at most the largest ‖u(d)‖, and it moves by at most the
        sum of the two largest, since two means of points are no farther apart than the farthest points.
        Conditions: ``change`` is ``removed`` (the list or its relevances are added or removed),
        ``relabelled`` (other relevances for the same documents) or ``exchanged`` (another list of
        the same bound in its place, which moves twice the norm).
        Source: Chen 2020, dissertation, 6.5.3 and 6.5.5.
        """
        check_choice("change", change, ("removed", "relabelled", "exchanged"))
        with np.errstate(all="ignore"):
            gram = self.scorer.gram(w, documents)
            norms = np.sort(_norms_above(self._directions(w, documents), gram))[::-1]
        largest, second = float(norms[0]), float(norms[1:2].sum())
        norm = largest if self.single else float(norms.sum())
        moves = largest + second if self.single else norm
        return {"removed": norm, "relabelled": moves, "exchanged": 2.0 * norm}[change]

    def bounded_gradient_sum(self, w: Floats, X: Any, y: Any, bound: float, change: str) -> Floats:
        """The sum of the lists' gradients, each scaled so that its :meth:`list_bound` is at most ``bound``.

        The scale depends on documents alone, so that relevances move the sum by no more than ``bound``.
        """
        flat, limit = parameters(w), limit_under(bound)
        return block_sum(
            (self._bounded_gradient(flat, lists, limit, change) for lists in self.lists(X, y)),
            self.scorer.dimension,
        )

    def _bounded_gradient(
        self, w: Floats, lists: tuple[Floats, Floats] | None, limit: float, change: str
    ) -> Floats:
        if lists is None:
            return np.zeros_like(w)
        moves = np.array(self.list_bound(w, lists[0], change))
        if not np.isfinite(moves):
            return np.zeros_like(w)
        return self._gradient(w, *lists) * float(clip_factors(moves, limit))

    def _directions(self, w: Floats, documents: Floats) -> Floats:
        """v(π) for each π, or u(d) for each d, as factors of the Jacobian's rows, a row each."""
        shape = len(documents), min(self.k, len(documents))
        slopes = _probabilities(self.scorer.scores(w, documents), _prefixes(*shape))[1]
        return _lone_ndcg(*shape) @ slopes if self.single else slopes

    def _ndcg(self, prefixes: Integers, relevances: Floats) -> Floats:
        """NDCG@k of each π, in [0, 1]; all are 0 for a list without a relevant document."""
        grades = gains(relevances)
        if self.single:
            return self._lone(prefixes.shape[1], grades)
        weights = discounts(prefixes.shape[1])
        ideal = float(np.sort(grades)[::-1][: len(weights)] @ weights)
        if ideal <= 0.0:
            return np.zeros(len(prefixes))
        return np.minimum(grades[prefixes] @ weights / ideal, 1.0)

    def _lone(self, k: int, grades: Floats) -> Floats:
        """The mean over the most relevant documents of NDCG@k where that one alone were relevant."""
        best = float(grades.max())
        kept = (grades == best) & (best > 0.0)
        found: Floats = (kept / max(1, kept.sum())) @ _lone_ndcg(len(grades), k)
        return found


def _norms_above(factors: Floats, gram: Floats) -> Floats:
    """√(cᵀKc) for each row c, from above: with what rounding may have taken from a sum that cancels."""
    squares: Floats = np.einsum("ij,ij->i", factors @ gram, factors)
    sizes = np.abs(factors) @ np.sqrt(np.diag(gram))
    norms: Floats = np.sqrt(np.maximum(squares, 0.0) + _ROUNDING * np.square(sizes))
    return norms


@functools.lru_cache(maxsize=64)
def _prefixes(documents: int, k: int) -> Integers:
    """Every order of k out of so many documents, a row each."""
    return np.array(list(itertools.permutations(range(documents), k)), dtype=np.int64)


@functools.lru_cache(maxsize=64)
def _lone_ndcg(documents: int, k: int) -> Floats:
    """NDCG@k of each π, a column each, where one document alone is relevant, a row each."""
    prefixes, weights = _prefixes(documents, k), discounts(k)
    found = np.zeros((documents, len(prefixes)))
    for place in range(k):
        found[prefixes[:, place], np.arange(len(prefixes))] = weights[place] / weights[0]
    return found


def _probabilities(scores: Floats, prefixes: Integers) -> tuple[Floats, Floats]:
    """p(π) for each π, and its derivatives by the scores, a row each."""
    rows = np.arange(len(prefixes))
    taken = np.zeros((len(prefixes), len(scores)), dtype=bool)
    probability, slopes = np.ones(len(prefixes)), np.zeros((len(prefixes), len(scores)))
    for place in range(prefixes.shape[1]):
        shares = softmax(np.where(taken, -np.inf, scores))
        chosen = prefixes[:, place]
        probability *= shares[rows, chosen]
        slopes -= shares
        slopes[rows, chosen] += 1.0
        taken[rows, chosen] = True
    return probability, probability[:, None] * slopes
