"""Rules of methods that choose step sizes privately on the way."""

import math
from typing import Any

from dpledger_client.optimizers.methods.dp_agd import DPAGD
from dpledger_client.optimizers.methods.dp_blgd import DPBLGD
from dpledger_client.optimizers.methods.dp_blsgd import DPBLSGD, DPBLSGDAC
from dpledger_client.optimizers.support.base import Method
from dpledger_client.optimizers.support.line_search import Backtracking
from dpledger_client.optimizers.support.planning import Item, Setting
from dpledger_client.optimizers.support.rules.facts import Choice, PublicFacts
from dpledger_client.optimizers.support.rules.gradient import CLIP

__all__ = ["dp_agd", "dp_blgd", "dp_blsgd", "dp_blsgd_ac"]

LOSS_CLIP = 5.0
"""Well above log 2, the loss at the start, so that a step's gain on records that are wrong is seen."""
_ITERATIONS = 30, 1000
_SEARCHES = 40, 400
_PER_STRENGTH = 0.075
"""Iterations per nμ/Δ, between the least and the most."""
_FINE = 100
"""From so many iterations on, the grid of step sizes follows the steps that are chosen."""
_FINER_GRID = {"stay_shrinkage": 0.5, "grid_growth": 1.0, "grid_interval": 3}
_GRADIENTS = 0.7
"""The share of ρ that gradients get, where searches are planned by themselves."""
_FIRST_STEP = 8.0
_RATE = 0.2


def dp_agd(facts: PublicFacts) -> Method | Choice:
    """ρ of the request for 30 to 1,000 iterations, half of it for gradients and half for selections.

    Where the noise is small, steps along a gradient of length 1 must become small as well, and many:
    otherwise NoisyMin is right to stay, and the budget goes to ever better gradients of the same point.
    A budget that adds up μ² counts a selection of ρ as up to 2π of them (its pure ε of √(8ρ) is a μ of at
    most ε√(π/2)): both get so much less there, and it trains until it is refused.
    """
    room = facts.room
    given = {"gradient_clip": CLIP, "loss_clip": LOSS_CLIP, **facts.options}
    splits = _iterations(facts, *_ITERATIONS)
    if splits >= _FINE:
        given = {**_FINER_GRID, **given}
    selection = 2.0 * math.pi if room.accounting == "gdp" else 1.0
    each = room.rho / ((1.0 + selection) * splits)
    given = {"gradient_rho": each, "selection_rho": each, **given}
    if room.accounting == "gdp":
        return Choice(DPAGD(**given), ())
    return DPAGD(**{"total_rho": room.rho, **given})


def dp_blgd(facts: PublicFacts) -> Method:
    """Seven tenths of ρ for gradients; the rest is solved for a number of searches by their own cost."""
    rho = _GRADIENTS * facts.room.rho
    given = {"gradient_clip": CLIP, "loss_clip": LOSS_CLIP, "step_size": _FIRST_STEP, **facts.options}
    given = {"searches": _iterations(facts, *_SEARCHES), "total_gradient_rho": rho, **given}
    given.setdefault("gradient_rho", given["total_gradient_rho"] / given["searches"])
    if "search_budget" not in given:

        def items(noise: float) -> list[Item]:
            return DPBLGD(**{**given, "search_budget": 1.0 / noise}).items(_setting(facts))

        given["search_budget"] = 1.0 / facts.room.least(items, 1.0 / math.sqrt(rho))
    return DPBLGD(**given)


def dp_blsgd(facts: PublicFacts) -> Method:
    """As many gradients as searches, each on a sample of its own, with budgets that stay as they are."""
    return DPBLSGD(**_line_search(facts, DPBLSGD))


def dp_blsgd_ac(facts: PublicFacts) -> Method:
    """The same; clips shrink where budgets grow, which a plan that is fixed in advance does not let them."""
    return DPBLSGDAC(**_line_search(facts, DPBLSGDAC))


def _line_search(facts: PublicFacts, kind: type[DPBLSGD]) -> dict[str, Any]:
    """Gradients of noise multiplier x, and searches whose ε_BT is that of the same Gaussian, 1/x."""
    searches = _iterations(facts, *_SEARCHES)
    given = {
        "rate": max(_RATE, 1.0 / facts.records),
        "gradient_clip": CLIP,
        "loss_clip": LOSS_CLIP,
        "step_size": _FIRST_STEP,
        "search": Backtracking(max_queries=10, shrinking=0.6),
        "grows": "never",
        "searches": searches,
        "smallest_on_failure": True,
        "steps": searches,
        **facts.options,
    }

    def budgets(noise: float) -> dict[str, float]:
        return {"gradient_rho": 0.5 / noise**2, "search_budget": 1.0 / noise}

    def items(noise: float) -> list[Item]:
        return kind(**{**budgets(noise), **given}).items(_setting(facts))

    if {"gradient_rho", "search_budget"} <= set(given):
        return given
    return {**budgets(facts.room.least(items, 2.0)), **given}


def _iterations(facts: PublicFacts, least: int, most: int) -> int:
    """The more exactly gradients are known, the more and the smaller steps are worth taking."""
    strength = facts.records * facts.room.mu / facts.sensitivity(1.0)
    return min(most, max(least, round(_PER_STRENGTH * strength)))


def _setting(facts: PublicFacts) -> Setting:
    return Setting(facts.adjacency, facts.records, facts.objective)
