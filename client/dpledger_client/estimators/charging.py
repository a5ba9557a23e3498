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
from dpledger_client.optimizers import Charge, Method, NonPrivate, Record, Result, Source, minimize
from dpledger_client.optimizers.support.planning import Item, step_item
from dpledger_client.optimizers.support.rules import (
    PublicFacts,
    Request,
    facts_of,
    find_rule,
    make_plan,
    return_unused,
    returning,
)
from dpledger_client.optimizers.support.rules.gradient import usual_norm
from dpledger_client.optimizers.support.rules.room import Room
from dpledger_client.permits import Authorization
from dpledger_client.releases import Release
from dpledger_client.samples import Full

__all__ = ["Fit", "Scales", "constant_column"]


@dataclass(frozen=True)
class Scales:
    """What features and targets are scaled by.

    Attributes
    ----------
    low, high
        The bounds of each column; no number where they are to be estimated.
    constant
        The value of the intercept's column; no number where the rule is to choose it.
    """

    low: Floats
    high: Floats
    constant: float = math.nan


Prepared: TypeAlias = Callable[[Scales], tuple[Any, Any]]
"""From scales to rows and labels as the objective wants them; looks at nothing."""
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
    features
        How many, without the intercept's column.
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
    features: int
    settings: Mapping[str, Any]

    def train(self, scales: Scales, prepared: Prepared, histogram: Histogram) -> tuple[Result, Scales]:
        """The result, and the scales; bounds that are no numbers are estimated first, and charged."""
        if self.request is None or not isinstance(self.method, str):
            return self._as_it_is(scales, prepared)
        if self.account is None:
            raise ValueError("account must be given: a fit looks at private data")
        records = Source.of(*prepared(scales), self.account, self.records).records
        unknown = np.isnan(scales.low)
        release = _release(Room.of(self.account, self.request), int(unknown.sum()))
        facts = self._facts(scales, prepared, records, release)
        if math.isnan(scales.constant):
            scales = replace(scales, constant=self._constant(facts))
            facts = replace(facts, row_norm=self._row_norm(scales))
        planned, account = make_plan(facts, self.method)
        before: tuple[Record, ...] = ()
        with returning(planned, account):
            if release is not None:
                permit = account.authorize(release)
                noisy = permit.release(lambda: histogram(unknown))
                scales = _filled(scales, unknown, noisy, records, release)
                before = (_record(permit, release),)
            result = self._minimize(*prepared(scales), account, planned.method, {})
        if release is None and not result.charged:
            return_unused(planned, account)
        history = (*before, *result.history) if before else result.history
        return replace(result, plan=planned, history=history), scales

    def _as_it_is(self, scales: Scales, prepared: Prepared) -> tuple[Result, Scales]:
        """By a method with its own noise; nothing is left for bounds, and columns without stay unchanged."""
        low, high = scales.low, scales.high
        constant = 1.0 if math.isnan(scales.constant) else scales.constant
        scales = Scales(
            np.where(np.isnan(low), -np.inf, low), np.where(np.isnan(high), np.inf, high), constant
        )
        asked = {} if self.request is None else vars(self.request)
        options = {**self.options, **asked}
        return self._minimize(*prepared(scales), self.account, self.method, options), scales

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

    def _facts(
        self, scales: Scales, prepared: Prepared, records: int, release: Release | None
    ) -> PublicFacts:
        assert self.account is not None
        assert self.request is not None
        X, y = prepared(scales)
        beside: list[Item] = [] if release is None else [step_item("bounds", release)]
        return facts_of(
            self.account,
            self.request,
            records=records,
            objective=self.objective,
            dimension=self.objective.dimension(X, y),
            features=int(X.shape[1]),
            row_norm=self._row_norm(scales),
            start=self.start,
            beside=beside,
            options=self.options,
        )

    def _row_norm(self, scales: Scales) -> float:
        """No row is longer once its features are within [−1, 1]."""
        return math.hypot(math.sqrt(self.features), scales.constant)

    def _constant(self, facts: PublicFacts) -> float:
        assert isinstance(self.method, str)
        if find_rule(facts, self.method).scales:
            return 1.0
        strength = facts.records * facts.room.mu / facts.sensitivity(1.0)
        return constant_column(strength, self.features)


def constant_column(strength: float, features: int) -> float:
    """The value of the intercept's column, for s = nμ/Δ at a clip of 1.

    1 where there is enough to learn from. Where there is little, so much that the intercept has the share
    15/s of a row's squared norm: it is then learned before the noise of many weights outweighs it, and the
    model is no worse than the most frequent class.
    """
    share = min(0.95, 15.0 / strength)
    return max(1.0, usual_norm(features) * math.sqrt(share / (1.0 - share)))


def _release(room: Room, columns: int) -> Release | None:
    """The histogram of unknown columns, for a tenth of what is to be spent."""
    if not columns:
        return None
    return histogram_release(columns, room.adjacency, math.sqrt(BOUNDS_SHARE) * room.mu)


def _record(permit: Authorization, release: Release) -> Record:
    """The charge of the bounds, before the first iteration."""
    return Record(0, (Charge.of(permit.granted, (release,), Full(), None),), {"purpose": release.purpose})


def _filled(scales: Scales, unknown: Bools, noisy: Any, records: int, release: Release) -> Scales:
    """The bounds, with those that were released in the place of unknown ones."""
    mechanism = release.mechanism
    assert isinstance(mechanism, Gaussian)
    found = bounds_from(noisy, int(unknown.sum()), records, mechanism.noise_std)
    low, high = scales.low.copy(), scales.high.copy()
    low[unknown], high[unknown] = found
    return replace(scales, low=low, high=high)
