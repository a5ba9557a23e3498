"""The papers' experiments: cells are kept and not run twice, budgets hold, and figures are drawn."""

import json
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.papers import printed
from benchmarks.papers.__main__ import FIGURES
from benchmarks.papers.admm import DPADMM, ADMMObjP
from benchmarks.papers.algorithms import ALGORITHMS, Trained, least_multiplier
from benchmarks.papers.cells import Cell, Store, run_cells
from benchmarks.papers.chapter4 import TRAINERS, covered
from benchmarks.papers.drawing import summary
from benchmarks.papers.figures import Figure, Panel, grid
from benchmarks.papers.ledgers import account_for, new_dataset
from benchmarks.papers.page import write_page
from benchmarks.papers.problems import Counting, Problem, simulated_sparse
from benchmarks.papers.scales import SCALES
from benchmarks.papers.seed004 import run_composition
from dpledger_client.objectives import L1, L2, Logistic
from dpledger_client.objectives.regularizers import Regularizer
from dpledger_client.optimizers import minimize

NAMES = (
    "LR SVM KDD splits C_grad C_obj 3.1 3.2 3.3 3.4 4.1 4.2 4.3 4.4 5.1 5.2 5.3 5.4 5.5 6.1 6.2 "
    "004.1 004.2 004.3"
)


class _Counted(Counting, Logistic): ...


def _problem(regularizer: Regularizer, records: int = 400) -> Problem:
    X, y = simulated_sparse(2 * records, seed=1)
    X = X[:, :6] / np.maximum(1.0, np.linalg.norm(X[:, :6], axis=1, keepdims=True))
    parts = X[:records], y[:records], X[records:], y[records:]
    return Problem(_Counted(regularizer), *parts, epsilon=2.0, delta=1e-5)


def test_every_figure_that_is_asked_for_is_there() -> None:
    assert set(FIGURES) == set(NAMES.split())


@pytest.mark.parametrize("name", NAMES.split())
def test_a_figure_of_the_papers_scale_has_more_cells(name: str) -> None:
    small, paper = (list(FIGURES[name].cells(SCALES[scale])) for scale in ("quick", "paper"))
    assert len({cell.key for cell in paper}) == len(paper) >= len(small) > 0


def test_a_cell_that_was_run_is_not_run_again(tmp_path: Path) -> None:
    runs: list[Mapping[str, Any]] = []

    def experiment(cell: Mapping[str, Any]) -> dict[str, Any]:
        runs.append(cell)
        return {"accuracy": cell["fold"] / 10.0}

    path = tmp_path / "results.jsonl"
    cells = [Cell.of("toy", fold=fold, epsilon=0.1) for fold in range(3)]
    run_cells("toy", cells[:2], Store(path), {"toy": experiment})
    run_cells("toy", cells, Store(path), {"toy": experiment})

    again = Store(path)
    again.forget([cells[1]])
    assert [cell in Store(path) for cell in cells] == [True, False, True]
    run_cells("toy", cells, again, {"toy": experiment})

    assert [cell["fold"] for cell in runs] == [0, 1, 2, 1]
    assert len(path.read_text().splitlines()) == 3
    assert json.loads(path.read_text().splitlines()[0])["parameters"] == {"epsilon": 0.1, "fold": 0}


def test_a_page_has_means_with_standard_errors_and_a_picture(tmp_path: Path) -> None:
    store = Store(tmp_path / "results.jsonl")
    cells = grid("toy", SCALES["small"], algorithm=["a", "b"], epsilon=[0.1, 1.0])
    for number, cell in enumerate(cells):
        store.add(cell, {"accuracy": 0.5 + number / 100.0})
    panel = Panel("toy: accuracy", "accuracy")
    page = write_page(
        "toy", "Toy", [Figure("toy", "A toy", lambda _: cells, [panel])], SCALES["small"], store
    )

    [(_, mean, error), _] = summary(panel, cells, store)["a"]
    assert [mean, error] == pytest.approx([0.505, 0.005])
    assert "| a | 0.5050 ± 0.0050 |" in page.read_text()
    assert (tmp_path / "toy.svg").read_text().endswith("</svg>\n")


@pytest.mark.parametrize("name", sorted(set(ALGORITHMS) - {"sgd-ma", "privgene"}))
def test_an_algorithm_stays_within_its_budget_and_learns(name: str) -> None:
    problem = _problem(L2(1e-2))
    trained = ALGORITHMS[name](problem, {"steps": 20, "epochs": 2, "splits": 5})
    assert np.isfinite(trained.w).all()
    assert 0.0 <= trained.used <= 1.0
    if name not in ("majority", "non-private"):
        assert trained.used > 0.0


@pytest.mark.parametrize("name", sorted(TRAINERS))
def test_a_sparse_trainer_stays_within_its_budget(name: str) -> None:
    problem = _problem(L1(1e-3))
    trained: Trained = TRAINERS[name](problem, {"model": "lr", "rounds": 5})
    assert problem.measure(trained.w)["objective"] < math.log(2.0) + 0.5
    assert (trained.used > 0.0) is (name != "non-private")


@pytest.mark.parametrize("run", ["dp-admm", "admm-objp"])
def test_admm_baselines_come_near_the_optimum_where_noise_is_small(run: str) -> None:
    problem = _problem(L1(1e-3))
    best = TRAINERS["non-private"](problem, {}).w
    found = {"dp-admm": _dp_admm, "admm-objp": _admm_objp}[run](problem)
    assert problem.measure(found)["objective"] < problem.measure(best)["objective"] + 0.01


def _dp_admm(problem: Problem) -> Any:
    dataset, half = new_dataset(), problem.records // 2
    budget = {"accounting": "gdp", "mu": 1e5}
    dataset.open(budget, records=problem.records)
    accounts = [dataset.run("t", partition=name) for name in dataset.open_partitions(2, budget)]
    data = [problem.X[:half], problem.X[half:]], [problem.y[:half], problem.y[half:]]
    method = DPADMM(300, 1.0, 1e-2, 2.0, 0.5)
    return minimize(problem.objective, *data, account=accounts, records=half, method=method).w


def _admm_objp(problem: Problem) -> Any:
    account = account_for({"accounting": "rdp-order", "epsilon": 1e6, "delta": 1e-5, "order": 2.0}, 400)
    method = ADMMObjP(60, 0.01, 0.1)
    return minimize(problem.objective, problem.X, problem.y, account=account, method=method).w


def test_the_least_multiplier_of_a_gaussian_is_what_its_curve_says() -> None:
    def curve(order: float, multiplier: float) -> float:
        return order / (2.0 * multiplier**2)

    multiplier, order = least_multiplier(curve, 1.0, 1e-6)
    cost = (
        curve(order, multiplier) + math.log1p(-1.0 / order) - (math.log(1e-6) + math.log(order)) / (order - 1)
    )
    assert cost == pytest.approx(1.0, abs=1e-4)
    assert cost <= 1.0


def test_budgets_are_split_as_printed() -> None:
    gradient, selection = printed.agd_splits(1.2, 1e-8, 60)
    assert selection == pytest.approx(0.01**2 / 2)
    assert gradient == pytest.approx(0.01**2 / (4 * math.log(1.25e8)))
    assert list(printed.blsgd_budgets(1.0)) == pytest.approx([5e-5, 0.01])
    sizes: Callable[[int], float] = printed.by_epoch(2.0, 100)
    assert [sizes(1), sizes(100), sizes(101), sizes(250)] == [2.0, 2.0, 1.0, pytest.approx(2 / 3)]
    steps, size = printed.noisy_pgd(0.5, math.exp(-4.0), 1_000, 25, diameter=2.0, lipschitz=1.0)
    assert steps == 10_000
    assert size == pytest.approx(2.0 * 0.5 * 1_000 / math.sqrt(25 * 4.0) / 10_000)
    assert printed.quadratic_steps(300) == 90_000


def test_simulated_data_are_correlated_as_described_and_their_attributes_found() -> None:
    X, y = simulated_sparse(20_000, seed=3)
    assert np.corrcoef(X[:, 4], X[:, 6])[0, 1] == pytest.approx(0.25, abs=0.03)
    assert np.mean(y) == pytest.approx(0.0, abs=0.03)
    assert covered(np.concatenate([np.ones(20), np.zeros(80)]), 20) == 1.0
    assert covered(np.concatenate([np.zeros(20), np.ones(80)]), 40) == 0.0


def test_theorem_one_counts_less_than_advanced_composition_and_more_than_the_truth() -> None:
    cell = {"each": 0.1, "rounds": 10, "rate": 0.1, "delta": 1e-5}
    ways = {way: run_composition({**cell, "way": way})["epsilon"] for way in ("advanced", "sampling", "rdp")}
    assert ways["rdp"] < ways["sampling"] < ways["advanced"]
