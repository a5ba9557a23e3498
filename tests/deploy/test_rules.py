"""Prometheus' rules and Grafana's dashboard, against promtool and against what /metrics says."""

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.alerts.receiver import receiving
from tests.api.service import Service, SetClock
from tests.deploy.promtool import PROMTOOL
from tests.deploy.serving import served

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
RULES = DEPLOY / "prometheus"
DASHBOARD: dict[str, Any] = json.loads((DEPLOY / "grafana" / "dpledger.json").read_text(encoding="utf-8"))
_NAME = re.compile(r"\b(?:dpledger|process)_\w+")


def _promtool(*arguments: str) -> str:
    assert PROMTOOL is not None, "no promtool here: apt-get install prometheus"
    ended = subprocess.run([PROMTOOL, *arguments], cwd=RULES, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


def _rules() -> list[dict[str, Any]]:
    groups = yaml.safe_load((RULES / "rules.yml").read_text(encoding="utf-8"))["groups"]
    return [rule for group in groups for rule in group["rules"]]


def test_rules_and_settings_are_read_by_prometheus() -> None:
    assert f"{len(_rules())} rules found" in _promtool("check", "rules", "rules.yml")
    _promtool("check", "config", "--syntax-only", "prometheus.yml")


def test_rules_fire_when_they_should() -> None:
    _promtool("test", "rules", "rules_test.yml")
    tests = yaml.safe_load((RULES / "rules_test.yml").read_text(encoding="utf-8"))["tests"]
    fired = {case["alertname"] for test in tests for case in test["alert_rule_test"] if "exp_alerts" in case}
    assert fired == {rule["alert"] for rule in _rules()}


@pytest.fixture(scope="module")
def metrics(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """The families that a service has which does everything."""
    folder = tmp_path_factory.mktemp("metrics")
    with receiving() as receiver, served(folder, receiver) as (client, token):
        text = Service(client, token, SetClock()).get("/metrics").text
    return set(re.findall(r"^# TYPE (\w+) ", text, re.MULTILINE))


def test_rules_and_dashboard_name_metrics_that_exist(metrics: set[str]) -> None:
    shown = [target["expr"] for panel in DASHBOARD["panels"] for target in panel["targets"]]
    asked = {
        re.sub(r"_(bucket|sum|count)$", "", name)
        for text in [*shown, *(rule["expr"] for rule in _rules())]
        for name in _NAME.findall(text)
    }
    assert len(asked) > 12
    assert asked <= metrics


def test_the_dashboard_can_be_imported() -> None:
    """What Grafana needs of a panel: an id of its own, a place, a source that the reader chooses."""
    panels = DASHBOARD["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        at = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not cells & taken, panel["title"]
        assert at["x"] + at["w"] <= 24
        taken |= cells
        assert panel["datasource"]["uid"] == "${source}"
        assert panel["title"]
    assert {each["name"] for each in DASHBOARD["templating"]["list"]} == {"source", "instance"}
