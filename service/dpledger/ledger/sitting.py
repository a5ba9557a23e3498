"""One dataset's ledger held open inside a transaction: decisions build on each other, then are written."""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from dpledger.ledger.answers import identifier
from dpledger.ledger.budget import Budget
from dpledger.ledger.charging import check_equal_sizes
from dpledger.ledger.commands import (
    Authorize,
    Expire,
    Record,
    Reservation,
    Reserve,
)
from dpledger.ledger.decide import (
    Granted,
    Refused,
    Stamp,
    authorize_in_a_row,
    crowd_of,
    decide,
    is_plain,
)
from dpledger.ledger.entries import Charge, Entry
from dpledger.ledger.errors import ReservationClosed
from dpledger.ledger.ports import Intent, NewEntry, Refusal, Transaction
from dpledger.ledger.state import Book, Crowd, Partition

__all__ = ["SERVICE_ACTOR", "Sitting", "Taken"]

SERVICE_ACTOR = "service"
"""The actor of entries that the service writes by itself (expiry)."""


class Taken(NamedTuple):
    """An entry of this sitting, the budget in whose terms what is left is told, and the fraction left."""

    entry: Entry
    budget: Budget
    fraction: float


class Sitting:
    """Decide several commands one after another against one locked book, then write them together."""

    def __init__(self, transaction: Transaction, book: Book, now_us: int) -> None:
        self._transaction = transaction
        self._before = book
        self._now_us = now_us
        self._entries: list[NewEntry] = []
        self._partitions: dict[str, Partition] = {}
        self._changed: dict[int, Partition] = {}
        self._charges: dict[bytes, Charge] = {}
        self._expired: set[int] = set()
        self._refusals: list[Refusal] = []
        self.book = book
        self._expire_what_is_due()

    @property
    def found_at(self) -> int:
        """The sequence number that callers saw last: before this sitting expired what was due."""
        return self._before.sequence

    def stamp(self, actor: str) -> Stamp:
        """This sitting's time, and who asks."""
        return Stamp(self._now_us, actor)

    def partition(self, name: str | None) -> Partition | None:
        """The partition as it stands after what was decided so far in this sitting."""
        if name is None:
            return None
        if name not in self._partitions:
            self.load_partitions([name])
        return self._partitions[name]

    def load_partitions(self, names: list[str]) -> None:
        """Read many partitions at once."""
        wanted = [name for name in dict.fromkeys(names) if name not in self._partitions]
        if wanted:
            self._partitions.update(self._transaction.partitions(self.book.dataset_id, wanted))

    def reservation(self, sequence: int) -> Reservation:
        """An open reservation with its partition as it stands now; raises NotFound or ReservationClosed."""
        if sequence in self._expired:
            raise ReservationClosed(identifier(self.book.name, sequence), "expired")
        held = self._transaction.reservation(self.book.dataset_id, sequence)
        return self._as_it_stands(held)

    def spend(
        self, command: Authorize | Reserve, actor: str, intent: Intent | None = None
    ) -> Taken | Refused:
        """Decide a spend; ``intent`` is given where the entry itself is to answer the key."""
        if command.partition is not None:
            check_equal_sizes(self.book, command.charge.step, command.partition.name)
        outcome = decide(self.book, command, self.stamp(actor))
        if isinstance(outcome, Refused):
            self._refusals.append(_refusal(command, self.stamp(actor), outcome))
            return outcome
        self._charges[command.charge.fingerprint] = command.charge
        return self._take(outcome, intent)

    def spend_each(self, command: Authorize, intents: Sequence[Intent]) -> list[Taken | Refused]:
        """Decide a spend on the whole for each of several intents, one after another."""
        taken: list[Taken | Refused] = []
        if len(intents) > 1 and is_plain(self.book):
            taken.extend(self._take_in_a_row(command, intents))
        return taken + [self.spend(command, intent.actor, intent) for intent in intents[len(taken) :]]

    def _take_in_a_row(self, command: Authorize, intents: Sequence[Intent]) -> list[Taken]:
        actors = [intent.actor for intent in intents]
        entries, fractions, self.book = authorize_in_a_row(self.book, command, self._now_us, actors)
        if entries:
            self._charges[command.charge.fingerprint] = command.charge
        self._entries.extend(map(NewEntry, entries, intents, fractions))
        budget = self.book.budget
        return [Taken(entry, budget, left) for entry, left in zip(entries, fractions, strict=True)]

    def record(self, command: Record, actor: str) -> Taken:
        """Record what happened or was decided elsewhere; never refused."""
        outcome = decide(self.book, command, self.stamp(actor))
        assert isinstance(outcome, Granted), "only spending can be refused"
        return self._take(outcome, None)

    def resume(self, transaction: Transaction) -> None:
        """Go on in another transaction, which holds the lock and has seen that the book has not moved."""
        self._transaction = transaction

    def write(self) -> None:
        """Store charges, partitions, entries and the book; the caller's transaction then commits."""
        transaction, dataset_id = self._transaction, self.book.dataset_id
        for charge in self._charges.values():
            transaction.keep_charge(dataset_id, charge)
        if self._changed:
            transaction.save_partitions(dataset_id, self._changed.values())
        if self._entries:
            transaction.append(self._before, self.book, self._entries)
        self.write_refusals()

    def write_refusals(self) -> None:
        """Store what was refused, and nothing else."""
        if self._refusals:
            self._transaction.note_refusals(self.book.dataset_id, self._refusals)

    def _take(self, granted: Granted, intent: Intent | None) -> Taken:
        book = granted.book
        for partition in granted.partitions:
            self._partitions[partition.name] = partition
            self._changed[partition.number] = partition
        self.book = replace(book, crowd=self._recounted(book)) if granted.recount else book
        changed = granted.partitions[0] if granted.partitions else None
        fraction = self.book.fraction_left(changed)
        self._entries.append(NewEntry(granted.entry, intent, fraction))
        return Taken(granted.entry, self.book.told_in(changed), fraction)

    def _recounted(self, book: Book) -> Crowd:
        stored = self._transaction.all_partitions(book.dataset_id)
        return crowd_of(book, (self._changed.get(each.number, each) for each in stored))

    def _expire_what_is_due(self) -> None:
        if not (self.book.whole.open_reservations or self.book.partitions):
            return
        recount = False
        for due in self._transaction.due_reservations(self.book.dataset_id, self._now_us):
            expired = decide(self.book, Expire(self._as_it_stands(due)), self.stamp(SERVICE_ACTOR))
            assert isinstance(expired, Granted), "only spending can be refused"
            # Counting looks at every partition, and nothing is decided before the last has expired.
            self._take(expired._replace(recount=False), None)
            self._expired.add(due.sequence)
            recount |= expired.recount
        if recount:
            self.book = replace(self.book, crowd=self._recounted(self.book))

    def _as_it_stands(self, held: Reservation) -> Reservation:
        if held.partition is None:
            return held
        return replace(held, partition=self.partition(held.partition.name))


def _refusal(command: Authorize | Reserve, stamp: Stamp, refused: Refused) -> Refusal:
    return Refusal(
        sequence=refused.sequence,
        at_us=stamp.at_us,
        actor=stamp.actor,
        run=command.run,
        partition=None if command.partition is None else command.partition.name,
        purpose=command.charge.purpose,
        times=command.times if isinstance(command, Reserve) else 1,
        fits_times=refused.fits["times"],
        fits_fraction=refused.fits["cost_fraction"],
        fraction=refused.remaining["fraction"],
    )
