"""New keys for receipts: old receipts stay good, and so do tokens."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from dpledger_client import verify_receipt
from tests.api.service import Service, made, running

SCRIPT = Path(__file__).resolve().parents[2] / "deploy" / "rotate_keys.py"


def key_set(service: Service) -> dict[str, Any]:
    found: dict[str, Any] = service.client.get("/.well-known/dpledger-keys.json").json()
    return found


def rotate(path: Path) -> None:
    subprocess.run([sys.executable, str(SCRIPT), str(path)], check=True)


def test_receipts_of_the_old_key_can_still_be_verified(tmp_path: Path) -> None:
    database, keys = f"sqlite:///{tmp_path / 'ledger.db'}", tmp_path / "keys.json"
    with running(database, keys) as service:
        token = service.token
        service.open("adult")
        old = made(service.authorize(key="old"))["receipt"]

    rotate(keys)

    with running(database, keys) as service:
        service = service.as_bearer(token)
        new = made(service.authorize(key="new"))["receipt"]
        published = key_set(service)
    assert len(published["keys"]) == 2
    assert verify_receipt(old, published)["sequence"] == 2
    assert verify_receipt(new, published)["sequence"] == 3


def test_the_file_stays_closed_to_others_and_keeps_its_history(tmp_path: Path) -> None:
    keys = tmp_path / "keys.json"
    with running(f"sqlite:///{tmp_path / 'ledger.db'}", keys):
        pass
    before = json.loads(keys.read_text())

    for _ in range(2):
        rotate(keys)

    after = json.loads(keys.read_text())
    assert keys.stat().st_mode & 0o777 == 0o600
    assert after["token_key"] == before["token_key"]
    assert after["receipt_seed"] != before["receipt_seed"]
    assert len(after["retired_public_keys"]) == 2
    assert [path.name for path in tmp_path.iterdir() if path.name.endswith(".new")] == []


def test_whoever_could_read_the_file_still_can(tmp_path: Path) -> None:
    keys = tmp_path / "keys.json"
    with running(f"sqlite:///{tmp_path / 'ledger.db'}", keys):
        pass
    keys.chmod(0o640)
    if os.geteuid() == 0:
        os.chown(keys, 10001, 10001)
    before = keys.stat()

    rotate(keys)

    after = keys.stat()
    assert (after.st_mode, after.st_uid, after.st_gid) == (before.st_mode, before.st_uid, before.st_gid)


@pytest.mark.parametrize(
    ("content", "said"),
    [(None, "No such file or directory"), ("{}", "not a key file"), ("?", "not a key file")],
)
def test_what_is_no_key_file_is_reported_in_one_line_and_left_alone(
    tmp_path: Path, content: str | None, said: str
) -> None:
    keys = tmp_path / "keys.json"
    if content is not None:
        keys.write_text(content)

    ended = subprocess.run(
        [sys.executable, str(SCRIPT), str(keys)], capture_output=True, text=True, check=False
    )

    assert (ended.returncode, ended.stdout, ended.stderr) == (1, "", f"{keys}: {said}\n")
    assert not keys.exists() or keys.read_text() == content
