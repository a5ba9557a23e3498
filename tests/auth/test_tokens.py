"""Token texts and their keyed hashes."""

import hmac

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpledger.auth.tokens import (
    MAX_TOKEN_CHARACTERS,
    TokenHasher,
    TokenSecret,
    derived_token,
    is_token_id,
    new_token,
    read_token,
)

KEY = bytes(range(32))


def test_a_new_token_is_read_back() -> None:
    token = new_token()

    assert read_token(token.text) == token
    assert is_token_id(token.id)
    assert len(token.text) <= MAX_TOKEN_CHARACTERS


def test_no_two_tokens_are_alike() -> None:
    tokens = [new_token() for _ in range(200)]

    assert (
        len({token.id for token in tokens}) == len({token.text.rpartition("_")[2] for token in tokens}) == 200
    )


def test_a_secret_has_256_bits() -> None:
    assert len(new_token().text.rpartition("_")[2]) == 52  # 32 bytes in base 32


def test_a_token_does_not_show_its_secret() -> None:
    token = new_token()

    assert token.text not in repr(token)
    assert token.id in repr(token)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "dpl",
        "dpl_",
        "dpl__" + "a" * 20,
        "dpl_a_",
        "xyz_a_" + "a" * 20,
        "dpl_a_" + "A" * 20,
        "dpl_a_" + "a" * 15,
        "dpl_a_" + "a" * 20 + "\n",
        " dpl_a_" + "a" * 20,
        "dpl_a-b_" + "a" * 20,
        "dpl_a_" + "a" * 200,
        "dpl_é_" + "a" * 20,
    ],
)
def test_what_is_no_token_is_none(text: str) -> None:
    assert read_token(text) is None


@given(st.binary(min_size=32, max_size=32), st.text("abcdefgh234567", min_size=16, max_size=60))
def test_the_hash_is_hmac_sha256(key: bytes, secret: str) -> None:
    token = TokenSecret("a", f"dpl_a_{secret}")

    assert TokenHasher(key).hash(token) == hmac.digest(key, b"token\0" + token.text.encode(), "sha256")


def test_the_hash_depends_on_the_servers_key() -> None:
    token = new_token()

    assert TokenHasher(KEY).hash(token) != TokenHasher(bytes(32)).hash(token)


def test_a_derived_token_is_the_same_each_time_and_for_nobody_else() -> None:
    token = derived_token(KEY, "ann", b"k" * 16, b"r" * 16)

    assert derived_token(KEY, "ann", b"k" * 16, b"r" * 16) == token
    assert read_token(token.text) == token
    other_request = derived_token(KEY, "ann", b"k" * 16, b"s" * 16)
    assert other_request.id == token.id
    assert other_request.text != token.text
    for other in [
        derived_token(KEY, "eve", b"k" * 16, b"r" * 16),
        derived_token(KEY, "ann", b"l" * 16, b"r" * 16),
        derived_token(bytes(32), "ann", b"k" * 16, b"r" * 16),
    ]:
        assert other.id != token.id
