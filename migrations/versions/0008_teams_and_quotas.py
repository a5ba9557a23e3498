"""Teams of tokens, whom entries and runs are attributed to."""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None

_LABELLED = {"tokens": sa.Text(), "entries": sa.Integer(), "runs": sa.Integer()}


def upgrade() -> None:
    """Create the table of teams, and columns that are null where there is none."""
    op.create_table(
        "teams",
        sa.Column("dataset_id", sa.BigInteger(), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["dataset_id"], ["datasets.id"], name="fk_teams_dataset_id"),
        sa.PrimaryKeyConstraint("dataset_id", "number", name="pk_teams"),
        sa.UniqueConstraint("dataset_id", "name", name="uq_teams_dataset_id_name"),
    )
    for table, kind in _LABELLED.items():
        op.add_column(table, sa.Column("team", kind))


def downgrade() -> None:
    """Drop them: entries of teams no longer match their hashes."""
    for table in _LABELLED:
        op.drop_column(table, "team")
    op.drop_table("teams")
