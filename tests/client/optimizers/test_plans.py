"""Every method says in advance what it asks for, by the code that describes its steps when it trains."""

import dataclasses
from collections import Counter
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from dpledger_client import Ledger, Poisson, insecure_testing_noise
from dpledger_client.mechanisms import Gaussian
from dpledger_client.objectives import L2, Logistic
from dpledger_client.optimizers import METHODS, Charge, Method, NonPrivate, find_method, plan
from dpledger_client.optimizers.methods.a_ddp import ADDP
from dpledger_client.optimizers.methods.dp_agd import DPAGD
from dpledger_client.optimizers.methods.dp_blgd import DPBLGD
from dpledger_client.optimizers.methods.dp_blsgd import DPBLSGD
from dpledger_client.optimizers.methods.dp_fedavg import DPFedAvg, DPFedSGD
from dpledger_client.optimizers.methods.dp_sgd import DPSGD
from dpledger_client.optimizers.methods.mpadmm import ModelPerturbationADMM
from dpledger_client.optimizers.methods.noisy_gd import NoisyGradientDescent
from dpledger_client.optimizers.methods.objective_perturbation import ObjectivePerturbation
from dpledger_client.optimizers.support.planning import PLAN_USED, Item
from dpledger_client.samples import Full
from tests.client.optimizers.contract import SEED, Case
from tests.client.optimizers.test_contract import CASES, fresh_name

FACTS = {"adjacency": "add-remove", "records": 120}


def plannable(method: Method) -> Method | None:
    """The method with what a plan needs; None for what has none whatever is given."""
    if isinstance(method, ObjectivePerturbation) or (isinstance(method, DPBLSGD) and method.looks == "again"):
        return None
    if isinstance(method, DPAGD):
        return dataclasses.replace(method, total_rho=method.total_rho or 30 * method.gradient_rho)
    if isinstance(method, DPBLGD):
        return dataclasses.replace(method, total_gradient_rho=20 * method.gradient_rho, searches=8)
    if isinstance(method, DPBLSGD):
        return dataclasses.replace(method, grows="never", searches=8)
    return method


PLANNED = [(case, method) for case in CASES if (method := plannable(case.method)) is not None]


def plan_of(case: Case, method: Method, ledger: Ledger) -> list[Item]:
    X, y = case.data()
    facts = {"adjacency": case.adjacency, "records": len(X), "ledger": ledger}
    return method.plan(facts, objective=case.objective, w0=case.objective.initial(X, y))


def described(charge: Charge) -> dict[str, Any]:
    """A charge in the form of an item."""
    releases = [
        {name: value for name, value in release.fields().items() if name != "purpose"}
        for release in charge.releases
    ]
    return {"sample": charge.sample.fields(), "releases": releases}


class Items:
    """A plan of which each step takes an item that equals it, or its share of a cap."""

    def __init__(self, items: list[Item]) -> None:
        self._items = items
        self.used: Counter[str] = Counter()
        self._taken: dict[str, Fraction] = {}

    def take(self, charge: Charge) -> None:
        """Use up what the step is covered by; it fails if there is none."""
        step = described(charge)
        for item in self._items:
            if "times" in item and step == {name: item[name] for name in ("sample", "releases")}:
                self.used[item["name"]] += 1
                assert self.used[item["name"]] <= item["times"]
                return
        self._take_cap(charge)

    def _take_cap(self, charge: Charge) -> None:
        gaussian = all(isinstance(release.mechanism, Gaussian) for release in charge.releases)
        assert isinstance(charge.sample, Full)
        for item in self._items:
            if "gdp" in item and gaussian and charge.cost.mu is not None:
                self._add(item, Fraction(charge.cost.mu) ** 2, Fraction(item["gdp"]["mu"]) ** 2)
                return
            if "zcdp" in item and charge.cost.rho is not None:
                self._add(item, Fraction(charge.cost.rho), Fraction(item["zcdp"]["rho"]))
                return
        raise AssertionError(f"no item covers {described(charge)}")

    def _add(self, item: Item, amount: Fraction, cap: Fraction) -> None:
        self.used[item["name"]] += 1
        self._taken[item["name"]] = self._taken.get(item["name"], Fraction(0)) + amount
        assert self._taken[item["name"]] <= cap


@pytest.mark.parametrize(("case", "method"), PLANNED, ids=[str(case) for case, _ in PLANNED])
def test_every_step_is_covered_by_an_item_of_its_own_plan(case: Case, method: Method, ledger: Ledger) -> None:
    items = plan_of(case, method, ledger)
    dataset = case.opened(ledger, fresh_name())
    with insecure_testing_noise(SEED):
        result = case.run(dataset.run("job"), method)

    covered = Items(items)
    for charge in result.charges:
        covered.take(charge)
    assert result.charges
    assert {item["name"] for item in items} == set(covered.used)
    if result.stop_reason == "finished" and not isinstance(method, DPAGD | DPBLGD | DPBLSGD):
        counted = {item["name"]: item["times"] for item in items if "times" in item}
        assert all(covered.used[name] == times for name, times in counted.items())


def test_every_method_with_privacy_has_a_case_or_says_why_it_has_no_plan() -> None:
    kinds = {kind for name in METHODS if issubclass(kind := find_method(name), Method)}
    tested = {type(method) for _, method in PLANNED} | {ADDP, DPFedAvg, DPFedSGD, ObjectivePerturbation}
    assert kinds == tested


@pytest.mark.parametrize("name", [name for name in METHODS if issubclass(find_method(name), NonPrivate)])
def test_what_has_no_privacy_has_no_plan(name: str) -> None:
    with pytest.raises(ValueError, match="asks nobody"):
        plan(dataset=FACTS, method=name)


SGD: dict[str, Any] = {"steps": 400, "batch_size": 12, "clip": 3.0, "noise_multiplier": 0.7, "step_size": 0.5}
LINE: dict[str, Any] = {"gradient_clip": 1.0, "loss_clip": 1.0, "step_size": 4.0}


def test_a_plan_of_dp_sgd_is_one_item() -> None:
    step = {"mechanism": "gaussian", "sensitivity": 3.0, "noise_std": 2.1}
    sample = {"scheme": "poisson", "rate": 0.1}
    expected = [{"name": "sgd", "sample": sample, "releases": [step], "times": 400}]
    assert plan(dataset=FACTS, method="dp-sgd", **SGD) == expected
    assert DPSGD(**SGD).plan(FACTS) == expected
    assert plan(dataset=FACTS, method="dp-adam", **SGD) == expected


def test_a_plan_takes_the_facts_of_an_open_dataset(ledger: Ledger) -> None:
    dataset = ledger.dataset(fresh_name()).open(
        {"accounting": "zcdp", "rho": 1.0}, adjacency="replace-one", records=240
    )
    [item] = DPSGD(**SGD).plan(dataset)
    assert item["sample"] == {"scheme": "without-replacement", "rate": 0.05}
    assert item["releases"][0]["sensitivity"] == 6.0
    [other] = DPSGD(**SGD).plan(dataset, records=120)
    assert other["sample"]["rate"] == 0.1


def test_the_service_solves_for_the_noise_of_a_plan(ledger: Ledger) -> None:
    given: dict[str, Any] = {**SGD, "epsilon": 2.0, "delta": 1e-5, "steps": 20}
    del given["noise_multiplier"]
    [item] = plan(dataset={**FACTS, "ledger": ledger}, method="sgd-advanced", **given)
    assert item["releases"][0]["noise_std"] > 3.0
    with pytest.raises(ValueError, match="ledger must be given"):
        plan(dataset=FACTS, method="sgd-advanced", **given)


def test_a_participant_plans_for_its_own_records() -> None:
    method = ADDP(7, clip=1.0, noise_multiplier=2.0, step_size=0.1, batch_size=500)
    [item] = method.plan(FACTS)
    assert (item["sample"], item["times"]) == (Poisson(1.0).fields(), 7)
    [whole] = DPFedAvg(7, clip=1.0, noise_multiplier=2.0, step_size=0.1).plan(FACTS)
    assert (whole["sample"], whole["times"]) == (Full().fields(), 7)
    [sampled] = DPFedSGD(7, clip=1.0, noise_multiplier=2.0, step_size=0.1, batch_size=60).plan(FACTS)
    assert (sampled["sample"], sampled["times"]) == (Poisson(0.5).fields(), 7)


def test_noise_that_follows_the_step_size_is_a_cap_on_gaussians() -> None:
    method = ModelPerturbationADMM(5, clip=1.0, noise_std=0.1, step_size=lambda k: 1.0 / k)
    [item] = method.plan(FACTS)
    squares = sum((1.0 / (k * 120 * (1.0 + 0.5 / k) * 0.1)) ** 2 for k in range(1, 6))
    assert item == {"name": "x", "gdp": {"mu": pytest.approx(squares**0.5)}}


def test_a_total_is_a_cap_on_what_is_chosen_on_the_way() -> None:
    method = DPAGD.for_total(0.5, gradient_clip=1.0, loss_clip=1.0)
    assert method.plan(FACTS) == [{"name": "gradients-and-selections", "zcdp": {"rho": pytest.approx(0.5)}}]
    gradients, search = DPBLGD(0.01, 0.1, total_gradient_rho=0.5, searches=9, **LINE).plan(FACTS)
    assert gradients == {"name": "gradients", "gdp": {"mu": pytest.approx(1.0)}}
    assert (search["name"], search["times"]) == ("search", 9)


@pytest.mark.parametrize("looks", ["fresh", "joint"])
def test_a_line_search_without_another_try_is_one_per_step(looks: str) -> None:
    method = DPBLSGD(0.1, 0.01, 0.1, smallest_on_failure=True, steps=6, looks=looks, **LINE)
    assert [item["times"] for item in method.plan(FACTS)] == ([6] if looks == "joint" else [6, 6])


@pytest.mark.parametrize(
    ("method", "message"),
    [
        (ObjectivePerturbation(2.0), "no dominating pair"),
        (DPAGD(0.1, 0.1, gradient_clip=1.0, loss_clip=1.0, steps=3), "total_rho"),
        (DPBLGD(0.1, 0.1, steps=3, searches=4, **LINE), "total_gradient_rho"),
        (DPBLSGD(0.1, 0.1, 0.1, steps=3, **LINE), "without searches"),
        (DPBLSGD(0.1, 0.1, 0.1, searches=3, **LINE), "grows='never'"),
        (DPBLSGD(0.1, 0.1, 0.1, searches=3, looks="again", grows="never", **LINE), "looks='again'"),
        (ADDP(7, clip=1.0, noise_multiplier=lambda _: 2.0, step_size=0.1), "planned_noise"),
    ],
)
def test_what_cannot_be_known_in_advance_is_said(method: Method, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        method.plan(FACTS)


@pytest.mark.parametrize(
    ("name", "options", "facts", "message"),
    [
        ("dp-sgd", SGD, {"adjacency": "add-remove"}, "records must be given"),
        (
            "nsgd",
            {"epochs": 2, "batches": 4, "step_size": 0.1, "noise_multiplier": 3.0},
            FACTS,
            "replace-one",
        ),
        (
            "nsgd",
            {"epochs": 2, "batches": 4, "step_size": 0.1, "noise_multiplier": 3.0},
            {"adjacency": "replace-one", "records": 120},
            "w0 must be given",
        ),
    ],
)
def test_a_fact_that_is_missing_is_asked_for(
    name: str, options: dict[str, Any], facts: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        plan(Logistic(L2(0.1)), dataset=facts, method=name, **options)


def test_a_plan_from_the_dimension_is_the_plan_from_zero() -> None:
    facts = {"adjacency": "replace-one", "records": 120}
    options: dict[str, Any] = {"epochs": 2, "batches": 4, "step_size": 0.1, "noise_multiplier": 3.0}
    one = plan(Logistic(L2(0.1)), dataset=facts, method="nsgd", dimension=4, **options)
    assert one == plan(Logistic(L2(0.1)), dataset=facts, method="nsgd", w0=np.zeros(4), **options)
    with pytest.raises(ValueError, match="objective must be given"):
        plan(dataset=facts, method="nsgd", dimension=4, **options)


@pytest.mark.parametrize(
    "method",
    [
        DPBLSGD(0.3, 0.01, 0.1, searches=5, grows="never", **LINE),
        DPBLGD(0.01, 0.1, total_gradient_rho=1.0, searches=5, **LINE),
        DPBLGD(0.01, 0.1, total_gradient_rho=0.025, searches=50, **LINE),
    ],
    ids=["searches of samples", "searches", "gradients"],
)
def test_a_method_ends_with_its_own_plan(method: Method, ledger: Ledger) -> None:
    case = next(case for case in CASES if case.adjacency == "add-remove" and case.method.name == "dp-blgd")
    with insecure_testing_noise(SEED):
        result = case.run(case.opened(ledger, fresh_name()).run("job"), method)
    assert result.stop_reason == PLAN_USED
    covered = Items(plan_of(case, method, ledger))
    for charge in result.charges:
        covered.take(charge)
    assert sum(covered.used.values()) == len(result.charges) > 2


def test_a_method_of_ones_own_says_that_it_has_none() -> None:
    class Own(NoisyGradientDescent):
        items = Method.items

    method = Own(3, clip=1.0, noise_multiplier=1.0, step_size=0.1)
    with pytest.raises(ValueError, match="does not say in advance"):
        method.plan(FACTS)
