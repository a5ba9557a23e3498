"""The plain way to keep the same ledger: one transaction a request, FastAPI and SQLAlchemy on PostgreSQL.

Same checks, same filter, same entry, same hash chain and same signed receipt as the service; no groups.
Every request locks the dataset's row, decides, inserts, updates, commits and answers, in a thread of
FastAPI's pool. What can be kept between requests (charges, budgets) is kept, as in the service.
"""

import functools
import hashlib
import hmac
import json
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Annotated, Any

import numpy as np
import sqlalchemy as sa
import uvicorn
from fastapi import FastAPI, Header, HTTPException, Response
from pydantic import BaseModel
from sqlalchemy.dialects import postgresql

from dpledger.accounting.sampling import Adjacency
from dpledger.accounting.steps import Step
from dpledger.api.responses import ResponseWriter
from dpledger.ledger.charges import charge_for
from dpledger.ledger.clock import SystemClock
from dpledger.ledger.decide import Granted, Stamp, decide
from dpledger.ledger.model.budget import Budget
from dpledger.ledger.model.commands import Authorize
from dpledger.ledger.model.entries import GENESIS, Charge
from dpledger.ledger.model.state import LedgerState, PartitionExtremes, Totals
from dpledger.ledger.receipts import Signer
from dpledger.ledger.results import Grant

__all__ = ["BUDGET", "DATASET", "SECRET", "STEP"]

DATASET = "hot"
BUDGET: dict[str, Any] = {"accounting": "rdp", "epsilon": 1e6, "delta": 1e-6}
"""The default accounting, with room for more steps than any run of a bench can make."""
STEP: dict[str, Any] = {
    "run": "agd-7",
    "sample": {"scheme": "poisson", "rate": 0.1},
    "releases": [
        {"mechanism": "gaussian", "sensitivity": 3.0, "noise_std": 300.0, "purpose": "gradient"},
    ],
}
ACTOR = "baseline"
SECRET = "dpl_baseline_0123456789abcdef"
_HASH_KEY = bytes(32)
_POOL_SIZE = 20
"""How many matters little: all of them queue for the one row (3, 8, 20 and 40 were as fast)."""

_metadata = sa.MetaData()
_tokens = sa.Table(
    "tokens",
    _metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("hash", sa.LargeBinary, nullable=False),
    sa.Column("revoked_at_us", sa.BigInteger),
)
_datasets = sa.Table(
    "datasets",
    _metadata,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("name", sa.Text, unique=True, nullable=False),
    sa.Column("budget", sa.Text, nullable=False),
    sa.Column("spent", sa.LargeBinary, nullable=False),
    sa.Column("sequence", sa.BigInteger, nullable=False),
    sa.Column("head", sa.LargeBinary, nullable=False),
)
_charges = sa.Table(
    "charges",
    _metadata,
    sa.Column("dataset_id", sa.Integer, sa.ForeignKey("datasets.id"), primary_key=True),
    sa.Column("fingerprint", sa.LargeBinary, primary_key=True),
    sa.Column("step", sa.Text, nullable=False),
    sa.Column("amounts", sa.LargeBinary, nullable=False),
)
_entries = sa.Table(
    "entries",
    _metadata,
    sa.Column("dataset_id", sa.Integer, sa.ForeignKey("datasets.id"), primary_key=True),
    sa.Column("sequence", sa.BigInteger, primary_key=True),
    sa.Column("at_us", sa.BigInteger, nullable=False),
    sa.Column("actor", sa.Text, nullable=False),
    sa.Column("key", sa.LargeBinary, nullable=False),
    sa.Column("request", sa.LargeBinary, nullable=False),
    sa.Column("run", sa.Text, nullable=False),
    sa.Column("charge", sa.LargeBinary, nullable=False),
    sa.Column("fraction", sa.Double, nullable=False),
    sa.Column("hash", sa.LargeBinary, nullable=False),
    sa.UniqueConstraint("dataset_id", "actor", "key"),
)
_read_budget = functools.lru_cache(Budget.from_document)


class AuthorizationBody(BaseModel):
    """The body of the main call."""

    run: str
    releases: list[dict[str, Any]]
    sample: dict[str, Any] | None = None


class _Refusal(Exception):
    """The filter said no."""


class PlainLedger:
    """Authorizes in one transaction a request."""

    def __init__(self, engine: sa.Engine) -> None:
        self._engine = engine
        self._clock = SystemClock()
        self._responses = ResponseWriter(Signer(bytes(32)))
        self._charges: dict[str, Charge] = {}
        self._stored: set[bytes] = set()

    def open(self, name: str, budget_fields: dict[str, Any]) -> None:
        """Make the tables, the token and a dataset."""
        _metadata.create_all(self._engine)
        budget = Budget.from_fields(budget_fields, Adjacency.ADD_REMOVE)
        row = {"name": name, "budget": budget.document, "spent": np.zeros(budget.size).tobytes()}
        with self._engine.begin() as connection:
            connection.execute(sa.insert(_tokens).values(id=ACTOR, hash=_token_hash(SECRET)))
            connection.execute(sa.insert(_datasets).values(**row, sequence=0, head=GENESIS))

    def authorize(self, name: str, body: AuthorizationBody, bearer: str, key: str) -> str:
        """Lock, decide, insert, update, commit; the answer is made after that."""
        with self._engine.begin() as connection:
            self._check_token(connection, bearer)
            state = _locked(connection, name)
            charge = self._charge(state.budget, body)
            self._refuse_repeated(connection, state, key)
            outcome = decide(state, Authorize(charge, body.run), Stamp(self._clock.now_us(), ACTOR))
            if not isinstance(outcome, Granted):
                raise _Refusal
            fraction = outcome.state.budget.fraction_left(outcome.state.committed_for(None))
            self._store(connection, outcome, charge, _digest(key), _request_digest(body), fraction)
        self._stored.add(charge.fingerprint)
        return self._responses.body(Grant(name, outcome.entry, charge, state.budget, fraction, None))

    def _charge(self, budget: Budget, body: AuthorizationBody) -> Charge:
        described = json.dumps([body.releases, body.sample])
        if described not in self._charges:
            step = Step.from_fields(body.releases, body.sample, Adjacency.ADD_REMOVE.value)
            self._charges[described] = charge_for(budget, step, "")
        return self._charges[described]

    def _check_token(self, connection: sa.Connection, bearer: str) -> None:
        token_id = bearer.removeprefix("Bearer dpl_").partition("_")[0]
        row = connection.execute(sa.select(_tokens).where(_tokens.c.id == token_id)).one_or_none()
        if row is None or row.revoked_at_us is not None:
            raise HTTPException(401)
        if not hmac.compare_digest(row.hash, _token_hash(bearer.removeprefix("Bearer "))):
            raise HTTPException(401)

    def _refuse_repeated(self, connection: sa.Connection, state: LedgerState, key: str) -> None:
        own = (_entries.c.dataset_id == state.dataset_id) & (_entries.c.actor == ACTOR)
        found = connection.execute(sa.select(_entries).where(own & (_entries.c.key == _digest(key))))
        if found.one_or_none() is not None:
            raise HTTPException(422)

    def _store(
        self,
        connection: sa.Connection,
        granted: Granted,
        charge: Charge,
        key: bytes,
        request: bytes,
        fraction: float,
    ) -> None:
        entry, state = granted.entry, granted.state
        self._keep_charge(connection, state.dataset_id, charge)
        row = {
            "dataset_id": state.dataset_id,
            "sequence": entry.sequence,
            "at_us": entry.at_us,
            "actor": entry.actor,
            "key": key,
            "request": request,
            "run": entry.run,
            "charge": entry.charge,
            "fraction": fraction,
            "hash": entry.hash,
        }
        connection.execute(sa.insert(_entries).values(**row))
        totals = {"spent": state.whole.spent.tobytes(), "sequence": state.sequence, "head": state.head}
        connection.execute(sa.update(_datasets).where(_datasets.c.id == state.dataset_id).values(**totals))

    def _keep_charge(self, connection: sa.Connection, dataset_id: int, charge: Charge) -> None:
        if charge.fingerprint in self._stored:
            return
        row = {"dataset_id": dataset_id, "fingerprint": charge.fingerprint, "step": charge.step.canonical}
        row["amounts"] = charge.amounts.tobytes()
        connection.execute(postgresql.insert(_charges).values(**row).on_conflict_do_nothing())


def _locked(connection: sa.Connection, name: str) -> LedgerState:
    chosen = sa.select(_datasets).where(_datasets.c.name == name).with_for_update()
    row = connection.execute(chosen).one_or_none()
    if row is None:
        raise HTTPException(404)
    budget = _read_budget(row.budget)
    totals = replace(Totals.zero(budget.size), spent=np.frombuffer(row.spent))
    fixed = (row.id, name, Adjacency.ADD_REMOVE, "fixed", budget)
    return LedgerState(*fixed, totals, PartitionExtremes.empty(budget), 0, row.sequence, row.head, budget, 1)


def _token_hash(secret: str) -> bytes:
    return hmac.digest(_HASH_KEY, secret.encode(), "sha256")


def _digest(value: str) -> bytes:
    return hashlib.sha256(value.encode()).digest()[:16]


def _request_digest(body: AuthorizationBody) -> bytes:
    return _digest(body.model_dump_json())


def create_plain(database: str) -> FastAPI:
    """The plain service with one dataset, opened afresh in an empty database."""
    ledger = PlainLedger(sa.create_engine(database, pool_size=_POOL_SIZE, max_overflow=0))
    ledger.open(DATASET, BUDGET)
    app = FastAPI()
    app.post("/v1/datasets/{name}/authorizations", status_code=201)(_route(ledger.authorize))
    return app


def _route(authorize: Callable[[str, AuthorizationBody, str, str], str]) -> Callable[..., Response]:
    def post_authorization(
        name: str,
        body: AuthorizationBody,
        authorization: Annotated[str, Header()],
        idempotency_key: Annotated[str, Header()],
    ) -> Response:
        try:
            answer = authorize(name, body, authorization, idempotency_key)
        except _Refusal:
            raise HTTPException(409) from None
        return Response(answer, 201, media_type="application/json")

    return post_authorization


def create_empty() -> FastAPI:
    """A FastAPI application with one route that does nothing: what the framework alone can do."""
    app = FastAPI()

    @app.post("/v1/datasets/{name}/authorizations")
    async def do_nothing() -> dict[str, str]:
        return {}

    return app


def main() -> None:
    """Serve the empty application on a port, or the plain one with its database: ``<port> [<database>]``."""
    port, *databases = sys.argv[1:]
    app = create_plain(databases[0]) if databases else create_empty()
    uvicorn.run(app, host="127.0.0.1", port=int(port), access_log=False, log_level="warning")


if __name__ == "__main__":
    main()
