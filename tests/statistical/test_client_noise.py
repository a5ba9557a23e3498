"""The noise that the client adds has the distribution that it declares.

Seeds are fixed, so a verdict never changes from run to run; the thresholds are those of a test that
would fail one time in ten thousand if the seed were drawn anew.
"""

import itertools
import math
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy import integrate, stats

from dpledger_client import insecure_testing_noise
from dpledger_client._arrays import Floats, Integers
from dpledger_client._bits import SeededBits
from dpledger_client._integers import (
    discrete_gaussian,
    discrete_laplace,
    rounded_gaussian,
    rounded_laplace,
)
from dpledger_client.mechanisms import (
    AboveThreshold,
    DiscreteGaussian,
    DiscreteLaplace,
    Exponential,
    Gaussian,
    Laplace,
    Mechanism,
    NoisyMax,
    NoisyVotes,
    OutputMixture,
    ProposeTestRelease,
    RandomizedResponse,
)
from dpledger_client.noise import current_noise

MANY = 200_000
CHOICES = 2000
UNLIKELY = 1e-4


class Continuous:
    """A noise with its density and distribution, in plain arithmetic because quadrature asks often."""

    def __init__(self, family: str, scale: float) -> None:
        self._family = family
        self._scale = scale

    def pdf(self, x: float) -> float:
        z = abs(x) / self._scale
        if self._family == "gaussian":
            return math.exp(-z * z / 2.0) / (self._scale * math.sqrt(2.0 * math.pi))
        return math.exp(-z) / (2.0 * self._scale)

    def sf(self, x: float) -> float:
        z = x / self._scale
        if self._family == "gaussian":
            return math.erfc(z / math.sqrt(2.0)) / 2.0
        return math.exp(-z) / 2.0 if z > 0.0 else 1.0 - math.exp(z) / 2.0

    def cdf(self, x: float) -> float:
        return self.sf(-x)


def _fits(drawn: Integers, probability: Callable[[Any], Any]) -> float:
    """The p-value of a chi-square test, rare values taken together."""
    values, counts = np.unique(drawn, return_counts=True)
    expected = drawn.size * probability(values)
    common = expected >= 10.0
    observed = np.append(counts[common], counts[~common].sum())
    wanted = np.append(expected[common], drawn.size - expected[common].sum())
    if wanted[-1] < 1.0:
        observed, wanted = observed[:-1], wanted[:-1] * observed[:-1].sum() / wanted[:-1].sum()
    return float(stats.chisquare(observed, wanted).pvalue)


def _cell(distribution: Any, width: float) -> Callable[[Any], Any]:
    """The probability of rounding to k, from the tail that keeps its digits."""

    def probability(k: Any) -> Any:
        size = np.abs(k)
        return distribution.sf((size - 0.5) / width) - distribution.sf((size + 0.5) / width)

    return probability


def _proportional(log_weight: Callable[[Any], Any]) -> Callable[[Any], Any]:
    total = np.exp(log_weight(np.arange(-5000, 5001))).sum()
    return lambda k: np.exp(log_weight(k)) / total


@pytest.mark.parametrize("std", [1.0, 4.3, 40.0])
def test_rounded_gaussian_noise_is_the_rounding_of_a_gaussian(std: float) -> None:
    drawn = rounded_gaussian(SeededBits(11), std, MANY)

    assert _fits(drawn, _cell(stats.norm, std)) > UNLIKELY


@pytest.mark.parametrize("scale", [1, 3, 40])
def test_rounded_laplace_noise_is_the_rounding_of_a_laplace(scale: int) -> None:
    drawn = rounded_laplace(SeededBits(12), scale, MANY)

    assert _fits(drawn, _cell(stats.laplace, scale)) > UNLIKELY


@pytest.mark.parametrize("std", [0.25, 0.5, 1.0, 2.9, 50.0])
def test_discrete_gaussian_noise_has_its_probabilities(std: float) -> None:
    drawn = discrete_gaussian(SeededBits(13), std, MANY)

    assert _fits(drawn, _proportional(lambda k: -np.square(k / std) / 2.0)) > UNLIKELY


@pytest.mark.parametrize("scale", [1, 2, 17])
def test_discrete_laplace_noise_has_its_probabilities(scale: int) -> None:
    drawn = discrete_laplace(SeededBits(14), scale, MANY)

    assert _fits(drawn, _proportional(lambda k: -np.abs(k) / scale)) > UNLIKELY


ADDITIVE: list[tuple[Mechanism, Any]] = [
    (Gaussian(1.0, 1.1), stats.norm(scale=1.1)),
    (Gaussian(3.0, 300.0), stats.norm(scale=300.0)),
    (Gaussian(0.0, 2.0), stats.norm(scale=2.0)),
    (Gaussian(1e-4, 1e-3), stats.norm(scale=1e-3)),
    (OutputMixture(0.7, (0.1, 1.0), (0.5, 0.5)), stats.norm(scale=0.7)),
    (Laplace(1.0, 2.5), stats.laplace(scale=2.5)),
    (Laplace(10.0, 0.01), stats.laplace(scale=0.01)),
]


def _noise(mechanism: Mechanism, seed: int, value: float = 0.3) -> Floats:
    with insecure_testing_noise(seed):
        released: Floats = mechanism.apply(np.full(MANY, value), current_noise())
    return released - value


@pytest.mark.parametrize(("mechanism", "distribution"), ADDITIVE)
def test_additive_noise_has_the_declared_scale(mechanism: Mechanism, distribution: Any) -> None:
    noise = _noise(mechanism, 21)

    assert stats.kstest(noise, distribution.cdf).pvalue > UNLIKELY
    # Four standard errors of a standard deviation, the wider of Gaussian and Laplace.
    assert noise.std() == pytest.approx(distribution.std(), rel=4.0 * math.sqrt(1.25 / MANY))
    assert abs(noise.mean()) < 4.0 * distribution.std() / math.sqrt(MANY)


@pytest.mark.parametrize(("mechanism", "distribution"), ADDITIVE)
def test_noise_is_independent_over_coordinates(mechanism: Mechanism, distribution: Any) -> None:
    noise = _noise(mechanism, 22) / distribution.std()

    for lag in (1, 2, 7):
        assert abs(np.mean(noise[lag:] * noise[:-lag])) < 4.0 / math.sqrt(MANY)
        assert abs(np.corrcoef(np.abs(noise[lag:]), np.abs(noise[:-lag]))[0, 1]) < 4.0 / math.sqrt(MANY)


def test_the_tails_are_there() -> None:
    """Beyond four standard deviations a Gaussian has 63 in a million; floating point often has fewer."""
    beyond = np.abs(_noise(Gaussian(1.0, 1.0), 23)) > 4.0
    far = np.abs(_noise(Laplace(1.0, 1.0), 24)) > 9.0

    assert stats.binomtest(int(beyond.sum()), MANY, 2 * stats.norm.sf(4.0)).pvalue > UNLIKELY
    assert stats.binomtest(int(far.sum()), MANY, math.exp(-9.0)).pvalue > UNLIKELY


def test_discrete_mechanisms_have_the_declared_scale() -> None:
    with insecure_testing_noise(25):
        gaussian = DiscreteGaussian(1.0, 6.0).apply(np.full(MANY, 5), current_noise()) - 5
        laplace = DiscreteLaplace(1.0, 6).apply(np.full(MANY, 5), current_noise()) - 5

    assert gaussian.std() == pytest.approx(6.0, rel=0.01)
    assert np.abs(laplace).mean() == pytest.approx(1.0 / math.sinh(1.0 / 6.0), rel=0.01)


def _choices(mechanism: Mechanism, scores: Any) -> list[int]:
    with insecure_testing_noise(31):
        counts = Counter(mechanism.apply(scores, current_noise()) for _ in range(CHOICES))
    return [counts[index] for index in range(len(scores))]


def _agrees(counts: list[int], probabilities: Any) -> bool:
    expected = np.asarray(probabilities) * sum(counts)
    return bool(stats.chisquare(counts, expected * sum(counts) / expected.sum()).pvalue > UNLIKELY)


SCORES = [0.0, 0.7, -1.0, 0.4]


def test_gumbel_noise_chooses_as_the_exponential_mechanism() -> None:
    weights = np.exp(np.array(SCORES) / 0.8)

    assert _agrees(_choices(NoisyMax("gumbel", 1.0, 0.8), SCORES), weights / weights.sum())


@pytest.mark.parametrize("monotonic", [False, True])
def test_the_exponential_mechanism_chooses_by_its_epsilon(monotonic: bool) -> None:
    weights = np.exp(np.array(SCORES) * 1.5 / (0.5 if monotonic else 1.0))
    mechanism = Exponential(1.5, sensitivity=0.5, monotonic=monotonic)

    assert _agrees(_choices(mechanism, SCORES), weights / weights.sum())


def _noisy_max(density: Callable[[float], float], below: Callable[[float], float]) -> list[float]:
    """The probability that each score is the largest after continuous noise, by quadrature."""
    found = []
    for index, score in enumerate(SCORES):
        others = SCORES[:index] + SCORES[index + 1 :]

        def win(x: float, score: float = score, others: list[float] = others) -> float:
            return density(x) * math.prod(below(x + score - other) for other in others)

        corners = [other - score for other in others] + [0.0]
        found.append(integrate.quad(win, -40.0, 40.0, points=sorted(set(corners)), limit=400)[0])
    return found


def test_exponential_noise_chooses_as_the_continuous_one_does() -> None:
    wanted = _noisy_max(
        lambda x: math.exp(-x / 0.8) / 0.8 if x > 0.0 else 0.0,
        lambda x: -math.expm1(-x / 0.8) if x > 0.0 else 0.0,
    )

    assert sum(wanted) == pytest.approx(1.0, abs=1e-6)
    assert _agrees(_choices(NoisyMax("exponential", 1.0, 0.8), SCORES), wanted)


def test_laplace_noise_chooses_as_the_continuous_one_does() -> None:
    noise = Continuous("laplace", 0.8)
    wanted = _noisy_max(noise.pdf, noise.cdf)

    assert sum(wanted) == pytest.approx(1.0, abs=1e-6)
    assert _agrees(_choices(NoisyMax("laplace", 1.0, 0.8), SCORES), wanted)


def test_permute_and_flip_has_its_probabilities() -> None:
    """Enumerated: over all orders, the first coin that comes up."""
    coins = np.exp((np.array(SCORES) - max(SCORES)) / 0.8)
    chances = np.zeros(len(SCORES))
    for order in itertools.permutations(range(len(SCORES))):
        left = 1.0
        for index in order:
            chances[index] += left * coins[index] / math.factorial(len(SCORES))
            left *= 1.0 - coins[index]

    assert _agrees(_choices(NoisyMax("exponential", 1.0, 0.8), SCORES), chances)


@pytest.mark.parametrize(
    ("mechanism", "noise"),
    [
        (NoisyVotes("laplace", scale=3.0), Continuous("laplace", 3.0)),
        (NoisyVotes("gaussian", noise_std=3.0), Continuous("gaussian", 3.0)),
    ],
)
def test_noisy_votes_are_as_noisy_as_declared(mechanism: Mechanism, noise: Continuous) -> None:
    first = integrate.quad(lambda x: noise.pdf(x) * noise.cdf(x + 4.0), -60.0, 60.0, points=[-4.0, 0.0])[0]

    assert _agrees(_choices(mechanism, [12, 8]), [first, 1.0 - first])


@pytest.mark.parametrize("epsilon", [0.0, 0.5, 3.0])
def test_a_truth_value_is_turned_as_often_as_declared(epsilon: float) -> None:
    with insecure_testing_noise(41):
        answers = RandomizedResponse(epsilon).apply(np.ones(MANY, dtype=bool), current_noise())

    turned = MANY - int(answers.sum())
    assert stats.binomtest(turned, MANY, 1.0 / (1.0 + math.exp(epsilon))).pvalue > UNLIKELY


QUERIES = [-1.0, 0.5, 0.2]


def _stops(threshold: Continuous | None, query: Continuous) -> list[float]:
    """The probability of stopping at each query, or at none, integrated over the threshold's noise."""

    def at(bar: float) -> list[float]:
        left, found = 1.0, []
        for value in QUERIES:
            above = query.sf(bar - value)
            found.append(left * above)
            left *= 1.0 - above
        return [*found, left]

    if threshold is None:
        return at(0.0)
    return [
        integrate.quad(lambda x, k=k: threshold.pdf(x) * at(x)[k], -40.0, 40.0, points=[0.0, *QUERIES])[0]
        for k in range(len(QUERIES) + 1)
    ]


@pytest.mark.parametrize("family", ["laplace", "gaussian"])
@pytest.mark.parametrize("scales", [(1.0, 2.0), (0.0, 2.0), (3.0, 0.5)])
def test_a_search_stops_where_the_continuous_one_does(family: str, scales: tuple[float, float]) -> None:
    threshold = Continuous(family, scales[0]) if scales[0] else None
    mechanism = AboveThreshold(family, 1.0, *scales, max_queries=3)
    with insecure_testing_noise(51):
        counts = Counter(mechanism.apply(QUERIES, current_noise()) for _ in range(CHOICES // 2))

    wanted = _stops(threshold, Continuous(family, scales[1]))
    assert _agrees([counts[index] for index in (0, 1, 2, None)], wanted)


@pytest.mark.parametrize("distance", [0, 7])
def test_a_test_of_stability_passes_as_often_as_it_may(distance: int) -> None:
    epsilon, delta, many = 0.5, 0.02, CHOICES
    with insecure_testing_noise(61):
        passed = sum(
            ProposeTestRelease(epsilon, delta).apply((distance, True), current_noise()) is True
            for _ in range(many)
        )

    chance = Continuous("laplace", 1.0 / epsilon).sf(-math.log(delta) / epsilon - distance)
    assert stats.binomtest(passed, many, chance).pvalue > UNLIKELY
    assert distance or chance == pytest.approx(delta / 2.0)
