"""Every example runs by itself, without a service, and tells what became of the budget."""

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*.py"))


def test_there_are_examples() -> None:
    assert EXAMPLES


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_it_runs_and_tells_of_the_budget(example: Path, tmp_path: Path) -> None:
    command = [sys.executable, str(example), "--embedded", str(tmp_path / "ledger.db")]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, cwd=tmp_path)
    assert ended.returncode == 0, ended.stderr
    assert "budget" in ended.stdout
