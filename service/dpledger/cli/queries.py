"""``dpledger cost``, ``convert``, ``calibrate`` and ``forecast``: queries that record nothing.

The first three need no ledger: without ``--url`` they are computed here.
"""

import contextlib
import enum
from typing import Annotated

import typer

from dpledger.cli.datasets import Adjacency, DatasetName
from dpledger.cli.formatting import number, number_list, parse_description, sample_of
from dpledger.cli.ledgers import Fields, open_ledger
from dpledger.cli.output import amount_text, number_down, number_up, print_json, show_pairs, show_table
from dpledger.cli.progress import show_spinner
from dpledger.cli.targets import AsJson, LedgerTarget, at_a_ledger, at_a_service

__all__ = ["calibrate", "convert", "cost", "forecast"]

_SHOWN_ORDERS = 16


class Scheme(enum.Enum):
    """How a sample is drawn."""

    FULL = "full"
    POISSON = "poisson"
    WITHOUT_REPLACEMENT = "without-replacement"


class Unknown(enum.Enum):
    """What a calibration solves for."""

    NOISE_STD = "noise_std"
    STEPS = "steps"
    RATE = "rate"


def _number_option(help_text: str) -> typer.models.OptionInfo:
    option: typer.models.OptionInfo = typer.Option(parser=number, metavar="NUMBER", help=help_text)
    return option


Releases = Annotated[
    list[str],
    typer.Argument(
        metavar="RELEASE",
        help="A mechanism and its fields: gaussian:sensitivity=1,noise_std=2[,count=3], JSON or @file.",
    ),
]
SampleOption = Annotated[
    Scheme | None, typer.Option("--sample", help="How the sample is drawn; the whole dataset by default.")
]
Rate = Annotated[float | None, _number_option("The sampling rate.")]
AdjacencyOption = Annotated[Adjacency, typer.Option(help="What neighbours differ in.")]
Method = Annotated[str | None, typer.Option(help="A theorem by its name; the tightest proven by default.")]


@at_a_service
def cost(
    ledger_target: LedgerTarget,
    releases: Releases,
    sample: SampleOption = None,
    rate: Rate = None,
    adjacency: AdjacencyOption = Adjacency.ADD_REMOVE,
    orders: Annotated[
        str | None, typer.Option(metavar="α,α,…", help="Rényi orders; a wide grid by default.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """What a step would cost, in every notion that applies."""
    body = _step(releases, sample, rate, adjacency)
    body |= {} if orders is None else {"orders": number_list(orders)}
    found = _evaluate(ledger_target, "costs", body, as_json)
    if as_json:
        return print_json(found)
    return _show_cost(found["cost"])


def _step(releases: list[str], sample: Scheme | None, rate: float | None, adjacency: Adjacency) -> Fields:
    return {
        "releases": [parse_description("RELEASE", each, "mechanism") for each in releases],
        "adjacency": adjacency.value,
        **sample_of(None if sample is None else sample.value, rate),
    }


def _evaluate(ledger_target: LedgerTarget, query: str, body: Fields, quiet: bool) -> Fields:
    """The service's answer, or where none is named, this process's by the same functions."""
    with show_spinner("computing", quiet):
        if ledger_target.url is not None:
            from dpledger.cli.remote import Remote

            with contextlib.closing(
                Remote(ledger_target.url, ledger_target.token, ledger_target.timeout_seconds)
            ) as remote:
                return remote.ask(query, body)
        # Loads scipy, which a query to a service does without.
        from dpledger.cli.local import evaluate

        return evaluate(query, body)


def _show_cost(found: Fields) -> None:
    show_pairs(
        [
            ("ρ (zCDP)", number_up(found["rho"])),
            ("μ (GDP)", number_up(found["mu"])),
            ("pure ε", number_up(found["pure_epsilon"])),
            ("δ", number_up(found["delta"])),
        ]
    )
    curve = list(zip(found["orders"], found["epsilons"], strict=True))
    every = -(-len(curve) // _SHOWN_ORDERS)
    rows = [[number_up(order), number_up(epsilon)] for order, epsilon in curve[::every]]
    show_table(("order>", "Rényi ε>"), rows, "no orders")


@at_a_service
def convert(
    ledger_target: LedgerTarget,
    to: Annotated[
        str, typer.Option(metavar="NOTION", help="Notion to convert to: zcdp, gdp, approximate:delta=1e-6…")
    ],
    holds: Annotated[
        str | None,
        typer.Option("--from", metavar="GUARANTEE", help="Known guarantee: zcdp:rho=0.1, pure:epsilon=1…"),
    ] = None,
    goal: Annotated[
        str | None,
        typer.Option(metavar="GUARANTEE", help="What is to hold; the answer is the most that may be spent."),
    ] = None,
    method: Method = None,
    as_json: AsJson = False,
) -> None:
    """What a guarantee implies in another notion, or what may be spent to reach one.

    Notions: pure:epsilon, approximate:epsilon,delta, zcdp:rho, gdp:mu, rdp as JSON with orders and epsilons.
    """
    body: Fields = {"to": parse_description("--to", to, "notion"), **_method(method)}
    body |= {} if holds is None else {"from": parse_description("--from", holds, "notion")}
    body |= {} if goal is None else {"goal": parse_description("--goal", goal, "notion")}
    found = _evaluate(ledger_target, "conversions", body, as_json)
    if as_json:
        return print_json(found)
    shown = number_up if goal is None else number_down
    guarantee = found["guarantee"]
    numbers = [(each, shown(value)) for each, value in guarantee.items() if isinstance(value, float | int)]
    show_pairs([("notion", guarantee["notion"]), *numbers, *_proof(found)])
    if "epsilons" in guarantee:
        curve = zip(guarantee["orders"], guarantee["epsilons"], strict=True)
        rows = [[number_up(order), shown(epsilon)] for order, epsilon in curve]
        show_table(("order>", "Rényi ε>"), rows, "no orders")
    return None


def _method(method: str | None) -> Fields:
    return {} if method is None else {"method": method}


def _proof(found: Fields) -> list[tuple[str, str | None]]:
    return [(name, found[name]) for name in ("method", "theorem", "conditions", "source")]


@at_a_service
def calibrate(
    ledger_target: LedgerTarget,
    releases: Releases,
    solve_for: Annotated[Unknown, typer.Option(help="The unknown to solve for.")] = Unknown.NOISE_STD,
    epsilon: Annotated[float | None, _number_option("The target's ε, beside --delta.")] = None,
    delta: Annotated[float | None, _number_option("The target's δ.")] = None,
    rho: Annotated[float | None, _number_option("The target's ρ, instead.")] = None,
    mu: Annotated[float | None, _number_option("The target's μ, instead.")] = None,
    steps: Annotated[int | None, typer.Option(min=1, help="How often the step is taken.")] = None,
    sample: SampleOption = None,
    rate: Rate = None,
    adjacency: AdjacencyOption = Adjacency.ADD_REMOVE,
    method: Method = None,
    as_json: AsJson = False,
) -> None:
    """The least noise, the most steps or the highest rate with which a fixed plan meets its target.

    Releases without their noise_std or scale all get the number that is found.
    """
    target = {"epsilon": epsilon, "delta": delta, "rho": rho, "mu": mu}
    body: Fields = {
        "solve_for": solve_for.value,
        "target": {name: value for name, value in target.items() if value is not None},
        **_step(releases, sample, rate, adjacency),
        **_method(method),
    }
    body |= _steps(solve_for, steps)
    found = _evaluate(ledger_target, "calibrations", body, as_json)
    if as_json:
        return print_json(found)
    # More noise is more privacy, and so are fewer steps and a lower rate.
    shown = number_up if solve_for is Unknown.NOISE_STD else number_down
    guarantee = {name: value for name, value in found["guarantee"].items() if name != "notion"}
    return show_pairs(
        [
            (
                found["parameter"],
                str(found["value"]) if solve_for is Unknown.STEPS else shown(found["value"]),
            ),
            ("steps", str(found["steps"])),
            ("guarantee", ", ".join(f"{name} = {number_up(value)}" for name, value in guarantee.items())),
            *_proof(found),
        ]
    )


def _steps(solve_for: Unknown, steps: int | None) -> Fields:
    """One step unless more are named; none where they are what is asked."""
    if steps is None:
        return {} if solve_for is Unknown.STEPS else {"steps": 1}
    return {"steps": steps}


@at_a_ledger
def forecast(
    ledger_target: LedgerTarget,
    name: DatasetName,
    releases: Releases,
    sample: SampleOption = None,
    rate: Rate = None,
    partition: Annotated[str | None, typer.Option(help="Forecast for this partition.")] = None,
    allocation: Annotated[str | None, typer.Option(help="Forecast for this allocation.")] = None,
    as_json: AsJson = False,
) -> None:
    """How many more such steps a dataset grants; no promise, since others may spend meanwhile."""
    body: Fields = {
        "releases": [parse_description("RELEASE", each, "mechanism") for each in releases],
        **sample_of(None if sample is None else sample.value, rate),
        **({} if partition is None else {"partition": partition}),
        **({} if allocation is None else {"allocation": allocation}),
    }
    with open_ledger(ledger_target) as ledger, show_spinner("computing", as_json):
        found = ledger.forecast(name, body)
    if as_json:
        return print_json(found)
    return show_pairs(
        [
            ("dataset", f"{found['dataset']}, true at entry {found['sequence']}"),
            ("partition", partition),
            ("allocation", allocation),
            ("fits", f"{found['fits']} more such steps"),
            ("item", found.get("item")),
            ("advice", "; ".join(found["advice"]) if "advice" in found else None),
            ("left", amount_text(found["remaining"])),
            *_proof(found),
        ]
    )
