"""Pages with 10,000 datasets and 1,000,000 entries against pages with 10 datasets and 1,000 entries.

Both ledgers are on SQLite, each with a service of its own, and are asked in turn, so that whatever else
the machine does falls on both alike. Last line: ``ratio list=<x> dataset=<y>``, of the medians; both are
to be at most 1.5. ``--small`` fills a hundredth, to see that it runs.
"""

import argparse
import contextlib
import http.client
import itertools
import math
import statistics
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import urlencode

from rich.progress import track

from benchmarks.servers import COMMAND, HOST, free_port, make_token, serving
from dpledger.accounting.sampling import Adjacency
from dpledger.accounting.steps import Step
from dpledger.ledger.charges import charge_for
from dpledger.ledger.model.budget import Budget
from dpledger.ledger.model.commands import Authorize, Reserve
from dpledger.ledger.model.entries import Charge, Entry, EntryKind
from dpledger.ledger.ports import NewDataset, NewEntry
from dpledger.ledger.unit_of_work import UnitOfWork
from dpledger.storage.repository import SqlStorage, open_storage

ACTOR = "bench"
HOT = "hot"
ROUNDS = 60
WARM_UP = 15
_SPENT = 0.7
"""The part of the hot dataset's budget that its entries use up."""
_GROUP = 5_000
_OPENED_TOGETHER = 500
_ENTRIES_PER_RUN = 50
_REFUSALS = 10
_START_US = 1_750_000_000_000_000
_PURPOSES = ("gradient", "line-search", "evaluation")
BUDGET = Budget.from_fields({"accounting": "rdp", "epsilon": 3.0, "delta": 1e-5}, Adjacency.ADD_REMOVE)


@dataclass(frozen=True)
class Size:
    """A ledger: so many datasets, so many entries in all, three fifths of them in one dataset."""

    datasets: int
    entries: int

    @property
    def hot_entries(self) -> int:
        return self.entries * 3 // 5

    @property
    def other_entries(self) -> int:
        return (self.entries - self.hot_entries) // (self.datasets - 1)


def charges(steps: int) -> list[Charge]:
    """Steps of different noise, of which ``steps`` together use up the part that is to be spent."""
    plain = _charge(1.0, "")
    at = BUDGET.filter.binding(BUDGET, 0.0 * plain.amounts)
    each = BUDGET.filter.share(BUDGET, plain.amounts, at)
    noise_std = math.sqrt(each * steps / _SPENT)
    return [_charge(noise_std * (1.0 + 0.01 * index), _PURPOSES[index % 3]) for index in range(9)]


def _charge(noise_std: float, purpose: str) -> Charge:
    release = {"mechanism": "gaussian", "sensitivity": 1.0, "noise_std": noise_std}
    return charge_for(BUDGET, Step.from_fields([release], None, Adjacency.ADD_REMOVE.value), purpose)


def fill(storage: SqlStorage, size: Size) -> None:
    """Open the datasets and append the entries, in large groups."""
    names = [HOT, *[f"dataset-{number:05d}" for number in range(1, size.datasets)]]
    for start in track(range(0, len(names), _OPENED_TOGETHER), f"{size.datasets} datasets"):
        _open(storage, names[start : start + _OPENED_TOGETHER])
    groups = list(_groups(names, size))
    for group in track(groups, f"{size.entries} entries"):
        _append(storage, group)
    _refuse(storage)


@dataclass(frozen=True)
class Group:
    """Entries to append in one transaction: so many to each dataset, the first of them with this number."""

    names: tuple[str, ...]
    first: int
    count: int
    charges: list[Charge]


def _groups(names: list[str], size: Size) -> Iterator[Group]:
    hot = charges(size.hot_entries)
    for first in range(1, size.hot_entries, _GROUP):
        yield Group((HOT,), first, min(_GROUP, size.hot_entries - first), hot)
    # Datasets that are used up to different degrees.
    others = [charges(degree * size.other_entries) for degree in (1, 2, 3, 5, 9, 20, 80)]
    together = max(1, _GROUP // size.other_entries)
    for number, start in enumerate(range(1, len(names), together)):
        chosen = tuple(names[start : start + together])
        yield Group(chosen, 1, size.other_entries - 1, others[number % len(others)])


def _open(storage: SqlStorage, names: list[str]) -> None:
    with storage.begin() as transaction:
        for name in names:
            described = f"the dataset {name} of the bench"
            new = NewDataset(name, described, "add-remove", "record", None, "fixed", BUDGET, _START_US)
            state = transaction.open_dataset(new)
            entry = Entry(1, EntryKind.OPENED, _START_US, ACTOR, state.head, detail="{}")
            transaction.append(state, replace(state, sequence=1, head=entry.hash), [NewEntry(entry)])


def _append(storage: SqlStorage, group: Group) -> None:
    with storage.begin() as transaction:
        for state in transaction.lock(group.names).values():
            unit = UnitOfWork(transaction, state, _START_US + group.first * 1_000_000)
            for number in range(group.first, group.first + group.count):
                charge = group.charges[number % len(group.charges)]
                unit.spend(Authorize(charge, f"run-{number // _ENTRIES_PER_RUN}"), ACTOR)
            unit.write()


def _refuse(storage: SqlStorage) -> None:
    with storage.begin() as transaction:
        unit = UnitOfWork(transaction, transaction.lock([HOT])[HOT], _START_US * 2)
        for _ in range(_REFUSALS):
            unit.spend(Reserve(_charge(1.0, "too much"), "greedy", 10**6, _START_US * 3), ACTOR)
        unit.write()


@dataclass(frozen=True)
class Address:
    """Where a ledger is served, and a token for it."""

    port: int
    token: str


class Visitor:
    """Somebody who is logged in to one service, over one connection."""

    def __init__(self, address: Address) -> None:
        self._connection = http.client.HTTPConnection(HOST, address.port)
        origin = {"Origin": f"http://{HOST}:{address.port}"}
        self._connection.request("POST", "/dashboard/login", urlencode({"token": address.token}), origin)
        answer = self._connection.getresponse()
        answer.read()
        assert answer.status == 303, answer.status
        self._headers = {"Cookie": answer.headers["Set-Cookie"].partition(";")[0]}

    def seconds(self, path: str) -> float:
        """How long a page takes, to its last byte."""
        started = time.perf_counter()
        self._connection.request("GET", path, headers=self._headers)
        answer = self._connection.getresponse()
        body = answer.read()
        passed = time.perf_counter() - started
        assert answer.status == 200, answer.status
        assert b"</html>" in body
        return passed


@contextlib.contextmanager
def ledger(folder: Path, size: Size) -> Iterator[Address]:
    """A ledger of a size, served."""
    folder.mkdir()
    database, keys, port = f"sqlite:///{folder / 'budget.db'}", folder / "keys.json", free_port()
    token = make_token(database, keys)
    storage = open_storage(database)
    fill(storage, size)
    storage.close()
    where = ["--database", database, "--key-file", str(keys)]
    with serving([COMMAND, "serve", "--host", HOST, "--port", str(port), *where], port):
        yield Address(port, token)


def ratio(page: str, path: str, small: Visitor, large: Visitor) -> float:
    """Median times of a page, asked in turn."""
    for visitor in itertools.islice(itertools.cycle((small, large)), 2 * WARM_UP):
        visitor.seconds(path)
    times = [(small.seconds(path), large.seconds(path)) for _ in range(ROUNDS)]
    first, second = (1000.0 * float(statistics.median(column)) for column in zip(*times, strict=True))
    print(f"{page:<8} small {first:7.2f} ms   large {second:7.2f} ms")
    return second / first


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--small", action="store_true", help="fill a hundredth, to see that it runs")
    large = Size(100, 10_000) if parser.parse_args().small else Size(10_000, 1_000_000)
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        sizes = {"small": Size(10, 1_000), "large": large}
        served = [stack.enter_context(ledger(Path(folder) / name, size)) for name, size in sizes.items()]
        visitors = [Visitor(address) for address in served]
        listing = ratio("list", "/dashboard/", *visitors)
        dataset = ratio("dataset", f"/dashboard/datasets/{HOT}", *visitors)
    print(f"ratio list={listing:.2f} dataset={dataset:.2f}")


if __name__ == "__main__":
    main()
