"""Alerts: which thresholds of which datasets were passed, and whether they were delivered."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

_UNDELIVERED = "delivered_at_us IS NULL"


def upgrade() -> None:
    """Create the table, and an index of what is still to be delivered."""
    op.create_table(
        "alerts",
        sa.Column("dataset_id", sa.BigInteger(), nullable=False),
        sa.Column("threshold", sa.SmallInteger(), nullable=False),
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("sequence", sa.BigInteger(), nullable=False),
        sa.Column("left_basis_points", sa.SmallInteger(), nullable=False),
        sa.Column("noticed_at_us", sa.BigInteger(), nullable=False),
        sa.Column("due_at_us", sa.BigInteger(), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("delivered_at_us", sa.BigInteger()),
        sa.ForeignKeyConstraint(["dataset_id"], ["datasets.id"], name="fk_alerts_dataset_id"),
        sa.PrimaryKeyConstraint("dataset_id", "threshold", name="pk_alerts"),
    )
    where = sa.text(_UNDELIVERED)
    op.create_index(
        "ix_alerts_due",
        "alerts",
        ["due_at_us", "dataset_id", "threshold"],
        sqlite_where=where,
        postgresql_where=where,
    )


def downgrade() -> None:
    """Forget what was delivered."""
    op.drop_table("alerts")
