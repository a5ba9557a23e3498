"""Samples are what they are declared to be."""

import math
from fractions import Fraction

import numpy as np
import pytest

from dpledger_client import Full, Poisson, WithoutReplacement, insecure_testing_noise
from dpledger_client._bits import SeededBits, SystemBits
from dpledger_client.sampling import expected_size, permutation, poisson, without_replacement


@pytest.mark.parametrize("rate", [0.0, 1e-12, 0.001, 1 / 256, 0.3, 0.5, 255 / 256, 0.9999, 1.0])
def test_a_poisson_sample_is_of_different_indices_in_order(rate: float) -> None:
    drawn = poisson(5000, rate, SystemBits())

    assert (np.diff(drawn) > 0).all()
    assert drawn.size == 0 or (drawn[0] >= 0 and drawn[-1] < 5000)
    assert abs(drawn.size - 5000 * rate) <= 8.0 * math.sqrt(5000 * rate * (1.0 - rate)) + 1e-6


@pytest.mark.parametrize(
    ("rate", "byte", "later", "heads"),
    [
        (0.5, 127, 2**56 - 1, True),
        (0.5, 128, 0, False),
        (1 / 3, 85, int(Fraction(1 / 3) * 2**64) % 2**56 - 1, True),
        (1 / 3, 85, int(Fraction(1 / 3) * 2**64) % 2**56, False),
        (2.0**-60, 0, 15, True),
        (2.0**-60, 0, 16, False),
    ],
)
def test_a_coin_comes_up_below_the_rate_and_not_at_it(
    rate: float, byte: int, later: int, heads: bool
) -> None:
    class Script:
        def take(self, many: int) -> bytes:
            return bytes([byte]) if many == 1 else (later << 8).to_bytes(8, "little")[:many]

    assert poisson(1, rate, Script()).size == heads


def test_poisson_coins_are_independent_and_sizes_vary() -> None:
    bits = SeededBits(0)
    member = np.zeros((4000, 6))
    for row in member:
        row[poisson(6, 0.3, bits)] = 1.0

    correlations = np.asarray(np.corrcoef(member.T))[~np.eye(6, dtype=bool)]
    assert np.abs(member.mean(axis=0) - 0.3).max() < 0.03
    assert np.abs(correlations).max() < 0.06
    assert member.sum(axis=1).var() == pytest.approx(6 * 0.3 * 0.7, rel=0.1)


@pytest.mark.parametrize(("records", "size"), [(1, 0), (1, 1), (10, 3), (10, 8), (1000, 999), (50_000, 256)])
def test_a_sample_without_replacement_has_its_size_and_no_repetition(records: int, size: int) -> None:
    drawn = without_replacement(records, size, SystemBits())

    assert drawn.size == size
    assert (np.diff(drawn) > 0).all()
    assert size == 0 or (drawn[0] >= 0 and drawn[-1] < records)


@pytest.mark.parametrize("size", [2, 3])
def test_every_set_is_equally_likely(size: int) -> None:
    bits = SeededBits(1)
    many = 3000
    sets = [tuple(without_replacement(5, size, bits)) for _ in range(many)]

    counts = [sets.count(each) for each in sorted(set(sets))]
    assert len(counts) == 10
    assert sum((count - many / 10) ** 2 / (many / 10) for count in counts) < 35.0


def test_every_order_is_equally_likely() -> None:
    bits = SeededBits(2)
    many = 6000
    orders = [tuple(permutation(4, bits)) for _ in range(many)]

    counts = [orders.count(each) for each in sorted(set(orders))]
    assert len(counts) == 24
    assert sum((count - many / 24) ** 2 / (many / 24) for count in counts) < 65.0


def test_a_permutation_with_equal_keys_is_drawn_again() -> None:
    class Script:
        calls = 0

        def take(self, many: int) -> bytes:
            self.calls += 1
            return bytes(many) if self.calls == 1 else bytes(range(many))

    script = Script()

    assert sorted(permutation(3, script)) == [0, 1, 2]
    assert script.calls == 2


@pytest.mark.parametrize(("records", "size"), [(3, -1), (3, 4), (-1, 0)])
def test_sizes_are_checked(records: int, size: int) -> None:
    with pytest.raises(ValueError, match="must be in"):
        without_replacement(records, size, SystemBits())


@pytest.mark.parametrize("records", [1, 3, 7, 10, 48_842, 10**6 + 3])
def test_the_rate_of_a_fixed_size_is_never_below_it(records: int) -> None:
    for size in {0, 1, records // 3, records // 2, records - 1, records}:
        sample = WithoutReplacement.of_size(size, records)

        assert Fraction(sample.rate) * records >= size
        assert sample.rate <= math.nextafter(size / records, 2.0)
        assert sample.size(records) == size
        assert sample.expected_size(records) == size


def test_descriptions_draw_what_they_describe() -> None:
    assert Full().draw(4).tolist() == [0, 1, 2, 3]
    assert Full().expected_size(4) == 4.0
    assert Poisson(0.25).expected_size(1000) == expected_size(1000, 0.25) == 250.0
    with insecure_testing_noise(3):
        drawn = Poisson(0.5).draw(100)
    with insecure_testing_noise(3):
        assert drawn.tolist() == Poisson(0.5).draw(100).tolist()
    assert drawn.tolist() != Poisson(0.5).draw(100).tolist()
