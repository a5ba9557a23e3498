"""The Differential Privacy Deployments Registry's schema of 2026-07-15, JSON Schema draft 7."""

from typing import Any

TEXT: dict[str, Any] = {"type": "string", "minLength": 1}
TEXTS: dict[str, Any] = {"type": "array", "items": TEXT, "minItems": 1}


def _choice(*words: str) -> dict[str, Any]:
    return {"type": "string", "enum": list(words)}


def _closed(required: str = "", **properties: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": required.split(),
        "additionalProperties": False,
    }


_STATUS = _choice(
    "Converted",
    "Draft",
    "Pending",
    "Changes Required",
    "Approved",
    "Approved (Update Requested)",
    "Approved (Pending)",
)
_BASIC = _closed(
    "name data_curators description intended_use data_product_type data_product_region publication_date",
    name=TEXT,
    data_curators=TEXTS,
    description=TEXT,
    intended_use=TEXT,
    data_product_type=_choice(
        "Summary statistics",
        "Machine learning model",
        "Dataset",
        "Synthetic data",
        "Interactive API",
        "SQL queries",
    ),
    data_product_region=TEXT,
    publication_date={"type": "string", "pattern": r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$"},
    data_product_sector=_choice("Technology", "Healthcare", "Education", "Government", "Energy", "Finance"),
)
_DEPLOYMENT = _closed(
    "basic",
    basic=_BASIC,
    dp_variant=_closed(
        variant_name=_choice("Pure DP", "Approximate DP", "Zero-concentrated DP", "Renyi DP", "Custom"),
        data_domain=TEXT,
        unprotected_quantities=TEXT,
    ),
    privacy_loss=_closed(
        privacy_unit=TEXT,
        privacy_unit_details=TEXT,
        privacy_parameters=_closed(
            epsilon={"type": "number"}, delta={"type": ["number", "string"]}, rho={"type": "number"}
        ),
        privacy_parameters_details=TEXT,
    ),
    deployment_model=_closed(
        model_name=_choice("Local", "Central", "Shuffle", "Federated", "Varies"),
        model_name_details=TEXT,
        actors=TEXT,
        release_type=_choice("One release", "Many releases"),
        release_type_details=TEXT,
        data_source_type=_choice("Static", "Dynamic"),
        data_source_type_details=TEXT,
        access_type=_choice("Interactive", "Non-interactive"),
        access_type_details=TEXT,
    ),
    accounting=_closed(post_processing=TEXT, composition=TEXT),
    implementation=_closed(preprocessing_and_hyperparameter_tuning=TEXT, mechanisms=TEXT, justification=TEXT),
    administrative=_closed("registry_authors", sources=TEXT, notes=TEXT, registry_authors=TEXTS),
)
REGISTRY_SCHEMA: dict[str, Any] = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    **_closed(
        "url_slug tier status deployment",
        url_slug=TEXT,
        tier={"type": "integer", "enum": [1, 2, 3]},
        status=_STATUS,
        deployment=_DEPLOYMENT,
    ),
}
