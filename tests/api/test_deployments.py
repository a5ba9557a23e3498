"""Drafts for the Differential Privacy Deployments Registry, held to its schema for every kind of budget."""

import math
from typing import Any
from unittest.mock import Mock

import jsonschema
import mpmath
import pytest
import yaml

from dpledger.accounting.steps import Step
from dpledger.ledger.filters import filter_names
from tests.api.service import GAUSSIAN, POISSON, SUBSAMPLED, Service
from tests.support.registry_schema import REGISTRY_SCHEMA

PERSON: dict[str, Any] = {
    "data_curators": ["Census Bureau", "University"],
    "intended_use": "Predicts income brackets: a teaching example",
    "data_product_type": "Machine learning model",
    "data_product_region": "United States",
    "publication_date": "2026-11-18",
    "tier": 3,
}
ITEM: dict[str, Any] = {"name": "sgd", "sample": POISSON, "releases": [SUBSAMPLED], "times": 10}
BUDGETS: dict[str, dict[str, Any]] = {
    "zcdp": {"accounting": "zcdp", "rho": 0.5},
    "gdp": {"accounting": "gdp", "epsilon": 1.0, "delta": 1e-6},
    "rdp-order": {"accounting": "rdp-order", "epsilon": 1.0, "delta": 1e-6, "order": 16.0},
    "rdp": {"accounting": "rdp", "epsilon": 3.0, "delta": 1e-5},
    "rdp-curve": {"accounting": "rdp-curve", "orders": [2.0, 16.0], "epsilons": [0.5, 2.0]},
    "plan": {"accounting": "plan", "epsilon": 1.0, "delta": 1e-5, "items": [ITEM]},
    "shared": {"accounting": "shared", "epsilon": 3.0, "delta": 1e-5},
}


def opened(service: Service, budget: dict[str, Any], **more: Any) -> Service:
    body = {"name": "adult-census.v2", "description": "Census records", "budget": budget, **more}
    assert service.post("/v1/datasets", body).status_code == 201
    return service


def draft(service: Service, **more: Any) -> Any:
    return service.shown("/v1/datasets/adult-census.v2/deployment", **{**PERSON, **more})


def test_every_kind_of_budget_is_tried() -> None:
    assert BUDGETS.keys() == set(filter_names())


@pytest.mark.parametrize("accounting", BUDGETS)
def test_the_draft_fits_the_schema(service: Service, accounting: str) -> None:
    opened(service, BUDGETS[accounting])
    if accounting not in ("plan", "shared"):
        step = {"run": "r", "releases": [{**GAUSSIAN, "noise_std": 30.0}]}
        assert service.post("/v1/datasets/adult-census.v2/authorizations", step).status_code == 201
    everything = {
        "description": "All of it",
        "data_product_sector": "Government",
        "model_name": "Central",
        "registry_authors": ["Data office"],
        "delta": 1e-6,
    }
    for more in ({"delta": 1e-6}, everything):
        answer = service.get(
            "/v1/datasets/adult-census.v2/deployment", **{**PERSON, **more, "format": "yaml"}
        )
        assert answer.headers["content-type"].partition(";")[0] == "application/yaml"
        assert not any(line.rstrip().endswith((">", ">-", "|")) for line in answer.text.splitlines())
        assert yaml.safe_load(answer.text) == draft(service, **more)
        jsonschema.validate(yaml.safe_load(answer.text), REGISTRY_SCHEMA, jsonschema.Draft7Validator)


def test_what_the_ledger_knows_is_in_the_draft(service: Service) -> None:
    opened(service, BUDGETS["rdp"], unit="patient", adjacency="replace-one")
    sample = {"scheme": "without-replacement", "rate": 0.01}
    body = {"run": "r", "sample": sample, "releases": [{**GAUSSIAN, "noise_std": 50.0}]}
    for _ in range(2):
        assert service.post("/v1/datasets/adult-census.v2/authorizations", body).status_code == 201
    found = draft(service)
    assert (found["url_slug"], found["status"], found["tier"]) == ("adult_census_v2", "Draft", 3)
    deployment = found["deployment"]
    assert deployment["basic"]["description"] == "Census records"
    assert deployment["dp_variant"] == {"variant_name": "Approximate DP"}
    loss = deployment["privacy_loss"]
    assert (loss["privacy_unit"], loss["privacy_parameters"]) == ("patient", {"epsilon": 3.0, "delta": 1e-05})
    assert "replace-one" in loss["privacy_unit_details"]
    mechanisms = deployment["implementation"]["mechanisms"]
    assert mechanisms.count("gaussian") == 1
    assert "noise_std 50.0" in mechanisms
    assert "without-replacement sample at rate 0.01" in mechanisms
    assert "Feldman" in deployment["accounting"]["composition"]
    assert "administrative" not in deployment
    assert "deployment_model" not in deployment


def test_the_largest_limit_that_was_in_force_is_stated(service: Service) -> None:
    opened(service, {"accounting": "zcdp", "rho": 0.5})
    change = {"budget": {"accounting": "zcdp", "rho": 0.125}, "reason": "less is needed"}
    answer = service.post("/v1/datasets/adult-census.v2/budget-changes", change, headers={"If-Match": '"1"'})
    assert answer.status_code == 201, answer.text
    found = draft(service)["deployment"]
    assert found["dp_variant"]["variant_name"] == "Zero-concentrated DP"
    assert found["privacy_loss"]["privacy_parameters"] == {"rho": 0.5}


def _gaussian_delta(mu: float, epsilon: float) -> mpmath.mpf:
    half, middle = mpmath.mpf(mu) / 2, mpmath.mpf(epsilon) / mu
    return mpmath.ncdf(half - middle) - mpmath.exp(epsilon) * mpmath.ncdf(-half - middle)


def test_epsilon_of_a_budget_without_one_is_never_below_the_truth(service: Service) -> None:
    opened(service, {"accounting": "gdp", "mu": 0.7})
    stated = draft(service, delta=1e-6)["deployment"]["privacy_loss"]["privacy_parameters"]
    assert stated["delta"] == 1e-6
    with mpmath.workdps(40):
        assert _gaussian_delta(0.7, stated["epsilon"]) <= 1e-6
        assert _gaussian_delta(0.7, stated["epsilon"] * (1.0 - 1e-6)) > 1e-6


def test_an_additive_share_is_no_zero_concentrated_privacy(service: Service) -> None:
    opened(service, {"accounting": "zcdp", "rho": 0.1, "additive_delta": 1e-6})
    answer = service.get("/v1/datasets/adult-census.v2/deployment", **PERSON)
    assert answer.status_code == 422
    found = draft(service, delta=1e-5)["deployment"]
    assert found["dp_variant"]["variant_name"] == "Approximate DP"
    assert math.isfinite(found["privacy_loss"]["privacy_parameters"]["epsilon"])
    refused = service.get("/v1/datasets/adult-census.v2/deployment", **PERSON, delta=1e-6)
    assert refused.status_code == 422


@pytest.mark.parametrize("missing", PERSON)
def test_what_a_person_must_say_is_asked_for(service: Service, missing: str) -> None:
    opened(service, BUDGETS["rdp"])
    rest = {name: value for name, value in PERSON.items() if name != missing}
    answer = service.get("/v1/datasets/adult-census.v2/deployment", **rest)
    assert answer.status_code == 422
    assert missing in answer.text


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("tier", 4),
        ("publication_date", "18.11.2026"),
        ("publication_date", "0"),
        ("publication_date", "2026-11-18T00:00:00"),
        ("data_product_type", "Model"),
        ("delta", "nan"),
        ("delta", 0),
        ("delta", 1.5),
        ("data_curators", []),
        ("intended_use", ""),
        ("unknown", "x"),
    ],
)
def test_what_does_not_fit_is_refused(service: Service, name: str, value: Any) -> None:
    opened(service, {"accounting": "gdp", "mu": 0.7})
    answer = service.get("/v1/datasets/adult-census.v2/deployment", **{**PERSON, "delta": 1e-6, name: value})
    assert answer.status_code == 422, answer.text


def test_a_dataset_without_a_description_asks_for_one(service: Service) -> None:
    opened(service, BUDGETS["rdp"], description="")
    assert service.get("/v1/datasets/adult-census.v2/deployment", **PERSON).status_code == 422
    assert draft(service, description="Rows")["deployment"]["basic"]["description"] == "Rows"


def test_many_step_descriptions_are_counted(service: Service) -> None:
    opened(service, {"accounting": "zcdp", "rho": 0.5})
    for number in range(55):
        step = {"run": "r", "releases": [{**GAUSSIAN, "noise_std": 100.0 + number}]}
        assert service.post("/v1/datasets/adult-census.v2/authorizations", step).status_code == 201
    mechanisms = draft(service)["deployment"]["implementation"]["mechanisms"]
    assert mechanisms.count("gaussian") == 50
    assert "and others" in mechanisms


def test_a_long_tuning_is_said_in_short_and_read_once(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would be megabytes, and the seconds that they take are everybody's."""
    opened(service, {"accounting": "rdp", "epsilon": 5.0, "delta": 1e-5})
    candidates = [[{"releases": [{**GAUSSIAN, "noise_std": 1000.0}]}]] * 200
    law = {"law": "truncated-negative-binomial", "eta": 0.0, "gamma": 0.5}
    for purpose in ("first", "second", "third"):
        tuned = {"mechanism": "tuned", **law, "candidates": candidates, "purpose": purpose}
        step = {"run": "r", "releases": [tuned]}
        assert service.post("/v1/datasets/adult-census.v2/authorizations", step).status_code == 201
    reading = Mock(side_effect=Step.from_canonical)
    monkeypatch.setattr("dpledger.storage.engine.codec.Step.from_canonical", reading)

    mechanisms = draft(service)["deployment"]["implementation"]["mechanisms"]

    assert "candidates (200 of them)" in mechanisms
    assert len(mechanisms) < 300
    assert reading.call_count == 1


def test_a_step_that_was_altered_is_a_fault_of_the_ledger(service: Service) -> None:
    opened(service, {"accounting": "zcdp", "rho": 0.5})
    step = {"run": "r", "releases": [GAUSSIAN]}
    assert service.post("/v1/datasets/adult-census.v2/authorizations", step).status_code == 201
    with service.app.state.services.storage.database.engine.begin() as connection:
        connection.exec_driver_sql("UPDATE charges SET step = '{\"version\": 1}'")

    assert service.get("/v1/datasets/adult-census.v2/deployment", **PERSON).status_code == 500
