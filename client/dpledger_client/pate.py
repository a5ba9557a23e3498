"""PATE: teachers trained on disjoint parts of private data vote on the labels of public queries.

(Papernot, Abadi, Erlingsson, Goodfellow, Talwar 2017; Papernot et al. 2018.) Only noisy winners are
released, each charged by itself; a student trained on the labelled queries costs nothing more::

    result = pate(fit, X, y, queries, account=account, teachers=100, classes=10,
                  mechanism=NoisyVotes("gaussian", noise_std=20.0))
    student = train(queries[result.answered], result.labels[result.answered])
"""

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from dpledger_client._arrays import Integers, by_place
from dpledger_client._checks import check_count
from dpledger_client._coins import uniform_below
from dpledger_client.errors import BudgetExhausted
from dpledger_client.ledger import Account
from dpledger_client.mechanisms import NoisyVotes, ProposeTestRelease
from dpledger_client.noise import current_noise
from dpledger_client.optimizers.support.progress import Bar, Progress, chosen_progress
from dpledger_client.optimizers.support.results import Charged, History, Record
from dpledger_client.optimizers.training import Asking, Batch, Source, equally_many
from dpledger_client.releases import Release
from dpledger_client.sampling import permutation

__all__ = ["Fit", "Labels", "Predict", "distance_to_instability", "pate"]

Predict: TypeAlias = Callable[[Any], Any]
"""Labels of rows."""
Fit: TypeAlias = Callable[[Any, Any], Predict]
"""Trains a teacher on rows and labels, without any privacy; it must look at nothing else, not even at a
seeded generator that teachers share: how far one teacher got with it would reach all others."""

NO_LABEL = -1


@dataclass(frozen=True)
class Labels(Charged):
    """What :func:`pate` returns.

    Attributes
    ----------
    labels
        One for each query that was asked, in order; −1 where the test found the vote unstable.
    stop_reason
        ``finished`` or ``budget-exhausted``.
    message
        The same for a person.
    history
        One record a query, with its charge.
    remaining
        What the ledger said is left after the last charge.
    """

    labels: Integers
    stop_reason: str
    message: str
    history: Sequence[Record] = field(repr=False)
    remaining: Mapping[str, Any] = field(repr=False)

    @property
    def answered(self) -> Integers:
        """The numbers of the queries that have a label."""
        return np.flatnonzero(self.labels != NO_LABEL)


def pate(
    fit: Fit,
    X: Any,
    y: Any,
    queries: Any,
    *,
    account: Account,
    teachers: int,
    classes: int,
    mechanism: NoisyVotes | ProposeTestRelease,
    parts: ArrayLike | None = None,
    reserve: int | None = None,
    block: int | None = None,
    progress: bool | Progress | None = None,
) -> Labels:
    """Label public queries by private votes, until the budget ends.

    Parameters
    ----------
    fit
        Trains one teacher on its part and returns what predicts labels 0 to ``classes`` − 1 of rows.
    X, y
        The private records. They are looked at after the ledger's first yes.
    queries
        Public rows to be labelled, one after another.
    mechanism
        ``NoisyVotes``: the winner after noise on each count. ``ProposeTestRelease``: the exact winner where a
        noisy test finds it stable, and otherwise no label; both are charged alike.
    parts
        The teacher's number of each record, which must not depend on other records, such as a hospital's.
        Under replace-one a record that takes another's place must take its part too, or two votes move.
        By default drawn at random: each record for itself where the number of records is secret, under
        add-remove and in a partition by a private key, and otherwise equally many for each teacher.
    reserve, block
        How many labels are asked for at once, as in :func:`~dpledger_client.optimizers.minimize`: ``reserve``
        so many, or by default blocks that grow to ``block`` at most.

    Notes
    -----
    A record lies in one part, so that it moves one teacher's vote, which is what both mechanisms' costs are
    proven for. A teacher that fails to train, or predicts something that is no class, abstains, and its
    warnings are not shown: they would tell about its part. So try ``fit`` on public rows first.
    """
    if len(X) != len(y):
        raise ValueError(f"X and y must be equally long, found {len(X)} and {len(y)}")
    adjacency = str(account.dataset.facts()["adjacency"])
    # No sum is divided by a number of records.
    source = Source(by_place(X), by_place(y), account, 0, adjacency)
    assign = _assign(parts, len(X), check_count("teachers", teachers), equally_many(account))
    ensemble = _Ensemble(fit, queries, teachers, check_count("classes", classes, least=2), assign)
    bar = chosen_progress(progress, "pate")
    asking = _Asking(source, steps=len(queries), reserve=reserve, block=block)
    try:
        return asking.label(ensemble, mechanism, bar)
    finally:
        if isinstance(bar, Bar):
            bar.close()


class _Asking(Asking):
    """Asks for one label after another."""

    def label(
        self, ensemble: "_Ensemble", mechanism: NoisyVotes | ProposeTestRelease, progress: Progress
    ) -> Labels:
        found: list[int] = []
        reason, message = "finished", "Every query was asked."
        try:
            with self:
                for query in range(self.steps or 0):
                    found.append(self._label(ensemble, mechanism, query))
                    progress(self.iteration, self.steps, self.remaining)
        except BudgetExhausted as refused:
            reason, message = "budget-exhausted", str(refused)
        labels = np.array(found, dtype=np.int64)
        return Labels(labels, reason, message, History(self._history), self.remaining)

    def _label(self, ensemble: "_Ensemble", mechanism: NoisyVotes | ProposeTestRelease, query: int) -> int:
        stable = isinstance(mechanism, ProposeTestRelease)
        released = self.authorized(Release(mechanism, purpose="label")).release(
            lambda batch: (
                _test_stability(ensemble.votes(batch)[query]) if stable else ensemble.votes(batch)[query]
            )
        )
        label = NO_LABEL if released is None else int(released)
        self.iteration += 1
        self._note({"query": query, "label": label})
        return label


def _test_stability(votes: Integers) -> tuple[int, int]:
    """What a test of stability takes: how far the vote is from an unstable one, and its winner."""
    return distance_to_instability(votes), int(np.argmax(votes))


def distance_to_instability(votes: ArrayLike) -> int:
    """The number of votes to change until one more change could make another label win.

    Statement: with n₁ votes for the winner and n_j for another label, moving r votes from one to the other
    lets that label win if n_j + r > n₁ − r, or if they are equal and it comes first. The distance is the
    least such r, less 1.
    Conditions: one record changes one vote, also to or from no vote; the first of equals wins. Between
    neighbours the distance differs by at most 1, and it is 0 for both if their winners differ.
    Source: Dwork and Lei 2009; Vadhan 2017, Proposition 3.3, for the count that is 0 where it is unstable.
    """
    counts = np.asarray(votes, dtype=np.int64)
    winner = int(np.argmax(counts))
    gaps = counts[winner] - np.delete(counts, winner)
    before = np.arange(len(gaps)) < winner
    changes = np.where(before, (gaps + 1) // 2, gaps // 2 + 1)
    return int(changes.min()) - 1


Assign: TypeAlias = Callable[[int], Integers]
"""The teacher of each of so many records."""


@dataclass
class _Ensemble:
    """Teachers, trained inside the first release that needs a vote."""

    fit: Fit
    queries: Any
    teachers: int
    classes: int
    assign: Assign
    known: Integers | None = None

    def votes(self, batch: Batch) -> Integers:
        """How many teachers vote for each class, a row for each query."""
        if self.known is None:
            part_of = self.assign(len(batch))
            parts = [np.flatnonzero(part_of == teacher) for teacher in range(self.teachers)]
            self.known = sum(
                (self._vote(batch.X[rows], batch.y[rows]) for rows in parts),
                start=np.zeros((len(self.queries), self.classes), dtype=np.int64),
            )
        return self.known

    def _vote(self, X: Any, y: Any) -> Integers:
        """One teacher's vote on every query: a row with one 1, or with none."""
        try:
            with warnings.catch_warnings(action="ignore"):
                found = np.asarray(self.fit(X, y)(self.queries), dtype=np.float64)
        except Exception:  # whatever it is, it depends on private records
            found = np.array([])
        if found.shape != (len(self.queries),):
            found = np.full(len(self.queries), np.nan)
        vote: Integers = (found[:, None] == np.arange(self.classes)).astype(np.int64)
        return vote


def _assign(parts: ArrayLike | None, records: int, teachers: int, public: bool) -> Assign:
    """By the caller's parts, or at random."""
    if parts is None:
        return lambda many: _at_random(many, teachers, public)
    known = np.asarray(parts)
    if known.shape != (records,):
        raise ValueError(f"parts must have one number per record, found the shape {known.shape}")
    return lambda _many: known


def _at_random(records: int, teachers: int, public: bool) -> Integers:
    """Each record by a draw of its own, or, where their number is public, equally many."""
    bits = current_noise().bits
    return permutation(records, bits) % teachers if public else uniform_below(bits, teachers, records)
