"""Hockey-stick divergences in mpmath, from closed forms, exact enumeration and quadrature."""

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import mpmath

Profile = Callable[[Any], Any]
"""δ as a function of ε, which may be negative."""

_kinks: dict[Profile, list[Any]] = {}
"""Where a profile is not smooth, for quadrature."""

mpmath.mp.dps = 40


def gaussian(mu: float) -> Profile:
    m = mpmath.mpf(mu)
    return lambda s: mpmath.ncdf(m / 2 - s / m) - mpmath.exp(s) * mpmath.ncdf(-m / 2 - s / m)


def laplace(shift: float) -> Profile:
    d = mpmath.mpf(shift)

    def profile(s: Any) -> Any:
        if s >= d:
            return mpmath.mpf(0)
        return 1 - mpmath.exp(s) if s <= -d else 1 - mpmath.exp((s - d) / 2)

    _kinks[profile] = [-d, d]
    return profile


def bounded_range(epsilon: float) -> Profile:
    e = mpmath.mpf(epsilon)

    def profile(s: Any) -> Any:
        if s >= e:
            return mpmath.mpf(0)
        if s <= -e:
            return 1 - mpmath.exp(s)
        return (1 - mpmath.exp((s - e) / 2)) ** 2 / (1 - mpmath.exp(-e))

    _kinks[profile] = [-e, e]
    return profile


def nothing(s: Any) -> Any:
    return max(1 - mpmath.exp(s), mpmath.mpf(0))


def poisson(profile: Profile, rate: float) -> Profile:
    """((1−q)Q + qP, Q): q·H at (γ − 1 + q)/q."""
    q = mpmath.mpf(rate)

    def sampled(s: Any) -> Any:
        gamma = mpmath.exp(s)
        return q * profile(mpmath.log((gamma - 1 + q) / q)) if gamma > 1 - q else 1 - gamma

    inner = [mpmath.log(1 - q + q * mpmath.exp(at)) for at in _kinks.get(profile, [])]
    _kinks[sampled] = [mpmath.log(1 - q), *inner]
    return sampled


def reverse(profile: Profile) -> Profile:
    def reversed_(s: Any) -> Any:
        return 1 - mpmath.exp(s) + mpmath.exp(s) * profile(-s)

    _kinks[reversed_] = [-at for at in _kinks.get(profile, [])]
    return reversed_


def symmetric(profile: Profile) -> Profile:
    mirrored = reverse(profile)

    def both(s: Any) -> Any:
        return profile(s) if s >= 0 else mirrored(s)

    _kinks[both] = [mpmath.mpf(0), *(at for kink in _kinks.get(profile, []) for at in (kink, -kink))]
    return both


def mixed(parts: Sequence[tuple[float, Profile]]) -> Profile:
    return lambda s: mpmath.fsum(mpmath.mpf(weight) * profile(s) for weight, profile in parts)


def with_responses(profile: Profile, responses: Sequence[tuple[float, float]]) -> Profile:
    """The composition with (ε_i, δ_i) releases, by enumeration of their outcomes."""
    atoms: list[list[tuple[Any, Any]]] = []
    shown = mpmath.mpf(1)
    for epsilon, delta in responses:
        e, rest = mpmath.mpf(epsilon), 1 - mpmath.mpf(delta)
        truth = rest / (1 + mpmath.exp(-e))
        atoms.append([(e, truth), (-e, rest - truth)])
        shown *= rest
    outcomes: dict[Any, Any] = {}
    for draw in itertools.product(*atoms):
        loss = mpmath.fsum(each for each, _ in draw)
        outcomes[loss] = outcomes.get(loss, 0) + mpmath.fprod(mass for _, mass in draw)
    return lambda s: 1 - shown + mpmath.fsum(m * profile(s - loss) for loss, m in outcomes.items())


def with_laplace(profile: Profile, shift: float) -> Profile:
    """The composition with one Laplace release, by quadrature over its loss."""
    d = mpmath.mpf(shift)

    def profile_of_both(s: Any) -> Any:
        middle = mpmath.quad(lambda z: mpmath.exp((z - d) / 2) * profile(s - z), _pieces(profile, s, d)) / 4
        return profile(s - d) / 2 + mpmath.exp(-d) * profile(s + d) / 2 + middle

    return profile_of_both


def with_bounded_range(profile: Profile, epsilon: float) -> Profile:
    """The composition with one release of bounded range, by quadrature over its loss."""
    e = mpmath.mpf(epsilon)
    factor = 1 / (2 * (1 - mpmath.exp(-e)))

    def profile_of_both(s: Any) -> Any:
        pieces = _pieces(profile, s, e)
        return factor * mpmath.quad(lambda z: mpmath.exp((z - e) / 2) * profile(s - z), pieces)

    return profile_of_both


def _pieces(profile: Profile, s: Any, limit: Any) -> list[Any]:
    kinks = [s, *(s - at for at in _kinks.get(profile, []))]
    inner = [z for z in (-limit / 2, mpmath.mpf(0), limit / 2, *kinks) if -limit < z < limit]
    return [-limit, *sorted(set(inner)), limit]


def binomial_responses(epsilon: float, count: int) -> Profile:
    """Randomized response many times, by the binomial sum."""
    e = mpmath.mpf(epsilon)
    p = 1 / (1 + mpmath.exp(-e))

    def profile(s: Any) -> Any:
        terms = []
        for k in range(count + 1):
            loss = (2 * k - count) * e
            if loss > s:
                mass = mpmath.binomial(count, k) * p**k * (1 - p) ** (count - k)
                terms.append(mass * (1 - mpmath.exp(s - loss)))
        return mpmath.fsum(terms)

    return profile
