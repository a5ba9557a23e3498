"""A real pgbouncer before a PostgreSQL of our own."""

import contextlib
import shutil
import subprocess
import time
from collections.abc import Iterator

import psycopg

from tests.deploy.clusters import PASSWORD, SERVANT, Server
from tests.reliability.processes import free_port

PGBOUNCER = shutil.which("pgbouncer", path="/usr/sbin:/usr/bin:/usr/local/sbin:/usr/local/bin")
PATIENCE_SECONDS = 30.0


@contextlib.contextmanager
def pooled(server: Server, mode: str, *more: str) -> Iterator[str]:
    """The URL of a pooler before a running server; ``more`` are lines of its settings."""
    assert PGBOUNCER is not None, "no pgbouncer here: apt-get install pgbouncer"
    port = free_port()
    target = f"host=127.0.0.1 port={server.port} user=dpledger password='{PASSWORD}'"
    lines = [
        "[databases]",
        f"postgres = {target}",
        "[pgbouncer]",
        "listen_addr = 127.0.0.1",
        f"listen_port = {port}",
        "unix_socket_dir =",
        "auth_type = any",
        f"pool_mode = {mode}",
        "default_pool_size = 3",
        *more,
    ]
    settings = server.folder / f"pgbouncer-{port}.ini"
    settings.write_text("\n".join(lines) + "\n")
    with (server.folder / "pgbouncer.log").open("ab") as log:
        process = subprocess.Popen([PGBOUNCER, str(settings)], user=SERVANT, stdout=log, stderr=log)
    url = f"postgresql://dpledger@127.0.0.1:{port}/postgres"
    try:
        _wait_until_it_answers(url)
        yield url
    finally:
        process.terminate()
        process.wait(PATIENCE_SECONDS)


def _wait_until_it_answers(url: str) -> None:
    give_up = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            psycopg.connect(url).close()
            return
        except psycopg.OperationalError:
            assert time.monotonic() < give_up
        time.sleep(0.05)
