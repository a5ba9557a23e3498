"""Allocations: parts of a shared budget with totals of their own; entries, charges and refusals name them."""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

_NAMES_ONE = "allocation IS NOT NULL"


def upgrade() -> None:
    """Create the table, and columns that are null in every ledger without allocations."""
    op.create_table(
        "allocations",
        sa.Column("dataset_id", sa.BigInteger(), nullable=False),
        sa.Column("sequence", sa.BigInteger(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("owner", sa.Text(), nullable=False),
        sa.Column("epsilon", sa.Double(), nullable=False),
        sa.Column("delta", sa.Double(), nullable=False),
        sa.Column("budget", sa.Integer(), nullable=False),
        sa.Column("spent", sa.LargeBinary(), nullable=False),
        sa.Column("reserved", sa.LargeBinary(), nullable=False),
        sa.Column("open_reservations", sa.Integer(), nullable=False),
        sa.Column("exact", sa.Text()),
        sa.Column("entries", sa.BigInteger(), nullable=False),
        sa.Column("releases", sa.BigInteger(), nullable=False),
        sa.Column("returned", sa.SmallInteger(), nullable=False),
        sa.ForeignKeyConstraint(["dataset_id"], ["datasets.id"], name="fk_allocations_dataset_id"),
        sa.ForeignKeyConstraint(
            ["dataset_id", "budget"],
            ["budgets.dataset_id", "budgets.number"],
            name="fk_allocations_dataset_id_budget",
        ),
        sa.PrimaryKeyConstraint("dataset_id", "sequence", name="pk_allocations"),
        sa.UniqueConstraint("name", "dataset_id", name="uq_allocations_name_dataset_id"),
    )
    op.add_column("entries", sa.Column("allocation", sa.BigInteger()))
    op.add_column("charges", sa.Column("accounting", sa.Text()))
    op.add_column("refusals", sa.Column("allocation", sa.Text()))
    where = sa.text(_NAMES_ONE)
    op.create_index(
        "ix_entries_allocation",
        "entries",
        ["dataset_id", "allocation", "sequence"],
        sqlite_where=where,
        postgresql_where=where,
    )


def downgrade() -> None:
    """Drop them: ledgers with a shared budget can no longer be read."""
    op.drop_index("ix_entries_allocation", "entries")
    op.drop_column("refusals", "allocation")
    op.drop_column("charges", "accounting")
    op.drop_column("entries", "allocation")
    op.drop_table("allocations")
