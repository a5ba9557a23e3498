"""A dataset's entry for the Differential Privacy Deployments Registry, as a draft.

The shape is that of the registry's schema of 2026-07-15. What the ledger knows (unit, adjacency, limits,
rule, mechanisms) is taken from it; what it cannot know (curators, use, region) is an argument.
"""

import enum
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from dpledger.accounting.errors import InvalidInput
from dpledger.accounting.rounding import Direction, widen
from dpledger.accounting.sampling import Adjacency
from dpledger.accounting.steps import Release, Step
from dpledger.accounting.validation import check_open_unit
from dpledger.ledger.model.budget import Budget
from dpledger.ledger.model.state import LedgerState
from dpledger.ledger.ports import DatasetRow

__all__ = [
    "MOST_STEPS",
    "DeploymentDetails",
    "Model",
    "ProductType",
    "Sector",
    "deployment_document",
]


class ProductType(enum.StrEnum):
    """What is published."""

    STATISTICS = "Summary statistics"
    MODEL = "Machine learning model"
    DATASET = "Dataset"
    SYNTHETIC = "Synthetic data"
    API = "Interactive API"
    SQL = "SQL queries"


class Sector(enum.StrEnum):
    """What the data product is for."""

    TECHNOLOGY = "Technology"
    HEALTHCARE = "Healthcare"
    EDUCATION = "Education"
    GOVERNMENT = "Government"
    ENERGY = "Energy"
    FINANCE = "Finance"


class Model(enum.StrEnum):
    """Where the noise is added."""

    LOCAL = "Local"
    CENTRAL = "Central"
    SHUFFLE = "Shuffle"
    FEDERATED = "Federated"
    VARIES = "Varies"


MOST_STEPS = 50
"""How many distinct step descriptions are written out; the rest is counted."""
_MOST_VALUE_CHARACTERS = 200
"""Of a list that would be longer, such as a tuning's candidates, the length is said."""
_NEIGHBOURS = {
    Adjacency.ADD_REMOVE: "neighbouring datasets differ by the presence of one {unit} (add-remove)",
    Adjacency.REPLACE_ONE: "neighbouring datasets differ in the values of one {unit} (replace-one)",
}
_SYMBOLS = {"epsilon": "ε", "delta": "δ", "rho": "ρ", "mu": "μ"}


@dataclass(frozen=True)
class DeploymentDetails:
    """What a person adds to an entry, in the registry's own words.

    ``delta`` is where ε is stated for a budget that has no δ of its own: ρ, μ or a curve.
    """

    data_curators: Sequence[str]
    intended_use: str
    data_product_type: ProductType
    data_product_region: str
    publication_date: str
    tier: int
    description: str | None = None
    data_product_sector: Sector | None = None
    model_name: Model | None = None
    registry_authors: Sequence[str] = ()
    delta: float | None = None


def deployment_document(
    row: DatasetRow, steps: Sequence[Step], more_steps: bool, details: DeploymentDetails
) -> dict[str, Any]:
    """The entry, ready to be written as YAML.

    ``steps`` are distinct step descriptions that were granted; ``more_steps`` says that there are others.
    """
    state, model = row.state, details.model_name
    variant, parameters = _parameters(state.guarantee, details.delta)
    deployment: dict[str, Any] = {
        "basic": _basic(row, details),
        "dp_variant": {"variant_name": variant},
        "privacy_loss": {
            "privacy_unit": row.unit,
            "privacy_unit_details": _NEIGHBOURS[state.adjacency].format(unit=row.unit),
            "privacy_parameters": parameters,
            "privacy_parameters_details": _details_text(state),
        },
        "deployment_model": {} if model is None else {"model_name": model.value},
        "accounting": {"composition": _composition_text(state.guarantee)},
        "implementation": {"mechanisms": _mechanisms_text(steps, more_steps)},
    }
    if details.registry_authors:
        deployment["administrative"] = {"registry_authors": list(details.registry_authors)}
    return {
        "url_slug": _slug(state.name),
        "tier": details.tier,
        "status": "Draft",
        "deployment": {name: part for name, part in deployment.items() if part},
    }


def _basic(row: DatasetRow, details: DeploymentDetails) -> dict[str, Any]:
    description = details.description or row.description
    if not description:
        raise InvalidInput("description", "a text, since the dataset was opened without one", description)
    known = {
        "name": row.state.name,
        "data_curators": list(details.data_curators),
        "description": description,
        "intended_use": details.intended_use,
        "data_product_type": details.data_product_type.value,
        "data_product_region": details.data_product_region,
        "publication_date": details.publication_date,
    }
    sector = details.data_product_sector
    return known if sector is None else {**known, "data_product_sector": sector.value}


def _parameters(guarantee: Budget, delta: float | None) -> tuple[str, dict[str, float]]:
    """The variant, and its parameters; an ε that is not the budget's own is converted, rounded up."""
    target = guarantee.target
    terms: dict[str, float] = {name: target[name] for name in ("epsilon", "delta") if name in target}
    if "epsilon" not in terms and delta is not None:
        terms = _converted(guarantee, check_open_unit("delta", delta))
    # An additive share of δ is outside of ρ: what holds then is (ε, δ).
    if guarantee.accounting == "zcdp" and not guarantee.limits[-1]:
        return "Zero-concentrated DP", {**terms, "rho": float(guarantee.limits[0])}
    if "epsilon" not in terms:
        raise InvalidInput("delta", f"the δ at which ε is stated: {guarantee.accounting} has none", delta)
    return "Approximate DP", terms


def _converted(guarantee: Budget, delta: float) -> dict[str, float]:
    additive = float(guarantee.limits[-1])
    if not additive < delta:
        raise InvalidInput("delta", f"above the additive share of the budget, {additive!r}", delta)
    left = widen(delta - additive, Direction.DOWN, ulps=1) if additive else delta
    epsilon = guarantee.filter.indicative_epsilon(guarantee, guarantee.limits, left)
    if epsilon is None:
        raise InvalidInput("delta", "a δ at which the budget implies an ε", delta)
    return {"epsilon": epsilon, "delta": delta}


def _details_text(state: LedgerState) -> str:
    """The budget in its own terms, and since when it is the largest that was in force."""
    target = state.guarantee.target
    terms = ", ".join(f"{_SYMBOLS[name]} = {target[name]!r}" for name in _SYMBOLS if name in target)
    native = terms or f"a Rényi curve at the orders {', '.join(f'{order:g}' for order in _orders(state))}"
    return (
        f"Budget of accounting {state.guarantee.accounting}: {native}. It is the largest limit that was ever "
        f"in force, since entry {state.guaranteed_since} of the ledger, and bounds all releases together."
    )


def _orders(state: LedgerState) -> list[float]:
    found: list[float] = state.guarantee.orders.tolist()
    return found


def _composition_text(guarantee: Budget) -> str:
    rule = guarantee.filter
    theorem = rule.theorem
    return f"{rule.summary} ({theorem.theorem}). Conditions: {theorem.conditions}. Source: {theorem.source}."


def _mechanisms_text(steps: Sequence[Step], more_steps: bool) -> str:
    if not steps:
        return "Nothing was released yet."
    more = f"; and others, of which the first {len(steps)} are named" if more_steps else ""
    return "; ".join(_step_text(step) for step in steps) + more


def _step_text(step: Step) -> str:
    releases = ", ".join(_release_text(release) for release in step.releases)
    sample = step.sample
    if sample.rate is None:
        return f"{releases} on all records"
    return f"{releases} on a {sample.scheme.value} sample at rate {sample.rate!r}"


def _release_text(release: Release) -> str:
    repeated = f"{release.count} times " if release.count > 1 else ""
    fields = release.mechanism.fields().items()
    numbers = ", ".join(f"{name} {_value_text(value)}" for name, value in fields if name != "mechanism")
    return f"{repeated}{release.mechanism.kind} ({numbers})"


def _value_text(value: Any) -> str:
    text = repr(value)
    is_long = isinstance(value, (list, tuple)) and len(text) > _MOST_VALUE_CHARACTERS
    return f"({len(value)} of them)" if is_long else text


def _slug(name: str) -> str:
    """A name as the registry's files have it: lower case letters, digits and underscores."""
    return re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_") or "dataset"
