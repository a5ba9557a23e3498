"""How private models are scored and compared."""

import math

import numpy as np
import pytest
from scipy.stats import norm
from sklearn.metrics import roc_auc_score

from benchmarks.simulations import TABLES, TEST_ROWS, simulate
from benchmarks.utility.baselines import gaussian_mu
from benchmarks.utility.cells import DATASETS, DEFAULT, EPSILONS, Score, best_cells, score, summarize
from benchmarks.utility.report import last_line, table


def test_scores_are_scikit_learns() -> None:
    random = np.random.default_rng(3)
    y = np.where(random.random(500) < 0.3, 1.0, -1.0)
    margins = np.round(y * 0.4 + random.normal(size=500), 1)
    accuracy, area = score(margins, y)
    assert accuracy == pytest.approx(100.0 * np.mean((margins > 0.0) == (y > 0.0)))
    assert area == pytest.approx(100.0 * roc_auc_score(y, margins))


def _scores(best: float, default: float) -> list[Score]:
    """Two methods with a standard error of 1 each, in every cell."""
    found = [Score("adult", "non-private", None, seed, 90.0, 95.0) for seed in range(2)]
    for dataset in DATASETS:
        for epsilon in EPSILONS:
            for method, mean in (("other", best), (DEFAULT, default)):
                found += [
                    Score(dataset, method, epsilon, seed, mean + shift, mean + shift)
                    for seed, shift in enumerate((-1.0, 1.0))
                ]
            found.append(Score(dataset, "tried once", epsilon, 0, 99.0, 99.0))
    return found


@pytest.mark.parametrize(("default", "cells"), [(80.0, 16), (79.5, 16), (78.9, 0), (81.0, 16)])
def test_a_cell_counts_within_one_standard_error_of_the_best(default: float, cells: int) -> None:
    summaries = summarize(_scores(80.0, default))
    found = best_cells(summaries)
    assert (len(found), sum(within for _, within in found)) == (16, cells)
    assert last_line(summaries, found).splitlines()[-1] == (
        f"ratio best_cells={cells}/16 adult_gap_0.4={90.0 - default:.2f}"
    )
    assert "| tried once | 1 | 99.00 ± nan |" in table(summaries)


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_mu_has_the_delta_of_its_epsilon(epsilon: float) -> None:
    mu = gaussian_mu(epsilon)
    delta = norm.cdf(mu / 2 - epsilon / mu) - math.exp(epsilon) * norm.cdf(-mu / 2 - epsilon / mu)
    assert delta == pytest.approx(1e-8, rel=1e-3)


def test_simulated_tables_have_the_shape_and_the_labels_that_they_state() -> None:
    made = TABLES["c"]
    X, y = simulate(made, 1)
    assert X.shape == (made.records + TEST_ROWS, sum(made.groups) + len(made.numbers))
    assert 0.0 <= X.min() <= X.max() <= 1.0
    assert np.mean(y > 0.0) == pytest.approx(made.positives, abs=0.02)
