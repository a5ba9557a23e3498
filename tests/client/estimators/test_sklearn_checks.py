"""scikit-learn's own checks of an estimator, all but those that would have it look at private values."""

from typing import Any

import pytest
from sklearn.utils.estimator_checks import check_estimator

from dpledger_client import Ledger, no_noise_for_testing
from dpledger_client.estimators import (
    PrivateLinearRegression,
    PrivateLinearSVC,
    PrivateLogisticRegression,
    PrivateMLPClassifier,
)
from dpledger_client.optimizers.methods.noisy_gd import NoisyGradientDescent

VALUES = "an error about a private value would be a release"
CLASSES = "classes are given: which labels occur is private"
ANY = {
    "check_dtype_object": VALUES,
    "check_estimators_nan_inf": VALUES,
    "check_supervised_y_no_nan": VALUES,
}
CLASSIFIER = ANY | {
    "check_classifiers_classes": CLASSES,
    "check_classifiers_regression_target": CLASSES,
    "check_classifiers_train": CLASSES,
}
PROBABILITIES = CLASSIFIER | {
    "check_estimator_sparse_array": CLASSES,
    "check_estimator_sparse_matrix": CLASSES,
}


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.DataConversionWarning")
@pytest.mark.parametrize(
    ("kind", "more", "expected"),
    [
        (PrivateLinearRegression, {"target_bound": 10.0}, ANY),
        (PrivateLogisticRegression, {"classes": (0, 1)}, PROBABILITIES),
        (PrivateLinearSVC, {"classes": (0, 1)}, CLASSIFIER),
        (PrivateMLPClassifier, {"classes": (0, 1), "hidden": (4,)}, PROBABILITIES),
    ],
)
def test_it_passes_all_checks_but_those_about_values(
    ledger: Ledger, kind: Any, more: dict[str, Any], expected: dict[str, str]
) -> None:
    """Without noise, since some checks compare two fits."""
    dataset = ledger.dataset(f"checks-{kind.__name__.lower()}").open(
        {"accounting": "zcdp", "rho": 1e9}, adjacency="replace-one"
    )
    method = NoisyGradientDescent(steps=5, clip=1.0, noise_multiplier=1.0, step_size=0.5)
    with no_noise_for_testing():
        results = check_estimator(
            kind(dataset.run("checks"), method=method, **more), on_fail=None, on_skip=None
        )

    failed = {result["check_name"] for result in results if result["status"] == "failed"}
    assert failed == set(expected)
    assert sum(result["status"] == "passed" for result in results) >= 38
