"""Speed and tightness of privacy-loss distributions beside dp-accounting, Opacus PRV and prv_accountant.

Four tasks, measured in one run, trials of all libraries interleaved, a few calls of each in a row: what a
library leaves in the processor's caches is not charged to the next alone.

- plan: ε of 1,000 steps of the Poisson-subsampled Gaussian, q = 0.01, σ = 1.1, at δ = 1e-5;
- long: the same for 10,000 steps;
- mixed: 20 distinct steps, 50 times each;
- calibration: the σ for ε = 1 at δ = 1e-5 in 1,000 steps, q = 0.01.

Every peer is asked at several settings. The last line says how many times faster than the fastest
peer setting whose answer is within 0.1 % of ours, or below it, this package is at its default tolerance; a
second row shows it at the tolerance at which no peer's ε is below.
"""

import functools
import statistics
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from dpledger.accounting.mechanisms import Gaussian
from dpledger.accounting.pld.calibration import least_noise
from dpledger.accounting.pld.catalogue import dominating_pairs
from dpledger.accounting.pld.distribution import TOLERANCE
from dpledger.accounting.pld.plan import PlanLoss
from dpledger.accounting.sampling import Sample, Scheme
from dpledger.accounting.steps import Release, Step

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import dp_accounting
    from dp_accounting.pld import PLDAccountant, privacy_loss_distribution
    from opacus.accountants import PRVAccountant as OpacusAccountant
    from opacus.accountants.utils import get_noise_multiplier
    from prv_accountant import PoissonSubsampledGaussianMechanism, PRVAccountant

RATE, NOISE, DELTA, EPSILON = 0.01, 1.1, 1e-5, 1.0
MIXED = [(RATE + 0.002 * i, 1.0 + 0.1 * i, 50) for i in range(20)]
OURS = "dpledger"
CLOSE = 1e-3
FINE = 4e-6
CONSECUTIVE = 3

Parts = list[tuple[float, float, int]]
"""Rate, noise and count of each item."""


@dataclass
class Task:
    """One problem put to every library and setting."""

    name: str
    unit: str
    ask: dict[str, Callable[[], float]]
    trials: int = 7
    seconds: dict[str, list[float]] = field(default_factory=dict)
    found: dict[str, float] = field(default_factory=dict)

    def run(self) -> None:
        for _ in range(self.trials):
            for name in self.ask:
                for _ in range(CONSECUTIVE):
                    self.time(name)

    def time(self, name: str) -> None:
        """Take the time of one call, which finds nothing remembered from the last."""
        dominating_pairs.cache_clear()
        start = time.perf_counter()
        self.found[name] = self.ask[name]()
        self.seconds.setdefault(name, []).append(time.perf_counter() - start)

    def median(self, name: str) -> float:
        return statistics.median(self.seconds[name])

    def ratio(self) -> float:
        """The fastest as tight peer's time over ours."""
        ours = self.found[OURS]
        tight = [
            name
            for name in self.ask
            if not name.startswith(OURS) and self.found[name] <= ours * (1.0 + CLOSE)
        ]
        return min(self.median(name) for name in tight) / self.median(OURS)

    def show(self) -> None:
        print(f"{self.name}\n{'':<28}{'median ms':>12}{'times ours':>12}{self.unit:>14}")
        for name in self.ask:
            times = self.median(name) / self.median(OURS)
            print(f"{name:<28}{1e3 * self.median(name):>12.3f}{times:>12.1f}{self.found[name]:>14.7f}")
        print()


def step(rate: float, noise: float) -> Step:
    return Step((Release(Gaussian(1.0, noise)),), Sample(Scheme.POISSON, rate))


def ours(parts: Parts, tolerance: float = TOLERANCE) -> float:
    steps = [(step(rate, noise), times) for rate, noise, times in parts]
    return PlanLoss(steps).epsilon(DELTA, tolerance=tolerance)


def by_dp_accounting(parts: Parts, interval: float) -> float:
    composed: Any = None
    for rate, noise, times in parts:
        loss = privacy_loss_distribution.from_gaussian_mechanism(
            noise, sampling_prob=rate, value_discretization_interval=interval
        ).self_compose(times)
        composed = loss if composed is None else composed.compose(loss)
    return float(composed.get_epsilon_for_delta(DELTA))


def by_opacus(parts: Parts, error: float) -> float:
    accountant = OpacusAccountant()
    accountant.history = [(noise, rate, times) for rate, noise, times in parts]
    return float(accountant.get_epsilon(DELTA, eps_error=error, delta_error=DELTA / 1000))


def by_prv_accountant(parts: Parts, error: float) -> float:
    mechanisms = [
        PoissonSubsampledGaussianMechanism(noise_multiplier=noise, sampling_probability=rate)
        for rate, noise, _ in parts
    ]
    counts = [times for _, _, times in parts]
    accountant = PRVAccountant(
        prvs=mechanisms, max_self_compositions=counts, eps_error=error, delta_error=DELTA / 1000
    )
    return float(accountant.compute_epsilon(delta=DELTA, num_self_compositions=counts)[2])


def our_noise() -> float:
    return least_noise(lambda noise: step(RATE, noise), EPSILON, DELTA, times=1000)


def noise_by_dp_accounting(interval: float) -> float:
    def event(noise: float) -> Any:
        sampled = dp_accounting.PoissonSampledDpEvent(RATE, dp_accounting.GaussianDpEvent(noise))
        return dp_accounting.SelfComposedDpEvent(sampled, 1000)

    return float(
        dp_accounting.calibrate_dp_mechanism(
            lambda: PLDAccountant(value_discretization_interval=interval), event, EPSILON, DELTA, tol=1e-4
        )
    )


def noise_by_opacus(error: float) -> float:
    return float(
        get_noise_multiplier(
            target_epsilon=EPSILON,
            target_delta=DELTA,
            sample_rate=RATE,
            steps=1000,
            accountant="prv",
            epsilon_tolerance=1e-3,
            eps_error=error,
        )
    )


def composition(name: str, parts: Parts, *, trials: int) -> Task:
    ask: dict[str, Callable[[], float]] = {
        OURS: lambda: ours(parts),
        f"{OURS} {FINE:g}": lambda: ours(parts, FINE),
    }
    for interval in (1e-3, 1e-4):
        ask[f"dp-accounting {interval:g}"] = functools.partial(by_dp_accounting, parts, interval)
    for error in (0.1, 0.01):
        ask[f"Opacus PRV {error:g}"] = functools.partial(by_opacus, parts, error)
        ask[f"prv_accountant {error:g}"] = functools.partial(by_prv_accountant, parts, error)
    return Task(name, "ε", ask, trials)


def main() -> None:
    tasks = {
        "plan": composition("1,000 steps, q = 0.01, σ = 1.1", [(RATE, NOISE, 1000)], trials=7),
        "long": composition("10,000 steps, q = 0.01, σ = 1.1", [(RATE, NOISE, 10_000)], trials=3),
        "mixed": composition("20 distinct items, 50 times each", MIXED, trials=3),
        "calibration": Task(
            "σ for ε = 1 in 1,000 steps, q = 0.01",
            "σ",
            {
                OURS: our_noise,
                "dp-accounting 0.001": lambda: noise_by_dp_accounting(1e-3),
                "dp-accounting 0.0001": lambda: noise_by_dp_accounting(1e-4),
                "Opacus PRV 0.01": lambda: noise_by_opacus(0.01),
            },
            trials=3,
        ),
    }
    for task in tasks.values():
        task.run()
        task.show()
    print("ratio " + " ".join(f"{name}={task.ratio():.1f}" for name, task in tasks.items()))


if __name__ == "__main__":
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        main()
