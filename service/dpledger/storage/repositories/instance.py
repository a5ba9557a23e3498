"""Identity of a database."""

from sqlalchemy import literal_column, select

from dpledger.storage.engine.session import Session
from dpledger.storage.tables import meta

__all__ = ["instance_id", "lock_instance"]

_INSTANCE = select(meta.c.value).where(meta.c.name == literal_column("'instance'"))
_LOCK = _INSTANCE.with_for_update()


def instance_id(session: Session) -> str:
    """The database's own random id, made by its first migration; replicas on one database share it."""
    return str(session.rows(_INSTANCE, {})[0][0])


def lock_instance(session: Session) -> None:
    """Let nobody else do what is to be done once in a database until the transaction ends."""
    session.rows(_LOCK, {})
