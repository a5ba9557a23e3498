"""DP-FedAvg and DP-FedSGD: textbook form, sensitivity, noise, charges, and the unit that is protected."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from dpledger_client import (
    Account,
    Dataset,
    WithoutReplacement,
    insecure_testing_noise,
    no_noise_for_testing,
)
from dpledger_client._arrays import Floats
from dpledger_client.objectives import L2, Logistic
from dpledger_client.optimizers import minimize
from dpledger_client.optimizers.methods.dp_fedavg import DPFedAvg, DPFedSGD, clipped_update
from tests.client.optimizers.contract import SEED, charged_entries, curve_budget, watching

SIZES = (6, 9)
OBJECTIVE = Logistic(L2(0.1))
WILD = [np.nan, np.inf, -np.inf, 1e200, -7.0]
Opened = Callable[..., Dataset]


def _parts() -> tuple[list[Floats], list[Floats]]:
    random = np.random.default_rng(3)
    X = [random.normal(size=(size, 3)) for size in SIZES]
    return X, [np.where(rows @ [1.0, -2.0, 0.5] > 0.0, 1.0, -1.0) for rows in X]


def _accounts(open_dataset: Opened, adjacency: str = "replace-one") -> tuple[Dataset, list[Account]]:
    dataset = open_dataset(budget=curve_budget(), adjacency=adjacency, partition_key="fixed")
    names = dataset.open_partitions(["part-0", "part-1"], curve_budget())
    return dataset, [dataset.run("job", partition=name) for name in names]


def _run(accounts: list[Account], method: DPFedSGD, X: Any = None, y: Any = None) -> Floats:
    mine = _parts()
    found = minimize(
        OBJECTIVE,
        mine[0] if X is None else X,
        mine[1] if y is None else y,
        account=accounts,
        method=method,
        records=list(SIZES),
        progress=False,
    )
    return found.w


def _textbook(method: DPFedSGD, steps: int, size: float) -> Floats:
    """Every participant descends from w; the mean of how far they came, shortened, is added."""
    w = np.zeros(3)
    for _ in range(method.steps):
        updates = []
        for rows, labels in zip(*_parts(), strict=True):
            kept = np.arange(len(rows))
            if method.batch_size is not None:
                kept = WithoutReplacement.of_size(method.batch_size, len(rows)).draw(len(rows))
            local = w.copy()
            for _ in range(steps):
                slopes = -labels[kept] / (1.0 + np.exp(labels[kept] * (rows[kept] @ local)))
                local = local - size * (slopes @ rows[kept] / len(kept) + 0.1 * local)
            length = float(np.linalg.norm(local - w))
            updates.append((local - w) * min(1.0, method.clip / length))
        w = w + float(method.step_size) * np.mean(updates, axis=0)  # type: ignore[arg-type]
    return w


@pytest.mark.parametrize("batch_size", [None, 4])
@pytest.mark.parametrize("clip", [0.2, 50.0])
def test_without_noise_they_are_their_textbook_forms(
    open_dataset: Opened, batch_size: int | None, clip: float
) -> None:
    sgd = DPFedSGD(5, clip, 1.0, 0.8, batch_size)
    average = DPFedAvg(5, clip, 1.0, 0.8, batch_size, local_steps=4, local_step_size=0.3)
    for method, steps, size in ((sgd, 1, 1.0), (average, 4, 0.3)):
        with insecure_testing_noise(SEED), no_noise_for_testing():
            found = _run(_accounts(open_dataset)[1], method)
        with insecure_testing_noise(SEED):
            np.testing.assert_allclose(found, _textbook(method, steps, size), rtol=1e-5)


@pytest.mark.parametrize("adjacency", ["add-remove", "replace-one"])
@pytest.mark.parametrize("batch_size", [None, 100])
def test_all_of_a_participants_data_move_its_release_by_no_more_than_declared(
    open_dataset: Opened, adjacency: str, batch_size: int | None
) -> None:
    method = DPFedAvg(1, 0.3, 1.0, 1.0, batch_size, local_steps=3, local_step_size=5.0)
    X, y = _parts()
    others: list[tuple[Floats, Floats]] = [(X[0], y[0]), (X[0], -y[0]), (X[0][:0], y[0][:0])]
    others += [(np.where(np.arange(6)[:, None] == 2, wild, X[0]), y[0]) for wild in WILD]
    released, declared = [], set()
    for rows, labels in others:
        dataset, accounts = _accounts(open_dataset, adjacency)
        with watching() as watch, insecure_testing_noise(SEED), no_noise_for_testing():
            _run(accounts, method, [rows, X[1]], [labels, y[1]])
        released.append(np.asarray(watch.draws[0].value))
        declared |= {entry["step"]["releases"][0]["sensitivity"] for entry in charged_entries(dataset)}
    moved = [float(np.linalg.norm(one - other)) for one in released for other in released]
    assert declared == {0.6}
    assert 0.59 < max(moved) <= 0.6, "turning all labels turns the update around"


@settings(max_examples=50)
@given(
    arrays(np.float64, st.integers(0, 5), elements=st.floats(allow_nan=True, allow_infinity=True)),
    st.floats(1e-6, 1e6),
)
def test_an_update_is_never_longer_than_its_clip(update: Floats, clip: float) -> None:
    found = clipped_update(update, clip)
    assert np.isfinite(found).all()
    assert float(np.linalg.norm(found / clip)) <= 1.0
    if np.isfinite(update).all() and float(np.max(np.abs(update), initial=0.0)) * 3.0 < clip:
        np.testing.assert_array_equal(found, update)


def test_the_noise_has_the_scale_that_was_declared(open_dataset: Opened) -> None:
    method = DPFedAvg(30, 0.5, 3.0, 0.01, local_steps=1)
    dataset, accounts = _accounts(open_dataset)
    with watching() as watch, insecure_testing_noise(SEED):
        _run(accounts, method)
    residuals = np.concatenate([draw.residuals for draw in watch.draws if draw.residuals is not None])
    assert len(residuals) == 2 * 30 * 3
    assert 0.8 < float(np.std(residuals)) < 1.2
    steps = [entry["step"]["releases"][0] for entry in charged_entries(dataset)]
    assert {(each["sensitivity"], each["noise_std"]) for each in steps} == {(1.0, 3.0)}


def test_a_sample_protects_a_record_and_all_records_the_participant(open_dataset: Opened) -> None:
    schemes, up = {}, WithoutReplacement.of_size(3, 9).rate
    for adjacency, batch_size in (("replace-one", None), ("replace-one", 3), ("add-remove", 3)):
        dataset, accounts = _accounts(open_dataset, adjacency)
        _run(accounts, DPFedSGD(1, 1.0, 4.0, 0.1, batch_size))
        samples = [entry["step"]["sample"] for entry in charged_entries(dataset)]
        schemes[adjacency, batch_size] = [(each["scheme"], each.get("rate")) for each in samples]
    assert schemes == {
        ("replace-one", None): [("full", None)] * 2,
        ("replace-one", 3): [("without-replacement", 0.5), ("without-replacement", up)],
        ("add-remove", 3): [("poisson", 0.5), ("poisson", 3 / 9)],
    }


def test_they_learn(open_dataset: Opened) -> None:
    X, y = _parts()
    method = DPFedAvg(10, 1.0, 0.05, 1.0, local_steps=5)
    with insecure_testing_noise(SEED):
        w = _run(_accounts(open_dataset)[1], method)
    assert Logistic().loss(w, np.vstack(X), np.concatenate(y)) < 0.6 * np.log(2.0)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"steps": 0}, "steps must be"),
        ({"clip": 0.0}, "clip must be"),
        ({"noise_multiplier": np.nan}, "noise_multiplier must be"),
        ({"batch_size": 0}, "batch_size must be"),
        ({"local_steps": 0}, "local_steps must be"),
        ({"local_step_size": -1.0}, "local_step_size must be"),
    ],
)
def test_parameters_are_refused(given: dict[str, Any], message: str) -> None:
    common = {"steps": 3, "clip": 1.0, "noise_multiplier": 1.0, "step_size": 0.1}
    with pytest.raises(ValueError, match=message):
        DPFedAvg(**(common | given))
