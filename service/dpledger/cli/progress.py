"""Progress of long work, drawn on standard error for a person who waits, and for nobody else."""

import contextlib
import sys
from collections.abc import Callable, Iterator

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

__all__ = ["drawn", "waiting"]

Step = Callable[[int, int | None], None]
"""Told how much is done, and of how much if that is known."""


@contextlib.contextmanager
def drawn(what: str, quiet: bool) -> Iterator[Step]:
    """A bar that disappears when the work is done; nothing unless standard error is a terminal."""
    if quiet or not _somebody_looks():
        yield lambda done, total: None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=_console(), transient=True) as progress:
        task = progress.add_task(what, total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)


@contextlib.contextmanager
def waiting(what: str, quiet: bool) -> Iterator[None]:
    """A sign of life while something is computed."""
    if quiet or not _somebody_looks():
        yield
        return
    with _console().status(what):
        yield


def _somebody_looks() -> bool:
    return sys.stderr.isatty()


def _console() -> Console:
    return Console(file=sys.stderr, force_terminal=True, markup=False, highlight=False, emoji=False)
