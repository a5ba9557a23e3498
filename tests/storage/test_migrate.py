"""The migrations make what the code declares, on either database, and can be undone."""

import re
from argparse import Namespace
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.util import CommandError
from sqlalchemy import (
    Engine,
    ForeignKeyConstraint,
    PrimaryKeyConstraint,
    UniqueConstraint,
    inspect,
)

from dpledger.accounting.rounding import Direction, add
from dpledger.accounting.sampling import Adjacency
from dpledger.ledger.errors import Unavailable
from dpledger.ledger.model.budget import Budget
from dpledger.ledger.model.commands import ChangeBudget
from dpledger.ledger.model.state import Totals
from dpledger.storage import migrate
from dpledger.storage.engine.engines import make_engine
from dpledger.storage.repository import SqlStorage
from dpledger.storage.tables import metadata
from tests.storage.ledgers import charge, open_ledger, same_bits, spend, write
from tests.support.databases import KINDS, PostgresqlServer

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(params=KINDS)
def blank_urls(request: pytest.FixtureRequest, tmp_path: Path) -> list[str]:
    """URLs of two databases without any table."""
    if request.param == "sqlite":
        return [f"sqlite:///{tmp_path / name}.db" for name in ("one", "two")]
    server: PostgresqlServer = request.getfixturevalue("postgresql")
    return [server.create(), server.create()]


@pytest.fixture
def blank(blank_urls: list[str]) -> Iterator[Engine]:
    engine = make_engine(blank_urls[0])
    yield engine
    engine.dispose()


@pytest.fixture
def declared(blank_urls: list[str]) -> Iterator[Engine]:
    """A database made from the declared tables, without any migration."""
    engine = make_engine(blank_urls[1])
    metadata.create_all(engine)
    yield engine
    engine.dispose()


def tables_of(engine: Engine) -> set[str]:
    return set(inspect(engine).get_table_names())


_CATALOGUE = {
    "sqlite": "SELECT type, name, sql FROM sqlite_master WHERE sql IS NOT NULL",
    "postgresql": (
        "SELECT 'column', a.attrelid::regclass || '.' || a.attname, concat_ws(' ', a.attnum,"
        " format_type(a.atttypid, a.atttypmod), a.attnotnull, a.attidentity, l.collname)"
        " FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid LEFT JOIN pg_collation l"
        " ON l.oid = a.attcollation WHERE c.relnamespace = 'public'::regnamespace AND c.relkind = 'r'"
        " AND a.attnum > 0"
        " UNION ALL SELECT 'index', indexname, indexdef FROM pg_indexes WHERE schemaname = 'public'"
        " UNION ALL SELECT 'constraint', conname, pg_get_constraintdef(oid) FROM pg_constraint"
        " WHERE connamespace = 'public'::regnamespace"
    ),
}


def catalogue(engine: Engine) -> dict[tuple[str, str], Any]:
    """Everything that a database says of its schema, the version table apart."""
    with engine.connect() as connection:
        rows = connection.exec_driver_sql(_CATALOGUE[engine.dialect.name]).fetchall()
    return {(kind, name): _plain(sql) for kind, name, sql in rows if "alembic" not in name}


def _plain(sql: str) -> list[str]:
    """A definition without its spacing; the order of constraints and columns in a table says nothing.

    Nor does on which line a column stands that SQLite added behind the others.
    """
    head, _, inside = sql.replace('"', "").partition("(")
    inside, _, tail = inside.rpartition(")")
    parts = re.split(r",(?![^(]*\))", inside)
    return sorted(" ".join(part.split()) for part in (head, *parts, tail))


def test_the_migrations_make_what_the_code_declares(blank: Engine, declared: Engine) -> None:
    migrate.upgrade(blank)

    with blank.connect() as connection:
        assert compare_metadata(MigrationContext.configure(connection), metadata) == []
    assert tables_of(blank) == {*metadata.tables, "alembic_version"}
    assert catalogue(blank) == catalogue(declared)


def test_up_down_and_up_again(blank: Engine) -> None:
    assert migrate.revision(blank) is None
    migrate.upgrade(blank)
    first = catalogue(blank)
    assert migrate.revision(blank) == migrate.head_revision()

    migrate.downgrade(blank, "base", allow_data_loss=True)
    assert tables_of(blank) == {"alembic_version"}
    assert migrate.revision(blank) is None

    migrate.upgrade(blank)
    assert catalogue(blank) == first
    storage = SqlStorage(blank)
    open_ledger(storage)
    assert spend(storage, "adult", 3).sequence == 4
    storage.close()


def test_a_ledger_from_before_exact_totals_goes_on_in_floats(blank: Engine) -> None:
    migrate.upgrade(blank)
    storage = SqlStorage(blank)
    open_ledger(storage)
    before = spend(storage, "adult", 3)
    storage.close()
    migrate.downgrade(blank, "0002", allow_data_loss=True)

    migrate.upgrade(blank)
    storage = SqlStorage(blank)
    upgraded = storage.dataset("adult").state
    after = spend(storage, "adult", 1)
    storage.close()

    assert same_bits(upgraded.whole.spent, before.whole.spent)
    assert isinstance(after.whole, Totals)
    assert same_bits(after.whole.spent, add(before.whole.spent, charge().amounts, Direction.UP))


@pytest.mark.parametrize("target", ["base", "-1"])
def test_a_downgrade_that_drops_data_needs_a_flag(blank_urls: list[str], blank: Engine, target: str) -> None:
    migrate.upgrade(blank)
    storage = SqlStorage(blank)
    open_ledger(storage)
    spend(storage, "adult", 3)
    before = catalogue(blank)
    by_hand = Config(ROOT / "alembic.ini", cmd_opts=Namespace(x=[f"database={blank_urls[0]}"]))

    with pytest.raises(CommandError, match="-x allow-data-loss=yes"):
        command.downgrade(by_hand, target)
    with pytest.raises(CommandError, match="-x allow-data-loss=yes"):
        migrate.downgrade(blank, target)
    assert catalogue(blank) == before
    assert storage.dataset("adult").state.sequence == 4
    storage.close()

    said = Namespace(x=[f"database={blank_urls[0]}", "allow-data-loss=yes"])
    command.downgrade(Config(ROOT / "alembic.ini", cmd_opts=said), target)
    assert migrate.revision(blank) != migrate.head_revision()


def test_upgrading_again_changes_nothing(blank: Engine) -> None:
    migrate.upgrade(blank)
    storage = SqlStorage(blank)
    open_ledger(storage)
    before = storage.ready()

    migrate.upgrade(blank)

    assert storage.ready() == before
    assert storage.dataset("adult").state.sequence == 1
    storage.close()


def test_replicas_that_start_together_migrate_once(blank_urls: list[str]) -> None:
    def start(_: int) -> str:
        storage = SqlStorage(make_engine(blank_urls[0]))
        migrate.upgrade(storage.database.engine)
        instance = str(storage.ready()["instance"])
        storage.close()
        return instance

    with ThreadPoolExecutor(4) as pool:
        assert len(set(pool.map(start, range(4)))) == 1


def test_a_database_without_the_schema_is_not_ready(blank: Engine) -> None:
    storage = SqlStorage(blank)
    with pytest.raises(Unavailable, match="schema is at nothing"):
        storage.ready()
    storage.close()


def pretend(engine: Engine, revision: str, oldest_serving: str) -> None:
    """As a newer version leaves the schema."""
    with engine.begin() as connection:
        connection.exec_driver_sql(f"UPDATE alembic_version SET version_num = '{revision}'")
        connection.exec_driver_sql(
            f"UPDATE meta SET value = '{oldest_serving}' WHERE name = 'oldest_serving'"
        )


def test_a_newer_schema_is_served_where_it_says_so(blank: Engine) -> None:
    """So that replicas of two versions serve together while one follows the other."""
    migrate.upgrade(blank)
    storage, head = SqlStorage(blank), str(migrate.head_revision())
    open_ledger(storage)

    pretend(blank, "9998", head)
    migrate.upgrade(blank)
    assert storage.ready()["schema"] == "9998"
    assert spend(storage, "adult", 1).sequence == 2

    pretend(blank, "9998", "9998")
    with pytest.raises(Unavailable, match="schema is at 9998"):
        storage.ready()
    with pytest.raises(CommandError, match="9998"):
        migrate.upgrade(blank)
    storage.close()


NO_LEDGER = {"meta", "tokens", "ended_sessions", "datasets"}
"""Tables of the whole installation, and the list of datasets itself, whose key is the dataset's id."""
ACROSS_DATASETS = {
    "ix_reservations_due": "which datasets have a reservation that is due, asked of all at once",
    "ix_alerts_due": "which alerts are due, asked of all datasets at once",
    "ux_entries_key": "a key has the dataset in its hash; named as well, it would tempt planners to read all",
}
"""Indexes that do not begin with the dataset, and why; one that is unique contains it all the same."""


def test_every_table_of_a_ledger_can_be_sharded_by_dataset() -> None:
    """Keys, unique constraints and indexes begin with the dataset, and no reference leaves it."""
    ledger = [table for name, table in metadata.tables.items() if name not in NO_LEDGER]
    kinds = (ForeignKeyConstraint, PrimaryKeyConstraint, UniqueConstraint)
    constraints = [each for table in ledger for each in table.constraints if isinstance(each, kinds)]
    indexes = [index for table in ledger for index in table.indexes]
    starts = {str(each.name): next(iter(each.columns)).name for each in (*constraints, *indexes)}
    targets = {
        (key.parent.name, key.column.table.name, key.column.name)
        for table in ledger
        for key in table.foreign_keys
        if key.parent.name == "dataset_id"
    }

    assert len(ledger) > 10
    assert {name for name, first in starts.items() if first != "dataset_id"} == set(ACROSS_DATASETS)
    assert all("dataset_id" in index.columns for index in indexes if index.unique)
    assert {(parent, "id" if table == "datasets" else "dataset_id") for parent, table, _ in targets} == {
        (parent, column) for parent, _, column in targets
    }


def test_developers_may_run_alembic_by_hand(blank_urls: list[str], blank: Engine) -> None:
    said = Namespace(x=[f"database={blank_urls[0]}"])
    command.upgrade(Config(ROOT / "alembic.ini", cmd_opts=said), "head")

    assert migrate.revision(blank) == migrate.head_revision()


@pytest.mark.parametrize(
    ("limits", "guarantee", "since"),
    [
        ([0.5], {"rho": 0.5}, 1),
        ([0.5, 0.2], {"rho": 0.5}, 1),
        ([0.5, 0.2, 0.9, 0.1], {"rho": 0.9}, 3),
        ([(2.0, 1e-4), (3.0, 1e-9), (1.0, 1e-9)], {"epsilon": 3.0, "delta": 1e-4}, 2),
    ],
)
def test_what_was_ever_in_force_is_found_in_old_ledgers(
    blank: Engine, limits: list[Any], guarantee: dict[str, float], since: int
) -> None:
    migrate.upgrade(blank)
    storage = SqlStorage(blank)
    budgets = [
        {"accounting": "rdp", "epsilon": each[0], "delta": each[1]}
        if isinstance(each, tuple)
        else {"accounting": "zcdp", "rho": each}
        for each in limits
    ]
    first = Budget.from_fields(budgets[0], Adjacency.ADD_REMOVE)
    open_ledger(storage, budget=first)
    with storage.begin() as transaction:
        state = transaction.lock(["adult"])["adult"]
        changes = [first.with_limit(fields, Adjacency.ADD_REMOVE) for fields in budgets[1:]]
        if changes:
            write(transaction, state, *[ChangeBudget(budget, "review") for budget in changes])
    decided = storage.dataset("adult").state
    migrate.downgrade(blank, "0002", allow_data_loss=True)

    migrate.upgrade(blank)

    found = storage.dataset("adult").state
    assert found.guarantee.document == decided.guarantee.document
    assert found.guarantee.target == guarantee
    assert found.guaranteed_since == decided.guaranteed_since == since
    storage.close()
