"""An issuer's published keys and addresses, asked over HTTP and kept for a bounded time.

What fails leaves everything as it was: keys are believed for at most ``LONGEST_SECONDS`` after they were
read, and from then on nobody is let in by them. An unknown key has the keys read again, at most every
``UNKNOWN_KEY_SECONDS``, so that nobody can have the issuer asked as often as he likes.
"""

import json
import ssl
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeGuard

import httpx2
import jwt
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey

from dpledger.auth.federation import is_trusted_url
from dpledger.ledger.errors import Unavailable
from dpledger.logs import log_event

__all__ = ["ALGORITHMS", "Endpoints", "Provider", "fetch_json"]

ALGORITHMS = ("RS256", "ES256")
"""What a signature may be made with. Neither ``none`` nor a shared secret is ever among them."""
REFRESH_SECONDS = 600.0
LONGEST_SECONDS = 3600.0
UNKNOWN_KEY_SECONDS = 30.0
RETRY_SECONDS = 5.0
FETCH_SECONDS = 5.0
LONGEST_BYTES = 256 * 1024
MOST_KEYS = 100
_LEAST_RSA_BITS = 2048
_MOST_RSA_BITS = 8192
_BACKING_OFF = "the issuer of single sign-on does not answer"
Key = RSAPublicKey | EllipticCurvePublicKey
KeyName = tuple[str | int, str]
"""A key's id, or its place in the list where it has none, and the algorithm that it is for."""
Fetch = Callable[..., Any]


@dataclass(frozen=True)
class Endpoints:
    """Where an issuer takes logins and codes, and whether the secret goes into the body."""

    authorization: str
    token: str
    secret_in_body: bool = False


@dataclass(frozen=True, eq=False)
class _Published:
    endpoints: Endpoints
    keys: Mapping[KeyName, Key]
    read_at: float


class Provider:
    """Reads what an issuer publishes, one thread at a time; the others go on with what is known."""

    def __init__(
        self, issuer: str, fetch: Fetch | None = None, elapsed: Callable[[], float] = time.monotonic
    ) -> None:
        self.issuer = issuer
        self._fetch = fetch or fetch_json
        self._elapsed = elapsed
        self._published: _Published | None = None
        self._tried_at = -float("inf")
        self._reading = threading.Lock()

    def key(self, key_id: str | None, algorithm: str) -> Key | None:
        """The key of this id for this algorithm, or None. Raises Unavailable.

        A token without an id is held to the issuer's key if it has only one (OpenID Connect Core 1.0, 10.1).
        """
        found = _find(self._believed(REFRESH_SECONDS).keys, key_id, algorithm)
        # An issuer without ids may have changed its key, and nothing else would tell.
        if found is None or key_id is None:
            found = _find(self._believed(UNKNOWN_KEY_SECONDS).keys, key_id, algorithm)
        return found

    def endpoints(self) -> Endpoints:
        """Where logins begin and codes are redeemed; raises Unavailable."""
        return self._believed(REFRESH_SECONDS).endpoints

    def _believed(self, refresh_seconds: float) -> _Published:
        """What was published, read again where it is older; never what is older than the longest time."""
        known = self._published
        if known is None or self._elapsed() - known.read_at > refresh_seconds:
            known = self._read_again()
        if known is None or self._elapsed() - known.read_at > LONGEST_SECONDS:
            raise Unavailable(_BACKING_OFF)
        return known

    def _read_again(self) -> _Published | None:
        """Ask the issuer, unless somebody does or did a moment ago; nobody waits for another's answer."""
        if self._elapsed() - self._tried_at < RETRY_SECONDS or not self._reading.acquire(blocking=False):
            return self._published
        try:
            self._tried_at = self._elapsed()
            self._published = self._read()
        except Exception as error:  # whatever an issuer answers, what is known stays and no door opens
            log_event("single sign-on: keys not read", reason=type(error).__name__)
        finally:
            self._reading.release()
        return self._published

    def _read(self) -> _Published:
        found = self._fetch(self.issuer.rstrip("/") + "/.well-known/openid-configuration")
        if found["issuer"] != self.issuer:
            raise ValueError("another issuer answers")
        methods = found.get("token_endpoint_auth_methods_supported", ["client_secret_basic"])
        endpoints = Endpoints(
            _address(found["authorization_endpoint"]),
            _address(found["token_endpoint"]),
            "client_secret_basic" not in methods,
        )
        return _Published(endpoints, _keys(self._fetch(_address(found["jwks_uri"]))), self._elapsed())


def fetch_json(url: str, form: Mapping[str, str] | None = None, **options: Any) -> Any:
    """One answer of an issuer as JSON, within bounds of time and size; a redirection is not followed.

    Certificates are checked against those that the system trusts.
    """
    deadline = time.monotonic() + 2 * FETCH_SECONDS
    trusted = ssl.create_default_context()
    with (
        httpx2.Client(timeout=FETCH_SECONDS, verify=trusted, follow_redirects=False) as client,
        client.stream("GET" if form is None else "POST", url, data=form, **options) as answer,
    ):
        if answer.status_code != 200:
            raise ValueError(f"status {answer.status_code}")
        received = bytearray()
        for piece in answer.iter_bytes():
            received += piece
            if len(received) > LONGEST_BYTES or time.monotonic() > deadline:
                raise ValueError("the answer is too long")
    return json.loads(received)


def _address(url: object) -> str:
    if not isinstance(url, str) or not is_trusted_url(url):
        raise ValueError("an address that cannot be trusted")
    return url


def _find(keys: Mapping[KeyName, Key], key_id: str | None, algorithm: str) -> Key | None:
    if key_id is not None:
        return keys.get((key_id, algorithm))
    only = next(iter(keys.items()), None) if len(keys) == 1 else None
    return only[1] if only is not None and only[0][1] == algorithm else None


def _keys(published: Any) -> dict[KeyName, Key]:
    """The keys for signatures, each under its id and the one algorithm that it is good for."""
    listed = published["keys"]
    if not isinstance(listed, list) or len(listed) > MOST_KEYS:
        raise ValueError("a wrong list of keys")
    found: dict[KeyName, Key] = {}
    for place, each in enumerate(listed):
        entry = _key(each, place)
        if entry is not None:
            found.setdefault(*entry)
    return found


def _key(published: Any, place: int) -> tuple[KeyName, Key] | None:
    """One key; None for one that signs nothing here: symmetric, short, for encryption."""
    algorithm = {"RSA": "RS256", "EC": "ES256"}.get(str(published.get("kty")))
    key_id = published.get("kid")
    if algorithm is None or not (key_id is None or isinstance(key_id, str)):
        return None
    if published.get("use", "sig") != "sig" or published.get("alg", algorithm) != algorithm:
        return None
    try:
        key: object = jwt.PyJWK(published, algorithm).key
    except (
        jwt.PyJWTError,
        ValueError,
        TypeError,
        KeyError,
    ):  # a curve or a number that is none: the other keys are good all the same
        return None
    return ((place if key_id is None else key_id, algorithm), key) if _is_strong(key) else None


def _is_strong(key: object) -> TypeGuard[Key]:
    if isinstance(key, RSAPublicKey):
        return _LEAST_RSA_BITS <= key.key_size <= _MOST_RSA_BITS
    return isinstance(key, EllipticCurvePublicKey) and key.curve.name == "secp256r1"
