"""The parts of the running service that the dashboard uses."""

from typing import TYPE_CHECKING, Protocol

from dpledger.auth.gatekeeper import Gatekeeper
from dpledger.auth.sessions import SessionKeeper
from dpledger.ledger.clock import Clock
from dpledger.ledger.reader import LedgerReader
from dpledger.storage.repository import SqlStorage

if TYPE_CHECKING:
    from dpledger.auth.sign_on import SignOn

__all__ = ["Services"]


class Services(Protocol):
    """The parts of the service that pages are made from; nothing here changes a ledger."""

    storage: SqlStorage
    reader: LedgerReader
    gatekeeper: Gatekeeper
    sessions: SessionKeeper
    sign_on: "SignOn | None"
    clock: Clock
