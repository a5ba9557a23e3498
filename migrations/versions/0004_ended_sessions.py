"""Sessions of the dashboard that were ended before their time: a copied cookie of one is worth nothing."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the table, and an index of what can be forgotten."""
    op.create_table(
        "ended_sessions",
        sa.Column("id", sa.LargeBinary(), nullable=False),
        sa.Column("ends_at_us", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_ended_sessions"),
    )
    op.create_index("ix_ended_sessions_ends_at_us", "ended_sessions", ["ends_at_us"])


def downgrade() -> None:
    """Forget who logged out; their cookies are good again until they end by themselves."""
    op.drop_table("ended_sessions")
