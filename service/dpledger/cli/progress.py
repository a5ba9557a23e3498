"""Progress of long work, drawn on standard error for a person who waits, and for nobody else."""

import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import TextIO

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

__all__ = ["show_bar", "show_spinner"]

Step = Callable[[int, int | None], None]
"""Receives how much is done, and of how much if that is known."""


@contextlib.contextmanager
def show_bar(what: str, quiet: bool, terminal: TextIO | None = None) -> Iterator[Step]:
    """A bar that disappears when the work is done; nothing unless standard error is a terminal."""
    if quiet or not _is_terminal(terminal):
        yield lambda done, total: None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=_console(terminal), transient=True) as progress:
        task = progress.add_task(what, total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)


@contextlib.contextmanager
def show_spinner(what: str, quiet: bool, terminal: TextIO | None = None) -> Iterator[None]:
    """A sign of life while something is computed."""
    if quiet or not _is_terminal(terminal):
        yield
        return
    with _console(terminal).status(what):
        yield


def _is_terminal(terminal: TextIO | None) -> bool:
    return (terminal or sys.stderr).isatty()


def _console(terminal: TextIO | None) -> Console:
    return Console(
        file=terminal or sys.stderr, force_terminal=True, markup=False, highlight=False, emoji=False
    )
