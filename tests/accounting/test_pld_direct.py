"""Sums of few losses term by term, and the twiddles of the transform that replaces them for more."""

import itertools
from fractions import Fraction

import numpy as np
import pytest
from scipy import fft

from dpledger.accounting.pld.direct import Law, count_terms, direct_sum
from dpledger.accounting.pld.transform import _transform_error


def test_sums_are_those_of_exact_arithmetic_within_their_error() -> None:
    random_ = np.random.default_rng(3)
    parts = [
        (Law.of(np.arange(40), random_.random(40) ** 9), 2),
        (Law.of(np.array([0, 5, 90]), np.array([1e-200, 0.0, 0.75])), 1),
    ]
    found = direct_sum(parts, 1 << 20)
    assert found is not None
    exact = {0: Fraction(1)}
    for law, times in parts:
        for _ in range(times):
            grown: dict[int, Fraction] = {}
            for (at, mass), index in itertools.product(exact.items(), range(law.weights.size)):
                place = at + int(law.positions[index])
                grown[place] = grown.get(place, Fraction(0)) + mass * Fraction(float(law.weights[index]))
            exact = grown
    assert found.positions.tolist() == sorted(exact)
    for position, weight in zip(found.positions.tolist(), found.weights.tolist(), strict=True):
        assert abs(Fraction(weight) / exact[position] - 1) <= Fraction(found.log_error)
    assert 0.0 < found.log_error < 1e-13
    assert found.dense(200)[found.positions].tolist() == found.weights.tolist()


def test_too_many_terms_are_left_to_the_transform() -> None:
    law = Law.of(np.arange(100), np.full(100, 0.01))
    assert direct_sum([(law, 2)], 10_000) is not None
    assert direct_sum([(law, 2)], 9_999) is None
    assert count_terms([(100.0, 100.0)] * 2) == 10_000.0
    assert count_terms([(100.0, 100.0)] * 3) == 10_000.0 + 100.0 * 200.0


@pytest.mark.parametrize("size", [2**10, 3 * 2**10, 2**15, 3 * 2**16, 2**19])
@pytest.mark.parametrize("share", [0.0, 0.13, 0.37, 0.5, 0.81])
def test_transforms_of_impulses_are_roots_of_unity_within_a_third_of_the_stated_error(
    size: int, share: float
) -> None:
    """In long doubles, by the remainder of index times frequency."""
    place = int(share * size) | 1
    impulse = np.zeros(size)
    impulse[place] = 1.0
    found = fft.rfft(impulse)
    turns = (np.arange(size // 2 + 1, dtype=np.int64) * place) % size
    angles = turns.astype(np.longdouble) * (8 * np.arctan(np.longdouble(1)) / size)
    error = np.hypot(found.real - np.cos(angles), found.imag + np.sin(angles))
    assert float(error.max()) <= _transform_error(size) / 3.0
