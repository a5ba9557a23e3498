"""The first schema: tokens, datasets, and the ledger of each dataset."""

import uuid
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

_TABLES = (
    "meta",
    "tokens",
    "answers",
    "datasets",
    "budgets",
    "budget_changes",
    "actors",
    "charges",
    "runs",
    "purposes",
    "levels",
    "refusals",
    "partitions",
    "entries",
    "reservations",
)


def _name() -> sa.types.TypeEngine[str]:
    return sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def _required(name: str, kind: sa.types.TypeEngine[Any]) -> sa.Column[Any]:
    return sa.Column(name, kind, nullable=False)


def _key(table: str, *columns: str) -> sa.PrimaryKeyConstraint:
    return sa.PrimaryKeyConstraint(*columns, name=f"pk_{table}")


def _unique(table: str, *columns: str) -> sa.UniqueConstraint:
    return sa.UniqueConstraint(*columns, name=f"uq_{table}_{'_'.join(columns)}")


def _of_dataset(table: str) -> sa.ForeignKeyConstraint:
    return sa.ForeignKeyConstraint(["dataset_id"], ["datasets.id"], name=f"fk_{table}_dataset_id")


def _numbered(table: str, column: str, other: str, number: str = "number") -> sa.ForeignKeyConstraint:
    return sa.ForeignKeyConstraint(
        ["dataset_id", column],
        [f"{other}.dataset_id", f"{other}.{number}"],
        name=f"fk_{table}_dataset_id_{column}",
    )


def _partial_index(
    name: str, table: str, columns: list[str], condition: str, *, unique: bool = False
) -> None:
    where = sa.text(condition)
    op.create_index(name, table, columns, unique=unique, sqlite_where=where, postgresql_where=where)


def upgrade() -> None:
    """Create everything, and give the database an id of its own."""
    _create_meta()
    _create_tokens()
    _create_answers()
    _create_datasets()
    _create_budgets()
    _create_actors()
    _create_spenders("runs")
    _create_spenders("purposes")
    _create_levels()
    _create_refusals()
    _create_charges()
    _create_partitions()
    _create_entries()
    _create_reservations()


def downgrade() -> None:
    """Drop everything, what refers to something before what it refers to."""
    for table in reversed(_TABLES):
        op.drop_table(table)


def _create_meta() -> None:
    meta = op.create_table(
        "meta",
        _required("name", sa.Text()),
        _required("value", sa.Text()),
        _key("meta", "name"),
    )
    op.bulk_insert(meta, [{"name": "instance", "value": uuid.uuid4().hex}])


def _create_tokens() -> None:
    op.create_table(
        "tokens",
        _required("id", _name()),
        _required("keyed_hash", sa.LargeBinary()),
        _required("scopes", sa.Text()),
        sa.Column("datasets", sa.Text()),
        _required("description", sa.Text()),
        _required("created_at_us", sa.BigInteger()),
        sa.Column("expires_at_us", sa.BigInteger()),
        sa.Column("revoked_at_us", sa.BigInteger()),
        _key("tokens", "id"),
    )


def _create_answers() -> None:
    op.create_table(
        "answers",
        _required("dataset_id", sa.BigInteger()),
        _required("key", sa.LargeBinary()),
        _required("actor", sa.Text()),
        _required("request", sa.LargeBinary()),
        _required("outcome", sa.Text()),
        _required("body", sa.Text()),
        _key("answers", "dataset_id", "key", "actor"),
    )


def _create_datasets() -> None:
    op.create_table(
        "datasets",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), sa.Identity(), nullable=False),
        _required("name", _name()),
        _required("description", sa.Text()),
        _required("adjacency", sa.Text()),
        _required("unit", sa.Text()),
        sa.Column("records", sa.BigInteger()),
        _required("partition_key", sa.Text()),
        _required("opened_at_us", sa.BigInteger()),
        _required("changed_at_us", sa.BigInteger()),
        _required("sequence", sa.BigInteger()),
        _required("head", sa.LargeBinary()),
        _required("budget", sa.Integer()),
        _required("spent", sa.LargeBinary()),
        _required("reserved", sa.LargeBinary()),
        _required("open_reservations", sa.Integer()),
        _required("crowd", sa.LargeBinary()),
        _required("partitions", sa.Integer()),
        _required("left_basis_points", sa.SmallInteger()),
        _key("datasets", "id"),
        _unique("datasets", "name"),
    )
    op.create_index("ix_datasets_left", "datasets", ["left_basis_points", "name"])


def _create_budgets() -> None:
    op.create_table(
        "budgets",
        _required("dataset_id", sa.BigInteger()),
        _required("number", sa.Integer()),
        _required("fingerprint", sa.LargeBinary()),
        _required("document", sa.Text()),
        _of_dataset("budgets"),
        _key("budgets", "dataset_id", "number"),
        _unique("budgets", "fingerprint", "dataset_id"),
    )
    op.create_table(
        "budget_changes",
        _required("dataset_id", sa.BigInteger()),
        _required("from_sequence", sa.BigInteger()),
        _required("budget", sa.Integer()),
        _numbered("budget_changes", "budget", "budgets"),
        _of_dataset("budget_changes"),
        _key("budget_changes", "dataset_id", "from_sequence"),
    )


def _create_actors() -> None:
    op.create_table(
        "actors",
        _required("dataset_id", sa.BigInteger()),
        _required("number", sa.Integer()),
        _required("name", sa.Text()),
        _of_dataset("actors"),
        _key("actors", "dataset_id", "number"),
        _unique("actors", "name", "dataset_id"),
    )


def _create_spenders(table: str) -> None:
    op.create_table(
        table,
        _required("dataset_id", sa.BigInteger()),
        _required("number", sa.Integer()),
        _required("name", _name()),
        _required("entries", sa.BigInteger()),
        _required("amounts", sa.LargeBinary()),
        _required("first_at_us", sa.BigInteger()),
        _required("last_at_us", sa.BigInteger()),
        _required("magnitude", sa.SmallInteger()),
        _of_dataset(table),
        _key(table, "dataset_id", "number"),
        _unique(table, "dataset_id", "name"),
    )
    _partial_index(f"ix_{table}_magnitude", table, ["dataset_id", "magnitude", "number"], "magnitude > 0")


def _create_levels() -> None:
    op.create_table(
        "levels",
        _required("dataset_id", sa.BigInteger()),
        _required("number", sa.Integer()),
        _required("sequence", sa.BigInteger()),
        _required("at_us", sa.BigInteger()),
        _required("fraction", sa.Double()),
        _of_dataset("levels"),
        _key("levels", "dataset_id", "number"),
    )


def _create_refusals() -> None:
    op.create_table(
        "refusals",
        _required("dataset_id", sa.BigInteger()),
        _required("number", sa.Integer()),
        _required("sequence", sa.BigInteger()),
        _required("at_us", sa.BigInteger()),
        _required("actor", sa.Text()),
        _required("run", sa.Text()),
        sa.Column("partition", sa.Text()),
        _required("purpose", sa.Text()),
        _required("times", sa.Integer()),
        _required("fits_times", sa.Integer()),
        _required("fits_fraction", sa.Double()),
        _required("fraction", sa.Double()),
        _of_dataset("refusals"),
        _key("refusals", "dataset_id", "number"),
    )


def _create_charges() -> None:
    op.create_table(
        "charges",
        _required("dataset_id", sa.BigInteger()),
        _required("number", sa.Integer()),
        _required("fingerprint", sa.LargeBinary()),
        _required("step", sa.Text()),
        _required("purpose", sa.Text()),
        _required("amounts", sa.LargeBinary()),
        _required("orders", sa.LargeBinary()),
        _required("epsilons", sa.LargeBinary()),
        _required("delta", sa.Double()),
        sa.Column("rho", sa.Double()),
        sa.Column("mu", sa.Double()),
        sa.Column("pure_epsilon", sa.Double()),
        _of_dataset("charges"),
        _key("charges", "dataset_id", "number"),
        _unique("charges", "fingerprint", "dataset_id"),
    )


def _create_partitions() -> None:
    op.create_table(
        "partitions",
        _required("dataset_id", sa.BigInteger()),
        _required("number", sa.Integer()),
        _required("name", sa.Text()),
        sa.Column("budget", sa.Integer()),
        _required("spent", sa.LargeBinary()),
        _required("reserved", sa.LargeBinary()),
        _required("open_reservations", sa.Integer()),
        _numbered("partitions", "budget", "budgets"),
        _of_dataset("partitions"),
        _key("partitions", "dataset_id", "number"),
        _unique("partitions", "name", "dataset_id"),
    )


def _create_entries() -> None:
    op.create_table(
        "entries",
        _required("dataset_id", sa.BigInteger()),
        _required("sequence", sa.BigInteger()),
        _required("at_us", sa.BigInteger()),
        sa.Column("fraction", sa.Double()),
        sa.Column("sample", sa.BigInteger()),
        sa.Column("reservation", sa.BigInteger()),
        sa.Column("expires_at_us", sa.BigInteger()),
        _required("actor", sa.Integer()),
        sa.Column("run", sa.Integer()),
        sa.Column("charge", sa.Integer()),
        sa.Column("partition", sa.Integer()),
        sa.Column("times", sa.Integer()),
        sa.Column("used", sa.Integer()),
        _required("kind", sa.SmallInteger()),
        _required("hash", sa.LargeBinary()),
        sa.Column("key", sa.LargeBinary()),
        sa.Column("request", sa.LargeBinary()),
        sa.Column("detail", sa.Text()),
        _numbered("entries", "actor", "actors"),
        _numbered("entries", "charge", "charges"),
        _numbered("entries", "partition", "partitions"),
        _numbered("entries", "run", "runs"),
        _key("entries", "dataset_id", "sequence"),
        sqlite_with_rowid=False,
    )
    _partial_index("ux_entries_key", "entries", ["key", "dataset_id"], "key IS NOT NULL", unique=True)
    _partial_index("ix_entries_run", "entries", ["dataset_id", "run", "sequence"], "run IS NOT NULL")
    _partial_index(
        "ix_entries_partition", "entries", ["dataset_id", "partition", "sequence"], "partition IS NOT NULL"
    )
    _partial_index("ix_entries_rare_kind", "entries", ["dataset_id", "kind", "sequence"], "kind <> 4")


def _create_reservations() -> None:
    op.create_table(
        "reservations",
        _required("dataset_id", sa.BigInteger()),
        _required("sequence", sa.BigInteger()),
        _required("state", sa.SmallInteger()),
        _required("expires_at_us", sa.BigInteger()),
        _numbered("reservations", "sequence", "entries", "sequence"),
        _key("reservations", "dataset_id", "sequence"),
    )
    _partial_index("ix_reservations_due", "reservations", ["expires_at_us", "dataset_id"], "state = 0")
    _partial_index("ix_reservations_open", "reservations", ["dataset_id", "sequence"], "state = 0")
