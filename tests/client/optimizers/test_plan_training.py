"""Trainings under plan budgets that were opened from what the method says it will ask for."""

from typing import Any

import numpy as np
import pytest

from dpledger_client import (
    BudgetChangedWarning,
    BudgetExhausted,
    BudgetWarning,
    Dataset,
    DatasetMismatch,
    Ledger,
    insecure_testing_noise,
)
from dpledger_client.objectives import L2, Logistic
from dpledger_client.optimizers import Method, Result, minimize
from dpledger_client.optimizers.methods.dp_agd import DPAGD
from dpledger_client.optimizers.methods.dp_blsgd import DPBLSGD
from dpledger_client.optimizers.methods.dp_sgd import DPSGD
from tests.client.optimizers.contract import classification
from tests.client.optimizers.test_contract import fresh_name

SGD = DPSGD(60, batch_size=12, clip=1.0, noise_multiplier=3.0, step_size=0.5)
AGD = DPAGD(gradient_rho=0.002, selection_rho=0.001, gradient_clip=1.0, loss_clip=5.0, total_rho=0.1)
BLSGD = DPBLSGD(
    rate=0.1,
    gradient_rho=0.005,
    search_budget=0.2,
    gradient_clip=1.0,
    loss_clip=5.0,
    step_size=1.0,
    grows="never",
    steps=20,
    searches=12,
)


def planned(ledger: Ledger, method: Method, epsilon: float = 8.0) -> tuple[Dataset, list[dict[str, Any]]]:
    """A dataset opened for a method's plan and nothing else."""
    X, y = classification()
    objective = Logistic(L2(0.01))
    facts = {"adjacency": "add-remove", "records": len(X), "ledger": ledger}
    items = method.plan(facts, objective=objective, w0=objective.initial(X, y))
    dataset = ledger.dataset(fresh_name()).open(plan=items, epsilon=epsilon, delta=1e-5, records=len(X))
    return dataset, items


def train(dataset: Dataset, method: Method) -> Result:
    X, y = classification()
    with insecure_testing_noise(7):
        return minimize(Logistic(L2(0.01)), X, y, account=dataset.run("job"), method=method, progress=False)


def used(dataset: Dataset) -> dict[str, float]:
    """What is used of each item, in its own terms."""
    spent = dataset.budget().spent["items"]
    return {item["name"]: next(value for name, value in item.items() if name != "name") for item in spent}


def test_steps_made_are_counts_used(ledger: Ledger) -> None:
    dataset, [item] = planned(ledger, SGD)
    result = train(dataset, SGD)
    assert result.iterations == len(result.charges) == item["times"] == 60
    assert used(dataset) == {item["name"]: 60}
    assert dataset.verification()["valid"]

    again = train(dataset, SGD)
    assert (again.iterations, again.stop_reason) == (0, "budget-exhausted")


@pytest.mark.parametrize("method", [AGD, BLSGD], ids=lambda method: method.name)
def test_methods_that_choose_on_the_way_stay_within_their_items(ledger: Ledger, method: Method) -> None:
    dataset, items = planned(ledger, method, epsilon=60.0)
    result = train(dataset, method)
    assert result.iterations > 3
    caps = {item["name"]: item for item in items}
    counted = {name: number for name, number in used(dataset).items() if "times" in caps[name]}
    assert all(number <= caps[name]["times"] for name, number in counted.items())
    in_counts = [charge for charge in result.charges if _is_counted(charge, items)]
    assert sum(counted.values()) == len(in_counts)
    assert any(number > 0 for number in used(dataset).values())
    assert dataset.verification()["valid"]


def _is_counted(charge: Any, items: list[dict[str, Any]]) -> bool:
    releases = [
        {name: value for name, value in release.fields().items() if name != "purpose"}
        for release in charge.releases
    ]
    step = {"sample": charge.sample.fields(), "releases": releases}
    return any(step == {name: item.get(name) for name in step} for item in items)


def test_a_plan_for_less_stops_before_the_refused_step(ledger: Ledger) -> None:
    dataset, [item] = planned(ledger, SGD)
    fewer = ledger.dataset(fresh_name()).open(
        plan=[{**item, "times": 17}], epsilon=8.0, delta=1e-5, records=len(classification()[0])
    )
    result = train(fewer, SGD)
    assert (result.iterations, result.stop_reason) == (17, "budget-exhausted")
    assert used(fewer) == {item["name"]: 17}
    account = fewer.run("more")
    with pytest.raises(BudgetExhausted, match=item["name"]), insecure_testing_noise(1):
        account.authorize(list(result.charges[0].releases), sample=result.charges[0].sample)
    assert np.isfinite(result.w).all()
    assert dataset.budget().fraction == 1.0


def test_the_largest_plan_trains_to_its_end(ledger: Ledger) -> None:
    _, [item] = planned(ledger, SGD)
    most = ledger.dataset(fresh_name()).open(
        plan=[{**item, "times": "most"}], epsilon=2.0, delta=1e-5, records=len(classification()[0])
    )
    count = most.show()["budget"]["items"][0]["times"]
    long = DPSGD(count + 10, batch_size=12, clip=1.0, noise_multiplier=3.0, step_size=0.5)
    result = train(most, long)
    assert (result.iterations, result.stop_reason) == (count, "budget-exhausted")


LOOK: dict[str, Any] = {"mechanism": "gaussian", "sensitivity": 1.0, "noise_std": 40.0}
PLAN: list[dict[str, Any]] = [
    {"name": "looks", "releases": [LOOK, {**LOOK, "noise_std": 50, "purpose": "evaluate"}], "times": "most"},
    {"name": "cap", "gdp": {"mu": 0.1}},
]


def test_a_notebook_that_is_run_again_finds_its_plan(ledger: Ledger) -> None:
    dataset = ledger.dataset(fresh_name())
    dataset.open(plan=PLAN, epsilon=1.0, delta=1e-5)
    again = [{**PLAN[0], "releases": [{**LOOK, "noise_std": 50.0}, LOOK]}, PLAN[1]]
    for items in (PLAN, again):
        dataset.open(plan=items, epsilon=1.0, delta=1e-5, exist_ok=True)

    for other in (
        [PLAN[0]],
        [{**PLAN[0], "times": 1}, PLAN[1]],
        [{**PLAN[0], "releases": [LOOK]}, PLAN[1]],
        [PLAN[0], {"name": "cap", "gdp": {"mu": 0.2}}],
    ):
        with pytest.raises(DatasetMismatch, match="items"):
            dataset.open(plan=other, epsilon=1.0, delta=1e-5, exist_ok=True)


def test_a_plan_that_was_lowered_since_is_warned_of(ledger: Ledger) -> None:
    dataset = ledger.dataset(fresh_name())
    plan = [{"name": "looks", "releases": [LOOK], "times": 5}]
    dataset.open(plan=plan, epsilon=1.0, delta=1e-5)
    lower = {"accounting": "plan", "items": [{"name": "looks", "times": 3}]}
    with pytest.warns(BudgetWarning, match="largest that was ever in force"):
        dataset.change_budget(lower, "a smaller study", sequence=dataset.budget().sequence)
    with pytest.warns(BudgetChangedWarning, match="changed since"):
        dataset.open(plan=plan, epsilon=1.0, delta=1e-5, exist_ok=True)
