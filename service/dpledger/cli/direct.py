"""A ledger in a database of this machine, without a service before it.

Reading locks nothing. What makes or changes a dataset goes through the application itself, in this
process: the same checks, the same transaction, and a token whose id is recorded in the entry. The schema is
never changed on the way: only ``migrate`` and ``serve`` do that, and ``token create`` in an empty place.
"""

import contextlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import astuple
from pathlib import Path

from dpledger.api.http.admission import check_key, hashed_key, hashed_request
from dpledger.api.http.pagination import number_after, page, text_after
from dpledger.api.responses import json_text
from dpledger.api.routes.tokens import token_fields
from dpledger.api.schemas.queries import ForecastBody
from dpledger.api.schemas.requests import DeploymentQuery, TokenBody
from dpledger.auth.issuer import Issuer, TokenRequest
from dpledger.auth.keys import load_keys
from dpledger.cli.databases import make_schema, one_line_failures, refuse_foreign, refuse_missing
from dpledger.cli.failures import ExitCode, Failed
from dpledger.cli.ledgers import EntryQuery, Fields, Held, Page, Progress
from dpledger.cli.local import evaluate_query
from dpledger.cli.remote import Remote
from dpledger.ledger.clock import SystemClock
from dpledger.ledger.errors import NotFound, RolledBack
from dpledger.ledger.marks import HighWaterMarks, Mark
from dpledger.ledger.model.budget_request import RequestState
from dpledger.ledger.model.entries import parse_identifier
from dpledger.ledger.ports import EntryFilter, IdempotentRequest
from dpledger.ledger.reader import LedgerReader
from dpledger.ledger.receipts import Signer
from dpledger.ledger.report import verified_report
from dpledger.queries.forecast import charge_query, forecast, read_state
from dpledger.settings import DEFAULT_DATABASE, InvalidSettings, Settings, variable
from dpledger.storage import migrate
from dpledger.storage.engine.engines import make_engine
from dpledger.storage.mark_file import MarkFile
from dpledger.storage.repositories.tokens import TokenStore
from dpledger.storage.repository import SqlStorage

__all__ = ["Direct"]

_IN_PROCESS = "http://ledger"
_ACTOR = "command-line"
"""Whose idempotency keys these are; no token has an id with a dash in it."""
_NO_LIMIT_SECONDS = 3600.0


class Direct:
    """Reads a database, keeps its tokens, and lets the application change datasets in it."""

    def __init__(self, database: str | None, key_file: Path | None, token: str | None) -> None:
        self._database = database or DEFAULT_DATABASE
        self._key_file = key_file
        self._token = token
        self._storage: SqlStorage | None = None

    def close(self) -> None:
        """Close every connection."""
        if self._storage is not None:
            self._storage.close()

    def datasets(self, search: str | None, limit: int, cursor: str | None) -> Page:
        """A page of datasets by name."""
        with self._reading() as reader:
            found = reader.datasets(text_after(cursor), limit + 1, search)
            return page(found, limit, lambda item: item["name"])

    def dataset(self, name: str) -> Fields:
        """One dataset."""
        with self._reading() as reader:
            return reader.dataset(name)

    def budget(self, name: str, delta: float | None) -> Fields:
        """Limit, spent, reserved and remaining."""
        with self._reading() as reader:
            return reader.budget(name, delta)

    def deployment(self, name: str, query: Fields) -> Fields:
        """A draft of the dataset's entry for the deployments registry."""
        with self._reading() as reader:
            return reader.deployment(name, DeploymentQuery(**query).details())

    def runs(self, name: str, limit: int, cursor: str | None) -> Page:
        """A page of runs with what each has spent."""
        with self._reading() as reader:
            return page(reader.runs(name, text_after(cursor), limit + 1), limit, lambda item: item["run"])

    def entries(self, name: str, query: EntryQuery, limit: int, cursor: str | None) -> Page:
        """A page of entries."""
        with self._reading() as reader:
            chosen = EntryFilter(number_after(cursor), limit + 1, *astuple(query))
            return page(reader.entries(name, chosen), limit, lambda item: item["sequence"])

    def verification(self, name: str, progress: Progress) -> Fields:
        """Whether the chain holds, checked entry by entry, and whether the ledger is behind its mark."""
        with self._reading() as reader, self._compared_with_marks():
            return reader.verification(name, progress)

    def report(self, name: str, progress: Progress) -> Fields:
        """What an auditor asks of a dataset, its ledger replayed and compared with its mark."""
        with one_line_failures():
            storage = self._open()
            with self._compared_with_marks():
                return verified_report(storage, name, SystemClock().now_us(), progress)

    def lost(self) -> list[Fields]:
        """Verdicts on datasets that have a high-water mark and are gone."""
        with one_line_failures(), self._compared_with_marks() as file:
            found = [] if file is None else [self._gone(file, name) for name in file.names()]
            return [each for each in found if each is not None]

    def _gone(self, file: MarkFile, name: str) -> Fields | None:
        try:
            self._open().dataset(name)
        except NotFound:
            mark = file.get(name) or Mark(0, b"")
            said = str(RolledBack(name, mark.sequence, mark.head.hex(), 0))
            return {"dataset": name, "sequence": 0, "valid": False, "problems": [said], "head": None}
        return None

    @contextlib.contextmanager
    def _compared_with_marks(self) -> Iterator[MarkFile | None]:
        """Have the file with the marks looked at, if there is one; no mark is changed."""
        path = self._marks_path()
        if path is None or not path.is_file():
            yield None
            return
        storage = self._open()
        # After a crash SQLite has to tidy up in the file before it can be read.
        file = MarkFile(path, storage.instance(), read_only=not os.access(path, os.W_OK))
        storage.marks = marks = HighWaterMarks(file)
        try:
            yield file
        finally:
            storage.marks = HighWaterMarks()
            marks.close()

    def _marks_path(self) -> Path | None:
        try:
            return self._settings().marks_path()
        except InvalidSettings:  # PostgreSQL without a key file: nobody said where the marks are
            return None

    def entry(self, name: str, sequence: int) -> Fields:
        """One entry."""
        with self._reading() as reader:
            return reader.entry(name, sequence)

    def key_set(self) -> Fields:
        """The public keys that receipts are checked with."""
        with one_line_failures():
            keys = load_keys(self._settings().keys_path(), has_tokens=lambda: True)
            return Signer(keys.receipt_seed, keys.retired_public_keys).key_set()

    def outcomes(self, held: Sequence[Held]) -> list[str | None]:
        """How each request was answered; None where nothing is known of it."""
        with one_line_failures():
            storage = self._open()
            return [storage.outcome(each.dataset, _call(each)) for each in held]

    def accept_rollback(self, name: str, body: Fields, key: str) -> Fields:
        """Give up entries that a ledger has lost; of a dataset that is gone, the mark itself."""
        try:
            self.dataset(name)
        except Failed as failed:
            if failed.code is not ExitCode.NOT_FOUND:
                raise
            return self._give_up(name, body)
        with contextlib.closing(self._application()) as application:
            return application.accept_rollback(name, body, key)

    def _give_up(self, name: str, body: Fields) -> Fields:
        lost = Mark(body["sequence"], bytes.fromhex(body["entry"]))
        with (
            one_line_failures(),
            contextlib.closing(MarkFile(self._settings().marks_path(), self._open().instance())) as file,
        ):
            if not file.give_up(name, lost, SystemClock().now_us(), body["reason"]):
                raise Failed(ExitCode.NOT_FOUND, f"there is no dataset {name}, and no such mark of it")
        return {"name": name, "sequence": 0, "remaining": None}

    def export(self, name: str) -> Iterator[bytes]:
        """Every entry as a line of JSON."""
        with self._reading() as reader:
            for fields in reader.export(name):
                yield f"{json_text(fields)}\n".encode("ascii")

    def forecast(self, name: str, body: Fields) -> Fields:
        """How many more such steps fit, computed here."""
        with one_line_failures():
            query = ForecastBody.model_validate(body).to_query()
            state = read_state(self._open(), name, query.partition, query.allocation)
            asked = charge_query(query, state.ledger)
            return forecast(state, asked, evaluate_query(asked))

    def open_dataset(self, body: Fields, key: str) -> Fields:
        """Open a dataset under an idempotency key, in the application's own transaction."""
        with contextlib.closing(self._application()) as application:
            return application.open_dataset(body, key)

    def change_budget(self, name: str, body: Fields, sequence: int, key: str) -> Fields:
        """Set another limit if the dataset is still at ``sequence``."""
        with contextlib.closing(self._application()) as application:
            return application.change_budget(name, body, sequence, key)

    def allocations(self, name: str, limit: int, cursor: str | None) -> Page:
        """A page of allocations of a shared budget."""
        with self._reading() as reader:
            found = reader.allocations(name, number_after(cursor), limit + 1)
            return page(found, limit, lambda item: item["sequence"])

    def allocation(self, name: str, allocation: str) -> Fields:
        """One allocation."""
        with self._reading() as reader:
            return reader.allocation(name, allocation)

    def create_allocation(self, name: str, body: Fields, key: str) -> Fields:
        """Take a part of a shared budget, in the application's own transaction."""
        with contextlib.closing(self._application()) as application:
            return application.create_allocation(name, body, key)

    def return_allocation(self, name: str, allocation: str, body: Fields, key: str) -> Fields:
        """Give back an allocation from which nothing was released."""
        with contextlib.closing(self._application()) as application:
            return application.return_allocation(name, allocation, body, key)

    def partitions(self, name: str, limit: int, cursor: str | None) -> Page:
        """A page of partitions with what each has left."""
        with self._reading() as reader:
            found = reader.partitions(name, number_after(cursor, first=-1), limit + 1)
            return page(found, limit, lambda item: item["number"])

    def partition(self, name: str, partition: str) -> Fields:
        """One partition."""
        with self._reading() as reader:
            return reader.partition(name, partition)

    def open_partitions(self, name: str, body: Fields, key: str) -> Fields:
        """Open partitions under an idempotency key, in the application's own transaction."""
        with contextlib.closing(self._application()) as application:
            return application.open_partitions(name, body, key)

    def reservations(self, name: str, limit: int, cursor: str | None) -> Page:
        """A page of open reservations."""
        with self._reading() as reader:
            found = reader.reservations(name, number_after(cursor), limit + 1)
            return page(found, limit, lambda item: item["id"].rpartition("~")[2])

    def settle(self, reservation: str, body: Fields, key: str) -> Fields:
        """Close a reservation, in the application's own transaction."""
        with contextlib.closing(self._application()) as application:
            return application.settle(reservation, body, key)

    def tokens(self, limit: int, cursor: str | None) -> Page:
        """A page of tokens without their secrets."""
        with one_line_failures():
            rows = TokenStore(self._open().database).list(text_after(cursor), limit + 1)
            return page([token_fields(row) for row in rows], limit, lambda item: item["id"])

    def quotas(self, name: str, limit: int, cursor: str | None) -> Page:
        """A page of the quotas in force."""
        with self._reading() as reader:
            found = reader.quotas(name, number_after(cursor), limit + 1, SystemClock().now_us())
            return page(found, limit, lambda item: item["sequence"])

    def change_quota(self, name: str, body: Fields, key: str) -> Fields:
        """Set, change or remove a team's quota."""
        with contextlib.closing(self._application()) as application:
            return application.change_quota(name, body, key)

    def renewal(self, name: str) -> Fields:
        """The policy of renewal."""
        with self._reading() as reader:
            return reader.renewal(name, SystemClock().now_us())

    def change_renewal(self, name: str, body: Fields, key: str) -> Fields:
        """Set, change or end the policy of renewal, in the application's own transaction."""
        with contextlib.closing(self._application()) as application:
            return application.change_renewal(name, body, key)

    def open_epoch(self, name: str, body: Fields, key: str) -> Fields:
        """Open the partition of an epoch."""
        with contextlib.closing(self._application()) as application:
            return application.open_epoch(name, body, key)

    def budget_requests(self, name: str, state: str | None, limit: int, cursor: str | None) -> Page:
        """A page of requests for budget."""
        with self._reading() as reader:
            chosen = None if state is None else RequestState(state)
            found = reader.budget_requests(name, number_after(cursor), limit + 1, chosen)
            return page(found, limit, lambda item: item["sequence"])

    def budget_request(self, name: str, request: str) -> Fields:
        """One request for budget."""
        with self._reading() as reader:
            found = parse_identifier(request)
            if found is None or found[0] != name:
                raise NotFound("request", request)
            return reader.budget_request(name, found[1])

    def request_budget(self, name: str, body: Fields, key: str) -> Fields:
        """Ask an admin for budget, in the application's own transaction."""
        with contextlib.closing(self._application()) as application:
            return application.request_budget(name, body, key)

    def decide_request(self, name: str, request: str, body: Fields, key: str) -> Fields:
        """Approve or reject a request for budget."""
        with contextlib.closing(self._application()) as application:
            return application.decide_request(name, request, body, key)

    def withdraw_request(self, name: str, request: str, body: Fields, key: str) -> Fields:
        """Withdraw a request for budget."""
        with contextlib.closing(self._application()) as application:
            return application.withdraw_request(name, request, body, key)

    def create_token(self, body: Fields, key: str, *, new_keys: bool) -> Fields:
        """A token with its secret: whoever has the database and its key file may make the first."""
        with one_line_failures():
            settings, asked = self._settings(), TokenBody.model_validate(body)
            refuse_foreign(self._database)
            make_schema(self._database)
            store = TokenStore(self._open().database)
            keys = load_keys(settings.keys_path(), has_tokens=lambda: not new_keys and store.any())
            call = IdempotentRequest(
                _ACTOR, hashed_key("/v1/tokens", check_key(key.encode())), hashed_request(body)
            )
            issuer = Issuer(store, keys.token_key, SystemClock())
            token, row, _again = issuer.create_once(_request(asked), call)
            return {**token_fields(row), "token": token.text}

    def revoke_token(self, token_id: str) -> None:
        """End a token."""
        with one_line_failures():
            TokenStore(self._open().database).revoke(token_id, SystemClock().now_us())

    @contextlib.contextmanager
    def _reading(self) -> Iterator[LedgerReader]:
        with one_line_failures():
            yield LedgerReader(self._open())

    def _open(self) -> SqlStorage:
        """The database, at the schema that this code reads."""
        if self._storage is None:
            refuse_missing(self._database)
            refuse_foreign(self._database)
            self._storage = SqlStorage(make_engine(self._database))
            found, wanted = migrate.revision(self._storage.database.reading), migrate.head_revision()
            if found != wanted:
                at = "has no ledger in it" if found is None else f"has its schema at {found}, not {wanted}"
                raise Failed(ExitCode.REFUSED, f"the database {at}; dpledger migrate brings it there")
        return self._storage

    def _settings(self) -> Settings:
        marks = os.environ.get(variable("mark_file"))
        return Settings(self._database, self._key_file, Path(marks) if marks else None)

    def _application(self) -> Remote:
        """The service's own application in this process, for whoever shows a token."""
        if self._token is None:
            raise Failed(
                ExitCode.UNAUTHORIZED,
                "a change of a dataset needs --token or DPLEDGER_TOKEN, also directly in a database:"
                " its id is recorded in the entry",
            )
        # The routes and all that they need take a while to load; who only reads does without.
        from dpledger.cli.in_process import InProcess

        with one_line_failures():
            self._open()
            transport = InProcess(self._settings())
        return Remote(_IN_PROCESS, self._token, _NO_LIMIT_SECONDS, transport)


def _call(held: Held) -> IdempotentRequest:
    return IdempotentRequest(held.actor, hashed_key(held.path, held.key.encode()), b"")


def _request(body: TokenBody) -> TokenRequest:
    seconds = body.expires_in_seconds
    return TokenRequest(
        frozenset(body.scopes),
        None if body.datasets is None else frozenset(body.datasets),
        body.description,
        None if seconds is None else int(seconds * 1e6),
        body.team,
    )
