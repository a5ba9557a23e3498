"""Who gets in, what the cookie is worth, and what a browser may do with the pages."""

import re
import threading
import time
from typing import Any

import pytest

from dpledger.auth.sessions import SESSION_SECONDS
from dpledger.dashboard.security import COOKIE, HEADERS
from dpledger.dashboard.verification import Verdict, Verifier
from tests.api.service import Service, made
from tests.dashboard.visitor import ORIGIN, Visitor

PROTECTED = (
    "/",
    "/datasets/adult",
    "/datasets/adult/report",
    "/datasets/adult/run?name=r",
    "/datasets/adult/entries/1",
)


@pytest.fixture
def reader(shared: Service) -> Visitor:
    """Somebody with a token of scope read, logged in."""
    visitor = Visitor(shared)
    visitor.log_in(shared.make_token("read").token)
    return visitor


@pytest.mark.parametrize("path", PROTECTED)
def test_no_page_without_a_session(shared: Service, path: str) -> None:
    answer = Visitor(shared).get(path)

    assert answer.status_code == 303
    assert answer.headers["location"].startswith("/dashboard/login")


def test_no_verification_without_a_session(shared: Service) -> None:
    answer = Visitor(shared).post("/datasets/adult/verification")

    assert (answer.status_code, answer.headers["location"]) == (303, "/dashboard/login")


@pytest.mark.parametrize("address", ["/", "/dashboard"])
def test_the_short_addresses_lead_to_the_dashboard(shared: Service, address: str) -> None:
    answer = shared.client.get(address)

    assert (answer.status_code, answer.headers["location"]) == (307, "/dashboard/")


def test_the_api_description_does_not_list_pages(shared: Service) -> None:
    assert not [path for path in shared.app.openapi()["paths"] if path.startswith("/dashboard")]


def test_a_read_token_gets_a_strict_cookie_that_does_not_hold_it(service: Service) -> None:
    token = service.make_token("read").token
    visitor = Visitor(service)

    answer = visitor.log_in(token)

    assert (answer.status_code, answer.headers["location"]) == (303, "/dashboard/")
    cookie = answer.headers["set-cookie"]
    attributes = {each.strip().lower() for each in cookie.split(";")[1:]}
    assert {"httponly", "samesite=strict", "path=/dashboard", f"max-age={SESSION_SECONDS}"} == attributes
    assert token.rpartition("_")[2] not in cookie
    assert visitor.get("/").status_code == 200


def test_behind_tls_the_cookie_is_secure(shared: Service) -> None:
    headers = {"Origin": ORIGIN, "X-Forwarded-Proto": "https"}

    answer = Visitor(shared).post("/login", {"token": shared.token}, headers)

    assert "; Secure" in answer.headers["set-cookie"]


def test_login_goes_on_to_where_one_wanted(shared: Service) -> None:
    visitor = Visitor(shared)
    turned_away = visitor.get("/datasets/adult?kind=settled").headers["location"]
    form = visitor.page(turned_away.removeprefix("/dashboard"))
    wanted = re.search(r'name="next" value="([^"]+)"', form)
    assert wanted is not None

    assert wanted[1] == "/dashboard/datasets/adult?kind=settled"
    assert visitor.log_in(shared.token, wanted[1]).headers["location"] == wanted[1]


def test_a_second_attempt_still_goes_on_to_where_one_wanted(shared: Service) -> None:
    wanted = "/dashboard/datasets/adult?kind=settled"

    form = Visitor(shared).log_in("dpl_wrong", wanted).text

    assert f'name="next" value="{wanted}"' in form


@pytest.mark.parametrize(
    "elsewhere",
    [
        "https://evil.example/",
        "//evil.example/",
        "/v1/datasets",
        "/dashboard",
        "/dashboard/\\evil",
        "/dashboard/\n",
    ],
)
def test_login_never_leads_elsewhere(shared: Service, elsewhere: str) -> None:
    assert Visitor(shared).log_in(shared.token, elsewhere).headers["location"] == "/dashboard/"


@pytest.mark.parametrize(
    "token", ["", "not-a-token", "dpl_abc_def", "dpl_" + "a" * 16 + "_" + "a" * 52, "ü" * 20]
)
def test_a_wrong_token_is_reported_so_and_gets_no_cookie(shared: Service, token: str) -> None:
    answer = Visitor(shared).log_in(token)

    assert answer.status_code == 401
    assert "set-cookie" not in answer.headers
    assert "This is not a valid token" in answer.text
    assert not token or token not in answer.text


def test_a_revoked_token_ends_its_sessions(service: Service) -> None:
    theirs = service.make_token("read")
    visitor = Visitor(service)
    visitor.log_in(theirs.token)
    assert visitor.get("/").status_code == 200

    service.delete(f"/v1/tokens/{theirs.token.split('_')[1]}")

    assert visitor.get("/").status_code == 303
    assert visitor.log_in(theirs.token).status_code == 401


def test_a_session_ends_by_itself(service: Service, visitor: Visitor) -> None:
    service.clock.advance(SESSION_SECONDS - 1)
    assert visitor.get("/").status_code == 200

    service.clock.advance(1)

    assert visitor.get("/").status_code == 303


def test_a_session_ends_with_its_token(service: Service) -> None:
    short = service.make_token("read", expires_in_seconds=60.0).token
    visitor = Visitor(service)
    assert "Max-Age=60" in visitor.log_in(short).headers["set-cookie"]

    service.clock.advance(61)

    assert visitor.get("/").status_code == 303


def test_every_part_of_the_cookie_is_sealed(shared: Service, reader: Visitor) -> None:
    assert reader.cookie is not None
    token_id, ends, number, seal = reader.cookie.split(".")
    other = shared.token.split("_")[1]
    later = str(int(ends) + 1)
    forged = [
        f"{other}.{ends}.{number}.{seal}",
        f"{token_id}.{later}.{number}.{seal}",
        f"{token_id}.{ends}.{'0' * len(number)}.{seal}",
        f"{token_id}.{ends}.{number[:-2]}.{seal}",
        f"{token_id}.{ends}.{number}.{'0' * len(seal)}",
        f"{token_id}.{ends}.{number}.{seal[:-1]}",
        f"{token_id}.{ends}.{number}.",
        f"{token_id}.{ends}.{number}",
        f"{token_id}.{ends}.{seal}",
        f"{token_id}.-1.{number}.{seal}",
        f"nobody.{ends}.{number}.{seal}",
        "x" * 500,
        "",
    ]
    assert reader.get("/").status_code == 200

    for value in forged:
        reader.cookie = value
        assert reader.get("/").status_code == 303, value


def test_logging_out_forgets_the_session(reader: Visitor) -> None:
    answer = reader.post("/logout")

    assert (answer.status_code, answer.headers["location"]) == (303, "/dashboard/login")
    assert re.match(rf'{COOKIE}="";', answer.headers["set-cookie"])
    assert "Max-Age=0" in answer.headers["set-cookie"]


FOREIGN: list[dict[str, str]] = [
    {},
    {"Origin": "https://evil.example"},
    {"Origin": "null"},
    {"Origin": ORIGIN, "Sec-Fetch-Site": "cross-site"},
    {"Origin": ORIGIN, "Sec-Fetch-Site": "same-site"},
    {"Sec-Fetch-Site": "none"},
]


@pytest.mark.parametrize("headers", FOREIGN)
@pytest.mark.parametrize("path", ["/login", "/logout", "/datasets/adult/verification"])
def test_a_form_of_another_site_is_refused(shared: Service, path: str, headers: dict[str, str]) -> None:
    visitor = Visitor(shared)
    visitor.log_in(shared.token)

    answer = visitor.post(path, {"token": shared.token}, headers)

    assert answer.status_code == 403
    assert "set-cookie" not in answer.headers


def test_a_form_of_the_same_origin_is_taken(shared: Service) -> None:
    sent = {"Sec-Fetch-Site": "same-origin"}

    assert Visitor(shared).post("/login", {"token": shared.token}, sent).status_code == 303


def test_a_huge_form_is_refused(shared: Service) -> None:
    assert Visitor(shared).post("/login", {"token": "x" * 10_000}).status_code == 413


@pytest.mark.parametrize("path", ["/login", "/", "/nowhere", "/static/dashboard.js", "/datasets/nowhere"])
def test_every_answer_carries_the_strict_policy(shared: Service, reader: Visitor, path: str) -> None:
    for visitor in (reader, Visitor(shared)):
        headers = visitor.get(path).headers
        assert {name: headers[name] for name in HEADERS} == HEADERS
        assert "unsafe" not in headers["content-security-policy"]


def test_a_fault_is_a_page_with_the_strict_policy_and_tells_nothing(
    shared: Service, reader: Visitor, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("the secret of the disk")

    monkeypatch.setattr(shared.app.state.services.sessions, "caller", fail)

    answer = reader.get("/")

    assert answer.status_code == 500
    assert {name: answer.headers[name] for name in HEADERS} == HEADERS
    assert "Something went wrong here" in answer.text
    assert "secret" not in answer.text
    assert [record.message for record in caplog.records if record.exc_info] == ["unexpected error"]


@pytest.mark.parametrize("sequence", ["0", "2", "1" * 16, "9" * 40])
def test_an_entry_that_cannot_be_is_not_found(service: Service, visitor: Visitor, sequence: str) -> None:
    service.open()

    assert visitor.get(f"/datasets/adult/entries/{sequence}").status_code == 404


def test_pages_are_not_stored_and_files_are_for_ever(reader: Visitor) -> None:
    page = reader.get("/login")
    assert page.headers["cache-control"] == "no-store"
    for address in re.findall(r'(?:src|href)="/dashboard(/static/[^"]+)"', page.text):
        answer = reader.get(address)
        assert answer.status_code == 200
        assert "immutable" in answer.headers["cache-control"]
    assert reader.get("/static/dashboard.css?v=old").headers["cache-control"] == "no-cache"


def test_plotly_is_the_wheels_and_travels_packed(reader: Visitor) -> None:
    packed = reader.get("/static/plotly.min.js", {"Accept-Encoding": "gzip"})
    plain = reader.get("/static/plotly.min.js", {"Accept-Encoding": "identity"})

    assert packed.headers["content-encoding"] == "gzip"
    assert "content-encoding" not in plain.headers
    assert packed.content == plain.content
    assert b"plotly.js v" in plain.content[:200]


def test_pages_name_no_other_host_and_hold_no_inline_code(service: Service, visitor: Visitor) -> None:
    service.open()
    made(service.authorize(run="r"))

    for path in ("/login", *PROTECTED):
        text = visitor.get(path).text
        assert re.findall(r'(?:src|href|action)="(?!/dashboard|#)[^"]*"', text) == []
        assert re.findall(r"<script(?![^>]* src=)|<style|\sstyle=|\son\w+=", text) == []


def await_verdict(visitor: Visitor) -> str:
    for _ in range(1200):
        chain = visitor.page("/datasets/adult")
        if "Verifying since" not in chain:
            return chain
        time.sleep(0.05)
    raise AssertionError("the verification does not end")


def test_a_verification_is_begun_on_demand_and_its_verdict_shown(service: Service, visitor: Visitor) -> None:
    service.open()
    made(service.authorize())
    assert "Not verified since" in visitor.page("/datasets/adult")

    answer = visitor.post("/datasets/adult/verification")

    assert (answer.status_code, answer.headers["location"]) == (303, "/dashboard/datasets/adult#chain")
    assert "Valid up to entry 2" in await_verdict(visitor)
    assert visitor.post("/datasets/nowhere/verification").status_code == 404


def test_a_ledger_that_was_altered_is_shown_as_not_valid(
    service: Service, visitor: Visitor, monkeypatch: pytest.MonkeyPatch
) -> None:
    service.open()
    problems = ["entry 2: its <hash> is wrong"]
    found: dict[str, Any] = {"sequence": 1, "valid": False, "problems": problems, "head": None}
    monkeypatch.setattr(service.app.state.services.reader, "verification", lambda *_: found)

    visitor.post("/datasets/adult/verification")

    assert "entry 2: its &lt;hash&gt; is wrong" in await_verdict(visitor)


def test_one_verification_runs_at_a_time(
    service: Service, visitor: Visitor, monkeypatch: pytest.MonkeyPatch
) -> None:
    service.open()
    release = threading.Event()
    found: dict[str, Any] = {"sequence": 1, "valid": True, "problems": [], "head": "00" * 32}

    def wait(_name: str, progress: Any) -> dict[str, Any]:
        progress(5_000, 9_000)
        release.wait(30)
        return found

    monkeypatch.setattr(service.app.state.services.reader, "verification", wait)
    assert visitor.post("/datasets/adult/verification").status_code == 303

    busy = visitor.post("/datasets/adult/verification")

    assert busy.status_code == 409
    assert "Another verification is running" in busy.text
    assert "5 000 of 9 000 entries" in visitor.page("/datasets/adult")
    release.set()
    assert "Valid up to entry 1" in await_verdict(visitor)


class _Failing:
    def verification(self, *_: object) -> dict[str, Any]:
        raise RuntimeError("the disk is gone")


def test_a_verification_that_fails_says_so(shared: Service) -> None:
    verifier = Verifier()

    assert verifier.start("adult", _Failing(), shared.clock)  # type: ignore[arg-type]

    verdict = _finished(verifier)
    assert not verdict.valid
    assert "could not be finished" in verdict.problems[0]
    assert verifier.start("adult", _Failing(), shared.clock)  # type: ignore[arg-type]


def _finished(verifier: Verifier) -> Verdict:
    for _ in range(6000):
        verdict = verifier.last("adult")
        if verdict is not None and not verdict.is_running:
            return verdict
        time.sleep(0.01)
    raise AssertionError("the verification does not end")
