"""A-DDP: the five points of the contract for several participants, 500 of them, and what is refused."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from dpledger_client import (
    Account,
    Dataset,
    Gaussian,
    Journal,
    Ledger,
    NotFound,
    WithoutReplacement,
    insecure_testing_noise,
    no_noise_for_testing,
)
from dpledger_client._arrays import Floats
from dpledger_client.objectives import L2, Logistic
from dpledger_client.optimizers import Participant, Result, Source, minimize
from dpledger_client.optimizers.methods.a_ddp import ADDP, planned_noise
from dpledger_client.optimizers.support import participants as shared
from dpledger_client.optimizers.support.batches import sample_of
from tests.client.optimizers.contract import ORDERS, SEED, Watch, charged_entries, curve_budget, watching
from tests.client.optimizers.test_contract import _recomputed

ROUNDS, ETA, CLIP, LAMBDA = 30, 0.4, 1.5, 0.05
SIZES = (6, 9, 12)
METHOD = ADDP(ROUNDS, clip=CLIP, noise_multiplier=3.0, step_size=ETA, batch_size=2)
OBJECTIVE = Logistic(L2(LAMBDA))
FIXED = {"adjacency": "replace-one", "partition_key": "fixed"}
"""A record that is replaced stays with its participant."""
Opened = Callable[..., Dataset]


def _parts(
    sizes: tuple[int, ...] = SIZES, features: int = 4, seed: int = 8
) -> tuple[list[Floats], list[Floats]]:
    random = np.random.default_rng(seed)
    X = [random.normal(size=(size, features)) / np.sqrt(features) for size in sizes]
    y = [np.where(rows @ np.arange(1.0, features + 1.0) > 0.0, 1.0, -1.0) for rows in X]
    return X, y


def _accounts(dataset: Dataset, names: list[str], journal: Journal | None = None) -> list[Account]:
    return [dataset.run("job", partition=name, journal=journal) for name in names]


def _opened(
    open_dataset: Opened, budgets: list[dict[str, Any]], **more: Any
) -> tuple[Dataset, list[Account]]:
    dataset = open_dataset(budget=curve_budget(), **(FIXED | more))
    for number, budget in enumerate(budgets):
        dataset.open_partitions([f"part-{number}"], budget)
    return dataset, _accounts(dataset, [f"part-{number}" for number in range(len(budgets))])


def _run(accounts: list[Account], watch: Watch | None = None, method: ADDP = METHOD, **more: Any) -> Result:
    X, y = _parts()
    if watch is not None:
        X, y = [watch.wrap(part) for part in X], [watch.wrap(part) for part in y]  # type: ignore[misc]
    return minimize(OBJECTIVE, X, y, account=accounts, method=method, progress=False, **more)


def _textbook(X: list[Floats], y: list[Floats]) -> Floats:
    w = np.zeros(4)
    for _ in range(ROUNDS):
        mean = np.zeros(4)
        for rows, labels in zip(X, y, strict=True):
            drawn = WithoutReplacement.of_size(2, len(rows)).draw(len(rows))
            for i in drawn:
                mean -= labels[i] * rows[i] / (1.0 + np.exp(labels[i] * rows[i] @ w)) / 2.0 / len(X)
        w = w - ETA * (mean + LAMBDA * w)
    return w


def test_without_noise_it_is_its_textbook_form(open_dataset: Opened) -> None:
    _, accounts = _opened(open_dataset, [curve_budget()] * 3)
    method = ADDP(ROUNDS, clip=100.0, noise_multiplier=3.0, step_size=ETA, batch_size=2)
    with insecure_testing_noise(SEED), no_noise_for_testing():
        result = _run(accounts, method=method)
    with insecure_testing_noise(SEED):
        expected = _textbook(*_parts())
    np.testing.assert_allclose(result.w, expected, rtol=0.0, atol=1e-8)
    assert result.stop_reason == "finished"


def test_the_noise_has_the_scale_that_was_declared(open_dataset: Opened) -> None:
    dataset, accounts = _opened(open_dataset, [curve_budget()] * 3)
    with watching() as watch, insecure_testing_noise(SEED):
        _run(accounts)
    declared = {
        (each["sensitivity"], each["noise_std"])
        for entry in charged_entries(dataset)
        for each in entry["step"]["releases"]
    }
    assert declared == {(2.0 * CLIP, 3.0 * 2.0 * CLIP)}
    residuals = np.concatenate([draw.residuals for draw in watch.draws if draw.residuals is not None])
    assert len(residuals) == 3 * ROUNDS * 4
    assert {draw.mechanism.noise_std for draw in watch.draws} == {9.0}  # type: ignore[attr-defined]
    assert stats.kstest(residuals, "norm").pvalue > 1e-4


def test_each_look_at_the_data_follows_its_entry(open_dataset: Opened) -> None:
    dataset, accounts = _opened(open_dataset, [curve_budget()] * 3)
    with watching(dataset) as watch, insecure_testing_noise(SEED):
        _run(accounts, watch)
    assert watch.seen == {entry["id"] for entry in charged_entries(dataset)}
    for database_target, event in enumerate(watch.events):
        kind, _, name = event.partition(" ")
        assert kind != "access" or f"granted {name}" in watch.events[:database_target]


def test_what_was_charged_can_be_computed_from_the_history(open_dataset: Opened) -> None:
    dataset, accounts = _opened(open_dataset, [curve_budget()] * 3)
    with insecure_testing_noise(SEED):
        result = _run(accounts)
    assert len(result.charges) == len(charged_entries(dataset)) == 3 * ROUNDS
    totals = []
    for number in range(3):
        mine = [charge for charge in result.charges if charge.partition == f"part-{number}"]
        assert {charge.sample for charge in mine} == {WithoutReplacement.of_size(2, SIZES[number])}
        totals.append(np.sum([_recomputed(charge, "replace-one") for charge in mine], axis=0))
        spent = result.spent_by_partition[dataset.name, f"part-{number}"]
        np.testing.assert_allclose(spent.epsilons, totals[-1], rtol=1e-12)
    np.testing.assert_allclose(dataset.budget().spent["epsilons"], np.max(totals, axis=0), rtol=1e-12)


def _cost_of_one(open_dataset: Opened) -> list[tuple[float, ...]]:
    """What one round costs each participant."""
    _, accounts = _opened(open_dataset, [curve_budget()] * 3)
    once = ADDP(1, METHOD.clip, METHOD.noise_multiplier, METHOD.step_size, METHOD.batch_size)
    return [charge.cost.epsilons for charge in _run(accounts, method=once).charges]


def test_refused_in_the_middle_each_stops_and_is_looked_at_no_more(open_dataset: Opened) -> None:
    kept = (2, 5, 3)
    budgets = [
        curve_budget([rounds * each * (1.0 + 1e-9) for each in cost])
        for rounds, cost in zip(kept, _cost_of_one(open_dataset), strict=True)
    ]
    dataset, accounts = _opened(open_dataset, budgets)
    with watching() as watch, insecure_testing_noise(SEED):
        result = _run(accounts, watch, callback=watch.note)
    assert result.stop_reason == "budget-exhausted"
    assert watch.events[-1] == "refused"
    assert [record.details["participants"] for record in result.history] == [3, 3, 2, 1, 1]
    rounds = Counter(entry["partition"] for entry in charged_entries(dataset))
    assert rounds == {f"part-{number}": taken for number, taken in enumerate(kept)}
    assert watch.seen == {charge.id for charge in result.charges}
    np.testing.assert_array_equal(result.w, watch.iterates[-1])


def _counted(monkeypatch: pytest.MonkeyPatch, ledger: Ledger) -> Counter[str]:
    """Every request of the ledger, by its path."""
    asked: Counter[str] = Counter()
    perform = ledger._wire.perform

    def counting(call: Any, *more: Any) -> Any:
        asked[call.path] += 1
        return perform(call, *more)

    monkeypatch.setattr(ledger._wire, "perform", counting)
    return asked


def test_five_hundred_participants_ask_once_a_round(
    ledger: Ledger, open_dataset: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The budget is for three rounds at the usual noise; every fifth adds less, and can pay for one."""
    method = ADDP(
        10, CLIP, noise_multiplier=lambda each: 7.0 if each.number % 5 == 0 else 10.0, step_size=0.3
    )
    dataset = open_dataset(budget=curve_budget(), **FIXED)
    cost = ledger.cost(
        _release_of(method), adjacency="replace-one", sample=WithoutReplacement.of_size(1, 4), orders=ORDERS
    )
    names = dataset.open_partitions(500, curve_budget([3.0 * each * (1.0 + 1e-9) for each in cost.epsilons]))
    X, y = _parts((4,) * 500, features=2)
    asked = _counted(monkeypatch, ledger)
    with watching() as watch, insecure_testing_noise(SEED):
        watched = [watch.wrap(part) for part in X], [watch.wrap(part) for part in y]
        result = minimize(Logistic(), *watched, account=_accounts(dataset, names), method=method)
    assert result.stop_reason == "budget-exhausted"
    assert [record.details["participants"] for record in result.history] == [500, 400, 400]
    assert asked["/v1/authorizations"] == result.iterations + 1
    assert sum(asked.values()) == result.iterations + 2, "and the dataset was looked up once"
    taken = Counter(charge.partition for charge in result.charges)
    assert taken == {name: 1 if int(name) % 5 == 0 else 3 for name in names}
    assert sum(taken.values()) == sum(1 for _ in dataset.entries(kind="authorized")) == 1300
    assert watch.seen == {charge.id for charge in result.charges}
    assert dataset.verification()["valid"]


def _release_of(method: ADDP) -> Any:
    """What everybody but every fifth asks for."""
    X, y = _parts((4,))
    source = Source(X[0], y[0], Ledger("http://nowhere").dataset("none").run("job"), 4, "replace-one")
    return method.request_for(Participant(1, source))[0]


@pytest.mark.parametrize("adjacency", ["add-remove", "replace-one"])
@pytest.mark.parametrize("wild", [np.nan, np.inf, 1e200, -7.0])
def test_a_neighbour_of_one_participant_moves_its_release_by_no_more_than_declared(
    open_dataset: Opened, adjacency: str, wild: float
) -> None:
    method = ADDP(1, clip=0.3, noise_multiplier=1.0, step_size=1.0, batch_size=100)
    X, y = _parts()
    changed = X[1].copy()
    changed[3] = wild
    second = [changed, y[1]] if adjacency == "replace-one" else [X[1][1:], y[1][1:]]
    released = []
    for part in ([X[1], y[1]], second):
        dataset, accounts = _opened(open_dataset, [curve_budget()] * 3, adjacency=adjacency)
        with watching() as watch, no_noise_for_testing():
            lists = [X[0], part[0], X[2]], [y[0], part[1], y[2]]
            minimize(Logistic(), *lists, account=accounts, method=method, records=list(SIZES))
        released.append([np.asarray(draw.value) for draw in watch.draws])
        reported = {e["step"]["releases"][0]["sensitivity"] for e in charged_entries(dataset)}
    moved = [np.linalg.norm(one - other) for one, other in zip(*released, strict=True)]
    assert reported == {0.3 if adjacency == "add-remove" else 0.6}
    assert moved[0] == moved[2] == 0.0
    assert 0.0 < moved[1] <= reported.pop()


def test_under_add_remove_each_draws_by_coins_at_its_own_rate(open_dataset: Opened) -> None:
    dataset, accounts = _opened(open_dataset, [curve_budget()] * 3, adjacency="add-remove")
    result = _run(accounts, method=ADDP(2, 1.0, 4.0, 0.1, batch_size=3), records=[6, 9, 12])
    rates = [entry["step"]["sample"]["rate"] for entry in charged_entries(dataset)]
    assert rates == [3 / 6, 3 / 9, 3 / 12] * 2
    assert result.iterations == 2


def test_it_learns(open_dataset: Opened) -> None:
    dataset, _ = _opened(open_dataset, [])
    names = dataset.open_partitions(20, curve_budget())
    X, y = _parts((10,) * 20)
    method = ADDP(60, clip=1.0, noise_multiplier=0.5, step_size=2.0, batch_size=5)
    with insecure_testing_noise(SEED):
        result = minimize(Logistic(), X, y, account=_accounts(dataset, names), method=method)
    assert Logistic().loss(result.w, np.vstack(X), np.concatenate(y)) < 0.5 * np.log(2.0)


def test_noise_may_follow_the_rounds(open_dataset: Opened) -> None:
    dataset, accounts = _opened(open_dataset, [curve_budget()] * 3)
    _run(accounts, method=ADDP(3, 1.0, lambda each: 2.0 + each.rounds, 0.1))
    noises = [entry["step"]["releases"][0]["noise_std"] for entry in charged_entries(dataset)]
    assert noises == [4.0] * 3 + [6.0] * 3 + [8.0] * 3


def test_planned_noise_is_exact_for_full_looks(ledger: Ledger) -> None:
    epsilon, delta, rounds = 1.0, 1e-8, 10
    full: dict[str, Any] = {"records": 40, "batch_size": 40}
    mu = np.sqrt(rounds) / planned_noise(ledger, epsilon, delta, rounds, **full, method="gdp")
    exact = stats.norm.cdf(mu / 2 - epsilon / mu) - np.exp(epsilon) * stats.norm.cdf(-mu / 2 - epsilon / mu)
    assert exact <= delta
    assert exact == pytest.approx(delta, rel=1e-4)
    by_advanced = planned_noise(ledger, epsilon, delta, rounds, **full, method="advanced")
    assert by_advanced > 5.0 * np.sqrt(rounds) / mu


@pytest.mark.parametrize("adjacency", ["add-remove", "replace-one"])
@pytest.mark.parametrize(("records", "batch_size", "rounds"), [(40, 10, 50), (1000, 5, 100), (60, 1, 20)])
def test_planned_noise_lasts_for_the_rounds_planned(
    open_dataset: Opened, ledger: Ledger, adjacency: str, records: int, batch_size: int, rounds: int
) -> None:
    """With the noise for looks at all records, budgets lasted 13 to 20,000 times as long as planned."""
    noise = planned_noise(
        ledger, 1.0, 1e-6, rounds, records=records, batch_size=batch_size, adjacency=adjacency
    )
    sample, step = sample_of(batch_size, records, adjacency), Gaussian(1.0, noise)
    plan = {"sample": sample.fields(), "releases": [step.fields()]}
    budget = {"accounting": "rdp-order", "epsilon": 1.0, "delta": 1e-6, "plan": plan}

    fits = open_dataset(budget=budget, adjacency=adjacency).forecast(step, sample)["fits"]

    assert rounds - 1 <= fits <= rounds + 1


def test_more_than_the_service_decides_at_once_are_asked_for_in_parts(
    open_dataset: Opened, monkeypatch: pytest.MonkeyPatch, ledger: Ledger
) -> None:
    dataset, accounts = _opened(open_dataset, [curve_budget()] * 3)
    monkeypatch.setattr(shared, "BULK_ITEMS", 2)
    asked = _counted(monkeypatch, ledger)
    result = _run(accounts, method=ADDP(2, 1.0, 3.0, 0.1))
    assert asked["/v1/authorizations"] == 4
    assert [charge.partition for charge in result.charges] == ["part-0", "part-1", "part-2"] * 2
    assert len(charged_entries(dataset)) == 6


def test_the_records_of_all_are_counted(open_dataset: Opened) -> None:
    _, accounts = _opened(open_dataset, [curve_budget()] * 3)
    training = shared.SharedTraining(OBJECTIVE, shared.sources_of(*_parts(), accounts), method="a-ddp")
    assert training.records == sum(SIZES)
    assert [participant.records for participant in training.active] == list(SIZES)


def test_a_restarted_job_pays_nothing_twice(open_dataset: Opened, tmp_path: Path) -> None:
    dataset, _ = _opened(open_dataset, [curve_budget()] * 3)
    names, results = ["part-0", "part-1", "part-2"], []
    for _ in range(2):
        journal = Journal.at(tmp_path / "job.journal")
        results.append(_run(_accounts(dataset, names, journal), method=ADDP(3, 1.0, 3.0, 0.1)))
        journal.close()
    np.testing.assert_array_equal(results[0].w, results[1].w)
    assert len(charged_entries(dataset)) == 9


def test_lists_go_with_methods_of_several_participants(open_dataset: Opened) -> None:
    dataset, accounts = _opened(open_dataset, [curve_budget()] * 3)
    X, y = _parts()
    with pytest.raises(ValueError, match="account must be a list"):
        minimize(OBJECTIVE, X[0], y[0], account=accounts[0], method=METHOD)
    with pytest.raises(ValueError, match="account must be a list"):
        minimize(
            OBJECTIVE,
            X,
            y,
            account=accounts,
            method="noisy-gd",
            steps=1,
            clip=1,
            noise_multiplier=1,
            step_size=1,
        )
    with pytest.raises(ValueError, match="one item a participant, found 3, 3 and 2"):
        minimize(OBJECTIVE, X, y, account=accounts[:2], method=METHOD)
    with pytest.raises(ValueError, match="reserve and block must be None"):
        _run(accounts, reserve=5)
    with pytest.raises(ValueError, match="of its own"):
        _run([accounts[0]] * 3)
    with pytest.raises(ValueError, match="one number or one per participant"):
        _run(accounts, records=[6, 9])
    assert not charged_entries(dataset)


def test_accounts_are_of_one_ledger(open_dataset: Opened, database: Path) -> None:
    dataset, accounts = _opened(open_dataset, [curve_budget()] * 3)
    with Ledger.embedded(database) as other:
        elsewhere = other.dataset(dataset.name).run("job", partition="part-2")
        with pytest.raises(ValueError, match="of one ledger"):
            _run([*accounts[:2], elsewhere])


def test_a_refusal_for_another_reason_is_raised(open_dataset: Opened) -> None:
    dataset, accounts = _opened(open_dataset, [curve_budget()] * 2)
    with pytest.raises(NotFound):
        _run([*accounts, dataset.run("job", partition="nobody")])


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"steps": 0}, "steps must be"),
        ({"clip": -1.0}, "clip must be"),
        ({"noise_multiplier": 0.0}, "noise_multiplier must be"),
        ({"batch_size": 0}, "batch_size must be"),
    ],
)
def test_parameters_are_refused(given: dict[str, Any], message: str) -> None:
    common = {"steps": 3, "clip": 1.0, "noise_multiplier": 1.0, "step_size": 0.1}
    with pytest.raises(ValueError, match=message):
        ADDP(**(common | given))
