"""The query routes answer with published numbers, name their theorems, and record nothing."""

import json
import math
import re
from pathlib import Path
from typing import Any

import mpmath as mp
import numpy as np
import pytest
from fastapi.testclient import TestClient

from dpledger.accounting.composition import METHODS, Plan
from dpledger.accounting.conversion import epsilon_at
from dpledger.accounting.stepcost import AMPLIFICATION_METHODS
from dpledger.accounting.steps import Step
from dpledger.accounting.tuning import PoissonTrials, TruncatedNegativeBinomial, tuned_cost
from dpledger.api.schemas.query_responses import ForecastAnswer
from dpledger.ledger.filters import filter_named, filter_names
from dpledger.queries.calibration import BY_CONVERSION
from dpledger.queries.theorems import AMPLIFICATION, COMPOSITION
from tests.api.service import GAUSSIAN, POISSON, SUBSAMPLED, Service, made, problem

ROUTES = ("conversions", "amplifications", "compositions", "calibrations")
ADD_REMOVE, REPLACE_ONE = "add-remove", "replace-one"
UNIT: dict[str, Any] = {"mechanism": "gaussian", "sensitivity": 1.0}
LAPLACE: dict[str, Any] = {"mechanism": "laplace", "sensitivity": 1.0, "scale": 1.0}
STEP: dict[str, Any] = {"releases": [SUBSAMPLED], "sample": POISSON}
TARGET = {"epsilon": 1.0, "delta": 1e-5}
UP = 1.0 + 1e-6


def ask(client: TestClient, route: str, body: dict[str, Any]) -> dict[str, Any]:
    answer = client.post(f"/v1/{route}", json=body)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    for name in ("method", "theorem", "conditions", "source"):
        assert found[name]
    return found


def convert(client: TestClient, **body: Any) -> dict[str, Any]:
    if "holds" in body:
        body["from"] = body.pop("holds")
    return ask(client, "conversions", body)


def compose(client: TestClient, *plan: dict[str, Any], **more: Any) -> dict[str, Any]:
    body = {"plan": list(plan), "adjacency": ADD_REMOVE, "delta": 1e-5, **more}
    return ask(client, "compositions", body)


def calibrate(client: TestClient, solve_for: str, **more: Any) -> dict[str, Any]:
    body = {"solve_for": solve_for, "target": TARGET, "adjacency": ADD_REMOVE, **more}
    return ask(client, "calibrations", body)


def approximate(epsilon: float, delta: float) -> dict[str, Any]:
    return {"mechanism": "approximate", "epsilon": epsilon, "delta": delta}


def exact_gaussian_delta(epsilon: float, mu: float) -> Any:
    e, m = mp.mpf(epsilon), mp.mpf(mu)
    return mp.ncdf(m / 2 - e / m) - mp.exp(e) * mp.ncdf(-m / 2 - e / m)


class TestConversions:
    @pytest.mark.parametrize(("epsilon", "delta"), [(1.0, 1e-6), (0.1, 1e-5), (4.0, 1e-8)])
    def test_rho_of_lemma_3_8(self, client: TestClient, epsilon: float, delta: float) -> None:
        """DP-AGD solves ε = ρ + 2√(ρ·log(1/δ)) for ρ; the tight conversion leaves more to spend."""
        goal = {"notion": "approximate", "epsilon": epsilon, "delta": delta}
        found = convert(client, goal=goal, to={"notion": "zcdp"}, method="bun-steinke")
        rho = found["guarantee"]["rho"]
        root = math.sqrt(-math.log(delta))
        printed = (math.sqrt(-math.log(delta) + epsilon) - root) ** 2

        assert rho == pytest.approx(printed, rel=1e-9)
        assert rho + 2.0 * math.sqrt(rho * -math.log(delta)) <= epsilon * (1 + 1e-12)
        assert "Lemma 3.8" in found["source"]
        assert convert(client, goal=goal, to={"notion": "zcdp"})["guarantee"]["rho"] > rho

    def test_epsilon_of_lemma_3_8(self, client: TestClient) -> None:
        holds = {"notion": "zcdp", "rho": 0.1}
        to = {"notion": "approximate", "delta": 1e-6}
        closed = convert(client, holds=holds, to=to, method="bun-steinke")["guarantee"]["epsilon"]
        tight = convert(client, holds=holds, to=to)

        printed = 0.1 + 2 * math.sqrt(0.1 * math.log(1e6))
        assert printed <= closed <= printed * (1 + 1e-12)
        assert tight["guarantee"]["epsilon"] < closed
        assert tight["method"] == "canonne-kamath-steinke"

    @pytest.mark.parametrize(("epsilon", "delta"), [(0.5, 1e-5), (0.99, 1e-6)])
    def test_mu_of_the_classic_gaussian(self, client: TestClient, epsilon: float, delta: float) -> None:
        goal = {"notion": "approximate", "epsilon": epsilon, "delta": delta}
        found = convert(client, goal=goal, to={"notion": "gdp"}, method="classic-gaussian")

        sigma = math.sqrt(2 * math.log(1.25 / delta)) / epsilon
        assert 1.0 / found["guarantee"]["mu"] == pytest.approx(sigma, rel=1e-12)
        assert 1.0 / found["guarantee"]["mu"] >= sigma
        exact = convert(client, goal=goal, to={"notion": "gdp"})["guarantee"]["mu"]
        assert exact > found["guarantee"]["mu"]
        assert exact_gaussian_delta(epsilon, exact) <= delta * (1 + 1e-12)

    def test_a_curve_comes_by_order(self, client: TestClient) -> None:
        to = {"notion": "rdp", "orders": [2, 3.5, 64]}
        curve = convert(client, holds={"notion": "gdp", "mu": 0.5}, to=to)["guarantee"]

        assert curve["orders"] == [2.0, 3.5, 64.0]
        for order, epsilon in zip(curve["orders"], curve["epsilons"], strict=True):
            assert order / 8 <= epsilon <= order / 8 * (1 + 1e-12)

    def test_a_curve_is_converted_at_its_best_order(self, client: TestClient) -> None:
        orders = [2.0, 4.0, 8.0, 16.0, 32.0, 64.0]
        holds = {"notion": "rdp", "orders": orders, "epsilons": [order * 0.1 for order in orders]}
        found = convert(client, holds=holds, to={"notion": "approximate", "delta": 1e-6})

        by_hand = {a: 0.1 * a + math.log1p(-1 / a) - (math.log(1e-6) + math.log(a)) / (a - 1) for a in orders}
        assert found["order"] == min(by_hand, key=by_hand.__getitem__)
        assert found["guarantee"]["epsilon"] == pytest.approx(min(by_hand.values()), rel=1e-12)

    @pytest.mark.parametrize(
        ("body", "slug", "field"),
        [
            ({"to": {"notion": "zcdp"}}, "invalid-input", "from"),
            ({"from": {"notion": "zcdp", "rho": -1}, "to": {"notion": "gdp"}}, "invalid-input", "from.rho"),
            ({"from": {"notion": "zcdp"}, "to": {"notion": "rdp"}}, "invalid-input", "from.rho"),
            ({"from": {"notion": "zcdp", "mu": 1}, "to": {"notion": "rdp"}}, "invalid-input", "from.mu"),
            ({"from": {"notion": "tcdp"}, "to": {"notion": "gdp"}}, "invalid-input", "from.notion"),
            (
                {
                    "goal": {"notion": "gdp", "mu": 0},
                    "from": {"notion": "gdp", "mu": 0},
                    "to": {"notion": "gdp"},
                },
                "invalid-input",
                "from",
            ),
            (
                {"from": {"notion": "gdp", "mu": 1}, "to": {"notion": "zcdp", "delta": 0.1}},
                "invalid-input",
                "to.to",
            ),
            (
                {"from": {"notion": "gdp", "mu": 1}, "to": {"notion": "zcdp"}, "method": "magic"},
                "invalid-input",
                "method",
            ),
            (
                {
                    "from": {"notion": "zcdp", "rho": 1},
                    "to": {"notion": "rdp", "orders": [2.0 + k for k in range(513)]},
                },
                "invalid-input",
                "to.orders",
            ),
            (
                {"from": {"notion": "approximate", "epsilon": 1, "delta": 1e-5}, "to": {"notion": "zcdp"}},
                "unproven",
                None,
            ),
        ],
    )
    def test_what_cannot_be_answered_is_refused(
        self, client: TestClient, body: dict[str, Any], slug: str, field: str | None
    ) -> None:
        found = problem(client.post("/v1/conversions", json=body), 422, slug)

        assert found.get("field") == field


class TestAmplifications:
    def test_the_survey_of_lemma_1_2(self, client: TestClient) -> None:
        """Exercise 1.3: 0.001 % of a population, (0.5, 0)-DP on the results."""
        sample = {"scheme": "without-replacement", "rate": 1e-5}
        found = ask(
            client,
            "amplifications",
            {"sample": sample, "adjacency": REPLACE_ONE, "epsilon": 0.5, "delta": 0.0},
        )
        with mp.workdps(40):
            exact = mp.log1p(mp.mpf(1e-5) * mp.expm1(mp.mpf("0.5")))

        assert exact <= found["epsilon"] <= exact * (1 + mp.mpf(1e-14))
        assert found["epsilon"] == pytest.approx(6.4872e-6, rel=1e-5)
        assert found["delta"] == 0.0
        assert "Lemma 1.2" in found["source"]

    def test_an_epsilon_and_delta(self, client: TestClient) -> None:
        body = {"sample": POISSON, "adjacency": ADD_REMOVE, "epsilon": 1.0, "delta": 1e-5}
        found = ask(client, "amplifications", body)

        assert found["epsilon"] == pytest.approx(math.log1p(0.01 * math.expm1(1.0)), rel=1e-14)
        assert found["delta"] == pytest.approx(1e-7, rel=1e-14)
        assert found["delta"] >= 1e-7

    @pytest.mark.parametrize(
        ("sample", "adjacency", "method"),
        [
            ("poisson", ADD_REMOVE, "subsampled-laplace+steinke+balle-barthe-gaboardi"),
            (
                "without-replacement",
                REPLACE_ONE,
                "dominating-pair+wang-balle-kasiviswanathan+balle-barthe-gaboardi",
            ),
        ],
    )
    def test_sampled_laplace_noise_rests_on_its_pair(
        self, client: TestClient, sample: str, adjacency: str, method: str
    ) -> None:
        step = {
            "sample": {"scheme": sample, "rate": 0.1},
            "adjacency": adjacency,
            "releases": [LAPLACE],
            "orders": [1.5],
        }
        tight = ask(client, "amplifications", step)
        loose = ask(client, "amplifications", {**step, "method": method.split("+")[1]})

        assert tight["method"] == method
        assert 0.0 < 1.1 * tight["cost"]["epsilons"][0] < loose["cost"]["epsilons"][0]

    @pytest.mark.parametrize(
        ("sample", "adjacency", "method"),
        [
            (scheme, adjacency, method)
            for scheme, adjacency in (("poisson", ADD_REMOVE), ("without-replacement", REPLACE_ONE))
            for kind, methods in AMPLIFICATION_METHODS.items()
            for method in methods
            if kind.value == scheme
        ],
    )
    def test_every_theorem_by_name_is_no_tighter_than_the_default(
        self, client: TestClient, sample: str, adjacency: str, method: str
    ) -> None:
        body = {
            "sample": {"scheme": sample, "rate": 0.01},
            "adjacency": adjacency,
            "releases": [LAPLACE if method == "subsampled-laplace" else {**UNIT, "noise_std": 5.0}],
            "orders": [2, 4, 8],
        }
        named = ask(client, "amplifications", {**body, "method": method})
        tight = ask(client, "amplifications", body)

        assert named["method"] == method
        if method != "subsampled-laplace":
            assert tight["method"] == AMPLIFICATION_METHODS_DEFAULT[sample]
        for best, other in zip(tight["cost"]["epsilons"], named["cost"]["epsilons"], strict=True):
            assert 0.0 < best <= other * (1 + 1e-9)

    @pytest.mark.parametrize(
        ("release", "sample", "adjacency", "method"),
        [
            (GAUSSIAN, {"scheme": "full"}, ADD_REMOVE, "full"),
            (GAUSSIAN, {"scheme": "poisson", "rate": 1.0}, ADD_REMOVE, "full"),
            ({"mechanism": "zcdp", "rho": 0.1}, POISSON, ADD_REMOVE, "steinke"),
            ({"mechanism": "pure", "epsilon": 0.1}, POISSON, ADD_REMOVE, "steinke+balle-barthe-gaboardi"),
            (
                {"mechanism": "zcdp", "rho": 0.1},
                {"scheme": "without-replacement", "rate": 0.01},
                REPLACE_ONE,
                "wang-balle-kasiviswanathan",
            ),
            (
                approximate(0.1, 1e-6),
                {"scheme": "without-replacement", "rate": 0.01},
                REPLACE_ONE,
                "balle-barthe-gaboardi",
            ),
        ],
    )
    def test_the_theorem_used_is_named(
        self, client: TestClient, release: Any, sample: Any, adjacency: str, method: str
    ) -> None:
        body = {"sample": sample, "adjacency": adjacency, "releases": [release], "orders": [2.0, 8.0]}

        assert ask(client, "amplifications", body)["method"] == method

    @pytest.mark.parametrize(
        ("change", "slug", "field"),
        [
            ({"adjacency": REPLACE_ONE}, "adjacency-mismatch", None),
            ({"method": "dominating-pair"}, "invalid-input", "method"),
            ({"epsilon": 1.0}, "invalid-input", "epsilon"),
            ({"releases": None}, "invalid-input", "releases"),
            ({"releases": None, "epsilon": 1.0, "method": "steinke"}, "invalid-input", "method"),
            ({"releases": [{**GAUSSIAN, "noise_std": 0}]}, "invalid-input", "releases[0].noise_std"),
            (
                {"releases": [{"mechanism": "zcdp", "rho": 1}], "method": "moments-accountant"},
                "unproven",
                None,
            ),
        ],
    )
    def test_what_cannot_be_answered_is_refused(
        self, client: TestClient, change: Any, slug: str, field: str | None
    ) -> None:
        body = {"sample": POISSON, "adjacency": ADD_REMOVE, "releases": [GAUSSIAN], **change}

        found = problem(client.post("/v1/amplifications", json=body), 422, slug)

        assert found.get("field") == field


AMPLIFICATION_METHODS_DEFAULT = {
    "poisson": "subsampled-gaussian",
    "without-replacement": "dominating-pair",
}


class TestCompositions:
    @pytest.mark.parametrize(
        ("method", "times", "published"),
        [("rdp", 1000, 1.7118), ("rdp", 10_000, 5.6320), ("pld", 1000, 1.5154), ("pld", 10_000, 5.1926)],
    )
    def test_published_epsilon_of_dp_sgd(
        self, client: TestClient, method: str, times: int, published: float
    ) -> None:
        found = compose(client, {**STEP, "times": times}, method=method)

        assert found["epsilon"] == pytest.approx(published, rel=2e-4)
        assert found["method"] == method

    def test_strong_composition_of_lemma_15_2(self, client: TestClient) -> None:
        """k mechanisms at ε/(2√(2k·ln(2/δ))) and δ/(2k) are together (ε, kδ' + δ)-DP."""
        total, delta, k = 0.9, 1e-5, 100
        each = approximate(total / (2 * math.sqrt(2 * k * math.log(2 / delta))), delta / (2 * k))
        plan = {"releases": [each], "times": k}
        found = compose(client, plan, delta=1.5 * delta * (1 + 1e-9), method="lemma-15.2")
        tight = compose(client, plan, delta=1.5 * delta * (1 + 1e-9))

        assert found["epsilon"] == pytest.approx(total, rel=1e-8)
        assert tight["epsilon"] < found["epsilon"]
        assert "Lemma 15.2" in found["source"]

    def test_advanced_composition_as_printed(self, client: TestClient) -> None:
        plan = {"releases": [{"mechanism": "pure", "epsilon": 0.1}], "times": 10}
        found = compose(client, plan, method="advanced")

        printed = 0.1 * math.sqrt(20 * math.log(1e5)) + math.expm1(0.1)
        assert printed <= found["epsilon"] <= printed * (1 + 1e-12)

    def test_figure_3_of_a_ddp(self, client: TestClient) -> None:
        """p = 0.1, clip = 3, δ = 1e-5, ε = 0.1, T = 10: sampling composition beats the advanced one.

        Its sensitivity must be that of replace-one, twice the clipping bound.
        """
        noise = calibrate(
            client,
            "noise_std",
            adjacency=REPLACE_ONE,
            releases=[{**UNIT, "sensitivity": 6.0}],
            steps=1,
            target={"epsilon": 0.1, "delta": 1e-5},
            method="classic-gaussian",
        )["value"]
        printed = 6.0 * math.sqrt(2 * math.log(1.25e5)) / 0.1
        assert printed <= noise <= printed * UP

        delta = 1.1e-4 * (1 + 1e-9)
        advanced = compose(
            client, {"releases": [approximate(0.1, 1e-5)], "times": 10}, delta=delta, method="advanced"
        )["epsilon"]
        assert advanced == pytest.approx(0.1 * math.sqrt(20 * math.log(1e5)) + math.expm1(0.1), rel=1e-6)

        step = {
            "releases": [{**UNIT, "sensitivity": 6.0, "noise_std": noise}],
            "sample": {"scheme": "without-replacement", "rate": 0.1},
            "times": 10,
        }
        sampling = compose(client, step, adjacency=REPLACE_ONE, delta=delta, method="sampling")
        assert sampling["epsilon"] < 0.2 * advanced
        assert self.sampling_delta(sampling["epsilon"], 0.1, 10, 6.0 / noise) <= delta
        assert self.sampling_delta(sampling["epsilon"] * (1 - 1e-6), 0.1, 10, 6.0 / noise) > delta
        assert compose(client, step, adjacency=REPLACE_ONE, delta=delta)["epsilon"] < sampling["epsilon"]

    @staticmethod
    def sampling_delta(epsilon: float, rate: float, rounds: int, mu: float) -> Any:
        return mp.fsum(
            mp.binomial(rounds, i)
            * mp.mpf(rate) ** i
            * (1 - mp.mpf(rate)) ** (rounds - i)
            * exact_gaussian_delta(epsilon, mu * math.sqrt(i))
            for i in range(1, rounds + 1)
        )

    def test_noisy_gradient_descent_of_lemma_1_1(self, client: TestClient) -> None:
        """σ = 2G√(2T·ln(1/δ))/(nε) for n losses that are G-Lipschitz."""
        lipschitz, n, rounds, delta = 1.0, 1000, 100, 1e-6
        sigma = 2 * lipschitz * math.sqrt(2 * rounds * math.log(1 / delta)) / n
        step = {
            "releases": [{**UNIT, "sensitivity": 2 * lipschitz / n, "noise_std": sigma}],
            "times": rounds,
        }
        found = compose(client, step, adjacency=REPLACE_ONE, delta=delta, method="lemma-1.1")
        tight = compose(client, step, adjacency=REPLACE_ONE, delta=delta)

        assert 1.0 <= found["epsilon"] <= 1.0 + 1e-12
        assert tight["method"] == "gdp"
        assert exact_gaussian_delta(tight["epsilon"], 2 / n / sigma * math.sqrt(rounds)) <= delta
        assert tight["epsilon"] < found["epsilon"]

    def test_zcdp_adds_up(self, client: TestClient) -> None:
        plan = [{"releases": [{"mechanism": "zcdp", "rho": 0.01}], "times": 4}] * 2
        found = compose(client, *plan, method="zcdp", delta=1e-6)
        alone = convert(
            client, holds={"notion": "zcdp", "rho": 0.08}, to={"notion": "approximate", "delta": 1e-6}
        )

        assert found["epsilon"] == pytest.approx(alone["guarantee"]["epsilon"], rel=1e-12)

    def test_the_total_s_curve_comes_by_order(self, client: TestClient) -> None:
        found = compose(client, {"releases": [GAUSSIAN], "times": 8}, orders=[2, 16])

        assert found["cost"]["orders"] == [2.0, 16.0]
        assert found["cost"]["epsilons"] == pytest.approx([2.0, 16.0], rel=1e-12)
        assert found["cost"]["rho"] >= 1.0
        assert "cost" not in compose(client, {"releases": [GAUSSIAN], "times": 8})

    @pytest.mark.parametrize(
        ("trials", "law"),
        [
            ({"law": "poisson", "mean": 10}, PoissonTrials(10.0)),
            (
                {"law": "truncated-negative-binomial", "eta": 0, "gamma": 0.1},
                TruncatedNegativeBinomial(0.0, 0.1),
            ),
        ],
    )
    def test_the_best_of_many_runs(self, client: TestClient, trials: Any, law: Any) -> None:
        found = compose(client, {**STEP, "times": 1000}, trials=trials, orders=[4.0])
        plan = Plan(((Step.from_fields([SUBSAMPLED], POISSON, ADD_REMOVE), 1000),), 1e-5)

        assert found["epsilon"] == epsilon_at(tuned_cost(plan.total, law), 1e-5)[0]
        assert 1.7118 < found["epsilon"] < 2.5 * 1.7118
        assert found["method"] == "papernot-steinke"
        assert found["cost"]["orders"] == [4.0]

    @pytest.mark.parametrize(
        ("change", "slug", "field"),
        [
            ({"plan": []}, "invalid-input", "plan"),
            ({"plan": [STEP] * 65}, "invalid-input", "plan"),
            ({"plan": [{**STEP, "times": 10**9 + 1}]}, "invalid-input", "times"),
            (
                {"plan": [STEP, {"releases": [{**GAUSSIAN, "noise_std": 0}]}]},
                "invalid-input",
                "plan[1].releases[0].noise_std",
            ),
            ({"plan": [{**STEP, "rounds": 3}]}, "invalid-input", "plan[0].rounds"),
            ({"delta": 1.0}, "invalid-input", "delta"),
            ({"delta": None}, "invalid-input", "delta"),
            ({"orders": [1.0]}, "invalid-input", "orders"),
            ({"method": "moments"}, "invalid-input", "method"),
            ({"method": "zcdp"}, "unproven", None),
            ({"adjacency": REPLACE_ONE}, "adjacency-mismatch", None),
            ({"trials": {"law": "poisson"}}, "invalid-input", "trials.mean"),
            ({"trials": {"law": "poisson", "mean": 3, "eta": 1}}, "invalid-input", "trials.eta"),
            ({"trials": {"law": "poisson", "mean": 3}, "method": "pld"}, "invalid-input", "method"),
        ],
    )
    def test_what_cannot_be_answered_is_refused(
        self, client: TestClient, change: Any, slug: str, field: str | None
    ) -> None:
        body = {"plan": [STEP], "adjacency": ADD_REMOVE, "delta": 1e-5, **change}

        found = problem(client.post("/v1/compositions", json=body), 422, slug)

        assert found.get("field") == field


class TestCalibrations:
    @pytest.mark.parametrize(("method", "published"), [("tight", 1.4146), ("rdp", 1.5131), ("pld", 1.4146)])
    def test_published_noise_of_dp_sgd(self, client: TestClient, method: str, published: float) -> None:
        found = calibrate(client, "noise_std", releases=[UNIT], sample=POISSON, steps=1000, method=method)
        again = compose(
            client,
            {"releases": [{**UNIT, "noise_std": found["value"]}], "sample": POISSON, "times": 1000},
            method=found["method"],
        )

        assert found["value"] == pytest.approx(published, rel=5e-4)
        assert found["guarantee"]["epsilon"] <= 1.0
        assert again["epsilon"] <= 1.0
        assert again["epsilon"] == pytest.approx(1.0, rel=1e-3)

    @pytest.mark.parametrize(("epsilon", "delta"), [(0.5, 1e-5), (0.9, 1e-7)])
    def test_the_classic_and_the_exact_gaussian(
        self, client: TestClient, epsilon: float, delta: float
    ) -> None:
        def noise(method: str) -> float:
            target = {"epsilon": epsilon, "delta": delta}
            found = calibrate(client, "noise_std", releases=[UNIT], steps=1, target=target, method=method)
            assert found["guarantee"]["epsilon"] <= epsilon
            value: float = found["value"]
            return value

        printed = math.sqrt(2 * math.log(1.25 / delta)) / epsilon
        assert printed <= noise("classic-gaussian") <= printed * UP
        exact = noise("tight")
        assert exact < printed
        assert exact_gaussian_delta(epsilon, 1 / exact) <= delta
        assert exact_gaussian_delta(epsilon, 1 / exact * UP) > delta
        assert noise("balle-wang") == pytest.approx(exact, rel=1e-6)

    def test_noise_of_lemma_1_1_and_of_lemma_15_1(self, client: TestClient) -> None:
        """Lecture 15's σ² = 64L²T·log(2/δ)·log(2.5T/δ)/(n²ε²) is far above what suffices."""
        n, rounds, delta = 1000, 100, 1e-6
        query = {
            "releases": [{**UNIT, "sensitivity": 2 / n}],
            "steps": rounds,
            "adjacency": REPLACE_ONE,
            "target": {"epsilon": 0.9, "delta": delta},
        }
        closed = calibrate(client, "noise_std", method="lemma-1.1", **query)["value"]
        tight = calibrate(client, "noise_std", **query)["value"]
        lecture = 8 * math.sqrt(rounds * math.log(2 / delta) * math.log(2.5 * rounds / delta)) / n / 0.9

        printed = 2 * math.sqrt(2 * rounds * math.log(1 / delta)) / n / 0.9
        assert printed <= closed <= printed * 1.00001
        assert tight < closed < lecture

    @pytest.mark.parametrize(
        ("method", "expected"), [("tight", 421), ("rdp", 141), ("kairouz-oh-viswanath-closed", None)]
    )
    def test_steps(self, client: TestClient, method: str, expected: int | None) -> None:
        """q = 0.01, σ = 1.1 at (1, 1e-5), fixed in advance: 421 steps exactly, 141 by the curve."""
        step = {"releases": [{"mechanism": "pure", "epsilon": 0.01}]} if expected is None else STEP
        found = calibrate(client, "steps", method=method, **step)

        if expected is not None:
            assert found["value"] == expected
        assert isinstance(found["value"], int)
        total = [
            compose(client, {**step, "times": found["value"] + k}, method=found["method"]) for k in (0, 1)
        ]
        assert total[0]["epsilon"] <= 1.0 < total[1]["epsilon"]

    @pytest.mark.parametrize("method", ["tight", "rdp"])
    def test_rate(self, client: TestClient, method: str) -> None:
        query = {"releases": [SUBSAMPLED], "sample": {"scheme": "poisson"}, "steps": 1000}
        found = calibrate(client, "rate", method=method, **query)

        assert found["parameter"] == "rate"
        for factor, holds in ((1.0, True), (1.0001, False)):
            sample = {"scheme": "poisson", "rate": found["value"] * factor}
            plan = {"releases": [SUBSAMPLED], "sample": sample, "times": 1000}
            total = compose(client, plan, method=found["method"])
            assert (total["epsilon"] <= 1.0) is holds

    @pytest.mark.parametrize(
        ("target", "expected", "method"),
        [({"rho": 0.5}, 10.0, "zcdp"), ({"mu": 0.5}, 20.0, "gdp")],
    )
    def test_other_targets(self, client: TestClient, target: Any, expected: float, method: str) -> None:
        found = calibrate(client, "noise_std", releases=[UNIT], steps=100, target=target)

        assert expected <= found["value"] <= expected * UP
        assert found["method"] == method

    def test_only_what_lacks_its_noise_is_solved_for(self, client: TestClient) -> None:
        """Two releases on a look: ρ = 0.125 is taken by the first, 0.375 is left for the second."""
        query = {"releases": [GAUSSIAN, UNIT], "steps": 1, "target": {"rho": 0.5}}
        found = calibrate(client, "noise_std", **query)

        assert found["value"] == pytest.approx(math.sqrt(1 / 0.75), rel=1e-6)
        laplace = {
            "releases": [{"mechanism": "laplace", "sensitivity": 2.0}],
            "steps": 1,
            "target": {"rho": 0.5},
        }
        scale = calibrate(client, "noise_std", **laplace)["value"]
        assert 2 / scale + math.expm1(-2 / scale) <= 0.5
        assert 2 / scale + math.expm1(-2 / scale) == pytest.approx(0.5, rel=1e-6)

    @pytest.mark.parametrize(
        ("change", "slug", "field"),
        [
            ({"solve_for": "sigma"}, "invalid-input", "solve_for"),
            ({"steps": None}, "invalid-input", "steps"),
            ({"steps": 0}, "invalid-input", "steps"),
            ({"steps": 10**10}, "invalid-input", "steps"),
            ({"solve_for": "steps"}, "invalid-input", "steps"),
            ({"solve_for": "rate"}, "invalid-input", "sample.rate"),
            ({"releases": [SUBSAMPLED]}, "invalid-input", "releases"),
            ({"releases": [{**UNIT, "sensitivity": -1}]}, "invalid-input", "releases[0].sensitivity"),
            ({"target": {"epsilon": 1.0}}, "invalid-input", "target"),
            ({"target": {"rho": 1.0, "mu": 1.0}}, "invalid-input", "target"),
            ({"target": {"epsilon": 1.0, "delta": 0.0}}, "invalid-input", "delta"),
            ({"target": {"rho": 1.0}, "method": "rdp"}, "invalid-input", "method"),
            ({"method": "guess"}, "invalid-input", "method"),
            (
                {"method": "classic-gaussian", "target": {"epsilon": 2.0, "delta": 1e-5}},
                "invalid-input",
                "epsilon",
            ),
            ({"method": "zcdp", "sample": POISSON}, "unproven", None),
            ({"releases": [GAUSSIAN, UNIT], "target": {"rho": 0.1}}, "unreachable", None),
        ],
    )
    def test_what_cannot_be_answered_is_refused(
        self, client: TestClient, change: Any, slug: str, field: str | None
    ) -> None:
        body = {
            "solve_for": "noise_std",
            "target": TARGET,
            "adjacency": ADD_REMOVE,
            "releases": [UNIT],
            "steps": 10,
            **change,
        }

        found = problem(client.post("/v1/calibrations", json=body), 422, slug)

        assert found.get("field") == field


class TestForecast:
    def forecast(self, service: Service, dataset: str = "adult", **body: Any) -> dict[str, Any]:
        answer = service.post(f"/v1/datasets/{dataset}/forecast", {"releases": [GAUSSIAN], **body})
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()
        assert answer.headers["etag"] == f'"{found["sequence"]}"'
        return found

    @pytest.mark.parametrize(
        "budget",
        [
            {"accounting": "zcdp", "rho": 0.51},
            {"accounting": "gdp", "mu": 1.3},
            {"accounting": "rdp", "epsilon": 8.0, "delta": 1e-5},
            {"accounting": "rdp-order", "epsilon": 8.0, "delta": 1e-5, "order": 8},
        ],
    )
    def test_as_many_are_reserved_as_were_forecast_and_no_more(
        self, shared: Service, budget: dict[str, Any]
    ) -> None:
        name = budget["accounting"]
        shared.open(name, budget)
        made(shared.authorize(dataset=name))
        found = self.forecast(shared, name)

        assert found["fits"] >= 1
        assert found["sequence"] == shared.sequence(name) == 2
        assert found["method"] == budget["accounting"]
        assert found["remaining"] == shared.shown(f"/v1/datasets/{name}")["remaining"]
        problem(shared.reserve(found["fits"] + 1, name), 409, "budget-exhausted")
        made(shared.reserve(found["fits"], name))
        none_left = self.forecast(shared, name)
        assert none_left["fits"] == 0
        ForecastAnswer.model_validate(none_left)
        assert shared.sequence(name) == 3

    def test_a_partition_has_its_own(self, service: Service) -> None:
        service.open("adult")
        made(service.post("/v1/datasets/adult/partitions", {"names": ["a", "b"]}))
        made(service.authorize(partition="a"))

        assert self.forecast(service, partition="a")["fits"] == 3
        assert self.forecast(service, partition="b")["fits"] == 4
        assert self.forecast(service)["fits"] == 3
        answer = service.post("/v1/datasets/adult/forecast", {"releases": [GAUSSIAN], "partition": "c"})
        problem(answer, 404, "not-found")

    def test_what_costs_nothing_fits_as_often_as_is_counted(self, still: Service) -> None:
        assert self.forecast(still, releases=[{"mechanism": "zcdp", "rho": 0.0}])["fits"] == 10**9

    def test_what_the_accounting_cannot_add_up_is_refused(self, still: Service) -> None:
        body = {"releases": [GAUSSIAN], "sample": POISSON}
        problem(still.post("/v1/datasets/adult/forecast", body), 422, "unproven")
        problem(still.post("/v1/datasets/nowhere/forecast", body), 404, "not-found")
        bad = {"releases": [{**GAUSSIAN, "noise_std": 0}]}
        found = problem(still.post("/v1/datasets/adult/forecast", bad), 422, "invalid-input")
        assert found["field"] == "releases[0].noise_std"


def test_only_who_may_read_may_ask(still: Service) -> None:
    reader = still.make_token("read", datasets=["other"])

    problem(reader.post("/v1/datasets/adult/forecast", {"releases": [GAUSSIAN]}), 403, "forbidden")
    for route in (*ROUTES, "datasets/adult/forecast"):
        problem(still.as_bearer("dpl_x_y").post(f"/v1/{route}", {}), 401, "unauthenticated")


@pytest.mark.parametrize("route", [*ROUTES, "datasets/{dataset}/forecast"])
def test_every_status_is_declared(client: TestClient, route: str) -> None:
    operation = client.get("/openapi.json").json()["paths"][f"/v1/{route}"]["post"]
    slugs = {
        slug.rpartition("/")[2]
        for answer in operation["responses"].values()
        for media in answer.get("content", {}).values()
        for slug in media["schema"].get("properties", {}).get("type", {}).get("enum", ())
    }

    own = {"404", "409"} if "{" in route else set()
    assert (
        set(operation["responses"]) == {"200", "400", "401", "403", "413", "415", "422", "500", "503"} | own
    )
    assert {"questions-busy", "question-too-hard", "unproven", "adjacency-mismatch", "invalid-input"} <= slugs
    assert operation["responses"]["200"]["content"]["application/json"]["schema"]["$ref"]
    assert operation["x-scope"] == "read"


def test_every_method_has_its_theorem() -> None:
    assert {name for methods in AMPLIFICATION_METHODS.values() for name in methods} == set(AMPLIFICATION)
    assert {name for each in METHODS for name in (each.name, *each.also)} == set(COMPOSITION)
    assert all(filter_named(name).theorem.method == name for name in filter_names())
    assert not set(BY_CONVERSION) & set(COMPOSITION)


def _asked() -> dict[str, tuple[str, str]]:
    """Each query of docs/queries.md with its body, and what the page says of the answer."""
    page = (Path(__file__).resolve().parents[2] / "docs" / "queries.md").read_text(encoding="utf-8")
    found = re.findall(r"^    ask (\S+) '(.*?)'\n\n((?:    [^\n]*\n)+)", page, re.MULTILINE | re.DOTALL)
    assert len(found) == len(re.findall(r"^    ask ", page, re.MULTILINE))
    return {path: (body, answer) for path, body, answer in found}


@pytest.mark.parametrize("path", _asked())
def test_the_pages_queries_get_the_numbers_that_it_shows(service: Service, path: str) -> None:
    service.open("adult", {"accounting": "rdp", "epsilon": 3.0, "delta": 1e-5})
    body, shown = _asked()[path]

    answer = service.post(f"/v1/{path}", json.loads(body))

    assert answer.status_code == 200, answer.text
    shown_there, found = _numbers(shown), _numbers(answer.text)
    assert shown_there
    assert [each for each in shown_there if not np.isclose(each, found, rtol=1e-5, atol=0.0).any()] == []


def _numbers(text: str) -> list[float]:
    """The numbers of a JSON text, those in strings apart; long lists may be cut."""
    without_words = re.sub(r'"[^"]*"', "", text)
    return [float(each) for each in re.findall(r"-?\d+(?:\.\d+)?(?:e-?\d+)?", without_words)]


GAUSSIAN_NOISE = [{"mechanism": "gaussian", "sensitivity": 1.0}]


@pytest.mark.parametrize("sample", [None, {"scheme": "poisson", "rate": 0.01}])
def test_basic_calibration_of_gaussian_noise_meets_its_target(
    client: TestClient, sample: dict[str, Any] | None
) -> None:
    plan = {"adjacency": ADD_REMOVE, "sample": sample}
    found = calibrate(client, "noise_std", steps=100, releases=GAUSSIAN_NOISE, sample=sample, method="basic")
    noisy = {"mechanism": "gaussian", "sensitivity": 1.0, "noise_std": found["value"]}

    total = compose(
        client,
        plan=[{"sample": sample, "times": 100, "releases": [noisy]}],
        delta=TARGET["delta"],
        adjacency=plan["adjacency"],
        method="basic",
    )

    assert found["guarantee"]["delta"] == TARGET["delta"]
    assert 0.999 * TARGET["epsilon"] < total["epsilon"] <= TARGET["epsilon"]


def test_basic_calibration_counts_steps_as_on_paper(client: TestClient) -> None:
    found = calibrate(
        client,
        "steps",
        target={"epsilon": 0.3, "delta": 0.3},
        releases=[{"mechanism": "approximate", "epsilon": 0.1, "delta": 0.1}],
        method="basic",
    )

    assert found["value"] == 3
    assert found["guarantee"] == {"notion": "approximate", "epsilon": 0.3, "delta": 0.3}


def test_deltas_that_add_up_to_the_target_compose(client: TestClient) -> None:
    parts = [{"releases": [approximate(0.1, delta)]} for delta in (0.1, 0.2)]

    total = compose(client, plan=parts, delta=0.3, adjacency=ADD_REMOVE, method="basic")

    assert (total["epsilon"], total["delta"]) == (0.2, 0.3)


@pytest.mark.parametrize("method", ["advanced", "lemma-15.2"])
def test_a_small_epsilon_is_reached_by_amplified_steps(client: TestClient, method: str) -> None:
    """Converting the amplified curve alone has a floor on ε, whatever the noise."""
    sample = {"scheme": "poisson", "rate": 0.001}
    found = calibrate(
        client,
        "noise_std",
        target={"epsilon": 0.1, "delta": 1e-5},
        steps=10_000,
        sample=sample,
        releases=GAUSSIAN_NOISE,
        method=method,
    )

    assert 20.0 < found["value"] < 41.0
    assert 0.0999 < found["guarantee"]["epsilon"] <= 0.1
