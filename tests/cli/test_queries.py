"""``dpledger cost``, ``convert``, ``calibrate`` and ``forecast``: here, by a service, and on a database."""

import json
import math
from pathlib import Path

import pytest

from tests.cli.running import STEP, Served, run

SAMPLED = ["--sample", "poisson", "--rate", "0.01"]
QUERIES = {
    "cost": ["cost", "gaussian:sensitivity=1,noise_std=1.1", *SAMPLED, "--orders", "2,4.5"],
    "cost of two": ["cost", STEP, '{"mechanism": "laplace", "sensitivity": 1, "scale": 2, "count": 3}'],
    "conversion": ["convert", "--from", "zcdp:rho=0.1", "--to", "approximate:delta=1e-6"],
    "goal": [
        "convert",
        "--goal",
        "approximate:epsilon=1,delta=1e-6",
        "--to",
        "zcdp",
        "--method",
        "bun-steinke",
    ],
    "curve": ["convert", "--from", "zcdp:rho=0.1", "--to", "rdp:orders=[2,4.5]"],
    "noise": ["calibrate", "gaussian:sensitivity=3", "--epsilon", "1", "--delta", "1e-5", "--steps", "10"],
    "steps": ["calibrate", STEP, "--solve-for", "steps", "--rho", "0.5"],
    "rate": [
        *["calibrate", "gaussian:sensitivity=1,noise_std=1.1", "--solve-for", "rate", "--sample", "poisson"],
        *["--steps", "100", "--epsilon", "1", "--delta", "1e-5", "--method", "rdp"],
    ],
    "mu": ["calibrate", "gaussian:sensitivity=1", "--mu", "0.5", "--adjacency", "replace-one"],
}


@pytest.mark.parametrize("which", QUERIES)
def test_an_answer_is_the_same_with_and_without_a_service(service: Served, which: str) -> None:
    asked = [*QUERIES[which], "--json"]
    here = run(*asked)
    there = run(*asked, "--url", service.address, "--token", service.token)

    assert here.json == there.json
    assert (here.err, there.err) == ("", "")


def test_known_answers() -> None:
    assert run(*QUERIES["cost"], "--json").json["cost"]["orders"] == [2.0, 4.5]
    two = run(*QUERIES["cost of two"], "--json").json["cost"]
    assert two["pure_epsilon"] is None
    # Lee and Kifer 2018, Lemma 3.8: ρ = (√(log(1/δ) + ε) − √log(1/δ))².
    log = math.log(1e6)
    expected = (math.sqrt(log + 1.0) - math.sqrt(log)) ** 2
    rho = run(*QUERIES["goal"], "--json").json["guarantee"]["rho"]
    assert rho == pytest.approx(expected, rel=1e-9)
    assert rho <= expected * (1.0 + 1e-15)
    # ρ = Δ²/2σ² = 0.005 per step.
    assert run(*QUERIES["steps"], "--json").json["value"] == 100
    assert run(*QUERIES["mu"], "--json").json["value"] == pytest.approx(2.0, rel=1e-6)


def test_answers_in_words_are_rounded_towards_more_privacy() -> None:
    reported = run("convert", "--goal", "approximate:epsilon=1,delta=1e-6", "--to", "zcdp").out
    rho = float(reported.split("rho")[1].split()[0])
    exact = run("convert", "--goal", "approximate:epsilon=1,delta=1e-6", "--to", "zcdp", "--json").json
    assert rho <= exact["guarantee"]["rho"] < rho * 1.00001
    noise = run(*QUERIES["noise"]).out
    value = run(*QUERIES["noise"], "--json").json["value"]
    assert value <= float(noise.split("noise_std")[1].split()[0]) < value * 1.00001
    rate = run(*QUERIES["rate"]).out
    value = run(*QUERIES["rate"], "--json").json["value"]
    assert value * 0.99999 < float(rate.split("rate")[1].split()[0]) <= value


def test_answers_in_words_name_their_theorem() -> None:
    reported = run(*QUERIES["goal"]).out
    assert "bun-steinke" in reported
    assert "Bun and Steinke 2016, Proposition 1.3" in reported
    assert run(*QUERIES["steps"]).out.splitlines()[0].split() == ["steps", "100"]


def test_a_curve_in_words() -> None:
    lines = run(*QUERIES["curve"]).out.splitlines()
    assert [line.split() for line in lines[-2:]] == [["2", "0.200001"], ["4.5", "0.450001"]]
    whole = run("cost", STEP).out.splitlines()
    assert 10 <= len([line for line in whole if line.strip()[:1].isdigit()]) <= 16
    assert whole[0].split() == ["ρ", "(zCDP)", "0.00500001"]


@pytest.mark.parametrize("dataset", ["adult", "mnist"])
def test_a_forecast_is_the_same_both_ways(service: Served, dataset: str) -> None:
    sampled = ["--sample", "without-replacement", "--rate", "0.01"] if dataset == "mnist" else []
    asked = ["forecast", dataset, STEP, *sampled]
    there = run(*asked, "--url", service.address, "--token", service.token, "--json")
    here = run(*asked, "--database", service.database, "--json")

    assert here.json == there.json
    assert here.json["fits"] > 0
    reported = run(*asked, "--database", service.database).out
    assert f"{here.json['fits']} more such steps" in reported


def test_a_forecast_of_a_partition(ledger_target: list[str]) -> None:
    asked = ["forecast", "adult", STEP, "--partition", "ann", *ledger_target]
    assert run(*asked, "--json").json["partition"] == "ann"
    assert "partition" in run(*asked).out
    run("forecast", "adult", STEP, "--partition", "eve", *ledger_target).failed(4, "eve")
    run("forecast", "nobody", STEP, *ledger_target).failed(4, "there is no dataset 'nobody'")
    run("forecast", "adult", "gaussian:sensitivity=1", *ledger_target).failed(2, "noise_std")


WRONG: dict[str, tuple[list[str], int, str]] = {
    "no number": (["cost", "gaussian:sensitivity=1,noise_std=two"], 2, "noise_std"),
    "not finite": (["cost", "gaussian:sensitivity=1,noise_std=NaN"], 2, "NaN is not JSON"),
    "infinite": (["cost", "gaussian:sensitivity=1,noise_std=Infinity"], 2, "Infinity is not JSON"),
    "too small": (["cost", "gaussian:sensitivity=1e-400,noise_std=1"], 2, "does not fit a double"),
    "negative": (["cost", "gaussian:sensitivity=-1,noise_std=1"], 2, "sensitivity"),
    "unknown mechanism": (["cost", "gauss:sensitivity=1"], 2, "mechanism"),
    "broken JSON": (["cost", '{"mechanism": '], 2, "RELEASE: "),
    "a list": (["cost", "@list.json"], 2, "the JSON is not an object"),
    "twice": (["cost", '{"mechanism": "gaussian", "mechanism": "laplace"}'], 2, "stands twice"),
    "no file": (["cost", "@absent.json"], 2, "cannot read absent.json"),
    "rate alone": (["cost", STEP, "--rate", "0.1"], 2, "--rate needs --sample"),
    "rate above one": (["cost", STEP, "--sample", "poisson", "--rate", "1.5"], 2, "rate"),
    "rate no number": (["cost", STEP, "--sample", "poisson", "--rate", "inf"], 2, "a number"),
    "orders": (["cost", STEP, "--orders", "2,x"], 2, "a number"),
    "order below one": (["cost", STEP, "--orders", "0.5"], 2, "orders"),
    "other adjacency": (
        ["cost", STEP, *["--sample", "without-replacement", "--rate", "0.1"]],
        3,
        "replace-one",
    ),
    "from and goal": (
        ["convert", "--from", "zcdp:rho=1", "--goal", "zcdp:rho=1", "--to", "gdp"],
        2,
        "but not both",
    ),
    "unknown method": (
        ["convert", "--from", "zcdp:rho=1", "--to", "approximate:delta=1e-6", "--method", "magic"],
        2,
        "method",
    ),
    "no target": (["calibrate", "gaussian:sensitivity=1"], 2, "target"),
    "unreachable": (["calibrate", STEP, "--solve-for", "steps", "--rho", "1e-9"], 3, ""),
}


@pytest.mark.parametrize("which", WRONG)
def test_a_wrong_query_is_refused_in_one_line(service: Served, tmp_path: Path, which: str) -> None:
    (tmp_path / "list.json").write_text("[1]")
    asked, code, words = WRONG[which]
    run(*asked).failed(code, words)
    run(*asked, "--url", service.address, "--token", service.token).failed(code, words)


def test_a_release_in_a_file(tmp_path: Path) -> None:
    release = {"mechanism": "gaussian", "sensitivity": 1.0, "noise_std": 10.0}
    (tmp_path / "step.json").write_text(json.dumps(release))
    assert run("cost", "@step.json", "--json").json == run("cost", STEP, "--json").json
    assert run("cost", "@-", "--json", stdin=json.dumps(release)).json == run("cost", STEP, "--json").json
