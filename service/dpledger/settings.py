"""What an operator chooses when the service starts."""

from dataclasses import dataclass
from pathlib import Path

from sqlalchemy.exc import ArgumentError

from dpledger.storage.engines import normalized_url

__all__ = ["DEFAULT_DATABASE", "InvalidSettings", "Settings"]

DEFAULT_DATABASE = "sqlite:///budget.db"
_BACKENDS = ("sqlite", "postgresql")


class InvalidSettings(ValueError):
    """A setting that the service cannot start with; ``option`` is its name on the command line."""

    def __init__(self, option: str, problem: str) -> None:
        self.option = option
        super().__init__(problem)


@dataclass(frozen=True)
class Settings:
    """Settings of one service process, checked when they are made.

    Parameters
    ----------
    database
        Where the ledger is kept, as an SQLAlchemy URL: SQLite (the default, one file) or PostgreSQL.
    key_file
        The file with the server's own secrets. Beside an SQLite file, ``<file>.keys.json`` is made
        at the first start; for PostgreSQL it must be named, because all replicas need the same one.
    expiry_seconds
        How often reservations are looked for that nobody settled in time.
    """

    database: str = DEFAULT_DATABASE
    key_file: Path | None = None
    expiry_seconds: float = 2.0

    def __post_init__(self) -> None:
        self.keys_path()

    @property
    def is_sqlite(self) -> bool:
        """Whether the ledger is one file."""
        return self._backend() == "sqlite"

    def keys_path(self) -> Path:
        """Where the server's secrets are."""
        backend = self._backend()
        if self.key_file is not None:
            return self.key_file
        if backend != "sqlite":
            raise InvalidSettings("--key-file", "a PostgreSQL ledger needs DPLEDGER_KEY_FILE or --key-file")
        return Path(f"{_sqlite_file(self.database)}.keys.json")

    def _backend(self) -> str:
        # The URL may carry a password: no message repeats it.
        try:
            backend = normalized_url(self.database).get_backend_name()
        except ArgumentError:
            raise InvalidSettings(
                "--database", f"must be a URL of {' or '.join(_BACKENDS)}, such as {DEFAULT_DATABASE}"
            ) from None
        return backend


def _sqlite_file(database: str) -> str:
    path = normalized_url(database).database
    if not path or ":memory:" in path or "mode=memory" in path:
        raise InvalidSettings("--database", f"must be a file, such as {DEFAULT_DATABASE}")
    return path.removeprefix("file:").partition("?")[0]
