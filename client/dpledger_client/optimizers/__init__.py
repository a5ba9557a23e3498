"""Optimizers that ask the ledger before each noisy step: one function, one result, many methods."""

import importlib
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, fields, replace
from typing import Any

from dpledger_client.errors import BudgetExhausted
from dpledger_client.ledger import Account, Dataset
from dpledger_client.objectives.base import Objective, parameters
from dpledger_client.optimizers.support.base import Method, NonPrivate
from dpledger_client.optimizers.support.federated import FederatedMethod
from dpledger_client.optimizers.support.participants import Participant, SharedTraining, sources_of
from dpledger_client.optimizers.support.planning import Item
from dpledger_client.optimizers.support.progress import Bar, Progress, chosen_progress
from dpledger_client.optimizers.support.projections import (
    Box,
    L1Ball,
    L2Ball,
    NoProjection,
    Projection,
    Simplex,
)
from dpledger_client.optimizers.support.results import Charge, Iterate, Record, Result
from dpledger_client.optimizers.support.rules import (
    Request,
    TrainingPlan,
    facts_of,
    make_plan,
    make_shared_plan,
    return_unused,
    returning,
)
from dpledger_client.optimizers.training import (
    AuthorizedBatch,
    Batch,
    Callback,
    Source,
    StopTraining,
    Training,
)
from dpledger_client.optimizers.tuning import Tuning, tune

__all__ = [
    "METHODS",
    "AuthorizedBatch",
    "Batch",
    "Box",
    "Callback",
    "Charge",
    "FederatedMethod",
    "Iterate",
    "L1Ball",
    "L2Ball",
    "Method",
    "NoProjection",
    "NonPrivate",
    "Participant",
    "Progress",
    "Projection",
    "Record",
    "Result",
    "SharedTraining",
    "Simplex",
    "Source",
    "StopTraining",
    "Training",
    "TrainingPlan",
    "Tuning",
    "find_method",
    "minimize",
    "plan",
    "tune",
]

METHODS = {
    "dp-adam": "dp_adam.DPAdam",
    "dp-sgd": "dp_sgd.DPSGD",
    "proximal-sgd": "proximal_sgd.ProximalSGD",
    "gd": "first_order.GradientDescent",
    "sgd": "first_order.StochasticGradientDescent",
    "adam": "first_order.Adam",
    "l-bfgs": "non_private.LBFGS",
    "majority": "non_private.Majority",
    "objective-perturbation": "objective_perturbation.ObjectivePerturbation",
    "output-perturbation": "output_perturbation.OutputPerturbation",
    "private-majority": "private_majority.PrivateMajority",
    "privgene": "privgene.PrivGene",
    "sgd-advanced": "sgd_advanced.SGDAdvanced",
    "sgd-moments": "sgd_moments.SGDMoments",
    "noisy-gd": "noisy_gd.NoisyGradientDescent",
    "adassp": "adassp.AdaSSP",
    "approximate-logistic": "approximate_logistic.ApproximateLogistic",
    "preconditioned-gd": "preconditioned_gd.PreconditionedGradientDescent",
    "nsgd": "nsgd.NSGD",
    "rsgd-ar": "rsgd_ar.RSGDAR",
    "dp-agd": "dp_agd.DPAGD",
    "dp-blgd": "dp_blgd.DPBLGD",
    "dp-blsgd": "dp_blsgd.DPBLSGD",
    "dp-blsgd-ac": "dp_blsgd.DPBLSGDAC",
    "ssadmm": "ssadmm.SubsampledADMM",
    "mpadmm": "mpadmm.ModelPerturbationADMM",
    "a-ddp": "a_ddp.ADDP",
    "dp-fedavg": "dp_fedavg.DPFedAvg",
    "dp-fedsgd": "dp_fedavg.DPFedSGD",
    "priv-br": "priv_br.PrivBR",
}
"""Where each method is, by its name."""


def find_method(name: str) -> type[Method] | type[NonPrivate]:
    """The class of a method."""
    if name not in METHODS:
        raise ValueError(f"method must be one of {', '.join(METHODS)}, found {name!r}")
    module, _, attribute = METHODS[name].partition(".")
    found: type[Method] | type[NonPrivate] = getattr(
        importlib.import_module(f"{__name__}.methods.{module}"), attribute
    )
    return found


def minimize(
    objective: Objective,
    X: Any,
    y: Any,
    *,
    account: Account | Sequence[Account] | None,
    method: str | Method | NonPrivate = "auto",
    epsilon: float | None = None,
    delta: float | None = None,
    spend: float | None = None,
    w0: Any = None,
    records: int | Sequence[int] | None = None,
    reserve: int | None = None,
    block: int | None = None,
    callback: Callback | None = None,
    progress: bool | Progress | None = None,
    **options: Any,
) -> Result:
    """Minimise an objective over private data, asking the ledger before each look at them.

    Parameters
    ----------
    objective
        Such as ``Logistic(L2(0.01))``.
    X, y
        A row and a label for each record; for several participants, a list of such arrays each. A record is
        what the dataset's ``unit`` names: who is to be protected with all rows of theirs has one row here.
    account
        What asks: ``ledger.dataset("adult").run("job-1")``; None for a baseline without privacy; one for
        each of several participants.
    method
        A name of ``METHODS``, with its parameters as ``options``, or a method; ``auto`` is by the rule.
    epsilon, delta, spend
        What it is to cost in all: an (ε, δ), or the share ``spend`` of what is left. The rule chooses all
        parameters but those in ``options``; ``plan`` of the result has them.
    w0
        Where to start; must not depend on the data.
    records
        The public number of records, if the dataset was opened without it; of several participants each.
    reserve, block
        Reserve so many equal steps at once; without ``reserve`` in blocks that grow, to ``block`` at most; by
        default till asking takes a hundredth of the time; a killed job pays for the block it was in.
    callback
        Called with an :class:`Iterate` after each iteration; True ends the training.
    progress
        A bar on the terminal: True, False, or None for a bar if somebody can see it.

    Returns
    -------
    Result
        Also when the budget ends: the last good iterate, with ``stop_reason`` ``budget-exhausted``.
    """
    own = _own_target(method, epsilon, delta, options)
    planned: TrainingPlan | None = None
    if not own and (epsilon, delta, spend) != (None, None, None):
        asked = Request(epsilon, delta, spend)
        planned, account = _planned(method, asked, objective, X, y, account, records, w0, options)
        method, options = planned.method, {}
    chosen = _chosen(method, {**options, **own})
    if isinstance(chosen, NonPrivate):
        return _fit(chosen, objective, X, y, account, w0)
    if account is None:
        raise ValueError(f"account must be given: {chosen.name} looks at private data")
    settings = {"w0": w0, "reserve": reserve, "block": block, "callback": callback, "progress": progress}
    with returning(planned, account):
        result = _run(chosen, objective, X, y, account, records, **settings)
    return _with_plan(result, planned, account)


def _with_plan(result: Result, planned: TrainingPlan | None, account: Any) -> Result:
    """The result with its plan; an allocation that nothing was asked of is given back."""
    if not result.charged:
        return_unused(planned, account)
    return replace(result, plan=planned)


def _run(
    method: Method,
    objective: Objective,
    X: Any,
    y: Any,
    account: Account | Sequence[Account],
    records: int | Sequence[int] | None,
    *,
    progress: bool | Progress | None,
    **settings: Any,
) -> Result:
    bar = chosen_progress(progress, method.name)
    named = {"method": method.name, "steps": method.planned_steps, "progress": bar, **settings}
    try:
        return _train(method, _training(method.shared, objective, X, y, account, records, **named))
    finally:
        if isinstance(bar, Bar):
            bar.close()


def plan(
    objective: Objective | None = None,
    *,
    dataset: Dataset | Mapping[str, Any],
    method: str | Method | NonPrivate,
    records: int | None = None,
    dimension: int | None = None,
    w0: Any = None,
    **options: Any,
) -> list[Item]:
    """What a training will ask for, before it touches data: the items of a budget of accounting ``plan``.

    Parameters
    ----------
    objective, method, records, w0, options
        As in :func:`minimize`.
    dataset
        An open dataset, or the public facts of one that is to be opened: ``adjacency``, ``records``, and
        ``ledger`` for methods whose noise the service solves for.
    dimension
        The number of parameters, for methods whose noise depends on it.

    Raises
    ------
    ValueError
        Where what will be asked for is not known in advance; the message says what would make it so.

    Examples
    --------
    >>> steps = {"steps": 400, "batch_size": 100, "clip": 1.0, "noise_multiplier": 1.1, "step_size": 0.5}
    >>> [item] = plan(dataset={"adjacency": "add-remove", "records": 10_000}, method="dp-sgd", **steps)
    >>> item["sample"], item["times"]
    ({'scheme': 'poisson', 'rate': 0.01}, 400)
    """
    chosen = _chosen(method, options)
    if isinstance(chosen, NonPrivate):
        raise ValueError(f"{chosen.name} has no plan: it has no privacy, and asks nobody")
    return chosen.plan(dataset, objective=objective, records=records, dimension=dimension, w0=w0)


def _training(
    shared: bool,
    objective: Objective,
    X: Any,
    y: Any,
    account: Account | Sequence[Account],
    records: int | Sequence[int] | None,
    **settings: Any,
) -> Training:
    """A training of one account, or of several participants."""
    if isinstance(account, Account) and not (shared or isinstance(records, Sequence)):
        return Training(objective, Source.of(X, y, account, records), **settings)
    if isinstance(account, Account) or not shared:
        raise ValueError("account must be a list for a method of several participants, and only for one")
    if settings["reserve"] is not None or settings["block"] is not None:
        raise ValueError(
            "reserve and block must be None: a round of several participants is one request already"
        )
    return SharedTraining(objective, sources_of(X, y, account, records), **settings)


def _train(method: Method, training: Training) -> Result:
    try:
        with training:
            method.train(training)
    except BudgetExhausted as refused:
        training.remaining = refused.remaining or training.remaining
        return replace(training.result("budget-exhausted", str(refused)), refusal=refused)
    except StopTraining as stop:
        return training.result(stop.reason, str(stop))
    return training.result("finished")


def _own_target(
    method: str | Method | NonPrivate,
    epsilon: float | None,
    delta: float | None,
    options: Mapping[str, Any],
) -> dict[str, Any]:
    """An ε and δ that are parameters of the method itself, as some baselines have them.

    Where other parameters are left open, or δ is given to a method that is charged a pure ε, the rule makes
    the method's own ε of them.
    """
    if not isinstance(method, str) or method == "auto" or epsilon is None:
        return {}
    found = {field.name: field for field in fields(find_method(method))}  # type: ignore[arg-type]
    given = {"epsilon": epsilon} if delta is None else {"epsilon": epsilon, "delta": delta}
    if not set(given) <= set(found):
        return {}
    required = {
        name for name, field in found.items() if field.default is MISSING and field.default_factory is MISSING
    }
    return given if required <= {*given, *options} else {}


def _planned(
    method: str | Method | NonPrivate,
    request: Request,
    objective: Objective,
    X: Any,
    y: Any,
    account: Account | Sequence[Account] | None,
    records: int | Sequence[int] | None,
    w0: Any,
    options: Mapping[str, Any],
) -> tuple[TrainingPlan, Account | Sequence[Account]]:
    """What the rule makes of a request, by public numbers alone."""
    if not isinstance(method, str):
        raise ValueError("epsilon, delta and spend go with a method's name: a method has its noise already")
    if account is None:
        raise ValueError("account must be given: epsilon, delta and spend are what it is asked for")
    if not isinstance(account, Account):
        return make_shared_plan(sources_of(X, y, account, records), request, method, options), account
    if isinstance(records, Sequence):
        raise ValueError("records must be one number for one account")
    source = Source.of(X, y, account, records)
    start = None if w0 is None else parameters(w0)
    shape: tuple[int, ...] = tuple(getattr(source.X, "shape", ()))
    facts = facts_of(
        account,
        request,
        records=source.records,
        objective=objective,
        dimension=objective.dimension(source.X, source.y) if start is None else len(start),
        features=int(shape[1]) if len(shape) == 2 else None,
        start=start,
        options=options,
    )
    return make_plan(facts, method)


def _chosen(method: str | Method | NonPrivate, options: dict[str, Any]) -> Method | NonPrivate:
    if method == "auto":
        raise ValueError("method must be named with its parameters, or epsilon and delta, or spend be given")
    if isinstance(method, str):
        return find_method(method)(**options)
    if options:
        raise TypeError(f"options go with a method's name, found a method and {', '.join(options)}")
    return method


def _fit(
    method: NonPrivate,
    objective: Objective,
    X: Any,
    y: Any,
    account: Account | Sequence[Account] | None,
    w0: Any,
) -> Result:
    if account is not None:
        raise ValueError(f"account must be None: {method.name} has no privacy, and asks nobody")
    start = objective.initial(X, y) if w0 is None else w0
    w, iterations = method.fit(objective, X, y, parameters(start))
    return Result(w, method.name, "finished", "Without any privacy.", iterations, (), {})
