"""PrivGene: a genetic search whose selections are private."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from dpledger_client._arrays import Floats
from dpledger_client._checks import check_count, check_positive, check_rate
from dpledger_client.mechanisms import Exponential
from dpledger_client.objectives.base import loss_sensitivity
from dpledger_client.optimizers.support.base import Method
from dpledger_client.optimizers.support.line_search import public_offset
from dpledger_client.optimizers.support.planning import Item, Setting, step_item
from dpledger_client.optimizers.training import AuthorizedBatch, Batch, Training
from dpledger_client.releases import Release

__all__ = ["PrivGene"]


@dataclass(frozen=True)
class PrivGene(Method):
    """Select the fittest, cross them, mutate their children (Zhang, Xiao, Yang, Zhang, Winslett 2013).

    Parameters
    ----------
    generations
        How many; of the last one only the fittest is selected.
    epsilon
        Of each selection.
    loss_clip
        To which loss each record's is cut.
    population, parents
        How many candidates a generation has, and how many of them are selected.
    half_width
        Candidates start, and stay, within this of zero in every coordinate.
    mutation, decay
        By how much one coordinate of a child moves at most, at first, and the factor by which that
        shrinks from one generation to the next.
    seed
        Of the search's own randomness, which is public.

    Notes
    -----
    A selection is the exponential mechanism on minus the sums of clipped losses, of sensitivity ``loss_clip``
    under either adjacency, and monotonic under add-remove; the candidates already selected are left out.
    The regulariser is public and counts as often as there are records, by their public number.
    A generation is one step with ``parents`` such releases. Crossing and mutation look at nothing but what
    was selected. The published method assumes a bounded score; here every loss is cut, so that it is.
    """

    name: ClassVar[str] = "privgene"
    generations: int
    epsilon: float
    loss_clip: float
    population: int = 100
    parents: int = 10
    half_width: float = 1.0
    mutation: float = 0.5
    decay: float = 0.9
    seed: int = 0

    def __post_init__(self) -> None:
        check_count("generations", self.generations)
        check_positive("epsilon", self.epsilon)
        check_positive("loss_clip", self.loss_clip)
        if check_count("population", self.population) <= check_count("parents", self.parents, least=2):
            raise ValueError(f"population must be above parents, found {self.population}")
        check_positive("half_width", self.half_width)
        check_positive("mutation", self.mutation)
        check_rate("decay", self.decay)

    @property
    def planned_steps(self) -> int:
        return self.generations

    def items(self, setting: Setting) -> list[Item]:
        last = step_item("last-selection", self._release(setting.adjacency, 1))
        if self.generations == 1:
            return [last]
        parents = self._release(setting.adjacency, self.parents)
        return [step_item("selection", parents, times=self.generations - 1), last]

    def _release(self, adjacency: str, count: int) -> Release:
        sensitivity = loss_sensitivity(self.loss_clip, adjacency)
        mechanism = Exponential(self.epsilon, sensitivity=sensitivity, monotonic=adjacency == "add-remove")
        return Release(mechanism, count=count, purpose="selection")

    def train(self, training: Training) -> None:
        public = np.random.default_rng(self.seed)
        shape = self.population, len(training.w)
        candidates: Floats = public.uniform(-self.half_width, self.half_width, shape)
        for generation in range(1, self.generations + 1):
            selected = self._select(training, candidates, last=generation == self.generations)
            training.record(selected[0], generation=generation)
            if generation < self.generations:
                candidates = self._children(public, selected, self.mutation * self.decay ** (generation - 1))

    def _select(self, training: Training, candidates: Floats, *, last: bool) -> Floats:
        """The fittest, most likely, one after the other."""
        count = 1 if last else self.parents
        authorized = training.authorized(self._release(training.adjacency, count))
        scores = _Scores(training, candidates, self.loss_clip)
        rest = np.arange(len(candidates))
        chosen: list[int] = []
        for _ in range(count):
            index = _choice(authorized, scores, rest)
            chosen.append(int(rest[index]))
            rest = np.delete(rest, index)
        return candidates[chosen]

    def _children(self, public: np.random.Generator, selected: Floats, reach: float) -> Floats:
        """Each from two parents: the first coordinates of one, the others of the other, one of them moved."""
        dimension = selected.shape[1]
        children = np.empty((self.population, dimension))
        for child in children:
            first, second = public.choice(len(selected), size=2, replace=False)
            point = int(public.integers(0, dimension + 1))
            child[:point], child[point:] = selected[first, :point], selected[second, point:]
            child[public.integers(dimension)] += public.uniform(-reach, reach)
        return np.clip(children, -self.half_width, self.half_width)


class _Scores:
    """Minus the candidates' sums of clipped losses and penalties, computed when first needed."""

    def __init__(self, training: Training, candidates: Floats, clip: float) -> None:
        self._training = training
        self._candidates = candidates
        self._clip = clip
        self._known: Floats | None = None

    def of(self, batch: Batch) -> Floats:
        if self._known is None:
            self._known = np.array([self._score(batch, w) for w in self._candidates])
        return self._known

    def _score(self, batch: Batch, w: Floats) -> float:
        """The penalty counts once for each of the public number of records, so that it moves nothing."""
        objective, clip = self._training.objective, self._clip
        penalty = public_offset(self._training.records * objective.regularizer.value(w), clip)
        return -(objective.clipped_loss_sum(w, batch.X, batch.y, clip) + penalty)


def _choice(
    authorized: AuthorizedBatch, scores: _Scores, rest: "np.ndarray[tuple[int], np.dtype[np.int64]]"
) -> int:
    index: int = authorized.release(lambda batch: scores.of(batch)[rest], "selection")
    return index
