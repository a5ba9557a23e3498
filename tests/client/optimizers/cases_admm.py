"""ADMM with noise on a sample's gradient, and with noise on the model."""

import math

import numpy as np

from dpledger_client import Poisson, WithoutReplacement
from dpledger_client._arrays import Floats
from dpledger_client.objectives import L1, Logistic
from dpledger_client.optimizers import Result
from dpledger_client.optimizers.methods.mpadmm import ModelPerturbationADMM
from dpledger_client.optimizers.methods.ssadmm import SubsampledADMM
from dpledger_client.samples import FreshSample, Full
from tests.client.optimizers.contract import RECORDS, Case

STEPS, ETA, LAMBDA, RHO, CLIP, SIGMA = 20, 2.0, 0.02, 0.25, 1.5, 4.0
RATE = 0.25
NOISE_STD = 0.07


def falling(iteration: int) -> float:
    return 3.0 / math.sqrt(iteration)


def _admm(X: Floats, y: Floats, sample: FreshSample, falls: bool = False) -> tuple[Floats, Floats]:
    """Each step as Chen 2020 writes it: the minimiser of (4.7) over x, then over z, then the dual step."""
    x = z = dual = np.zeros(X.shape[1])
    for iteration in range(1, STEPS + 1):
        eta = falling(iteration) if falls else ETA
        rows = sample.draw(len(X))
        total = sum(-y[i] * X[i] / (1.0 + np.exp(y[i] * X[i] @ x)) for i in rows)
        gradient = total / sample.expected_size(len(X))
        x = (-gradient - dual + RHO * z + x / eta) / (RHO + 1.0 / eta)
        wanted = x + dual / RHO
        z = np.where(np.abs(wanted) > LAMBDA / RHO, wanted - np.sign(wanted) * LAMBDA / RHO, 0.0)
        dual = dual + RHO * (x - z)
    return x, z


def _charged(result: Result) -> float:
    """Chen 2020, (4.13) with its η, in zCDP."""
    moves = [
        CLIP * eta / (RECORDS * (1.0 + eta * RHO))
        for eta in (record.details["step_size"] for record in result.history)
    ]
    return float(sum(move**2 for move in moves) / (2.0 * NOISE_STD**2))


def _subsampled(**more: str) -> SubsampledADMM:
    return SubsampledADMM(
        STEPS, clip=CLIP, noise_multiplier=SIGMA, rate=RATE, step_size=ETA, penalty=RHO, **more
    )


CASES = [
    Case(
        name="ssadmm",
        method=_subsampled(),
        objective=Logistic(L1(LAMBDA)),
        textbook=lambda X, y: _admm(X, y, Poisson(RATE))[0],
        repeats=4,
    ),
    Case(
        name="ssadmm sparse, replace-one",
        method=_subsampled(output="z"),
        objective=Logistic(L1(LAMBDA)),
        adjacency="replace-one",
        textbook=lambda X, y: _admm(X, y, WithoutReplacement(RATE))[1],
        repeats=4,
    ),
    Case(
        name="mpadmm",
        method=ModelPerturbationADMM(STEPS, CLIP, NOISE_STD, ETA, RHO),
        objective=Logistic(L1(LAMBDA)),
        textbook=lambda X, y: _admm(X, y, Full())[0],
        rho=_charged,
        repeats=4,
    ),
    Case(
        name="mpadmm falling steps, sparse, replace-one",
        method=ModelPerturbationADMM(STEPS, CLIP, NOISE_STD, falling, RHO, output="z"),
        objective=Logistic(L1(LAMBDA)),
        adjacency="replace-one",
        textbook=lambda X, y: _admm(X, y, Full(), falls=True)[1],
        rho=lambda result: 4.0 * _charged(result),
        repeats=4,
    ),
]
