"""Does a decision, or a look at what is left, get slower as a ledger grows? How large is one entry?

A dataset is filled with a million entries through the ledger's own decisions and the storage's own append,
in large groups; another one is opened with a hundred. Then the service is started on that database and
asked about both in turns, one request at a time, so that whatever slows the machine slows both. SQLite is
measured; for PostgreSQL the size of an entry is.
"""

import hashlib
import json
import statistics
import tempfile
import time
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from rich.progress import track

from benchmarks.baseline import BUDGET, STEP
from benchmarks.load import Connection, Order
from benchmarks.servers import COMMAND, HOST, free_port, make_token, postgresql, serving
from dpledger.accounting.sampling import Adjacency, Sample
from dpledger.accounting.steps import Release, Step
from dpledger.api.responses import ResponseWriter
from dpledger.ledger.charges import charge_for
from dpledger.ledger.clock import SystemClock
from dpledger.ledger.model.budget import Budget
from dpledger.ledger.model.commands import Authorize
from dpledger.ledger.ports import IdempotentRequest, NewDataset
from dpledger.ledger.receipts import Signer
from dpledger.ledger.service import LedgerService
from dpledger.ledger.unit_of_work import UnitOfWork
from dpledger.storage.repository import SqlStorage, open_storage

LARGE = 1_000_000
SMALL = 100
POSTGRESQL_ENTRIES = 100_000
GROUP = 10_000
PAIRS = 500
WARM_UP_PAIRS = 20
_SIZES = {
    "sqlite": "SELECT page_count * page_size FROM pragma_page_count(), pragma_page_size()",
    "postgresql": "SELECT pg_database_size(current_database())",
}
REQUEST = hashlib.sha256(json.dumps(STEP).encode()).digest()[:16]


def call(actor: str, dataset: str, number: int) -> IdempotentRequest:
    """A key that looks like any other: spread evenly over its index."""
    return IdempotentRequest(actor, hashlib.sha256(f"{dataset}-{number}".encode()).digest()[:16], REQUEST)


def fill(storage: SqlStorage, actor: str, name: str, entries: int) -> None:
    """Open a dataset and authorize the same step in groups, as the service does but without answers."""
    budget = Budget.from_fields(BUDGET, Adjacency.ADD_REMOVE)
    new = NewDataset(name, "", Adjacency.ADD_REMOVE.value, "record", None, "fixed", budget, 0)
    clock = SystemClock()
    LedgerService(storage, clock, ResponseWriter(Signer(bytes(32)))).open_dataset(new, call(actor, name, 0))
    releases = tuple(Release.from_fields(fields) for fields in STEP["releases"])
    charge = charge_for(budget, Step(releases, Sample.from_fields(STEP["sample"]), Adjacency.ADD_REMOVE), "")
    for first in track(range(1, entries + 1, GROUP), f"{name}: {entries} entries", transient=True):
        numbers = range(first, min(first + GROUP, entries + 1))
        with storage.begin() as transaction:
            unit = UnitOfWork(transaction, transaction.lock([name])[name], clock.now_us())
            calls = [call(actor, name, number) for number in numbers]
            unit.spend_each(Authorize(charge, STEP["run"]), calls)
            unit.write()


def size_of(storage: SqlStorage) -> int:
    """The bytes that the database takes, indexes and all."""
    with storage.database.engine.connect() as connection:
        return int(connection.execute(sa.text(_SIZES[connection.dialect.name])).scalar_one())


def filled(database: str, actor: str, sizes: dict[str, int]) -> float:
    """Fill datasets; returns the bytes that each entry of the last one takes."""
    storage = open_storage(database)
    try:
        before = 0
        for name, entries in sizes.items():
            before = size_of(storage)
            began = time.perf_counter()
            fill(storage, actor, name, entries)
            took = time.perf_counter() - began
        each = (size_of(storage) - before) / entries
        kind = storage.database.engine.dialect.name
        print(f"{kind}: {entries} entries in {took:.0f} s, {each:.0f} bytes per entry", flush=True)
        return each
    finally:
        storage.close()


def asked(connection: Connection, requests: Iterable[bytes], wanted: bytes) -> list[float]:
    """The latency of each request in seconds."""
    latencies = []
    for request in requests:
        connection.send(request)
        while (status := connection.receive()) is None:
            continue
        latencies.append(time.perf_counter() - connection.sent_at)
        if status != wanted:
            raise RuntimeError(f"answered {status.decode()}")
    return latencies


def in_turns(orders: dict[str, Order], wanted: bytes) -> dict[str, list[float]]:
    """Ask about each dataset in turn; latencies by dataset, the first ones left out."""
    connection = Connection(next(iter(orders.values())))
    sources = {name: order.requests() for name, order in orders.items()}
    found: dict[str, list[float]] = {name: [] for name in orders}
    for _ in range(WARM_UP_PAIRS + PAIRS):
        for name, source in sources.items():
            found[name] += asked(connection, [next(source)], wanted)
    connection.socket.close()
    return {name: latencies[WARM_UP_PAIRS:] for name, latencies in found.items()}


def compared(what: str, orders: dict[str, Order], wanted: bytes) -> float:
    """Print both medians; returns the larger ledger's over the smaller one's."""
    found = in_turns(orders, wanted)
    medians = {name: statistics.median(latencies) for name, latencies in found.items()}
    for name, median in medians.items():
        late = sorted(found[name])[int(0.99 * PAIRS)]
        print(f"{what:<10} {name:<6} p50 {1e3 * median:8.3f} ms  p99 {1e3 * late:8.3f} ms", flush=True)
    return medians["large"] / medians["small"]


def measure(database: str, key_file: Path, token: str) -> tuple[float, float]:
    """The ratios for authorizations and for budgets."""
    port = free_port()
    where = ["--database", database, "--key-file", str(key_file)]
    with serving([COMMAND, "serve", "--host", HOST, "--port", str(port), *where], port):
        ask: dict[str, Any] = {"port": port, "token": token, "body": json.dumps(STEP), "keys": "scale"}
        names = ("small", "large")
        spending = {name: Order(path=f"/v1/datasets/{name}/authorizations", **ask) for name in names}
        looking = {
            name: replace(order, path=f"/v1/datasets/{name}/budget", method="GET")
            for name, order in spending.items()
        }
        return compared("authorize", spending, b"201"), compared("budget", looking, b"200")


def main() -> None:
    """Fill, measure and print."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        database, key_file = f"sqlite:///{folder / 'ledger.db'}", folder / "keys.json"
        token = make_token(database, key_file)
        actor = token.split("_")[1]
        sizes = [filled(database, actor, {"small": SMALL, "large": LARGE})]
        authorize, budget = measure(database, key_file, token)
        with postgresql(folder) as url:
            actor = make_token(url, key_file).split("_")[1]
            sizes.append(filled(url, actor, {"large": POSTGRESQL_ENTRIES}))
    print(f"goals: {LARGE} entries against {SMALL} at most 1.1 times, at most 400 bytes per entry")
    print(f"ratio authorize={authorize:.2f} budget={budget:.2f} bytes={max(sizes):.0f}")


if __name__ == "__main__":
    main()
