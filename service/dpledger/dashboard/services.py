"""The parts of the running service that the dashboard uses."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from dpledger.auth.gatekeeper import Gatekeeper
from dpledger.auth.issuer import Issuer
from dpledger.auth.sessions import SessionKeeper
from dpledger.ledger.clock import Clock
from dpledger.ledger.reader import LedgerReader
from dpledger.ledger.results import Result
from dpledger.ledger.service import LedgerService
from dpledger.storage.repositories.tokens import TokenStore
from dpledger.storage.repository import SqlStorage

if TYPE_CHECKING:
    from dpledger.auth.sign_on import SignOn

__all__ = ["OutcomeCounter", "Services"]

T = TypeVar("T")
ResultT = TypeVar("ResultT", bound=Result)


class OutcomeCounter(Protocol):
    """Counts what the ledger decides, whoever asked."""

    def count_outcomes(self, work: Callable[..., ResultT]) -> Callable[..., ResultT]:
        """``work``, with what it decides counted under its own name."""
        ...


class Services(Protocol):
    """The parts of the service that pages are made from, and those by which an admin's forms change it."""

    storage: SqlStorage
    reader: LedgerReader
    gatekeeper: Gatekeeper
    sessions: SessionKeeper
    sign_on: "SignOn | None"
    clock: Clock
    ledger: LedgerService
    preview: LedgerService
    """The same decisions, of which nothing is recorded."""
    issuer: Issuer
    tokens: TokenStore

    @property
    def metrics(self) -> OutcomeCounter:
        """What counts decisions."""
        ...

    async def write(self, work: Callable[..., T], *arguments: Any) -> T:
        """Run what locks and commits in a thread of the writers."""
        ...
