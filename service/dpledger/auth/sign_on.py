"""Logs people in through an issuer: OpenID Connect's authorization code flow, with PKCE (RFC 7636).

A login that was begun is a cookie with a number, sealed under the server's key. State, nonce and the
verifier of the code are made of that number: the browser that began a login is the only one that can end
it, and it holds nothing with which a code could be redeemed elsewhere. A number is good once, at any
replica.
"""

import base64
import hashlib
import hmac
import re
import secrets
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlencode

import httpx2

from dpledger.auth.errors import Forbidden, Untrusted
from dpledger.auth.federation import LOGIN_SECONDS, Federation, LoginClient
from dpledger.auth.identities import Identities, Identity
from dpledger.auth.provider import Endpoints, Fetch, Provider, fetch_json
from dpledger.auth.tokens import read_web_token
from dpledger.auth.web_tokens import IDENTITY_TYPES, Verified, verify_token
from dpledger.ledger.clock import Clock
from dpledger.ledger.errors import Unavailable
from dpledger.logs import log_event
from dpledger.storage.sessions import SessionStore

__all__ = ["Begun", "Ended", "SignOn"]

_NUMBER_BYTES = 16
_LONGEST_COOKIE = 2000
_LONGEST_CODE = 2048
_LONGEST_WANTED_BYTES = 1000
_AT_ONCE = 4
"""How many codes are redeemed at a time: an issuer that hangs takes no more threads than these."""
_COOKIE = re.compile(r"([0-9a-f]{32})\.([0-9]{1,18})\.([A-Za-z0-9_-]*)\.([0-9a-f]{64})")


@dataclass(frozen=True)
class Begun:
    """Where the browser goes, and the cookie that it brings back."""

    url: str
    cookie: str


@dataclass(frozen=True)
class Ended:
    """Whose login it was, and the page that was wanted."""

    token_id: str
    wanted: str


class SignOn:
    """Begins logins at the issuer and ends them here."""

    def __init__(
        self,
        federation: Federation,
        client: LoginClient,
        provider: Provider,
        identities: Identities,
        ended: SessionStore,
        key: bytes,
        clock: Clock,
        fetch: Fetch = fetch_json,
    ) -> None:
        self._federation = federation
        self._client = client
        self._provider = provider
        self._identities = identities
        self._ended = ended
        self._key = key
        self._clock = clock
        self._fetch = fetch
        self._places = threading.BoundedSemaphore(_AT_ONCE)

    def begin(self, wanted: str) -> Begun:
        """Begin a login that is to lead to a page, if its address is short; raises Unavailable."""
        endpoints = self._provider.endpoints()
        number = secrets.token_bytes(_NUMBER_BYTES)
        ends_us = self._clock.now_us() + LOGIN_SECONDS * 1_000_000
        verifier = self._derive(b"verifier", number)
        query = {
            "response_type": "code",
            "client_id": self._client.client_id,
            "redirect_uri": self._client.redirect_url,
            "scope": self._client.scopes,
            "state": self._derive(b"state", number),
            "nonce": self._derive(b"nonce", number),
            "code_challenge": _base64(hashlib.sha256(verifier.encode()).digest()),
            "code_challenge_method": "S256",
        }
        joint = "&" if "?" in endpoints.authorization else "?"
        path = wanted.encode()
        wanted_text = _base64(path) if len(path) <= _LONGEST_WANTED_BYTES else ""
        seal = self._seal(number, ends_us, wanted_text)
        cookie = f"{number.hex()}.{ends_us}.{wanted_text}.{seal}"
        return Begun(f"{endpoints.authorization}{joint}{urlencode(query)}", cookie)

    def end(self, cookie: str | None, query: Mapping[str, str]) -> Ended:
        """End the login that a cookie stands for, with what the issuer sent the browser back with.

        Raises Untrusted where anything is not as it was begun or was used before, Forbidden where the
        issuer says who it is and no grant is theirs, Unavailable where the issuer does not answer.
        """
        try:
            return self._end(cookie, query)
        except Untrusted as error:
            log_event("single sign-on: no login", reason=error.reason)
            raise

    def _end(self, cookie: str | None, query: Mapping[str, str]) -> Ended:
        number, ends_us, wanted = self._begun(cookie)
        if not hmac.compare_digest(query.get("state", "").encode(), self._derive(b"state", number).encode()):
            raise Untrusted("state")
        if not self._ended.end(number, ends_us, self._clock.now_us()):
            raise Untrusted("state used before")
        # Where the issuer names itself (RFC 9207), it is the one that was asked.
        if query.get("iss", self._federation.issuer) != self._federation.issuer:
            raise Untrusted("issuer")
        code = query.get("code", "")
        if not 0 < len(code) <= _LONGEST_CODE:
            raise Untrusted("no code")
        person = self._verified(self._redeemed(code, number), number)
        granted = self._federation.granted(person.claims)
        if granted is None:
            raise Forbidden("nothing here is granted to you; the operator lists who may do what")
        row = self._identities.update(Identity(self._federation.issuer, person.subject, *granted))
        if row.revoked_at_us is not None:
            raise Forbidden("an administrator has shut you out")
        log_event("login by single sign-on", token=row.id)
        return Ended(row.id, wanted)

    def _verified(self, text: str, number: bytes) -> Verified:
        """The person that an ID token is about (OpenID Connect Core 1.0, 3.1.3.7)."""
        client_id = self._client.client_id
        token = read_web_token(text)
        if token is None:
            raise Untrusted("shape")
        found = verify_token(token, self._provider, client_id, self._clock.now_us(), IDENTITY_TYPES)
        nonce, party = found.claims.get("nonce"), found.claims.get("azp", client_id)
        expected = self._derive(b"nonce", number)
        if not isinstance(nonce, str) or not hmac.compare_digest(nonce.encode(), expected.encode()):
            raise Untrusted("nonce")
        # Several audiences name the party that the token was made for; where one is named, it is us.
        if party != client_id or (len(found.audiences) > 1 and "azp" not in found.claims):
            raise Untrusted("party")
        return found

    def _redeemed(self, code: str, number: bytes) -> str:
        """The ID token that the issuer gives for a code."""
        endpoints = self._provider.endpoints()
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": self._client.redirect_url,
            "code_verifier": self._derive(b"verifier", number),
        }
        if not self._places.acquire(blocking=False):
            raise Unavailable("many logins are being checked; try again")
        try:
            answer = self._fetch(endpoints.token, form | self._named(endpoints), **self._shown(endpoints))
            token = answer["id_token"]
        except httpx2.HTTPError as error:
            log_event("single sign-on: a code was not redeemed", reason=type(error).__name__)
            raise Unavailable("the issuer of single sign-on does not answer") from None
        except (ValueError, KeyError, TypeError) as error:
            raise Untrusted(f"code not redeemed: {type(error).__name__}") from None
        finally:
            self._places.release()
        if not isinstance(token, str):
            raise Untrusted("no ID token")
        return token

    def _named(self, endpoints: Endpoints) -> dict[str, str]:
        """Who asks, as far as it stands in the body."""
        if self._client.secret is None:
            return {"client_id": self._client.client_id}
        if endpoints.secret_in_body:
            return {"client_id": self._client.client_id, "client_secret": self._client.secret}
        return {}

    def _shown(self, endpoints: Endpoints) -> dict[str, Any]:
        """Who asks, as far as it stands in a header (RFC 6749, 2.3.1: both parts encoded)."""
        if self._client.secret is None or endpoints.secret_in_body:
            return {}
        return {"auth": (quote(self._client.client_id, safe=""), quote(self._client.secret, safe=""))}

    def _begun(self, cookie: str | None) -> tuple[bytes, int, str]:
        """The number, the end and the wanted page of a login that was begun here and is not over."""
        found = None if cookie is None or len(cookie) > _LONGEST_COOKIE else _COOKIE.fullmatch(cookie)
        if found is None:
            raise Untrusted("no login begun")
        number, ends_us, wanted = bytes.fromhex(found[1]), int(found[2]), found[3]
        if not hmac.compare_digest(found[4], self._seal(number, ends_us, wanted)):
            raise Untrusted("seal")
        if ends_us <= self._clock.now_us():
            raise Untrusted("login too old")
        return number, ends_us, base64.urlsafe_b64decode(wanted + "=" * (-len(wanted) % 4)).decode()

    def _derive(self, purpose: bytes, number: bytes) -> str:
        return _base64(hmac.digest(self._key, b"login %s\0%s" % (purpose, number), "sha256"))

    def _seal(self, number: bytes, ends_us: int, wanted: str) -> str:
        statement = b"login\0%s\0%d\0%s" % (number, ends_us, wanted.encode())
        return hmac.digest(self._key, statement, "sha256").hex()


def _base64(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")
