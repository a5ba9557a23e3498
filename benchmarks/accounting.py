"""Speed of the accounting beside Opacus, dp-accounting and autodp, all measured in one run.

Two tasks, each from a cold start (whatever this package remembers between calls, tables that depend on the
orders alone included, is forgotten before every trial):

- the Rényi curve of the Poisson-subsampled Gaussian, q = 0.01, σ = 1.1, at Opacus' default orders, and the
  ε that 1,000 such steps have at δ = 1e-5;
- the σ for ε = 1, δ = 1e-5 in 1,000 steps at q = 0.01.

Trials of all libraries are interleaved, so that a busy machine slows all of them alike; the table gives
the median of each. The last line is how many times faster than the fastest peer this package is.
"""

import statistics
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dpledger.accounting.amplification.poisson_gaussian import poisson_gaussian_curve
from dpledger.accounting.calibration import calibrate_noise_std
from dpledger.accounting.conversion.renyi import epsilon_at
from dpledger.accounting.cost import Cost

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import dp_accounting
    from autodp import calibrator_zoo, mechanism_zoo, transformer_zoo
    from dp_accounting.rdp import RdpAccountant
    from opacus.accountants import RDPAccountant
    from opacus.accountants.analysis import rdp as opacus_rdp
    from opacus.accountants.utils import get_noise_multiplier

RATE, NOISE, STEPS, DELTA, EPSILON = 0.01, 1.1, 1000, 1e-5, 1.0
ORDERS: list[float] = list(RDPAccountant.DEFAULT_ALPHAS)
OURS = "dpledger"

Curve = Sequence[float]


@dataclass
class Task:
    """One problem put to every library: what each answers, and the seconds of its trials."""

    title: str
    unit: str
    ask: dict[str, Callable[[], Any]]
    read: Callable[[Any], float]
    trials: int
    seconds: dict[str, list[float]] = field(default_factory=dict)
    found: dict[str, float] = field(default_factory=dict)

    def run(self) -> None:
        """Ask all libraries in turn, ``trials`` times."""
        for name, ask in self.ask.items():
            self.found[name] = self.read(ask())
            self.seconds[name] = []
        for _ in range(self.trials):
            for name, ask in self.ask.items():
                self.seconds[name].append(_seconds(ask))

    def median(self, name: str) -> float:
        return statistics.median(self.seconds[name])

    def ratio(self) -> float:
        """The fastest peer's time over ours."""
        return min(self.median(name) for name in self.ask if name != OURS) / self.median(OURS)

    def rows(self) -> list[str]:
        ours = self.median(OURS)
        times = {name: self.median(name) for name in self.ask}
        return [
            f"{name:<15}{1e3 * taken:>12.3f}{taken / ours:>12.1f}{self.found[name]:>14.6f}"
            for name, taken in times.items()
        ]

    def show(self) -> None:
        print(f"{self.title}\n{'':<15}{'median ms':>12}{'times ours':>12}{self.unit:>14}")
        print("\n".join(self.rows()), end="\n\n")


def _seconds(ask: Callable[[], Any]) -> float:
    _forget()
    start = time.perf_counter()
    ask()
    return time.perf_counter() - start


def _forget() -> None:
    """Empty every cache of this package."""
    modules = [module for name, module in sys.modules.items() if name.startswith("dpledger.")]
    for value in [value for module in modules for value in vars(module).values()]:
        if callable(getattr(value, "cache_clear", None)):
            value.cache_clear()


def our_curve() -> Curve:
    curve: Curve = poisson_gaussian_curve(RATE, 1.0 / NOISE, np.array(ORDERS)).tolist()
    return curve


def opacus_curve() -> Curve:
    return list(opacus_rdp.compute_rdp(q=RATE, noise_multiplier=NOISE, steps=1, orders=ORDERS))


def _dp_accounting_event(noise: float, steps: int) -> Any:
    step = dp_accounting.PoissonSampledDpEvent(RATE, dp_accounting.GaussianDpEvent(noise))
    return dp_accounting.SelfComposedDpEvent(step, steps)


def dp_accounting_curve() -> Curve:
    accountant = RdpAccountant(ORDERS)
    accountant.compose(_dp_accounting_event(NOISE, 1))
    return list(accountant._rdp)


def autodp_curve() -> Curve:
    sampling = transformer_zoo.AmplificationBySampling(PoissonSampling=True)
    sampled = sampling(mechanism_zoo.GaussianMechanism(sigma=NOISE), RATE, improved_bound_flag=True)
    return [sampled.RenyiDP(order) for order in ORDERS]


def our_noise() -> float:
    return calibrate_noise_std(EPSILON, DELTA, steps=STEPS, rate=RATE).value


def opacus_noise() -> float:
    return float(
        get_noise_multiplier(
            target_epsilon=EPSILON, target_delta=DELTA, sample_rate=RATE, steps=STEPS, accountant="rdp"
        )
    )


def dp_accounting_noise() -> float:
    return float(
        dp_accounting.calibrate_dp_mechanism(
            lambda: RdpAccountant(ORDERS), lambda noise: _dp_accounting_event(noise, STEPS), EPSILON, DELTA
        )
    )


def autodp_noise() -> float:
    calibrate = calibrator_zoo.generalized_eps_delta_calibrator()
    parameters = {"prob": RATE, "sigma": None, "coeff": STEPS}
    found = calibrate(
        mechanism_zoo.SubsampleGaussianMechanism,
        EPSILON,
        DELTA,
        [0.8, 3.0],
        params=parameters,
        para_name="sigma",
    )
    return float(found.params["sigma"])


def our_epsilon(curve: Curve) -> float:
    """ε after all steps from one step's curve, by the same conversion for all."""
    return epsilon_at(Cost(np.array(ORDERS), np.array(curve)).repeated(STEPS), DELTA)[0]


def main() -> None:
    curves = Task(
        f"curve of the subsampled Gaussian, q={RATE}, σ={NOISE}, {len(ORDERS)} orders",
        "ε(1000 steps)",
        {
            OURS: our_curve,
            "Opacus": opacus_curve,
            "dp-accounting": dp_accounting_curve,
            "autodp": autodp_curve,
        },
        our_epsilon,
        trials=101,
    )
    noises = Task(
        f"σ for ε={EPSILON}, δ={DELTA}, {STEPS} steps, q={RATE}",
        "σ",
        {
            OURS: our_noise,
            "Opacus": opacus_noise,
            "dp-accounting": dp_accounting_noise,
            "autodp": autodp_noise,
        },
        float,
        trials=7,
    )
    for task in (curves, noises):
        task.run()
        task.show()
    print(f"ratio curve={curves.ratio():.1f} calibration={noises.ratio():.1f}")


if __name__ == "__main__":
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        main()
