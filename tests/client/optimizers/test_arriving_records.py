"""Records that arrive while a permit is in use are refused where the client sees them."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from dpledger_client import DataChanged, Dataset, Full, Gaussian, Poisson, Release
from dpledger_client.objectives import Logistic
from dpledger_client.optimizers import Iterate, Source, minimize
from dpledger_client.optimizers.methods.dp_blgd import DPBLGD
from dpledger_client.optimizers.methods.noisy_gd import NoisyGradientDescent
from dpledger_client.optimizers.methods.privgene import PrivGene
from dpledger_client.optimizers.training import Asking, AuthorizedBatch, Batch
from dpledger_client.samples import FreshSample
from tests.client.optimizers.contract import classification, curve_budget

Open = Callable[..., Dataset]
TWICE = Release(Gaussian(1.0, 3.0), count=2)


def _look(open_dataset: Open, X: Any, y: Any, sample: FreshSample) -> AuthorizedBatch:
    dataset = open_dataset(budget=curve_budget(), records=len(X))
    return Asking(Source.of(X, y, dataset.run("job"))).authorized(TWICE, sample)


def _total(batch: Batch) -> float:
    return float(np.sum(np.asarray(batch.X)))


@pytest.mark.parametrize("as_list", [False, True])
def test_a_permit_is_not_used_before_and_after_the_data_changed(open_dataset: Open, as_list: bool) -> None:
    X, y = classification()
    rows: Any = list(X) if as_list else X
    authorized = _look(open_dataset, rows, y, Full())
    authorized.release(_total)
    rows[3] = rows[3] + 1.0

    with pytest.raises(DataChanged):
        authorized.release(_total)


def test_a_sample_that_was_drawn_stays_what_it_was(open_dataset: Open) -> None:
    X, y = classification()
    authorized = _look(open_dataset, X, y, Poisson(0.5))
    seen: list[float] = []

    def noted(batch: Batch) -> float:
        seen.append(_total(batch))
        return seen[-1]

    authorized.release(noted)
    X[:] = 1.0
    authorized.release(noted)

    assert seen[0] == seen[1]


def test_records_may_arrive_between_permits(open_dataset: Open) -> None:
    X, y = classification()
    dataset = open_dataset(budget=curve_budget(), records=len(X))

    def arrive(_iterate: Iterate) -> None:
        X[0] += 0.1

    method = NoisyGradientDescent(steps=5, clip=1.0, noise_multiplier=1.0, step_size=0.1)
    result = minimize(
        Logistic(), X, y, account=dataset.run("j"), method=method, callback=arrive, reserve=5, progress=False
    )

    assert result.iterations == 5


@pytest.mark.parametrize(
    "method",
    [
        DPBLGD(0.1, 0.5, gradient_clip=1.0, loss_clip=1.0, step_size=4.0, steps=2),
        PrivGene(2, epsilon=1.0, loss_clip=1.0, population=6, parents=3),
    ],
    ids=lambda method: method.name,
)
def test_data_that_change_within_a_step_of_a_method_end_it(open_dataset: Open, method: Any) -> None:
    class Restless(Logistic):
        def losses(self, w: Any, X: Any, y: Any) -> Any:
            found = super().losses(w, X, y)
            X[0] += 0.1
            return found

    X, y = classification()
    dataset = open_dataset(budget=curve_budget(), records=len(X))
    with pytest.raises(DataChanged):
        minimize(Restless(), X, y, account=dataset.run("job"), method=method, progress=False)
