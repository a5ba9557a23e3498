"""Private tuning: the best of a random number of trials, charged as one mechanism before the first.

The trials' noise, their number and which candidates they try are drawn under one recorded yes. Only the best
trial's parameters, its noisy score and which candidate it was come out; how many trials there were, and
everything about the others, stays inside. How long a tuning takes does tell of their number: whoever can
watch the clock must not be shown the result either.
"""

import itertools
import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from dpledger_client import optimizers
from dpledger_client._arrays import Floats, as_numbers
from dpledger_client._checks import check_open_unit, check_positive
from dpledger_client._models import Granted
from dpledger_client.errors import NotTrained
from dpledger_client.ledger import Account, Dataset
from dpledger_client.mechanisms import Gaussian
from dpledger_client.mechanisms.tuned import NOTHING_RAN, Tuned
from dpledger_client.objectives import MLP, HingeSVM, HuberSVM, LeastSquares, Logistic, Softmax
from dpledger_client.objectives.base import Objective, limit_under, parameters
from dpledger_client.optimizers.support.base import Method, NonPrivate
from dpledger_client.optimizers.support.planning import look_up
from dpledger_client.optimizers.support.results import Charge
from dpledger_client.optimizers.support.rules import PublicFacts, allocation_name
from dpledger_client.optimizers.support.rules.gradient import noisy_gd
from dpledger_client.optimizers.support.trial_accounts import QuietLedger, TrialAccount, trial_step
from dpledger_client.optimizers.training import Source
from dpledger_client.permits import Authorization
from dpledger_client.releases import Release
from dpledger_client.samples import Full
from dpledger_client.trials import NegativeBinomialTrials, Trials

__all__ = ["Candidate", "Score", "Target", "Tuning", "run_trials", "tune"]

Score: TypeAlias = Callable[[Floats, Any, Any], Floats]
"""Of parameters, rows and labels: a number in [0, 1] for each record, by itself, the larger the better."""
DEFAULT_MEAN_TRIALS = 10.0
SCORE_SHARE = 0.1
"""Of the squared μ of a trial, what its score takes where the rule chooses."""
_CLOSE = 1.0 + 1e-4
_LEAST_SHARE = 0.01
_RULED: dict[str, Callable[[PublicFacts], Method]] = {"noisy-gd": noisy_gd}
"""Methods whose rule needs nothing but the noise of equal looks at all records, which a trial can say."""
_ROOM = 1.0 + 1e-9


@dataclass(frozen=True)
class Candidate:
    """What one trial may try: public parameters, and what they make."""

    options: Mapping[str, Any]
    method: Method
    objective: Objective


@dataclass(frozen=True)
class Target:
    """The (ε, δ) that a tuning is to cost in all."""

    epsilon: float
    delta: float

    def __post_init__(self) -> None:
        check_positive("epsilon", self.epsilon)
        check_open_unit("delta", self.delta)


@dataclass(frozen=True)
class Tuning:
    """What a tuning releases, and the one charge for it.

    Attributes
    ----------
    w, score, options
        Of the best trial: its parameters, its noisy score per record, and what was tried. None, NaN and
        empty where a Poisson number of trials was 0.
    candidate
        The place of ``options`` in the grid; None where nothing was run.
    method
        Of the best trial, with all its parameters.
    charge
        Recorded before the first trial.
    remaining
        What the ledger said is left after it.
    """

    w: Floats | None
    score: float
    options: Mapping[str, Any]
    candidate: int | None
    method: Method | None
    charge: Charge
    remaining: Mapping[str, Any]


def tune(
    objective: Objective,
    X: Any,
    y: Any,
    *,
    account: Account,
    grid: Mapping[str, Sequence[Any]] | Sequence[Mapping[str, Any]],
    method: str = "noisy-gd",
    trials: Trials | None = None,
    epsilon: float | None = None,
    delta: float | None = None,
    score: Score | None = None,
    score_noise: float | None = None,
    w0: Any = None,
    records: int | None = None,
) -> Tuning:
    """Train with the best of several options, privately: all trials together cost what is recorded first.

    Parameters
    ----------
    objective, X, y, account, method, w0, records
        As in :func:`~dpledger_client.optimizers.minimize`.
    grid
        Options to try: a list of them, or of each option the values whose product is meant. Public, and not
        chosen by looking at the data.
    trials
        The law of the number of trials; ten on average, logarithmic, if None.
    epsilon, delta
        What the whole tuning is to cost. The rule then chooses what the options leave open, the noise so that
        the best of so many trials is within it. Without them the options must be all of the method's.
    score
        Of parameters, rows and labels a number in [0, 1] for each record, which must not depend on other
        records; if None the share of correct predictions, or for least squares one less the squared error
        over its bound.
    score_noise
        The standard deviation of the noise on the sum of the scores, in records. With ``epsilon`` and
        ``delta`` a tenth of a trial's budget if None.

    Raises
    ------
    BudgetExhausted, Unproven
        Before anything ran. Budgets of accounting ``zcdp`` and ``gdp`` have no proof for a tuning, a
        ``plan`` neither; ``rdp`` has, and a ``shared`` budget gives it an allocation.
    NotTrained
        Where every trial failed.

    Examples
    --------
    A grid of clips, as one release of (1, 10⁻⁶)::

        grid = {"clip": [0.3, 1.0, 3.0]}
        best = tune(Logistic(), X, y, account=account, epsilon=1.0, delta=1e-6, grid=grid)
        best.options, best.score, best.w
    """
    if (epsilon is None) != (delta is None):
        raise ValueError("epsilon and delta must be given together")
    target = None if epsilon is None or delta is None else Target(epsilon, delta)
    law = NegativeBinomialTrials.with_mean(DEFAULT_MEAN_TRIALS) if trials is None else trials
    source = Source.of(X, y, account, records)
    listed = expand(grid)

    def candidates(mu: float | None) -> list[Candidate]:
        made = [candidate_method(method, each, source, objective, mu) for each in listed]
        return [Candidate(each, chosen, objective) for each, chosen in zip(listed, made, strict=True)]

    return run_trials(candidates, source, law=law, target=target, score=score, score_noise=score_noise, w0=w0)


def expand(grid: Mapping[str, Sequence[Any]] | Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The options of each candidate, at least one."""
    if isinstance(grid, Mapping):
        products = itertools.product(*grid.values())
        listed = [dict(zip(grid, values, strict=True)) for values in products]
    else:
        listed = [dict(options) for options in grid]
    if not listed:
        raise ValueError("grid must hold at least one candidate")
    return listed


class _Looks(NamedTuple):
    """What a trial has room for, to its rule: Gaussian looks at all records of so much μ in all."""

    mu: float

    def multiplier(self, steps: int) -> float:
        """The noise multiplier of each of so many equal looks."""
        return math.sqrt(steps) / self.mu


def candidate_method(
    name: str, options: Mapping[str, Any], source: Source, objective: Objective, mu: float | None
) -> Method:
    """A method with all its parameters: those given, or with ``mu`` of all its looks the rule's."""
    if mu is None:
        return check_method(optimizers.find_method(name)(**options))
    if name not in _RULED:
        raise ValueError(
            f"{name} has no rule for tunings: give all its parameters without epsilon and delta, or choose "
            f"one of {', '.join(_RULED)}"
        )
    if "noise_multiplier" in options:
        raise ValueError("noise_multiplier goes without epsilon and delta, which decide it")
    shape: tuple[int, ...] = tuple(getattr(source.X, "shape", ()))
    room: Any = _Looks(mu)
    facts = PublicFacts(
        adjacency=source.adjacency,
        records=source.records,
        objective=objective,
        dimension=objective.dimension(source.X, source.y),
        features=shape[1] if len(shape) == 2 else None,
        row_norm=None,
        start=None,
        room=room,
        options=options,
    )
    return _RULED[name](facts)


def check_method(method: Method | NonPrivate) -> Method:
    """Refuse what a trial cannot run."""
    if isinstance(method, NonPrivate) or method.shared:
        raise ValueError(f"{method.name} cannot be tuned: a trial is a private training of one account")
    return method


def run_trials(
    candidates: Callable[[float | None], Sequence[Candidate]],
    source: Source,
    *,
    law: Trials,
    target: Target | None,
    score: Score | None,
    score_noise: float | None,
    w0: Any = None,
) -> Tuning:
    """Ask for a tuning, run it, and release the best.

    ``candidates`` makes them: as they are for None, or with noise for looks of so much μ in all.
    """
    planner = _Planner(candidates, source, law, score_noise, w0)
    account = source.account
    if target is None:
        if score_noise is None:
            raise ValueError("score_noise must be given, or epsilon and delta, by which the rule chooses it")
        plan = planner.plan(None)
    else:
        plan, account = _within(planner, target)
    planner.ledger.seal()
    release = Release(plan.mechanism, purpose="tuning")
    permit = account.authorize(release, sample=Full())
    permit.watch(source.X, source.y)
    runs = _Runs(plan, source, planner.dataset, permit.granted, score, w0)
    output = permit.release(lambda: runs.trial)
    return _result(output, runs, permit, release)


@dataclass(frozen=True)
class _Plan:
    """Candidates, and the mechanism that the best of them is."""

    candidates: Sequence[Candidate]
    mechanism: Tuned
    score: Release


class _Planner:
    """Describes a tuning from public facts alone."""

    def __init__(
        self,
        candidates: Callable[[float | None], Sequence[Candidate]],
        source: Source,
        law: Trials,
        score_noise: float | None,
        w0: Any,
    ) -> None:
        self.source = source
        self.ledger = QuietLedger(source.account.dataset.ledger)
        self.dataset = Dataset(self.ledger, source.account.dataset.name)
        self._candidates = candidates
        self._law = law
        self._score_noise = score_noise
        self._w0 = w0

    def plan(self, mu: float | None) -> _Plan:
        """The tuning as the candidates are, or with trials of μ each, the score included."""
        noise = self._score_noise
        if mu is not None and noise is None:
            noise = 1.0 / (mu * math.sqrt(SCORE_SHARE))
        assert noise is not None
        left = None if mu is None else mu * mu - 1.0 / noise**2
        if left is not None and left <= 0.0:
            raise ValueError(f"score_noise of {noise!r} alone is more than a trial may cost")
        made = self._candidates(None if left is None else math.sqrt(left))
        scoring = Release(Gaussian(1.0, check_positive("score_noise", noise)), purpose="score")
        steps = tuple((*self._steps(each), trial_step(scoring)) for each in made)
        return _Plan(made, Tuned(self._law, steps), scoring)

    def _steps(self, candidate: Candidate) -> list[dict[str, Any]]:
        source = self.source
        objective, method = candidate.objective, candidate.method
        start = parameters(objective.initial(source.X, source.y) if self._w0 is None else self._w0)
        items = method.plan(self.dataset, objective=objective, records=source.records, w0=start)
        if any("releases" not in item for item in items):
            raise ValueError(
                f"{method.name} chooses its steps on the way, and the trials of a tuning are steps that are "
                "known in advance: tune a method with a fixed plan"
            )
        return [{name: item[name] for name in ("sample", "releases", "times")} for item in items]


def _within(planner: _Planner, target: Target) -> tuple[_Plan, Account]:
    """The tuning with the least noise, to 0.01 %, that is within the target and the budget; an allocation."""
    account, ledger = planner.source.account, planner.ledger
    shared = planner.dataset.facts()["accounting"] == "shared" and account.allocation is None
    goal = {"notion": "approximate", "epsilon": target.epsilon, "delta": target.delta}
    answer = ledger.ask("conversions", {"goal": goal, "to": {"notion": "gdp"}})
    high = float(answer["guarantee"]["mu"])  # one trial and nothing else
    low = high * _LEAST_SHARE
    if not _fits(planner, low, target, shared):
        raise ValueError(
            f"no tuning of such trials is within {target} and what is left of {planner.dataset.name}: ask "
            "for more, or for fewer trials"
        )
    while high / low > _CLOSE:
        middle = math.sqrt(low * high)
        low, high = (middle, high) if _fits(planner, middle, target, shared) else (low, middle)
    plan = planner.plan(low)
    if not shared:
        return plan, account
    order = _total(planner, plan, target)["order"]
    name = allocation_name(account, "-tuning")
    inside = {"accounting": "rdp-order", "order": order}
    return plan, account.allocate(name, epsilon=target.epsilon, delta=target.delta, budget=inside)


def _fits(planner: _Planner, mu: float, target: Target, shared: bool) -> bool:
    plan = planner.plan(mu)
    if _total(planner, plan, target)["epsilon"] * _ROOM > target.epsilon:
        return False
    if shared:
        return True
    account = planner.source.account
    where = {"partition": account.partition, "allocation": account.allocation}
    answer = look_up(
        account,
        ["forecast", account.dataset.name, plan.mechanism.fields(), where],
        lambda: account.dataset.forecast(plan.mechanism, Full(), **where),
    )
    return float(answer["fits"]) >= 1.0


def _total(planner: _Planner, plan: _Plan, target: Target) -> dict[str, Any]:
    """What the tuning costs by its curve, at the target's δ."""
    part = trial_step(plan.mechanism)
    body = {"plan": [part], "adjacency": planner.source.adjacency, "delta": target.delta, "method": "rdp"}
    return planner.ledger.ask("compositions", body)


class _Runs:
    """Runs trials under the yes to all of them."""

    def __init__(
        self,
        plan: _Plan,
        source: Source,
        dataset: Dataset,
        granted: Granted,
        score: Score | None,
        w0: Any,
    ) -> None:
        self.plan = plan
        self.failure: Exception | None = None
        self._source = source
        self._dataset = dataset
        self._granted = granted
        self._score = score
        self._w0 = w0

    def trial(self, number: int) -> tuple[float, Floats]:
        """The noisy score and the parameters of one trial.

        What fails has the least score: an error that came out would tell of a trial that was not the best.
        """
        with warnings.catch_warnings(action="ignore"), np.errstate(all="ignore"):  # so would a warning
            try:
                return self._run(number)
            except Exception as error:
                self.failure = error
                return -math.inf, np.empty(0)

    def _run(self, number: int) -> tuple[float, Floats]:
        candidate, source = self.plan.candidates[number], self._source
        steps = self.plan.mechanism.candidates[number]
        account = TrialAccount.of(source.account, self._dataset, self._granted, steps)
        result = optimizers.minimize(
            candidate.objective,
            source.X,
            source.y,
            account=account,
            method=candidate.method,
            w0=self._w0,
            records=source.records,
            progress=False,
        )
        if result.iterations == 0 and result.refusal is not None:
            raise result.refusal
        score = score_of(candidate.objective) if self._score is None else self._score
        noisy = account.release(
            self.plan.score,
            lambda: score_sum(score(result.w, source.X, source.y), len(source.X)),
            sample=Full(),
        )
        return float(noisy) / source.records, result.w


def score_sum(scores: Any, records: int) -> float:
    """The sum of the records' scores, each cut to [0, 1]; what is no number counts as 0."""
    array = np.asarray(scores, dtype=np.float64)
    if array.shape != (records,):  # without the shape, which holds the number of records
        raise ValueError("score must give a vector of one number per record")
    return float(np.sum(np.where(array > 0.0, np.minimum(array, limit_under(1.0)), 0.0)))


def score_of(objective: Objective) -> Score:
    """The score of an objective: correct predictions, or for least squares the error that is left out.

    Labels are read one by one: of a list with one string numpy makes strings of all, and of one with None it
    makes what has no negative, so that one record would change the scores of all.
    """
    if isinstance(objective, LeastSquares):
        most = 2.0 * objective.target_bound**2
        return lambda w, X, y: 1.0 - objective.losses(w, X, y) / most
    if isinstance(objective, (Logistic, HingeSVM, HuberSVM)):
        return lambda w, X, y: _better(objective.losses(w, X, y), objective.losses(w, X, -as_numbers(y)))
    if isinstance(objective, (Softmax, MLP)):
        return lambda w, X, y: _predicted(objective, w, X) == as_numbers(y)
    raise ValueError(f"score must be given: {type(objective).__name__} has none of its own")


def _better(losses: Floats, others: Floats) -> Any:
    return losses < others


def _predicted(objective: Softmax | MLP, w: Floats, X: Any) -> Any:
    """The class of the least loss of each row."""
    codes = range(objective.classes)
    return np.argmin([objective.losses(w, X, np.full(len(X), float(code))) for code in codes], axis=0)


def _result(output: Floats, runs: _Runs, permit: Authorization, release: Release) -> Tuning:
    charge = Charge.of(permit.granted, (release,), Full(), None)
    remaining = permit.granted.remaining
    values = np.atleast_1d(output)
    if values[0] == NOTHING_RAN:
        return Tuning(None, math.nan, {}, None, None, charge, remaining)
    number, score = int(values[0]), float(values[1])
    if score == -math.inf:
        message = f"no trial was completed, and there is nothing to predict with: {runs.failure}"
        raise NotTrained(message, None, (charge,)) from runs.failure
    best = runs.plan.candidates[number]
    return Tuning(values[2:].copy(), score, best.options, number, best.method, charge, remaining)
