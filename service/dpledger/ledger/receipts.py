"""Receipts: signed statements of one authorization, verifiable offline.

A receipt is a compact JWS (RFC 7515) signed with Ed25519 (RFC 8037). Signing is deterministic, so a
replayed answer carries the same receipt as the first.
"""

import base64
import binascii
import hashlib
import json
from typing import Any

from nacl.bindings import crypto_sign, crypto_sign_BYTES, crypto_sign_seed_keypair
from nacl.exceptions import BadSignatureError
from nacl.signing import VerifyKey

from dpledger.ledger.model.entries import Charge, Entry, identifier, moment, quoted

__all__ = ["BadReceipt", "Signer", "grant_statement", "verify_receipt"]

RECEIPT_TYPE = "dpledger-receipt+jws"


class BadReceipt(ValueError):
    """Not a receipt of this service: malformed, of another key, or altered."""


class Signer:
    """Signs with one key and publishes it together with the ones it replaced."""

    def __init__(self, seed: bytes, retired: tuple[bytes, ...] = ()) -> None:
        """``seed`` is the 32-byte private key; ``retired`` are raw public keys still to be published."""
        public, self._key = crypto_sign_seed_keypair(seed)
        self.key_id = key_id(public)
        self._public = (public, *retired)
        header = {"alg": "EdDSA", "kid": self.key_id, "typ": RECEIPT_TYPE}
        self._header = _encode(json.dumps(header, separators=(",", ":")).encode()) + b"."

    def sign(self, payload: str) -> str:
        """The compact JWS over ``payload``, a JSON object as text."""
        message = self._header + _encode(payload.encode())
        signature = crypto_sign(message, self._key)[:crypto_sign_BYTES]
        return (message + b"." + _encode(signature)).decode()

    def key_set(self) -> dict[str, Any]:
        """The public keys as a JSON Web Key Set (RFC 7517)."""
        return {"keys": [_jwk(public) for public in self._public]}


def grant_statement(dataset: str, entry: Entry, charge: Charge) -> str:
    """The text of a grant's receipt; its keys are sorted, so that it is the same each time."""
    times = "" if entry.times is None else f',"times":{entry.times}'
    allocated = "" if entry.allocation is None else f'"allocation":"{identifier(dataset, entry.allocation)}",'
    return (
        f'{{{allocated}"at":"{moment(entry.at_us)}","dataset":{quoted(dataset)},"entry":"{entry.hash.hex()}",'
        f'"kind":"{entry.kind.value}","run":{quoted(entry.run or "")},"sequence":{entry.sequence},'
        f'"step":"{charge.step.digest}"{times}}}'
    )


def verify_receipt(receipt: str, key_set: dict[str, Any]) -> dict[str, Any]:
    """Check a receipt against a published key set and return what it states."""
    try:
        header_part, payload_part, signature_part = receipt.encode().split(b".")
        header = json.loads(_decode(header_part))
        keys = {key["kid"]: key["x"] for key in key_set["keys"]}
        public = VerifyKey(_decode(keys[header["kid"]].encode()))
        if header.get("alg") != "EdDSA" or header.get("typ") != RECEIPT_TYPE:
            raise BadReceipt("the receipt's header is not that of a dpledger receipt")
        public.verify(header_part + b"." + payload_part, _decode(signature_part))
        statement: dict[str, Any] = json.loads(_decode(payload_part))
    except BadSignatureError:
        raise BadReceipt("the receipt's signature does not match") from None
    except (ValueError, KeyError, TypeError) as error:
        raise BadReceipt(f"not a receipt of a known key: {error}") from None
    return statement


def key_id(public: bytes) -> str:
    """A short name for a public key: the start of its SHA-256."""
    return hashlib.sha256(public).hexdigest()[:16]


def _jwk(public: bytes) -> dict[str, str]:
    return {
        "kty": "OKP",
        "crv": "Ed25519",
        "use": "sig",
        "alg": "EdDSA",
        "kid": key_id(public),
        "x": _encode(public).decode(),
    }


_URL_SAFE = bytes.maketrans(b"+/", b"-_")


def _encode(raw: bytes) -> bytes:
    """Base64 in the alphabet for addresses, without padding."""
    return binascii.b2a_base64(raw, newline=False).translate(_URL_SAFE, b"=")


def _decode(text: bytes) -> bytes:
    return base64.urlsafe_b64decode(text + b"=" * (-len(text) % 4))
