"""Tokens of an issuer: the ways in which a JSON Web Token is forged, against real keys."""

import base64
import hashlib
import hmac
import json
from collections.abc import Iterator
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from dpledger.auth.errors import Unauthenticated
from dpledger.auth.provider import Provider
from dpledger.auth.tokens import MAX_WEB_TOKEN_CHARACTERS, WebToken, read_web_token
from dpledger.auth.web_tokens import ACCESS_TYPES, IDENTITY_TYPES, LEEWAY_SECONDS, verify_token
from tests.api.service import SetClock
from tests.auth.issuer import (
    AUDIENCE,
    CLIENT_ID,
    EC_KEY,
    OTHER_KEY,
    RSA_KEY,
    Issuer,
    issuing,
    published,
    signed,
)

_PADDED = (PKCS1v15(), SHA256())


def by_hand(header: dict[str, Any], payload: bytes) -> str:
    """A token that the issuer's key did sign, whatever stands in it: libraries refuse to write some."""
    signing = f"{_part(header)}.{_part(payload)}"
    return f"{signing}.{_part(RSA_KEY.sign(signing.encode(), *_PADDED))}"


@pytest.fixture(scope="module")
def issuer() -> Iterator[Issuer]:
    with issuing(SetClock()) as issuer:
        yield issuer


@pytest.fixture(scope="module")
def provider(issuer: Issuer) -> Provider:
    return Provider(issuer.url)


def passes(text: str, issuer: Issuer, provider: Provider, types: frozenset[str] = ACCESS_TYPES) -> bool:
    try:
        found = verify_token(WebToken(text), provider, AUDIENCE, issuer.clock.now_us(), types)
    except Unauthenticated:
        return False
    return found.subject == issuer.subject


def _part(content: Any) -> str:
    raw = content if isinstance(content, bytes) else json.dumps(content).encode()
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")


def with_secret(claims: dict[str, Any], secret: bytes, algorithm: str, **header: Any) -> str:
    """A token under a shared secret, made by hand: libraries refuse to take a public key for one."""
    head = {"alg": algorithm, "typ": "JWT", "kid": "rsa-1", **header}
    text = f"{_part(head)}.{_part(claims)}"
    digest = {"HS256": hashlib.sha256, "HS384": hashlib.sha384, "HS512": hashlib.sha512}[algorithm]
    return f"{text}.{_part(hmac.new(secret, text.encode(), digest).digest())}"


def test_what_the_issuer_signed_for_us_is_taken(issuer: Issuer, provider: Provider) -> None:
    claims = issuer.claims()

    assert passes(by_hand({"alg": "RS256", "kid": "rsa-1"}, json.dumps(claims).encode()), issuer, provider)
    assert passes(signed(claims), issuer, provider)
    assert passes(signed(claims, typ="at+jwt"), issuer, provider)
    assert passes(signed(claims, EC_KEY, "ES256", kid="ec-1"), issuer, provider)
    assert passes(signed(issuer.claims(aud=["other", AUDIENCE])), issuer, provider)


@pytest.mark.parametrize("name", ["none", "None", "NONE", "nOnE", ""])
def test_without_a_signature_is_refused(issuer: Issuer, provider: Provider, name: str) -> None:
    header, claims = {"alg": name, "typ": "JWT", "kid": "rsa-1"}, issuer.claims()

    assert not passes(f"{_part(header)}.{_part(claims)}.", issuer, provider)
    assert not passes(
        f"{_part(header)}.{_part(claims)}.{signed(claims).rpartition('.')[2]}", issuer, provider
    )


@pytest.mark.parametrize("algorithm", ["HS256", "HS384", "HS512"])
def test_the_public_key_is_no_shared_secret(issuer: Issuer, provider: Provider, algorithm: str) -> None:
    key = RSA_KEY.public_key()
    forms = [
        key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo),
        key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).strip(),
        key.public_bytes(Encoding.PEM, PublicFormat.PKCS1),
        key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo),
        json.dumps(published("rsa-1", RSA_KEY)).encode(),
        b"",
    ]

    for secret in forms:
        assert not passes(with_secret(issuer.claims(), secret, algorithm), issuer, provider)


@pytest.mark.parametrize("algorithm", ["RS384", "RS512", "PS256"])
def test_other_algorithms_of_the_right_key_are_refused(
    issuer: Issuer, provider: Provider, algorithm: str
) -> None:
    assert not passes(signed(issuer.claims(), RSA_KEY, algorithm), issuer, provider)


def test_keys_are_the_issuers_and_chosen_by_their_id(issuer: Issuer, provider: Provider) -> None:
    claims = issuer.claims()

    assert not passes(signed(claims, OTHER_KEY), issuer, provider)
    assert not passes(signed(claims, OTHER_KEY, kid="unknown"), issuer, provider)
    assert not passes(signed(claims, kid="unknown"), issuer, provider)
    assert not passes(signed(claims, kid="ec-1"), issuer, provider)
    assert not passes(signed(claims, EC_KEY, "ES256"), issuer, provider)
    assert not passes(signed(claims, kid=None), issuer, provider)
    assert not passes(signed(claims, OTHER_KEY, jwk=published("rsa-1", OTHER_KEY)), issuer, provider)
    assert not passes(signed(claims, OTHER_KEY, jku=f"{issuer.url}/keys"), issuer, provider)
    assert not passes(signed(claims, OTHER_KEY, x5u=f"{issuer.url}/keys"), issuer, provider)


@pytest.mark.parametrize(
    "changed",
    [
        {"iss": "https://evil.example"},
        {"iss": None},
        {"iss": [1]},
        {"aud": "another"},
        {"aud": None},
        {"aud": []},
        {"aud": {AUDIENCE: 1}},
        {"aud": [[AUDIENCE]]},
        {"aud": AUDIENCE[:-1]},
        {"aud": f"{AUDIENCE}/"},
        {"aud": ["x"] * 100 + [AUDIENCE]},
        {"exp": None},
        {"exp": "9999999999"},
        {"exp": True},
        {"exp": 1e300},
        {"exp": float("inf")},
        {"exp": float("nan")},
        {"exp": -1},
        {"nbf": "0"},
        {"nbf": float("nan")},
        {"nbf": [0]},
        {"sub": None},
        {"sub": ""},
        {"sub": 7},
        {"sub": "a\nb"},
        {"sub": "a" * 256},
    ],
)
def test_wrong_claims_are_refused(issuer: Issuer, provider: Provider, changed: dict[str, Any]) -> None:
    text = by_hand({"alg": "RS256", "kid": "rsa-1"}, json.dumps(issuer.claims(**changed)).encode())

    assert not passes(text, issuer, provider)


def test_times_are_held_within_the_leeway(issuer: Issuer, provider: Provider) -> None:
    now = issuer.clock.at_us // 1_000_000

    assert passes(signed(issuer.claims(exp=now - LEEWAY_SECONDS + 1)), issuer, provider)
    assert not passes(signed(issuer.claims(exp=now - LEEWAY_SECONDS)), issuer, provider)
    assert passes(signed(issuer.claims(nbf=now + LEEWAY_SECONDS)), issuer, provider)
    assert not passes(signed(issuer.claims(nbf=now + LEEWAY_SECONDS + 1)), issuer, provider)


@pytest.mark.parametrize("header", [{"crit": ["exp"]}, {"zip": "DEF"}, {"typ": "logout+jwt"}, {"typ": 7}])
def test_headers_that_change_the_meaning_are_refused(
    issuer: Issuer, provider: Provider, header: dict[str, Any]
) -> None:
    text = by_hand({"alg": "RS256", "kid": "rsa-1", **header}, json.dumps(issuer.claims()).encode())

    assert not passes(text, issuer, provider)


def test_an_access_token_is_no_identity(issuer: Issuer, provider: Provider) -> None:
    text = signed(issuer.claims(), typ="at+jwt")

    assert passes(text, issuer, provider)
    assert not passes(text, issuer, provider, IDENTITY_TYPES)


@pytest.mark.parametrize("part", [0, 1, 2])
def test_every_part_is_signed(issuer: Issuer, provider: Provider, part: int) -> None:
    parts = signed(issuer.claims()).split(".")
    middle = len(parts[part]) // 2
    parts[part] = (
        parts[part][:middle] + ("A" if parts[part][middle] != "A" else "B") + parts[part][middle + 1 :]
    )

    assert not passes(".".join(parts), issuer, provider)


def test_a_client_id_is_no_audience_of_bearers(issuer: Issuer, provider: Provider) -> None:
    assert not passes(signed(issuer.claims(aud=CLIENT_ID)), issuer, provider)


@pytest.mark.parametrize("payload", [b"[]", b"null", b"7", b"{", b"\xff", b'{"exp": NaN}', b"[" * 100_000])
def test_a_signed_payload_that_is_no_claims_is_refused(
    issuer: Issuer, provider: Provider, payload: bytes
) -> None:
    assert not passes(by_hand({"alg": "RS256", "kid": "rsa-1"}, payload), issuer, provider)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "eyJ",
        "eyJhbGciOiJSUzI1NiJ9.e30",
        "eyJhbGciOiJSUzI1NiJ9.e30.a.b",
        "eyJ b.c.d",
        "eyJhbGciOiJSUzI1NiJ9.e30." + "a" * MAX_WEB_TOKEN_CHARACTERS,
    ],
)
def test_what_has_not_the_shape_or_is_too_long_is_not_looked_at(text: str) -> None:
    assert read_web_token(text) is None
