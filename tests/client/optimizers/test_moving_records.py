"""A partition by a private key: a record that is replaced may leave it, so that its size is secret.

Under replace-one that is the service's default. What is charged for a sample without replacement, or for
mini-batches of a permutation, is proven where neighbours have equally many records.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from dpledger_client import Account, Dataset, NoisyVotes, WithoutReplacement
from dpledger_client.objectives import L2, LinearScorer, Logistic
from dpledger_client.objectives.ranking import BayesRank
from dpledger_client.optimizers import Method, minimize
from dpledger_client.optimizers.methods.a_ddp import ADDP
from dpledger_client.optimizers.methods.dp_sgd import DPSGD
from dpledger_client.optimizers.methods.noisy_gd import NoisyGradientDescent
from dpledger_client.optimizers.methods.nsgd import NSGD
from dpledger_client.optimizers.methods.output_perturbation import OutputPerturbation
from dpledger_client.optimizers.methods.priv_br import PrivBR
from dpledger_client.pate import pate
from tests.client.optimizers.contract import charged_entries, classification, curve_budget

Opened = Callable[..., Dataset]
FULL = NoisyGradientDescent(2, clip=1.0, noise_multiplier=3.0, step_size=0.5)
SAMPLED = DPSGD(2, batch_size=5, clip=1.0, noise_multiplier=3.0, step_size=0.5)


def _account(open_dataset: Opened, **settings: Any) -> Account:
    dataset = open_dataset(budget=curve_budget(), adjacency="replace-one", **settings)
    dataset.open_partitions(["part"])
    return dataset.run("job", partition="part")


def _train(account: Account, method: Method, **more: Any) -> Any:
    X, y = classification()
    return minimize(Logistic(L2(0.1)), X, y, account=account, method=method, progress=False, **more)


def test_a_sample_of_fixed_rate_tells_of_a_record_that_left_even_if_it_was_not_drawn() -> None:
    """Why such samples are refused: of one record less, one fewer is drawn, whoever it is."""
    sample = WithoutReplacement.of_size(5, 100)
    assert (len(sample.draw(100)), len(sample.draw(99))) == (5, 4)


@pytest.mark.parametrize("settings", [{}, {"records": 1_000}, {"partition_key": "private"}])
def test_the_number_of_records_must_be_given(open_dataset: Opened, settings: dict[str, Any]) -> None:
    account = _account(open_dataset, **settings)
    with pytest.raises(ValueError, match="records must be given"):
        _train(account, FULL)
    assert _train(account, FULL, records=60).iterations == 2


@pytest.mark.parametrize("reserve", [None, 2])
def test_a_sample_without_replacement_is_refused_before_it_is_asked_for(
    open_dataset: Opened, reserve: int | None
) -> None:
    account = _account(open_dataset)
    with pytest.raises(ValueError, match="partition_key='fixed'"):
        _train(account, SAMPLED, records=60, reserve=reserve)
    assert charged_entries(account.dataset) == []


def test_participants_without_a_fixed_key_are_refused(open_dataset: Opened) -> None:
    account = _account(open_dataset)
    X, y = classification()
    method = ADDP(1, clip=1.0, noise_multiplier=3.0, step_size=0.5)
    with pytest.raises(ValueError, match="partition_key='fixed'"):
        minimize(Logistic(), [X], [y], account=[account], method=method, records=60, progress=False)
    assert charged_entries(account.dataset) == []


@pytest.mark.parametrize("method", [NSGD(2, 4, 0.1, 3.0), OutputPerturbation(3, 3.0)], ids=lambda m: m.name)
def test_what_pairs_the_neighbours_records_is_refused(open_dataset: Opened, method: Method) -> None:
    account = _account(open_dataset)
    with pytest.raises(ValueError, match="partition_key='fixed'"):
        _train(account, method, records=len(classification()[1]))
    assert charged_entries(account.dataset) == []


def test_a_bound_over_a_sample_of_lists_is_refused(open_dataset: Opened) -> None:
    account = _account(open_dataset)
    lists, relevances = [np.eye(3)] * 4, [np.array([0.0, 1.0, 2.0])] * 4
    method = PrivBR(lists, 1, 3.0, 0.5, 0.1, bound="batch")
    objective = BayesRank(LinearScorer(3))
    with pytest.raises(ValueError, match="partition_key='fixed'"):
        minimize(objective, lists, relevances, account=account, method=method, records=4, progress=False)
    assert charged_entries(account.dataset) == []


@pytest.mark.parametrize(("key", "equal"), [("private", False), ("fixed", True)])
def test_a_teacher_is_drawn_for_each_record_by_itself(open_dataset: Opened, key: str, equal: bool) -> None:
    """Dealt out equally, one record less would move others to other teachers."""
    sizes: list[int] = []

    def fit(rows: Any, _labels: Any) -> Any:
        sizes.append(len(rows))
        return lambda asked: np.zeros(len(asked))

    account, records = _account(open_dataset, partition_key=key), np.arange(400.0)
    votes = NoisyVotes("gaussian", noise_std=10.0)
    pate(fit, records, records, np.zeros(1), account=account, teachers=20, classes=2, mechanism=votes)
    assert sum(sizes) == 400
    assert (len(set(sizes)) == 1) is equal


def test_by_a_fixed_key_a_partition_is_like_a_dataset(open_dataset: Opened) -> None:
    for method in (FULL, SAMPLED, NSGD(2, 4, 0.1, 3.0)):
        account = _account(open_dataset, partition_key="fixed")
        assert _train(account, method).stop_reason == "finished"
