"""The largest limits that were ever in force, beside the present ones."""

import sqlalchemy as sa
from alembic import op

from dpledger.ledger.guarantee import covering
from dpledger.ledger.model.budget import Budget
from dpledger.storage.repositories.budgets import budget_fingerprint

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

_budgets = sa.table(
    "budgets",
    sa.column("dataset_id", sa.BigInteger()),
    sa.column("number", sa.Integer()),
    sa.column("fingerprint", sa.LargeBinary()),
    sa.column("document", sa.Text()),
)
_IN_FORCE = sa.text(
    "SELECT c.dataset_id, c.from_sequence, b.document FROM budget_changes c"
    " JOIN budgets b ON b.dataset_id = c.dataset_id AND b.number = c.budget"
    " WHERE c.dataset_id IN (SELECT dataset_id FROM budget_changes WHERE from_sequence > 0)"
    " ORDER BY c.dataset_id, c.from_sequence"
)
_NUMBER = sa.text("SELECT number FROM budgets WHERE dataset_id = :id AND fingerprint = :fingerprint")
_LAST = sa.text("SELECT max(number) FROM budgets WHERE dataset_id = :id")
_KEEP = sa.text("UPDATE datasets SET guarantee = :number, guaranteed_since = :since WHERE id = :id")


def upgrade() -> None:
    """Add the columns; a budget that never changed, number 1, is its own guarantee since entry 1."""
    for name, kind in (("guarantee", sa.Integer()), ("guaranteed_since", sa.BigInteger())):
        op.add_column("datasets", sa.Column(name, kind, nullable=False, server_default="1"))
    found: dict[int, tuple[Budget, int]] = {}
    for dataset_id, sequence, document in op.get_bind().execute(_IN_FORCE).fetchall():
        budget = Budget.from_document(document)
        guarantee, since = found.get(dataset_id, (budget, 1))
        larger = covering(guarantee, budget)
        found[dataset_id] = (larger, since if larger is guarantee else sequence)
    for dataset_id, (guarantee, since) in found.items():
        values = {"id": dataset_id, "number": _number(dataset_id, guarantee), "since": since}
        op.get_bind().execute(_KEEP, values)


def _number(dataset_id: int, budget: Budget) -> int:
    """The number of a budget, which is stored if it is new."""
    connection, fingerprint = op.get_bind(), budget_fingerprint(budget)
    known = connection.execute(_NUMBER, {"id": dataset_id, "fingerprint": fingerprint}).scalar()
    if known is not None:
        return int(known)
    number = int(connection.execute(_LAST, {"id": dataset_id}).scalar_one()) + 1
    values = {"dataset_id": dataset_id, "number": number}
    connection.execute(_budgets.insert().values(**values, fingerprint=fingerprint, document=budget.document))
    return number


def downgrade() -> None:
    """Forget the guarantee; the entries still tell it."""
    op.drop_column("datasets", "guaranteed_since")
    op.drop_column("datasets", "guarantee")
