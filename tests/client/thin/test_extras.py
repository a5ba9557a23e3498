"""The client works with numpy and an HTTP library alone, and says what it misses for the rest."""

import subprocess
import sys
from pathlib import Path

import pytest

from dpledger_client import Ledger, MissingExtra, verify_receipt


def _imported_by(statement: str) -> set[str]:
    program = f"import sys; {statement}; print(*{{name.partition('.')[0] for name in sys.modules}})"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_importing_the_client_imports_nothing_optional() -> None:
    imported = _imported_by("import dpledger_client, dpledger_client.objectives")

    assert {"numpy", "httpx2"} <= imported
    assert not imported & {"dpledger", "cryptography", "scipy", "torch", "sklearn", "fastapi", "sqlalchemy"}


def test_an_embedded_ledger_without_the_service_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "dpledger", None)
    monkeypatch.setitem(sys.modules, "dpledger.settings", None)

    with pytest.raises(MissingExtra, match="embedded"):
        Ledger.embedded(tmp_path / "ledger.db").key_set()


def test_a_receipt_without_cryptography_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("cryptography", "cryptography.exceptions"):
        monkeypatch.setitem(sys.modules, name, None)
    header = "eyJhbGciOiJFZERTQSIsImtpZCI6ImsiLCJ0eXAiOiJkcGxlZGdlci1yZWNlaXB0K2p3cyJ9"
    keys = {"keys": [{"kid": "k", "kty": "OKP", "crv": "Ed25519", "x": "AAAA"}]}

    with pytest.raises(MissingExtra, match="receipts"):
        verify_receipt(f"{header}.e30.AAAA", keys)
