"""Forms of admins: reviewed, confirmed, done once, through the ledger's own calls."""

import html
import json
import logging
import re
from collections.abc import Callable
from typing import Any

import pytest

from dpledger.dashboard import formatting as wording
from tests.api.service import GAUSSIAN, Service, made
from tests.dashboard.forms import confirm, review, words
from tests.dashboard.visitor import Visitor, section

REASON = {"reason": "agreed in the review"}
DAY = {"window": "1", "window_unit": "days"}
FORMS: list[tuple[str, dict[str, str]]] = [
    ("/datasets/adult/budget", {"rho": "2", **REASON}),
    ("/datasets/adult/quotas", {"team": "ranking", "percent": "25", **REASON}),
    ("/datasets/adult/reservations/2/settlement", {"used": "3"}),
    ("/tokens/new", {"scope": "read"}),
]
"""Where forms are, and what each takes on a dataset of which entry 2 is a reservation of three steps."""


@pytest.fixture
def held(service: Service, visitor: Visitor) -> Visitor:
    """An admin beside a dataset with an open reservation of three steps, made by another token."""
    service.open()
    job = service.make_token("spend", team="ranking")
    made(job.reserve(3, seconds=3600.0, run="lost"))
    return visitor


def count_of(service: Service, kind: str) -> int:
    entries = service.shown("/v1/datasets/adult/entries")["items"]
    return [each["kind"] for each in entries].count(kind)


def last_entry(service: Service) -> dict[str, Any]:
    found: dict[str, Any] = service.shown("/v1/datasets/adult/entries", limit=100)["items"][-1]
    return found


# Who may.


@pytest.mark.parametrize("scope", ["read", "spend"])
@pytest.mark.parametrize(("path", "fields"), FORMS)
def test_without_scope_admin_there_is_no_form_and_nothing_is_done(
    service: Service, held: Visitor, path: str, fields: dict[str, str], scope: str
) -> None:
    other = Visitor(service)
    other.log_in(service.make_token(scope).token)
    before = service.sequence(), len(service.shown("/v1/tokens")["items"])
    own = review(held, path, fields)

    assert other.get(path).status_code == 403
    assert other.post(path, fields).status_code == 403
    assert confirm(other, own).status_code == 403
    page = other.page("/datasets/adult")
    assert "/budget" not in page
    assert "/settlement" not in page
    assert "/quotas" not in page
    assert "/dashboard/tokens" not in page
    assert (service.sequence(), len(service.shown("/v1/tokens")["items"])) == before


@pytest.mark.parametrize(("path", "fields"), FORMS)
def test_without_a_session_a_form_leads_to_the_login(
    service: Service, held: Visitor, path: str, fields: dict[str, str]
) -> None:
    del held
    answer = Visitor(service).post(path, fields)

    assert (answer.status_code, answer.headers["location"]) == (303, "/dashboard/login")


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {},
        {"Sec-Fetch-Site": "cross-site", "Origin": "http://testserver"},
        {"Sec-Fetch-Site": "same-site", "Origin": "http://testserver"},
    ],
)
@pytest.mark.parametrize(("path", "fields"), FORMS)
def test_a_form_from_another_site_is_refused(
    service: Service, held: Visitor, path: str, fields: dict[str, str], headers: dict[str, str]
) -> None:
    own, before = review(held, path, fields), service.sequence()

    for sent in (fields, own.fields):
        assert held.post(path, sent, headers).status_code == 403
    assert service.sequence() == before


def test_an_admin_of_one_dataset_reaches_neither_another_nor_tokens(service: Service, held: Visitor) -> None:
    service.open("other")
    limited = Visitor(service)
    limited.log_in(service.make_token("admin", datasets=["other"]).token)

    for path, fields in FORMS:
        assert limited.get(path).status_code == 403
        assert limited.post(path, fields).status_code == 403
    for path in ("/tokens", f"/tokens/{service.token.split('_')[1]}/revocation"):
        assert limited.get(path).status_code == 403
    assert "/dashboard/tokens" not in limited.page("/datasets/other")
    own = review(held, "/tokens/new", {"scope": "read"})
    assert confirm(limited, own).status_code == 403


# Reviewed first, then done once.


@pytest.mark.parametrize(("path", "fields"), FORMS)
def test_a_review_changes_nothing(service: Service, held: Visitor, path: str, fields: dict[str, str]) -> None:
    before = service.shown("/v1/datasets/adult"), service.shown("/v1/tokens")

    first, second = (review(held, path, fields) for _ in range(2))

    assert (service.shown("/v1/datasets/adult"), service.shown("/v1/tokens")) == before
    assert first.fields["key"] != second.fields["key"]


@pytest.mark.parametrize(("path", "fields"), FORMS[:3])
def test_a_double_click_does_it_once(
    service: Service, held: Visitor, path: str, fields: dict[str, str]
) -> None:
    found, before = review(held, path, fields), service.sequence()

    answers = [confirm(held, found) for _ in range(3)]

    assert service.sequence() == before + 1
    assert {answer.status_code for answer in answers} == {303}
    (location,) = {answer.headers["location"] for answer in answers}
    assert location == f"/dashboard/datasets/adult/entries/{before + 1}"
    assert held.get(location.removeprefix("/dashboard")).status_code == 200
    service.verified()


@pytest.mark.parametrize(
    ("path", "fields", "changed"),
    [
        ("/datasets/adult/budget", {"rho": "2", **REASON}, {"rho": "3"}),
        ("/datasets/adult/quotas", {"team": "a", "percent": "25", **REASON}, {"percent": "75"}),
    ],
)
def test_another_change_under_the_same_key_is_refused(
    service: Service, held: Visitor, path: str, fields: dict[str, str], changed: dict[str, str]
) -> None:
    found = review(held, path, fields)
    assert confirm(held, found).status_code == 303
    before = service.sequence()

    answer = confirm(held, found, **changed)

    assert answer.status_code == 422
    assert "used before with another request" in words(answer.text)
    assert service.sequence() == before


@pytest.mark.parametrize("key", ["", "short", "z" * 31 + "\n", "/" * 32, "k" * 33])
def test_a_confirmation_needs_a_key_of_a_review(service: Service, held: Visitor, key: str) -> None:
    found = review(held, "/datasets/adult/budget", {"rho": "2", **REASON})

    assert confirm(held, found, key=key).status_code == 400
    assert service.sequence() == 2


# Settlements.


def test_an_admin_settles_for_a_job_that_is_gone(service: Service, held: Visitor) -> None:
    page = held.page("/datasets/adult")
    assert 'action="/dashboard/datasets/adult/reservations/2/settlement"' in section(page, "reservations")
    form = held.page("/datasets/adult/reservations/2/settlement?used=1")
    assert 'name="used"' in form
    assert 'value="1"' in form

    fields = {"used": "1", "statement": "the job died before its second step"}
    found = review(held, "/datasets/adult/reservations/2/settlement", fields)

    assert "2 are given back" in found.text
    assert service.sequence() == 2
    assert confirm(held, found).status_code == 303
    entry = last_entry(service)
    assert (entry["kind"], entry["used"], entry["run"]) == ("settled", 1, "lost")
    assert entry["detail"] == {"statement": "the job died before its second step"}
    left = wording.left_percent(service.budget()["fraction"])
    assert f"{left}, ρ = {wording.rounded_down(service.budget()['remaining']['rho'])} left" in found.text


def test_settling_less_than_all_for_another_token_needs_a_reason(service: Service, held: Visitor) -> None:
    answer = held.post("/datasets/adult/reservations/2/settlement", {"used": "1"})

    assert answer.status_code == 422
    assert "Statement must be given" in words(answer.text)
    assert 'name="used"' in answer.text
    assert service.sequence() == 2


def test_settling_all_needs_no_reason(service: Service, held: Visitor) -> None:
    found = review(held, "/datasets/adult/reservations/2/settlement", {"used": "3"})

    assert confirm(held, found).status_code == 303
    assert "detail" not in last_entry(service)


@pytest.mark.parametrize("used", ["4", "-1", "1.5", "", "NaN", "1e0", "٣"])
def test_a_number_that_was_not_held_is_refused(service: Service, held: Visitor, used: str) -> None:
    answer = held.post("/datasets/adult/reservations/2/settlement", {"used": used, "statement": "because"})

    assert answer.status_code == 422
    assert 'role="alert"' in answer.text
    assert service.sequence() == 2


def test_a_closed_reservation_has_no_form(held: Visitor) -> None:
    path = "/datasets/adult/reservations/2/settlement"
    found = review(held, path, {"used": "3"})
    assert confirm(held, found).status_code == 303

    assert held.get(path).status_code == 409
    assert "is settled" in words(held.get(path).text)
    assert held.post(path, {"used": "3"}).status_code == 409
    assert held.get("/datasets/adult/reservations/1/settlement").status_code == 404


def test_one_that_expired_between_review_and_confirmation_stays_expired(
    service: Service, held: Visitor
) -> None:
    fields = {"used": "0", "statement": "it never began"}
    found = review(held, "/datasets/adult/reservations/2/settlement", fields)
    service.clock.advance(7200)
    held.log_in(service.token)

    assert confirm(held, found).status_code == 409
    assert last_entry(service)["kind"] == "expired"


# Budgets.


def test_a_budget_change_shows_the_guarantee_and_is_recorded(service: Service, held: Visitor) -> None:
    assert 'value="0.51"' in held.page("/datasets/adult/budget")

    found = review(held, "/datasets/adult/budget", {"rho": "2", **REASON})

    assert "The guarantee of everyone in this dataset becomes" in found.text
    assert "ρ = 2" in found.text
    assert confirm(held, found).status_code == 303
    shown = service.budget()
    assert shown["limit"]["rho"] == 2.0
    assert shown["guarantee"]["rho"] == 2.0
    assert last_entry(service)["detail"]["reason"] == REASON["reason"]
    assert wording.left_percent(shown["fraction"]) in found.text


def test_a_lowered_budget_warns_that_the_guarantee_stays(service: Service, held: Visitor) -> None:
    found = review(held, "/datasets/adult/budget", {"rho": "0.001", **REASON})

    assert "closes the dataset" in found.text
    assert "the largest that was ever in force" in found.text
    assert confirm(held, found).status_code == 303
    answer = service.budget()
    assert (answer["fraction"], answer["guarantee"]["rho"]) == (0.0, 0.51)


def test_a_ledger_that_moved_on_is_looked_at_again(service: Service, held: Visitor) -> None:
    found = review(held, "/datasets/adult/budget", {"rho": "2", **REASON})
    made(service.authorize())

    answer = confirm(held, found)

    assert answer.status_code == 412
    assert "Review the change again" in words(answer.text)
    assert count_of(service, "budget-changed") == 0
    again = review(held, "/datasets/adult/budget", {"rho": "2", **REASON})
    assert confirm(held, again).status_code == 303


@pytest.mark.parametrize(
    "fields",
    [
        {"rho": "NaN", **REASON},
        {"rho": "inf", **REASON},
        {"rho": "-1", **REASON},
        {"rho": "0", **REASON},
        {"rho": "1e400", **REASON},
        {"rho": "1e-400", **REASON},
        {"rho": "0x1", **REASON},
        {"rho": "1_0", **REASON},
        {"rho": "", **REASON},
        {"rho": "2"},
        {"rho": "2", "reason": "  \n "},
        {"rho": "2", "reason": "x" * 2001},
        {"rho": "2", "reason": "bell \x07"},
        {"rho": "2", "reason": "token dpl_abcdefgh_" + "a" * 52},
    ],
)
def test_what_is_no_limit_or_no_reason_is_refused(
    service: Service, held: Visitor, fields: dict[str, str]
) -> None:
    answer = held.post("/datasets/adult/budget", fields)

    assert answer.status_code == 422
    assert 'role="alert"' in answer.text
    assert service.sequence() == 2


ITEM = {
    "name": "sgd",
    "sample": {"scheme": "poisson", "rate": 0.01},
    "releases": [{"mechanism": "gaussian", "sensitivity": 1.0, "noise_std": 2.0}],
    "times": 40,
}
BUDGETS: list[tuple[dict[str, Any], dict[str, str], Callable[[dict[str, Any]], bool]]] = [
    (
        {"accounting": "rdp", "epsilon": 1.0, "delta": 1e-6},
        {"epsilon": "2", "delta": "1e-6"},
        lambda limit: limit["epsilon"] == 2.0,
    ),
    (
        {"accounting": "zcdp", "epsilon": 1.0, "delta": 1e-6},
        {"epsilon": "2", "delta": "1e-6"},
        lambda limit: limit["epsilon"] == 2.0,
    ),
    (
        {"accounting": "gdp", "mu": 1.0},
        {"mu": "2", "additive_delta": "1e-9"},
        lambda limit: limit["mu"] == 2.0,
    ),
    (
        {"accounting": "rdp-order", "epsilon": 1.0, "delta": 1e-6, "order": 16},
        {"epsilon": "2", "delta": "1e-6"},
        lambda limit: limit["epsilon"] == 2.0,
    ),
    (
        {"accounting": "rdp-curve", "orders": [2.0, 8.0], "epsilons": [0.5, 1.0]},
        {"document": '{"orders": [2.0, 8.0], "epsilons": [0.75, 1.5]}'},
        lambda limit: limit["epsilons"] == [0.75, 1.5],
    ),
    (
        {"accounting": "plan", "epsilon": 1.0, "delta": 1e-6, "items": [ITEM]},
        {"document": '{"items": [{"name": "sgd", "times": 30}]}'},
        lambda limit: limit["items"][0]["times"] == 30 if "items" in limit else True,
    ),
    (
        {"accounting": "shared", "epsilon": 1.0, "delta": 1e-6},
        {"epsilon": "2", "delta": "1e-6"},
        lambda limit: limit["epsilon"] == 2.0,
    ),
]


@pytest.mark.parametrize(("budget", "fields", "changed"), BUDGETS)
def test_every_kind_of_budget_can_be_changed(
    service: Service,
    visitor: Visitor,
    budget: dict[str, Any],
    fields: dict[str, str],
    changed: Callable[[dict[str, Any]], bool],
) -> None:
    service.open(budget=budget)
    form = visitor.page("/datasets/adult/budget")
    assert all(f'name="{name}"' in form for name in fields)

    found = review(visitor, "/datasets/adult/budget", {**fields, **REASON})

    assert confirm(visitor, found).status_code == 303
    assert changed(service.shown("/v1/datasets/adult/budget")["limit"])
    assert count_of(service, "budget-changed") == 1
    service.verified()


CURVE = {"accounting": "rdp-curve", "orders": [2.0, 8.0], "epsilons": [0.1, 1.0]}


def test_the_form_as_it_is_shown_changes_nothing_of_the_limit(service: Service, visitor: Visitor) -> None:
    service.open(budget=CURVE)
    form = visitor.get("/datasets/adult/budget").text
    found = re.search(r"<textarea id=\"document\"[^>]*>(.*?)</textarea>", form, re.DOTALL)
    assert found is not None

    document = html.unescape(found[1])
    shown = review(visitor, "/datasets/adult/budget", {"document": document, **REASON})

    assert json.loads(document) == {"orders": [2.0, 8.0], "epsilons": [0.1, 1.0]}
    assert "The guarantee of everyone" not in shown.text


@pytest.mark.parametrize(
    "document", ["", "[]", "{", "NaN", '{"orders": NaN}', "[" * 9000, '{"orders": 1e400}']
)
def test_a_document_that_is_no_limit_is_refused(service: Service, visitor: Visitor, document: str) -> None:
    service.open(budget=CURVE)

    answer = visitor.post("/datasets/adult/budget", {"document": document, **REASON})

    assert answer.status_code == 422
    assert service.sequence() == 1


# Quotas.


def test_a_quota_is_set_changed_and_removed(service: Service, visitor: Visitor) -> None:
    service.open()
    asked = {"team": "ranking", "percent": "12.5", **DAY, **REASON}
    found = review(visitor, "/datasets/adult/quotas", asked)
    assert "at most 12.5 % of the budget within 1 day" in found.text
    assert confirm(visitor, found).status_code == 303
    (quota,) = service.shown("/v1/datasets/adult/quotas")["items"]
    assert (quota["team"], quota["fraction"], quota["window_seconds"]) == ("ranking", 0.125, 86_400)

    found = review(visitor, "/datasets/adult/quotas", {**asked, "percent": "50"})
    assert "becomes 50 % of the budget" in found.text
    assert confirm(visitor, found).status_code == 303
    (changed,) = service.shown("/v1/datasets/adult/quotas")["items"]
    assert (changed["fraction"], changed["sequence"]) == (0.5, quota["sequence"])

    found = review(visitor, "/datasets/adult/quotas", {**asked, "change": "remove"})
    assert "no longer limited" in found.text
    assert confirm(visitor, found).status_code == 303
    assert service.shown("/v1/datasets/adult/quotas")["items"] == []
    service.verified()


def test_removing_a_quota_that_there_is_not_is_reported(service: Service, visitor: Visitor) -> None:
    service.open()

    answer = visitor.post("/datasets/adult/quotas", {"team": "a", "change": "remove", **REASON})

    assert answer.status_code == 404
    assert service.sequence() == 1


# Tokens.


def secret_in(text: str) -> str | None:
    found = re.search(r'<pre class="secret"[^>]*><code>(dpl_[^<]+)</code>', text)
    return None if found is None else found[1]


def test_a_secret_is_shown_once_and_stands_nowhere_else(
    service: Service, visitor: Visitor, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    fields = {
        "scope": "spend",
        "datasets": "adult, census",
        "team": "ranking",
        "expires": "30",
        "expires_unit": "days",
        "description": "for the nightly job",
    }
    found = review(visitor, "/tokens/new", fields)
    assert secret_in(found.text) is None

    answer = confirm(visitor, found)

    assert answer.status_code == 200
    assert answer.headers["cache-control"] == "no-store"
    assert "location" not in answer.headers
    secret = secret_in(answer.text)
    assert secret is not None
    listed = service.shown("/v1/tokens")["items"]
    made_token = next(each for each in listed if each["description"] == "for the nightly job")
    assert made_token["scopes"] == ["spend"]
    assert made_token["datasets"] == ["adult", "census"]
    assert made_token["team"] == "ranking"
    assert made_token["expires_at"] is not None
    assert service.as_bearer(secret).get("/v1/datasets").status_code == 200
    hidden_part = secret.rpartition("_")[2]
    assert hidden_part not in caplog.text
    assert hidden_part not in visitor.get("/tokens").text


def test_a_double_click_makes_one_token_and_later_its_secret_is_gone(
    service: Service, visitor: Visitor
) -> None:
    found = review(visitor, "/tokens/new", {"scope": "read"})
    before = len(service.shown("/v1/tokens")["items"])

    first, second = (secret_in(confirm(visitor, found).text) for _ in range(2))
    service.clock.advance(121)
    later = confirm(visitor, found)

    assert first is not None
    assert first == second
    assert secret_in(later.text) is None
    assert "its secret was shown then" in words(later.text)
    assert len(service.shown("/v1/tokens")["items"]) == before + 1


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"scope": "root"},
        {"scope": "read", "datasets": "UPPER"},
        {"scope": "read", "team": "-x"},
        {"scope": "read", "expires": "0"},
        {"scope": "read", "expires": "4000", "expires_unit": "days"},
        {"scope": "read", "expires": "1", "expires_unit": "years"},
        {"scope": "read", "description": "dpl_abcdefgh_" + "a" * 52},
    ],
)
def test_a_token_outside_its_ranges_is_refused(
    service: Service, visitor: Visitor, fields: dict[str, str]
) -> None:
    before = service.shown("/v1/tokens")

    assert visitor.post("/tokens/new", fields).status_code == 422
    assert service.shown("/v1/tokens") == before


def test_a_token_is_revoked_after_a_review(service: Service, visitor: Visitor) -> None:
    other = service.make_token("read")
    token = other.token.split("_")[1]
    assert f'href="/dashboard/tokens/{token}/revocation"' in visitor.page("/tokens")
    found = review(visitor, f"/tokens/{token}/revocation", {})
    assert Visitor(service).log_in(other.token).status_code == 303

    assert confirm(visitor, found).headers["location"] == "/dashboard/tokens"
    assert confirm(visitor, found).status_code == 303

    assert Visitor(service).log_in(other.token).status_code == 401
    listed = visitor.page("/tokens")
    assert f"/tokens/{token}/revocation" not in listed
    assert "revoked" in listed


def test_revoking_the_token_of_the_session_says_so_and_ends_it(service: Service, visitor: Visitor) -> None:
    own = service.make_token("admin")
    visitor.log_in(own.token)
    path = f"/tokens/{own.token.split('_')[1]}/revocation"
    found = review(visitor, path, {})
    assert "you will be logged out" in found.text

    assert confirm(visitor, found).status_code == 303

    assert visitor.get("/tokens").status_code == 303
    assert confirm(visitor, found).headers["location"] == "/dashboard/login"


def test_tokens_are_paged(service: Service, visitor: Visitor) -> None:
    for _ in range(55):
        service.make_token("read")

    first = visitor.page("/tokens")
    following = re.search(r'rel="next" href="/dashboard(/tokens\?after=[^"]+)"', first)

    assert following is not None
    listed = [
        re.findall(r"<code>([a-z2-7]{16})</code>", page) for page in (first, visitor.page(following[1]))
    ]
    assert [len(each) for each in listed] == [50, 6]
    assert len({*listed[0], *listed[1]}) == 56


@pytest.mark.parametrize(
    "path", ["/tokens/nobody/revocation", "/datasets/none/budget", "/datasets/none/quotas"]
)
def test_what_is_not_there_has_no_form(service: Service, visitor: Visitor, path: str) -> None:
    del service
    assert visitor.get(path).status_code == 404


def test_a_form_that_is_too_long_is_refused(service: Service, held: Visitor) -> None:
    assert held.post("/datasets/adult/budget", {"rho": "2", "reason": "x" * 70_000}).status_code == 413
    many = {f"field-{number}": "x" for number in range(100)}
    assert held.post("/datasets/adult/budget", many).status_code == 400
    assert service.sequence() == 2


def test_what_people_wrote_is_escaped(held: Visitor) -> None:
    evil = '"><script>alert(1)</script>'
    for path, fields in (
        ("/datasets/adult/budget", {"rho": "2", "reason": evil}),
        ("/datasets/adult/reservations/2/settlement", {"used": evil, "statement": evil}),
        ("/tokens/new", {"scope": "read", "description": evil}),
        ("/tokens/new", {"scope": evil, "team": evil}),
    ):
        assert "<script>alert" not in held.post(path, fields).text


def test_forms_are_counted_as_decisions(service: Service, held: Visitor) -> None:
    found = review(held, "/datasets/adult/budget", {"rho": "2", **REASON})
    for _ in range(2):
        confirm(held, found)

    text = service.client.get("/metrics", headers=service.headers()).text

    for outcome in ("granted", "replayed"):
        assert re.search(rf"dpledger_decisions_total{{[^}}]*change_budget[^}}]*{outcome}[^}}]*}} 1", text), (
            text
        )


def test_a_step_of_one_token_is_not_in_the_way_of_another_form(service: Service, held: Visitor) -> None:
    """A preview looks at a snapshot: it neither waits nor keeps anybody waiting."""
    found = review(held, "/datasets/adult/quotas", {"team": "a", "percent": "10", **REASON})
    made(service.authorize(GAUSSIAN))

    assert confirm(held, found).status_code == 303
