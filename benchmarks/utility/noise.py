"""The noise of a peer's DP-SGD, by privacy-loss distributions.

Opacus calibrates by its PRV accountant, whose bound is above the true ε by up to its ``eps_error``, 0.01
unless set: a fifth of ε = 0.05. The service's own distributions are within 0.02 % of the least noise, so that
peers get no more noise than PRV would ask for, and mostly less.
"""

from dpledger_client import Account
from dpledger_client.optimizers.support.rules import Request
from dpledger_client.optimizers.support.rules.room import Room
from dpledger_client.samples import Poisson

__all__ = ["poisson_noise"]


def poisson_noise(account: Account, epsilon: float, delta: float, rate: float, steps: int) -> float:
    """The least noise multiplier of so many Poisson-sampled Gaussian steps within (ε, δ)."""
    return Room.of(account, Request(epsilon, delta)).multiplier(steps, Poisson(rate))
