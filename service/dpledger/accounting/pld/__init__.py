"""Privacy-loss distributions: plans fixed in advance, composed exactly, between proven bounds."""

from dpledger.accounting.pld.audit import advantage, equivalent_mu, profile_grid, true_positive_rates
from dpledger.accounting.pld.distribution import TOLERANCE, Interval, PrivacyLossDistribution
from dpledger.accounting.pld.plan import PlanLoss

__all__ = [
    "TOLERANCE",
    "Interval",
    "PlanLoss",
    "PrivacyLossDistribution",
    "advantage",
    "equivalent_mu",
    "profile_grid",
    "true_positive_rates",
]
