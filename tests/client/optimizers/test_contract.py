"""Every optimizer, by every case: see ``contract.py``."""

import importlib
import itertools
import pkgutil
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from scipy import stats

import tests.client.optimizers as here
from dpledger.accounting.sampling import Adjacency
from dpledger.accounting.sampling import Sample as ServiceSample
from dpledger.accounting.stepcost import cost_of
from dpledger.accounting.steps import Release as ServiceRelease
from dpledger.accounting.steps import Step as ServiceStep
from dpledger_client import Ledger, SeenSample, insecure_testing_noise, no_noise_for_testing
from dpledger_client._arrays import Floats
from dpledger_client.mechanisms import Laplace
from dpledger_client.optimizers import Charge, Result
from tests.client.optimizers.contract import (
    ORDERS,
    SEED,
    Case,
    Watch,
    charged_entries,
    charged_steps,
    curve_budget,
    watching,
)

_NUMBERS = itertools.count()


def _all_cases() -> Iterator[Case]:
    for module in pkgutil.iter_modules(here.__path__):
        if module.name.startswith("cases_"):
            yield from importlib.import_module(f"{here.__name__}.{module.name}").CASES


CASES = list(_all_cases())
every_case = pytest.mark.parametrize("case", CASES, ids=str)
every_block = pytest.mark.parametrize("block", [None, 1, 5])


def fresh_name() -> str:
    return f"contract-{next(_NUMBERS)}"


@every_case
def test_without_noise_it_is_its_textbook_form(case: Case, ledger: Ledger) -> None:
    account = case.opened(ledger, fresh_name()).run("job")
    with insecure_testing_noise(SEED), no_noise_for_testing():
        result = case.run(account, case.quiet or case.method)
    with insecure_testing_noise(SEED):
        expected = case.textbook(*case.data())
    assert result.stop_reason != "budget-exhausted"
    assert np.any(result.w != 0.0)
    np.testing.assert_allclose(result.w, expected, rtol=0.0, atol=1e-8)


@every_case
def test_the_noise_has_the_scale_that_was_declared(case: Case, ledger: Ledger) -> None:
    residuals: dict[str, list[Floats]] = {"norm": [], "laplace": []}
    for repeat in range(case.repeats):
        dataset = case.opened(ledger, fresh_name())
        with watching() as watch, insecure_testing_noise(SEED + repeat):
            case.run(dataset.run("job"))
        _draws_were_declared(watch, charged_entries(dataset))
        for draw in watch.draws:
            if (found := draw.residuals) is not None:
                residuals["laplace" if isinstance(draw.mechanism, Laplace) else "norm"].append(found)
    for law, several in residuals.items():
        if several:
            standardised = np.concatenate(several)
            assert len(standardised) >= 300
            assert stats.kstest(standardised, law).pvalue > 1e-4


def _draws_were_declared(watch: Watch, entries: list[dict[str, Any]]) -> None:
    """Every mechanism that drew noise is, number for number, one that an entry names."""
    declared = [
        str(ServiceRelease.from_fields(dict(fields)).mechanism)
        for entry in entries
        for fields in entry["step"]["releases"]
    ]
    assert watch.draws
    for draw in watch.draws:
        assert str(ServiceRelease.from_fields(dict(draw.mechanism.fields())).mechanism) in declared


@every_case
def test_each_look_at_the_data_follows_its_entry(case: Case, ledger: Ledger) -> None:
    dataset = case.opened(ledger, fresh_name())
    with watching(dataset) as watch, insecure_testing_noise(SEED):
        X, y = (watch.wrap(array) for array in case.data())
        case.run(dataset.run("job"), data=(X, y))
    entries = {entry["id"] for entry in charged_entries(dataset)}
    assert watch.seen
    assert watch.seen <= entries
    for database_target, event in enumerate(watch.events):
        kind, _, name = event.partition(" ")
        assert kind != "access" or f"granted {name}" in watch.events[:database_target]


@every_block
@every_case
def test_what_was_charged_can_be_computed_from_the_history(
    case: Case, block: int | None, ledger: Ledger
) -> None:
    dataset = case.opened(ledger, fresh_name())
    with insecure_testing_noise(SEED):
        result = case.run(dataset.run("job"), block=block)
    assert len(result.charges) == charged_steps(dataset)
    recomputed = sum(_recomputed(charge, case.adjacency) for charge in result.charges)
    np.testing.assert_allclose(dataset.budget().spent["epsilons"], recomputed, rtol=1e-12)
    np.testing.assert_allclose(result.spent.epsilons, recomputed, rtol=1e-12)
    if case.rho is not None:
        np.testing.assert_allclose(recomputed, case.rho(result) * np.array(ORDERS), rtol=1e-9)


def _recomputed(charge: Charge, adjacency: str) -> Floats:
    """What a step costs, by the accounting package alone; another look at a sample costs its raw curve."""
    seen = isinstance(charge.sample, SeenSample)
    sample = ServiceSample() if seen else ServiceSample.from_fields(charge.sample.fields())
    releases = tuple(ServiceRelease.from_fields(dict(release.fields())) for release in charge.releases)
    step = ServiceStep(releases=releases, sample=sample, adjacency=Adjacency(adjacency))
    return cost_of(step, np.array(ORDERS)).epsilons


@every_block
@every_case
def test_refused_in_the_middle_it_stops_and_looks_no_more(
    case: Case, block: int | None, ledger: Ledger
) -> None:
    whole = _watched_run(case, ledger, None, block)
    costs = [np.array(charge.cost.epsilons) for charge in whole[0].charges]
    kept = len(costs) // 2  # none of a method that asks once: it is refused at its only request
    covered = np.sum(costs[:kept], axis=0) * (1.0 + 1e-9) if kept else costs[0] / 2.0
    result, watch = _watched_run(case, ledger, curve_budget(covered), block)
    assert result.stop_reason == "budget-exhausted"
    assert watch.events[-1] == "refused"
    assert len(result.charges) == kept
    assert result.charged is (kept > 0)
    assert len(watch.iterates) == result.iterations
    for partial, full in zip(watch.iterates, whole[1].iterates, strict=False):
        np.testing.assert_array_equal(partial, full)
    if watch.iterates:
        np.testing.assert_array_equal(result.w, watch.iterates[-1])
    if not kept:
        assert watch.events == ["refused"]
        np.testing.assert_array_equal(result.w, case.objective.initial(*case.data()))


def _watched_run(
    case: Case, ledger: Ledger, budget: dict[str, Any] | None, block: int | None
) -> tuple[Result, Watch]:
    dataset = case.opened(ledger, fresh_name(), budget)
    with watching() as watch, insecure_testing_noise(SEED):
        X, y = (watch.wrap(array) for array in case.data())
        result = case.run(dataset.run("job"), data=(X, y), callback=watch.note, block=block)
    return result, watch
