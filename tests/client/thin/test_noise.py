"""Noise lies on a public grid, is wide enough for it, and is drawn without floating-point error."""

import decimal
import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from dpledger_client import _coins, insecure_testing_noise, no_noise_for_testing
from dpledger_client._bits import SeededBits, SystemBits
from dpledger_client._integers import (
    discrete_gaussian,
    discrete_laplace,
    floor_exponential,
    rounded_gaussian,
    rounded_laplace,
)
from dpledger_client.noise import Grid, Noise, NoNoise, ThresholdNoise, _widen, current_noise

SIZES = [(3.0, 300.0, 1), (1.0, 1.1, 124), (1.0, 0.3, 10_000), (1e-3, 7.0, 50), (0.0, 2.5, 3), (1e6, 1e-6, 2)]


class Script:
    """Bits that were written down beforehand; the last goes on for ever."""

    def __init__(self, *words: int) -> None:
        self._words = list(words)

    def take(self, many: int) -> bytes:
        word = self._words.pop(0) if len(self._words) > 1 else self._words[0]
        return (word % (1 << 8 * many)).to_bytes(many, "little")


def _exp(value: Fraction) -> Fraction:
    context = decimal.Context(prec=80)
    quotient = context.divide(decimal.Decimal(value.numerator), decimal.Decimal(value.denominator))
    return Fraction(context.exp(-quotient))


@pytest.mark.parametrize("exponent", [Fraction(0), Fraction(1, 3), Fraction(1), Fraction(7, 2), Fraction(30)])
@pytest.mark.parametrize("away", [-2, -1, 0, 1, 2])
def test_a_coin_comes_up_exactly_below_its_probability(exponent: Fraction, away: int) -> None:
    """A uniform number right at e^(−x) is on the side where arithmetic of 80 digits puts it."""
    at = int(_exp(exponent) * 2**96) + away
    at = min(max(at, 0), 2**96 - 1)
    first, later = divmod(at, 2**64)
    exponents = np.array([float(exponent)])

    (heads,) = _coins.exp_coins(Script(first, later, 0), exponents, lambda *_: (exponent, exponent))

    assert heads == (Fraction(at, 2**96) < _exp(exponent))


@pytest.mark.parametrize("exponent", [1000, 10**8, 10**300])
def test_a_coin_that_begins_with_zeros_is_decided_however_small_its_probability(exponent: int) -> None:
    """One in 2³² does. The digits of e^(−10⁸) would fill the memory; the bits drawn are enough."""
    exponents, exactly = np.array([float(exponent)]), (Fraction(exponent), Fraction(exponent))

    for words in ((0, 1, 0), (0, 0, 0, 1, 0)):
        assert not _coins.exp_coins(Script(*words), exponents, lambda *_: exactly).any()


@pytest.mark.parametrize("count", [1, 2, 5, 21, 22, 30])
@pytest.mark.parametrize("away", [-1, 1])
def test_successes_are_counted_exactly(count: int, away: int) -> None:
    """Right below e^(−v) there are v successes, right above one fewer."""
    first, later = divmod(int(_exp(Fraction(count)) * 2**96) + away, 2**64)

    assert _coins.geometric(Script(first, later, 0), 1) == [count if away < 0 else count - 1]


def test_the_rest_of_a_coin_that_the_first_bits_leave_open_is_drawn_when_it_is_needed() -> None:
    exponent = Fraction(1, 2)
    at = int(_exp(exponent) * 2**160)
    words = [at >> 128, (at >> 64) % 2**64, at % 2**64]

    for last, expected in ((words[2] - 1, True), (words[2] + 1, False)):
        script = Script(words[0], words[1], last, 0)
        assert [expected] == _coins.exp_coins(script, np.array([0.5]), lambda *_: (exponent, exponent))


SAMPLERS: list[Callable[[Any, int], Any]] = [
    lambda bits, many: rounded_gaussian(bits, 2.0**20 * 1.37, many),
    lambda bits, many: discrete_gaussian(bits, 3.7, many),
    lambda bits, many: discrete_gaussian(bits, 0.4, many),
    lambda bits, many: rounded_laplace(bits, 2**20 + 7, many),
    lambda bits, many: discrete_laplace(bits, 3, many),
]


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_the_exact_way_and_the_fast_way_have_the_same_distribution(
    sampler: Callable[[Any, int], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With no trust in floating point at all, every coin is decided by exact arithmetic."""
    fast = sampler(SeededBits(1), 40_000)
    monkeypatch.setattr(_coins, "MARGIN", 1.0)
    exact = sampler(SeededBits(2), 600)

    database_targets = np.quantile(fast, [0.1, 0.25, 0.5, 0.75, 0.9])
    shares = [
        (np.mean(exact <= database_target), np.mean(fast <= database_target))
        for database_target in database_targets
    ]
    assert max(abs(one - other) for one, other in shares) < 0.09


def test_successes_that_need_more_bits_get_them() -> None:
    at = int(_exp(Fraction(3)) * 2**160)
    words = [at >> 128, (at >> 64) % 2**64]

    for last, expected in ((at % 2**64 - 1, 3), (at % 2**64 + 1, 2)):
        assert _coins.geometric(Script(*words, last, 0), 1) == [expected]


@pytest.mark.parametrize("choose", [Noise.gumbel_choice, Noise.exponential_choice])
def test_choices_by_exact_arithmetic_alone_are_as_before(
    choose: Callable[..., int], monkeypatch: pytest.MonkeyPatch
) -> None:
    scores = np.log([1.0, 2.0, 5.0])
    monkeypatch.setattr(_coins, "MARGIN", 1.0)
    noise = Noise(SeededBits(9))

    chosen = [choose(noise, scores, 1.0) for _ in range(600)]
    assert 0.5 < chosen.count(2) / 600 < 0.8
    assert 0.05 < chosen.count(0) / 600 < 0.2


def test_a_decision_by_exact_arithmetic_is_the_decision_by_floating_point(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """From the same 32 bits: where the fast way decides, the exact way says the same."""
    exponents = np.linspace(0.0, 12.0, 400)

    def coins() -> Any:
        return _coins.exp_coins(SeededBits(3), exponents, lambda i, _: (Fraction(exponents[i]),) * 2)

    fast = coins()
    monkeypatch.setattr(_coins, "MARGIN", 1.0)

    assert 20 < fast.sum() < 380
    assert np.array_equal(coins(), fast)


@pytest.mark.parametrize("many", [0, 1, 5, 1000])
@pytest.mark.parametrize("sampler", SAMPLERS)
def test_as_many_are_drawn_as_are_asked_for(sampler: Callable[[Any, int], Any], many: int) -> None:
    assert sampler(SystemBits(), many).shape == (many,)


@pytest.mark.parametrize("scale", [1, 2, 3, 1000])
def test_the_integer_part_of_an_exponential_has_its_mean(scale: int) -> None:
    drawn = floor_exponential(SeededBits(4), scale, 100_000)

    assert drawn.min() == 0
    assert drawn.mean() == pytest.approx(1.0 / math.expm1(1.0 / scale), rel=0.02)


@pytest.mark.parametrize(("sensitivity", "width", "size"), SIZES)
def test_a_release_lies_on_the_grid(sensitivity: float, width: float, size: int) -> None:
    value = np.random.default_rng(0).normal(scale=10.0, size=size)
    for draw, growth in ((Noise.gaussian, math.isqrt(size - 1) + 1), (Noise.laplace, size)):
        grid, _ = _widen(sensitivity, width, growth)
        released = draw(current_noise(), value, sensitivity, width)

        steps = np.ldexp(released, -grid.exponent)
        assert (np.mod(steps, 1.0) == 0.0).all()


@pytest.mark.parametrize(("sensitivity", "width", "size"), SIZES)
@pytest.mark.parametrize("power", [1, 2])
def test_noise_is_wider_by_what_the_rounding_adds_and_hardly_more(
    sensitivity: float, width: float, size: int, power: int
) -> None:
    """(Δ + γ·growth) / noise ≤ Δ / declared noise, in exact arithmetic."""
    growth = size if power == 1 else math.isqrt(size - 1) + 1
    grid, steps = _widen(sensitivity, width, growth)
    noise = steps * grid.step

    assert growth**power >= size
    assert (Fraction(sensitivity) + grid.step * growth) * Fraction(width) <= Fraction(
        sensitivity
    ) * noise or (sensitivity == 0.0 and noise == Fraction(width))
    assert noise <= Fraction(width) * Fraction(1 + 2**-18)
    assert 2**16 <= steps <= 2**46


def test_rounding_moves_neighbours_apart_by_at_most_a_step_a_coordinate() -> None:
    generator = np.random.default_rng(1)
    grid = Grid(-7)
    one = generator.normal(size=(2000,))
    other = one + generator.normal(scale=0.01, size=one.size)

    apart = np.abs(grid.rounded(one) - grid.rounded(other)) - np.abs(one - other)
    assert apart.max() <= 2.0**-7
    assert apart.max() > 2.0**-8


@pytest.mark.parametrize("value", [0.0, -0.0, 1e300, -1e300, 5e-324, 2.0**52, 0.5, 1.5, -2.5])
@pytest.mark.parametrize("exponent", [-1000, -40, 0, 40])
def test_any_double_is_rounded_to_the_nearest_multiple(value: float, exponent: int) -> None:
    step = Fraction(2) ** exponent
    rounded = Fraction(float(Grid(exponent).rounded(np.array(value))))

    assert rounded % step == 0
    assert abs(rounded - Fraction(value)) * 2 <= step


@pytest.mark.parametrize("value", [math.nan, math.inf, [1.0, -math.inf]])
def test_what_is_not_finite_is_not_released(value: Any) -> None:
    for noise in (current_noise(), NoNoise(SystemBits())):
        for draw in (noise.gaussian, noise.laplace):
            with pytest.raises(ValueError, match="finite"):
                draw(value, 1.0, 1.0)


@pytest.mark.parametrize("value", [0.5, 2.0**53, [1.0, 0.1]])
def test_discrete_noise_is_for_whole_numbers(value: Any) -> None:
    with pytest.raises(ValueError, match="whole"):
        current_noise().discrete_gaussian(value, 1.0)


def test_noise_that_is_out_of_all_proportion_is_refused() -> None:
    with pytest.raises(ValueError, match="too small"):
        current_noise().gaussian(0.0, 1.0, 1e-300)
    with pytest.raises(ValueError, match="too large"):
        current_noise().gaussian(0.0, 1e-20, 1.0)
    with pytest.raises(ValueError, match="within a factor"):
        ThresholdNoise("laplace", 1.0, 1e12, 1.0).widths()


@pytest.mark.parametrize("width", [2**53, 2**60, 2**62, 2**70])
def test_discrete_noise_too_wide_for_its_integers_is_refused(width: int) -> None:
    """Beyond 2⁶³ an integer becomes negative: at 2⁶² the noise would be a quarter narrower than declared."""
    with pytest.raises(ValueError, match="too large"):
        current_noise().discrete_laplace(0, width)
    with pytest.raises(ValueError, match="too large"):
        current_noise().discrete_gaussian(0, float(width))


def test_shapes_are_kept() -> None:
    noise = current_noise()
    for shape in [(), (0,), (3,), (2, 3)]:
        value = np.zeros(shape)
        assert noise.gaussian(value, 1.0, 1.0).shape == shape
        assert noise.laplace(value, 1.0, 1.0).shape == shape
        assert noise.discrete_gaussian(value, 1.0).shape == shape
        assert noise.discrete_laplace(value, 2).shape == shape
        assert noise.flip(value, 1.0).shape == shape


@pytest.mark.parametrize("sensitivity", [0.5, 0.3, 1e-4])
@pytest.mark.parametrize(("threshold", "query"), [(1.0, 2.0), (0.0, 5.0), (100.0, 0.1)])
def test_the_noises_of_a_search_leave_room_for_the_grid(
    sensitivity: float, threshold: float, query: float
) -> None:
    """Every share of the sensitivity has a multiple of the grid's step that serves in its place."""
    grid, threshold_steps, query_steps = ThresholdNoise("laplace", sensitivity, threshold, query).widths()
    declared, rounded = Fraction(sensitivity), Fraction(sensitivity) + grid.step

    for share in (Fraction(0), Fraction(1, 3), Fraction(15, 16), Fraction(99, 100), Fraction(1)):
        exact = share * rounded / grid.step
        shift = grid.step * (math.floor(exact) if share <= Fraction(15, 16) else math.ceil(exact))
        assert shift * Fraction(threshold) <= share * declared * threshold_steps * grid.step
        for continuous, gridded in (
            ((1 - share) * declared, rounded - shift),
            ((1 + share) * declared, rounded + shift),
        ):
            assert gridded * Fraction(query) <= continuous * query_steps * grid.step
    assert query_steps * grid.step <= Fraction(query) * Fraction(1 + 2**-14)


def test_a_search_with_wide_margins_finds_the_first() -> None:
    plan = ThresholdNoise("laplace", 1.0, 1.0, 2.0)

    assert current_noise().first_above([-1e6, -1e6, 1e6, 1e6], 0.0, plan) == 2
    assert current_noise().first_above([-1e6], 0.0, plan) is None
    with pytest.raises(ValueError, match="finite"):
        current_noise().first_above([math.nan], 0.0, plan)


@pytest.mark.parametrize("choose", [Noise.gumbel_choice, Noise.exponential_choice])
def test_a_far_better_candidate_is_chosen(choose: Callable[..., int]) -> None:
    assert choose(current_noise(), [0.0, 5000.0, -1e308], 1.0) == 1


@pytest.mark.parametrize("scores", [[], [[1.0, 2.0]], [math.nan]])
def test_candidates_are_checked(scores: Any) -> None:
    for noise in (current_noise(), NoNoise(SystemBits())):
        with pytest.raises(ValueError, match=r"candidate|finite"):
            noise.gumbel_choice(scores, 1.0)


def test_a_stable_result_passes_and_an_unstable_one_does_not() -> None:
    assert current_noise().passes(10_000, 1.0, 1e-6)
    assert not current_noise().passes(0, 1.0, 1e-300)
    assert NoNoise(SystemBits()).passes(14, 1.0, 1e-6)
    assert not NoNoise(SystemBits()).passes(13, 1.0, 1e-6)


def test_by_default_noise_is_the_operating_systems_and_never_the_same() -> None:
    assert isinstance(current_noise().bits, SystemBits)
    assert len({float(current_noise().gaussian(0.0, 1.0, 1.0)) for _ in range(20)}) == 20


def test_a_seed_is_in_force_only_within_the_testing_mode() -> None:
    def draw() -> list[float]:
        return list(current_noise().gaussian(np.zeros(3), 1.0, 1.0))

    with insecure_testing_noise(5):
        first = draw()
        with insecure_testing_noise(6):
            other = draw()
    with insecure_testing_noise(5):
        again = draw()

    assert first == again != other
    assert draw() not in (first, other)


def test_without_noise_values_come_out_as_they_are() -> None:
    value = np.array([0.1, 0.2])
    with no_noise_for_testing():
        noise = current_noise()
        assert noise.gaussian(value, 1.0, 9.0).tolist() == value.tolist()
        assert noise.laplace(value, 1.0, 9.0).tolist() == value.tolist()
        assert noise.discrete_gaussian([3], 9.0).tolist() == [3]
        assert noise.discrete_laplace([3], 9).tolist() == [3]
        assert noise.flip([True, False], 0.1).tolist() == [True, False]
        assert [noise.gumbel_choice(value, 9.0), noise.exponential_choice(value, 9.0)] == [1, 1]
        assert noise.laplace_choice(value, 1.0, 9.0) == 1
    assert type(current_noise()) is Noise


def test_a_seed_without_noise_fixes_samples_and_leaves_noise_off() -> None:
    with no_noise_for_testing(), insecure_testing_noise(1):
        assert isinstance(current_noise(), NoNoise)
        assert isinstance(current_noise().bits, SeededBits)
    with insecure_testing_noise(1), no_noise_for_testing():
        assert isinstance(current_noise(), NoNoise)
        assert isinstance(current_noise().bits, SeededBits)
