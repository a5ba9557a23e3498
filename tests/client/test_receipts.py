"""Receipts are verified offline, and nothing else passes for one."""

import base64
import json
from dataclasses import replace
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from dpledger.accounting.steps import Step
from dpledger_client import (
    BadReceipt,
    Dataset,
    Gaussian,
    Ledger,
    NoisyMax,
    Poisson,
    Release,
    step_digest,
    verify_receipt,
)
from dpledger_client.permits import verify_receipt_of

STEP = Gaussian(1.0, 10.0)


def _part(value: Any) -> str:
    return _text(json.dumps(value).encode())


def _text(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")


class Stranger:
    """Signs receipts with a key of its own."""

    def __init__(self, seed: int, name: str) -> None:
        self._key = Ed25519PrivateKey.from_private_bytes(bytes([seed]) * 32)
        self.header: Any = {"alg": "EdDSA", "typ": "dpledger-receipt+jws", "kid": name}
        public = _text(self._key.public_key().public_bytes_raw())
        self.keys = [{"kty": "OKP", "crv": "Ed25519", "kid": name, "x": public}]

    def sign(self, statement: Any) -> str:
        signed = f"{_part(self.header)}.{_part(statement)}"
        return f"{signed}.{_text(self._key.sign(signed.encode()))}"


def test_the_receipt_of_an_authorization_states_it(dataset: Dataset, ledger: Ledger) -> None:
    yes = dataset.run("job").authorize(STEP)

    statement = yes.verify(ledger.key_set())

    assert (statement["dataset"], statement["sequence"]) == (dataset.name, yes.granted.sequence)
    assert (statement["run"], statement["kind"]) == ("job", "authorized")
    assert statement["step"] == step_digest(STEP, None, "add-remove")
    (entry,) = dataset.entries(kind="authorized")
    assert statement["entry"] == entry["hash"]


def test_the_receipt_of_a_reservation_states_its_times(dataset: Dataset, ledger: Ledger) -> None:
    with dataset.run("job").reserve(STEP, times=5) as hold:
        assert hold.verify(ledger.key_set())["times"] == 5


def test_a_receipt_is_of_one_authorization_only(dataset: Dataset, ledger: Ledger) -> None:
    account = dataset.run("job")
    one, other = account.authorize(STEP).granted, account.authorize(STEP).granted

    with pytest.raises(BadReceipt, match="sequence"):
        verify_receipt_of(replace(one, receipt=other.receipt), ledger.key_set())


def test_what_was_altered_anywhere_is_no_receipt(dataset: Dataset, ledger: Ledger) -> None:
    receipt, keys = dataset.run("job").authorize(STEP).granted.receipt, ledger.key_set()
    assert verify_receipt(receipt, keys)

    for database_target in range(0, len(receipt), 7):
        other = "A" if receipt[database_target] != "A" else "B"
        with pytest.raises(BadReceipt):
            verify_receipt(receipt[:database_target] + other + receipt[database_target + 1 :], keys)


def test_a_receipt_of_another_service_is_none(dataset: Dataset, ledger: Ledger) -> None:
    receipt = dataset.run("job").authorize(STEP).granted.receipt
    own = ledger.key_set()["keys"]
    stranger = Stranger(1, "stranger")
    impostor = Stranger(1, own[0]["kid"])

    with pytest.raises(BadReceipt, match="no key"):
        verify_receipt(receipt, {"keys": stranger.keys})
    with pytest.raises(BadReceipt, match="no key"):
        verify_receipt(stranger.sign({"dataset": dataset.name}), {"keys": own})
    with pytest.raises(BadReceipt, match="signature"):
        verify_receipt(impostor.sign({"dataset": dataset.name}), {"keys": own})


def test_a_key_that_was_replaced_still_verifies() -> None:
    old, new = Stranger(1, "old"), Stranger(2, "new")
    keys = {"keys": new.keys + old.keys}

    assert verify_receipt(old.sign({"sequence": 1}), keys) == {"sequence": 1}
    assert verify_receipt(new.sign({"sequence": 2}), keys) == {"sequence": 2}


@pytest.mark.parametrize(
    "change",
    [
        {"alg": "none"},
        {"alg": "HS256"},
        {"typ": "JWT"},
        {"crit": ["b64"]},
        {"kid": None},
    ],
)
def test_another_kind_of_token_is_none(change: Any) -> None:
    signer = Stranger(1, "me")
    assert verify_receipt(signer.sign({"a": 1}), {"keys": signer.keys}) == {"a": 1}
    signer.header |= change

    with pytest.raises(BadReceipt):
        verify_receipt(signer.sign({"a": 1}), {"keys": signer.keys})


@pytest.mark.parametrize("change", [{"kty": "RSA"}, {"crv": "X25519"}, {"x": "AAAA"}, {"x": "!"}])
def test_a_key_of_another_kind_verifies_nothing(change: dict[str, str]) -> None:
    signer = Stranger(1, "me")

    with pytest.raises(BadReceipt):
        verify_receipt(signer.sign({"a": 1}), {"keys": [signer.keys[0] | change]})


@pytest.mark.parametrize("statement", [["a", "list"], "text", None])
def test_a_signed_nothing_is_no_receipt(statement: Any) -> None:
    signer = Stranger(1, "me")

    with pytest.raises(BadReceipt, match="nothing"):
        verify_receipt(signer.sign(statement), {"keys": signer.keys})


@pytest.mark.parametrize("text", ["", "a.b", "a.b.c.d", "=.=.=", "é.é.é"])
def test_what_is_no_token_at_all_is_none(text: str) -> None:
    with pytest.raises(BadReceipt):
        verify_receipt(text, {"keys": Stranger(1, "me").keys})


@pytest.mark.parametrize("sample", [None, Poisson(0.125)])
def test_the_digest_of_a_step_is_the_services(sample: Poisson | None) -> None:
    releases = [
        Release(NoisyMax("gumbel", 1.0, 2.0, monotonic=True), purpose="step"),
        Release(STEP, count=3, purpose="gradient"),
    ]
    wire = [{name: value for name, value in r.fields().items() if name != "purpose"} for r in releases]

    step = Step.from_fields(wire, None if sample is None else sample.fields(), "replace-one")

    assert step_digest(releases, sample, "replace-one") == step.digest
