"""docs/operations.md against the code: its settings, its metrics, and the tests that it names."""

import re
from dataclasses import fields
from pathlib import Path

import pytest

from dpledger.settings import VARIABLES, Settings
from tests.alerts.receiver import receiving
from tests.api.service import Service, SetClock
from tests.deploy.serving import served
from tests.tidy import checks

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
ROW = re.compile(r"^\| `(?P<name>[A-Za-z_*]+)` \|(?P<rest>.*)\|$", re.MULTILINE)


def rows(heading: str) -> dict[str, str]:
    """The first cell of each row of a section's table, with the rest of the row."""
    section = PAGE.partition(f"## {heading}\n")[2].partition("\n## ")[0]
    return {found["name"]: found["rest"] for found in ROW.finditer(section)}


def test_every_setting_is_documented_and_no_other() -> None:
    assert list(rows("Settings")) == list(VARIABLES)


def test_the_defaults_are_those_of_the_code() -> None:
    shown = {name: rest.split("|")[0].strip(" `") for name, rest in rows("Settings").items()}
    for each in fields(Settings):
        cell = shown[f"DPLEDGER_{each.name.upper()}"]
        if each.default in (None, ()):
            assert cell in {"none", "beside an SQLite file"}
        elif isinstance(each.default, tuple):
            assert cell == ",".join(map(str, each.default))
        elif isinstance(each.default, bool):
            assert cell == "0"
        elif isinstance(each.default, (int, float)):
            assert float(cell) == each.default
        else:
            assert cell == each.default


@pytest.fixture(scope="module")
def reported(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What /metrics says of a service that does everything."""
    folder = tmp_path_factory.mktemp("metrics")
    with receiving() as receiver, served(folder, receiver) as (client, token):
        assert client.get("/dashboard/login").status_code == 200
        assert client.get("/no/such/page").status_code == 404
        return Service(client, token, SetClock()).get("/metrics").text


def test_every_metric_is_documented_and_no_other(reported: str) -> None:
    names = set(re.findall(r"^# TYPE (dpledger_\w+) ", reported, re.MULTILINE))

    assert names == {name for name in rows("Metrics") if name.startswith("dpledger_")}
    assert re.search(r"^# TYPE process_", reported, re.MULTILINE)


def test_the_dashboard_is_timed_by_its_own_routes(reported: str) -> None:
    counted = re.findall(
        r'^dpledger_request_seconds_count\{method="GET",route="(.*)"\} 1.0$', reported, re.MULTILINE
    )

    assert counted == ["/dashboard/login", "unknown"]


def test_queries_to_prometheus_name_metrics_that_exist(reported: str) -> None:
    block = PAGE.partition("Useful queries:\n")[2].partition("\n\nAn authorization")[0]
    asked = set(re.findall(r"dpledger_\w+", block))

    assert len(asked) >= 6
    for name in asked:
        family = re.sub(r"_(bucket|sum|count)$", "", name)
        assert f"# TYPE {family} " in reported, name


def test_every_statement_names_a_test_that_exists() -> None:
    found = checks.bound_rows(PAGE)

    assert len(found) > 20
    for row in found:
        named = checks.named_tests(row)
        assert named, row
        for each in named:
            file, _, name = each.partition("::")
            assert name in checks.defined_tests((ROOT / file).read_text(encoding="utf-8")), each
