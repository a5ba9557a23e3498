"""Receipts: signed statements of the ledger, verified without asking it.

A receipt is a compact JWS (RFC 7515) signed with Ed25519 (RFC 8037). The public keys are served at
``/.well-known/dpledger-keys.json``; keep a copy of them, and receipts can be checked on any machine.
Needs the extra ``receipts``.
"""

import base64
import binascii
import hashlib
import importlib
import json
from collections.abc import Mapping
from typing import Any

from dpledger_client.errors import BadReceipt, MissingExtra
from dpledger_client.releases import Releases, as_releases
from dpledger_client.samples import Full, Sample

__all__ = ["step_digest", "verify_receipt"]

_TYPE = "dpledger-receipt+jws"
_STEP_VERSION = 1


def verify_receipt(receipt: str, key_set: Mapping[str, Any]) -> dict[str, Any]:
    """Check a receipt against a published key set and return what it states.

    Parameters
    ----------
    receipt
        The compact JWS from an authorization or a reservation.
    key_set
        What :meth:`Ledger.key_set` returned, now or earlier.

    Returns
    -------
    dict
        ``dataset``, ``sequence``, ``kind``, ``run``, ``at``, ``step`` (the step's digest, see
        :func:`step_digest`), ``entry`` (the entry's hash), and ``times`` for a reservation.
    """
    try:
        protected, payload, signature = receipt.split(".")
        header = json.loads(_decode(protected))
        key = _public_key(key_set, header)
        signed = f"{protected}.{payload}".encode("ascii")
        raw_signature = _decode(signature)
        statement = json.loads(_decode(payload))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise BadReceipt(f"not a receipt of a known key: {error}") from None
    _check_signature(key, raw_signature, signed)
    if not isinstance(statement, dict):
        raise BadReceipt("the receipt states nothing")
    return statement


def _public_key(key_set: Mapping[str, Any], header: Mapping[str, Any]) -> bytes:
    if header.get("alg") != "EdDSA" or header.get("typ") != _TYPE or "crit" in header:
        raise ValueError("its header is not that of a dpledger receipt")
    for key in key_set["keys"]:
        if key["kid"] == header["kid"] and (key["kty"], key["crv"]) == ("OKP", "Ed25519"):
            return _decode(key["x"])
    raise ValueError(f"the key set has no key {header['kid']!r}")


def _check_signature(key: bytes, signature: bytes, signed: bytes) -> None:
    try:
        exceptions = importlib.import_module("cryptography.exceptions")
        ed25519 = importlib.import_module("cryptography.hazmat.primitives.asymmetric.ed25519")
    except ModuleNotFoundError as error:
        raise MissingExtra("receipts need: pip install 'dpledger-client[receipts]'") from error
    try:
        ed25519.Ed25519PublicKey.from_public_bytes(key).verify(signature, signed)
    except (exceptions.InvalidSignature, ValueError):
        raise BadReceipt("the receipt's signature does not match") from None


def _decode(text: str) -> bytes:
    """Base64url without padding, and nothing else."""
    if "=" in text or "+" in text or "/" in text:
        raise ValueError("not base64url")
    try:
        raw = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except binascii.Error:
        raise ValueError("not base64url") from None
    if base64.urlsafe_b64encode(raw).rstrip(b"=") != text.encode():
        raise ValueError("not the one base64url of these bytes")
    return raw


def step_digest(releases: Releases, sample: Sample | None, adjacency: str) -> str:
    """The digest by which a receipt names what was authorized: SHA-256 over a canonical description."""
    wire = [_step_fields(release.fields()) for release in as_releases(releases)]
    description = {
        "version": _STEP_VERSION,
        "adjacency": adjacency,
        "sample": (sample or Full()).fields(),
        "releases": sorted(wire, key=_canonical),
    }
    return hashlib.sha256(_canonical(description).encode()).hexdigest()


def _step_fields(release: dict[str, Any]) -> dict[str, Any]:
    """A release without the note on what it is for."""
    return {name: value for name, value in release.items() if name != "purpose"}


def _canonical(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)
