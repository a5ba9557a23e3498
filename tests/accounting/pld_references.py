"""Hockey-stick divergences in mpmath, from closed forms, exact enumeration and quadrature."""

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import mpmath

Profile = Callable[[Any], Any]
"""δ as a function of ε, which may be negative."""

_kinks: dict[Profile, list[Any]] = {}
"""Where a profile is not smooth, for quadrature."""

mp = mpmath.MPContext()
"""A context of its own: other references choose another precision."""
mp.dps = 40


def gaussian(mu: float) -> Profile:
    m = mp.mpf(mu)
    return lambda s: mp.ncdf(m / 2 - s / m) - mp.exp(s) * mp.ncdf(-m / 2 - s / m)


def laplace(shift: float) -> Profile:
    d = mp.mpf(shift)

    def profile(s: Any) -> Any:
        if s >= d:
            return mp.mpf(0)
        return 1 - mp.exp(s) if s <= -d else 1 - mp.exp((s - d) / 2)

    _kinks[profile] = [-d, d]
    return profile


def bounded_range(epsilon: float) -> Profile:
    e = mp.mpf(epsilon)

    def profile(s: Any) -> Any:
        if s >= e:
            return mp.mpf(0)
        if s <= -e:
            return 1 - mp.exp(s)
        return (1 - mp.exp((s - e) / 2)) ** 2 / (1 - mp.exp(-e))

    _kinks[profile] = [-e, e]
    return profile


def nothing(s: Any) -> Any:
    return max(1 - mp.exp(s), mp.mpf(0))


def poisson(profile: Profile, rate: float) -> Profile:
    """((1−q)Q + qP, Q): q·H at (γ − 1 + q)/q."""
    q = mp.mpf(rate)

    def sampled(s: Any) -> Any:
        gamma = mp.exp(s)
        return q * profile(mp.log((gamma - 1 + q) / q)) if gamma > 1 - q else 1 - gamma

    inner = [mp.log(1 - q + q * mp.exp(at)) for at in _kinks.get(profile, [])]
    _kinks[sampled] = [mp.log(1 - q), *inner]
    return sampled


def reverse(profile: Profile) -> Profile:
    def reversed_(s: Any) -> Any:
        return 1 - mp.exp(s) + mp.exp(s) * profile(-s)

    _kinks[reversed_] = [-at for at in _kinks.get(profile, [])]
    return reversed_


def symmetric(profile: Profile) -> Profile:
    mirrored = reverse(profile)

    def both(s: Any) -> Any:
        return profile(s) if s >= 0 else mirrored(s)

    _kinks[both] = [mp.mpf(0), *(at for kink in _kinks.get(profile, []) for at in (kink, -kink))]
    return both


def mixed(parts: Sequence[tuple[float, Profile]]) -> Profile:
    return lambda s: mp.fsum(mp.mpf(weight) * profile(s) for weight, profile in parts)


def with_responses(profile: Profile, responses: Sequence[tuple[float, float]]) -> Profile:
    """The composition with (ε_i, δ_i) releases, by enumeration of their outcomes."""
    atoms: list[list[tuple[Any, Any]]] = []
    shown = mp.mpf(1)
    for epsilon, delta in responses:
        e, rest = mp.mpf(epsilon), 1 - mp.mpf(delta)
        truth = rest / (1 + mp.exp(-e))
        atoms.append([(e, truth), (-e, rest - truth)])
        shown *= rest
    outcomes: dict[Any, Any] = {}
    for draw in itertools.product(*atoms):
        loss = mp.fsum(each for each, _ in draw)
        outcomes[loss] = outcomes.get(loss, 0) + mp.fprod(mass for _, mass in draw)
    return lambda s: 1 - shown + mp.fsum(m * profile(s - loss) for loss, m in outcomes.items())


def with_laplace(profile: Profile, shift: float) -> Profile:
    """The composition with one Laplace release, by quadrature over its loss."""
    d = mp.mpf(shift)

    def profile_of_both(s: Any) -> Any:
        middle = mp.quad(lambda z: mp.exp((z - d) / 2) * profile(s - z), _pieces(profile, s, d)) / 4
        return profile(s - d) / 2 + mp.exp(-d) * profile(s + d) / 2 + middle

    return profile_of_both


def with_bounded_range(profile: Profile, epsilon: float) -> Profile:
    """The composition with one release of bounded range, by quadrature over its loss."""
    e = mp.mpf(epsilon)
    factor = 1 / (2 * (1 - mp.exp(-e)))

    def profile_of_both(s: Any) -> Any:
        pieces = _pieces(profile, s, e)
        return factor * mp.quad(lambda z: mp.exp((z - e) / 2) * profile(s - z), pieces)

    return profile_of_both


def _pieces(profile: Profile, s: Any, limit: Any) -> list[Any]:
    kinks = [s, *(s - at for at in _kinks.get(profile, []))]
    inner = [z for z in (-limit / 2, mp.mpf(0), limit / 2, *kinks) if -limit < z < limit]
    return [-limit, *sorted(set(inner)), limit]


def binomial_responses(epsilon: float, count: int) -> Profile:
    """Randomized response many times, by the binomial sum."""
    e = mp.mpf(epsilon)
    p = 1 / (1 + mp.exp(-e))

    def profile(s: Any) -> Any:
        terms = []
        for k in range(count + 1):
            loss = (2 * k - count) * e
            if loss > s:
                mass = mp.binomial(count, k) * p**k * (1 - p) ** (count - k)
                terms.append(mass * (1 - mp.exp(s - loss)))
        return mp.fsum(terms)

    return profile


def by_orders(rho: float) -> Profile:
    """min over α > 1 of s_α e^((α−1)(αρ − t)), at the α that a search finds for every t."""
    r = mp.mpf(rho)

    def slope(root: Any, s: Any) -> Any:
        """Of the logarithm in α = 1 + root; it rises."""
        return (2 * root + 1) * r - mp.log(1 + 1 / root) - s

    def profile(s: Any) -> Any:
        low, high = -200.0, 40.0
        for _ in range(60):  # floats first: log(α − 1) by halves
            middle = 0.5 * (low + high)
            rises = (2.0 * math.exp(middle) + 1.0) * rho - math.log1p(math.exp(-middle)) >= s
            low, high = (low, middle) if rises else (middle, high)
        root = mp.exp(mp.mpf(low))
        for _ in range(3):
            root -= slope(root, s) / (1 / (root * (root + 1)) + 2 * r)
        scale = root * mp.log(root) - (root + 1) * mp.log(root + 1)
        return mp.exp(scale + root * ((root + 1) * r - s))

    return profile


def concentrated(rho: float) -> Profile:
    """The greatest convex function below the bound by orders and its mirror image."""
    above = by_orders(rho)
    r = mp.mpf(rho)

    def total(root: Any) -> Any:
        return mp.exp(-r * root**2) + mp.exp(-r * (1 + root) ** 2) - 1

    # The sum falls from 1 + e^−ρ at 0; where both exponents exceed log 2 it is below 1.
    low, high = mp.mpf(0), mp.sqrt(mp.log(2) / r)
    for _ in range(150):
        middle = (low + high) / 2
        low, high = (middle, high) if total(middle) > 0 else (low, middle)
    kink = (2 * low + 1) * r - mp.log(1 + 1 / low)
    ends = (mp.exp(-kink), 1 - mp.exp(-kink) + mp.exp(-kink) * above(kink)), (mp.exp(kink), above(kink))

    def profile(s: Any) -> Any:
        if s >= kink:
            return above(s)
        if s <= -kink:
            return 1 - mp.exp(s) + mp.exp(s) * above(-s)
        share = (mp.exp(s) - ends[0][0]) / (ends[1][0] - ends[0][0])
        return ends[0][1] + share * (ends[1][1] - ends[0][1])

    _kinks[profile] = [-kink, kink]
    return profile


def with_gaussian(profile: Profile, mu: float) -> Profile:
    """The composition with a Gaussian, by quadrature over its loss μz + μ²/2, z from N(0, 1)."""
    m = mp.mpf(mu)

    def profile_of_both(s: Any) -> Any:
        kinks = [(s - at) / m - m / 2 for at in _kinks.get(profile, [])]
        inner = sorted({at for at in (mp.mpf(-4), mp.mpf(0), mp.mpf(4), *kinks) if -12 < at < 12})
        # Beyond 12 deviations the mass is 4e-33, and no profile exceeds 1.
        return mp.quad(lambda z: mp.npdf(z) * profile(s - m * z - m * m / 2), [-12, *inner, 12]) + 4e-33

    return profile_of_both
