"""Tables for notebooks: every text is escaped, and every number is rounded to the safe side."""

import html
import re
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from dpledger_client import Budget, Cost, Full
from dpledger_client._html import amounts_text, bar_text, percent_left, table
from dpledger_client.optimizers import Result
from dpledger_client.optimizers.methods.dp_sgd import DPSGD
from dpledger_client.optimizers.support.results import Charge, Record
from dpledger_client.optimizers.support.rules import Request, TrainingPlan

HOSTILE = "<script>alert('x')</script>&\""


def text_of(shown: str) -> str:
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", shown)).split())


def tags_of(shown: str) -> set[str]:
    return set(re.findall(r"<([a-z]+)", shown))


def budget(**more: Any) -> Budget:
    given: dict[str, Any] = {
        "dataset": "adult",
        "sequence": 17,
        "accounting": "zcdp",
        "limit": {"rho": 0.5, "additive_delta": 0.0},
        "spent": {"rho": 0.123412, "indicative_epsilon": 1.23451, "delta": 1e-6},
        "reserved": {"rho": 0.1, "open": 2},
        "remaining": {"fraction": 0.75317, "rho": 0.376588},
        "fraction": 0.75317,
        "guarantee": {"epsilon": 1.0, "delta": 1e-6, "since": 1, "lowered": False},
    }
    return Budget(**{**given, **more})


def result(**more: Any) -> Result:
    charge = Charge("a~2", 2, "a", None, (), Full(), Cost((2.0,), (0.01,), rho=0.01, mu=0.1))
    given: dict[str, Any] = {
        "w": np.zeros(3),
        "method": "dp-sgd",
        "stop_reason": "finished",
        "message": "All steps were made.",
        "iterations": 2,
        "history": [Record(1, (charge,), {}), Record(2, (charge,), {})],
        "remaining": {"fraction": 0.5, "rho": 0.25},
    }
    return Result(**{**given, **more})


def test_a_budget_is_a_table_with_a_bar() -> None:
    shown = budget()._repr_html_()

    assert text_of(shown) == (
        "Budget of adult (zcdp), true at entry 17 guarantee ε = 1 at δ = 1e-06 limit ρ = 0.5 "
        "spent ρ = 0.1235, an indicative ε = 1.235 at δ = 1e-06 reserved 2 open, ρ = 0.1 "
        f"remaining ρ = 0.3765 left {'█' * 18}{'·' * 6} 75.3 %"
    )
    assert tags_of(shown) == {"table", "caption", "tbody", "tr", "th", "td"}


def test_curves_and_items_are_shortened() -> None:
    items = [{"name": "sgd", "times": 400}, {"name": "reserve", "mu_squared": 0.0025}]
    curve = {"orders": [2.0, 4.0], "epsilons": [0.1, 0.2]}

    shown = budget(limit={"items": items}, spent=curve, reserved={"open": 0}, guarantee={})._repr_html_()

    assert "limit sgd: 400, reserve: μ² = 0.0025 spent a Rényi curve over 2 orders" in text_of(shown)
    assert "reserved 0 open remaining" in text_of(shown)
    assert "guarantee" not in text_of(shown)


def test_a_result_says_how_it_ended_and_what_it_cost() -> None:
    assert text_of(result()._repr_html_()) == (
        "dp-sgd: finished message All steps were made. iterations 2 parameters 3 "
        f"spent ρ = 0.02001, μ = 0.1415, a Rényi curve over 1 orders remaining ρ = 0.25 "
        f"left {'█' * 12}{'·' * 12} 50.0 %"
    )
    nothing = result(history=[], remaining={})._repr_html_()
    assert "spent nothing" in text_of(nothing)
    assert "left" not in text_of(nothing)


def test_a_result_says_the_delta_of_what_is_no_curve() -> None:
    charge = Charge("a~2", 2, "a", None, (), Full(), Cost((2.0,), (0.01,), delta=1e-7))
    shown = text_of(result(history=[Record(1, (charge,), {})])._repr_html_())
    assert "spent a Rényi curve over 1 orders, additive δ = 1e-07 remaining" in shown


def test_what_is_too_long_to_add_up_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dpledger_client.optimizers.support.results._MOST_SUMMED", 1)
    assert "spent" not in text_of(result()._repr_html_())


def test_a_plan_lists_its_parameters_and_items() -> None:
    method = DPSGD(steps=40, batch_size=10, clip=1.0, noise_multiplier=1.1, step_size=0.5)
    sgd = {"mechanism": "gaussian", "sensitivity": 1.0, "noise_std": 1.1}
    step = {"name": "sgd", "sample": {"scheme": "poisson", "rate": 0.01}, "releases": [sgd], "times": 40}
    items = (step, {"name": "reserve", "gdp": {"mu": 0.05}})

    shown = text_of(TrainingPlan(method, Request(1.0, 1e-6), items, "run-1")._repr_html_())

    assert shown.startswith("Plan of dp-sgd spends ε = 1 at δ = 1e-06 allocation run-1 steps 40 ")
    assert "noise_multiplier 1.1" in shown
    assert shown.endswith("item sgd 40 × gaussian, poisson item reserve any gdp steps, μ = 0.05")
    share = text_of(TrainingPlan(method, Request(spend=0.25), ())._repr_html_())
    assert "spends 25.0 % of what is left steps" in share


@pytest.mark.parametrize(
    "shown",
    [
        budget(dataset=HOSTILE, limit={"items": [{"name": HOSTILE, "times": 1}]})._repr_html_(),
        result(method=HOSTILE, message=HOSTILE, stop_reason=HOSTILE)._repr_html_(),
        TrainingPlan(
            SimpleNamespace(name=HOSTILE),  # type: ignore[arg-type]
            Request(spend=1.0),
            ({"name": HOSTILE, "gdp": {"mu": 1.0}},),
            HOSTILE,
        )._repr_html_(),
        table(HOSTILE, [(HOSTILE, HOSTILE)]),
    ],
    ids=["budget", "result", "plan", "table"],
)
def test_texts_from_outside_are_escaped(shown: str) -> None:
    assert tags_of(shown) == {"table", "caption", "tbody", "tr", "th", "td"}
    assert text_of(shown).count(HOSTILE) >= 2


@pytest.mark.parametrize(("fraction", "filled"), [(0.0, 0), (1.0, 24), (0.99999, 23), (1.5, 24), (-0.1, 0)])
def test_a_bar_is_never_longer_than_what_is_left(fraction: float, filled: int) -> None:
    assert bar_text(fraction).count("█") == filled
    assert len(bar_text(fraction).partition(" ")[0]) == 24


def test_rounding_is_to_the_safe_side() -> None:
    assert amounts_text({"rho": 0.123449}, up=True) == "ρ = 0.1235"
    assert amounts_text({"rho": 0.123499}, up=False) == "ρ = 0.1234"
    assert percent_left(0.99999) == "99.9 %"
    assert amounts_text({"new": 0.5, "additive_delta": 1e-7}, up=True) == "new = 0.5, additive δ = 1e-07"
    assert amounts_text({}, up=True) is None
