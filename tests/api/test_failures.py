"""When something breaks: clear answers, nothing lost, nothing shown of the inside."""

import asyncio
import json
import logging
from collections.abc import Iterator
from typing import Any
from unittest import mock

import pytest
import sqlalchemy as sa

from dpledger.ledger.errors import Unavailable
from dpledger.ledger.marks import HighWaterMarks
from dpledger.logs import JsonFormatter
from dpledger.storage.engine.engines import normalized_url
from dpledger.storage.tables import metadata
from tests.api.service import GAUSSIAN, ZCDP, Service, made, problem


@pytest.fixture
def log() -> Iterator[list[str]]:
    """What the service logs, line by line."""
    lines: list[str] = []

    class Kept(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(self.format(record))

    handler = Kept()
    handler.setFormatter(JsonFormatter())
    logger = logging.getLogger("dpledger")
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    yield lines
    logger.removeHandler(handler)
    logger.setLevel(logging.NOTSET)


def away(*_: Any) -> Any:
    raise Unavailable("the database is away")


def test_a_database_that_is_away_is_a_503_that_says_when_to_come_back(adult: Service) -> None:
    made(adult.authorize())
    storage = adult.app.state.services.storage
    with mock.patch.object(storage, "begin", away), mock.patch.object(storage, "dataset", away):
        answers = [
            adult.authorize(key="k"),
            adult.reserve(1),
            adult.get("/v1/datasets/adult"),
            adult.post("/v1/datasets", {"name": "x", "budget": ZCDP}),
        ]

    for answer in answers:
        problem(answer, 503, "unavailable")
        assert int(answer.headers["retry-after"]) >= 1
    assert made(adult.authorize(key="k"))["sequence"] == 3


def test_a_token_is_not_refused_because_the_database_is_away(adult: Service) -> None:
    bearer = adult.make_token("read")
    with mock.patch.object(adult.app.state.services.tokens, "get", away):
        answers = [bearer.get("/v1/datasets"), bearer.authorize()]

    for answer in answers:
        problem(answer, 503, "unavailable")


def broken(*_: Any) -> Any:
    raise ZeroDivisionError("secret dpl_abc_hunter2 postgresql://ann:hunter2@db/x")


def test_a_fault_tells_the_caller_nothing_and_the_log_where(adult: Service, log: list[str]) -> None:
    storage = adult.app.state.services.storage
    with mock.patch.object(storage, "begin", broken), mock.patch.object(storage, "dataset", broken):
        answers = [adult.authorize(), adult.get("/v1/datasets/adult")]

    for answer in answers:
        problem(answer, 500, "internal-error")
        assert "secret" not in answer.text
    faults = [json.loads(line) for line in log if "ZeroDivisionError" in line]
    assert len(faults) == 2
    for fault, answer in zip(faults, answers, strict=True):
        assert fault["level"] == "error"
        assert "hunter2" not in json.dumps(fault)
        assert any("broken" in frame for frame in fault["error"]["stack"])
        assert fault["request_id"] == answer.headers["x-request-id"]


def test_a_request_keeps_the_id_it_came_with(still: Service) -> None:
    for path in ("/healthz", "/v1/datasets", "/nowhere"):
        given = still.client.get(path, headers={"X-Request-ID": "job-7"})
        assert given.headers["x-request-id"] == "job-7"
    made_up = {
        still.client.get("/healthz", headers={"X-Request-ID": bad}).headers["x-request-id"]
        for bad in ("", "a b", "x" * 129)
    }
    assert len(made_up) == 3
    answer = still.post("/v1/datasets/adult/authorizations", {}, headers={"X-Request-ID": "job-8"})
    assert answer.headers["x-request-id"] == "job-8"


def test_no_secret_is_logged(service: Service, log: list[str]) -> None:
    service.open("adult")
    made(service.authorize())
    bearer = service.make_token("read")
    service.delete(f"/v1/tokens/{bearer.token.split('_')[1]}")

    events = [json.loads(line)["event"] for line in log]
    assert {"token created", "token revoked"} <= set(events)
    everything = "\n".join(log)
    for token in (service.token, bearer.token):
        assert token.split("_")[2] not in everything


def test_what_arrives_after_the_end_is_reported_to_come_back(adult: Service) -> None:
    adult.app.state.services.committer.stop()

    answer = adult.authorize()

    problem(answer, 503, "unavailable")
    assert answer.headers["retry-after"]


def test_who_hangs_up_at_the_end_does_not_leave_others_waiting(adult: Service) -> None:
    adult.app.state.services.committer.stop()
    asked: Any = mock.Mock()

    async def two_of_which_one_hangs_up() -> object:
        gone, waiting = adult.app.authorizations._enqueue(asked), adult.app.authorizations._enqueue(asked)
        gone.cancel()
        return await asyncio.wait_for(waiting, 30.0)

    portal = adult.client.portal
    assert portal is not None
    assert isinstance(portal.call(two_of_which_one_hangs_up), Unavailable)


def test_an_export_that_breaks_in_the_middle_does_not_look_complete(adult: Service) -> None:
    def lines(_name: str) -> Iterator[str]:
        yield "{}\n"
        raise ZeroDivisionError

    sent: list[Any] = []

    async def ask() -> None:
        async def receive() -> Any:
            await asyncio.Event().wait()

        async def send(message: Any) -> None:
            sent.append(message)

        path = "/v1/datasets/adult/export"
        headers = [(b"authorization", f"Bearer {adult.token}".encode())]
        scope = {"type": "http", "method": "GET", "path": path, "query_string": b"", "headers": headers}
        await adult.app(scope, receive, send)

    portal = adult.client.portal
    assert portal is not None
    with (
        mock.patch.object(adult.app.state.services.reader, "export", lines),
        mock.patch("dpledger.api.routes.entries._LINES_PER_CHUNK", 1),
        pytest.raises(ZeroDivisionError),
    ):
        portal.call(ask)

    assert sent[0]["status"] == 200
    assert sent[-1]["more_body"] is True


def lose_everything(service: Service, database_url: str) -> None:
    """What a fail-over to a server without the ledgers does; the tokens are there."""
    other = sa.create_engine(normalized_url(database_url))
    with other.begin() as connection:
        for table in reversed(metadata.sorted_tables):
            if table.name not in ("meta", "tokens"):
                connection.execute(sa.delete(table))
    other.dispose()
    storage = service.app.state.services.storage
    storage.database.engine.dispose()
    # That everything is gone is noticed by its marks (tests/deploy/test_rollback.py), and accepted here.
    storage.marks.close()
    storage.marks = HighWaterMarks()


@pytest.mark.parametrize(
    ("again", "spent"),
    [
        ({"budget": {"accounting": "gdp", "mu": 2.0}}, {"mu_squared": 5 * 0.25}),
        ({"budget": {"accounting": "zcdp", "rho": 2.0}, "adjacency": "replace-one"}, {"rho": 5 * 0.125}),
    ],
)
def test_a_dataset_of_the_same_name_on_a_new_server_is_charged_by_its_own_rule(
    adult: Service, database_url: str, again: dict[str, Any], spent: dict[str, float]
) -> None:
    item = {"dataset": "adult", "run": "run-1", "releases": [GAUSSIAN]}
    made(adult.authorize())
    lose_everything(adult, database_url)
    adult.open("adult", **again)

    made(adult.authorize())
    made(adult.reserve(3))
    made(adult.bulk("each", item))

    found = adult.budget()["spent"]
    for name, least in spent.items():
        assert least <= found[name] <= 1.001 * least
    for entry in adult.shown("/v1/datasets/adult/entries")["items"][1:]:
        assert entry["step"]["adjacency"] == again.get("adjacency", "add-remove")
    adult.verified()
