"""A pooler that drops the service's settings or hands its sessions around is refused in one line."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.running import Ended, run
from tests.deploy.clusters import Server, make_primary, server
from tests.deploy.poolers import pooled

IGNORED = "ignore_startup_parameters = options,extra_float_digits"
SETTINGS = {
    "statement_timeout": "30s",
    "lock_timeout": "5s",
    "idle_in_transaction_session_timeout": "30s",
    "synchronous_commit": "on",
    "enable_seqscan": "off",
    "jit": "off",
}


@pytest.fixture(scope="module")
def primary() -> Iterator[Server]:
    with server() as primary:
        make_primary(primary)
        yield primary


def started(url: str, folder: Path) -> Ended:
    return run("serve", "--port", "0", "--database", url, "--key-file", str(folder / "keys.json"))


@pytest.mark.parametrize("mode", ["transaction", "statement", "session"])
def test_a_pooler_that_drops_the_settings_is_refused(primary: Server, mode: str, tmp_path: Path) -> None:
    with pooled(primary, mode, IGNORED) as url:
        started(url, tmp_path).failed(2, "statement_timeout", "30s", "pgbouncer")


def test_a_pooler_that_takes_no_settings_is_refused_with_its_reason(primary: Server, tmp_path: Path) -> None:
    with pooled(primary, "transaction") as url:
        started(url, tmp_path).failed(6, "unsupported startup parameter", "pgbouncer")


def test_a_pooler_is_refused_although_the_role_has_the_settings(primary: Server, tmp_path: Path) -> None:
    """They are then as asked for; but a session's prepared statements would be another's."""
    with primary.connect() as connection:
        for name, value in SETTINGS.items():
            connection.execute(f"ALTER ROLE dpledger SET {name} = '{value}'")
    try:
        with pooled(primary, "transaction", IGNORED) as url:
            started(url, tmp_path).failed(2, "pgbouncer", "connect to the server itself")
    finally:
        with primary.connect() as connection:
            connection.execute("ALTER ROLE dpledger RESET ALL")
