"""From (ε, δ), or a share of what is left, to a training that fits the budget of any kind."""

from typing import Any

import numpy as np
import pytest

from dpledger_client import Dataset, Ledger
from dpledger_client._arrays import Floats
from dpledger_client.objectives import Logistic
from dpledger_client.optimizers import minimize
from dpledger_client.optimizers.methods.noisy_gd import NoisyGradientDescent
from tests.client.optimizers.test_contract import fresh_name

RECORDS = 4_000
TARGET: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-6}
KINDS: dict[str, dict[str, Any]] = {
    "shared": {"accounting": "shared", **TARGET},
    "zcdp": {"accounting": "zcdp", **TARGET},
    "gdp": {"accounting": "gdp", **TARGET},
    "rdp": {"accounting": "rdp", **TARGET},
    "plan": {"accounting": "plan", **TARGET, "items": [{"name": "looks", "gdp": {"mu": 0.2367}}]},
}


def _data() -> tuple[Floats, Floats]:
    random = np.random.default_rng(7)
    X = random.normal(size=(RECORDS, 5))
    return X, np.where(X @ [1.0, -2.0, 0.0, 0.5, 1.0] > 0.0, 1.0, -1.0)


def _open(ledger: Ledger, kind: str, **settings: Any) -> Dataset:
    return ledger.dataset(fresh_name()).open(KINDS[kind], records=RECORDS, **settings)


@pytest.mark.parametrize("adjacency", ["add-remove", "replace-one"])
@pytest.mark.parametrize("kind", KINDS)
def test_one_call_spends_what_it_was_given_and_learns(ledger: Ledger, kind: str, adjacency: str) -> None:
    dataset = _open(ledger, kind, adjacency=adjacency)
    X, y = _data()
    result = minimize(Logistic(), X, y, account=dataset.run("job"), **TARGET)
    assert (result.stop_reason, result.iterations) == ("finished", 100)
    assert dataset.budget().fraction < 0.02
    assert np.mean(np.sign(X @ result.w) == y) > 0.9
    [item] = result.plan.items
    assert item["times"] == 100
    if kind == "shared":
        [allocation] = dataset.allocations()
        assert allocation["name"] == result.plan.allocation
        assert allocation["remaining"]["fraction"] == 0.0


@pytest.mark.parametrize("kind", KINDS)
def test_half_of_what_is_left_leaves_the_other_half(ledger: Ledger, kind: str) -> None:
    dataset = _open(ledger, kind)
    X, y = _data()
    result = minimize(Logistic(), X, y, account=dataset.run("job"), spend=0.5)
    assert result.stop_reason == "finished"
    assert dataset.budget().fraction == pytest.approx(0.5, abs=0.01)


def test_parameters_that_are_given_stay_and_the_noise_follows_them(ledger: Ledger) -> None:
    X, y = _data()
    dataset = _open(ledger, "gdp")
    result = minimize(
        Logistic(), X, y, account=dataset.run("a"), method="noisy-gd", steps=25, clip=0.5, **TARGET
    )
    method = result.plan.method
    assert isinstance(method, NoisyGradientDescent)
    assert (method.steps, method.clip, result.iterations) == (25, 0.5, 25)
    assert method.noise_multiplier == pytest.approx(5.0 / 0.2367, rel=1e-3)


def test_more_than_is_left_is_refused_before_anything_is_asked(ledger: Ledger) -> None:
    X, y = _data()
    dataset = _open(ledger, "zcdp")
    with pytest.raises(ValueError, match="by spend="):
        minimize(Logistic(), X, y, account=dataset.run("job"), epsilon=2.0, delta=1e-6)
    assert len(list(dataset.entries())) == 1


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"epsilon": 1.0}, "together"),
        ({"epsilon": 1.0, "delta": 1e-6, "spend": 0.5}, "either"),
        ({"spend": 0.0}, "spend must be"),
        ({"spend": float("nan")}, "spend must be"),
        ({"epsilon": -1.0, "delta": 1e-6}, "epsilon"),
        ({"epsilon": 1.0, "delta": 1.0}, "delta"),
        ({"epsilon": 1.0, "delta": 1e-6, "method": "dp-agd"}, "no rule"),
        ({}, "method must be named"),
        ({"epsilon": 1.0, "delta": 1e-6, "method": NoisyGradientDescent(1, 1.0, 1.0, 1.0)}, "method's name"),
    ],
)
def test_what_is_asked_for_must_be_one_thing(ledger: Ledger, asked: dict[str, Any], message: str) -> None:
    X, y = _data()
    with pytest.raises(ValueError, match=message):
        minimize(Logistic(), X, y, account=_open(ledger, "gdp").run("job"), **asked)


def test_an_epsilon_that_is_a_methods_own_parameter_stays_one(ledger: Ledger) -> None:
    X, y = _data()
    account = _open(ledger, "zcdp").run("job")
    result = minimize(Logistic(), X, y, account=account, method="private-majority", epsilon=0.1)
    assert result.plan is None


def test_a_step_is_as_long_as_the_noise_allows(ledger: Ledger) -> None:
    """ηT = k·nμ/Δ, of which momentum 0.9 takes nine tenths; k = √(nμ/(500Δ)) within [1, 3]."""
    X, y = _data()
    dataset = _open(ledger, "gdp")
    method = minimize(Logistic(), X, y, account=dataset.run("a"), **TARGET).plan.method
    strength = RECORDS * 0.2367
    assert method.step_size * method.steps / 0.1 == pytest.approx(
        np.sqrt(strength / 500.0) * strength, rel=1e-3
    )
