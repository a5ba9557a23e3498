"""Objectives: per-example losses and clipped gradients, vectorised.

A private optimizer releases sums over examples whose every term is clipped. What the noise is scaled to
is how far such a sum moves between neighbours: ``clip`` when a record is added or removed, ``2·clip`` when
one is replaced. The functions here keep to that whatever the data are: a row that is not finite, or so
large that its norm is not, counts as zero, and the limit that is applied is 2⁻²⁰ below the one asked for.
That margin pays for the rounding errors of a floating-point sum, which depend on every other record
(Casacuberta, Shoemate, Vadhan, Wagaman 2022). In blocks of m rows, a sum of n terms of norm C is off by
less than (m + n/m)·n·2⁻⁵³·C: with the blocks used here the margin covers both of two neighbours up to
2²⁰ records. A record's own gradient is rounded the same whoever is beside it.
"""

from dpledger_client.objectives.base import (
    CLIP_MARGIN,
    Objective,
    gradient_sensitivity,
    loss_sensitivity,
)
from dpledger_client.objectives.linear import HingeSVM, HuberSVM, LeastSquares, Logistic, Softmax
from dpledger_client.objectives.network import MLP
from dpledger_client.objectives.ranking import BayesRank, LinearScorer, ListMLE, ListNet, MLPScorer
from dpledger_client.objectives.regularizers import L1, L2, MCP, SCAD, NuclearNorm, Regularizer, Unregularized

__all__ = [
    "CLIP_MARGIN",
    "L1",
    "L2",
    "MCP",
    "MLP",
    "SCAD",
    "BayesRank",
    "HingeSVM",
    "HuberSVM",
    "LeastSquares",
    "LinearScorer",
    "ListMLE",
    "ListNet",
    "Logistic",
    "MLPScorer",
    "NuclearNorm",
    "Objective",
    "Regularizer",
    "Softmax",
    "Unregularized",
    "gradient_sensitivity",
    "loss_sensitivity",
]
