"""AboveThreshold: compare queries with a noisy threshold until the first is above (private line search)."""

import dataclasses
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from dpledger.accounting.cost import Cost
from dpledger.accounting.errors import InvalidInput, Unproven
from dpledger.accounting.mechanisms.above_threshold_chain import (
    GAUSSIAN_NOISE,
    LAPLACE_NOISE,
    ThresholdChain,
)
from dpledger.accounting.mechanisms.base import SCALE, STANDARD_DEVIATION, Mechanism, NoiseField, NoiseLevel
from dpledger.accounting.mechanisms.pure import pure_cost
from dpledger.accounting.numerics import ratio_above, round_up
from dpledger.accounting.rounding import Direction, widen
from dpledger.accounting.sampling import Adjacency
from dpledger.accounting.validation import (
    Floats,
    check_choice,
    check_count,
    check_non_negative,
    check_positive,
)

__all__ = ["AboveThreshold"]

_FORMS = "one of epsilon, rho, or threshold_scale with query_scale"


@dataclass(frozen=True)
class AboveThreshold(Mechanism):
    """The index of the first of up to ``max_queries`` noisy queries that reaches a noisy threshold.

    Statement: the curve of :class:`~dpledger.accounting.mechanisms.above_threshold_chain.ThresholdChain`, a
    recursion over the stopping index. For Laplace noise on threshold and queries also pure DP with ε1 + 2ε2,
    ε1 = Δ/threshold_scale and ε2 = Δ/query_scale, and what :func:`pure_cost` gives for it; at each order the
    smaller of the two curves.
    Conditions: either adjacency, each query of sensitivity Δ under it; fresh noise on every query; nothing is
    released but the index, or that none was above. Gaussian noise needs ``max_queries``. Without threshold
    noise there is no pure DP, only the curve, which grows with ``max_queries`` where α·Δ/query_scale is
    large.
    Source: the recursion is proven in that module; pure DP by Dwork and Roth 2014, Theorem 3.23, and for any
    two scales by Lyu, Su, Li 2017. Of Chen 2020, dissertation, Theorem 5.2 is looser than the recursion, and
    Theorem 5.3 (ε(α) = αρ for Gaussian noise) does not hold: searches of 400 queries exceed it.

    Parameters
    ----------
    noise
        ``laplace`` or ``gaussian``: of the threshold and of the queries.
    sensitivity
        Δ, of each query.
    epsilon
        Laplace noise of scale Δ/(ε/2) on the threshold and Δ/(ε/4) on each query, as in Algorithm 5.1.
    rho
        Gaussian noise of standard deviation Δ√(3/(2ρ)) on the threshold and Δ√(3/ρ) on each query, likewise.
        It names the noise; it is not the cost.
    threshold_scale, query_scale
        The scales (for Gaussian noise the standard deviations) themselves; the threshold's may be 0.
    max_queries
        After so many queries below the threshold the search ends. None: no limit.
    """

    kind: ClassVar[str] = "above-threshold"
    expensive: ClassVar[bool] = True
    noise_field: ClassVar[NoiseField | None] = None
    choices: ClassVar[Mapping[str, tuple[str, ...]]] = {"noise": ("laplace", "gaussian")}
    noise: str
    sensitivity: float
    epsilon: float | None = None
    rho: float | None = None
    threshold_scale: float | None = None
    query_scale: float | None = None
    max_queries: int | None = None

    def __post_init__(self) -> None:
        check_choice("noise", self.noise, self.choices["noise"])
        object.__setattr__(self, "sensitivity", check_non_negative("sensitivity", self.sensitivity))
        self._check_form()
        for field in ("epsilon", "rho", "query_scale"):
            self._normalise(field, check_positive)
        self._normalise("threshold_scale", check_non_negative)
        if self.max_queries is not None:
            object.__setattr__(self, "max_queries", check_count("max_queries", self.max_queries))
        elif not self._laplace:
            raise InvalidInput("max_queries", "given for gaussian noise", None)

    def _check_form(self) -> None:
        scales = self.threshold_scale is not None, self.query_scale is not None
        if scales[0] != scales[1]:
            missing = "query_scale" if scales[0] else "threshold_scale"
            raise InvalidInput(missing, "given together with the other scale", None)
        given = [self.epsilon is not None, self.rho is not None, scales[0]]
        if sum(given) != 1:
            raise InvalidInput("epsilon", _FORMS, [self.epsilon, self.rho, self.threshold_scale])
        if self.rho is not None and self._laplace:
            raise InvalidInput("rho", "absent for laplace noise", self.rho)
        if self.epsilon is not None and not self._laplace:
            raise InvalidInput("epsilon", "absent for gaussian noise", self.epsilon)

    def _normalise(self, field: str, check: Callable[[str, Any], float]) -> None:
        value = getattr(self, field)
        if value is not None:
            object.__setattr__(self, field, check(field, value))

    @property
    def _laplace(self) -> bool:
        return self.noise == "laplace"

    def cost(self, orders: Floats, adjacency: Adjacency) -> Cost:
        chain = self._chain()
        if chain.query_ratio == 0.0:
            return Cost.zero(orders)
        curve = chain.curve(orders)
        if self._laplace and chain.threshold_ratio is not None:
            total = widen(chain.threshold_ratio + 2.0 * chain.query_ratio, Direction.UP, ulps=1)
            pure = pure_cost(check_non_negative("ε1 + 2ε2", total), orders)
            return dataclasses.replace(pure, epsilons=np.minimum(curve, pure.epsilons))
        if not np.isfinite(curve).all():
            order = float(orders[~np.isfinite(curve)][0])
            raise Unproven(
                f"a search with this little noise has no proven cost at order {order:g}; "
                "give max_queries, noise on the threshold, or more noise on the queries"
            )
        return Cost(orders, curve)

    @property
    def noise_level(self) -> NoiseLevel | None:
        """The noise of each query, where its scale was given."""
        if self.query_scale is None:
            return None
        size = SCALE if self._laplace else STANDARD_DEVIATION
        return NoiseLevel.of(size.symbol, self.query_scale, self.sensitivity)

    def _chain(self) -> ThresholdChain:
        noise = LAPLACE_NOISE if self._laplace else GAUSSIAN_NOISE
        return ThresholdChain(noise, *self._ratios(), self.max_queries)

    def _ratios(self) -> tuple[float, float | None]:
        """Sensitivity over the scale of the queries and of the threshold, each rounded up."""
        if self.epsilon is not None:
            return widen(self.epsilon / 4.0, Direction.UP, ulps=4), widen(
                self.epsilon / 2.0, Direction.UP, ulps=4
            )
        if self.rho is not None:
            return round_up(math.sqrt(self.rho / 3.0), ulps=4), round_up(math.sqrt(self.rho / 1.5), ulps=4)
        assert self.query_scale is not None
        query = ratio_above("sensitivity / query_scale", self.sensitivity, self.query_scale)
        if not self.threshold_scale:
            return query, None
        return query, ratio_above("sensitivity / threshold_scale", self.sensitivity, self.threshold_scale)
