"""Composition of plans fixed in advance; adaptive work is what filters are for."""

from dpledger.accounting.composition.advanced import (
    basic_composition,
    dwork_rothblum_vadhan_epsilon,
    lecture_gaussian_epsilon,
    lecture_gaussian_noise_std,
    lecture_strong_epsilon,
    lecture_strong_step,
)
from dpledger.accounting.composition.optimal import (
    kov_closed_epsilon,
    kov_optimal_delta,
    kov_optimal_epsilon,
)
from dpledger.accounting.composition.plan import Composition, Plan
from dpledger.accounting.composition.pld import pld_epsilon
from dpledger.accounting.composition.registry import METHODS, compose
from dpledger.accounting.composition.sampling import (
    sampling_composition_delta,
    sampling_composition_epsilon,
)

__all__ = [
    "METHODS",
    "Composition",
    "Plan",
    "basic_composition",
    "compose",
    "dwork_rothblum_vadhan_epsilon",
    "kov_closed_epsilon",
    "kov_optimal_delta",
    "kov_optimal_epsilon",
    "lecture_gaussian_epsilon",
    "lecture_gaussian_noise_std",
    "lecture_strong_epsilon",
    "lecture_strong_step",
    "pld_epsilon",
    "sampling_composition_delta",
    "sampling_composition_epsilon",
]
