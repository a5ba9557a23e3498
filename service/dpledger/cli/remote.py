"""A ledger behind a service's HTTP interface."""

import contextlib
import json
from collections.abc import Iterator, Sequence
from typing import Any
from urllib.parse import quote

import httpx2

from dpledger.cli.failures import ExitCode, Failed, failure_of
from dpledger.cli.ledgers import EntryQuery, Fields, Held, Page, Progress
from dpledger.cli.output import number_down

__all__ = ["Remote"]

_CONNECT_SECONDS = 5.0
_LONG_SECONDS = 3600.0
"""How long verification and export may take between two bytes."""
_UNKNOWN = "whether it was recorded is not known, and --idempotency-key {} asks again without doing it twice"


def _left_to_allocate(problem: Fields) -> str:
    """What a refused allocation could have had, since nothing but the detail is shown; else nothing."""
    requested, left = problem.get("requested"), problem.get("remaining")
    if not (isinstance(requested, dict) and isinstance(left, dict) and "epsilon" in requested):
        return ""
    epsilon, delta = left.get("epsilon"), left.get("delta")
    if not (isinstance(epsilon, float) and isinstance(delta, float)):
        return ""
    return f" What is left to allocate is ε = {number_down(epsilon)}, δ = {number_down(delta)}."


class Remote:
    """Asks a service."""

    def __init__(
        self,
        url: str,
        token: str | None,
        timeout_seconds: float,
        transport: httpx2.BaseTransport | None = None,
    ) -> None:
        if not url.startswith(("http://", "https://")):
            raise Failed(ExitCode.USAGE, f"--url must start with http:// or https://, found {url}")
        self._url = url.rstrip("/")
        # In this process nobody else speaks.
        self._says = f"{self._url} says: " if transport is None else ""
        self._token = token
        self._seconds = timeout_seconds
        try:
            headers = {} if token is None else {"Authorization": f"Bearer {token}"}
            self._client = httpx2.Client(base_url=self._url, headers=headers, transport=transport)
        except (httpx2.InvalidURL, ValueError):
            raise Failed(ExitCode.USAGE, f"--url or --token cannot be sent: {self._url}") from None

    def close(self) -> None:
        """Close every connection."""
        self._client.close()

    def ask(self, query: str, body: Fields) -> Fields:
        """The answer to a pure query."""
        return self._json("POST", f"/v1/{query}", json=body)

    def datasets(self, search: str | None, limit: int, cursor: str | None) -> Page:
        """A page of datasets by name."""
        return self._json("GET", "/v1/datasets", params=_drop_none(search=search, limit=limit, next=cursor))

    def dataset(self, name: str) -> Fields:
        """One dataset."""
        return self._json("GET", _dataset(name))

    def budget(self, name: str, delta: float | None) -> Fields:
        """Limit, spent, reserved and remaining."""
        return self._json("GET", f"{_dataset(name)}/budget", params=_drop_none(delta=delta))

    def deployment(self, name: str, query: Fields) -> Fields:
        """A draft of the dataset's entry for the deployments registry."""
        return self._json("GET", f"{_dataset(name)}/deployment", params=query)

    def runs(self, name: str, limit: int, cursor: str | None) -> Page:
        """A page of runs with what each has spent."""
        return self._json("GET", f"{_dataset(name)}/runs", params=_drop_none(limit=limit, next=cursor))

    def entries(self, name: str, query: EntryQuery, limit: int, cursor: str | None) -> Page:
        """A page of entries."""
        newest = "true" if query.newest_first else None
        chosen = _drop_none(
            kind=query.kind,
            run=query.run,
            partition=query.partition,
            allocation=query.allocation,
            newest_first=newest,
        )
        return self._json(
            "GET", f"{_dataset(name)}/entries", params={**chosen, **_drop_none(limit=limit, next=cursor)}
        )

    def verification(self, name: str, progress: Progress) -> Fields:
        """Whether the chain holds; how far the service is, it does not say."""
        return self._json("GET", f"{_dataset(name)}/verification", seconds=_LONG_SECONDS)

    def report(self, name: str, progress: Progress) -> Fields:
        """What an auditor asks of a dataset, its ledger replayed."""
        return self._json("GET", f"{_dataset(name)}/report", seconds=_LONG_SECONDS)

    def export(self, name: str) -> Iterator[bytes]:
        """Every entry as a line of JSON, in the pieces that arrive."""
        path, waiting = f"{_dataset(name)}/export", httpx2.Timeout(_LONG_SECONDS, connect=_CONNECT_SECONDS)
        with self._report_failures(), self._client.stream("GET", path, timeout=waiting) as response:
            if not response.is_success:
                response.read()
                raise self._failure(response)
            yield from response.iter_bytes()

    def lost(self) -> list[Fields]:
        """Verdicts on datasets that are gone: a service shows its marks when they are asked for by name."""
        return []

    def entry(self, name: str, sequence: int) -> Fields:
        """One entry."""
        return self._json("GET", f"{_dataset(name)}/entries/{sequence}")

    def key_set(self) -> Fields:
        """The public keys that receipts are checked with."""
        return self._json("GET", "/.well-known/dpledger-keys.json")

    def outcomes(self, held: Sequence[Held]) -> list[str | None]:
        """Not to be had: to ask a service under a key that it does not know would be to spend."""
        raise Failed(ExitCode.USAGE, "--journal needs --database: asking a service again might spend")

    def accept_rollback(self, name: str, body: Fields, key: str) -> Fields:
        """Give up entries that a ledger has lost."""
        return self._send_idempotent(f"{_dataset(name)}/rollback-acceptances", body, key)

    def forecast(self, name: str, body: Fields) -> Fields:
        """How many more such steps fit."""
        return self._json("POST", f"{_dataset(name)}/forecast", json=body)

    def open_dataset(self, body: Fields, key: str) -> Fields:
        """Open a dataset under an idempotency key."""
        return self._send_idempotent("/v1/datasets", body, key)

    def change_budget(self, name: str, body: Fields, sequence: int, key: str) -> Fields:
        """Set another limit if the dataset is still at ``sequence``."""
        return self._send_idempotent(
            f"{_dataset(name)}/budget-changes", body, key, {"If-Match": f'"{sequence}"'}
        )

    def allocations(self, name: str, limit: int, cursor: str | None) -> Page:
        """A page of allocations of a shared budget."""
        return self._json("GET", f"{_dataset(name)}/allocations", params=_drop_none(limit=limit, next=cursor))

    def allocation(self, name: str, allocation: str) -> Fields:
        """One allocation."""
        return self._json("GET", f"{_dataset(name)}/allocations/{_segment('allocation', allocation)}")

    def create_allocation(self, name: str, body: Fields, key: str) -> Fields:
        """Take a part of a shared budget."""
        return self._send_idempotent(f"{_dataset(name)}/allocations", body, key)

    def return_allocation(self, name: str, allocation: str, body: Fields, key: str) -> Fields:
        """Give back an allocation from which nothing was released."""
        part = _segment("allocation", allocation)
        return self._send_idempotent(f"{_dataset(name)}/allocations/{part}/return", body, key)

    def partitions(self, name: str, limit: int, cursor: str | None) -> Page:
        """A page of partitions with what each has left."""
        return self._json("GET", f"{_dataset(name)}/partitions", params=_drop_none(limit=limit, next=cursor))

    def partition(self, name: str, partition: str) -> Fields:
        """One partition; its name may hold a stroke."""
        if not partition.strip("."):
            raise Failed(ExitCode.NOT_FOUND, f"{json.dumps(partition)} cannot stand in an address")
        return self._json("GET", f"{_dataset(name)}/partitions/{quote(partition, safe='', errors='replace')}")

    def open_partitions(self, name: str, body: Fields, key: str) -> Fields:
        """Open partitions under an idempotency key."""
        return self._send_idempotent(f"{_dataset(name)}/partitions", body, key)

    def reservations(self, name: str, limit: int, cursor: str | None) -> Page:
        """A page of open reservations."""
        return self._json(
            "GET", f"{_dataset(name)}/reservations", params=_drop_none(limit=limit, next=cursor)
        )

    def settle(self, reservation: str, body: Fields, key: str) -> Fields:
        """Close a reservation with the number of repetitions that ran."""
        held = _segment("reservation", reservation)
        return self._send_idempotent(f"/v1/reservations/{held}/settlement", body, key)

    def tokens(self, limit: int, cursor: str | None) -> Page:
        """A page of tokens without their secrets."""
        return self._json("GET", "/v1/tokens", params=_drop_none(limit=limit, next=cursor))

    def quotas(self, name: str, limit: int, cursor: str | None) -> Page:
        """A page of the quotas in force."""
        return self._json("GET", f"{_dataset(name)}/quotas", params=_drop_none(limit=limit, next=cursor))

    def change_quota(self, name: str, body: Fields, key: str) -> Fields:
        """Set, change or remove a team's quota."""
        return self._send_idempotent(f"{_dataset(name)}/quotas", body, key)

    def renewal(self, name: str) -> Fields:
        """The policy of renewal."""
        return self._json("GET", f"{_dataset(name)}/renewal")

    def change_renewal(self, name: str, body: Fields, key: str) -> Fields:
        """Set, change or end the policy of renewal."""
        return self._send_idempotent(f"{_dataset(name)}/renewal", body, key)

    def open_epoch(self, name: str, body: Fields, key: str) -> Fields:
        """Open the partition of an epoch."""
        return self._send_idempotent(f"{_dataset(name)}/epochs", body, key)

    def budget_requests(self, name: str, state: str | None, limit: int, cursor: str | None) -> Page:
        """A page of requests for budget."""
        chosen = _drop_none(state=state, limit=limit, next=cursor)
        return self._json("GET", f"{_dataset(name)}/budget-requests", params=chosen)

    def budget_request(self, name: str, request: str) -> Fields:
        """One request for budget."""
        return self._json("GET", _request(name, request))

    def request_budget(self, name: str, body: Fields, key: str) -> Fields:
        """Ask an admin for budget."""
        return self._send_idempotent(f"{_dataset(name)}/budget-requests", body, key)

    def decide_request(self, name: str, request: str, body: Fields, key: str) -> Fields:
        """Approve or reject a request for budget."""
        return self._send_idempotent(f"{_request(name, request)}/decision", body, key)

    def withdraw_request(self, name: str, request: str, body: Fields, key: str) -> Fields:
        """Withdraw a request for budget."""
        return self._send_idempotent(f"{_request(name, request)}/withdrawal", body, key)

    def create_token(self, body: Fields, key: str, *, new_keys: bool) -> Fields:
        """A token with its secret."""
        if new_keys:
            raise Failed(ExitCode.USAGE, "--new-keys needs --database: a service has its key file already")
        return self._send_idempotent("/v1/tokens", body, key)

    def revoke_token(self, token_id: str) -> None:
        """End a token."""
        self._answer("DELETE", f"/v1/tokens/{_segment('token', token_id)}")

    def _send_idempotent(
        self, path: str, body: Fields, key: str, headers: dict[str, str] | None = None
    ) -> Fields:
        if not (key.isascii() and key.isprintable()):
            raise Failed(ExitCode.USAGE, "an Idempotency-Key takes printable ASCII characters only")
        try:
            return self._json("POST", path, json=body, headers={"Idempotency-Key": key, **(headers or {})})
        except Failed as failed:
            if failed.code is not ExitCode.UNAVAILABLE:
                raise
            raise Failed(failed.code, f"{failed}; {_UNKNOWN.format(key)}") from None

    def _json(self, method: str, path: str, **options: Any) -> Fields:
        response = self._answer(method, path, **options)
        try:
            found: Fields = response.json()
        except ValueError:
            raise self._stranger(response) from None
        return found

    def _answer(
        self, method: str, path: str, seconds: float | None = None, **options: Any
    ) -> httpx2.Response:
        waiting = httpx2.Timeout(seconds or self._seconds, connect=_CONNECT_SECONDS)
        with self._report_failures():
            response = self._client.request(method, path, timeout=waiting, **options)
        if not response.is_success:
            raise self._failure(response)
        return response

    @contextlib.contextmanager
    def _report_failures(self) -> Iterator[None]:
        """Report what keeps a service from responding."""
        try:
            yield
        except httpx2.TimeoutException:
            raise Failed(ExitCode.UNAVAILABLE, f"{self._url} does not answer in time") from None
        except httpx2.TransportError as error:
            raise Failed(ExitCode.UNAVAILABLE, f"{self._url} cannot be reached: {error}") from None
        except (httpx2.InvalidURL, UnicodeEncodeError):
            raise Failed(
                ExitCode.USAGE, f"this cannot be sent to {self._url}: it holds characters that cannot travel"
            ) from None

    def _failure(self, response: httpx2.Response) -> Failed:
        try:
            problem = response.json()
            slug, detail = str(problem["type"]).removeprefix("/problems/"), str(problem["detail"])
        except (ValueError, KeyError, TypeError):
            return self._stranger(response)
        if slug == "not-found" and "kind" not in problem:
            # The address is missing, not what was asked for: nobody may take that for an answer.
            return self._stranger(response)
        if slug in ("unauthenticated", "token-ended"):
            wrong = "no token was given; --token or DPLEDGER_TOKEN names one"
            detail = wrong if self._token is None else "the token is wrong, revoked or expired"
        return failure_of(slug, response.status_code, f"{self._says}{detail}{_left_to_allocate(problem)}")

    def _stranger(self, response: httpx2.Response) -> Failed:
        away = response.status_code in (502, 503, 504)
        code = ExitCode.UNAVAILABLE if away else ExitCode.FAILURE
        return Failed(code, f"{self._url} answers {response.status_code}, and not as a dpledger service does")


def _drop_none(**values: Any) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def _dataset(name: str) -> str:
    return f"/v1/datasets/{_segment('dataset', name)}"


def _request(name: str, request: str) -> str:
    return f"{_dataset(name)}/budget-requests/{_segment('request', request)}"


def _segment(kind: str, name: str) -> str:
    """``name`` as one part of a path; dots alone or a stroke would lead elsewhere."""
    if not name.strip(".") or "/" in name:
        raise Failed(ExitCode.NOT_FOUND, f"there is no {kind} {json.dumps(name)}")
    return quote(name, safe="", errors="replace")
