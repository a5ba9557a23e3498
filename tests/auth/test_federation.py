"""What an issuer's claims grant: never more than the operator wrote down."""

import itertools
from typing import Any

import pytest

from dpledger.auth.federation import Federation, Grant, is_trusted_url, parse_grants
from dpledger.auth.scopes import Scope, covers

GRANTS = parse_grants(
    "admins=admin; ml=spend:adult,bank; trips=spend:trips; box=admin:sandbox; auditors=read"
)


def granted(*values: str, claim: str = "groups", **claims: Any) -> object:
    return Federation("https://issuer", GRANTS, claim).granted({"groups": list(values), **claims})


def test_grants_are_read_as_written() -> None:
    assert list(GRANTS) == [
        Grant("admins", Scope.ADMIN),
        Grant("ml", Scope.SPEND, frozenset({"adult", "bank"})),
        Grant("trips", Scope.SPEND, frozenset({"trips"})),
        Grant("box", Scope.ADMIN, frozenset({"sandbox"})),
        Grant("auditors", Scope.READ),
    ]
    assert parse_grants("CN=ml,OU=teams=read;") == (Grant("CN=ml,OU=teams", Scope.READ),)


@pytest.mark.parametrize(
    "text",
    [
        "",
        ";",
        "ml",
        "ml=",
        "=read",
        "ml=write",
        "ml=spend:",
        "ml=spend:Adult",
        "ml=spend:a,,b",
        "a=read;" * 201,
    ],
)
def test_what_is_no_grant_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="must"):
        parse_grants(text)


def test_a_value_grants_its_scope_on_its_datasets() -> None:
    assert granted("ml") == (covers([Scope.SPEND]), frozenset({"adult", "bank"}))
    assert granted("admins", "unknown") == (covers([Scope.ADMIN]), None)
    assert granted("ml", "trips") == (covers([Scope.SPEND]), frozenset({"adult", "bank", "trips"}))


def test_two_values_together_never_grant_what_neither_does() -> None:
    everywhere = ("adult", "bank", "trips", "sandbox", "other")
    written = {
        "admins": ("admin spend read", everywhere),
        "ml": ("spend read", ("adult", "bank")),
        "trips": ("spend read", ("trips",)),
        "box": ("admin spend read", ("sandbox",)),
        "auditors": ("read", everywhere),
    }
    for several in itertools.chain(*(itertools.combinations(written, count) for count in range(1, 6))):
        allowed = {
            (scope, name)
            for each in several
            for scope in written[each][0].split()
            for name in written[each][1]
        }

        found = Federation("https://issuer", GRANTS).granted({"groups": list(several)})

        assert found is not None
        scopes, datasets = found
        names = everywhere if datasets is None else datasets
        assert {(scope.value, name) for scope in scopes for name in names} <= allowed, several


@pytest.mark.parametrize(
    "claim", [None, "", 7, True, {"admins": 1}, [["admins"]], [7], ["Admins"], ["x"] * 1001]
)
def test_a_claim_that_names_nothing_grants_nothing(claim: object) -> None:
    assert granted(groups=claim) is None
    assert Federation("https://issuer", GRANTS).granted({}) is None


def test_a_claim_may_be_a_text_or_lie_deeper() -> None:
    nested = {"realm_access": {"roles": ["auditors"]}}

    assert granted(claim="scope", scope="openid auditors") == (covers([Scope.READ]), None)
    assert granted(claim="realm_access.roles", **nested) == (covers([Scope.READ]), None)
    assert granted(claim="https://a.example/roles", **{"https://a.example/roles": ["auditors"]}) is not None
    assert granted(claim="realm_access.roles.more", **nested) is None


def test_a_text_with_spaces_is_one_value_where_it_is_no_list_of_scopes() -> None:
    """Some issuers write a claim of one value as a text: a group called "box admins" is not "admins"."""
    assert granted(groups="box admins") is None
    assert granted(groups="admins") == (covers([Scope.ADMIN]), None)
    assert granted(claim="display_name", display_name="Eve admins") is None
    assert granted(claim="scp", scp="openid auditors") == (covers([Scope.READ]), None)
    researchers = Federation("https://issuer", parse_grants("data science=read"))
    assert researchers.granted({"groups": "data science"}) == (covers([Scope.READ]), None)


@pytest.mark.parametrize("verified", [None, False, "true", 1])
def test_an_address_that_the_issuer_did_not_verify_grants_nothing(verified: object) -> None:
    """Whoever has an account there may write any address into it."""
    known = Federation("https://issuer", parse_grants("ann@example.org=admin"), "email")
    claims = {"email": "ann@example.org", "email_verified": verified}
    assert known.granted(claims if verified is not None else {"email": "ann@example.org"}) is None
    assert known.granted({**claims, "email_verified": True}) == (covers([Scope.ADMIN]), None)


@pytest.mark.parametrize(
    ("url", "trusted"),
    [
        ("https://login.example.org/realm", True),
        ("http://127.0.0.1:9000", True),
        ("http://localhost", True),
        ("http://login.example.org", False),
        ("http://127.0.0.1.example.org", False),
        ("https://ann@login.example.org", False),
        ("https://login.example.org/#part", False),
        ("ftp://login.example.org", False),
        ("https://", False),
        ("https://[", False),
        ("https://host:99999", False),
    ],
)
def test_only_https_or_this_machine_is_asked(url: str, trusted: bool) -> None:
    assert is_trusted_url(url) is trusted
