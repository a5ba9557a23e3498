"""Torch modules as objectives: run by ``make test-torch``, which has torch installed.

The name keeps this file out of ``make test``, whose environment does not.
"""

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from dpledger_client import Ledger, no_noise_for_testing
from dpledger_client._arrays import Floats
from dpledger_client.objectives import L2, LeastSquares, Logistic, Softmax
from dpledger_client.objectives.torch_module import TorchModule
from dpledger_client.optimizers import minimize
from dpledger_client.optimizers.methods.dp_sgd import DPSGD

_NUMBERS = itertools.count()
RECORDS, FEATURES, CLASSES = 60, 4, 3


@pytest.fixture(scope="module")
def ledger(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ledger]:
    with Ledger.embedded(Path(tmp_path_factory.mktemp("ledger")) / "ledger.db") as ledger:
        yield ledger


def dataset_of(ledger: Ledger, epsilon: float = 50.0) -> Any:
    budget = {"accounting": "rdp", "epsilon": epsilon, "delta": 1e-5}
    return ledger.dataset(f"torch-{next(_NUMBERS)}").open(budget, records=RECORDS)


def data() -> tuple[Floats, Any]:
    random = np.random.default_rng(1)
    X = random.normal(size=(RECORDS, FEATURES))
    return X, np.argmax(X[:, :CLASSES], axis=1)


def linear(outputs: int) -> Any:
    return torch.nn.Linear(FEATURES, outputs, bias=False).double()


def test_a_linear_module_is_the_softmax_objective() -> None:
    X, y = data()
    objective, own = TorchModule(linear(CLASSES), classes=CLASSES, chunk_size=7), Softmax(CLASSES)
    w = objective.initial(X, y)
    matrix = w.reshape(CLASSES, FEATURES).T.ravel()

    np.testing.assert_allclose(objective.losses(w, X, y), own.losses(matrix, X, y), atol=1e-12)
    for found, expected in (
        (objective.gradient_sum(w, X, y), own.gradient_sum(matrix, X, y)),
        (objective.clipped_gradient_sum(w, X, y, 0.4), own.clipped_gradient_sum(matrix, X, y, 0.4)),
    ):
        np.testing.assert_allclose(found.reshape(CLASSES, FEATURES).T.ravel(), expected, atol=1e-12)
    np.testing.assert_allclose(
        objective.gradient_norms(w, X, y), own.gradient_norms(matrix, X, y), atol=1e-12
    )


def test_a_loss_of_one_s_own_on_numbers() -> None:
    X, _ = data()
    y = X @ np.arange(1.0, 5.0)
    objective = TorchModule(linear(1), lambda output, target: 0.5 * ((output[:, 0] - target) ** 2).sum())
    w = objective.initial(X, y)

    np.testing.assert_allclose(
        objective.clipped_gradient_sum(w, X, y, 1.5),
        LeastSquares().clipped_gradient_sum(w, X, y, 1.5),
        atol=1e-12,
    )


def test_no_example_counts_for_more_than_the_limit() -> None:
    X, y = data()
    spoiled, labels = X.copy(), y.astype(np.float64)
    spoiled[0], spoiled[1, 2], labels[2], labels[3] = 1e30, np.nan, 17.0, np.nan
    objective = TorchModule(
        torch.nn.Sequential(linear(5), torch.nn.Tanh(), torch.nn.Linear(5, CLASSES).double()), classes=CLASSES
    )
    w = objective.initial(X, y)
    for row in range(RECORDS):
        rest = np.arange(RECORDS) != row
        whole = objective.clipped_gradient_sum(w, spoiled, labels, 0.1)
        moved = whole - objective.clipped_gradient_sum(w, spoiled[rest], labels[rest], 0.1)
        assert np.linalg.norm(moved) <= 0.1
    assert objective.losses(w, spoiled, labels)[2] == 0.0


@pytest.mark.parametrize("value", ["secret", None, 1j])
def test_one_record_of_a_list_does_not_change_how_others_are_read(value: Any) -> None:
    """Made an array at once, one string would make strings of all labels, and none would be a class."""
    X, y = data()
    objective = TorchModule(linear(CLASSES), classes=CLASSES)
    w = objective.initial(X, y)
    rows, labels = X.tolist(), y.tolist()

    with_value = objective.clipped_gradient_sum(w, [*rows, [value, 1.0, 1.0, 1.0]], [*labels, value], 0.1)
    without = objective.clipped_gradient_sum(w, rows, labels, 0.1)
    assert np.linalg.norm(with_value - without) <= 0.1
    np.testing.assert_array_equal(without, objective.clipped_gradient_sum(w, X, y, 0.1))


def test_it_trains_and_loads_what_it_found(ledger: Ledger) -> None:
    X, y = data()
    module = torch.nn.Sequential(torch.nn.Linear(FEATURES, 8), torch.nn.Tanh(), torch.nn.Linear(8, CLASSES))
    objective = TorchModule(module, classes=CLASSES, regularizer=L2(1e-4))
    method = DPSGD(60, batch_size=30, clip=1.0, noise_multiplier=1.0, step_size=1.0)
    with no_noise_for_testing():
        result = minimize(
            objective, X, y, account=dataset_of(ledger).run("job"), method=method, reserve=60, progress=False
        )

    assert np.mean(np.argmax(objective.predict(result.w, X), axis=1) == y) > 0.8
    loaded = objective.load(result.w)(torch.as_tensor(X, dtype=torch.float32)).detach().numpy()
    np.testing.assert_allclose(loaded, objective.predict(result.w, X), atol=1e-6)


def test_without_noise_it_is_logistic_regression_in_two_classes(ledger: Ledger) -> None:
    X, labels = data()
    y = (labels > 0).astype(np.int64)
    margin = torch.nn.Linear(FEATURES, 1, bias=False).double()
    torch.nn.init.zeros_(margin.weight)
    objective = TorchModule(
        margin,
        lambda output, target: torch.nn.functional.softplus(-(2.0 * target - 1.0) * output[:, 0]).sum(),
        classes=2,
    )
    method = DPSGD(10, batch_size=RECORDS, clip=1.0, noise_multiplier=1.0, step_size=0.5)
    with no_noise_for_testing():
        found = minimize(objective, X, y, account=dataset_of(ledger).run("a"), method=method, progress=False)
        own = minimize(
            Logistic(), X, 2.0 * y - 1.0, account=dataset_of(ledger).run("b"), method=method, progress=False
        )

    np.testing.assert_allclose(found.w, own.w, atol=1e-12)


def test_frozen_parameters_are_not_trained(ledger: Ledger) -> None:
    """They count neither in the dimension nor in the norm that is clipped."""
    X, y = data()
    module = torch.nn.Sequential(torch.nn.Linear(FEATURES, 8), torch.nn.Tanh(), torch.nn.Linear(8, CLASSES))
    module[0].requires_grad_(False)
    body, head = [value.clone() for value in module[0].parameters()], module[2].weight.clone()
    objective = TorchModule(module, classes=CLASSES)
    inside = TorchModule(module[2], classes=CLASSES)
    rows = module[:2](torch.as_tensor(X, dtype=torch.float32)).detach().numpy()
    w = objective.initial(X, y)
    assert len(w) == objective.dimension(X, y) == 8 * CLASSES + CLASSES
    np.testing.assert_allclose(
        objective.clipped_gradient_sum(w, X, y, 0.1), inside.clipped_gradient_sum(w, rows, y, 0.1), atol=1e-5
    )

    method = DPSGD(3, batch_size=30, clip=1.0, noise_multiplier=1.0, step_size=1.0)
    account = dataset_of(ledger).run("job")
    objective.load(minimize(objective, X, y, account=account, method=method, progress=False).w)
    assert all(torch.equal(old, new) for old, new in zip(body, module[0].parameters(), strict=True))
    assert not torch.equal(head, module[2].weight)


def test_a_module_without_anything_to_train_is_refused() -> None:
    with pytest.raises(ValueError, match="requires a gradient"):
        TorchModule(linear(CLASSES).requires_grad_(False), classes=CLASSES)


class Composed(torch.nn.Module):  # type: ignore[misc]
    """Layers in every way in which their gradients are and are not simple products."""

    def __init__(self) -> None:
        super().__init__()
        self.twice = torch.nn.Linear(4, 4)
        self.conv = torch.nn.Conv2d(2, 3, (2, 3), stride=(1, 2), padding=(1, 0))
        self.grouped = torch.nn.Conv2d(2, 4, 2, groups=2, dilation=1)
        self.norm = torch.nn.LayerNorm(4)
        self.words = torch.nn.Linear(4, 3, bias=False)
        self.beside = torch.nn.Linear(4, 4)
        self.frozen = torch.nn.Linear(4, 4).requires_grad_(False)
        self.bias_only = torch.nn.Linear(4, 4)
        self.bias_only.weight.requires_grad_(False)
        self.head = torch.nn.Linear(15 + 12 + 36, CLASSES)

    def forward(self, x: Any) -> Any:
        rows = self.bias_only(self.frozen(self.twice(torch.tanh(self.twice(self.norm(x))))))
        rows = rows + torch.nn.functional.linear(self.beside(rows), self.beside.weight)
        found = self.conv(rows), self.words(rows[:, 0]), self.grouped(rows)
        return self.head(torch.cat([each.flatten(1) for each in found], dim=1))


def reference_gradients(module: Any, X: Any, y: Any) -> Floats:
    """One backward pass per example."""
    trained = [value for value in module.parameters() if value.requires_grad]
    rows = []
    for row, target in zip(torch.as_tensor(X), torch.as_tensor(y), strict=True):
        loss = torch.nn.functional.cross_entropy(module(row[None]), target[None])
        rows.append(torch.cat([found.ravel() for found in torch.autograd.grad(loss, trained)]).numpy())
    return np.array(rows)


def small_cnn() -> Any:
    layers = [
        torch.nn.Conv2d(2, 3, 2),
        torch.nn.ReLU(),
        torch.nn.MaxPool2d(2, 1),
        torch.nn.Flatten(),
        torch.nn.Linear(12, CLASSES),
    ]
    return torch.nn.Sequential(*layers)


@pytest.mark.parametrize("made", [Composed, small_cnn])
def test_gradients_are_those_of_one_backward_pass_per_example(made: Any) -> None:
    torch.manual_seed(3)
    module = made().double()
    X, y = np.random.default_rng(2).normal(size=(9, 2, 4, 4)), np.arange(9) % CLASSES
    expected = reference_gradients(module, X, y)
    norms = np.linalg.norm(expected, axis=1)
    limit = float(np.median(norms))
    objective = TorchModule(module, classes=CLASSES, chunk_size=4)
    w = objective.initial(X, y)

    np.testing.assert_allclose(objective.gradient_norms(w, X, y), norms, rtol=1e-10)
    np.testing.assert_allclose(objective.gradient_sum(w, X, y), expected.sum(axis=0), atol=1e-10)
    clipped = (expected * np.minimum(1.0, limit / norms)[:, None]).sum(axis=0)
    np.testing.assert_allclose(objective.clipped_gradient_sum(w, X, y, limit), clipped, rtol=1e-5, atol=1e-5)
    assert not any(layer._forward_hooks for layer in module.modules())


def test_a_module_that_mixes_a_batch_sees_one_example_at_a_time() -> None:
    class Centred(torch.nn.Linear):  # type: ignore[misc]
        def forward(self, x: Any) -> Any:
            return super().forward(x - 0.5 * x.mean(dim=0))

    X, y = data()
    module = torch.nn.Sequential(Centred(FEATURES, 5), torch.nn.Linear(5, CLASSES)).double()
    objective = TorchModule(module, classes=CLASSES)
    w = objective.initial(X, y)

    whole = objective.gradient_sum(w, X, y)
    alone = sum(objective.gradient_sum(w, X[row : row + 1], y[row : row + 1]) for row in range(RECORDS))
    np.testing.assert_allclose(whole, alone, atol=1e-10)


@pytest.mark.parametrize("size", [1e-170, 1e-300, 1e200])
def test_a_square_that_underflows_lets_no_gradient_through(size: float) -> None:
    """What enters is too small for its square to be a double, and the slope makes up for it."""
    X, y = np.full((2, FEATURES), size), np.array([0.0, 1e130])
    module = torch.nn.Linear(FEATURES, 1, bias=False).double()
    objective = TorchModule(module, lambda output, target: (target * 1e20 * output[:, 0]).sum().abs())
    w = objective.initial(X, y)

    assert np.linalg.norm(objective.clipped_gradient_sum(w, X, y, 1e-25)) <= 1e-25
