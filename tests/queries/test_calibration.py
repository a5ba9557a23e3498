"""A calibration fills in the noise of every mechanism whose description may leave it open."""

import json
from typing import Any

import numpy as np
import pytest

from dpledger.accounting.errors import InvalidInput
from dpledger.accounting.mechanisms import MECHANISMS
from dpledger.accounting.sampling import Adjacency
from dpledger.accounting.stepcost import cost_of
from dpledger.queries.evaluation import evaluate
from dpledger.queries.requests import CalibrationQuery, CostQuery, Fields

OPEN: dict[str, Fields] = {
    "gaussian": {"sensitivity": 1.0},
    "discrete-gaussian": {"sensitivity": 1.0},
    "laplace": {"sensitivity": 1.0},
    "noisy-max": {"noise": "gumbel", "sensitivity": 1.0},
    "output-mixture": {"sensitivities": [1.0, 2.0], "probabilities": [0.5, 0.5]},
}
RHO = 0.25


def calibrated(release: Fields) -> Any:
    query = CalibrationQuery(
        [release], Adjacency.REPLACE_ONE, solve_for="noise_std", target={"rho": RHO}, steps=4
    )
    return json.loads(evaluate(query).text)


def test_every_mechanism_with_a_noise_field_is_tried() -> None:
    assert set(OPEN) == {kind for kind, each in MECHANISMS.items() if each.noise_field is not None}


@pytest.mark.parametrize("kind", OPEN)
def test_the_noise_found_meets_the_target_and_little_less_would_not(kind: str) -> None:
    release, field = {"mechanism": kind, **OPEN[kind]}, MECHANISMS[kind].noise_field
    assert field is not None
    noise = calibrated(release)["value"]

    def spent(size: float) -> float:
        step = CostQuery([{**release, field.name: size}], Adjacency.REPLACE_ONE).step()
        rho = cost_of(step, np.array([2.0])).repeated(4).rho
        assert rho is not None
        return rho

    assert spent(noise) <= RHO < spent(0.999 * noise)


@pytest.mark.parametrize(
    "release",
    [
        {"mechanism": "noisy-votes", "noise": "laplace", "scale": 1.0},
        {"mechanism": "pure", "epsilon": 1.0},
    ],
)
def test_a_mechanism_without_one_leaves_nothing_to_solve_for(release: Fields) -> None:
    with pytest.raises(InvalidInput, match="one without its noise_std or scale"):
        calibrated(release)
