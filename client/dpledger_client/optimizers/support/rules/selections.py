"""Rules of methods that select among candidates, and of rankings."""

import math
from typing import Any

import numpy as np

from dpledger_client.objectives.ranking import BayesRank
from dpledger_client.optimizers.methods.priv_br import PrivBR
from dpledger_client.optimizers.methods.private_majority import PrivateMajority
from dpledger_client.optimizers.methods.privgene import PrivGene
from dpledger_client.optimizers.support.base import Method
from dpledger_client.optimizers.support.batches import sample_at
from dpledger_client.optimizers.support.planning import Item, Setting
from dpledger_client.optimizers.support.rules.adaptive import LOSS_CLIP
from dpledger_client.optimizers.support.rules.facts import PublicFacts
from dpledger_client.optimizers.support.rules.gradient import reach

__all__ = ["priv_br", "private_majority", "privgene"]


def private_majority(facts: PublicFacts) -> Method:
    """All of the request for one choice among the labels."""
    several = getattr(facts.objective, "classes", None)
    labels = tuple(map(float, range(several))) if several else (-1.0, 1.0)
    given = {"labels": labels, **facts.options}
    return PrivateMajority(**{"epsilon": _epsilon(facts, PrivateMajority, given), **given})


def privgene(facts: PublicFacts) -> Method:
    """Few generations of few parents, so that each selection has an ε that tells candidates apart."""
    given = {"generations": 12, "parents": 3, "population": 200, "loss_clip": LOSS_CLIP, **facts.options}
    return PrivGene(**{"epsilon": _epsilon(facts, PrivGene, given), **given})


def priv_br(facts: PublicFacts) -> Method:
    """All lists in each of fifty steps, which move as far as the noise on the bounded gradient allows."""
    if "documents" not in facts.options:
        raise ValueError("documents must be given: priv-br bounds gradients by documents, which are public")
    given = {"steps": 50, "rate": 1.0, **facts.options}
    if "noise_multiplier" not in given:
        sample = sample_at(given["rate"], facts.records, facts.adjacency)
        given["noise_multiplier"] = facts.room.multiplier(given["steps"], sample)
    if "step_size" not in given:
        size = given["rate"] * facts.records * math.sqrt(given["steps"])
        strength = size / (_list_bound(facts, given["documents"]) * given["noise_multiplier"])
        given["step_size"] = reach(strength) * strength / given["steps"]
    return PrivBR(**given)


def _list_bound(facts: PublicFacts, documents: Any) -> float:
    """The largest that a public list's gradient can change at the start."""
    if not isinstance(facts.objective, BayesRank):
        raise TypeError(f"priv-br minimises BayesRank, found {type(facts.objective).__name__}")
    w = np.zeros(facts.dimension) if facts.start is None else facts.start
    change = "removed" if facts.adjacency == "add-remove" else "relabelled"
    lists = [np.asarray(each, dtype=np.float64) for each in documents]
    return max(facts.objective.list_bound(w, each, change) for each in lists) or 1.0


def _epsilon(facts: PublicFacts, kind: Any, given: dict[str, Any]) -> float:
    """Of each selection, for all of them to be within the request."""
    setting = Setting(facts.adjacency, facts.records)

    def items(noise: float) -> list[Item]:
        found: list[Item] = kind(**{**given, "epsilon": 1.0 / noise}).items(setting)
        return found

    return float(given.get("epsilon") or 1.0 / facts.room.least(items, 1.0))
