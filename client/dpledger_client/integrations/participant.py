"""A participant of distributed training: asks its own ledger, looks at its own data, answers a round.

It knows no transport. Whoever carries its answers (:mod:`dpledger_client.integrations.flower`, or anything
else) sees an :class:`Update`, which has the participant's noise in it already, or a :class:`Refusal`.

A request is a round's number and the parameters, and each has a journal of its own, named after it. So a
participant that was killed and is asked again finds what it did. A request that was answered is answered as
before, without another look at the data and without fresh noise. One that was paid for and not answered is
answered for what was paid. One to which the ledger's answer was lost is asked under its old key, and charged
once. Other parameters are another request, which is paid for.
"""

import hashlib
import json
import logging
import os
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from dpledger_client._arrays import Floats
from dpledger_client._checks import check_count
from dpledger_client.errors import (
    BudgetExhausted,
    DPLedgerError,
    JournalBusy,
    JournalError,
    NoAnswer,
    Refused,
)
from dpledger_client.journal import Journal
from dpledger_client.ledger import Account
from dpledger_client.objectives.base import Objective, parameters
from dpledger_client.optimizers.support.federated import FederatedMethod
from dpledger_client.optimizers.support.participants import Participant
from dpledger_client.optimizers.training import AuthorizedBatch, Source

__all__ = ["Answer", "LocalParticipant", "Refusal", "Update", "answer_safely"]

_LOG = logging.getLogger("dpledger_client")
_DIGEST_CHARACTERS = 32


@dataclass(frozen=True)
class Update:
    """What a participant releases in a round: a value with its noise, and the ledger's entry for it."""

    participant: str
    value: Floats
    entry: str


@dataclass(frozen=True)
class Refusal:
    """Why a participant sends nothing in a round; ``final`` if it takes no further part.

    ``reason`` is a word of the ledger's or one of ``unreachable``, ``journal``, ``busy``,
    ``bad-parameters`` and ``failed``. It never quotes an exception, whose text may quote the data.
    """

    participant: str
    reason: str
    final: bool


Answer: TypeAlias = Update | Refusal


class LocalParticipant:
    """One participant, beside its data.

    Parameters
    ----------
    method
        Such as :class:`~dpledger_client.optimizers.methods.a_ddp.ADDP`, the same at every participant and at
        the server. Its noise is a number here: a function of past rounds is not kept over a restart.
    objective, X, y
        As in ``minimize``; the records of this participant only.
    account
        Of this participant's own partition or dataset, without a journal. Tokens are limited to datasets, not
        to partitions: owners that do not trust each other have a dataset each. The run's name is the name of
        the training: the same request in another run is paid for again.
    journals
        A folder that survives the process, for nobody else to read or write. Without what it holds a request
        that comes again is paid for again.
    records
        The public number of records, where it is secret how many there are.
    """

    def __init__(
        self,
        method: FederatedMethod,
        objective: Objective,
        X: Any,
        y: Any,
        account: Account,
        *,
        journals: str | os.PathLike[str],
        records: int | None = None,
    ) -> None:
        if callable(getattr(method, "noise_multiplier", None)):
            raise ValueError(
                "noise_multiplier must be a number: what happened before is not kept over a restart"
            )
        if account.journal is not None:
            raise ValueError("account must have no journal: every round gets one of its own in journals")
        self.method = method
        self.objective = objective
        self._data = X, y, account, records
        self._folder = Path(journals)

    @property
    def name(self) -> str:
        """Its partition, or the dataset that it has for itself."""
        account = self._data[2]
        return account.partition or account.dataset.name

    def answer(self, iteration: int, w: Any) -> Answer:
        """Answer one round: a noisy update after the ledger's yes, or why there is none.

        Raises what fails in the participant's own data or objective; :func:`answer_safely` keeps the text
        of that from leaving.
        """
        try:
            point = parameters(w)
            path = self._journal_path(check_count("iteration", iteration), point)
        except (TypeError, ValueError):
            return Refusal(self.name, "bad-parameters", final=False)
        try:
            return self._released(path, point)
        except DPLedgerError as error:
            _LOG.warning("%s sends nothing in round %d: %s", self.name, iteration, error)
            if isinstance(error, BudgetExhausted):  # an answer: the next time may be asked anew
                with suppress(OSError):
                    path.unlink()
            return _refusal_of(self.name, error)

    def close(self) -> None:
        """Let go of the ledger's sockets; they come back when they are needed."""
        self._data[2].dataset.ledger.close()

    def _released(self, path: Path, w: Floats) -> Answer:
        X, y, account, records = self._data
        source = Source.of(X, y, account, records)
        if len(w) != self.objective.dimension(source.X, source.y):
            return Refusal(self.name, "bad-parameters", final=False)
        release, sample = self.method.request_for(Participant(0, source))
        source.check(sample)
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with Journal.at(path).alone() as journal:
            granted = replace(account, journal=journal).authorize(release, sample=sample)
            value = self.method.update(self.objective, AuthorizedBatch(source, sample, granted), w)
        return Update(self.name, value, granted.granted.id)

    def _journal_path(self, iteration: int, w: Floats) -> Path:
        """Where the journal of a request is, by what is asked of whom."""
        account = self._data[2]
        asked = [account.dataset.name, account.partition, account.allocation, account.name, iteration]
        digest = hashlib.sha256(json.dumps(asked).encode() + b"\n" + np.ascontiguousarray(w).tobytes())
        return self._folder / f"{iteration:06d}-{digest.hexdigest()[:_DIGEST_CHARACTERS]}.journal"


def answer_safely(make: Callable[[], LocalParticipant], iteration: int, w: Any) -> Answer:
    """The answer of a participant that is made for it; what fails is logged here and sent to nobody.

    The text of an exception may quote a record: parsers and shape checks do. Transports that send it
    to the server would send that.
    """
    name = ""
    try:
        with closing(make()) as participant:
            name = participant.name
            return participant.answer(iteration, w)
    except Exception:
        _LOG.exception("this participant failed in round %r", iteration)
        return Refusal(name, "failed", final=False)


def _refusal_of(name: str, error: DPLedgerError) -> Refusal:
    """What may leave of an error: which kind it is. A service that cannot be reached may be back."""
    if isinstance(error, Refused):
        return Refusal(name, error.slug or "refused", final=True)
    if isinstance(error, JournalBusy):
        return Refusal(name, "busy", final=False)
    if isinstance(error, JournalError):
        return Refusal(name, "journal", final=False)
    return Refusal(name, "unreachable" if isinstance(error, NoAnswer) else "failed", final=False)
