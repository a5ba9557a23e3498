"""Noisy votes of teachers (PATE), accounted without looking at the votes."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from dpledger.accounting.cost import Cost
from dpledger.accounting.errors import InvalidInput
from dpledger.accounting.mechanisms.base import SCALE, STANDARD_DEVIATION, Mechanism, NoiseField, NoiseLevel
from dpledger.accounting.mechanisms.gaussian import gaussian_cost
from dpledger.accounting.mechanisms.laplace import laplace_cost
from dpledger.accounting.numerics import ratio_above
from dpledger.accounting.pld.items import Items, laplace_items
from dpledger.accounting.sampling import Adjacency
from dpledger.accounting.validation import Floats, check_choice, check_positive

__all__ = ["NoisyVotes"]

_SIZES = {"laplace": SCALE, "gaussian": STANDARD_DEVIATION}
_SQRT2_ABOVE = math.nextafter(math.sqrt(2.0), math.inf)


@dataclass(frozen=True)
class NoisyVotes(Mechanism):
    """The label with the most votes of teachers, after noise on each count.

    Statement: one teacher's change of mind moves two counts by one each. Laplace noise of scale b: two
    Laplace releases under a shift of 1/b, so 2/b-DP with their summed curve. Gaussian noise of standard
    deviation σ (GNMax): a Gaussian of L2 sensitivity √2, so ε(α) = α/σ², ρ = 1/σ², μ = √2/σ.
    The label is a post-processing of the noisy counts.
    Conditions: either adjacency; one record lies in one teacher's part of the data, and under replace-one
    the new record takes the old one's part.
    Source: Papernot et al. 2017 (Laplace); Papernot et al. 2018, Proposition 8 (Gaussian).
    """

    kind: ClassVar[str] = "noisy-votes"
    expensive: ClassVar[bool] = False
    noise_field: ClassVar[NoiseField | None] = None
    choices: ClassVar[Mapping[str, tuple[str, ...]]] = {"noise": tuple(_SIZES)}
    noise: str
    scale: float | None = None
    noise_std: float | None = None

    def __post_init__(self) -> None:
        needed = _SIZES[check_choice("noise", self.noise, self.choices["noise"])].name
        for field in (size.name for size in _SIZES.values()):
            value = getattr(self, field)
            if field == needed:
                object.__setattr__(self, field, check_positive(field, value))
            elif value is not None:
                raise InvalidInput(field, f"absent for {self.noise} noise, which takes {needed}", value)

    @property
    def gaussian_mu(self) -> float | None:
        """√2/σ, rounded up, for Gaussian noise."""
        return None if self.noise_std is None else ratio_above("√2 / noise_std", _SQRT2_ABOVE, self.noise_std)

    def cost(self, orders: Floats, adjacency: Adjacency) -> Cost:
        mu = self.gaussian_mu
        if mu is not None:
            return gaussian_cost(mu, orders)
        return laplace_cost(self._shift, orders).repeated(2)

    def dominating_pairs(self, adjacency: Adjacency) -> Items:
        """The Gaussian pair of √2/σ, or two pairs of Laplace noise under a shift of 1/b."""
        if self.gaussian_mu is not None:
            return super().dominating_pairs(adjacency)
        return laplace_items(self._shift, 2)

    def dominates_alike(self, other: "NoisyVotes", adjacency: Adjacency) -> bool:
        """Laplace noise on both, and no less on the other's; Gaussian votes compare by μ."""
        return self.scale is not None and other.scale is not None and other.scale >= self.scale

    @property
    def noise_level(self) -> NoiseLevel | None:
        """The noise on each count, which a change of mind moves by 1."""
        size = _SIZES[self.noise]
        return NoiseLevel.of(size.symbol, getattr(self, size.name), 1.0)

    @property
    def _shift(self) -> float:
        return ratio_above("1 / scale", 1.0, check_positive("scale", self.scale))
