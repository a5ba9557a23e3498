"""The cancellation-free helpers, against mpmath at 60 digits."""

import math

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from mpmath import mp

from dpledger.accounting.errors import InvalidInput
from dpledger.accounting.numerics import (
    SMALLEST_COST,
    exact_sum,
    exp_above,
    exp_minus_line,
    log_binomials,
    log_sinhc,
    ratio_above,
    root_of_squares,
    round_up,
)
from tests.accounting.references import Number, digits, log_uniform, moderately


def close(found: float, exact: Number, *, relative: float = 3e-15) -> bool:
    return bool(abs(mp.mpf(float(found)) - exact) <= mp.mpf(relative) * abs(exact))


@moderately
@given(log_uniform(1e-150, 600.0), st.sampled_from([-1.0, 1.0]))
@example(1.0, 1.0)
@example(1.0, -1.0)
def test_exp_minus_line(size: float, sign: float) -> None:
    x = sign * size
    with digits(400):
        exact = mp.expm1(mp.mpf(x)) - mp.mpf(x)
    assert close(exp_minus_line(np.array([x]))[0], exact)


@moderately
@given(log_uniform(1e-150, 1e300))
@example(1.0)
@example(20.0)
def test_log_sinhc(z: float) -> None:
    with digits(400):
        exact = mp.log(mp.sinh(mp.mpf(z)) / mp.mpf(z)) if z < 1e3 else mp.mpf(z) - mp.log(2 * mp.mpf(z))
    assert close(log_sinhc(np.array([z]))[0], exact)


@pytest.mark.parametrize("n", [0, 1, 7, 500])
def test_log_binomials(n: int) -> None:
    expected = [math.log(math.comb(n, k)) for k in range(n + 1)]
    assert log_binomials(n) == pytest.approx(expected, abs=1e-11, rel=1e-12)


@moderately
@given(log_uniform(1e-320, 1e150), log_uniform(1e-150, 1e300))
def test_ratio_above_is_next_above_the_quotient(numerator: float, denominator: float) -> None:
    found = mp.mpf(ratio_above("ratio", numerator, denominator))
    with digits(60):
        exact = mp.mpf(numerator) / mp.mpf(denominator)
    assert exact <= found <= exact + 2 * mp.mpf(math.ulp(float(found)))


def test_ratio_above_at_its_ends() -> None:
    assert ratio_above("ratio", 0.0, 3.0) == 0.0
    assert ratio_above("ratio", 1e-300, 1e300) > 0.0
    with pytest.raises(InvalidInput, match=r"^ratio must be a finite number"):
        ratio_above("ratio", 1e300, 1e-300)


def test_settle_goes_up_and_stays_above_the_smallest_cost() -> None:
    assert round_up(1.0, ulps=2) > 1.0
    assert round_up(0.0, ulps=2) == SMALLEST_COST
    assert round_up(np.array([0.0, 1.0]), ulps=2).tolist() == [SMALLEST_COST, 1.0 + 2 * math.ulp(1.0)]
    assert math.isnan(round_up(math.nan, ulps=2))
    assert np.isnan(round_up(np.array([math.nan]), ulps=2)).all()


@given(st.floats(-760.0, 0.0))
@example(-745.2)
@example(-708.0)
@example(-708.3)
@moderately
def test_exp_above_is_above_and_close_even_among_the_smallest_floats(exponent: float) -> None:
    with digits():
        exact = mp.exp(mp.mpf(exponent))
        found = mp.mpf(exp_above(exponent))
        assert exact <= found <= max(exact * (1 + mp.mpf(10) ** -12), exact + mp.mpf(math.ulp(0.0)))
    assert exp_above(np.array([exponent]))[0] == exp_above(exponent)


@pytest.mark.parametrize("x", [0.0, 5e-324, 1e-200, 1.0, 1e200, 1e308])
@pytest.mark.parametrize("count", [1, 7, 10**9])
def test_the_root_of_squares_survives_squares_that_do_not(x: float, count: int) -> None:
    with digits():
        exact = mp.mpf(x) * mp.sqrt(count + mp.mpf(1) / 4)
        found = root_of_squares([(x / 2.0, 1), (x, count)])
        if exact > mp.mpf(1.7e308):
            assert found == math.inf
        else:
            assert abs(mp.mpf(found) - exact) <= max(exact * 4 * mp.mpf(2) ** -53, mp.mpf(math.ulp(0.0)))


def test_an_exact_sum_that_overflows_is_infinite() -> None:
    assert exact_sum([1e308, 1e308]) == math.inf
    assert exact_sum([1.0, 1e-17, 1e-17]) == 1.0
    assert exact_sum([1.0, 2.0**-54, 2.0**-54]) == 1.0
    assert exact_sum([1.0, *[2.0**-54] * 3]) == 1.0 + 2.0**-52
