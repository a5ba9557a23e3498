"""A fit as the ledger sees it: bounds that are not public, then the training, out of one request."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np

from dpledger_client._arrays import Bools, Floats
from dpledger_client.estimators.private_bounds import (
    BOUNDS_SHARE,
    bounds_from,
    histogram_release,
)
from dpledger_client.ledger import Account
from dpledger_client.mechanisms import Gaussian
from dpledger_client.objectives import Objective
from dpledger_client.optimizers import Method, NonPrivate, Result, Source, minimize
from dpledger_client.optimizers.support.planning import Item, step_item
from dpledger_client.optimizers.support.rules import PublicFacts, Request, facts_of, make_plan, returning
from dpledger_client.optimizers.support.rules.room import Room
from dpledger_client.releases import Release

__all__ = ["Fit", "Prepared"]

Prepared: TypeAlias = Callable[[Floats, Floats], tuple[Any, Any]]
"""From bounds of all columns to rows and labels as the objective wants them; looks at nothing."""
Histogram: TypeAlias = Callable[[Bools], Floats]
"""The counts of some columns' bins, computed after the ledger's yes."""


@dataclass(frozen=True)
class Fit:
    """What is asked for in one fit.

    Attributes
    ----------
    account, request
        Who pays, and what in all; None where the method has its own noise.
    method, options
        As in :func:`~dpledger_client.optimizers.minimize`.
    objective, start
        What is minimised, and from where; None for the objective's own start.
    records
        The public number, if the dataset was opened without it.
    row_norm
        What bounds every row once the bounds are known; None where nothing does.
    settings
        ``reserve``, ``block`` and ``progress``.
    """

    account: Account | None
    request: Request | None
    method: str | Method | NonPrivate
    options: Mapping[str, Any]
    objective: Objective
    start: Floats | None
    records: int | None
    row_norm: float | None
    settings: Mapping[str, Any]

    def train(
        self, low: Floats, high: Floats, prepared: Prepared, histogram: Histogram
    ) -> tuple[Result, Floats, Floats]:
        """The result, and the bounds; where ``low`` is no number they are estimated first, and charged."""
        if self.request is None or not isinstance(self.method, str):
            return self._as_it_is(low, high, prepared)
        if self.account is None:
            raise ValueError("account must be given: a fit looks at private data")
        unknown = np.isnan(low)
        release = self._release(int(unknown.sum()))
        facts = self._facts(*prepared(low, high), release)
        planned, account = make_plan(facts, self.method)
        with returning(planned, account):
            if release is not None:
                noisy = account.release(release, lambda: histogram(unknown))
                low, high = _filled(low, high, unknown, noisy, facts.records, release)
            result = self._minimize(*prepared(low, high), account, planned.method, {})
        return replace(result, plan=planned), low, high

    def _as_it_is(self, low: Floats, high: Floats, prepared: Prepared) -> tuple[Result, Floats, Floats]:
        """By a method with its own noise; nothing is left for bounds, and columns without stay unchanged."""
        low, high = np.where(np.isnan(low), -np.inf, low), np.where(np.isnan(high), np.inf, high)
        asked = {} if self.request is None else vars(self.request)
        made = self._minimize(*prepared(low, high), self.account, self.method, {**self.options, **asked})
        return made, low, high

    def _minimize(self, X: Any, y: Any, account: Account | None, method: Any, options: Any) -> Result:
        return minimize(
            self.objective,
            X,
            y,
            account=account,
            method=method,
            records=self.records,
            w0=self.start,
            **self.settings,
            **options,
        )

    def _release(self, columns: int) -> Release | None:
        """The histogram of unknown columns, for a tenth of what is to be spent."""
        if not columns:
            return None
        assert self.account is not None
        assert self.request is not None
        room = Room.of(self.account, self.request)
        return histogram_release(columns, room.adjacency, math.sqrt(BOUNDS_SHARE) * room.mu)

    def _facts(self, X: Any, y: Any, release: Release | None) -> PublicFacts:
        assert self.account is not None
        assert self.request is not None
        beside: list[Item] = [] if release is None else [step_item("bounds", release)]
        return facts_of(
            self.account,
            self.request,
            records=Source.of(X, y, self.account, self.records).records,
            objective=self.objective,
            dimension=self.objective.dimension(X, y),
            features=int(X.shape[1]),
            row_norm=self.row_norm,
            start=self.start,
            beside=beside,
            options=self.options,
        )


def _filled(
    low: Floats, high: Floats, unknown: Bools, noisy: Any, records: int, release: Release
) -> tuple[Floats, Floats]:
    """The bounds, with those that were released in the place of unknown ones."""
    mechanism = release.mechanism
    assert isinstance(mechanism, Gaussian)
    found = bounds_from(noisy, int(unknown.sum()), records, mechanism.noise_std)
    low, high = low.copy(), high.copy()
    low[unknown], high[unknown] = found
    return low, high
