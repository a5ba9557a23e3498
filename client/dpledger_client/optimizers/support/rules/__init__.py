"""The public rule: from an (ε, δ), or a share of what is left, to a method's parameters and an account.

A rule is one function of :class:`PublicFacts` and one line in ``RULES``; ``auto`` chooses among them. Nothing
here reads a value of the data: ``docs/rule.md`` has the rules and where their constants come from.
"""

import contextlib
import re
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any, NamedTuple

from dpledger_client._html import amounts_text, percent_left, table
from dpledger_client.errors import DPLedgerError
from dpledger_client.ledger import Account
from dpledger_client.optimizers.support.base import Method
from dpledger_client.optimizers.support.planning import Item, Setting, start_of
from dpledger_client.optimizers.support.rules import (
    adaptive,
    distributed,
    gradient,
    moments,
    outputs,
    preconditioned,
    selections,
    stochastic,
)
from dpledger_client.optimizers.support.rules.auto import choose
from dpledger_client.optimizers.support.rules.facts import Choice, PublicFacts, Request
from dpledger_client.optimizers.support.rules.room import Room
from dpledger_client.optimizers.training import Source

__all__ = [
    "RULES",
    "Choice",
    "PublicFacts",
    "Request",
    "Rule",
    "TrainingPlan",
    "allocation_name",
    "facts_of",
    "find_rule",
    "make_plan",
    "make_shared_plan",
    "return_unused",
    "returning",
]


class Rule(NamedTuple):
    """A method's rule, and the kind of budget that an allocation of its own has inside.

    ``plan`` composes steps that are fixed in advance exactly; ``zcdp`` adds up what is chosen on the way;
    ``rdp-order`` adds up curves at the order that is best for what is planned. ``scales`` says that the
    method scales rows by itself, so that the intercept's column stays 1.
    """

    choose: Callable[[PublicFacts], Method | Choice]
    inside: str = "plan"
    scales: bool = False


RULES = {
    "noisy-gd": Rule(gradient.noisy_gd),
    "adassp": Rule(moments.adassp),
    "approximate-logistic": Rule(moments.approximate_logistic),
    "preconditioned-gd": Rule(preconditioned.preconditioned_gd, scales=True),
    "dp-sgd": Rule(stochastic.dp_sgd),
    "dp-adam": Rule(stochastic.dp_adam),
    "sgd-advanced": Rule(stochastic.sgd_advanced),
    "sgd-moments": Rule(stochastic.sgd_moments),
    "ssadmm": Rule(stochastic.ssadmm),
    "dp-agd": Rule(adaptive.dp_agd, "zcdp"),
    "dp-blgd": Rule(adaptive.dp_blgd, "zcdp"),
    "dp-blsgd": Rule(adaptive.dp_blsgd, "rdp-order"),
    "dp-blsgd-ac": Rule(adaptive.dp_blsgd_ac, "rdp-order"),
    "mpadmm": Rule(outputs.mpadmm),
    "nsgd": Rule(outputs.nsgd),
    "rsgd-ar": Rule(outputs.rsgd_ar),
    "output-perturbation": Rule(outputs.output_perturbation),
    "objective-perturbation": Rule(outputs.objective_perturbation, "rdp-order"),
    "private-majority": Rule(selections.private_majority),
    "privgene": Rule(selections.privgene),
    "priv-br": Rule(selections.priv_br),
}
"""The rule of each method that has one."""


@dataclass(frozen=True)
class TrainingPlan:
    """What a training will do and ask for, made by the rule before any data are read.

    Attributes
    ----------
    method
        With all its parameters.
    request
        What it is to spend.
    items
        What it will ask for, as the items of a plan.
    allocation
        The name of the allocation that was made for it, under a ``shared`` budget.
    """

    method: Method
    request: Request
    items: tuple[Item, ...]
    allocation: str | None = None

    def _repr_html_(self) -> str:
        """Parameters and items, as a table for notebooks."""
        given = {"epsilon": self.request.epsilon, "delta": self.request.delta}
        share = self.request.spend
        asked = amounts_text(given, up=False) if share is None else f"{percent_left(share)} of what is left"
        return table(
            f"Plan of {self.method.name}",
            [
                ("spends", asked),
                ("allocation", self.allocation),
                *((each, getattr(self.method, each)) for each in _parameters(self.method)),
                *((f"item {each['name']}", _item_text(each)) for each in self.items),
            ],
        )


def _parameters(method: Any) -> list[str]:
    """The names of a method's parameters."""
    return [each.name for each in fields(method)] if is_dataclass(method) else []


def _item_text(item: Item) -> str:
    """What an item takes, and how often or how much of it."""
    releases = "; ".join(str(each["mechanism"]) for each in item.get("releases", ()))
    if not releases:
        ((kind, cap),) = [pair for pair in item.items() if pair[0] != "name"]
        return f"any {kind} steps, {amounts_text(cap, up=False)}"
    return f"{item['times']} × {releases}, {item['sample']['scheme']}"


def facts_of(
    account: Account,
    request: Request,
    *,
    records: int,
    objective: Any,
    dimension: int,
    features: int | None = None,
    row_norm: float | None = None,
    start: Any = None,
    beside: Sequence[Item] = (),
    options: Any = None,
) -> PublicFacts:
    """The public facts of a training with one account."""
    return PublicFacts(
        adjacency=str(account.dataset.facts()["adjacency"]),
        records=records,
        objective=objective,
        dimension=dimension,
        features=features,
        row_norm=row_norm,
        start=start,
        room=Room.of(account, request, beside=tuple(beside)),
        options=dict(options or {}),
    )


def find_rule(facts: PublicFacts, method: str) -> Rule:
    """The rule of a method, or of the one that ``auto`` is."""
    name = choose(facts) if method == "auto" else method
    if name not in RULES:
        raise ValueError(
            f"{name} has no rule: give its parameters without epsilon, delta and spend, or choose one of "
            f"{', '.join(RULES)}"
        )
    return RULES[name]


def make_plan(facts: PublicFacts, method: str) -> tuple[TrainingPlan, Account]:
    """Choose the parameters, and allocate where the budget is shared; gives the plan, and what to train with.

    ``facts.options`` are parameters of the method that are to be other than the rule's.
    """
    rule = find_rule(facts, method)
    room = facts.room.inside(rule.inside)
    chosen = rule.choose(replace(facts, room=room))
    made = chosen if isinstance(chosen, Choice) else Choice(chosen, _items(chosen, facts))
    planned = TrainingPlan(made.method, room.request, (*room.beside, *made.items))
    if not room.allocates:
        return planned, room.account
    named = allocation_name(room.account)
    return replace(planned, allocation=named), room.allocate(named, made.items)


@contextlib.contextmanager
def returning(planned: TrainingPlan | None, account: Any) -> Iterator[None]:
    """Give an allocation back if an error ends the training before anything was released from it."""
    try:
        yield
    except BaseException:
        return_unused(planned, account)
        raise


def return_unused(planned: TrainingPlan | None, account: Any) -> None:
    """Give an allocation back from which nothing was released.

    The service knows whether something was, and refuses the return then. A job with a journal keeps its
    allocation: it may be restarted, and finds it under its name.
    """
    if planned is not None and planned.allocation is not None and account.journal is None:
        with contextlib.suppress(DPLedgerError):
            account.dataset.return_allocation(planned.allocation, "the training ended before a release")


def make_shared_plan(
    sources: Sequence[Source], request: Request, method: str, options: Mapping[str, Any]
) -> TrainingPlan:
    """The same for several participants, each of whom spends the request on a budget of its own.

    What each asks for depends on its noise, so that the plan has no items.
    """
    if method not in ("auto", "a-ddp"):
        raise ValueError(f"{method} trains one account: several need a-ddp")
    return TrainingPlan(distributed.a_ddp(sources, request, options), request, ())


def _items(method: Method, facts: PublicFacts) -> tuple[Item, ...]:
    """What the method asks for, said by the code that asks."""
    dataset = facts.room.account.dataset
    start = start_of(facts.dimension, facts.start)
    setting = Setting(facts.adjacency, facts.records, facts.objective, start, dataset.ledger)
    return tuple(method.items(setting))


def allocation_name(account: Account, suffix: str = "") -> str:
    """The run's own name for a job with a journal, which repeats its requests; a fresh one for others."""
    kept = re.sub(r"[^A-Za-z0-9._-]", "-", account.name).lstrip("._-")[:80] or "run"
    return f"{kept}{suffix}" if account.journal is not None else f"{kept}{suffix}-{secrets.token_hex(4)}"
