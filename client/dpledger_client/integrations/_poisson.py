"""Poisson batches at a rate that follows from public numbers alone."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from dpledger_client._checks import check_count
from dpledger_client.samples import Poisson

__all__ = ["PoissonBatches", "SamplingPlan"]


@dataclass(frozen=True)
class SamplingPlan:
    """The public numbers of a training: how many records there are, and how many a batch is to have.

    Rate, denominator and length of an epoch follow from these two, and never from ``len(dataset)``: under
    add-remove adjacency that is what a neighbour changes.

    Examples
    --------
    >>> plan = SamplingPlan(records=1000, batch_size=10)
    >>> plan.sample, plan.steps_per_epoch, plan.expected_batch_size(ranks=2)
    (Poisson(rate=0.01), 100, 5.0)
    """

    records: int
    batch_size: int

    def __post_init__(self) -> None:
        check_count("records", self.records)
        if check_count("batch_size", self.batch_size) > self.records:
            raise ValueError(f"batch_size must be at most {self.records} records, found {self.batch_size}")

    @property
    def rate(self) -> float:
        """The probability of each record to be in a batch."""
        return self.batch_size / self.records

    @property
    def sample(self) -> Poisson:
        """A batch as the ledger knows it."""
        return Poisson(self.rate)

    @property
    def steps_per_epoch(self) -> int:
        """How many batches an epoch has."""
        return -(-self.records // self.batch_size)

    def expected_batch_size(self, ranks: int = 1) -> float:
        """By how many records each rank divides its sum; Opacus averages over the ranks after that."""
        return self.batch_size / ranks


class PoissonBatches:
    """A batch sampler: each record by a coin of its own, drawn from the system's randomness.

    Opacus' samplers are not used for three reasons. They compare a float of 24 random bits with the rate,
    which draws more often than stated (at a rate of 1e-9, sixty times). They draw from torch's generator,
    so that ranks with one seed draw the same batches, and a restored one draws them again. The distributed
    one leaves out empty batches, so that ranks get out of step by what the data are.

    Parameters
    ----------
    plan
        The public numbers.
    held
        How many records there really are; a secret that nothing but the drawing of indices depends on.
    rank, ranks
        Which part of the records this process draws from: every ``ranks``-th, beginning at ``rank``.
    ahead
        Whether worker processes fetch batches before their turn.
    parts
        Into how many pieces each batch is split, empty ones included, for a trainer that accumulates so many.

    Attributes
    ----------
    drawn
        How many records the batch at hand has; None where workers fetch ahead, or before the first. A secret.
    forget
        Called before a batch is drawn, with whether it is an epoch's first: whatever is left of a batch that
        was not finished must not be added to the next, which may have the same records.
    """

    def __init__(
        self,
        plan: SamplingPlan,
        held: int,
        *,
        rank: int = 0,
        ranks: int = 1,
        ahead: bool = False,
        parts: int = 1,
    ) -> None:
        self.plan = plan
        self.ranks = ranks
        self.parts = check_count("parts", parts)
        if ahead and parts > 1:
            raise ValueError("parts of a batch are counted as they are loaded: num_workers must be 0")
        self.drawn: int | None = None
        self.forget: Callable[[bool], None] = _forget_nothing
        self._own = range(rank, held, ranks)
        self._ahead = ahead
        self._fresh = 0
        self._given = 0
        self._added = 0

    def __len__(self) -> int:
        return self.plan.steps_per_epoch * self.parts

    def __iter__(self) -> Iterator[list[int]]:
        self._fresh = 0
        for number in range(self.plan.steps_per_epoch):
            if number == 0 or not self._ahead:
                self.forget(number == 0)
            batch = [self._own[place] for place in self.plan.sample.draw(len(self._own)).tolist()]
            self.drawn = None if self._ahead else len(batch)
            self._fresh = self._fresh + 1 if self._ahead else 1
            self._given = self._added = 0
            for part in range(self.parts):
                self._given += 1
                yield batch[part :: self.parts]

    def add_part(self) -> bool:
        """Count a part whose gradients are there; False for the last of its batch, which the step takes."""
        more = self._added + 1 < self.parts
        self._added += more
        return more

    def use(self) -> None:
        """Count one step against the batches drawn; a step without a batch of its own is refused.

        Two steps on one batch, or steps on the batches of another loader, are not what is charged. Where
        workers fetch ahead, it cannot tell which drawn batches were not used yet.
        """
        if self.parts > 1 and self._fresh and (self._given, self._added) != (self.parts, self.parts - 1):
            raise ValueError(
                f"a step must be of all {self.parts} parts of one batch, found {self._added + 1}: let the "
                "trainer accumulate as many batches as make_private was given parts"
            )
        if self._fresh < 1:
            raise ValueError(
                "a step needs a batch of its own from the loader that make_private returned: found a "
                "second step on one batch, or another loader"
            )
        self._fresh -= 1


def _forget_nothing(_first: bool) -> None:
    """What batches that no optimizer asks about have to forget."""
