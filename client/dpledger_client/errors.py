"""The client's exceptions, as a tree.

DPLedgerError
├── Refused                      the service said no, with a reason
│   ├── BudgetExhausted          the budget does not cover what was asked: requested, remaining, fits
│   │   └── QuotaExceeded        the budget would, but not the team's quota: quota, frees_at
│   ├── Unauthenticated             no token, an unknown one, or one that has ended
│   ├── Forbidden                the token does not reach this
│   ├── NotFound                 no such dataset, partition, entry or reservation
│   ├── AlreadyExists            the name is taken
│   │   └── DatasetMismatch      by a dataset with another budget, adjacency, unit, partition key or size
│   ├── InvalidRequest           the request is not of the form, or a number is outside its range
│   │   ├── AdjacencyMismatch    the bound holds under the other adjacency
│   │   ├── Unproven             no proven bound covers this
│   │   └── Unreachable         no parameter meets the target
│   ├── KeyReused                the idempotency key came before with another request
│   ├── RequestClosed            a request for budget that was decided before
│   ├── RequestOutdated          what a request for budget was made for has changed since
│   ├── TooManyRequests          as many requests for budget are open as may be
│   ├── ReservationClosed        settled or expired before
│   ├── LedgerRolledBack         the ledger has lost entries; nothing is granted until that is accepted
│   └── PreconditionFailed       the state moved on since it was looked at
├── NoAnswer                     no answer after all retries; what was asked may or may not be recorded
│   ├── Unavailable              the service answered that it cannot answer now
│   └── ServiceFailed            the service answered that it has a fault of its own
├── UnexpectedAnswer             something answered that is not this service
├── NothingLeft                  a permit's uses are used up
│   └── HoldClosed               a reservation was settled elsewhere, or its time is over
├── DataChanged                  the data changed while one permit was in use
├── BadReceipt                   not a receipt of this service, or not of this authorization
├── JournalError                 the journal file cannot be used
│   ├── SampleLost               a restarted job would need the sample that it had before, which is not kept
│   ├── JournalMismatch          it belongs to another job, or the job does not repeat what it holds
│   └── JournalBusy              another process is using it
├── NotTrained                   an estimator's fit made no step: what was asked, what is left, what would fit
└── MissingExtra                 an optional part of the client is not installed

BudgetChangedWarning             a dataset was opened with the budget asked for, and has another one now
UnsettledWarning                 a reservation could not be settled: its expiry will charge all of it
BudgetWarning                    a plan that does not fit its budget, or a limit that is not what is proven
"""

from collections.abc import Sequence
from typing import Any

__all__ = [
    "AdjacencyMismatch",
    "AlreadyExists",
    "BadReceipt",
    "BudgetChangedWarning",
    "BudgetExhausted",
    "BudgetWarning",
    "DPLedgerError",
    "DataChanged",
    "DatasetMismatch",
    "Forbidden",
    "HoldClosed",
    "InvalidRequest",
    "JournalBusy",
    "JournalError",
    "JournalMismatch",
    "KeyReused",
    "LedgerRolledBack",
    "MissingExtra",
    "NoAnswer",
    "NotFound",
    "NotTrained",
    "NothingLeft",
    "PreconditionFailed",
    "QuotaExceeded",
    "Refused",
    "RequestClosed",
    "RequestOutdated",
    "ReservationClosed",
    "SampleLost",
    "ServiceFailed",
    "TooManyRequests",
    "Unauthenticated",
    "Unavailable",
    "UnexpectedAnswer",
    "Unproven",
    "Unreachable",
    "UnsettledWarning",
    "refusal",
]


class DPLedgerError(Exception):
    """Base of everything that the client raises by itself."""


class Refused(DPLedgerError):
    """The service said no. Nothing was charged.

    Attributes
    ----------
    problem
        The service's answer: ``type``, ``title``, ``status``, ``detail`` and members of its kind.
    key
        The idempotency key of what was asked, where it had one.
    """

    def __init__(self, problem: dict[str, Any], key: str | None = None) -> None:
        super().__init__(problem, key)
        self.problem = problem
        self.key = key

    def __str__(self) -> str:
        return f"{self.problem.get('title', 'refused')}: {self.problem.get('detail', '')}"

    @property
    def slug(self) -> str:
        """The kind of problem, such as ``budget-exhausted``."""
        return str(self.problem.get("type", "")).rpartition("/")[2]

    @property
    def status(self) -> int:
        """The HTTP status."""
        return int(self.problem.get("status", 0))


def _sentence(text: str) -> str:
    """With a capital and a full stop, so that it can stand beside others."""
    return text[:1].upper() + text[1:] + ("" if text.endswith(".") else ".")


class BudgetExhausted(Refused):
    """The budget does not cover what was asked. Nothing was charged."""

    @property
    def requested(self) -> dict[str, Any]:
        """What was asked: ``times`` and the ``cost`` of one."""
        return self._member("requested")

    @property
    def remaining(self) -> dict[str, Any]:
        """What is left, in the budget's own terms, rounded down."""
        return self._member("remaining")

    @property
    def fits(self) -> dict[str, Any]:
        """What would still be granted: whole ``times``, and the ``cost_fraction`` of one.

        Under a plan also which ``item`` is used up, under ``rdp`` which ``order`` binds, and ``advice`` in
        sentences.
        """
        return self._member("fits")

    def __str__(self) -> str:
        return " ".join([super().__str__(), *self._fits_in_words()])

    def _fits_in_words(self) -> list[str]:
        """The service's advice as sentences; without any, what is used up, binds or is left to allocate."""
        fits, left = self.fits, self.remaining
        if fits.get("advice"):
            return [_sentence(str(advice)) for advice in fits["advice"]]
        if fits.get("item") is not None:
            return [f"Item {fits['item']!r} of the plan is used up."]
        if fits.get("order") is not None:
            return [f"Order {fits['order']:g} binds."]
        if "epsilon" in self.requested and "epsilon" in left:
            return [f"What is left to allocate is epsilon {left['epsilon']!r}, delta {left['delta']!r}."]
        return []

    def _member(self, name: str) -> dict[str, Any]:
        member: dict[str, Any] = self.problem.get(name) or {}
        return member


class QuotaExceeded(BudgetExhausted):
    """The team's quota does not cover what was asked, although the budget would. Nothing was charged."""

    @property
    def quota(self) -> dict[str, Any]:
        """The quota: ``team``, ``fraction``, ``window_seconds``, and what is ``remaining`` of it."""
        return self._member("quota")

    @property
    def frees_at(self) -> str | None:
        """When the quota's window frees something, as ISO 8601; None where waiting alone does not help."""
        found: str | None = self.quota.get("frees_at")
        return found


class Unauthenticated(Refused):
    """No token was shown, or one that is unknown, revoked or expired."""


class Forbidden(Refused):
    """The token's scopes or datasets do not reach this."""


class NotFound(Refused):
    """There is no such dataset, partition, entry or reservation."""


class AlreadyExists(Refused):
    """The name is taken."""


class DatasetMismatch(AlreadyExists):
    """The name is taken by a dataset or an allocation that is not the one asked for.

    ``asked`` and ``found`` say in what.
    """

    @classmethod
    def between(
        cls, name: str, differences: dict[str, tuple[Any, Any]], taken: AlreadyExists, kind: str = "dataset"
    ) -> "DatasetMismatch":
        """By what differs: of each, what was asked for and what is."""
        words = [
            f"{what} was asked as {asked!r} and is {found!r}" for what, (asked, found) in differences.items()
        ]
        members = {
            "detail": f"{kind} {name!r} is open already, but its {'; its '.join(words)}",
            "asked": {what: pair[0] for what, pair in differences.items()},
            "found": {what: pair[1] for what, pair in differences.items()},
        }
        return cls({**taken.problem, **members}, taken.key)

    @property
    def asked(self) -> dict[str, Any]:
        """What was asked for and is otherwise."""
        return dict(self.problem.get("asked") or {})

    @property
    def found(self) -> dict[str, Any]:
        """What it is instead."""
        return dict(self.problem.get("found") or {})


class InvalidRequest(Refused):
    """The request is not of the form that the service reads, or a number is outside its range."""

    @property
    def field(self) -> str | None:
        """Which field it is about, if it is about one."""
        found: str | None = self.problem.get("field")
        return found


class AdjacencyMismatch(InvalidRequest):
    """The bound that this needs holds under the other adjacency."""


class Unproven(InvalidRequest):
    """No proven bound covers this."""


class Unreachable(InvalidRequest):
    """No parameter meets the target."""


class KeyReused(Refused):
    """The idempotency key came before with another request."""


class LedgerRolledBack(Refused):
    """An older copy of the ledger is in its place, or entries were lost: a person must look at it."""


class RequestClosed(Refused):
    """The request for budget was decided before; ``how`` says how."""

    @property
    def how(self) -> str:
        """``approved``, ``rejected`` or ``withdrawn``."""
        return str(self.problem.get("how", ""))


class RequestOutdated(Refused):
    """What a request for budget was made for has changed since: it is to be rejected and made anew."""


class TooManyRequests(Refused):
    """As many requests for budget are open as may be, of this token or in all."""


class ReservationClosed(Refused):
    """The reservation was settled or has expired; ``how`` says which."""

    @property
    def how(self) -> str:
        """``settled`` or ``expired``."""
        return str(self.problem.get("how", ""))


class PreconditionFailed(Refused):
    """The state moved on since it was looked at."""


class NoAnswer(DPLedgerError):
    """No answer came, after all retries.

    What was asked may or may not be recorded. To ask the same again without paying twice, repeat the
    call with ``key=error.key``.
    """

    def __init__(self, reason: str, key: str | None = None) -> None:
        super().__init__(reason, key)
        self.reason = reason
        self.key = key

    def __str__(self) -> str:
        return self.reason


class Unavailable(NoAnswer):
    """The service answered, after all retries, that it cannot answer now."""


class ServiceFailed(NoAnswer):
    """The service has a fault of its own; its log says which."""


class UnexpectedAnswer(DPLedgerError):
    """Something answered that is not this service, or a version of it that this client cannot read."""


class NothingLeft(DPLedgerError):
    """All uses that the ledger said yes to are used up; ask for more."""


class HoldClosed(NothingLeft):
    """The reservation was settled elsewhere, or its time is over: nothing more may be released from it."""


class DataChanged(DPLedgerError):
    """The data changed while one permit was in use: it would release before and after the change."""


class BadReceipt(DPLedgerError):
    """Not a receipt of this service, altered, or not of this authorization."""


class JournalError(DPLedgerError):
    """The journal file cannot be used."""


class SampleLost(JournalError):
    """What is left of a step would need the sample that it had before a restart, which is not kept."""


class JournalMismatch(JournalError):
    """The journal belongs to another job, or this job does not repeat what it holds."""


class JournalBusy(JournalError):
    """Another process is using the journal."""


class NotTrained(DPLedgerError):
    """An estimator made not one step, so that there is no model.

    Attributes
    ----------
    refusal
        What the ledger refused, if that is why.
    charges
        What was charged nevertheless, for a step that was not completed.
    """

    def __init__(
        self, message: str, refusal: BudgetExhausted | None = None, charges: Sequence[Any] = ()
    ) -> None:
        super().__init__(message, refusal, charges)
        self.refusal = refusal
        self.charges = charges

    def __str__(self) -> str:
        return str(self.args[0])

    @classmethod
    def of(
        cls, method: str, message: str, refusal: BudgetExhausted | None, charges: Sequence[Any]
    ) -> "NotTrained":
        """With what was asked, what is left and what would fit, if the ledger refused the first step."""
        text = f"{method} made no step, and there is nothing to predict with: {message}"
        if refusal is None:
            return cls(text, None, charges)
        asked, fits = refusal.requested, refusal.fits
        cost = {name: value for name, value in (asked.get("cost") or {}).items() if value is not None}
        asked_and_left = (
            f"Asked for {asked.get('times')} steps, each of cost {cost}; left is {refusal.remaining}; "
            f"{fits.get('times')} such steps fit, or one of {fits.get('cost_fraction', 0.0):.3g} of the cost"
        )
        return cls(f"{text}. {asked_and_left}", refusal, charges)


class MissingExtra(DPLedgerError, ImportError):
    """An optional part of the client is not installed."""


class BudgetWarning(UserWarning):
    """The service opened or changed a budget, and warns: its plan does not fit, or its limit was larger."""


class BudgetChangedWarning(BudgetWarning):
    """A dataset was opened with the budget asked for, and an admin has changed it since."""


class UnsettledWarning(RuntimeWarning):
    """A reservation could not be settled: its expiry will charge all of it."""


_BY_SLUG: dict[str, type[Refused]] = {
    "budget-exhausted": BudgetExhausted,
    "quota-exceeded": QuotaExceeded,
    "unauthenticated": Unauthenticated,
    "token-ended": Unauthenticated,
    "forbidden": Forbidden,
    "not-found": NotFound,
    "already-exists": AlreadyExists,
    "invalid-input": InvalidRequest,
    "adjacency-mismatch": AdjacencyMismatch,
    "unproven": Unproven,
    "unreachable": Unreachable,
    "idempotency-key-reused": KeyReused,
    "request-closed": RequestClosed,
    "request-outdated": RequestOutdated,
    "too-many-requests": TooManyRequests,
    "reservation-closed": ReservationClosed,
    "ledger-rolled-back": LedgerRolledBack,
    "precondition-failed": PreconditionFailed,
}


def refusal(problem: dict[str, Any], key: str | None = None) -> Refused:
    """The error that a problem is; of an unknown kind, an invalid request."""
    slug = str(problem.get("type", "")).rpartition("/")[2]
    return _BY_SLUG.get(slug, InvalidRequest)(problem, key)
