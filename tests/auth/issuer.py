"""An OpenID Connect issuer on the loopback, with real keys; a test chooses what it signs and answers."""

import base64
import hashlib
import html
import json
import secrets
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, parse_qsl, quote, urlencode, urlsplit

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from jwt.algorithms import ECAlgorithm, RSAAlgorithm

from tests.api.service import SetClock

CLIENT_ID = "dpledger"
CLIENT_SECRET = "a secret: of the client & no other's"
AUDIENCE = "https://budget.example.org"
PUBLIC_URL = "http://127.0.0.1:8000"
REDIRECT_URL = f"{PUBLIC_URL}/dashboard/login/sso/callback"
PrivateKey = rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey

RSA_KEY = rsa.generate_private_key(65537, 2048)
OTHER_KEY = rsa.generate_private_key(65537, 2048)
EC_KEY = ec.generate_private_key(ec.SECP256R1())


def published(key_id: str, key: PrivateKey) -> dict[str, Any]:
    """The public half of a key, as an issuer publishes it."""
    if isinstance(key, rsa.RSAPrivateKey):
        found = RSAAlgorithm.to_jwk(key.public_key(), as_dict=True)
    else:
        found = ECAlgorithm.to_jwk(key.public_key(), as_dict=True)
    return {**found, "kid": key_id, "use": "sig"}


def signed(claims: dict[str, Any], key: Any = RSA_KEY, algorithm: str = "RS256", **header: Any) -> str:
    """A token; a header that is None is left out."""
    named = {name: value for name, value in {"kid": "rsa-1", **header}.items() if value is not None}
    return jwt.encode(claims, key, algorithm, headers=named)


@dataclass
class Issuer:
    """The issuer's state: keys that it publishes, codes that it gave out, and what it was asked for."""

    clock: SetClock
    url: str = ""
    keys: list[dict[str, Any]] = field(
        default_factory=lambda: [published("rsa-1", RSA_KEY), published("ec-1", EC_KEY)]
    )
    subject: str = "ann"
    groups: list[str] = field(default_factory=lambda: ["auditors"])
    discovery: dict[str, Any] = field(default_factory=dict)
    change: Callable[[dict[str, Any]], dict[str, Any]] = lambda claims: claims
    sign: Callable[[dict[str, Any]], Any] = signed
    failing: bool = False
    browsers_at: str = PUBLIC_URL
    asked: Counter[str] = field(default_factory=Counter)
    codes: dict[str, dict[str, str]] = field(default_factory=dict)

    def claims(self, **changed: Any) -> dict[str, Any]:
        """Claims of an access token; what is changed to None is left out."""
        now = self.clock.at_us // 1_000_000
        usual: dict[str, Any] = {"iss": self.url, "sub": self.subject, "aud": AUDIENCE, "groups": self.groups}
        usual |= {"iat": now, "nbf": now, "exp": now + 300}
        return {name: value for name, value in (usual | changed).items() if value is not None}

    def authorize(self, query: str) -> str:
        """Give a code to whoever logs in; where the browser is sent back to."""
        asked = dict(parse_qsl(query, strict_parsing=True))
        assert asked["response_type"] == "code"
        assert asked["code_challenge_method"] == "S256"
        assert (asked["client_id"], asked["redirect_uri"]) == (CLIENT_ID, REDIRECT_URL)
        code = secrets.token_urlsafe(16)
        self.codes[code] = asked
        return f"{REDIRECT_URL}?{urlencode({'code': code, 'state': asked['state'], 'iss': self.url})}"

    def redeem(self, form: dict[str, str], authorization: str) -> dict[str, Any] | None:
        """Give tokens for a code, once, to the client that began and proves it."""
        began = self.codes.pop(form["code"], None)
        challenge = hashlib.sha256(form["code_verifier"].encode()).digest()
        shown = base64.b64decode(authorization.removeprefix("Basic ")).decode()
        if (
            began is None
            or base64.urlsafe_b64encode(challenge).decode().rstrip("=") != began["code_challenge"]
            or form["redirect_uri"] != began["redirect_uri"]
            or shown != f"{CLIENT_ID}:{quote(CLIENT_SECRET, safe='')}"
        ):
            return None
        claims = self.claims(aud=CLIENT_ID, nonce=began["nonce"])
        return {"token_type": "Bearer", "access_token": "-", "id_token": self.sign(self.change(claims))}

    def document(self) -> dict[str, Any]:
        found = {
            "issuer": self.url,
            "authorization_endpoint": f"{self.url}/authorize",
            "token_endpoint": f"{self.url}/token",
            "jwks_uri": f"{self.url}/keys",
        }
        return found | self.discovery


@contextmanager
def issuing(clock: SetClock) -> Iterator[Issuer]:
    """An issuer that answers on a port of its own."""
    issuer = Issuer(clock)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            path = urlsplit(self.path).path
            issuer.asked[path] += 1
            if path == "/authorize":
                back = issuer.authorize(urlsplit(self.path).query).replace(PUBLIC_URL, issuer.browsers_at, 1)
                page = f'<link rel="icon" href="data:,"><a href="{html.escape(back)}">Yes, it is me</a>'
                self.send(200, "text/html", page.encode())
                return
            answers = {"/.well-known/openid-configuration": issuer.document(), "/keys": {"keys": issuer.keys}}
            self.answer(None if issuer.failing else answers.get(path))

        def do_POST(self) -> None:
            issuer.asked[self.path] += 1
            body = self.rfile.read(int(self.headers["Content-Length"])).decode()
            form = {name: values[0] for name, values in parse_qs(body).items()}
            found = None if issuer.failing else issuer.redeem(form, self.headers.get("Authorization", ""))
            self.answer(found)

        def answer(self, content: dict[str, Any] | None) -> None:
            self.send(400 if content is None else 200, "application/json", json.dumps(content).encode())

        def send(self, status: int, kind: str, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            return

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        issuer.url = f"http://127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield issuer
        finally:
            server.shutdown()
            thread.join()
