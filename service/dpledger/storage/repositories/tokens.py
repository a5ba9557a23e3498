"""Access tokens as they are stored: never the secret, only its keyed hash."""

import functools
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import BigInteger, Integer, Select, bindparam, exists, or_, select, text, update

from dpledger.ledger.errors import AlreadyExists, NotFound
from dpledger.ledger.idempotency import run_in_transaction
from dpledger.storage.engine.session import Database, Row, Session, in_list, select_in_list
from dpledger.storage.repositories.instance import lock_instance
from dpledger.storage.tables import tokens

__all__ = ["TokenRow", "TokenStore", "select_valid", "teams_of_valid"]

_COLUMNS = tuple(tokens.c)
_BY_ID = select(*_COLUMNS).where(tokens.c.id == bindparam("id"))
_PAGE = (
    select(*_COLUMNS)
    .where(tokens.c.id > bindparam("after"))
    .order_by(tokens.c.id)
    .limit(bindparam("limit", type_=Integer))
)
_ANY = select(exists(select(tokens.c.id)))
_ADD = text(
    "INSERT INTO tokens (id, keyed_hash, scopes, datasets, description, created_at_us, expires_at_us,"
    " revoked_at_us, team) VALUES (:id, :keyed_hash, :scopes, :datasets, :description, :created_at_us,"
    " :expires_at_us, :revoked_at_us, :team) ON CONFLICT (id) DO NOTHING"
)
_PUT = text(
    "INSERT INTO tokens (id, keyed_hash, scopes, datasets, description, created_at_us, expires_at_us,"
    " revoked_at_us) VALUES (:id, :keyed_hash, :scopes, :datasets, :description, :created_at_us,"
    " :expires_at_us, :revoked_at_us) ON CONFLICT (id) DO UPDATE SET scopes = excluded.scopes,"
    " datasets = excluded.datasets, description = excluded.description"
)
_REVOKE = (
    update(tokens)
    .where(tokens.c.id == bindparam("token"), tokens.c.revoked_at_us.is_(None))
    .values(revoked_at_us=bindparam("at_us", type_=BigInteger))
)


@functools.cache
def select_valid(size: int) -> Select[Any]:
    """Those of the tokens that are neither revoked nor expired nor unknown, with their teams."""
    unexpired = or_(
        tokens.c.expires_at_us.is_(None), tokens.c.expires_at_us > bindparam("now_us", type_=BigInteger)
    )
    chosen = select(tokens.c.id, tokens.c.team).where(in_list(tokens.c.id, size), unexpired)
    return chosen.where(tokens.c.revoked_at_us.is_(None))


def teams_of_valid(session: Session, ids: Sequence[str], now_us: int) -> dict[str, str | None]:
    """The teams of those tokens that are neither revoked nor expired nor unknown."""
    return dict(select_in_list(session, select_valid, ids, now_us=now_us))


@dataclass(frozen=True)
class TokenRow:
    """A token; ``datasets`` is None where it is good for all of them."""

    id: str
    keyed_hash: bytes
    scopes: tuple[str, ...]
    datasets: tuple[str, ...] | None
    description: str
    created_at_us: int
    expires_at_us: int | None = None
    revoked_at_us: int | None = None
    team: str | None = None


class TokenStore:
    """Adds, finds, lists and revokes tokens."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(self, row: TokenRow) -> None:
        """Store a token; raises AlreadyExists."""
        run_in_transaction(self._database, lambda session: _add(session, row))

    def put(self, row: TokenRow) -> TokenRow:
        """Store what a token is good for, as a new one or over the old; one that was revoked stays so."""

        def work(session: Session) -> TokenRow:
            session.change(_PUT, _values(row))
            found = session.row(_BY_ID, {"id": row.id})
            assert found is not None, "it was put there"
            return _token(found)

        return run_in_transaction(self._database, work)

    def add_first(self, row: TokenRow) -> bool:
        """Store a token unless there is one already; of several processes only one succeeds."""

        def work(session: Session) -> bool:
            lock_instance(session)
            if session.rows(_ANY, {})[0][0]:
                return False
            _add(session, row)
            return True

        return run_in_transaction(self._database, work)

    def any(self) -> bool:
        """Whether there is a token, revoked or not."""
        with self._database.read() as session:
            return bool(session.rows(_ANY, {})[0][0])

    def get(self, token_id: str) -> TokenRow:
        """One token, revoked or not; raises NotFound."""
        with self._database.read() as session:
            found = session.row(_BY_ID, {"id": token_id})
        if found is None:
            raise NotFound("token", token_id)
        return _token(found)

    def list(self, after: str, limit: int) -> Sequence[TokenRow]:
        """Tokens by id, behind one."""
        with self._database.read() as session:
            return [_token(row) for row in session.rows(_PAGE, {"after": after, "limit": limit})]

    def revoke(self, token_id: str, at_us: int) -> TokenRow:
        """End a token now; one that was revoked before keeps its time. Raises NotFound."""

        def work(session: Session) -> TokenRow:
            session.change(_REVOKE, {"token": token_id, "at_us": at_us})
            found = session.row(_BY_ID, {"id": token_id})
            if found is None:
                raise NotFound("token", token_id)
            return _token(found)

        return run_in_transaction(self._database, work)


def _add(session: Session, row: TokenRow) -> None:
    if session.change(_ADD, _values(row)) != 1:
        raise AlreadyExists("token", row.id)


def _values(row: TokenRow) -> dict[str, Any]:
    return {
        "id": row.id,
        "keyed_hash": row.keyed_hash,
        "scopes": json.dumps(row.scopes),
        "datasets": None if row.datasets is None else json.dumps(row.datasets),
        "description": row.description,
        "created_at_us": row.created_at_us,
        "expires_at_us": row.expires_at_us,
        "revoked_at_us": row.revoked_at_us,
        "team": row.team,
    }


def _token(row: Row) -> TokenRow:
    id_, keyed_hash, scopes, datasets, *rest = row
    named = None if datasets is None else tuple(json.loads(datasets))
    return TokenRow(id_, keyed_hash, tuple(json.loads(scopes)), named, *rest)
