"""The pages of docs/results: each part's figures with their tables, and where they were run."""

import os
import platform
import subprocess
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from benchmarks.papers.cells import Store
from benchmarks.papers.drawing import draw, tables
from benchmarks.papers.figures import Figure
from benchmarks.papers.scales import Scale

__all__ = ["write_page"]


def write_page(name: str, title: str, figures: Sequence[Figure], scale: Scale, store: Store) -> Path:
    """Draw the figures of which anything was run, and put them on one page."""
    folder = store.path.parent
    parts = [f"# {title}\n", f"{_origin()} Claims and settings are in [README.md](README.md).\n"]
    for figure in figures:
        cells = figure.cells(scale)
        done = sum(cell in store for cell in cells)
        if not done:
            parts.append(f"## {figure.title}\n\nNot run: its data are not here.\n")
            continue
        path = draw(figure, cells, store, folder)
        seconds = sum(measured.get("cell_seconds", 0.0) for _, measured in store.of(cells))
        command = f"`python -m benchmarks.papers {figure.name}`"
        parts += [
            f"## {figure.title}\n",
            f"{command}: {done} of {len(cells)} cells, {seconds:.0f} s.\n",
            f"![{figure.title}]({path.name})\n",
            tables(figure, cells, store) + "\n",
        ]
    page = folder / f"{name}.md"
    page.write_text("\n".join(parts), encoding="utf-8")
    return page


def _origin() -> str:
    """Commit, class of machine, versions, date."""
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False
    ).stdout.strip()
    return (
        f"Drawn at commit {commit or 'unknown'}, {os.cpu_count()} cores ({platform.machine()}), one used, "
        f"beside other work; Python {platform.python_version()}, numpy {np.__version__}; "
        f"{datetime.now(UTC).date().isoformat()}."
    )
