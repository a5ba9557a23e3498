"""What the documentation says of the client is so."""

import re
import subprocess
import sys
from pathlib import Path

from dpledger_client.optimizers import METHODS

ROOT = Path(__file__).resolve().parents[2]
PAGES = ROOT / "docs" / "optimizers"


def _example() -> tuple[str, str]:
    """The README's example of a training job, and what it says that it prints."""
    section = (ROOT / "README.md").read_text().split("\n## A training job\n")[1].split("\n## ")[0]
    lines = [line[4:] for line in section.splitlines() if line.startswith("    ")]
    return "\n".join(lines), lines[-1].removeprefix("# ")


def test_the_readmes_example_runs_and_prints_what_it_says(tmp_path: Path) -> None:
    code, printed = _example()
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True, timeout=120
    )
    assert re.fullmatch(r"finished 9\d% right, 1\.0 of ε left", printed)
    assert re.fullmatch(r"finished (9\d|100)% right, 1\.0 of ε left\n", done.stdout)


def test_every_method_is_listed_and_every_page_is_there() -> None:
    index = (PAGES / "README.md").read_text()
    table = [line for line in index.splitlines() if line.startswith("| `")]
    listed = {name for line in table for name in re.findall(r"`([a-z-]+)`", line.split("|")[1])}
    assert set(METHODS) <= listed
    for page in re.findall(r"\]\((\w+\.md)\)", index):
        assert (PAGES / page).is_file(), page
    assert {page.name for page in PAGES.glob("*.md")} == {*re.findall(r"\]\((\w+\.md)\)", index), "README.md"}
