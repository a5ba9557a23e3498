"""Copies whole ledgers: SQLite by its online backup, PostgreSQL by pg_dump and pg_restore.

Neither stops the service. A copy holds what was committed when it began, or a moment later; no high-water
mark is copied or changed, so that a ledger that was put back is found behind it.
"""

import contextlib
import os
import re
import shutil
import sqlite3
import subprocess  # PostgreSQL's own programs, without a shell  # nosec B404
from pathlib import Path
from typing import Any

from psycopg.conninfo import make_conninfo
from psycopg.pq import Conninfo
from sqlalchemy.dialects.postgresql.psycopg import PGDialect_psycopg
from sqlalchemy.engine import URL

from dpledger.storage.engine.engines import BUSY_SECONDS, normalized_url, sqlite_file

__all__ = [
    "BackupFailed",
    "archived_tables",
    "check_readable",
    "copy_file",
    "copy_ledger",
    "put_back_postgresql",
    "put_back_sqlite",
    "sqlite_url",
]

_OWNER_ONLY = 0o600
_ASIDE = ".replaced"
_SECRET = b"*"
"""How PostgreSQL's client library marks parameters that nobody should see."""
_LOGS = ("-wal", "-journal")
_TABLE = re.compile(r"\d+; \d+ \d+ TABLE \S+ (\S+) .*")


class BackupFailed(Exception):
    """A copy could not be made, read or put back."""


def copy_ledger(url: str, output: Path) -> None:
    """Write a copy of the ledger to a new file, which its owner alone may read."""
    parsed = normalized_url(url)
    os.close(_create_alone(output))
    if parsed.get_backend_name() == "sqlite":
        _copy_sqlite(sqlite_file(parsed), output)
    else:
        _run(parsed, "pg_dump", "--format=custom", "--no-owner", "--no-privileges", f"--file={output}")
        check_readable(output)


def copy_file(source: Path, target: Path) -> None:
    """Copy a file that no other process writes to a new one, which its owner alone may read."""
    with source.open("rb") as old, open(_create_alone(target), "wb") as new:
        shutil.copyfileobj(old, new)


def _create_alone(path: Path) -> int:
    """Make a new file, through no link that somebody else has put there."""
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _OWNER_ONLY)


def sqlite_url(file: Path) -> str:
    """The URL of a file; refuses a path that would be read as another file's, which is then verified."""
    url = f"sqlite:///{file}"
    if sqlite_file(normalized_url(url)) != file:
        raise BackupFailed(f"{file} cannot be named in a URL: rename it, without ?")
    return url


def archived_tables(archive: Path) -> set[str]:
    """The tables that an archive of pg_dump brings."""
    listed = _run(None, "pg_restore", "--list", str(archive)).splitlines()
    return {found[1] for line in listed if (found := _TABLE.fullmatch(line)) is not None}


def check_readable(archive: Path) -> None:
    """Read an archive of pg_dump to its end."""
    _run(None, "pg_restore", "--file=/dev/null", str(archive))


def _copy_sqlite(source: Path, target: Path) -> None:
    """Page by page with the log's newest entries; begins anew where another process writes meanwhile."""
    address = f"{source.resolve().as_uri()}?mode=ro"
    with (
        contextlib.closing(sqlite3.connect(address, uri=True, timeout=BUSY_SECONDS)) as old,
        contextlib.closing(sqlite3.connect(target, timeout=BUSY_SECONDS)) as new,
    ):
        old.backup(new)
        # One file, without a log beside it, whatever the ledger's own mode is.
        new.execute("PRAGMA journal_mode=DELETE")
        (said,) = new.execute("PRAGMA integrity_check").fetchone()
    if said != "ok":
        raise BackupFailed(f"the copy of {source} is damaged: {said}")
    _sync(target)


def put_back_sqlite(checked: Path, target: Path) -> Path | None:
    """Give a file the ledger's name; what had it is moved aside, and its new name returned.

    Raises BackupFailed while any process has the ledger open: it would go on with the file that it has.
    """
    aside = target.with_name(f"{target.name}{_ASIDE}")
    if not target.exists():
        _refuse_logs(target)
    else:
        if aside.exists():
            raise BackupFailed(f"{aside} exists, from an earlier restoration; move it away")
        _take_alone(target)
        target.rename(aside)
    _sync(checked)
    checked.replace(target)
    _sync(target.resolve().parent)
    return aside if aside.exists() else None


def _refuse_logs(target: Path) -> None:
    """Refuse a log that a lost ledger has left: SQLite would write it over what is put in its place."""
    for log in (target.with_name(f"{target.name}{ending}") for ending in _LOGS):
        if log.exists() and log.stat().st_size:
            raise BackupFailed(
                f"{log} is there without its ledger, and may hold what was recorded last: move it away, and"
                " keep it"
            )


def _take_alone(file: Path) -> None:
    """Bring the log into the file. SQLite does that for the last connection alone."""
    try:
        with contextlib.closing(sqlite3.connect(file, timeout=0.5)) as connection:
            (mode,) = connection.execute("PRAGMA journal_mode=DELETE").fetchone()
    except sqlite3.OperationalError as error:
        raise BackupFailed(f"{file} is in use: stop its services first ({error})") from None
    if mode != "delete":
        raise BackupFailed(f"{file} is in use: stop its services first")


def put_back_postgresql(archive: Path, url: str, *, replace: bool) -> None:
    """Load an archive into a database, all of it or nothing; ``replace`` drops the ledger that is there."""
    clean = ("--clean", "--if-exists") if replace else ()
    options = ("--no-owner", "--no-privileges", "--exit-on-error", "--single-transaction", *clean)
    _run(normalized_url(url), "pg_restore", *options, str(archive))


def _run(url: URL | None, program: str, *arguments: str) -> str:
    """Run one of PostgreSQL's programs; secrets go by the environment, which others cannot see."""
    found = shutil.which(program)
    if found is None:
        raise BackupFailed(f"{program} is not on the path; it comes with PostgreSQL's client")
    where, environment = [], dict(os.environ)
    if url is not None:
        # The dialect of a URL without a database needs no connection to be asked.
        _, named = PGDialect_psycopg().create_connect_args(url)  # type: ignore[no-untyped-call]
        environment |= _take_secrets(named)
        where = [f"--dbname={make_conninfo('', **{'target_session_attrs': 'read-write', **named})}"]
    command = [found, *where, *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)  # nosec B603
    if done.returncode != 0:
        said = done.stderr.strip().splitlines() or [f"ended with {done.returncode}"]
        raise BackupFailed(f"{program}: {said[0]}")
    return done.stdout


def _take_secrets(named: dict[str, Any]) -> dict[str, str]:
    """Take secrets out of a connection's parameters; the environment's variables that hold them instead."""
    taken: dict[str, str] = {}
    for option in Conninfo.get_defaults():
        name = option.keyword.decode()
        if option.dispchar != _SECRET or name not in named:
            continue
        if option.envvar is None:
            raise BackupFailed(
                f"{name} would be on the command line, for others to see: name it in a service file of"
                " PostgreSQL instead, and that by service= in the URL"
            )
        taken[option.envvar.decode()] = str(named.pop(name))
    return taken


def _sync(path: Path) -> None:
    """Have a file, or a folder's names, on disk."""
    opened = os.open(path, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)
