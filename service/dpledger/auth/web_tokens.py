"""JSON Web Tokens of an issuer, verified (RFC 7519, and RFC 8725 on what goes wrong with them)."""

import json
import math
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

import jwt
from jwt.api_jws import PyJWS

from dpledger.auth.errors import Untrusted
from dpledger.auth.provider import ALGORITHMS, Provider
from dpledger.auth.tokens import WebToken

__all__ = ["ACCESS_TYPES", "IDENTITY_TYPES", "LEEWAY_SECONDS", "Verified", "verify_token"]

LEEWAY_SECONDS = 30
"""How far the clocks of issuer and service may be apart."""
ACCESS_TYPES = frozenset({"", "jwt", "at+jwt", "application/at+jwt"})
IDENTITY_TYPES = frozenset({"", "jwt"})
_SUBJECT = re.compile(r"[\x20-\x7e]{1,255}")
_MOST_AUDIENCES = 100
_SIGNATURES = PyJWS(algorithms=ALGORITHMS)


@dataclass(frozen=True)
class Verified:
    """Claims that the issuer signed, for us, and that are in force now."""

    subject: str
    ends_at_us: int
    audiences: frozenset[str]
    claims: Mapping[str, Any] = field(repr=False)


def verify_token(
    token: WebToken, provider: Provider, audience: str, now_us: int, types: Collection[str]
) -> Verified:
    """Verify signature, issuer, audience and times; raises Untrusted with what does not hold.

    The algorithm is one of ``ALGORITHMS`` and the one that the issuer's key is for: what the token says
    of itself chooses among the issuer's own keys and nothing else. Raises Unavailable where the issuer's
    keys are not known.
    """
    claims = _signed_claims(token.text, provider, types)
    audiences = _audiences(claims.get("aud"))
    subject, ends = claims.get("sub"), _instant(claims.get("exp"))
    starts = _instant(claims.get("nbf", 0))
    now = now_us / 1e6
    if claims.get("iss") != provider.issuer:
        raise Untrusted("issuer")
    if audience not in audiences:
        raise Untrusted("audience")
    if now >= ends + LEEWAY_SECONDS or now < starts - LEEWAY_SECONDS:
        raise Untrusted("times")
    if not isinstance(subject, str) or not _SUBJECT.fullmatch(subject):
        raise Untrusted("subject")
    return Verified(subject, int((ends + LEEWAY_SECONDS) * 1_000_000), audiences, claims)


def _signed_claims(text: str, provider: Provider, types: Collection[str]) -> dict[str, Any]:
    try:
        header = jwt.get_unverified_header(text)
        algorithm = _algorithm(header, types)
        key = provider.key(_key_id(header), algorithm)
        if key is None:
            raise Untrusted("key")
        payload = _SIGNATURES.decode(text, key, algorithms=[algorithm])
        claims = json.loads(payload, parse_constant=_refuse_constant)
    except (jwt.PyJWTError, ValueError, TypeError, RecursionError) as error:
        raise Untrusted(type(error).__name__) from None
    if not isinstance(claims, dict):
        raise Untrusted("claims")
    return claims


def _algorithm(header: Mapping[str, Any], types: Collection[str]) -> str:
    """The algorithm that a header names, if all that the header says is allowed and understood."""
    algorithm, kind = header.get("alg"), header.get("typ", "")
    if algorithm not in ALGORITHMS:
        raise Untrusted("algorithm")
    # Extensions that a verifier must understand (RFC 7515, 4.1.11): none is understood here.
    if {"crit", "b64", "zip"} & set(header):
        raise Untrusted("extension")
    if not isinstance(kind, str) or kind.lower() not in types:
        raise Untrusted("type")
    return str(algorithm)


def _key_id(header: Mapping[str, Any]) -> str | None:
    key_id = header.get("kid")
    if not (key_id is None or isinstance(key_id, str)):
        raise Untrusted("key")
    return key_id


def _refuse_constant(name: str) -> None:
    raise ValueError(name)


def _audiences(claim: object) -> frozenset[str]:
    listed = [claim] if isinstance(claim, str) else claim
    if not isinstance(listed, list) or len(listed) > _MOST_AUDIENCES:
        raise Untrusted("audience")
    return frozenset(each for each in listed if isinstance(each, str))


def _instant(claim: object) -> float:
    """Seconds since 1970; a truth value, a text or what is too large to be a time is none."""
    if isinstance(claim, bool) or not isinstance(claim, (int, float)):
        raise Untrusted("times")
    if not (abs(claim) < 1e11 and math.isfinite(claim)):
        raise Untrusted("times")
    return float(claim)
