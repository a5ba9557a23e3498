"""Training with several participants, each with data and a budget of its own."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dpledger_client._bulk import Spend
from dpledger_client.errors import BudgetExhausted, Refused
from dpledger_client.journal import Journal
from dpledger_client.ledger import Account
from dpledger_client.objectives.base import Objective
from dpledger_client.optimizers.training import AuthorizedBatch, Source, Training
from dpledger_client.permits import Authorization
from dpledger_client.releases import Release
from dpledger_client.samples import FreshSample

__all__ = ["Participant", "SharedTraining", "sources_of"]

BULK_ITEMS = 1000
"""As many as the service decides in one request."""


@dataclass
class Participant:
    """One of those who train together. All of this but the source's data is public.

    Attributes
    ----------
    number
        Its place in the lists that ``minimize`` was given.
    rounds
        How many it took part in.
    remaining
        What the ledger said is left to it after the last one.
    active
        False once the ledger has refused it.
    """

    number: int
    source: Source
    rounds: int = 0
    remaining: Mapping[str, Any] = field(default_factory=dict)
    active: bool = True

    @property
    def records(self) -> int:
        """The public number of its records."""
        return self.source.records

    @property
    def adjacency(self) -> str:
        """Its dataset's adjacency."""
        return self.source.adjacency


Asked = tuple[Release, FreshSample]


class SharedTraining(Training):
    """One training of several participants; a round asks for all that are active in one request."""

    def __init__(self, objective: Objective, sources: Sequence[Source], **settings: Any) -> None:
        super().__init__(objective, sources[0], **settings)
        self.participants = [Participant(number, source) for number, source in enumerate(sources)]
        self._ledger, self._journal = _common_ledger([source.account for source in sources])

    @property
    def records(self) -> int:
        """The public number of everybody's records."""
        return sum(participant.records for participant in self.participants)

    @property
    def active(self) -> list[Participant]:
        """Those who still take part."""
        return [participant for participant in self.participants if participant.active]

    def look_each(self, asked: Callable[[Participant], Asked]) -> list[tuple[Participant, AuthorizedBatch]]:
        """Ask for one step of each active participant; who is refused takes no further part.

        Returns those who may look. Raises :class:`BudgetExhausted`, which ends the training, if nobody
        may. A refusal for another reason than a budget is raised.
        """
        steps = [(each, *asked(each)) for each in self.active]
        for each, _release, sample in steps:
            each.source.check(sample)
        answers = self._answers([each.source.account.spend(release, sample=s) for each, release, s in steps])
        looks = []
        for (participant, release, sample), answer in zip(steps, answers, strict=True):
            if isinstance(answer, Authorization):
                self._charges.append((answer.granted, (release,), sample, None))
                looks.append((participant, self._to_batch(participant, sample, answer)))
            else:
                _drop_out(participant, answer)
        if not looks:
            raise next(answer for answer in answers if isinstance(answer, Refused))
        self.remaining = _least_left(self.active)
        return looks

    def _answers(self, spends: Sequence[Spend]) -> list[Authorization | Refused]:
        found: list[Authorization | Refused] = []
        for start in range(0, len(spends), BULK_ITEMS):
            part = spends[start : start + BULK_ITEMS]
            found += self._ledger.authorize_all(part, mode="each", journal=self._journal)
        return found

    def _to_batch(self, participant: Participant, sample: FreshSample, yes: Authorization) -> AuthorizedBatch:
        participant.rounds += 1
        participant.remaining = yes.granted.remaining
        return AuthorizedBatch(participant.source, sample, yes)


def _drop_out(participant: Participant, answer: Refused) -> None:
    if not isinstance(answer, BudgetExhausted):
        raise answer
    participant.active = False
    participant.remaining = answer.remaining


def _least_left(participants: Sequence[Participant]) -> Mapping[str, Any]:
    """What the participant has that has the smallest fraction left."""
    return min(
        (participant.remaining for participant in participants),
        key=lambda remaining: float(remaining.get("fraction", 1.0)),
    )


def _common_ledger(accounts: Sequence[Account]) -> tuple[Any, Journal | None]:
    """The ledger, and the journal if any, of all accounts."""
    ledger, journal = accounts[0].dataset.ledger, accounts[0].journal
    if any(account.dataset.ledger is not ledger or account.journal is not journal for account in accounts):
        raise ValueError("all accounts must be of one ledger, and with one journal or none")
    spent_on = [(account.dataset.name, account.partition) for account in accounts]
    if len(set(spent_on)) < len(spent_on):
        raise ValueError("each participant must have a dataset or partition of its own")
    return ledger, journal


def sources_of(
    X: Sequence[Any],
    y: Sequence[Any],
    accounts: Sequence[Account],
    records: int | Sequence[int] | None = None,
) -> list[Source]:
    """The participants' data; each dataset is asked for once. ``records`` of each, or one number for all."""
    if not len(X) == len(y) == len(accounts) > 0:
        raise ValueError(
            f"X, y and account must have one item a participant, found {len(X)}, {len(y)} and {len(accounts)}"
        )
    numbers = [records] * len(X) if records is None or isinstance(records, int) else list(records)
    if len(numbers) != len(X):
        raise ValueError(f"records must be one number or one per participant, found {len(numbers)}")
    shown = {account.dataset.name: account.dataset for account in accounts}
    known = {name: dataset.facts() for name, dataset in shown.items()}
    return [
        Source.of(rows, labels, account, number, known[account.dataset.name])
        for rows, labels, account, number in zip(X, y, accounts, numbers, strict=True)
    ]
