"""Proven privacy costs: mechanisms, samples and steps, conversions, compositions, calibrations.

Pure functions of numbers: nothing here knows a ledger, a database or a network. Costs are rounded up and
budgets down; whatever no theorem covers is refused (:class:`Unproven`), and so is every number outside of its
range (:class:`InvalidInput`).

A step of DP-SGD, its Rényi cost, and what a thousand of them amount to:

>>> from dpledger.accounting import DEFAULT_ORDERS, Gaussian, Plan, Release, Sample, Scheme, Step
>>> from dpledger.accounting import calibrate_noise_std, compose, cost_of
>>> noise = Gaussian(sensitivity=1.0, noise_std=1.1)
>>> step = Step((Release(noise),), Sample(Scheme.POISSON, rate=0.01))
>>> cost_of(step, DEFAULT_ORDERS).orders.size == DEFAULT_ORDERS.size
True
>>> plan = Plan(((step, 1000),), delta=1e-5)
>>> round(compose(plan, "rdp").epsilon, 3), round(compose(plan, "pld").epsilon, 3)
(1.712, 1.515)
>>> round(calibrate_noise_std(1.0, 1e-5, steps=1000, rate=0.01).value, 3)
1.513

What a guarantee implies in another notion, and by which theorem:

>>> from dpledger.accounting import Notion, Target, Zcdp, convert
>>> found = convert(Zcdp(rho=0.1), Target(Notion.APPROXIMATE, delta=1e-6))
>>> round(found.guarantee.epsilon, 3), found.method
(2.142, 'canonne-kamath-steinke')

Costs that a caller declares are mechanisms too: ``Pure``, ``Approximate``, ``ZCDP``, ``GDP`` and ``RDP`` of
``mechanisms``. Names are loaded when they are first asked for: importing an error must not load scipy.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dpledger.accounting import mechanisms
    from dpledger.accounting.amplification.approximate import amplified_approximate
    from dpledger.accounting.amplification.mixture import mixture_curve
    from dpledger.accounting.calibration import (
        Calibration,
        calibrate_noise,
        calibrate_noise_std,
        calibrate_rate,
        calibrate_steps,
    )
    from dpledger.accounting.composition import (
        Composition,
        Plan,
        compose,
        lecture_gaussian_noise_std,
        lecture_strong_step,
        sampling_composition_delta,
    )
    from dpledger.accounting.conversion import (
        Approximate,
        Conversion,
        Gdp,
        Guarantee,
        Notion,
        Pure,
        Rdp,
        Target,
        Zcdp,
        convert,
        delta_at,
        epsilon_at,
        invert,
        methods_between,
    )
    from dpledger.accounting.cost import Cost
    from dpledger.accounting.errors import (
        AccountingError,
        AdjacencyMismatch,
        InvalidInput,
        Unproven,
        Unreachable,
    )
    from dpledger.accounting.gaussian_profile import classic_gaussian_noise_std
    from dpledger.accounting.mechanisms import (
        MECHANISMS,
        AboveThreshold,
        DiscreteGaussian,
        Exponential,
        Gaussian,
        Laplace,
        Mechanism,
        NoisyMax,
        NoisyVotes,
        OutputMixture,
        ProposeTestRelease,
        RandomizedResponse,
        register,
    )
    from dpledger.accounting.orders import DEFAULT_ORDERS
    from dpledger.accounting.pld.domination import dominates
    from dpledger.accounting.pld.plan import PlanLoss
    from dpledger.accounting.sampling import Adjacency, Sample, Scheme
    from dpledger.accounting.sensitivity import (
        contraction_factor,
        fixed_step_sensitivity,
        mpadmm_sensitivity,
        permuted_sgd_sensitivities,
        restarting_schedule,
        shrinking_schedule,
    )
    from dpledger.accounting.stepcost import cost_of
    from dpledger.accounting.steps import Release, Step
    from dpledger.accounting.tuning import PoissonTrials, TruncatedNegativeBinomial, tuned_cost

__all__ = [
    "DEFAULT_ORDERS",
    "MECHANISMS",
    "AboveThreshold",
    "AccountingError",
    "Adjacency",
    "AdjacencyMismatch",
    "Approximate",
    "Calibration",
    "Composition",
    "Conversion",
    "Cost",
    "DiscreteGaussian",
    "Exponential",
    "Gaussian",
    "Gdp",
    "Guarantee",
    "InvalidInput",
    "Laplace",
    "Mechanism",
    "NoisyMax",
    "NoisyVotes",
    "Notion",
    "OutputMixture",
    "Plan",
    "PlanLoss",
    "PoissonTrials",
    "ProposeTestRelease",
    "Pure",
    "RandomizedResponse",
    "Rdp",
    "Release",
    "Sample",
    "Scheme",
    "Step",
    "Target",
    "TruncatedNegativeBinomial",
    "Unproven",
    "Unreachable",
    "Zcdp",
    "amplified_approximate",
    "calibrate_noise",
    "calibrate_noise_std",
    "calibrate_rate",
    "calibrate_steps",
    "classic_gaussian_noise_std",
    "compose",
    "contraction_factor",
    "convert",
    "cost_of",
    "delta_at",
    "dominates",
    "epsilon_at",
    "fixed_step_sensitivity",
    "invert",
    "lecture_gaussian_noise_std",
    "lecture_strong_step",
    "mechanisms",
    "methods_between",
    "mixture_curve",
    "mpadmm_sensitivity",
    "permuted_sgd_sensitivities",
    "register",
    "restarting_schedule",
    "sampling_composition_delta",
    "shrinking_schedule",
    "tuned_cost",
]

_MODULES = {
    "amplification.approximate": "amplified_approximate",
    "amplification.mixture": "mixture_curve",
    "calibration": "Calibration calibrate_noise calibrate_noise_std calibrate_rate calibrate_steps",
    "composition": (
        "Composition Plan compose lecture_gaussian_noise_std lecture_strong_step sampling_composition_delta "
    ),
    "conversion": (
        "Approximate Conversion Gdp Guarantee Notion Pure Rdp Target Zcdp convert delta_at "
        "epsilon_at invert methods_between "
    ),
    "cost": "Cost",
    "errors": "AccountingError AdjacencyMismatch InvalidInput Unproven Unreachable",
    "gaussian_profile": "classic_gaussian_noise_std",
    "mechanisms": (
        "AboveThreshold DiscreteGaussian Exponential Gaussian Laplace MECHANISMS Mechanism NoisyMax "
        "NoisyVotes OutputMixture ProposeTestRelease RandomizedResponse register "
    ),
    "orders": "DEFAULT_ORDERS",
    "pld.domination": "dominates",
    "pld.plan": "PlanLoss",
    "sampling": "Adjacency Sample Scheme",
    "sensitivity": (
        "contraction_factor fixed_step_sensitivity mpadmm_sensitivity permuted_sgd_sensitivities "
        "restarting_schedule shrinking_schedule "
    ),
    "stepcost": "cost_of",
    "steps": "Release Step",
    "tuning": "PoissonTrials TruncatedNegativeBinomial tuned_cost",
}
_HOMES = {name: module for module, names in _MODULES.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = importlib.import_module(f"{__name__}.{_HOMES.get(name, name)}")
    found = globals()[name] = getattr(module, name) if name in _HOMES else module
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
