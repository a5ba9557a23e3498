"""The simulations behind the rule draw what they say, and noise costs accuracy."""

import numpy as np
import pytest

from benchmarks.rule_simulation import Case, Setting, accuracy, drawn


@pytest.mark.parametrize("kind", ["one-hot", "dense", "low-rank", "clusters"])
def test_less_noise_is_no_worse(kind: str) -> None:
    case = Case(kind, 400, 12, 3)
    X, y = drawn(case, np.random.default_rng(1))
    assert X.shape == (4_400, 12)
    assert np.abs(X).max() <= 1.0
    exact, noisy = (
        np.mean([accuracy(case, X, y, mu, Setting(), seed) for seed in range(4)]) for mu in (5.0, 0.01)
    )
    assert exact > noisy - 0.01
