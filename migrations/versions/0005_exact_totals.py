"""Exact totals: what is spent and reserved as rational numbers, beside the floats that are shown."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the columns; they stay null in ledgers that were opened before, which go on adding floats."""
    op.add_column("datasets", sa.Column("exact", sa.Text()))
    op.add_column("partitions", sa.Column("exact", sa.Text()))


def downgrade() -> None:
    """Drop the columns: ledgers that were exact go on in floats, rounded up, and no longer replay to them."""
    op.drop_column("partitions", "exact")
    op.drop_column("datasets", "exact")
