"""A progress bar: what is done, and what is left of the budget. By tqdm where that is installed."""

import abc
import importlib
import sys
import time
import warnings
from collections.abc import Callable, Mapping
from typing import Any, TextIO, TypeAlias

__all__ = ["Bar", "DrawnBar", "Progress", "TqdmBar", "chosen_progress", "no_progress"]

Progress: TypeAlias = Callable[[int, int | None, Mapping[str, Any]], None]
"""Called after each iteration with its number, how many are planned, and what the ledger says is left."""

_WIDTH = 24
_PAUSE_SECONDS = 0.1


def no_progress(_done: int, _planned: int | None, _remaining: Mapping[str, Any]) -> None:
    """Show nothing."""


class Bar(abc.ABC):
    """Something that is drawn until it is closed."""

    @abc.abstractmethod
    def __call__(self, done: int, planned: int | None, remaining: Mapping[str, Any]) -> None:
        """Show what is done, and what is left."""

    @abc.abstractmethod
    def close(self) -> None:
        """Draw no more."""


class DrawnBar(Bar):
    """A line that is drawn anew, at most ten times per second and at the end."""

    def __init__(self, label: str, stream: TextIO) -> None:
        self._label = label
        self._stream = stream
        self._started = time.monotonic()
        self._drawn = -_PAUSE_SECONDS

    def __call__(self, done: int, planned: int | None, remaining: Mapping[str, Any]) -> None:
        now = time.monotonic() - self._started
        if now - self._drawn < _PAUSE_SECONDS and done != planned:
            return
        self._drawn = now
        self._stream.write("\r" + self._line(done, planned, remaining, now))
        self._stream.flush()

    def close(self) -> None:
        """End the line, if one was drawn."""
        if self._drawn >= 0.0:
            self._stream.write("\n")

    def _line(self, done: int, planned: int | None, remaining: Mapping[str, Any], seconds: float) -> str:
        share = min(1.0, done / planned) if planned else 0.0
        filled = round(share * _WIDTH)
        count = f"{done}/{planned}" if planned else str(done)
        left = _left_text(remaining)
        shown = f"  {left}" if left else ""
        return f"{self._label}  {'█' * filled}{'·' * (_WIDTH - filled)}  {count}{shown}  {seconds:.0f} s "


class TqdmBar(Bar):
    """A bar of ``tqdm.auto``: a line on a terminal, a widget in a notebook."""

    def __init__(self, label: str, tqdm: Callable[..., Any]) -> None:
        self._bar = tqdm(desc=label, total=None)

    def __call__(self, done: int, planned: int | None, remaining: Mapping[str, Any]) -> None:
        if planned is not None and self._bar.total != planned:
            self._bar.total = planned
        left = _left_text(remaining)
        if left:
            self._bar.set_postfix_str(left, refresh=False)
        self._bar.update(done - self._bar.n)

    def close(self) -> None:
        """Leave what was drawn last."""
        self._bar.close()


def _left_text(remaining: Mapping[str, Any]) -> str:
    fraction = remaining.get("fraction")
    return "" if fraction is None else f"budget left {100 * float(fraction):.1f} %"


def chosen_progress(wanted: bool | Progress | None, label: str) -> Progress:
    """A bar if it is wanted, or, for None, if somebody can see it: on a terminal, or in a notebook."""
    if callable(wanted):
        return wanted
    tqdm = _tqdm() if wanted or (wanted is None and _is_seen()) else None
    if tqdm is not None:
        return TqdmBar(label, tqdm)
    shown = sys.stderr.isatty() if wanted is None else wanted
    return DrawnBar(label, sys.stderr) if shown else no_progress


def _is_seen() -> bool:
    return sys.stderr.isatty() or _is_notebook()


def _is_notebook() -> bool:
    """Whether this process is a notebook's kernel, whose errors are no terminal."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return getattr(shell, "kernel", None) is not None


def _tqdm() -> Callable[..., Any] | None:
    """``tqdm.auto.tqdm``; None where it is not installed."""
    try:
        with warnings.catch_warnings():
            # In a notebook without widgets it draws a line of text, and warns that it does.
            warnings.simplefilter("ignore")
            found: Callable[..., Any] = importlib.import_module("tqdm.auto").tqdm
    except ImportError:
        return None
    return found
