"""A progress bar on the terminal: what is done, and what is left of the budget."""

import sys
import time
from collections.abc import Callable, Mapping
from typing import Any, TextIO, TypeAlias

__all__ = ["Bar", "Progress", "chosen_progress", "no_progress"]

Progress: TypeAlias = Callable[[int, int | None, Mapping[str, Any]], None]
"""Called after each iteration with its number, how many are planned, and what the ledger says is left."""

_WIDTH = 24
_PAUSE_SECONDS = 0.1


def no_progress(_done: int, _planned: int | None, _remaining: Mapping[str, Any]) -> None:
    """Show nothing."""


class Bar:
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
        fraction = remaining.get("fraction")
        left = "" if fraction is None else f"  budget left {100 * float(fraction):.1f} %"
        return f"{self._label}  {'█' * filled}{'·' * (_WIDTH - filled)}  {count}{left}  {seconds:.0f} s "


def chosen_progress(wanted: bool | Progress | None, label: str) -> Progress:
    """A bar if it is wanted, or, for None, if somebody can see it."""
    if callable(wanted):
        return wanted
    shown = sys.stderr.isatty() if wanted is None else wanted
    return Bar(label, sys.stderr) if shown else no_progress
