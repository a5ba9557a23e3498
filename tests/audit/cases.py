"""Neighbouring datasets with a worst-case record for every method, and what tells them apart.

The other records have no gradient, so that the canary's clipped one is all that a release may show. Step
sizes are so small that parameters stay where they are, and the canary's gradient does, too.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dpledger_client import Account, NegativeBinomialTrials, NoisyVotes
from dpledger_client.mechanisms import Gaussian
from dpledger_client.objectives import L2, HuberSVM, LeastSquares, Logistic, Objective
from dpledger_client.objectives.ranking import BayesRank, LinearScorer
from dpledger_client.optimizers import Method, minimize, tune
from dpledger_client.optimizers.methods.a_ddp import ADDP
from dpledger_client.optimizers.methods.adassp import AdaSSP
from dpledger_client.optimizers.methods.approximate_logistic import ApproximateLogistic
from dpledger_client.optimizers.methods.dp_adam import DPAdam
from dpledger_client.optimizers.methods.dp_agd import DPAGD
from dpledger_client.optimizers.methods.dp_blgd import DPBLGD
from dpledger_client.optimizers.methods.dp_blsgd import DPBLSGD, DPBLSGDAC
from dpledger_client.optimizers.methods.dp_fedavg import DPFedAvg, DPFedSGD
from dpledger_client.optimizers.methods.dp_sgd import DPSGD
from dpledger_client.optimizers.methods.mpadmm import ModelPerturbationADMM
from dpledger_client.optimizers.methods.noisy_gd import NoisyGradientDescent
from dpledger_client.optimizers.methods.nsgd import NSGD
from dpledger_client.optimizers.methods.objective_perturbation import ObjectivePerturbation
from dpledger_client.optimizers.methods.output_perturbation import OutputPerturbation
from dpledger_client.optimizers.methods.preconditioned_gd import PreconditionedGradientDescent
from dpledger_client.optimizers.methods.priv_br import PrivBR
from dpledger_client.optimizers.methods.private_majority import PrivateMajority
from dpledger_client.optimizers.methods.privgene import PrivGene
from dpledger_client.optimizers.methods.proximal_sgd import ProximalSGD
from dpledger_client.optimizers.methods.rsgd_ar import RSGDAR
from dpledger_client.optimizers.methods.sgd_advanced import SGDAdvanced
from dpledger_client.optimizers.methods.sgd_moments import SGDMoments
from dpledger_client.optimizers.methods.ssadmm import SubsampledADMM
from dpledger_client.pate import pate
from tests.audit.attack import Output

__all__ = ["CASES", "Case"]

RECORDS = 4
TINY = 1e-9
QUIET = 100.0
"""A noise multiplier at which a release tells next to nothing."""
LARGE = 1e3
Data = tuple[Any, Any]
Train = Callable[[Account, Data], None]
Scorer = Callable[[Sequence[Output]], float]


@dataclass(frozen=True)
class Case:
    """A training on two neighbours.

    Attributes
    ----------
    covers
        The methods, by their names in ``METHODS``, or the integration.
    train
        On an account and one of the neighbours.
    neighbours
        With the canary, and without it or with its opposite.
    score
        Of all that was released: the larger, the likelier the canary was there.
    delta
        Where ε is bounded and charged.
    more_runs
        How many times more trainings it takes: selections tell by rare events, and are fast.
    """

    covers: str
    train: Train
    neighbours: tuple[Data, Data]
    score: Scorer
    adjacency: str = "add-remove"
    delta: float = 0.05
    records: int = RECORDS
    more_runs: int = 1


def rows(*canaries: float) -> Data:
    """Records without a gradient, and canaries of one feature: its sign is the sign of y·x."""
    others = RECORDS - 1
    X = np.concatenate([np.zeros(others), np.full(len(canaries), LARGE)])
    return X[:, None], np.concatenate([np.ones(others), np.sign(canaries)])


ADDED = rows(1.0), rows()
REPLACED = rows(1.0), rows(-1.0)


def along(outputs: Sequence[Output], rate: float = 1.0) -> float:
    """The log-likelihood ratio of the Gaussian releases, whose canary moves the first coordinate down.

    On a sample of this rate the canary is in it or not.
    """
    total = 0.0
    for mechanism, output in outputs:
        if isinstance(mechanism, Gaussian):
            found, move = float(np.ravel(output)[0]), -mechanism.sensitivity
            exponent = (found * move - move**2 / 2.0) / mechanism.noise_std**2
            absent = math.log1p(-rate) if rate < 1.0 else -math.inf
            total += float(np.logaddexp(math.log(rate) + exponent, absent))
    return total


def sampled(rate: float) -> Scorer:
    return lambda outputs: along(outputs, rate)


def first_number(outputs: Sequence[Output]) -> float:
    """The first coordinate of the last release, parameters that the canary moves up."""
    return float(np.ravel(outputs[-1][1])[0])


def statistics(outputs: Sequence[Output]) -> float:
    """The sum of the last release: x² and yx of one feature, both of which the canary moves up."""
    return float(np.sum(outputs[-1][1]))


def training(method: Method, objective: Objective | None = None, **more: Any) -> Train:
    chosen = Logistic() if objective is None else objective

    def train(account: Account, data: Data) -> None:
        minimize(chosen, *data, account=account, method=method, progress=False, **more)

    return train


def added(name: str, method: Method, score: Scorer = along, **more: Any) -> Case:
    return Case(name, training(method), ADDED, score, **more)


SMOOTH = HuberSVM(0.5, L2(1.0))
"""Its slope at zero is as steep as anywhere."""
UNIT_REPLACED = tuple((X / LARGE, y) for X, y in REPLACED)
UNIT_ADDED = tuple((X / LARGE, y) for X, y in ADDED)


def smooth(name: str, method: Method, adjacency: str = "replace-one", more_runs: int = 1) -> Case:
    neighbours: Any = UNIT_REPLACED if adjacency == "replace-one" else UNIT_ADDED
    train = training(method, SMOOTH)
    return Case(name, train, neighbours, first_number, adjacency, more_runs=more_runs)


LINE_SEARCH: dict[str, Any] = {
    "gradient_rho": 0.5,
    "search_budget": 0.002,
    "budget_growth": 1e-3,
    "gradient_clip": 1.0,
    "loss_clip": 1.0,
    "step_size": TINY,
    "steps": 1,
}


def chosen_label(label: float) -> Scorer:
    return lambda outputs: float(outputs[-1][1] == label)


def labels(ones: int, others: int) -> Data:
    y = np.concatenate([np.ones(ones), -np.ones(others)])
    return np.zeros((len(y), 1)), y


MAJORITY = Case(
    "private-majority",
    training(PrivateMajority(2.0)),
    (labels(2, 2), labels(1, 2)),
    chosen_label(1),
    delta=1e-6,
    more_runs=2,
)


def _genes() -> Case:
    """One candidate is above zero, two are below: one record wants those, and a canary the lonely one."""
    method = PrivGene(1, epsilon=2.0, loss_clip=1.0, population=3, parents=2, seed=SEED_OF_GENES)
    first = np.random.default_rng(SEED_OF_GENES).uniform(-1.0, 1.0, (3, 1))[:, 0]
    lonely = int(np.argmax(first))
    assert (np.delete(first, lonely) < 0.0).all()
    assert first[lonely] > 0.0

    def data(canaries: int) -> Data:
        y = np.concatenate([-np.ones(1), np.ones(canaries)])
        return np.full((len(y), 1), LARGE), y

    return Case(
        "privgene", training(method), (data(1), data(0)), chosen_label(lonely), delta=1e-6, more_runs=2
    )


SEED_OF_GENES = next(
    seed for seed in range(100) if np.sum(np.random.default_rng(seed).uniform(-1.0, 1.0, (3, 1)) > 0.0) == 1
)


def _rank() -> Case:
    """One list of two documents, the first of which is relevant, is there or not."""
    documents = [np.array([[1.0], [-1.0]])] * RECORDS
    relevant, none = np.array([1.0, 0.0]), np.array([0.0, 0.0])
    method = PrivBR(documents, 1, noise_multiplier=1.0, rate=1.0, step_size=TINY)
    flat = [none] * (RECORDS - 1)

    def train(account: Account, data: Data) -> None:
        minimize(
            BayesRank(LinearScorer(1), single=True), *data, account=account, method=method, progress=False
        )

    with_list = (documents, [*flat, relevant])
    return Case("priv-br", train, (with_list, (documents[1:], flat)), along)


def _distributed() -> Case:
    method = ADDP(1, clip=1.0, noise_multiplier=1.0, step_size=TINY, batch_size=RECORDS)

    def train(account: Account, data: Data) -> None:
        X, y = data
        minimize(Logistic(), [X], [y], account=[account], method=method, progress=False, records=[RECORDS])

    return Case("a-ddp", train, ADDED, along)


def _federated(name: str, method: DPFedSGD) -> Case:
    """The label of a canary that outweighs the others turns an update of the greatest length around."""

    def train(account: Account, data: Data) -> None:
        X, y = data
        minimize(Logistic(), [X], [y], account=[account], method=method, progress=False, records=[RECORDS])

    return Case(name, train, (REPLACED[1], REPLACED[0]), along, adjacency="replace-one")


def _estimator() -> Case:
    from dpledger_client.estimators import PrivateLogisticRegression

    method = NoisyGradientDescent(2, 1.0, math.sqrt(2.0), TINY)

    def train(account: Account, data: Data) -> None:
        X, y = data
        model = PrivateLogisticRegression(
            account, classes=(-1, 1), method=method, fit_intercept=False, records=RECORDS
        )
        model.fit(X, y)

    return Case("estimators", train, ADDED, along)


def _votes() -> Case:
    """Four teachers; the canary turns the vote of one, and a vote of three to one into two to two."""

    def fit(_X: Any, y: Any) -> Callable[[Any], Any]:
        return lambda queries: np.full(len(queries), y.max())

    def train(account: Account, data: Data) -> None:
        X, y = data
        vote, teachers = NoisyVotes("laplace", scale=0.8), np.minimum(np.arange(len(y)), 3)
        pate(
            fit, X, y, np.zeros((1, 1)), account=account, teachers=4, classes=2, mechanism=vote,
            parts=teachers, progress=False,
        )  # fmt: skip

    def voted(*votes: float) -> Data:
        return np.zeros((len(votes), 1)), np.array(votes)

    neighbours = voted(1.0, 0.0, 0.0, 0.0, 1.0), voted(1.0, 0.0, 0.0, 0.0)
    return Case("pate", train, neighbours, chosen_label(1), delta=1e-6, more_runs=3)


def _tuned() -> Case:
    """The best of several trainings: its score has much noise, its parameters tell."""
    options = [{"steps": 1, "clip": 1.0, "noise_multiplier": 1.0, "step_size": 1.0}]
    law = NegativeBinomialTrials.with_mean(1.05, 0.0)

    def train(account: Account, data: Data) -> None:
        tune(
            Logistic(), *data, account=account, grid=options, trials=law, score_noise=50.0,
            score=lambda _w, X, _y: np.zeros(len(X)),
        )  # fmt: skip

    return Case("tuning", train, ADDED, lambda outputs: float(outputs[-1][1][2]))


HALF = RECORDS // 2
CASES = [
    # First, since it takes longest: its theorem needs much noise, and so many steps.
    added("sgd-moments", SGDMoments(100, 1, 1.0, 4.0, 0.01, TINY), sampled(0.2), records=5, delta=0.2),
    added("noisy-gd", NoisyGradientDescent(2, 1.0, math.sqrt(2.0), TINY)),
    added("dp-sgd", DPSGD(1, HALF, 1.0, 0.7, TINY), sampled(0.5)),
    added("dp-adam", DPAdam(1, HALF, 1.0, 0.7, TINY), sampled(0.5)),
    added("proximal-sgd", ProximalSGD(1, HALF, 1.0, 0.7, TINY), sampled(0.5)),
    added("sgd-advanced", SGDAdvanced(1, HALF, 1.0, 20.0, 0.01, TINY), sampled(0.5)),
    added("ssadmm", SubsampledADMM(1, 1.0, 0.7, 0.5, TINY), sampled(0.5)),
    added("dp-agd", DPAGD(0.5, 1e-3, 1.0, 1.0, budget_growth=1e-3, max_step_size=TINY, steps=1)),
    added("dp-blgd", DPBLGD(**LINE_SEARCH)),
    added("dp-blsgd", DPBLSGD(1.0, searches=1, **LINE_SEARCH)),
    added("dp-blsgd-ac", DPBLSGDAC(1.0, searches=1, **LINE_SEARCH)),
    added("mpadmm", ModelPerturbationADMM(1, 1.0, 0.2, 1.0), first_number),
    # What their other looks show is drowned in noise: the attack reads the statistics, or the gradient.
    added("preconditioned-gd", PreconditionedGradientDescent(1, 1.0, 1.0, QUIET, QUIET, TINY)),
    added("approximate-logistic", ApproximateLogistic(1.0, QUIET), statistics),
    Case("adassp", training(AdaSSP(1.0, QUIET, QUIET), LeastSquares()), ADDED, statistics),
    smooth("nsgd", NSGD(1, 1, 0.1, 1.0, schedule="fixed")),
    smooth("rsgd-ar", RSGDAR(1, 1, 1, 0.1, 1.0)),
    smooth("output-perturbation", OutputPerturbation(1, 1.0, step_size=0.1)),
    smooth("objective-perturbation", ObjectivePerturbation(1.0, extra_strength=100.0), "add-remove", 3),
    MAJORITY,
    _genes(),
    _rank(),
    _distributed(),
    _federated("dp-fedavg", DPFedAvg(1, 1.0, 1.0, TINY, local_steps=2)),
    _federated("dp-fedsgd", DPFedSGD(1, 1.0, 1.0, TINY)),
    _estimator(),
    _votes(),
    _tuned(),
]
