"""Sessions that were ended before their time, kept until they would have ended by themselves."""

from sqlalchemy import BigInteger, LargeBinary, bindparam, delete, exists, select, text

from dpledger.ledger.idempotency import run_in_transaction
from dpledger.storage.engine.session import Database, Session
from dpledger.storage.tables import ended_sessions

__all__ = ["SessionStore"]

_HAS_ENDED = select(exists().where(ended_sessions.c.id == bindparam("id", type_=LargeBinary)))
# Both databases read this; Core has no word for it that the two dialects share.
_END = text(
    "INSERT INTO ended_sessions (id, ends_at_us) VALUES (:id, :ends_at_us) ON CONFLICT (id) DO NOTHING"
)
_FORGET = delete(ended_sessions).where(ended_sessions.c.ends_at_us <= bindparam("now_us", type_=BigInteger))


class SessionStore:
    """Remembers which sessions were ended, for every replica and over restarts."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def end(self, session_id: bytes, ends_at_us: int, now_us: int) -> bool:
        """End a session for good, and say whether it was not before.

        Those that have ended by themselves are forgotten.
        """

        def work(session: Session) -> bool:
            session.change(_FORGET, {"now_us": now_us})
            return session.change(_END, {"id": session_id, "ends_at_us": ends_at_us}) == 1

        return run_in_transaction(self._database, work)

    def has_ended(self, session_id: bytes) -> bool:
        """Whether somebody ended the session."""
        with self._database.read() as session:
            return bool(session.rows(_HAS_ENDED, {"id": session_id})[0][0])
