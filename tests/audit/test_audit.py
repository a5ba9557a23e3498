"""The audit's own parts: its bounds hold, and no method is without a case."""

from collections import Counter
from typing import Any

import numpy as np
import pytest

from dpledger.accounting.gaussian_profile import gaussian_epsilon
from dpledger_client import Ledger
from dpledger_client.optimizers import METHODS
from tests.audit import __main__ as command
from tests.audit.attack import lower_bound
from tests.audit.cases import CASES
from tests.audit.ledgers import charge
from tests.audit.running import audit

RUNS = 4_000


def test_every_private_method_has_a_case(monkeypatch: pytest.MonkeyPatch) -> None:
    assert command.uncovered() == []
    names = [case.covers for case in CASES]
    assert len(names) == len(set(names))
    monkeypatch.setitem(METHODS, "new", METHODS["dp-sgd"])
    assert command.uncovered() == ["new"]


@pytest.mark.parametrize("mu", [0.5, 1.0, 2.0, 4.0])
@pytest.mark.parametrize("delta", [1e-6, 0.05])
def test_the_bound_is_below_what_is_true_and_not_far(mu: float, delta: float) -> None:
    """A Gaussian, whose ε is known: of 20 audits at 99.9 % none is above it."""
    random = np.random.default_rng(3)
    exact = gaussian_epsilon(mu, delta)
    found = [
        lower_bound(random.normal(mu, 1.0, RUNS).tolist(), random.normal(0.0, 1.0, RUNS).tolist(), delta)
        for _ in range(20)
    ]
    assert max(found) <= exact
    if delta > 0.01 and mu >= 1.0:
        assert np.median(found) > gaussian_epsilon(mu / 2.0, delta)


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_an_event_on_either_side_counts(sign: float) -> None:
    """Randomized response with e^ε = 9: both of its rare answers give it away."""
    p, q = np.zeros(RUNS), np.zeros(RUNS)
    p[: int(0.9 * RUNS)] = q[int(0.9 * RUNS) :] = sign
    random = np.random.default_rng(1)
    found = lower_bound(random.permutation(sign * p).tolist(), random.permutation(sign * q).tolist(), 0.0)
    assert 1.8 < found < np.log(9.0)


def test_nothing_is_found_where_nothing_is_told() -> None:
    random = np.random.default_rng(2)
    assert lower_bound(random.normal(size=RUNS).tolist(), random.normal(size=RUNS).tolist(), 0.0) < 0.2
    assert lower_bound([1.0] * RUNS, [1.0] * RUNS, 0.0) == 0.0


def test_a_charge_is_the_tightest_composition_of_what_was_granted() -> None:
    step = '[[{"mechanism": "gaussian", "noise_std": 2.0, "sensitivity": 1.0}], {"scheme": "full"}]'
    assert charge(Counter({step: 4}), "add-remove", 0.05) == pytest.approx(
        gaussian_epsilon(1.0, 0.05), rel=1e-3
    )


def test_half_the_noise_is_caught_and_all_of_it_is_enough(ledger: Any) -> None:
    [case] = (case for case in CASES if case.covers == "noisy-gd")
    found = audit(case, ledger, 300, seed=5)
    assert not found.above
    assert found.spent_halved > found.spent + 0.5
    assert str(found).startswith("noisy-gd")


@pytest.fixture
def ledger(tmp_path: Any) -> Any:
    with Ledger.embedded(tmp_path / "ledger.db") as ledger:
        yield ledger
