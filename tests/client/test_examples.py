"""Every example runs by itself, without a service, and tells what became of the budget."""

import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "examples"
EXAMPLES = sorted(set(FOLDER.glob("*.py")) - {FOLDER / "connection.py"})


def test_there_are_examples() -> None:
    assert EXAMPLES


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_it_runs_and_tells_of_the_budget(example: Path, tmp_path: Path) -> None:
    command = [sys.executable, str(example), "--embedded", str(tmp_path / "ledger.db")]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, cwd=tmp_path)
    assert ended.returncode == 0, ended.stderr
    assert "budget" in ended.stdout


def test_without_a_service_or_a_file_it_says_what_to_give(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DPLEDGER_TOKEN", raising=False)
    command = [sys.executable, str(FOLDER / "adaptive.py")]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, cwd=tmp_path)
    assert ended.returncode == 2
    assert ended.stderr.splitlines()[-1].endswith(
        "set DPLEDGER_TOKEN to the token that `make run` printed, or give --embedded FILE"
    )
