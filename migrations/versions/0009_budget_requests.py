"""Requests for budget, which an admin approves or rejects.

Code of before may go on serving ledgers without them where it runs already: a dataset with requests says so
in a column that such code leaves behind, and the database refuses what it writes then. It is not ready, and
does not start any more.
"""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None

_IS_OPEN = sa.text("state = 0")


def upgrade() -> None:
    """Create the table of requests, and the column that keeps older code from writing beside them."""
    op.create_table(
        "budget_requests",
        sa.Column("dataset_id", sa.BigInteger(), nullable=False),
        sa.Column("sequence", sa.BigInteger(), nullable=False),
        sa.Column("at_us", sa.BigInteger(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("asked", sa.Text(), nullable=False),
        sa.Column("actor", sa.Text(), nullable=False),
        sa.Column("team", sa.Text()),
        sa.Column("state", sa.SmallInteger(), nullable=False),
        sa.Column("decided_at", sa.BigInteger()),
        sa.Column("decided_by", sa.Text()),
        sa.Column("decided_team", sa.Text()),
        sa.Column("decided_at_us", sa.BigInteger()),
        sa.Column("decision_reason", sa.Text()),
        sa.ForeignKeyConstraint(["dataset_id"], ["datasets.id"], name="fk_budget_requests_dataset_id"),
        sa.PrimaryKeyConstraint("dataset_id", "sequence", name="pk_budget_requests"),
    )
    op.create_index(
        "ix_budget_requests_open",
        "budget_requests",
        ["dataset_id", "sequence"],
        sqlite_where=_IS_OPEN,
        postgresql_where=_IS_OPEN,
    )
    op.execute(
        "ALTER TABLE datasets ADD COLUMN governed_at BIGINT CONSTRAINT ck_datasets_governed_at"
        " CHECK (governed_at IS NULL OR governed_at = sequence)"
    )
    op.execute("UPDATE meta SET value = '0009' WHERE name = 'oldest_serving'")


def downgrade() -> None:
    """Drop them: entries of requests stay, and older code cannot read them."""
    op.execute("UPDATE meta SET value = '0008' WHERE name = 'oldest_serving'")
    op.drop_column("datasets", "governed_at")
    op.drop_table("budget_requests")
