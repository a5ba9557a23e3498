"""Sensitivities of whole optimizers, against runs on neighbouring datasets."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpledger.accounting import sensitivity
from dpledger.accounting.errors import InvalidInput
from dpledger.accounting.validation import Floats
from tests.accounting.references import moderately


def drift_of_two_runs(
    steps: Floats, sizes: list[int], bound: float, convexity: float, batch: int, interval: int | None
) -> float:
    """Train twice on f(w; d) = d·w + (μ/2)w², with d = ±R in one record of one batch, everything else equal.

    The gradients' constant parts differ by 2R in that record and the curvature is μ everywhere, so the drift
    is what the recurrence says with L = μ.
    """
    runs = []
    for sign in (1.0, -1.0):
        w, recent = 0.0, []
        for epoch, step in enumerate(steps, start=1):
            for index, size in enumerate(sizes):
                pull = sign * bound / size if index == batch else 0.0
                w = w - step * (convexity * w + pull)
                recent.append(w)
            if interval is not None and epoch % interval == 0:
                w, recent = float(np.mean(recent)), []
        runs.append(w)
    return abs(runs[0] - runs[1])


@moderately
@given(
    st.lists(st.floats(0.01, 2.5), min_size=1, max_size=6),
    st.lists(st.integers(1, 9), min_size=1, max_size=5),
    st.floats(0.1, 3.0),
    st.floats(0.05, 1.0),
    st.sampled_from([None, 1, 2, 3]),
)
def test_bounds_every_pair_of_runs_and_is_attained(
    steps: list[float], sizes: list[int], bound: float, convexity: float, interval: int | None
) -> None:
    found, shares = sensitivity.permuted_sgd_sensitivities(
        steps,
        sizes,
        gradient_bound=bound,
        smoothness=convexity,
        strong_convexity=convexity,
        averaging_interval=interval,
    )
    assert shares == pytest.approx(np.array(sizes) / sum(sizes))
    for batch in range(len(sizes)):
        true = drift_of_two_runs(np.array(steps), sizes, bound, convexity, batch, interval)
        assert found[batch] >= true * (1.0 - 1e-12)
        if all(step * convexity <= 1.0 for step in steps):
            assert found[batch] <= true * (1.0 + 1e-9)


@moderately
@given(
    st.lists(st.floats(0.01, 3.0), min_size=1, max_size=5),
    st.lists(st.integers(1, 9), min_size=1, max_size=7),
    st.floats(0.0, 1.0),
    st.sampled_from([None, 1, 2]),
)
def test_equals_algorithm_3_2_update_by_update(
    steps: list[float], sizes: list[int], convexity: float, interval: int | None
) -> None:
    drift, recent = np.zeros(len(sizes)), []
    for epoch, step in enumerate(steps, start=1):
        for batch, size in enumerate(sizes):
            drift = drift * max(abs(1.0 - step * convexity), abs(1.0 - step))
            drift[batch] += 2.0 * step / size
            recent.append(drift)
        if interval is not None and epoch % interval == 0:
            drift, recent = np.mean(recent, axis=0), []
    found, _ = sensitivity.permuted_sgd_sensitivities(
        steps,
        sizes,
        gradient_bound=1.0,
        smoothness=1.0,
        strong_convexity=convexity,
        averaging_interval=interval,
    )
    assert (found >= drift * (1.0 - 1e-13)).all()
    assert found == pytest.approx(drift, rel=1e-10)


def test_ten_thousand_batches_are_no_matter() -> None:
    found, shares = sensitivity.permuted_sgd_sensitivities(
        sensitivity.shrinking_schedule(0.5, 20),
        [8] * 10_000,
        gradient_bound=1.0,
        smoothness=1.0,
        strong_convexity=0.01,
    )
    assert found.argmax() == 9_999
    assert shares.sum() == pytest.approx(1.0)


def test_accounting_for_other_step_sizes_than_trained_is_below_the_truth() -> None:
    """Trained with η0/h (restarted), accounted with η0/s as the pseudo-code prints."""
    epochs, interval, sizes = 8, 2, [1]
    trained = sensitivity.restarting_schedule(1.0, epochs, interval)
    printed = sensitivity.shrinking_schedule(1.0, epochs)
    settings = {
        "gradient_bound": 1.0,
        "smoothness": 0.5,
        "strong_convexity": 0.5,
        "averaging_interval": interval,
    }
    true = drift_of_two_runs(trained, sizes, 1.0, 0.5, 0, interval)
    claimed = sensitivity.permuted_sgd_sensitivities(printed, sizes, **settings)[0][0]  # type: ignore[arg-type]
    ours = sensitivity.permuted_sgd_sensitivities(trained, sizes, **settings)[0][0]  # type: ignore[arg-type]
    assert claimed < 0.8 * true
    assert true <= ours <= true * (1.0 + 1e-9)


def test_large_steps_expand() -> None:
    assert sensitivity.contraction_factor(3.0, 1.0, 0.1) == pytest.approx(2.0)
    assert sensitivity.contraction_factor(0.5, 1.0, 0.1) == pytest.approx(0.95)


def test_theorem_3_1_bounds_any_number_of_epochs() -> None:
    factor = sensitivity.contraction_factor(0.5, 1.0, 0.2)
    limit = sensitivity.fixed_step_sensitivity(0.5, 4, 3, gradient_bound=2.0, factor=factor)
    for epochs in (1, 10, 400):
        found, _ = sensitivity.permuted_sgd_sensitivities(
            [0.5] * epochs, [4, 4, 4], gradient_bound=2.0, smoothness=1.0, strong_convexity=0.2
        )
        assert found.max() <= limit * (1.0 + 1e-12)  # each of the updates is rounded up
    assert found.max() == pytest.approx(limit, rel=1e-9)


def test_theorem_3_1_for_full_batches_is_2r_over_n_mu() -> None:
    smoothness, convexity, records = 1.0, 0.25, 50
    step = 2.0 / (smoothness + convexity)
    factor = sensitivity.contraction_factor(step, smoothness, convexity)
    found = sensitivity.fixed_step_sensitivity(step, records, 1, gradient_bound=1.5, factor=factor)
    assert found == pytest.approx(2.0 * 1.5 / (records * convexity))


def primal_update(gradient_mean: float, step: float, penalty: float) -> float:
    """(4.8) with y, z and the previous x at zero."""
    return -gradient_mean / (penalty + 1.0 / step)


def test_mpadmm_keeps_the_step_size_that_the_published_bound_drops() -> None:
    clip, records, penalty, step, sigma, order = 0.4, 1, 0.5, 10.0, 1.0, 2.0
    moved = abs(primal_update(clip / records, step, penalty) - primal_update(-clip / records, step, penalty))
    ours = sensitivity.mpadmm_sensitivity(clip, step, records, penalty)
    published = 2.0 * clip / (records * (1.0 + step * penalty))
    assert moved <= ours <= moved * (1.0 + 1e-12)
    # x and z move by the same amount; the paper charges x, z and y, each at the sensitivity without η.
    true = order * 2.0 * moved**2 / (2.0 * sigma**2)
    claimed = order * (2.0 + penalty**2) * published**2 / (2.0 * sigma**2)
    assert true == pytest.approx(3.556, abs=1e-3)
    assert claimed == pytest.approx(0.040, abs=1e-3)


def test_schedules() -> None:
    assert sensitivity.shrinking_schedule(2.0, 4).tolist() == [2.0, 1.0, 2.0 / 3.0, 0.5]
    assert sensitivity.restarting_schedule(2.0, 5, 2).tolist() == [2.0, 1.0, 2.0, 1.0, 2.0]


def test_out_of_range_is_refused() -> None:
    with pytest.raises(InvalidInput, match="step_size"):
        sensitivity.contraction_factor(0.0, 1.0, 0.1)
    with pytest.raises(InvalidInput, match="strong_convexity"):
        sensitivity.contraction_factor(0.1, 1.0, 2.0)
    with pytest.raises(InvalidInput, match="factor"):
        sensitivity.fixed_step_sensitivity(0.1, 1, 1, gradient_bound=1.0, factor=1.0)
    with pytest.raises(InvalidInput, match="records"):
        sensitivity.mpadmm_sensitivity(1.0, 1.0, 0, 0.5)
    with pytest.raises(InvalidInput, match="batch_sizes"):
        sensitivity.permuted_sgd_sensitivities(
            [0.1], [], gradient_bound=1.0, smoothness=1.0, strong_convexity=0.1
        )
    with pytest.raises(InvalidInput, match="sensitivity"):
        sensitivity.permuted_sgd_sensitivities(
            [1e200] * 3, [1], gradient_bound=1e200, smoothness=1.0, strong_convexity=0.1
        )
    with pytest.raises(InvalidInput, match="contraction factor"):
        sensitivity.permuted_sgd_sensitivities(
            [1e200], [1], gradient_bound=1.0, smoothness=1e200, strong_convexity=0.1
        )


def test_no_contraction_at_all_is_the_sum_of_the_steps() -> None:
    found, _ = sensitivity.permuted_sgd_sensitivities(
        [0.1, 0.2], [2], gradient_bound=1.0, smoothness=1.0, strong_convexity=0.0
    )
    assert found[0] == pytest.approx(2.0 * 0.3 / 2.0)
    assert math.isfinite(sensitivity.fixed_step_sensitivity(1.0, 1, 1, gradient_bound=1.0, factor=0.0))


def test_a_factor_that_rounds_up_to_one() -> None:
    convexity = 7.0 * 2.0**-53
    assert sensitivity.contraction_factor(1.0, 1.0, convexity) == 1.0
    found, _ = sensitivity.permuted_sgd_sensitivities(
        [1.0, 1.0],
        [1, 1],
        gradient_bound=1.0,
        smoothness=1.0,
        strong_convexity=convexity,
        averaging_interval=2,
    )
    assert found == pytest.approx([(2.0 + 2.0 + 4.0 + 4.0) / 4.0, (0.0 + 2.0 + 2.0 + 4.0) / 4.0])


def test_products_that_overflow_are_refused_and_not_read_as_no_sensitivity() -> None:
    with pytest.raises(InvalidInput):
        sensitivity.mpadmm_sensitivity(1.0, 1e200, 1, 1e200)
    with pytest.raises(InvalidInput):
        sensitivity.contraction_factor(1e200, 1e200, 0.0)
    with pytest.raises(InvalidInput):
        sensitivity.fixed_step_sensitivity(1e300, 1, 1, gradient_bound=1.0, factor=1.0 - 2.0**-53)
