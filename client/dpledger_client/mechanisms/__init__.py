"""Mechanisms: how noise is added, in the form that the service reads."""

from dpledger_client.mechanisms.additive import (
    DiscreteGaussian,
    DiscreteLaplace,
    Gaussian,
    Laplace,
    OutputMixture,
)
from dpledger_client.mechanisms.base import Mechanism
from dpledger_client.mechanisms.declared import GDP, RDP, ZCDP, Approximate, Pure
from dpledger_client.mechanisms.selection import Exponential, NoisyMax, NoisyVotes
from dpledger_client.mechanisms.tuned import Tuned
from dpledger_client.mechanisms.verdicts import AboveThreshold, ProposeTestRelease, RandomizedResponse

__all__ = [
    "GDP",
    "RDP",
    "ZCDP",
    "AboveThreshold",
    "Approximate",
    "DiscreteGaussian",
    "DiscreteLaplace",
    "Exponential",
    "Gaussian",
    "Laplace",
    "Mechanism",
    "NoisyMax",
    "NoisyVotes",
    "OutputMixture",
    "ProposeTestRelease",
    "Pure",
    "RandomizedResponse",
    "Tuned",
]
