"""Plan budgets at the terminal, through a service and directly on its database."""

import itertools
import json
from pathlib import Path
from typing import Any

from tests.cli.running import Served, run

_numbers = itertools.count()
GAUSSIAN = {"mechanism": "gaussian", "sensitivity": 1.0, "noise_std": 1.1}
POISSON = {"scheme": "poisson", "rate": 0.01}
LOOK = {"mechanism": "gaussian", "sensitivity": 1.0, "noise_std": 100.0}
PLAN: dict[str, Any] = {
    "accounting": "plan",
    "epsilon": 1.0,
    "delta": 1e-5,
    "items": [
        {"name": "sgd", "sample": POISSON, "releases": [GAUSSIAN], "times": "most"},
        {"name": "evaluate", "releases": [LOOK], "times": 1},
        {"name": "reserve", "gdp": {"mu": 0.05}},
    ],
}


def _opened(ledger_target: list[str], tmp_path: Path) -> tuple[str, str]:
    """A dataset with a plan from a file, and what was said of it."""
    name, file = f"planned-{next(_numbers)}", tmp_path / "plan.json"
    file.write_text(json.dumps(PLAN), encoding="utf-8")
    reported = run("dataset", "open", name, "--budget", f"@{file}", *ledger_target)
    assert (reported.code, reported.err) == (0, "")
    return name, reported.out


def _words(text: str, row: str) -> list[str]:
    return next(line.split() for line in text.splitlines() if line.split()[:1] == [row])


def test_opening_tells_the_counts_that_were_found(ledger_target: list[str], tmp_path: Path) -> None:
    name, reported = _opened(ledger_target, tmp_path)

    assert reported.startswith(f"opened {name}: plan, ε = 1 at δ = 1e-05, add-remove\n")
    sgd = "sgd gaussian:sensitivity=1,noise_std=1.1 poisson rate 0.01 406"
    assert _words(reported, "sgd") == sgd.split()
    assert _words(reported, "evaluate") == ["evaluate", "gaussian:sensitivity=1,noise_std=100", "full", "1"]
    assert _words(reported, "reserve") == ["reserve", "any", "gdp", "steps", "μ", "=", "0.05"]
    shown = run("dataset", "show", name, *ledger_target).out
    assert _words(shown, "sgd") == sgd.split()
    assert _words(shown, "left") == ["left", "100.0", "%"]


def test_a_budget_shows_what_is_used_of_each_item(
    ledger_target: list[str], tmp_path: Path, service: Served
) -> None:
    name, _ = _opened(ledger_target, tmp_path)
    service.post(f"datasets/{name}/authorizations", f"{name}-1", {"run": "a", "releases": [LOOK]})
    half = {**LOOK, "noise_std": 40.0}
    service.post(f"datasets/{name}/authorizations", f"{name}-2", {"run": "a", "releases": [half]})
    held = {"run": "b", "sample": POISSON, "releases": [GAUSSIAN], "times": 6, "expires_in_seconds": 60}
    service.post(f"datasets/{name}/reservations", f"{name}-3", held)

    shown = run("dataset", "budget", name, *ledger_target).out

    assert _words(shown, "sgd") == ["sgd", "406", "6", "6", "400"]
    assert _words(shown, "evaluate") == ["evaluate", "1", "1", "0", "0", "used", "up"]
    cap = "reserve μ² = 0.00249999 μ² = 0.000625 μ² = 0 μ² = 0.00187499"
    assert _words(shown, "reserve") == cap.split()
    assert "if all of it is released" in shown
    assert "its items below" in shown


def test_a_forecast_says_in_words_why_nothing_fits(
    ledger_target: list[str], tmp_path: Path, service: Served
) -> None:
    name, _ = _opened(ledger_target, tmp_path)
    asking = ["forecast", name, "gaussian:sensitivity=1,noise_std=100", *ledger_target]
    assert "fits        1 more such steps" in run(*asking).out
    service.post(f"datasets/{name}/authorizations", f"{name}-1", {"run": "a", "releases": [LOOK]})

    reported = run(*asking).out

    assert "fits        0 more such steps" in reported
    assert "item evaluate of the plan has 0 of 1 steps left" in reported


def test_a_list_says_once_what_is_left_of_a_plan(ledger_target: list[str], tmp_path: Path) -> None:
    name, _ = _opened(ledger_target, tmp_path)

    row = _words(run("dataset", "list", "--search", name, *ledger_target).out, name)

    assert row[:10] == [name, "plan,", "ε", "=", "1", "at", "δ", "=", "1e-05", "100.0"]
    assert row.count("%") == 1


def test_counts_are_lowered_and_never_raised(ledger_target: list[str], tmp_path: Path) -> None:
    name, _ = _opened(ledger_target, tmp_path)

    def change(times: int) -> list[str]:
        budget = {"accounting": "plan", "items": [{"name": "sgd", "times": times}]}
        return ["dataset", "change-budget", name, "--budget", json.dumps(budget), "--reason", "less"]

    lowered = run(*change(100), *ledger_target)
    assert "100.0 % is left" in lowered.out
    assert "limits what is still to come" in lowered.err
    run(*change(101), *ledger_target).failed(2, "never raised")
    assert _words(run("dataset", "show", name, *ledger_target).out, "sgd")[-1] == "100"
