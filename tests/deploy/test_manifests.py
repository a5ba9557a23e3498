"""The plain manifests as they are, and every file of deploy against the service's settings."""

import json
import re
from typing import Any

import pytest
import yaml

from dpledger.settings import VARIABLES
from tests.deploy.helm import CHART, ROOT, Resource, resources_in

DEPLOY = ROOT / "deploy"
VARIABLE = re.compile(r"DPLEDGER_[A-Z_]*[A-Z]")
RESOURCES = resources_in((DEPLOY / "kubernetes" / "dpledger.yaml").read_text(encoding="utf-8"))
# Of a script of Patroni, and what Kubernetes itself would set.
OTHERS = {"DPLEDGER_PASSWORD", "DPLEDGER_PORT"}


def of_kind(kind: str) -> Resource:
    (found,) = [each for each in RESOURCES if each["kind"] == kind]
    return found


def pods() -> list[dict[str, Any]]:
    return [of_kind(kind)["spec"]["template"]["spec"] for kind in ("Deployment", "Job")]


def test_every_file_can_be_read() -> None:
    texts = {path: path.read_text(encoding="utf-8") for path in DEPLOY.rglob("*") if path.is_file()}
    for path, text in texts.items():
        if path.suffix == ".json":
            json.loads(text)
        elif path.suffix in {".yaml", ".yml"} and "templates" not in path.parts:
            assert list(yaml.safe_load_all(text)), path
    assert len([path for path in texts if path.suffix in {".json", ".yaml", ".yml"}]) > 12


def test_every_setting_that_is_named_exists() -> None:
    named = {
        (name, str(path.relative_to(ROOT)))
        for path in DEPLOY.rglob("*")
        if path.is_file()
        for name in VARIABLE.findall(path.read_text(encoding="utf-8"))
    }
    known = set(VARIABLES) | OTHERS

    assert len({name for name, _ in named}) > 20
    assert {each for each in named if each[0] not in known} == set()


def test_everything_that_is_needed_is_there() -> None:
    kinds = sorted(each["kind"] for each in RESOURCES)

    assert kinds == ["Deployment", "Job", "NetworkPolicy", "PodDisruptionBudget", "Service"]
    assert {each["metadata"]["namespace"] for each in RESOURCES} == {"dpledger"}


@pytest.mark.parametrize("pod", pods(), ids=["service", "migration"])
def test_a_pod_is_nobody_and_writes_nowhere_but_where_it_may(pod: dict[str, Any]) -> None:
    (container,) = pod["containers"]

    assert pod["securityContext"]["runAsNonRoot"] is True
    # The user of the Dockerfile; its group may read the key file, and nobody else.
    assert {pod["securityContext"][name] for name in ("runAsUser", "runAsGroup", "fsGroup")} == {10001}
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert pod["automountServiceAccountToken"] is False
    assert container["resources"]["limits"]["memory"]
    mounted = {each["name"] for each in container["volumeMounts"]}
    assert mounted == {each["name"] for each in pod["volumes"]}


def test_the_key_file_is_closed_to_others() -> None:
    (secrets,) = [each for each in pods()[0]["volumes"] if each["name"] == "secrets"]

    assert secrets["projected"]["defaultMode"] == 0o440


def test_probes_ask_what_they_should() -> None:
    (container,) = pods()[0]["containers"]
    asked = {
        name: container[f"{name}Probe"]["httpGet"]["path"] for name in ("startup", "liveness", "readiness")
    }

    assert asked == {"startup": "/healthz", "liveness": "/healthz", "readiness": "/readyz"}
    assert container["ports"] == [{"name": "http", "containerPort": 8000}]
    assert container["args"] == ["serve", "--host", "0.0.0.0", "--port", "8000"]


def test_what_is_secret_comes_from_secrets() -> None:
    for pod in pods():
        (container,) = pod["containers"]
        (database,) = [each for each in container["env"] if each["name"] == "DPLEDGER_DATABASE"]
        assert database["valueFrom"]["secretKeyRef"] == {"name": "dpledger", "key": "database"}
        assert {each["name"] for each in container["env"]} <= set(VARIABLES)
    assert "Secret" not in {each["kind"] for each in RESOURCES}


def test_selectors_find_the_service_and_not_its_migration() -> None:
    service, migration = (
        of_kind(kind)["spec"]["template"]["metadata"]["labels"] for kind in ("Deployment", "Job")
    )

    for selector in (
        of_kind("Service")["spec"]["selector"],
        of_kind("PodDisruptionBudget")["spec"]["selector"]["matchLabels"],
        of_kind("Deployment")["spec"]["selector"]["matchLabels"],
    ):
        assert selector.items() <= service.items()
        assert not selector.items() <= migration.items()
    for labels in (service, migration):
        assert of_kind("NetworkPolicy")["spec"]["podSelector"]["matchLabels"].items() <= labels.items()


def test_traffic_is_let_in_at_one_port_and_out_to_the_database() -> None:
    policy = of_kind("NetworkPolicy")["spec"]
    out = {port["port"] for rule in policy["egress"] for port in rule["ports"]}

    assert policy["policyTypes"] == ["Ingress", "Egress"]
    assert [rule["ports"] for rule in policy["ingress"]] == [[{"port": "http", "protocol": "TCP"}]]
    assert out == {53, 5432}


def test_pods_are_replaced_one_by_one() -> None:
    deployment = of_kind("Deployment")["spec"]

    assert deployment["replicas"] == 2
    assert deployment["strategy"]["rollingUpdate"] == {"maxUnavailable": 0, "maxSurge": 1}
    assert of_kind("PodDisruptionBudget")["spec"]["maxUnavailable"] == 1


def test_the_chart_has_no_secret_of_its_own() -> None:
    kinds = {
        found
        for path in (CHART / "templates").glob("*.yaml")
        for found in re.findall(r"^kind: (\w+)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    }

    assert kinds == {"Deployment", "Job", "NetworkPolicy", "PodDisruptionBudget", "Service"}
