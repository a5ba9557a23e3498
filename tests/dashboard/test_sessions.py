"""Logging out ends a session for every copy of its cookie, at every replica and after a restart."""

import http.client
from pathlib import Path
from urllib.parse import urlencode

import pytest

from dpledger.auth.sessions import SESSION_SECONDS
from dpledger.dashboard.security import COOKIE
from dpledger.ledger.errors import Unavailable
from dpledger.storage.repository import SqlStorage
from dpledger.storage.sessions import SessionStore
from tests.api.service import Service
from tests.dashboard.visitor import Visitor, serving
from tests.reliability.database_targets import sqlite_place
from tests.reliability.processes import services
from tests.reliability.wire import ANSWER_SECONDS, HOST


def with_cookie(service: Service, cookie: str | None) -> Visitor:
    """Somebody who has a copy of a cookie."""
    copied = Visitor(service)
    copied.cookie = cookie
    return copied


def test_a_copied_cookie_is_worth_nothing_after_logging_out(service: Service, visitor: Visitor) -> None:
    thief = with_cookie(service, visitor.cookie)
    assert thief.get("/").status_code == 200

    assert visitor.post("/logout").status_code == 303

    assert thief.get("/").status_code == 303
    assert visitor.get("/").status_code == 303


def test_logging_out_ends_this_session_alone(service: Service, visitor: Visitor) -> None:
    other = Visitor(service)
    other.log_in(service.token)
    assert other.cookie != visitor.cookie

    visitor.post("/logout")

    assert other.get("/").status_code == 200


def test_logging_out_counts_at_every_replica_and_after_a_restart(database_url: str, tmp_path: Path) -> None:
    keys = tmp_path / "keys.json"
    with serving(database_url, keys) as first, serving(database_url, keys, first.token) as second:
        here = Visitor(first)
        here.log_in(first.token)
        there = with_cookie(second, here.cookie)
        assert there.get("/").status_code == 200

        here.post("/logout")

        assert there.get("/").status_code == 303
    with serving(database_url, keys, first.token) as again:
        assert with_cookie(again, here.cookie).get("/").status_code == 303


def test_logging_out_twice_or_without_a_session_is_no_error(service: Service, visitor: Visitor) -> None:
    for cookie in (visitor.cookie, visitor.cookie, "nonsense", None):
        assert with_cookie(service, cookie).post("/logout").headers["location"] == "/dashboard/login"


def test_a_logout_that_cannot_be_kept_is_reported_and_keeps_the_cookie(
    service: Service, visitor: Visitor, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_: object) -> None:
        raise Unavailable("the database is away")

    with monkeypatch.context() as patched:
        patched.setattr(service.app.state.services.storage.database, "begin", away)
        answer = visitor.post("/logout")

    assert answer.status_code == 503
    assert "set-cookie" not in answer.headers
    assert visitor.post("/logout").status_code == 303
    assert visitor.get("/").status_code == 303


def test_what_has_ended_by_itself_is_forgotten(storage: SqlStorage) -> None:
    store = SessionStore(storage.database)
    store.end(b"first", 100, now_us=10)
    store.end(b"first", 100, now_us=20)
    store.end(b"second", 200, now_us=50)
    assert [store.has_ended(each) for each in (b"first", b"second", b"third")] == [True, True, False]

    store.end(b"third", 300, now_us=100)

    assert [store.has_ended(each) for each in (b"first", b"second", b"third")] == [False, True, True]


def test_an_ended_session_stays_ended_until_its_time(service: Service, visitor: Visitor) -> None:
    visitor.post("/logout")
    service.clock.advance(SESSION_SECONDS - 1)
    other = Visitor(service)
    other.log_in(service.token)
    other.post("/logout")

    assert visitor.get("/").status_code == 303


def _asked(port: int, path: str, cookie: str = "", form: dict[str, str] | None = None) -> tuple[int, str]:
    """The status of an answer and the cookie that it sets."""
    connection = http.client.HTTPConnection(HOST, port, timeout=ANSWER_SECONDS)
    headers = {"Cookie": f"{COOKIE}={cookie}", "Origin": f"http://{HOST}:{port}"}
    method = "GET" if form is None else "POST"
    connection.request(method, f"/dashboard{path}", urlencode(form or {}), headers)
    answer = connection.getresponse()
    answer.read()
    connection.close()
    return answer.status, (answer.getheader("Set-Cookie") or "").partition(";")[0].partition("=")[2]


def test_two_processes_agree_on_who_has_logged_out(tmp_path: Path) -> None:
    place = sqlite_place(tmp_path)
    with services(place, 2) as (first, second):
        _, cookie = _asked(first.port, "/login", form={"token": place.token})
        assert _asked(second.port, "/", cookie)[0] == 200

        assert _asked(second.port, "/logout", cookie, form={})[0] == 303

        assert [_asked(each.port, "/", cookie)[0] for each in (first, second)] == [303, 303]
