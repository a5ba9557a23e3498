"""Receipts are verified with the published keys alone, and with no others."""

import base64
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpledger.ledger.receipts import BadReceipt, Signer, verify_receipt

SIGNER = Signer(bytes(range(32)))
STATEMENT = {"dataset": "adult", "sequence": 17, "entry": "ab" * 32}
TEXT = json.dumps(STATEMENT)


def test_a_receipt_states_what_was_signed() -> None:
    assert verify_receipt(SIGNER.sign(TEXT), SIGNER.key_set()) == STATEMENT


def test_signing_again_gives_the_same_receipt() -> None:
    assert SIGNER.sign(TEXT) == Signer(bytes(range(32))).sign(TEXT)


def test_a_receipt_is_a_compact_jws() -> None:
    header, payload, signature = (part + "=" * (-len(part) % 4) for part in SIGNER.sign(TEXT).split("."))

    assert json.loads(base64.urlsafe_b64decode(header)) == {
        "alg": "EdDSA",
        "kid": SIGNER.key_id,
        "typ": "dpledger-receipt+jws",
    }
    assert json.loads(base64.urlsafe_b64decode(payload)) == STATEMENT
    assert len(base64.urlsafe_b64decode(signature)) == 64


def test_the_published_key_is_the_one_of_rfc_8037() -> None:
    seed = base64.urlsafe_b64decode("nWGxne_9WmC6hEr0kuwsxERJxWl7MmkZcDusAxyuf2A=")

    (key,) = Signer(seed).key_set()["keys"]

    assert (key["kty"], key["crv"], key["alg"]) == ("OKP", "Ed25519", "EdDSA")
    assert key["x"] == "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"


def test_a_retired_key_still_verifies() -> None:
    old = Signer(bytes(32))
    raw = base64.urlsafe_b64decode(old.key_set()["keys"][0]["x"] + "=")
    new = Signer(bytes(range(32)), retired=(raw,))

    assert verify_receipt(old.sign(TEXT), new.key_set()) == STATEMENT
    with pytest.raises(BadReceipt):
        verify_receipt(new.sign(TEXT), old.key_set())


@settings(max_examples=60)
@given(position=st.integers(0, 400), letter=st.sampled_from("AQgw_-0."))
def test_an_altered_receipt_is_refused(position: int, letter: str) -> None:
    receipt = SIGNER.sign(TEXT)
    position %= len(receipt) - 1  # the last letter holds unused bits
    altered = receipt[:position] + letter + receipt[position + 1 :]

    if altered != receipt:
        with pytest.raises(BadReceipt):
            verify_receipt(altered, SIGNER.key_set())


def signed(header: Any) -> str:
    """A receipt with another header, signed with the right key."""
    other = Signer(bytes(range(32)))
    text = base64.urlsafe_b64encode(json.dumps(header).encode()).rstrip(b"=")
    other._header = text + b"."
    return other.sign(TEXT)


@pytest.mark.parametrize(
    "receipt",
    [
        "",
        "a.b",
        "a.b.c.d",
        "é.b.c",
        signed({"alg": "none", "kid": SIGNER.key_id, "typ": "dpledger-receipt+jws"}),
        signed({"alg": "EdDSA", "kid": SIGNER.key_id, "typ": "JWT"}),
        signed({"alg": "EdDSA", "kid": "other", "typ": "dpledger-receipt+jws"}),
        signed({"alg": "EdDSA"}),
        signed([]),
    ],
)
def test_what_is_no_receipt_is_refused(receipt: str) -> None:
    with pytest.raises(BadReceipt):
        verify_receipt(receipt, SIGNER.key_set())
