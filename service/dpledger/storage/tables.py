"""The schema, declared once for both databases; the migrations are checked against it.

Every key, unique constraint and index of a ledger's tables starts with the dataset's id, so that an engine
that shards by it serves the same schema. Exceptions are what is asked of all datasets at once, such as which
reservations are due, and the index of idempotency keys: a key has the dataset in its hash, and is looked up
by itself, because a planner without statistics, in a database that is a minute old, would otherwise read all
of the dataset's entries. Names (actors, teams, runs), charges and budgets are kept once per
dataset and referred to by small numbers: an entry stays small however long a step description is.
"""

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Column,
    Double,
    ForeignKey,
    ForeignKeyConstraint,
    Identity,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    SmallInteger,
    Table,
    Text,
    UniqueConstraint,
    literal_column,
)
from sqlalchemy.sql.elements import ColumnElement

from dpledger.ledger.model.entries import EntryKind
from dpledger.storage.engine.codec import KIND_CODES, OPEN

__all__ = [
    "actors",
    "alerts",
    "allocations",
    "answers",
    "budget_changes",
    "budget_requests",
    "budgets",
    "charges",
    "datasets",
    "ended_sessions",
    "entries",
    "levels",
    "meta",
    "metadata",
    "partitions",
    "purposes",
    "quotas",
    "refusals",
    "reservations",
    "runs",
    "teams",
    "tokens",
]

metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s",
        "pk": "pk_%(table_name)s",
    }
)

# Cursors compare names; both databases must order them alike, by code point.
Name = Text().with_variant(Text(collation="C"), "postgresql")
# SQLite gives out ids only for a column of exactly this type.
Id = BigInteger().with_variant(Integer(), "sqlite")

meta = Table(
    "meta",
    metadata,
    Column("name", Text, primary_key=True),
    Column("value", Text, nullable=False),
)

tokens = Table(
    "tokens",
    metadata,
    Column("id", Name, primary_key=True),
    Column("keyed_hash", LargeBinary, nullable=False),
    Column("scopes", Text, nullable=False),
    Column("datasets", Text),
    Column("description", Text, nullable=False),
    Column("created_at_us", BigInteger, nullable=False),
    Column("expires_at_us", BigInteger),
    Column("revoked_at_us", BigInteger),
    Column("team", Text),
)

# A session is known by its seal; what is kept is which of them were ended before their time.
ended_sessions = Table(
    "ended_sessions",
    metadata,
    Column("id", LargeBinary, primary_key=True),
    Column("ends_at_us", BigInteger, nullable=False),
    Index("ix_ended_sessions_ends_at_us", "ends_at_us"),
)

datasets = Table(
    "datasets",
    metadata,
    Column("id", Id, Identity(), primary_key=True),
    Column("name", Name, nullable=False, unique=True),
    Column("description", Text, nullable=False),
    Column("adjacency", Text, nullable=False),
    Column("unit", Text, nullable=False),
    Column("records", BigInteger),
    Column("partition_key", Text, nullable=False),
    Column("opened_at_us", BigInteger, nullable=False),
    Column("changed_at_us", BigInteger, nullable=False),
    Column("sequence", BigInteger, nullable=False),
    Column("head", LargeBinary, nullable=False),
    Column("budget", Integer, nullable=False),
    Column("spent", LargeBinary, nullable=False),
    Column("reserved", LargeBinary, nullable=False),
    Column("open_reservations", Integer, nullable=False),
    Column("crowd", LargeBinary, nullable=False),
    Column("partitions", Integer, nullable=False),
    # Rounded down to ten-thousandths: its index is touched only when that changes, not by every entry.
    Column("left_basis_points", SmallInteger, nullable=False),
    # The number of the budget with the largest limits ever in force, and the entry that brought it.
    Column("guarantee", Integer, nullable=False, server_default="1"),
    Column("guaranteed_since", BigInteger, nullable=False, server_default="1"),
    # Spent and reserved as exact numbers; null in a ledger that adds floats, as all did at first.
    Column("exact", Text),
    # The last entry, where there is or was a quota. Code that does not know of quotas leaves it behind, and
    # then cannot write: nothing is granted past a quota by an older replica.
    Column(
        "quotas_at",
        BigInteger,
        CheckConstraint("quotas_at IS NULL OR quotas_at = sequence", name="ck_datasets_quotas_at"),
    ),
    # The same where there is or was a request for budget or a policy of renewal.
    Column(
        "governed_at",
        BigInteger,
        CheckConstraint("governed_at IS NULL OR governed_at = sequence", name="ck_datasets_governed_at"),
    ),
    Index("ix_datasets_left", "left_basis_points", "name"),
)


def _of_dataset() -> Column[int]:
    return Column("dataset_id", BigInteger, ForeignKey("datasets.id"), primary_key=True)


def _references(table: str, *columns: str) -> ForeignKeyConstraint:
    return ForeignKeyConstraint(
        ["dataset_id", *columns], [f"{table}.dataset_id", *[f"{table}.number" for _ in columns]]
    )


budgets = Table(
    "budgets",
    metadata,
    _of_dataset(),
    Column("number", Integer, primary_key=True),
    Column("fingerprint", LargeBinary, nullable=False),
    Column("document", Text, nullable=False),
    UniqueConstraint("dataset_id", "fingerprint"),
)

budget_changes = Table(
    "budget_changes",
    metadata,
    _of_dataset(),
    Column("from_sequence", BigInteger, primary_key=True),
    Column("budget", Integer, nullable=False),
    _references("budgets", "budget"),
)

actors = Table(
    "actors",
    metadata,
    _of_dataset(),
    Column("number", Integer, primary_key=True),
    Column("name", Text, nullable=False),
    UniqueConstraint("dataset_id", "name"),
)

teams = Table(
    "teams",
    metadata,
    _of_dataset(),
    Column("number", Integer, primary_key=True),
    Column("name", Text, nullable=False),
    UniqueConstraint("dataset_id", "name"),
)

charges = Table(
    "charges",
    metadata,
    _of_dataset(),
    Column("number", Integer, primary_key=True),
    Column("fingerprint", LargeBinary, nullable=False),
    Column("step", Text, nullable=False),
    Column("purpose", Text, nullable=False),
    Column("amounts", LargeBinary, nullable=False),
    Column("orders", LargeBinary, nullable=False),
    Column("epsilons", LargeBinary, nullable=False),
    Column("delta", Double, nullable=False),
    Column("rho", Double),
    Column("mu", Double),
    Column("pure_epsilon", Double),
    # The kind of the allocation's budget; null where the dataset's own budget is charged.
    Column("accounting", Text),
    UniqueConstraint("dataset_id", "fingerprint"),
)


def _spender(name: str, *more: Column[int]) -> Table:
    """Who or what spends, with the sum of it; ``magnitude`` is its place among the others, coarsely."""
    return Table(
        name,
        metadata,
        _of_dataset(),
        Column("number", Integer, primary_key=True),
        Column("name", Name, nullable=False),
        Column("entries", BigInteger, nullable=False),
        Column("amounts", LargeBinary, nullable=False),
        Column("first_at_us", BigInteger, nullable=False),
        Column("last_at_us", BigInteger, nullable=False),
        Column("magnitude", SmallInteger, nullable=False),
        *more,
        UniqueConstraint("dataset_id", "name"),
    )


# No references to the teams: SQLite cannot add them to tables that are there.
runs = _spender("runs", Column("team", Integer))
purposes = _spender("purposes")

partitions = Table(
    "partitions",
    metadata,
    _of_dataset(),
    Column("number", Integer, primary_key=True),
    Column("name", Text, nullable=False),
    Column("budget", Integer),
    Column("spent", LargeBinary, nullable=False),
    Column("reserved", LargeBinary, nullable=False),
    Column("open_reservations", Integer, nullable=False),
    Column("exact", Text),
    UniqueConstraint("dataset_id", "name"),
    _references("budgets", "budget"),
)

# Parts of a shared budget, by the sequence numbers of the entries that opened them.
allocations = Table(
    "allocations",
    metadata,
    _of_dataset(),
    Column("sequence", BigInteger, primary_key=True),
    Column("name", Text, nullable=False),
    Column("owner", Text, nullable=False),
    Column("epsilon", Double, nullable=False),
    Column("delta", Double, nullable=False),
    Column("budget", Integer, nullable=False),
    Column("spent", LargeBinary, nullable=False),
    Column("reserved", LargeBinary, nullable=False),
    Column("open_reservations", Integer, nullable=False),
    Column("exact", Text),
    Column("entries", BigInteger, nullable=False),
    Column("releases", BigInteger, nullable=False),
    Column("returned", SmallInteger, nullable=False),
    UniqueConstraint("dataset_id", "name"),
    _references("budgets", "budget"),
)

# Those in force, by the entries that set them; what counts of each is in exact numbers.
quotas = Table(
    "quotas",
    metadata,
    _of_dataset(),
    Column("sequence", BigInteger, primary_key=True),
    Column("team", Text, nullable=False),
    Column("fraction", Double, nullable=False),
    Column("window_seconds", Integer),
    Column("slices", Text, nullable=False),
    Column("held", Text, nullable=False),
    Column("open_reservations", Integer, nullable=False),
    Column("latest_us", BigInteger, nullable=False),
)

# Requests for budget by the entries that made them; ``asked`` is the detail of what would carry one out.
budget_requests = Table(
    "budget_requests",
    metadata,
    _of_dataset(),
    Column("sequence", BigInteger, primary_key=True),
    Column("at_us", BigInteger, nullable=False),
    Column("kind", Text, nullable=False),
    Column("asked", Text, nullable=False),
    Column("actor", Text, nullable=False),
    Column("team", Text),
    Column("state", SmallInteger, nullable=False),
    Column("decided_at", BigInteger),
    Column("decided_by", Text),
    Column("decided_team", Text),
    Column("decided_at_us", BigInteger),
    Column("decision_reason", Text),
)

# Wide columns first: PostgreSQL then pads nothing between them.
entries = Table(
    "entries",
    metadata,
    Column("dataset_id", BigInteger, primary_key=True),
    Column("sequence", BigInteger, primary_key=True),
    Column("at_us", BigInteger, nullable=False),
    Column("fraction", Double),
    Column("sample", BigInteger),
    Column("reservation", BigInteger),
    Column("expires_at_us", BigInteger),
    Column("actor", Integer, nullable=False),
    Column("run", Integer),
    Column("charge", Integer),
    Column("partition", Integer),
    Column("times", Integer),
    Column("used", Integer),
    Column("kind", SmallInteger, nullable=False),
    Column("hash", LargeBinary, nullable=False),
    Column("key", LargeBinary),
    Column("request", LargeBinary),
    Column("detail", Text),
    # No reference: SQLite cannot add one of several columns to a table that is there.
    Column("allocation", BigInteger),
    Column("team", Integer),
    _references("actors", "actor"),
    _references("runs", "run"),
    _references("charges", "charge"),
    _references("partitions", "partition"),
    sqlite_with_rowid=False,
)


def _partial(name: str, condition: str, *columns: Column[object], unique: bool = False) -> Index:
    where: ColumnElement[bool] = literal_column(condition)
    return Index(name, *columns, unique=unique, sqlite_where=where, postgresql_where=where)


_partial("ux_entries_key", "key IS NOT NULL", entries.c.key, entries.c.dataset_id, unique=True)
_partial("ix_entries_run", "run IS NOT NULL", entries.c.dataset_id, entries.c.run, entries.c.sequence)
_partial(
    "ix_entries_partition",
    "partition IS NOT NULL",
    entries.c.dataset_id,
    entries.c.partition,
    entries.c.sequence,
)
_partial(
    "ix_entries_allocation",
    "allocation IS NOT NULL",
    entries.c.dataset_id,
    entries.c.allocation,
    entries.c.sequence,
)
HAS_SPENT = "magnitude > 0"
for _table in (runs, purposes):
    _partial(
        f"ix_{_table.name}_magnitude", HAS_SPENT, _table.c.dataset_id, _table.c.magnitude, _table.c.number
    )
RARE_KIND = f"kind <> {KIND_CODES[EntryKind.AUTHORIZED]}"
"""Authorizations are nearly all entries; an index finds the others among them."""
_partial("ix_entries_rare_kind", RARE_KIND, entries.c.dataset_id, entries.c.kind, entries.c.sequence)

reservations = Table(
    "reservations",
    metadata,
    Column("dataset_id", BigInteger, primary_key=True),
    Column("sequence", BigInteger, primary_key=True),
    Column("state", SmallInteger, nullable=False),
    Column("expires_at_us", BigInteger, nullable=False),
    ForeignKeyConstraint(["dataset_id", "sequence"], ["entries.dataset_id", "entries.sequence"]),
)
IS_OPEN = f"state = {OPEN}"
_partial("ix_reservations_due", IS_OPEN, reservations.c.expires_at_us, reservations.c.dataset_id)
_partial("ix_reservations_open", IS_OPEN, reservations.c.dataset_id, reservations.c.sequence)
_partial("ix_budget_requests_open", IS_OPEN, budget_requests.c.dataset_id, budget_requests.c.sequence)

# What was left whenever it had changed by a visible step: a burn-down without reading entries.
levels = Table(
    "levels",
    metadata,
    _of_dataset(),
    Column("number", Integer, primary_key=True),
    Column("sequence", BigInteger, nullable=False),
    Column("at_us", BigInteger, nullable=False),
    Column("fraction", Double, nullable=False),
)

# What was refused, for whoever looks after the dataset; the answers themselves are kept under their keys.
refusals = Table(
    "refusals",
    metadata,
    _of_dataset(),
    Column("number", Integer, primary_key=True),
    Column("sequence", BigInteger, nullable=False),
    Column("at_us", BigInteger, nullable=False),
    Column("actor", Text, nullable=False),
    Column("run", Text, nullable=False),
    Column("partition", Text),
    Column("purpose", Text, nullable=False),
    Column("times", Integer, nullable=False),
    Column("fits_times", Integer, nullable=False),
    Column("fits_fraction", Double, nullable=False),
    Column("fraction", Double, nullable=False),
    Column("allocation", Text),
    # The team whose quota refused it, where the budget would have granted it.
    Column("team", Text),
)

# Answers under dataset 0 belong to no single dataset, so there is nothing to refer to.
answers = Table(
    "answers",
    metadata,
    Column("dataset_id", BigInteger, primary_key=True),
    Column("key", LargeBinary, primary_key=True),
    Column("actor", Text, primary_key=True),
    Column("request", LargeBinary, nullable=False),
    Column("outcome", Text, nullable=False),
    Column("body", Text, nullable=False),
)

# A dataset that was seen beyond a threshold, in ten-thousandths of its budget, until it was delivered.
alerts = Table(
    "alerts",
    metadata,
    _of_dataset(),
    Column("threshold", SmallInteger, primary_key=True),
    Column("id", Text, nullable=False),
    Column("sequence", BigInteger, nullable=False),
    Column("left_basis_points", SmallInteger, nullable=False),
    Column("noticed_at_us", BigInteger, nullable=False),
    Column("due_at_us", BigInteger, nullable=False),
    Column("attempts", Integer, nullable=False),
    Column("delivered_at_us", BigInteger),
)
_partial(
    "ix_alerts_due",
    "delivered_at_us IS NULL",
    alerts.c.due_at_us,
    alerts.c.dataset_id,
    alerts.c.threshold,
)
