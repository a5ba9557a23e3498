"""Logging in through an issuer, and the ways in which somebody else would log in with it."""

import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import parse_qs, parse_qsl, urlencode, urlsplit

import httpx2
import pytest

from dpledger.auth import sign_on
from dpledger.auth.federation import LOGIN_SECONDS
from dpledger.auth.sessions import SESSION_SECONDS
from dpledger.dashboard.security import COOKIE, HEADERS, LOGIN_COOKIE
from tests.api.service import Service, SetClock
from tests.auth.issuer import (
    AUDIENCE,
    CLIENT_ID,
    CLIENT_SECRET,
    OTHER_KEY,
    PUBLIC_URL,
    REDIRECT_URL,
    RSA_KEY,
    Issuer,
    issuing,
    published,
    signed,
)
from tests.dashboard.visitor import ROOT, Visitor, serving

REDIRECT_PATH = urlsplit(REDIRECT_URL).path
GRANTS = "auditors=read; admins=admin; ml=spend:adult"


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Service, Issuer]]:
    folder = tmp_path_factory.mktemp("sign-on")
    (folder / "secret").write_text(f"{CLIENT_SECRET}\n")
    with issuing(SetClock()) as issuer:
        chosen: dict[str, Any] = {
            "oidc_issuer": issuer.url,
            "oidc_client_id": CLIENT_ID,
            "oidc_client_secret_file": folder / "secret",
            "oidc_grants": GRANTS,
            "public_url": PUBLIC_URL,
        }
        with serving(f"sqlite:///{folder / 'l.db'}", folder / "keys.json", **chosen) as service:
            issuer.clock = service.clock
            service.open("adult")
            service.open("bank")
            yield service, issuer


@pytest.fixture
def service(running: tuple[Service, Issuer]) -> Service:
    return running[0]


@pytest.fixture
def issuer(running: tuple[Service, Issuer]) -> Issuer:
    """The issuer as it is when nothing is wrong with it."""
    _, issuer = running
    usual = Issuer(issuer.clock)
    for name in ("keys", "subject", "groups", "discovery", "change", "sign", "failing"):
        setattr(issuer, name, getattr(usual, name))
    return issuer


class Browser:
    """Somebody with a browser, who logs in through the issuer."""

    def __init__(self, service: Service, issuer: Issuer) -> None:
        self.visitor = Visitor(service)
        self._client = service.client
        self._issuer = issuer
        self.login_cookie = ""

    def begin(self, **query: str) -> str:
        """Begin a login; where the browser is sent back to by the issuer."""
        return self._issuer.authorize(urlsplit(self.sent_out(**query)).query)

    def sent_out(self, **query: str) -> str:
        answer = self._client.get(f"{ROOT}/login/sso", params=query)
        assert answer.status_code == 303, answer.text
        self.login_cookie = _cookie(answer, LOGIN_COOKIE)
        self._client.cookies.clear()
        return answer.headers["location"]

    def end(self, address: str) -> httpx2.Response:
        """Come back from the issuer, and keep the session if there is one."""
        headers = {"Cookie": f"{LOGIN_COOKIE}={self.login_cookie}"} if self.login_cookie else {}
        parts = urlsplit(address)
        answer = self._client.get(f"{parts.path}?{parts.query}", headers=headers)
        self._client.cookies.clear()
        self.visitor.cookie = _cookie(answer, COOKIE) or None
        return answer

    def log_in(self, **query: str) -> httpx2.Response:
        return self.end(self.begin(**query))


def _cookie(answer: httpx2.Response, name: str) -> str:
    found = [re.match(rf'{name}="?([^;"]*)', each) for each in answer.headers.get_list("set-cookie")]
    return next((each[1] for each in found if each is not None), "")


@pytest.fixture
def browser(service: Service, issuer: Issuer) -> Browser:
    return Browser(service, issuer)


def refused(browser: Browser, answer: httpx2.Response, status: int = 401) -> bool:
    """Whether no session came of it, and the page says what to do."""
    assert answer.status_code == status, answer.text
    assert 'role="alert"' in answer.text
    return browser.visitor.cookie is None


def test_a_login_leads_through_the_issuer_to_the_page_that_was_wanted(browser: Browser) -> None:
    wanted = "/dashboard/datasets/adult?kind=settled"
    turned_away = browser.visitor.get("/datasets/adult?kind=settled").headers["location"]
    form = browser.visitor.page(turned_away.removeprefix(ROOT))
    link = re.search(r'href="/dashboard/login/sso\?([^"]+)"', form)
    assert link is not None

    answer = browser.log_in(**dict(parse_qsl(link[1])))

    assert answer.status_code == 200
    assert f'content="0; url={wanted}"' in answer.text
    assert browser.visitor.get("/datasets/adult?kind=settled").status_code == 200
    assert {name: answer.headers[name] for name in HEADERS} == HEADERS


def test_what_goes_out_is_bound_to_this_login(browser: Browser) -> None:
    first, second = (parse_qs(urlsplit(browser.sent_out()).query) for _ in range(2))

    assert first["response_type"] == ["code"]
    assert first["code_challenge_method"] == ["S256"]
    for name in ("state", "nonce", "code_challenge"):
        assert first[name] != second[name]
        assert len(first[name][0]) == 43
    assert len({first[name][0] for name in ("state", "nonce", "code_challenge")}) == 3


def test_the_cookies_are_as_strict_as_they_can_be(browser: Browser, service: Service) -> None:
    begun = service.client.get(f"{ROOT}/login/sso", headers={"X-Forwarded-Proto": "https"})
    service.client.cookies.clear()
    (cookie,) = begun.headers.get_list("set-cookie")
    assert {each.strip().lower() for each in cookie.split(";")[1:]} == {
        "httponly",
        "secure",
        "samesite=lax",
        "path=/dashboard/login/sso",
        f"max-age={LOGIN_SECONDS}",
    }

    session, login = sorted(
        browser.log_in().headers.get_list("set-cookie"), key=lambda each: LOGIN_COOKIE in each
    )
    assert {each.strip().lower() for each in session.split(";")[1:]} == {
        "httponly",
        "samesite=strict",
        "path=/dashboard",
        f"max-age={SESSION_SECONDS}",
    }
    assert "Max-Age=0" in login


def test_a_state_is_good_once(browser: Browser, issuer: Issuer) -> None:
    """Even where the issuer gives another good code for it."""
    asked = urlsplit(browser.sent_out()).query
    first, second = issuer.authorize(asked), issuer.authorize(asked)
    assert browser.end(first).status_code == 200

    assert refused(browser, browser.end(first))
    assert refused(browser, browser.end(second))


def test_a_failed_login_uses_its_state_up(browser: Browser, issuer: Issuer) -> None:
    back = browser.begin()
    issuer.change = lambda claims: claims | {"nonce": "another"}
    assert refused(browser, browser.end(back))
    issuer.change = lambda claims: claims

    assert refused(browser, browser.end(back))


def test_a_login_that_another_browser_began_is_not_ended(
    browser: Browser, service: Service, issuer: Issuer
) -> None:
    other = Browser(service, issuer)
    theirs = other.begin()
    browser.begin()

    assert refused(browser, browser.end(theirs))
    browser.login_cookie = ""
    assert refused(browser, browser.end(theirs))


@pytest.mark.parametrize("part", [0, 1, 2, 3])
def test_every_part_of_the_login_cookie_is_sealed(browser: Browser, part: int) -> None:
    back = browser.begin(next="/dashboard/datasets/adult")
    parts = browser.login_cookie.split(".")
    last = parts[part][-2]
    parts[part] = parts[part][:-2] + ("1" if last != "1" else "2") + parts[part][-1]
    browser.login_cookie = ".".join(parts)

    assert refused(browser, browser.end(back))


@pytest.mark.parametrize("query", ["", "state=", "code=a", "error=access_denied", "state=ü&code=a"])
def test_coming_back_without_state_or_code_is_refused(browser: Browser, query: str) -> None:
    browser.begin()

    assert refused(browser, browser.end(f"{REDIRECT_PATH}?{query}"))


def test_an_issuers_refusal_is_reported(browser: Browser) -> None:
    state = parse_qs(urlsplit(browser.begin()).query)["state"][0]

    answer = browser.end(f"{REDIRECT_PATH}?{urlencode({'error': 'access_denied', 'state': state})}")

    assert refused(browser, answer)
    assert "was not completed" in answer.text


def test_an_answer_in_another_issuers_name_is_refused(browser: Browser) -> None:
    back = browser.begin()

    assert refused(browser, browser.end(re.sub(r"iss=[^&]*", "iss=https%3A%2F%2Fevil.example", back)))


def test_a_login_ends_by_itself(browser: Browser, service: Service) -> None:
    back = browser.begin()
    service.clock.advance(LOGIN_SECONDS)

    assert refused(browser, browser.end(back))


WRONG: list[dict[str, Any]] = [
    {"nonce": "another"},
    {"nonce": None},
    {"nonce": 7},
    {"nonce": "ü"},
    {"iss": "https://evil.example"},
    {"aud": "another"},
    {"aud": AUDIENCE},
    {"aud": [CLIENT_ID, "another"]},
    {"aud": [CLIENT_ID, "another"], "azp": "another"},
    {"azp": "another"},
    {"exp": 1},
    {"sub": None},
]


@pytest.mark.parametrize("changed", WRONG)
def test_an_identity_that_is_not_of_this_login_is_refused(
    browser: Browser, issuer: Issuer, changed: dict[str, Any]
) -> None:
    issuer.change = lambda claims: {
        name: value for name, value in (claims | changed).items() if value is not None
    }

    assert refused(browser, browser.log_in())


def test_several_audiences_with_us_as_the_party_are_taken(browser: Browser, issuer: Issuer) -> None:
    issuer.change = lambda claims: claims | {"aud": [CLIENT_ID, "another"], "azp": CLIENT_ID}

    assert browser.log_in().status_code == 200


@pytest.mark.parametrize(
    "sign",
    [
        lambda claims: signed(claims, OTHER_KEY),
        lambda claims: signed(claims, "", "none"),
        lambda claims: signed(claims, "k" * 64, "HS256"),
        lambda claims: signed(claims, RSA_KEY, kid="unknown"),
        lambda claims: signed(claims, RSA_KEY, typ="at+jwt"),
        lambda claims: signed(claims) + "a" * 20_000,
        lambda claims: signed(claims | {"groups": ["auditors"] * 3_000}),
        lambda claims: "nonsense",
        lambda claims: None,
        lambda claims: {"token": signed(claims)},
    ],
)
def test_an_identity_that_is_forged_or_oversize_is_refused(
    browser: Browser, issuer: Issuer, sign: Any
) -> None:
    issuer.sign = sign

    assert refused(browser, browser.log_in())


def test_a_stolen_code_is_worth_nothing_in_another_login(
    browser: Browser, service: Service, issuer: Issuer
) -> None:
    """The code of another's login, brought back with one's own state: the verifier is another."""
    stolen = parse_qs(urlsplit(Browser(service, issuer).begin()).query)["code"][0]
    own = parse_qs(urlsplit(browser.begin()).query)["state"][0]

    assert refused(browser, browser.end(f"{REDIRECT_PATH}?{urlencode({'code': stolen, 'state': own})}"))


@pytest.mark.parametrize(
    "elsewhere",
    [
        "https://evil.example/",
        "//evil.example/",
        "/v1/datasets",
        "/dashboard",
        "/dashboard/\\evil",
        "/dashboard/\n",
        "/dashboard/" + "a" * 3000,
    ],
)
def test_a_login_never_leads_elsewhere(browser: Browser, elsewhere: str) -> None:
    assert 'content="0; url=/dashboard/"' in browser.log_in(next=elsewhere).text


def test_what_a_claim_grants_is_what_the_session_reaches(browser: Browser, issuer: Issuer) -> None:
    issuer.groups = ["ml"]
    assert browser.log_in().status_code == 200

    assert browser.visitor.get("/datasets/adult").status_code == 200
    assert browser.visitor.get("/datasets/bank").status_code == 403

    issuer.groups = ["auditors"]
    browser.log_in()
    assert browser.visitor.get("/datasets/bank").status_code == 200


def test_somebody_without_a_grant_is_told_so(browser: Browser, issuer: Issuer) -> None:
    issuer.groups = ["guests"]

    answer = browser.log_in()

    assert refused(browser, answer, 403)
    assert "nothing here is granted to you" in answer.text


def test_one_who_was_shut_out_stays_out(browser: Browser, service: Service, issuer: Issuer) -> None:
    issuer.subject = "mallory"
    browser.log_in()
    (row,) = [each for each in service.shown("/v1/tokens")["items"] if "mallory" in each["description"]]
    assert browser.visitor.get("/").status_code == 200

    service.delete(f"/v1/tokens/{row['id']}")

    assert browser.visitor.get("/").status_code == 303
    assert refused(browser, browser.log_in(), 403)


def test_a_person_has_one_row_and_no_secret(browser: Browser, service: Service, issuer: Issuer) -> None:
    issuer.subject = "berta"
    for groups in (["auditors"], ["ml"]):
        issuer.groups = groups
        browser.log_in()

    (row,) = [each for each in service.shown("/v1/tokens")["items"] if "berta" in each["description"]]

    assert (row["scopes"], row["datasets"], row["expires_at"]) == (["read", "spend"], ["adult"], None)
    for secret in ("a" * 52, row["id"]):
        assert service.as_bearer(f"dpl_{row['id']}_{secret}").get("/v1/datasets").status_code == 401


def test_logging_out_ends_the_session(browser: Browser) -> None:
    browser.log_in()

    browser.visitor.post("/logout")

    assert browser.visitor.get("/").status_code == 303


def test_an_issuer_that_fails_opens_no_door(
    browser: Browser, issuer: Issuer, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    back = browser.begin()
    issuer.failing = True
    assert refused(browser, browser.end(back))

    provider = service.app.state.services.sign_on._provider
    monkeypatch.setattr(provider, "_published", None)
    monkeypatch.setattr(provider, "_tried_at", -float("inf"))
    answer = service.client.get(f"{ROOT}/login/sso")
    assert answer.status_code == 503
    assert "set-cookie" not in answer.headers
    # Tokens of the ledger's own are good all the same.
    assert browser.visitor.log_in(service.token).status_code == 303


def test_an_issuer_that_is_gone_or_busy_is_reported(
    browser: Browser, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone(*_: object, **__: object) -> None:
        raise httpx2.ConnectError("refused")

    back = browser.begin()
    with monkeypatch.context() as patched:
        patched.setattr(service.app.state.services.sign_on, "_fetch", gone)
        assert refused(browser, browser.end(back), 503)
    places = service.app.state.services.sign_on._places
    taken = [places.acquire(blocking=False) for _ in range(sign_on._AT_ONCE)]
    assert all(taken)
    assert refused(browser, browser.log_in(), 503)
    for _ in taken:
        places.release()
    assert browser.log_in().status_code == 200


def test_a_new_key_of_the_issuer_is_learned(
    browser: Browser, issuer: Issuer, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    issuer.keys = [published("rsa-2", OTHER_KEY)]
    issuer.sign = lambda claims: signed(claims, OTHER_KEY, kid="rsa-2")
    provider = service.app.state.services.sign_on._provider
    monkeypatch.setattr(provider, "_published", None)
    monkeypatch.setattr(provider, "_tried_at", -float("inf"))

    assert browser.log_in().status_code == 200
    monkeypatch.setattr(provider, "_published", None)


def test_nothing_secret_is_in_the_log(browser: Browser, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("DEBUG", logger="dpledger"):
        answer = browser.log_in()

    said = " ".join(f"{record.getMessage()} {record.__dict__.get('fields')}" for record in caplog.records)
    assert "login by single sign-on" in said
    assert "ann" not in said
    assert answer.status_code == 200


def test_without_an_issuer_there_is_no_single_sign_on(shared: Service) -> None:
    for path in ("/login/sso", "/login/sso/callback?code=a&state=b"):
        assert Visitor(shared).get(path).status_code == 404
    assert "single sign-on" not in Visitor(shared).page("/login")
