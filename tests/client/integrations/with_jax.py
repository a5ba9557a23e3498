"""JAX functions and Optax under a ledger: run by ``make test-jax``, which has them installed.

The name keeps this file out of ``make test``, whose environment does not.
"""

import itertools
import re
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from dpledger_client import BudgetExhausted, Ledger, no_noise_for_testing
from dpledger_client._arrays import Floats
from dpledger_client.integrations.jax import PrivateGradients
from dpledger_client.objectives import Logistic, Softmax

_NUMBERS = itertools.count()
RECORDS, FEATURES, CLASSES = 60, 4, 3
OPTIONS: dict[str, Any] = {"batch_size": 30, "clip": 0.4, "noise_multiplier": 1.0}


@pytest.fixture(scope="module")
def ledger(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ledger]:
    with Ledger.embedded(Path(tmp_path_factory.mktemp("ledger")) / "ledger.db") as ledger:
        yield ledger


def dataset_of(ledger: Ledger, budget: Any = None, records: int | None = RECORDS, **options: Any) -> Any:
    roomy = {"accounting": "rdp", "epsilon": 50.0, "delta": 1e-5}
    return ledger.dataset(f"jax-{next(_NUMBERS)}").open(budget or roomy, records=records, **options)


def data() -> tuple[Floats, Any]:
    random = np.random.default_rng(1)
    X = random.normal(size=(RECORDS, FEATURES))
    return X, np.argmax(X[:, :CLASSES], axis=1)


def logits_loss(params: Any, row: Any, target: Any) -> Any:
    return optax.softmax_cross_entropy_with_integer_labels(row @ params["w"] + params["b"], target)


def start() -> dict[str, Any]:
    return {"b": jnp.zeros(CLASSES), "w": jnp.zeros((FEATURES, CLASSES))}


def margin_loss(params: Any, row: Any, target: Any) -> Any:
    return jax.nn.softplus(-target * (row @ params))


def whole_sum(gradients: PrivateGradients, params: Any, X: Any, y: Any) -> Floats:
    """The clipped sum over all of the records, as a release computes it."""
    flat = jax.flatten_util.ravel_pytree(params)[0]
    source = gradients._source
    return gradients._clipped_sum(params, flat, type(source).of(X, y, source.account, RECORDS).batch(None))


@pytest.mark.parametrize("vectorize", [False, True])
@pytest.mark.parametrize("chunk_size", [7, 128])
def test_the_clipped_sum_is_the_softmax_objectives(ledger: Ledger, vectorize: bool, chunk_size: int) -> None:
    X, y = data()
    gradients = PrivateGradients(
        lambda w, row, target: optax.softmax_cross_entropy_with_integer_labels(row @ w, target),
        dataset_of(ledger).run("job"),
        X,
        y,
        classes=CLASSES,
        chunk_size=chunk_size,
        vectorize=vectorize,
        **OPTIONS,
    )
    w = np.random.default_rng(2).normal(size=(FEATURES, CLASSES))
    expected = Softmax(CLASSES).clipped_gradient_sum(w.ravel(), X, y, 0.4)
    np.testing.assert_allclose(whole_sum(gradients, jnp.asarray(w), X, y), expected, atol=1e-5)


def test_no_example_counts_for_more_than_the_limit(ledger: Ledger) -> None:
    """Whatever it is, and in the last bit: the others are rounded the same whoever is beside them."""
    X, y = data()
    spoiled, labels = X.copy(), y.astype(np.float64)
    spoiled[0], spoiled[1, 2], labels[2], labels[3] = 1e30, np.nan, 17.0, np.nan
    gradients = PrivateGradients(
        logits_loss, dataset_of(ledger).run("job"), spoiled, labels, classes=CLASSES, **OPTIONS
    )
    random = np.random.default_rng(3)
    params = {"b": jnp.asarray(random.normal(size=CLASSES)), "w": jnp.asarray(random.normal(size=(4, 3)))}
    whole = whole_sum(gradients, params, spoiled, labels)
    for row in range(RECORDS):
        rest = np.arange(RECORDS) != row
        moved = whole - whole_sum(gradients, params, spoiled[rest], labels[rest])
        assert np.linalg.norm(moved) <= 0.4


def test_an_example_is_rounded_the_same_at_every_place(ledger: Ledger) -> None:
    X, y = data()
    gradients = PrivateGradients(logits_loss, dataset_of(ledger).run("job"), X, y, classes=CLASSES, **OPTIONS)
    params = {"b": jnp.ones(CLASSES) / 3, "w": jnp.asarray(np.random.default_rng(4).normal(size=(4, 3)))}
    rows, targets = X.astype(np.float32), y.astype(np.int32)
    in_order = gradients._example_gradients(params, rows, targets)
    for shift in range(1, 9):
        moved = gradients._example_gradients(params, np.roll(rows, shift, axis=0), np.roll(targets, shift))
        np.testing.assert_array_equal(np.roll(moved, -shift, axis=0), in_order)


def test_without_noise_a_step_on_all_records_is_the_mean_gradient(ledger: Ledger) -> None:
    X, labels = data()
    y = np.where(labels > 0, 1.0, -1.0)
    options = {**OPTIONS, "batch_size": RECORDS}
    gradients = PrivateGradients(margin_loss, dataset_of(ledger).run("job"), X, y, **options)
    with no_noise_for_testing(), gradients:
        found = gradients(jnp.zeros(FEATURES))
    expected = Logistic().clipped_gradient_sum(np.zeros(FEATURES), X, y, 0.4) / RECORDS
    np.testing.assert_allclose(found, expected, atol=1e-6)


def test_sums_are_divided_by_the_public_number(ledger: Ledger) -> None:
    """Half of the records are there: the mean of their gradients is half of what it would be for all."""
    X, labels = data()
    y = np.where(labels > 0, 1.0, -1.0)
    dataset = dataset_of(ledger, records=2 * RECORDS)
    options = {**OPTIONS, "batch_size": 2 * RECORDS}
    with no_noise_for_testing(), PrivateGradients(margin_loss, dataset.run("job"), X, y, **options) as found:
        half = found(jnp.zeros(FEATURES))
    expected = Logistic().clipped_gradient_sum(np.zeros(FEATURES), X, y, 0.4) / (2 * RECORDS)
    np.testing.assert_allclose(half, expected, atol=1e-6)


def test_optax_trains_and_every_step_is_charged_as_planned(ledger: Ledger) -> None:
    X, y = data()
    dataset = dataset_of(ledger)
    gradients = PrivateGradients(logits_loss, dataset.run("job"), X, y, classes=CLASSES, **OPTIONS)
    optimizer = optax.adam(0.3)
    params, steps = start(), 40
    state = optimizer.init(params)
    with no_noise_for_testing(), gradients:
        for _ in range(steps):
            updates, state = optimizer.update(gradients(params), state, params)
            params = optax.apply_updates(params, updates)

    assert np.mean(np.argmax(X @ params["w"] + params["b"], axis=1) == y) > 0.8
    entries = list(dataset.entries())
    used = sum(1 for entry in entries if entry["kind"] == "authorized")
    used += sum(int(entry["used"]) for entry in entries if entry["kind"] == "settled")
    assert used == steps
    step = next(entry["step"] for entry in entries if "step" in entry)
    assert step["sample"] == {"scheme": "poisson", "rate": 0.5}
    assert step["releases"] == [{"mechanism": "gaussian", "noise_std": 0.4, "sensitivity": 0.4}]
    assert dataset.budget().reserved["open"] == 0


def test_under_a_plan_of_its_item_it_gets_exactly_its_steps(ledger: Ledger) -> None:
    X, y = data()
    looked: list[int] = []

    def counted(params: Any, row: Any, target: Any) -> Any:
        looked.append(1)
        return margin_loss(params, row, target)

    described = PrivateGradients(margin_loss, dataset_of(ledger).run("facts"), X, y, **OPTIONS).item(5)
    budget = {"accounting": "plan", "epsilon": 20.0, "delta": 1e-5, "items": [described]}
    account = dataset_of(ledger, budget).run("job")
    with PrivateGradients(counted, account, X, y, **OPTIONS) as gradients:
        for _ in range(5):
            gradients(jnp.zeros(FEATURES))
        traced = len(looked)
        with pytest.raises(BudgetExhausted):
            gradients(jnp.zeros(FEATURES))
    assert len(looked) == traced


def test_a_refusal_looks_at_nothing(ledger: Ledger) -> None:
    X, y = data()
    account = dataset_of(ledger, {"accounting": "zcdp", "rho": 1e-9}).run("job")
    gradients = PrivateGradients(
        lambda params, row, target: pytest.fail("looked"), account, X, y, **{**OPTIONS, "batch_size": RECORDS}
    )
    with pytest.raises(BudgetExhausted):
        gradients(jnp.zeros(FEATURES))


def test_the_noise_is_that_of_the_charge(ledger: Ledger) -> None:
    """Of 4,000 coordinates without any gradient: the standard deviation within five of its own."""
    X, y = np.zeros((RECORDS, FEATURES)), np.zeros(RECORDS)
    gradients = PrivateGradients(
        lambda params, row, target: 0.0 * params.sum(), dataset_of(ledger).run("job"), X, y, **OPTIONS
    )
    with gradients:
        noise = np.asarray(gradients(jnp.zeros(4000)))
    expected = 0.4 / 30
    assert abs(noise.std() - expected) <= 5 * expected / np.sqrt(2 * 4000)


@pytest.mark.parametrize("name", ["jax_debug_nans", "jax_debug_infs"])
def test_debugging_does_not_tell_of_a_record(ledger: Ledger, name: str) -> None:
    X, y = data()
    X[0] = np.nan
    gradients = PrivateGradients(logits_loss, dataset_of(ledger).run("job"), X, y, classes=CLASSES, **OPTIONS)
    jax.config.update(name, True)
    try:
        with gradients:
            assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(gradients(start())))
    finally:
        jax.config.update(name, False)


def test_a_restarted_job_gets_its_old_outputs(ledger: Ledger, tmp_path: Path) -> None:
    X, y = data()
    dataset = dataset_of(ledger)
    found = []
    for _ in range(2):
        account = dataset.run("job", journal=tmp_path / "job.journal")
        with PrivateGradients(margin_loss, account, X, y, **OPTIONS) as gradients:
            found.append([np.asarray(gradients(jnp.zeros(FEATURES))) for _ in range(3)])
        account.journal.close()
    first, again = found
    np.testing.assert_array_equal(first, again)


def test_the_number_of_records_must_be_public(ledger: Ledger) -> None:
    X, y = data()
    with pytest.raises(ValueError, match="records must be given"):
        PrivateGradients(margin_loss, dataset_of(ledger, records=None).run("job"), X, y, **OPTIONS)


def test_what_is_reserved_is_settled_when_the_process_ends(tmp_path: Path) -> None:
    program = """
import sys, jax.numpy as jnp, numpy as np
from dpledger_client import Ledger
from dpledger_client.integrations.jax import PrivateGradients
ledger = Ledger.embedded(sys.argv[1])
dataset = ledger.dataset("d").open({"accounting": "zcdp", "rho": 100.0}, records=20)
options = {"batch_size": 20, "clip": 1.0, "noise_multiplier": 1.0, "reserve": 50}
loss = lambda w, row, target: (row @ w - target) ** 2
gradients = PrivateGradients(loss, dataset.run("job"), np.ones((20, 2)), np.ones(20), **options)
gradients(jnp.zeros(2))
"""
    file = tmp_path / "ledger.db"
    subprocess.run([sys.executable, "-c", program, str(file)], check=True, timeout=120)
    with Ledger.embedded(file) as ledger:
        budget = ledger.dataset("d").budget()
    assert budget.reserved["open"] == 0
    assert budget.spent["rho"] == pytest.approx(0.5, rel=1e-6)


def test_the_call_of_the_documentation_trains(ledger: Ledger) -> None:
    page = (Path(__file__).resolve().parents[3] / "docs" / "jax.md").read_text(encoding="utf-8")
    block = re.findall(r"(?:^    .*\n(?:\n(?=    ))?)+", page, re.MULTILINE)[0]
    X = np.random.default_rng(7).normal(size=(2_000, 5))
    names: dict[str, Any] = {"X": X, "y": (X @ [1.0, -2.0, 0.0, 0.5, 1.0] > 0.0).astype(int)}
    names["account"] = dataset_of(ledger, records=2_000).run("job")
    exec(compile(textwrap.dedent(block), "documentation", "exec"), names)

    inner, outer = names["params"]["inner"], names["params"]["outer"]
    assert np.mean(np.argmax(np.tanh(X @ inner) @ outer, axis=1) == names["y"]) > 0.8
