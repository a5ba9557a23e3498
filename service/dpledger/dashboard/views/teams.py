"""Teams of a dataset and their quotas."""

import decimal
from dataclasses import dataclass

from dpledger.ledger.model.quota import Quota
from dpledger.ledger.model.state import LedgerState
from dpledger.storage.read_models.dashboard import DashboardReader

__all__ = ["QuotaItem", "TeamsPart", "teams_part"]

_FEW = 20


@dataclass(frozen=True)
class QuotaItem:
    """A quota: its limit, and what is used, held and left of the budget within it.

    ``used_share`` is a part of the quota; all others are parts of the budget.
    """

    team: str
    window_seconds: int | None
    fraction: float
    left: float
    used_share: float
    is_used_up: bool
    open_reservations: int
    frees_at_us: int | None
    sequence: int
    percent: str
    """The fraction as a form takes it."""


@dataclass(frozen=True)
class TeamsPart:
    """Quotas in force, and the teams that have entries and none."""

    quotas: list[QuotaItem]
    others: list[str]
    next: int | None


def teams_part(reader: DashboardReader, state: LedgerState, after: int, now_us: int) -> TeamsPart | None:
    """Teams and their quotas; None where there are neither."""
    found = reader.quotas(state.dataset_id, after, _FEW + 1) if state.has_quotas else []
    limited = {quota.team for quota in found}
    others = [name for name in reader.teams(state.dataset_id, _FEW) if name not in limited]
    if not (found or others or after):
        return None
    following = found[_FEW - 1].sequence if len(found) > _FEW else None
    return TeamsPart([_item(state, quota, now_us) for quota in found[:_FEW]], others, following)


def _item(state: LedgerState, quota: Quota, now_us: int) -> QuotaItem:
    now = quota.at(now_us)
    left = now.remaining(state.budget)["fraction"]
    used = min(1.0, max(0.0, 1.0 - left / quota.fraction))
    percent = decimal.Decimal(repr(quota.fraction)).scaleb(2).normalize()
    return QuotaItem(
        quota.team,
        quota.window_seconds,
        quota.fraction,
        left,
        used,
        left <= 0.0,
        quota.open_reservations,
        now.frees_at_us,
        quota.sequence,
        f"{percent:f}",
    )
