"""The public face of the accounting package: what outside callers may use, and its example."""

import doctest
import importlib
import subprocess
import sys

import pytest

from dpledger import accounting

FACE = {
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
}


def test_the_face_is_what_it_was() -> None:
    assert set(accounting.__all__) == FACE
    assert len(accounting.__all__) == len(FACE)


@pytest.mark.parametrize("name", sorted(FACE))
def test_every_name_is_there_and_documented(name: str) -> None:
    found = getattr(accounting, name)

    assert name in dir(accounting)
    home = accounting._HOMES.get(name)
    if home is not None:
        assert found is getattr(importlib.import_module(f"dpledger.accounting.{home}"), name)
    if callable(found):
        assert found.__doc__


def test_the_table_of_modules_has_no_name_beside_the_face() -> None:
    assert set(accounting._HOMES) <= FACE


def test_what_is_not_there_is_refused() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        accounting.nothing  # noqa: B018


def test_the_example_runs() -> None:
    result = doctest.testmod(accounting)

    assert result.attempted >= 10
    assert result.failed == 0


def test_an_error_is_imported_without_scipy() -> None:
    code = "import sys; from dpledger.accounting import InvalidInput; assert 'scipy' not in sys.modules"

    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
