"""Teams of tokens, whom entries and runs are attributed to, and their quotas.

Code of before may go on serving ledgers without quotas where it runs already: a dataset with quotas says so
in a column that such code leaves behind, and the database refuses what it writes then. It is not ready, and
does not start any more.
"""

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None

_LABELLED: dict[str, sa.types.TypeEngine[Any]] = {
    "tokens": sa.Text(),
    "entries": sa.Integer(),
    "runs": sa.Integer(),
    "refusals": sa.Text(),
}


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
    op.create_table(
        "quotas",
        sa.Column("dataset_id", sa.BigInteger(), nullable=False),
        sa.Column("sequence", sa.BigInteger(), nullable=False),
        sa.Column("team", sa.Text(), nullable=False),
        sa.Column("fraction", sa.Double(), nullable=False),
        sa.Column("window_seconds", sa.Integer()),
        sa.Column("slices", sa.Text(), nullable=False),
        sa.Column("held", sa.Text(), nullable=False),
        sa.Column("open_reservations", sa.Integer(), nullable=False),
        sa.Column("latest_us", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["dataset_id"], ["datasets.id"], name="fk_quotas_dataset_id"),
        sa.PrimaryKeyConstraint("dataset_id", "sequence", name="pk_quotas"),
    )
    op.execute(
        "ALTER TABLE datasets ADD COLUMN quotas_at BIGINT CONSTRAINT ck_datasets_quotas_at"
        " CHECK (quotas_at IS NULL OR quotas_at = sequence)"
    )
    op.execute("UPDATE meta SET value = '0008' WHERE name = 'oldest_serving'")


def downgrade() -> None:
    """Drop them: entries of teams no longer match their hashes, and quotas limit nothing."""
    op.execute("UPDATE meta SET value = '0006' WHERE name = 'oldest_serving'")
    op.drop_column("datasets", "quotas_at")
    op.drop_table("quotas")
    for table in _LABELLED:
        op.drop_column(table, "team")
    op.drop_table("teams")
