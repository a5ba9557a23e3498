"""An issuer's keys: cached, rotated, bounded in time; a failing issuer opens no door."""

import threading
from collections import Counter
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from dpledger.auth import provider as module
from dpledger.auth.provider import Provider, fetch_json
from dpledger.ledger.errors import Unavailable
from tests.api.service import SetClock
from tests.auth.issuer import EC_KEY, OTHER_KEY, RSA_KEY, issuing, published

ISSUER = "https://login.example.org"
DOCUMENT: dict[str, Any] = {
    "issuer": ISSUER,
    "authorization_endpoint": f"{ISSUER}/authorize",
    "token_endpoint": f"{ISSUER}/token",
    "jwks_uri": f"{ISSUER}/keys",
}


class Published:
    """An issuer that answers from memory, and a time that the test sets."""

    def __init__(self) -> None:
        self.document: Any = DOCUMENT
        self.keys: Any = {"keys": [published("rsa-1", RSA_KEY)]}
        self.fails = False
        self.asked: Counter[str] = Counter()
        self.now = 1000.0
        self.provider = Provider(ISSUER, self.fetch, lambda: self.now)

    def fetch(self, url: str) -> Any:
        self.asked[url] += 1
        if self.fails:
            raise ValueError("status 500")
        return self.keys if url.endswith("/keys") else self.document

    def knows(self, key_id: str, algorithm: str = "RS256") -> bool:
        return self.provider.key(key_id, algorithm) is not None


@pytest.fixture
def issuer() -> Published:
    return Published()


def test_keys_are_read_once_and_kept(issuer: Published) -> None:
    assert issuer.knows("rsa-1")
    assert issuer.knows("rsa-1")
    assert not issuer.knows("rsa-1", "ES256")

    assert issuer.asked[f"{ISSUER}/keys"] == 1


def test_a_new_key_is_found_and_a_withdrawn_one_forgotten(issuer: Published) -> None:
    assert issuer.knows("rsa-1")
    issuer.keys = {"keys": [published("rsa-2", OTHER_KEY)]}
    issuer.now += module.UNKNOWN_KEY_SECONDS + 1

    assert issuer.knows("rsa-2")
    assert not issuer.knows("rsa-1")


def test_a_withdrawn_key_is_forgotten_without_an_unknown_one(issuer: Published) -> None:
    assert issuer.knows("rsa-1")
    issuer.keys = {"keys": []}
    issuer.now += module.REFRESH_SECONDS + 1

    assert not issuer.knows("rsa-1")


def test_unknown_keys_have_the_issuer_asked_seldom(issuer: Published) -> None:
    for _ in range(50):
        assert not issuer.knows("unknown")
        issuer.now += 1.0

    assert issuer.asked[f"{ISSUER}/keys"] <= 3


def test_an_issuer_that_was_never_read_lets_nobody_in(issuer: Published) -> None:
    issuer.fails = True

    for _ in range(4):
        with pytest.raises(Unavailable):
            issuer.knows("rsa-1")
        with pytest.raises(Unavailable):
            issuer.provider.endpoints()
        issuer.now += 1.0

    assert sum(issuer.asked.values()) == 1


def test_keys_are_believed_for_a_bounded_time_while_the_issuer_fails(issuer: Published) -> None:
    assert issuer.knows("rsa-1")
    issuer.fails = True
    issuer.now += module.LONGEST_SECONDS - 1
    assert issuer.knows("rsa-1")

    issuer.now += 2

    with pytest.raises(Unavailable):
        issuer.knows("rsa-1")
    issuer.fails = False
    issuer.now += module.RETRY_SECONDS
    assert issuer.knows("rsa-1")


@pytest.mark.parametrize(
    "document",
    [
        {**DOCUMENT, "issuer": "https://evil.example"},
        {**DOCUMENT, "issuer": f"{ISSUER}/"},
        {**DOCUMENT, "jwks_uri": "http://evil.example/keys"},
        {**DOCUMENT, "token_endpoint": "http://evil.example/token"},
        {**DOCUMENT, "authorization_endpoint": "javascript:alert(1)"},
        {**DOCUMENT, "jwks_uri": 7},
        {},
        [],
        None,
    ],
)
def test_a_document_that_is_not_the_issuers_is_not_taken(issuer: Published, document: Any) -> None:
    issuer.document = document

    with pytest.raises(Unavailable):
        issuer.knows("rsa-1")


@pytest.mark.parametrize("keys", [{}, {"keys": "rsa-1"}, {"keys": ["rsa-1"]}, {"keys": [{}] * 101}, []])
def test_what_is_no_list_of_keys_is_not_taken(issuer: Published, keys: Any) -> None:
    issuer.keys = keys

    with pytest.raises(Unavailable):
        issuer.knows("rsa-1")


def test_only_keys_for_signatures_of_the_allowed_kinds_are_taken(issuer: Published) -> None:
    good = published("rsa-1", RSA_KEY)
    private = {
        **good,
        "kid": "private",
        "d": "AQAB",
        "p": "Aw",
        "q": "BQ",
        "dp": "AQ",
        "dq": "AQ",
        "qi": "Ag",
    }
    curve = published("curve", ec.generate_private_key(ec.SECP384R1()))
    short = published("short", rsa.generate_private_key(65537, 1024))
    wrong: list[dict[str, Any]] = [
        {"kty": "oct", "kid": "oct", "k": "c2VjcmV0"},
        {**good, "kid": "encrypts", "use": "enc"},
        {**good, "kid": "other", "alg": "HS256"},
        {**good, "kid": "other-too", "alg": "RS512"},
        {**good, "kid": 7},
        {**good, "kid": "even", "n": "AAAA"},
        {"kty": "RSA", "kid": "empty"},
        private,
        curve,
        short,
    ]
    issuer.keys = {"keys": [*wrong, good, published("ec-1", EC_KEY)]}

    assert issuer.knows("rsa-1")
    assert issuer.knows("ec-1", "ES256")
    for each in wrong:
        for algorithm in ("RS256", "ES256", "HS256"):
            assert not issuer.knows(each["kid"], algorithm), each


def test_a_token_without_an_id_is_held_to_the_only_key(issuer: Published) -> None:
    only = {name: value for name, value in published("", RSA_KEY).items() if name != "kid"}
    issuer.keys = {"keys": [only]}
    assert issuer.provider.key(None, "RS256") is not None
    assert issuer.provider.key(None, "ES256") is None
    assert issuer.provider.key("rsa-1", "RS256") is None

    for others in ([only], [published("ec-1", EC_KEY)]):
        issuer.keys = {"keys": [only, *others]}
        issuer.now += module.UNKNOWN_KEY_SECONDS + 1
        assert issuer.provider.key(None, "RS256") is None


def test_an_issuer_without_ids_may_change_its_key(issuer: Published) -> None:
    for key in (RSA_KEY, OTHER_KEY):
        issuer.keys = {"keys": [published("", key) | {"kid": None}]}
        found = issuer.provider.key(None, "RS256")
        assert isinstance(found, rsa.RSAPublicKey)
        assert found.public_numbers() == key.public_key().public_numbers()
        issuer.now += module.UNKNOWN_KEY_SECONDS + 1


def test_of_two_keys_with_one_name_the_first_counts(issuer: Published) -> None:
    issuer.keys = {"keys": [published("rsa-1", RSA_KEY), published("rsa-1", OTHER_KEY)]}

    key = issuer.provider.key("rsa-1", "RS256")

    assert isinstance(key, rsa.RSAPublicKey)
    assert key.public_numbers() == RSA_KEY.public_key().public_numbers()


def test_nobody_waits_while_another_asks(issuer: Published) -> None:
    begun, go_on = threading.Event(), threading.Event()
    answer = issuer.fetch

    def slow(url: str) -> Any:
        begun.set()
        assert go_on.wait(10)
        return answer(url)

    issuer.provider = Provider(ISSUER, slow, lambda: issuer.now)
    first = threading.Thread(target=issuer.knows, args=("rsa-1",))
    first.start()
    assert begun.wait(10)
    issuer.now += module.RETRY_SECONDS + 1

    with pytest.raises(Unavailable):
        issuer.knows("rsa-1")
    go_on.set()
    first.join()
    assert issuer.knows("rsa-1")


def test_endpoints_say_where_the_secret_goes(issuer: Published) -> None:
    assert not issuer.provider.endpoints().secret_in_body

    other = Published()
    other.document = {**DOCUMENT, "token_endpoint_auth_methods_supported": ["client_secret_post"]}
    assert other.provider.endpoints().secret_in_body


def test_answers_are_read_over_http_within_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    with issuing(SetClock()) as issuer:
        provider = Provider(issuer.url)
        assert provider.key("rsa-1", "RS256") is not None
        assert provider.key("ec-1", "ES256") is not None
        assert provider.endpoints().token == f"{issuer.url}/token"
        with pytest.raises(ValueError, match="status 400"):
            fetch_json(f"{issuer.url}/nothing")
        monkeypatch.setattr(module, "LONGEST_BYTES", 100)
        with pytest.raises(ValueError, match="too long"):
            fetch_json(f"{issuer.url}/keys")
    with pytest.raises(Unavailable):
        Provider(issuer.url).endpoints()
