"""The ledger's exceptions, as a tree.

LedgerError
├── NotFound                no such dataset, partition, entry, reservation or token
├── AllocationInUse         something may have been released from an allocation that is to be returned
├── AllocationOfAnother     the caller's token did not ask for the allocation
├── AllocationReturned      an allocation that was given back can be spent no more
├── AlreadyExists           a name that is taken
├── KeyReused               an idempotency key seen before with another request
├── KeyInFlight             the first request with that key has not been answered yet
├── PreconditionFailed      If-Match names another state than the present one
├── RequestClosed           a request for budget that was decided before
├── RequestOfAnother        the caller's token did not make the request
├── RequestOutdated         what a request was made for has changed since
├── ReservationClosed       settled or expired before
├── ReservedByAnother       the caller's token did not make the reservation
├── RolledBack              the ledger no longer holds an entry that it was seen to hold
├── TokenEnded              the token was revoked or expired while the request was on its way
├── TooManyRequests         as many requests for budget are open as may be
└── Unavailable             the database cannot be reached or written now
"""

__all__ = [
    "AllocationInUse",
    "AllocationOfAnother",
    "AllocationReturned",
    "AlreadyExists",
    "KeyInFlight",
    "KeyReused",
    "LedgerError",
    "NotFound",
    "PreconditionFailed",
    "RequestClosed",
    "RequestOfAnother",
    "RequestOutdated",
    "ReservationClosed",
    "ReservedByAnother",
    "RolledBack",
    "TokenEnded",
    "TooManyRequests",
    "Unavailable",
]


class LedgerError(Exception):
    """Base of what the ledger refuses."""


class NotFound(LedgerError):
    """There is no ``kind`` called ``name``."""

    def __init__(self, kind: str, name: str) -> None:
        self.kind = kind
        self.name = name
        super().__init__(f"there is no {kind} {name!r}")


class AllocationInUse(LedgerError):
    """Only an allocation from which nothing was released, nor may be, can be returned."""

    def __init__(self, allocation: str, how: str) -> None:
        self.allocation = allocation
        self.how = how
        super().__init__(
            f"allocation {allocation!r} cannot be returned: {how}. What was released stays released, so its "
            "epsilon and delta count for good"
        )


class AllocationOfAnother(LedgerError):
    """Only the token that asked for an allocation, or an admin, may return it."""

    def __init__(self, allocation: str) -> None:
        self.allocation = allocation
        super().__init__(
            f"allocation {allocation!r} can be returned by the token that asked for it or by an admin"
        )


class AllocationReturned(LedgerError):
    """An allocation that was given back can neither be spent nor be returned again."""

    def __init__(self, allocation: str) -> None:
        self.allocation = allocation
        super().__init__(f"allocation {allocation!r} was returned: nothing can be spent from it any more")


class AlreadyExists(LedgerError):
    """There is a ``kind`` called ``name`` already."""

    def __init__(self, kind: str, name: str) -> None:
        self.kind = kind
        self.name = name
        article = "an" if kind[0] in "aeiou" else "a"
        super().__init__(f"there is {article} {kind} {name!r} already")


class KeyReused(LedgerError):
    """The idempotency key came before with another request."""

    def __init__(self) -> None:
        super().__init__("this idempotency key was used before with another request")


class KeyInFlight(LedgerError):
    """The first request with this key is still being decided."""

    retry_after_seconds = 1

    def __init__(self) -> None:
        super().__init__("the first request with this idempotency key is still being decided")


class PreconditionFailed(LedgerError):
    """The state moved on since the caller looked."""

    def __init__(self, expected: str, found: str) -> None:
        self.expected = expected
        self.found = found
        super().__init__(f"If-Match is {expected}, the dataset is at {found}")


class RequestClosed(LedgerError):
    """A request for budget is decided once."""

    def __init__(self, request: str, how: str) -> None:
        self.request = request
        self.how = how
        super().__init__(f"request {request} is {how}")


class RequestOfAnother(LedgerError):
    """Only the token that asked may withdraw a request."""

    def __init__(self, request: str) -> None:
        self.request = request
        super().__init__(f"request {request} can be withdrawn by the token that made it; an admin rejects it")


class RequestOutdated(LedgerError):
    """What a request was made for is not as it was: approving it would do something else than was asked."""

    def __init__(self, request: str, why: str) -> None:
        self.request = request
        self.why = why
        super().__init__(f"request {request} cannot be carried out any more: {why}. Reject it, and ask anew")


class ReservationClosed(LedgerError):
    """A reservation that was settled or has expired cannot be settled."""

    def __init__(self, reservation: str, how: str) -> None:
        self.reservation = reservation
        self.how = how
        super().__init__(f"reservation {reservation} is {how}")


class ReservedByAnother(LedgerError):
    """Only the token that reserved, or an admin, may state how much of a reservation was used."""

    def __init__(self, reservation: str) -> None:
        self.reservation = reservation
        super().__init__(
            f"reservation {reservation} can be settled by the token that reserved it or by an admin"
        )


class RolledBack(LedgerError):
    """An older copy of the ledger is in its place, or its newest entries were lost.

    ``sequence`` and ``entry`` are the last entry that was seen, ``found`` is where the ledger is now: 0
    where the dataset is gone.
    """

    def __init__(self, dataset: str, sequence: int, entry: str, found: int) -> None:
        self.dataset = dataset
        self.sequence = sequence
        self.entry = entry
        self.found = found
        now = f"is now at entry {found}, and does not hold it" if found else "is not there any more"
        super().__init__(
            f"dataset {dataset} was at entry {sequence} and {now}: an older copy is in its place, or entries"
            " were lost. Put the newest copy back; or give them up, and then lower the budget by what was"
            " spent since, as docs/operations.md says:"
            f" dpledger accept-rollback {dataset} --lost {sequence}:{entry} --reason TEXT"
        )


class TokenEnded(LedgerError):
    """The token was good when the request came in, and is not at the moment of deciding."""

    def __init__(self) -> None:
        super().__init__("the token is revoked or has expired")


class TooManyRequests(LedgerError):
    """There is a limit to how many requests for budget may be open."""

    def __init__(self, open_requests: int, most: int, whose: str) -> None:
        self.open_requests = open_requests
        self.most = most
        super().__init__(
            f"{open_requests} requests of {whose} are open, of {most} at most: have some decided"
        )


class Unavailable(LedgerError):
    """The database is away, full or too busy.

    Nothing was recorded, unless the connection was lost in the middle of a commit: a repeat with the same
    key tells.
    """

    retry_after_seconds = 2
