"""Tutorials are kept as they are written: ``make docs`` runs them, and shows what they print then."""

import ast
import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
TUTORIALS = sorted((DOCS / "tutorials").glob("*.ipynb"))
CELLS = range(10, 21)
OUTSIDE = re.compile(r"https?://(?!127\.0\.0\.1)")


def read_cells(tutorial: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(tutorial.read_text(encoding="utf-8"))["cells"]
    return found


def source_of(cell: dict[str, Any]) -> str:
    return "".join(cell["source"])


def test_there_is_one_for_each_audience() -> None:
    assert [path.stem for path in TUTORIALS] == ["auditor", "platform-engineer", "researcher"]


@pytest.mark.parametrize("tutorial", TUTORIALS, ids=lambda path: path.stem)
def test_no_output_is_kept(tutorial: Path) -> None:
    """One that is not kept cannot be out of date."""
    for cell in read_cells(tutorial):
        if cell["cell_type"] == "code":
            assert (cell["outputs"], cell["execution_count"]) == ([], None), cell["id"]


@pytest.mark.parametrize("tutorial", TUTORIALS, ids=lambda path: path.stem)
def test_it_is_short_plain_python_and_asks_nobody_outside(tutorial: Path) -> None:
    cells = read_cells(tutorial)
    assert len(cells) in CELLS
    for cell in cells:
        assert not OUTSIDE.search(source_of(cell)), cell["id"]
        if cell["cell_type"] == "code":
            ast.parse(source_of(cell))
    assert cells[0]["cell_type"] == "markdown"
    assert source_of(cells[0]).startswith("# For a")


@pytest.mark.parametrize("tutorial", TUTORIALS, ids=lambda path: path.stem)
def test_it_is_a_page_of_the_site_and_named_on_the_first_pages(tutorial: Path) -> None:
    site = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
    pages = [place for section in site["nav"] for place in section.get("Tutorials", [])]
    name = f"tutorials/{tutorial.name}"
    assert name in [place for page in pages for place in page.values()]
    assert f"]({name})" in (DOCS / "index.md").read_text(encoding="utf-8")
    assert f"](docs/{name})" in (ROOT / "README.md").read_text(encoding="utf-8")
