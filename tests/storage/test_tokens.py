"""Tokens as they are stored."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from dpledger.ledger.errors import AlreadyExists, NotFound
from dpledger.storage.repositories.tokens import TokenRow, TokenStore
from dpledger.storage.repository import SqlStorage

FULL = TokenRow(
    "abc", bytes(range(32)), ("admin", "spend"), ("adult", 'ümlaut,"x"'), "für uns", 1, 2**53, None
)


def row(name: str) -> TokenRow:
    return TokenRow(name, b"h", ("read",), None, "", 1)


@pytest.fixture
def tokens(storage: SqlStorage) -> TokenStore:
    return TokenStore(storage.database)


@pytest.mark.parametrize("token", [FULL, row("x"), TokenRow("none", b"", (), (), "", 0, None, 5)])
def test_a_token_is_read_back_as_it_was(tokens: TokenStore, token: TokenRow) -> None:
    tokens.add(token)

    assert tokens.get(token.id) == token


def test_an_id_is_given_once(tokens: TokenStore) -> None:
    tokens.add(FULL)
    with pytest.raises(AlreadyExists):
        tokens.add(row("abc"))
    assert tokens.get("abc") == FULL


def test_unknown_tokens_are_not_found(tokens: TokenStore) -> None:
    with pytest.raises(NotFound):
        tokens.get("nobody")
    with pytest.raises(NotFound):
        tokens.revoke("nobody", 1)


def test_tokens_are_listed_page_by_page(tokens: TokenStore) -> None:
    names = ["B", "a", "b", "c", "é"]
    for name in reversed(names):
        tokens.add(row(name))

    pages = [tokens.list(after, 2) for after in ("", "a", "c", "é")]
    assert [[each.id for each in page] for page in pages] == [["B", "a"], ["b", "c"], ["é"], []]


def test_a_revoked_token_keeps_the_time_of_its_first_revocation(tokens: TokenStore) -> None:
    tokens.add(FULL)

    assert tokens.revoke("abc", 77).revoked_at_us == 77
    assert tokens.revoke("abc", 99).revoked_at_us == 77
    assert tokens.get("abc").revoked_at_us == 77


def test_of_many_first_tokens_one_is_added(tokens: TokenStore) -> None:
    with ThreadPoolExecutor(8) as pool:
        added = list(pool.map(tokens.add_first, [row(f"first-{n}") for n in range(8)]))

    assert sum(added) == 1
    assert [each.id for each in tokens.list("", 10)] == [f"first-{added.index(True)}"]
    assert not tokens.add_first(row("late"))
