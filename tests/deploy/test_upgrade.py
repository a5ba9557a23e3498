"""Upgrades: ledgers of the first schema keep their history, and replicas of two versions serve together."""

import gzip
import itertools
import os
import subprocess
import sys
import tarfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, MetaData, insert, select

from dpledger.auth.keys import load_keys
from dpledger.ledger.reader import LedgerReader
from dpledger.storage import migrate
from dpledger.storage.engine.engines import make_engine
from dpledger.storage.repository import open_storage
from tests.chaos.faults import stream
from tests.chaos.history import History
from tests.chaos.storm import Caller, look_back
from tests.chaos.verdict import judge
from tests.chaos.workload import Scenery, Workload
from tests.reliability.database_targets import DatabaseTarget
from tests.reliability.processes import Running, await_service, free_port, start_service
from tests.reliability.wire import HOST, Ask, ask
from tests.support.databases import KINDS, PostgresqlServer

RECORDED = Path(__file__).parents[1] / "wire" / "recorded" / "ledger-0002.db.gz"
RELEASED = Path(__file__).parent / "recorded" / "service-0006.tar.xz"
"""The service as it was at schema 0006, with its migrations."""
TOGETHER_SECONDS = 2.0


def first_ledger(folder: Path) -> Engine:
    """A recorded ledger of every kind at that time, at the schema of the first migration."""
    file = folder / "first.db"
    file.write_bytes(gzip.decompress(RECORDED.read_bytes()))
    engine = make_engine(f"sqlite:///{file}")
    migrate.downgrade(engine, "0001", allow_data_loss=True)
    return engine


def copied(source: Engine, target: Engine) -> None:
    """Every row, table by table, those before others that these refer to."""
    tables, into = MetaData(), MetaData()
    tables.reflect(source)
    migrate.upgrade(target, "0001")
    into.reflect(target)
    with source.connect() as old, target.begin() as new:
        new.execute(into.tables["meta"].delete())
        for table in into.sorted_tables:
            rows = [dict(row) for row in old.execute(select(tables.tables[table.name])).mappings()]
            if rows and table.name != "alembic_version":
                new.execute(insert(table), rows)


def hashes(engine: Engine) -> list[Any]:
    with engine.connect() as connection:
        rows = connection.exec_driver_sql("SELECT dataset_id, sequence, hash FROM entries ORDER BY 1, 2")
        return [(dataset, sequence, bytes(entry)) for dataset, sequence, entry in rows]


@pytest.fixture(params=KINDS)
def blank_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'blank.db'}"
    server: PostgresqlServer = request.getfixturevalue("postgresql")
    return server.create()


def test_a_ledger_of_the_first_migration_reaches_head_with_its_history(
    blank_url: str, tmp_path: Path
) -> None:
    first, engine = first_ledger(tmp_path), make_engine(blank_url)
    copied(first, engine)
    before = hashes(engine)
    assert (migrate.revision(engine), len(before) > 50) == ("0001", True)

    storage = open_storage(blank_url)

    assert migrate.revision(engine) == migrate.head_revision()
    assert hashes(engine) == before == hashes(first)
    reader = LedgerReader(storage)
    names = [each["name"] for each in reader.datasets("", 1000)]
    verdicts = [reader.verification(name) for name in names]
    assert len(names) > 10
    assert [each["problems"] for each in verdicts if not each["valid"]] == []
    storage.close()
    for each in (first, engine):
        each.dispose()


@pytest.fixture(scope="module")
def released(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("released")
    with tarfile.open(RELEASED) as archive:
        archive.extractall(folder, filter="data")
    return folder


def released_command(released: Path, *arguments: str) -> tuple[list[str], dict[str, str]]:
    environment = {**os.environ, "PYTHONPATH": str(released / "service"), "PYTHONDONTWRITEBYTECODE": "1"}
    return [sys.executable, "-m", "dpledger.cli", *arguments], environment


def released_target(released: Path, url: str, folder: Path) -> DatabaseTarget:
    """A ledger that the released version makes."""
    keys = folder / "keys.json"
    where = ["--database", url, "--key-file", str(keys)]
    command, environment = released_command(released, "token", "create", "--scope", "admin", *where)
    made = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    return DatabaseTarget(url, keys, made.stdout.strip())


@contextmanager
def released_service(released: Path, target: DatabaseTarget) -> Iterator[Running]:
    port = free_port()
    where = ["--database", target.database, "--key-file", str(target.key_file)]
    arguments = ["serve", "--host", HOST, "--port", str(port), *where]
    command, environment = released_command(released, *arguments)
    log = target.key_file.with_name("released.log")
    with log.open("wb") as file:
        process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=file)
    running = Running(process, port, log)
    try:
        await_service(running)
        yield running
    finally:
        process.kill()
        process.wait()


def revision_of(url: str) -> str | None:
    engine = make_engine(url)
    try:
        return migrate.revision(engine)
    finally:
        engine.dispose()


def callers(
    ports: list[int], target: DatabaseTarget, history: History, over: threading.Event
) -> list[Caller]:
    scenery, numbers = Scenery(), itertools.count()
    return [
        Caller(
            port,
            target.token,
            Workload(f"caller{number}", scenery, stream(3, number)),
            history,
            over,
            threading.Event(),
        )
        for port, number in zip(ports, numbers, strict=False)
    ]


def test_replicas_of_two_versions_serve_together(released: Path, blank_url: str, tmp_path: Path) -> None:
    """The released one is under load while the new one migrates, and serves on beside it."""
    target = released_target(released, blank_url, tmp_path)
    history, over = History(), threading.Event()
    with released_service(released, target) as old:
        asking = callers([old.port] * 3, target, history, over)
        threads = [threading.Thread(target=each.run, daemon=True) for each in asking]
        for thread in threads:
            thread.start()
        time.sleep(TOGETHER_SECONDS / 2)
        assert revision_of(blank_url) == "0006"
        new = start_service(target)
        try:
            await_service(new)
            assert revision_of(blank_url) == migrate.head_revision()
            for each in asking[1:]:
                each.port = new.port
            time.sleep(TOGETHER_SECONDS)
            over.set()
            for thread in threads:
                thread.join(60.0)
            answered = [
                ask(port, target.token, Ask("/readyz", method="GET")) for port in (old.port, new.port)
            ]
            look_back([old.port, new.port], target.token, history, stream(3, "again"))
        finally:
            new.process.kill()
            new.process.wait()

    verdict = judge(history, target.token.split("_")[1], load_keys(target.key_file).receipt_seed)
    wrong = [*verdict.lost, *verdict.overspent, *verdict.doubled, *verdict.unclassified]
    assert wrong == []
    # A plan keeps the profile of the version that opened it, whose last digits are not this version's.
    assert [each for each in verdict.different if not each.startswith("plan-")] == []
    assert verdict.entries > 50
    # The released version asks for its own schema exactly; from now on the schema says who may serve it.
    assert [answer.status for answer in answered] == [503, 200]
