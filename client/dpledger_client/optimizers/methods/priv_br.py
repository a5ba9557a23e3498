"""Private BayesRank: learning to rank where documents are public and what users thought of them is not."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from dpledger_client._arrays import Floats, Integers
from dpledger_client._checks import check_choice, check_count, check_flag, check_positive, check_rate
from dpledger_client.mechanisms import Gaussian, OutputMixture
from dpledger_client.objectives.base import CLIP_MARGIN
from dpledger_client.objectives.ranking import BayesRank, Scorer
from dpledger_client.optimizers.support.base import Method
from dpledger_client.optimizers.support.batches import sample_at
from dpledger_client.optimizers.support.planning import Item, Setting, step_item
from dpledger_client.optimizers.support.projections import Projection
from dpledger_client.optimizers.support.schedules import StepSize, step_size_at
from dpledger_client.optimizers.training import Batch, Training, check_equally_many
from dpledger_client.releases import Release
from dpledger_client.samples import FreshSample, Full

__all__ = ["PrivBR", "SpectralNormalization"]

RELABELLED = "relabelled"


@dataclass(frozen=True)
class SpectralNormalization(Projection):
    """Parameters of a scorer with weight matrices of spectral norm 1; for any method with a projection."""

    scorer: Scorer

    def __call__(self, w: Floats) -> Floats:
        return self.scorer.normalize(w)


@dataclass(frozen=True)
class PrivBR(Method):
    """PrivBR (Chen 2020, dissertation, Algorithm 6.1), for the objective ``BayesRank``.

    A gradient of a list is a sum over rankings of an NDCG, which alone depends on the relevances, times
    a vector that depends on documents and parameters. So a bound on what one user can change is computed
    from the documents (:meth:`BayesRank.list_bound`) instead of clipping.

    Parameters
    ----------
    documents
        Every list's documents, as in X: **public**. They must not depend on anybody's relevances, and
        that a list is among them must be no secret.
    steps, step_size
        How many, and how large each is.
    noise_multiplier
        The noise's standard deviation over the bound.
    rate
        The share of the lists in a sample; 1 for all of them.
    bound
        ``all``: the largest over all documents. ``batch``: the largest over the sample's, as in the
        dissertation; under replace-one only.
    bound_quantile
        Take this quantile of the bounds of all documents' lists instead of the largest (1): the gradients of
        lists with a larger bound are scaled down to it. Less noise, and less of the lists that move most.
    spectral
        Divide each weight matrix by its largest singular value after each step (6.5.4).

    Notes
    -----
    The sum of gradients is divided by the bound, so that every step is the same release of sensitivity 1,
    and multiplied by it after the noise. Under add-remove (a list's relevances come or go) a list moves
    it by its norm; under replace-one (its relevances change, its documents do not) by as much as
    relevances can; sampled without replacement by twice the norm, since one drawn list then stands for
    another.

    With ``bound="all"`` a step is a Gaussian release on a sample, amplified. Algorithm 6.1 takes the bound
    from the secret sample and amplifies too: **unsound**, since the noise's width then tells who was drawn.
    With ``bound="batch"`` that is therefore charged as if the sample were published, by Lemma 3.2 (the
    mixture of a move of 0 and one of 1): log(1 − q + q·e^(α(α−1)/(2σ²)))/(α − 1). For small q it costs far
    more.

    Also changed: line 21 moves along G, which would lower the NDCG; here it is raised. The noisy sum
    is divided by the public expected size of a sample. A list whose bound is larger, as with
    ``bound_quantile`` or for other data in X, is scaled to it, so that the charge holds whatever X is.
    """

    name: ClassVar[str] = "priv-br"
    documents: Sequence[Any] = field(repr=False, compare=False)
    steps: int
    noise_multiplier: float
    rate: float
    step_size: StepSize
    bound: str = "all"
    spectral: bool = False
    bound_quantile: float = 1.0

    def __post_init__(self) -> None:
        check_count("steps", self.steps)
        check_positive("noise_multiplier", self.noise_multiplier)
        check_rate("rate", self.rate)
        check_choice("bound", self.bound, ("all", "batch"))
        check_flag("spectral", self.spectral)
        check_rate("bound_quantile", self.bound_quantile)
        public = [np.asarray(documents, dtype=np.float64) for documents in self.documents]
        if not public or not all(each.ndim == 2 and np.isfinite(each).all() for each in public):
            raise ValueError("documents must be a list of matrices of finite numbers")
        object.__setattr__(self, "documents", tuple(public))

    def items(self, setting: Setting) -> list[Item]:
        sample = sample_at(self.rate, setting.records, setting.adjacency)
        if self.bound == "batch":
            return [step_item("gradient", self._mixture(sample), times=self.steps)]
        return [step_item("gradient", self._release(), sample, self.steps)]

    def _release(self) -> Release:
        return Release(Gaussian(1.0, self.noise_multiplier), purpose="gradient")

    def _mixture(self, sample: FreshSample) -> Release:
        rate = _rate(sample)
        mixture = OutputMixture(self.noise_multiplier, (0.0, 1.0), (1.0 - rate, rate))
        return Release(mixture, purpose="gradient")

    def train(self, training: Training) -> None:
        objective = _bayes_rank(training)
        sample = sample_at(self.rate, training.records, training.adjacency)
        if self.bound == "batch":
            self._check_batch_bound(training)
        w = training.w
        for iteration in range(1, self.steps + 1):
            eta = step_size_at(self.step_size, iteration)
            step = self._on_batch if self.bound == "batch" else self._on_sample
            total, bound = step(training, objective, sample, w)
            mean = total / sample.expected_size(training.records)
            moved = w - eta * (mean + objective.regularizer.gradient(w))
            w = objective.scorer.normalize(moved) if self.spectral else moved
            training.record(w, step_size=eta, bound=bound)

    def _on_sample(
        self, training: Training, objective: BayesRank, sample: FreshSample, w: Floats
    ) -> tuple[Floats, float]:
        """The noisy sum of gradients, and the bound over all documents that its noise is scaled to."""
        change = _change(training.adjacency, sample)
        bound = _bound(objective, w, self.documents, change, self.bound_quantile)
        noisy: Floats = training.authorized(self._release(), sample).release(
            lambda batch: objective.bounded_gradient_sum(w, batch.X, batch.y, bound, change) / bound
        )
        return noisy * bound, bound

    def _on_batch(
        self, training: Training, objective: BayesRank, sample: FreshSample, w: Floats
    ) -> tuple[Floats, float]:
        """The same with the bound over the sample's documents; which lists are in it counts as published."""
        rows = sample.draw(len(self.documents))
        drawn_documents = [self.documents[row] for row in rows]
        bound = _bound(objective, w, drawn_documents, RELABELLED, self.bound_quantile)

        def sum_batch(batch: Batch) -> Floats:
            drawn = _select_rows(batch, rows)
            return objective.bounded_gradient_sum(w, drawn.X, drawn.y, bound, RELABELLED) / bound

        noisy: Floats = training.authorized(self._mixture(sample)).release(sum_batch)
        return noisy * bound, bound

    def _check_batch_bound(self, training: Training) -> None:
        if training.adjacency != "replace-one":
            raise ValueError("bound='batch' is proven under replace-one: relevances change, lists stay")
        check_equally_many(training.source.account, "bound='batch'")
        if len(self.documents) != training.records:
            raise ValueError(f"documents must be of {training.records} lists, found {len(self.documents)}")
        if training.source.account.journal is not None:
            raise ValueError("bound='batch' cannot be restarted from a journal: its sample is drawn anew")


def _bayes_rank(training: Training) -> BayesRank:
    if not isinstance(training.objective, BayesRank):
        raise TypeError(f"priv-br minimises BayesRank, found {type(training.objective).__name__}")
    return training.objective


def _change(adjacency: str, sample: FreshSample) -> str:
    """What a neighbour's list is to the sum over a sample."""
    if adjacency == "add-remove":
        return "removed"
    return RELABELLED if isinstance(sample, Full) else "exchanged"


def _bound(
    objective: BayesRank, w: Floats, documents: Iterable[Floats], change: str, quantile: float
) -> float:
    """A quantile of the lists' bounds, with room for rounding; it depends on public documents alone."""
    bounds = [objective.list_bound(w, each, change) for each in documents]
    bound = float(np.quantile(bounds, quantile, method="higher"))
    if not (np.isfinite(max(bounds)) and bound > 0.0):
        raise ValueError("documents must give some list a gradient, and every list a finite one")
    return bound / (1.0 - 2.0 * CLIP_MARGIN)


def _rate(sample: FreshSample) -> float:
    """The probability of each list."""
    return float(sample.fields().get("rate", 1.0))


def _select_rows(batch: Batch, rows: Integers) -> Batch:
    return Batch([batch.X[row] for row in rows], [batch.y[row] for row in rows])
