"""Who is calling: from memory where it is fresh, from the database where it is not."""

from dataclasses import replace
from unittest import mock

import pytest

from dpledger.auth import gatekeeper
from dpledger.auth.errors import Forbidden, Unauthenticated
from dpledger.auth.gatekeeper import Caller, Gatekeeper
from dpledger.auth.issuer import Issuer, TokenRequest
from dpledger.auth.scopes import Scope, covers
from dpledger.auth.tokens import TokenSecret
from dpledger.ledger.errors import KeyReused, NotFound
from dpledger.ledger.ports import IdempotentRequest
from dpledger.storage.repositories.tokens import TokenStore
from dpledger.storage.repository import SqlStorage
from tests.api.service import SetClock

KEY = bytes(range(32))
READ = TokenRequest(frozenset({Scope.READ}))


@pytest.fixture
def store(storage: SqlStorage) -> TokenStore:
    return TokenStore(storage.database)


@pytest.fixture
def clock() -> SetClock:
    return SetClock()


@pytest.fixture
def issuer(store: TokenStore, clock: SetClock) -> Issuer:
    return Issuer(store, KEY, clock)


@pytest.fixture
def elapsed() -> list[float]:
    """The time that memory is aged by; it stands still until a test sets it."""
    return [0.0]


@pytest.fixture
def keeper(store: TokenStore, clock: SetClock, elapsed: list[float]) -> Gatekeeper:
    return Gatekeeper(store, KEY, clock, lambda: elapsed[0])


def header(token: TokenSecret) -> str:
    return f"Bearer {token.text}"


@pytest.mark.parametrize(
    ("granted", "included"),
    [
        ({Scope.ADMIN}, {Scope.ADMIN, Scope.SPEND, Scope.READ}),
        ({Scope.SPEND}, {Scope.SPEND, Scope.READ}),
        ({Scope.READ}, {Scope.READ}),
        (set(), set()),
    ],
)
def test_a_scope_includes_the_ones_below_it(granted: set[Scope], included: set[Scope]) -> None:
    assert covers(granted) == included


def test_a_caller_reaches_as_far_as_its_token() -> None:
    limited = Caller("ann", frozenset({Scope.READ}), frozenset({"adult"}))

    limited.require(Scope.READ)
    limited.require_dataset("adult")
    with pytest.raises(Forbidden, match="spend"):
        limited.require(Scope.SPEND)
    with pytest.raises(Forbidden, match="census"):
        limited.require_dataset("census")
    with pytest.raises(Forbidden):
        limited.require_all_datasets()
    everywhere = replace(limited, datasets=None)
    everywhere.require_dataset("census")
    everywhere.require_all_datasets()


def test_a_shown_token_is_recognised(issuer: Issuer, keeper: Gatekeeper) -> None:
    request = TokenRequest(frozenset({Scope.SPEND}), frozenset({"adult"}), "a job")
    token = issuer.create(request)

    caller = keeper.caller(header(token))

    assert caller == Caller(token.id, frozenset({Scope.SPEND, Scope.READ}), frozenset({"adult"}))
    assert keeper.caller(f"bearer  {token.text} ") == caller


def test_memory_answers_while_it_is_fresh(issuer: Issuer, keeper: Gatekeeper, store: TokenStore) -> None:
    token = issuer.create(READ)
    assert keeper.find_cached(token) is None
    caller = keeper.caller(header(token))

    with mock.patch.object(store, "get", side_effect=AssertionError):
        assert keeper.caller(header(token)) == caller
        assert keeper.find_cached(token) == caller


def test_memory_does_not_replace_the_secret(issuer: Issuer, keeper: Gatekeeper) -> None:
    token = issuer.create(READ)
    keeper.caller(header(token))
    forged = TokenSecret(token.id, token.text[:-4] + "aaaa")

    with pytest.raises(Unauthenticated):
        keeper.find_cached(forged)
    with pytest.raises(Unauthenticated):
        keeper.caller(header(forged))


def test_a_token_of_another_server_is_none(issuer: Issuer, store: TokenStore, clock: SetClock) -> None:
    token = issuer.create(READ)

    with pytest.raises(Unauthenticated):
        Gatekeeper(store, bytes(32), clock).caller(header(token))


def test_an_unknown_token_is_none(keeper: Gatekeeper) -> None:
    with pytest.raises(Unauthenticated):
        keeper.caller("Bearer dpl_abcd_" + "a" * 52)


def test_an_old_memory_is_asked_only_where_the_transaction_asks_again(
    issuer: Issuer, keeper: Gatekeeper, store: TokenStore, clock: SetClock, elapsed: list[float]
) -> None:
    token = issuer.create(READ)
    keeper.caller(header(token))
    store.revoke(token.id, clock.now_us())
    elapsed[0] = gatekeeper.FRESH_SECONDS + 0.1

    assert keeper.find_cached(token) is None
    assert keeper.find_cached(token, float("inf")) is not None
    with pytest.raises(Unauthenticated):
        keeper.caller(header(token))
    with pytest.raises(Unauthenticated):
        keeper.find_cached(token, float("inf"))


def test_asking_the_database_itself_sees_a_revocation_at_once(
    issuer: Issuer, keeper: Gatekeeper, store: TokenStore, clock: SetClock
) -> None:
    token = issuer.create(READ)
    keeper.caller(header(token))
    store.revoke(token.id, clock.now_us())

    with pytest.raises(Unauthenticated):
        keeper.caller_now(header(token))


def test_a_revocation_here_is_seen_here_at_once(issuer: Issuer, keeper: Gatekeeper) -> None:
    token = issuer.create(READ)
    keeper.caller(header(token))

    keeper.revoke(token.id)

    with pytest.raises(Unauthenticated):
        keeper.caller(header(token))
    with pytest.raises(NotFound):
        keeper.revoke("abcd")
    with pytest.raises(NotFound):
        keeper.revoke("\0")


def test_an_expiry_is_seen_without_asking(issuer: Issuer, keeper: Gatekeeper, clock: SetClock) -> None:
    token = issuer.create(TokenRequest(frozenset({Scope.READ}), expires_in_us=1_000_000))
    keeper.caller(header(token))
    clock.advance(1.0)

    with pytest.raises(Unauthenticated):
        keeper.find_cached(token)


def test_memory_is_bounded(issuer: Issuer, keeper: Gatekeeper, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gatekeeper, "_KEPT", 2)
    tokens = [issuer.create(READ) for _ in range(3)]
    for token in tokens:
        keeper.caller(header(token))

    assert [keeper.find_cached(token) is not None for token in tokens] == [False, True, True]


def test_only_the_first_start_gets_a_first_token(issuer: Issuer, keeper: Gatekeeper) -> None:
    first = issuer.first_token()
    assert first is not None

    assert keeper.caller(header(first)).scopes == frozenset(Scope)
    assert issuer.first_token() is None
    keeper.revoke(first.id)
    assert issuer.first_token() is None


def test_one_intent_makes_one_token(issuer: Issuer, clock: SetClock) -> None:
    call = IdempotentRequest("ann", b"k" * 16, b"r" * 16)
    first, row, replayed = issuer.create_once(READ, call)
    clock.advance(5)

    again, same, known = issuer.create_once(READ, call)

    assert (again, same) == (first, row)
    assert (replayed, known) == (False, True)
    with pytest.raises(KeyReused):
        issuer.create_once(READ, call._replace(request=b"s" * 16))
