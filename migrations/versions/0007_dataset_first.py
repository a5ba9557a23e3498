"""Unique constraints begin with the dataset, as every key of a ledger does, for engines that shard by it.

Old and new replicas may serve together: neither names these constraints, and what they forbid is the same.
"""

from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

_CONSTRAINTS = {
    "budgets": "fingerprint",
    "actors": "name",
    "charges": "fingerprint",
    "partitions": "name",
    "allocations": "name",
}


def upgrade() -> None:
    """Put the dataset first, and say that services of the schema before go on serving."""
    _hold_writers()
    op.execute("INSERT INTO meta VALUES ('oldest_serving', '0006')")
    for table, column in _CONSTRAINTS.items():
        _exchange(table, (column, "dataset_id"), ("dataset_id", column))


def downgrade() -> None:
    """Put it last again."""
    _hold_writers()
    op.execute("DELETE FROM meta WHERE name = 'oldest_serving'")
    for table, column in _CONSTRAINTS.items():
        _exchange(table, ("dataset_id", column), (column, "dataset_id"))


def _hold_writers() -> None:
    """Wait for those that write, and have others wait: all lock their dataset first, so none deadlocks."""
    if op.get_bind().dialect.name == "postgresql":
        op.execute("LOCK TABLE datasets IN EXCLUSIVE MODE")


def _exchange(table: str, old: tuple[str, str], new: tuple[str, str]) -> None:
    """On SQLite the table is copied, with what refers to it left alone."""
    with op.batch_alter_table(table) as batch:
        batch.create_unique_constraint(f"uq_{table}_{'_'.join(new)}", list(new))
        batch.drop_constraint(f"uq_{table}_{'_'.join(old)}", type_="unique")
