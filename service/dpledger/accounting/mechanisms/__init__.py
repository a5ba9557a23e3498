"""The mechanisms, by their name on the wire.

To add one: a module with its class, and its line in ``_ALL``. The class carries all that others ask of it.
"""

from dpledger.accounting.mechanisms.above_threshold import AboveThreshold
from dpledger.accounting.mechanisms.base import Mechanism
from dpledger.accounting.mechanisms.declared import GDP, RDP, ZCDP, Approximate, Pure
from dpledger.accounting.mechanisms.gaussian import DiscreteGaussian, Gaussian
from dpledger.accounting.mechanisms.laplace import Laplace
from dpledger.accounting.mechanisms.output_mixture import OutputMixture
from dpledger.accounting.mechanisms.pure import RandomizedResponse
from dpledger.accounting.mechanisms.selection import Exponential, NoisyMax
from dpledger.accounting.mechanisms.stability import ProposeTestRelease
from dpledger.accounting.mechanisms.tuned import Tuned
from dpledger.accounting.mechanisms.votes import NoisyVotes

__all__ = [
    "GDP",
    "MECHANISMS",
    "RDP",
    "ZCDP",
    "AboveThreshold",
    "Approximate",
    "DiscreteGaussian",
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
    "register",
]

_ALL: tuple[type[Mechanism], ...] = (
    AboveThreshold,
    Approximate,
    DiscreteGaussian,
    Exponential,
    GDP,
    Gaussian,
    Laplace,
    NoisyMax,
    NoisyVotes,
    OutputMixture,
    ProposeTestRelease,
    Pure,
    RDP,
    RandomizedResponse,
    Tuned,
    ZCDP,
)

MECHANISMS: dict[str, type[Mechanism]] = {}


def register(mechanism: type[Mechanism]) -> None:
    """Make a mechanism known under its kind, to the ledger, the API, the command line and the dashboard."""
    if MECHANISMS.setdefault(mechanism.kind, mechanism) is not mechanism:
        raise ValueError(f"there is a mechanism {mechanism.kind} already")


for _each in _ALL:
    register(_each)
