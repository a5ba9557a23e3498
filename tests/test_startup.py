"""A start loads what it needs; the rest comes right after it."""

import subprocess
import sys
import threading
from pathlib import Path

import pytest

from dpledger.api.services import _LOADED_LATER
from tests.api.service import made, running

NEEDED_LATER = {
    *_LOADED_LATER,
    "psycopg",
    "scipy.linalg",
    "scipy.spatial",
    "opentelemetry.sdk",
    "rich.progress",
}
_ASK = "import sys, dpledger.server; print(*sys.modules)"


def test_the_service_is_loaded_without_what_its_start_does_not_need() -> None:
    loaded = subprocess.run([sys.executable, "-c", _ASK], capture_output=True, text=True, check=True).stdout
    assert "dpledger.server" in loaded.split()
    assert NEEDED_LATER & set(loaded.split()) == set()


def test_the_rest_is_loaded_soon_after_the_start(tmp_path: Path) -> None:
    script = (
        "import sys, time\n"
        "from pathlib import Path\n"
        "from tests.api.service import running\n"
        "folder = Path(sys.argv[1])\n"
        "with running(f'sqlite:///{folder / \"ledger.db\"}', folder / 'keys.json'):\n"
        "    give_up = time.monotonic() + 30\n"
        f"    while not set({list(_LOADED_LATER)}) <= set(sys.modules) and time.monotonic() < give_up:\n"
        "        time.sleep(0.05)\n"
        "print(*sys.modules)\n"
    )
    found = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path)], capture_output=True, text=True, check=True
    ).stdout
    assert set(_LOADED_LATER) <= set(found.split())


def test_what_cannot_be_loaded_keeps_no_service_from_ending_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failed = threading.Event()
    monkeypatch.setattr("dpledger.api.services._LOADED_LATER", ("dpledger.nowhere",))
    monkeypatch.setattr("dpledger.api.services._LOADING_PAUSE_SECONDS", 0.0)
    monkeypatch.setattr("dpledger.api.services.log_failure", lambda _error: failed.set())

    with running(f"sqlite:///{tmp_path / 'ledger.db'}", tmp_path / "keys.json") as service:
        assert failed.wait(30)
        service.open("adult", {"accounting": "zcdp", "rho": 1.0})
        made(service.authorize())
