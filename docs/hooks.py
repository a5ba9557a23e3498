"""Executes the tutorials when the site is built, and shows what their code printed in that build.

A notebook in the repository has no outputs, so that none can be out of date. A cell that fails ends the
build. Nothing is loaded from outside: tables and figures are part of the page.
"""

import html
import os
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

__all__ = ["Notebook", "on_files", "on_page_read_source"]

NO_WIDGETS = "ignore:IProgress not found"
"""Bars are drawn as text: a page has no kernel that a widget could ask."""
COLORS = re.compile(r"\x1b\[[0-9;]*m")
OUTPUT = "{ .text .output }"
"""The fence of what a cell printed: text, with a class that ``tutorials/outputs.css`` draws a line beside."""
CELL_SECONDS = 120
"""No cell takes near as long: one that hangs fails instead of holding up the build."""


class Notebook(File):  # type: ignore[misc]  # mkdocs is in another environment
    """A notebook, which is a page like a Markdown file."""

    def is_documentation_page(self) -> bool:
        """What tells mkdocs to make a page of it."""
        return True


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Make pages of notebooks, before mkdocs looks for pages."""
    for found in [file for file in files if file.src_uri.endswith(".ipynb")]:
        files.remove(found)
        place = config.docs_dir, config.site_dir, config.use_directory_urls
        files.append(Notebook(found.src_uri, *place))
    return files


def on_page_read_source(*, page: Page, config: MkDocsConfig) -> str | None:  # noqa: ARG001
    """The Markdown of a notebook; None leaves other pages to mkdocs."""
    if not isinstance(page.file, Notebook):
        return None
    return "\n\n".join(_blocks(_execute(Path(str(page.file.abs_src_path))))) + "\n"


def _execute(path: Path) -> Any:
    """The notebook with its outputs, run in an empty folder."""
    notebook = nbformat.read(path, as_version=4)
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as settings:
        client = NotebookClient(
            notebook,
            timeout=CELL_SECONDS,
            startup_timeout=CELL_SECONDS,
            kernel_name="python3",
            coalesce_streams=True,
            resources={"metadata": {"path": folder}},
            extra_arguments=["--log-level=ERROR"],
        )
        own = {"IPYTHONDIR": settings, "MPLCONFIGDIR": settings, "PYTHONWARNINGS": NO_WIDGETS}
        try:
            client.execute(env={**os.environ, **own})
        except CellExecutionError as error:
            raise PluginError(f"{path.name} failed:\n{error}") from None
    return notebook


def _blocks(notebook: Any) -> Iterator[str]:
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            yield cell.source
            continue
        yield _fenced("python", cell.source)
        shown = (_shown(output, cell.metadata.get("alt", "")) for output in cell.outputs)
        yield from filter(None, shown)


def _shown(output: Any, alternative: str) -> str:
    """An output as Markdown: a table, a figure with its description, text, or nothing."""
    if output.output_type == "stream":
        text = _as_drawn(output.text)
        return _fenced(OUTPUT, text) if text.strip() else ""
    if "text/html" in output.data:
        return f'<div class="output">{"".join(output.data["text/html"].splitlines())}</div>'
    if "image/png" in output.data:
        encoded = "".join(output.data["image/png"].split())
        return f'<img class="output" alt="{html.escape(alternative)}" src="data:image/png;base64,{encoded}">'
    return _fenced(OUTPUT, output.data["text/plain"])


def _as_drawn(text: str) -> str:
    """What a terminal shows in the end: of a line that was drawn anew, such as a bar, the last."""
    lines = COLORS.sub("", text).split("\n")
    return "\n".join(line.rstrip("\r").rpartition("\r")[2].rstrip() for line in lines)


def _fenced(language: str, text: str) -> str:
    return f"````{language}\n{text.rstrip()}\n````"
