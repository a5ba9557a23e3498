"""From (ε, δ), or a share of what is left, to a training that fits the budget of any kind."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dpledger_client import Dataset, Ledger
from dpledger_client._arrays import Floats
from dpledger_client.objectives import Logistic
from dpledger_client.objectives.ranking import BayesRank, LinearScorer
from dpledger_client.optimizers import minimize
from dpledger_client.optimizers.methods.noisy_gd import NoisyGradientDescent
from dpledger_client.optimizers.support.rules import RULES
from tests.client.optimizers.cases_ranking import FEATURES, ranking
from tests.client.optimizers.test_contract import fresh_name

pytestmark = pytest.mark.usefixtures("seeded")

RECORDS = 4_000
ONCE = ("nsgd", "rsgd-ar", "output-perturbation")
"""They are proven under replace-one."""
UNNAMED = ("priv-br", "private-majority", "adassp", "dp-blsgd", "dp-blsgd-ac")
"""They minimise something else than a loss of margins, or take long to be solved for."""
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
    assert (result.stop_reason, result.iterations) == ("finished", result.plan.method.planned_steps)
    assert dataset.budget().fraction < 0.02
    assert np.mean(np.sign(X @ result.w) == y) > 0.9
    assert result.plan.items[-1]["times"] == result.iterations
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


@pytest.mark.parametrize("asked", [TARGET, {"spend": 0.5}], ids=["target", "share"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_restarted_job_plans_the_same_although_less_is_left(
    ledger: Ledger, tmp_path: Path, kind: str, asked: dict[str, Any]
) -> None:
    dataset = _open(ledger, kind)
    X, y = _data()
    found, entries = [], []
    for _ in range(2):
        account = dataset.run("job", journal=tmp_path / "job.journal")
        found.append(minimize(Logistic(), X, y, account=account, method="noisy-gd", steps=20, **asked).w)
        assert account.journal is not None
        account.journal.close()
        entries.append([entry["kind"] for entry in dataset.entries()])
    assert np.array_equal(found[0], found[1])
    assert entries[0] == entries[1]


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
        ({"epsilon": 1.0, "delta": 1e-6, "method": "a-ddp"}, "no rule"),
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


def test_a_step_is_as_long_as_the_noise_and_the_curvature_allow(ledger: Ledger) -> None:
    """ηT = k·nμ/Δ, of which momentum 0.9 takes nine tenths; k = √(nμ/(500Δ)) within [1, 3]; 38/L at most."""
    X, y = _data()
    dataset = _open(ledger, "gdp")
    asked: dict[str, Any] = {"method": "noisy-gd", **TARGET}
    method = minimize(Logistic(), X, y, account=dataset.run("a"), **asked).plan.method
    strength = RECORDS * 0.2367 / method.clip
    assert method.step_size * method.steps / 0.1 == pytest.approx(
        np.sqrt(strength / 500.0) * strength, rel=1e-3
    )
    many = minimize(Logistic(), X, y, account=_open(ledger, "gdp").run("a"), records=10**9, **asked)
    assert many.plan.method.step_size == pytest.approx(38.0 / ((0.12 * 5 + 1.0) / 4.0))


@pytest.mark.parametrize("method", [name for name in RULES if name not in UNNAMED])
def test_every_method_trains_by_its_rule(ledger: Ledger, method: str) -> None:
    adjacency = "replace-one" if method in ONCE else "add-remove"
    dataset = _open(ledger, "shared", adjacency=adjacency)
    X, y = _data()
    result = minimize(Logistic(), X, y, account=dataset.run("job"), method=method, **TARGET)
    assert result.stop_reason in ("finished", "planned-budget-used")
    [allocation] = dataset.allocations()
    assert allocation["remaining"]["fraction"] < 0.03
    assert np.mean(np.sign(X @ result.w) == y) > (0.6 if method in ("privgene", "sgd-advanced") else 0.8)


@pytest.mark.parametrize(
    "method", ["privgene", "private-majority", "dp-agd", "mpadmm", "output-perturbation"]
)
def test_rules_know_budgets_that_add_up_mu(ledger: Ledger, method: str) -> None:
    dataset = _open(ledger, "gdp", adjacency="replace-one")
    X, y = _data()
    result = minimize(Logistic(), X, y, account=dataset.run("job"), method=method, **TARGET)
    assert result.iterations > 0
    assert dataset.budget().fraction < 0.05


@pytest.mark.parametrize("accounting", ["zcdp", "gdp"])
def test_a_budget_that_cannot_add_up_a_methods_steps_says_so(ledger: Ledger, accounting: str) -> None:
    dataset = _open(ledger, accounting)
    X, y = _data()
    with pytest.raises(ValueError, match=f"a budget of {accounting}"):
        minimize(Logistic(), X, y, account=dataset.run("job"), method="dp-sgd", **TARGET)
    assert len(list(dataset.entries())) == 1


def test_participants_spend_each_on_a_budget_of_its_own(ledger: Ledger) -> None:
    X, y = _data()
    budget = {"accounting": "rdp", **TARGET}
    several = [ledger.dataset(fresh_name()).open(budget, records=n) for n in (1_000, 3_000)]
    accounts = [dataset.run("job") for dataset in several]
    parts = [slice(0, 1_000), slice(1_000, 4_000)]
    result = minimize(
        Logistic(), [X[part] for part in parts], [y[part] for part in parts], account=accounts, **TARGET
    )
    assert (result.method, result.stop_reason) == ("a-ddp", "finished")
    assert all(dataset.budget().fraction < 0.02 for dataset in several)
    assert np.mean(np.sign(X @ result.w) == y) > 0.85


@pytest.mark.parametrize(("accounting", "adjacency"), [("gdp", "replace-one"), ("zcdp", "add-remove")])
def test_participants_look_at_all_their_records_where_a_sample_is_not_amplified(
    ledger: Ledger, accounting: str, adjacency: str
) -> None:
    X, y = _data()
    budget = {"accounting": accounting, **TARGET}
    several = [
        ledger.dataset(fresh_name()).open(budget, records=n, adjacency=adjacency) for n in (1_000, 3_000)
    ]
    result = minimize(
        Logistic(),
        [X[:1_000], X[1_000:]],
        [y[:1_000], y[1_000:]],
        account=[dataset.run("job") for dataset in several],
        steps=10,
        **TARGET,
    )
    assert (result.method, result.stop_reason) == ("a-ddp", "finished")
    assert {charge.sample.fields()["rate"] for charge in result.charges} == {1.0}
    assert all(dataset.budget().fraction < 0.02 for dataset in several)


def test_an_allocation_is_spent_by_its_own_kind_of_budget(ledger: Ledger) -> None:
    dataset = _open(ledger, "shared")
    X, y = _data()
    inside = dataset.run("job").allocate("part", epsilon=0.5, delta=5e-7, budget={"accounting": "zcdp"})
    result = minimize(Logistic(), X, y, account=inside, epsilon=0.5, delta=5e-7)
    assert (result.stop_reason, result.plan.allocation) == ("finished", None)
    [allocation] = dataset.allocations()
    assert allocation["remaining"]["fraction"] < 0.02


@pytest.mark.parametrize("method", ["priv-br", "noisy-gd"])
@pytest.mark.parametrize("adjacency", ["add-remove", "replace-one"])
def test_rankings_have_a_rule_too(ledger: Ledger, method: str, adjacency: str) -> None:
    X, y = ranking(lists=300)
    budget = {"accounting": "shared", "epsilon": 5.0, "delta": 1e-5}
    dataset = ledger.dataset(fresh_name()).open(budget, records=300, adjacency=adjacency)
    more: dict[str, Any] = {"documents": X} if method == "priv-br" else {}
    objective = BayesRank(LinearScorer(FEATURES), k=2)
    result = minimize(
        objective, X, y, account=dataset.run("job"), method=method, epsilon=5.0, delta=1e-5, **more
    )
    assert result.stop_reason == "finished"
    assert objective.loss(result.w, X, y) < objective.loss(np.zeros(FEATURES), X, y) - 0.05
    if method == "priv-br":
        with pytest.raises(ValueError, match="documents must be given"):
            minimize(objective, X, y, account=dataset.run("job"), method=method, epsilon=1.0, delta=1e-6)


def test_a_line_search_on_samples_is_solved_for_too(ledger: Ledger) -> None:
    dataset = _open(ledger, "shared")
    X, y = _data()
    result = minimize(
        Logistic(), X, y, account=dataset.run("job"), method="dp-blsgd", searches=5, steps=5, **TARGET
    )
    assert (result.stop_reason, result.iterations) == ("finished", 5)
    [allocation] = dataset.allocations()
    assert allocation["budget"]["accounting"] == "rdp-order"
    assert allocation["remaining"]["fraction"] < 0.01


@pytest.mark.parametrize("method", ["dp-agd", "dp-blgd", "dp-blsgd"])
def test_more_budget_does_not_end_at_the_first_exact_step(ledger: Ledger, method: str) -> None:
    """Skewed labels and a column of ones: a few exact steps down the gradient learn the column alone."""
    random = np.random.default_rng(5)
    X = np.column_stack([np.ones(10_000), random.random((10_000, 12)) < 0.2])
    w = np.array([-3.0, *np.linspace(-2.0, 2.0, 12)])
    y = np.where(random.random(10_000) < 1.0 / (1.0 + np.exp(-X @ w)), 1.0, -1.0)
    dataset = ledger.dataset(fresh_name()).open(
        {"accounting": "shared", "epsilon": 4.0, "delta": 1e-5}, records=len(y)
    )
    account = dataset.run("fit")
    trained = minimize(Logistic(), X, y, account=account, epsilon=4.0, delta=1e-5, method=method)
    constant = np.zeros(13)
    constant[0] = np.log(np.mean(y > 0.0) / np.mean(y < 0.0))
    found, learned, nothing = (Logistic().clipped_loss_sum(v, X, y, 1e6) for v in (trained.w, w, constant))
    assert found < nothing - 0.4 * (nothing - learned)
