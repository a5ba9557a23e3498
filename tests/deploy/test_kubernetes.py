"""The Helm chart, rendered by helm and held to Kubernetes' own schemas; nothing here needs a cluster."""

import json
from typing import Any

import kubernetes_validate
import pytest

from dpledger import __version__
from dpledger.settings import VARIABLES
from tests.deploy.helm import CHART, ROOT, Resource, rendered, resources_in, run_helm

OLDEST, NEWEST = "1.25.0", "1.37.0"
PLAIN = ROOT / "deploy" / "kubernetes" / "dpledger.yaml"
EVERYTHING: dict[str, Any] = {
    "image": {"repository": "registry.example.org/dpledger", "digest": "sha256:" + "a" * 64},
    "imagePullSecrets": [{"name": "registry"}],
    "replicas": 3,
    "secret": {"name": "ledger", "databaseKey": "url", "keysKey": "keys"},
    "settings": {
        "DPLEDGER_REQUIRE_STANDBY": "1",
        "DPLEDGER_OIDC_GRANTS": 'admins=admin; "a"=read:adult,bank',
    },
    "secretFiles": {"DPLEDGER_ALERT_SECRET_FILE": {"secret": "alerts", "key": "secret"}},
    "marks": {"existingClaim": "marks"},
    "service": {"type": "LoadBalancer", "port": 8080, "annotations": {"example.org/internal": "true"}},
    "networkPolicy": {
        "from": [{"namespaceSelector": {"matchLabels": {"team": "ml"}}}],
        "databasePorts": [5432, 6432],
        "databaseTo": [{"ipBlock": {"cidr": "10.0.0.0/8"}}],
        "egress": [{"ports": [{"port": 443, "protocol": "TCP"}]}],
    },
    "podDisruptionBudget": {"maxUnavailable": "50%"},
    "podAnnotations": {"example.org/note": "yes"},
    "nodeSelector": {"kubernetes.io/arch": "amd64"},
    "tolerations": [{"key": "ledger", "operator": "Exists"}],
    "affinity": {"nodeAffinity": {}},
}
NOTHING: dict[str, Any] = {
    "migration": {"enabled": False},
    "networkPolicy": {"enabled": False},
    "podDisruptionBudget": {"enabled": False},
}


def of_kind(resources: list[Resource], kind: str) -> Resource:
    (found,) = [each for each in resources if each["kind"] == kind]
    return found


@pytest.fixture(scope="module")
def everything() -> list[Resource]:
    return rendered(EVERYTHING)


def test_the_chart_is_linted() -> None:
    for values in (None, EVERYTHING, NOTHING):
        ended = run_helm("lint", "--strict", str(CHART), values=values)
        assert ended.returncode == 0, ended.stdout + ended.stderr


@pytest.mark.parametrize("version", [OLDEST, NEWEST])
def test_what_is_rendered_is_what_kubernetes_takes(version: str, everything: list[Resource]) -> None:
    for each in (*rendered(), *everything):
        kubernetes_validate.validate(each, version, strict=True)


def test_the_plain_manifests_are_those_of_the_chart() -> None:
    values = ["--namespace", "dpledger", "--values", "deploy/kubernetes/values.yaml"]

    ended = run_helm("template", "dpledger", "deploy/helm/dpledger", *values)

    assert ended.stdout == PLAIN.read_text(encoding="utf-8"), "make manifests"
    for each in resources_in(ended.stdout):
        kubernetes_validate.validate(each, NEWEST, strict=True)
        assert "Helm" not in json.dumps(each)


def test_values_arrive_where_they_belong(everything: list[Resource]) -> None:
    deployment = of_kind(everything, "Deployment")["spec"]
    (container,) = deployment["template"]["spec"]["containers"]
    settings = {each["name"]: each.get("value") for each in container["env"]}
    secrets, *_ = deployment["template"]["spec"]["volumes"]

    assert deployment["replicas"] == 3
    assert container["image"] == f"registry.example.org/dpledger@sha256:{'a' * 64}"
    assert container["env"][0]["valueFrom"]["secretKeyRef"] == {"name": "ledger", "key": "url"}
    assert settings["DPLEDGER_OIDC_GRANTS"] == EVERYTHING["settings"]["DPLEDGER_OIDC_GRANTS"]
    assert settings["DPLEDGER_ALERT_SECRET_FILE"] == "/etc/dpledger/DPLEDGER_ALERT_SECRET_FILE"
    assert [each["secret"] for each in secrets["projected"]["sources"]] == [
        {"name": "ledger", "items": [{"key": "keys", "path": "keys.json"}]},
        {"name": "alerts", "items": [{"key": "secret", "path": "DPLEDGER_ALERT_SECRET_FILE"}]},
    ]
    policy = of_kind(everything, "NetworkPolicy")["spec"]
    assert policy["ingress"][0]["from"] == EVERYTHING["networkPolicy"]["from"]
    assert [rule.get("to") for rule in policy["egress"]] == [
        None,
        [{"ipBlock": {"cidr": "10.0.0.0/8"}}],
        None,
    ]
    assert of_kind(everything, "PodDisruptionBudget")["spec"]["maxUnavailable"] == "50%"


def test_the_migration_runs_before_pods_are_replaced() -> None:
    job = of_kind(rendered(), "Job")

    assert job["metadata"]["annotations"]["helm.sh/hook"] == "pre-install,pre-upgrade"
    assert {each["kind"] for each in rendered(NOTHING)} == {"Deployment", "Service"}


@pytest.mark.parametrize(
    "values",
    [
        {"settings": {"DPLEDGER_ALERT_SECOND": "5"}},
        {"settings": {"DPLEDGER_ALERT_SECONDS": 5}},
        {"settings": {"DPLEDGER_DATABASE": "postgresql://ann:secret@host/ledger"}},
        {"secretFiles": {"DPLEDGER_OTEL": {"secret": "a", "key": "b"}}},
        {"secretFiles": {"DPLEDGER_ALERT_SECRET_FILE": "a"}},
        {"image": {"digest": "latest"}},
        {"replicas": 0},
        {"replica": 2},
    ],
)
def test_a_wrong_value_is_refused(values: dict[str, Any]) -> None:
    ended = run_helm("template", "dpledger", str(CHART), values=values)

    assert ended.returncode != 0
    assert "values don't meet the specifications of the schema" in ended.stderr


def test_the_chart_takes_every_setting_and_no_other() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))["properties"]
    named = {name for part in ("settings", "secretFiles") for name in schema[part]["propertyNames"]["enum"]}

    # These the chart sets itself.
    assert named | {"DPLEDGER_DATABASE", "DPLEDGER_KEY_FILE", "DPLEDGER_MARK_FILE"} == set(VARIABLES)
    assert {name for name in named if name.endswith("_FILE")} == set(
        schema["secretFiles"]["propertyNames"]["enum"]
    )


def test_the_chart_is_of_this_version() -> None:
    (container,) = of_kind(rendered(), "Deployment")["spec"]["template"]["spec"]["containers"]

    assert container["image"] == f"dpledger:{__version__}"
