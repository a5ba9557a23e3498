"""JSON Web Tokens of an issuer, verified (RFC 7519, and RFC 8725 on what goes wrong with them)."""

import json
import math
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

import jwt
from jwt.api_jws import PyJWS

from dpledger.auth.errors import Unauthenticated
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
    """Verify signature, issuer, audience and times; raises Unauthenticated without saying which failed.

    The algorithm is one of ``ALGORITHMS`` and the one that the issuer's key is for: what the token says
    of itself chooses among the issuer's own keys and nothing else. Raises Unavailable where the issuer's
    keys are not known.
    """
    claims = _signed_claims(token.text, provider, types)
    audiences = _audiences(claims.get("aud"))
    subject, ends = claims.get("sub"), _instant(claims.get("exp"))
    starts = _instant(claims.get("nbf", 0))
    now = now_us / 1e6
    if claims.get("iss") != provider.issuer or audience not in audiences:
        raise Unauthenticated
    if now >= ends + LEEWAY_SECONDS or now < starts - LEEWAY_SECONDS:
        raise Unauthenticated
    if not isinstance(subject, str) or not _SUBJECT.fullmatch(subject):
        raise Unauthenticated
    return Verified(subject, int((ends + LEEWAY_SECONDS) * 1_000_000), audiences, claims)


def _signed_claims(text: str, provider: Provider, types: Collection[str]) -> dict[str, Any]:
    try:
        header = jwt.get_unverified_header(text)
        algorithm, key_id, kind = header.get("alg"), header.get("kid"), header.get("typ", "")
        # Extensions that a verifier must understand (RFC 7515, 4.1.11): none is understood here.
        if algorithm not in ALGORITHMS or not isinstance(key_id, str) or {"crit", "b64", "zip"} & set(header):
            raise Unauthenticated
        if not isinstance(kind, str) or kind.lower() not in types:
            raise Unauthenticated
        key = provider.key(key_id, algorithm)
        if key is None:
            raise Unauthenticated
        payload = _SIGNATURES.decode(text, key, algorithms=[algorithm])
        claims = json.loads(payload, parse_constant=_refuse_constant)
    except (jwt.PyJWTError, ValueError, TypeError, RecursionError):
        raise Unauthenticated from None
    if not isinstance(claims, dict):
        raise Unauthenticated
    return claims


def _refuse_constant(name: str) -> None:
    raise ValueError(name)


def _audiences(claim: object) -> frozenset[str]:
    listed = [claim] if isinstance(claim, str) else claim
    if not isinstance(listed, list) or len(listed) > _MOST_AUDIENCES:
        raise Unauthenticated
    return frozenset(each for each in listed if isinstance(each, str))


def _instant(claim: object) -> float:
    """Seconds since 1970; a truth value, a text or what is too large to be a time is none."""
    if isinstance(claim, bool) or not isinstance(claim, (int, float)):
        raise Unauthenticated
    if not (abs(claim) < 1e11 and math.isfinite(claim)):
        raise Unauthenticated
    return float(claim)
