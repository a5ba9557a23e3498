"""What can be said of the container files without an engine to run them."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from dpledger.settings import VARIABLES

ROOT = Path(__file__).resolve().parents[2]
PROMETHEUS = "deploy/prometheus/prometheus.yml"
VARIABLE = re.compile(r"DPLEDGER_[A-Z_]+")
Instruction = tuple[str, str]


def instructions() -> list[Instruction]:
    """The Dockerfile's instructions, with continued lines joined."""
    text = (ROOT / "Dockerfile").read_text(encoding="utf-8").replace("\\\n", " ")
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    # A health check's command stands on a line of its own, behind a continuation.
    return [(word, rest.strip()) for word, _, rest in (line.partition(" ") for line in lines)]


def stages() -> list[list[Instruction]]:
    found: list[list[Instruction]] = []
    for word, rest in instructions():
        if word == "FROM":
            found.append([])
        found[-1].append((word, rest))
    return found


def said(stage: list[Instruction], word: str) -> list[str]:
    return [rest for each, rest in stage if each == word]


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text(encoding="utf-8"))
    return found


def test_what_is_built_with_stays_in_the_first_stage() -> None:
    build, final = stages()

    assert said(build, "FROM") == ["python:3.13-slim AS build"]
    assert any("pip install" in run for run in said(build, "RUN"))
    assert not any("pip" in run for run in said(final, "RUN"))
    assert said(final, "COPY") == ["--from=build /opt/dpledger /opt/dpledger"]


def test_everything_that_the_first_stage_copies_is_there_and_sent_to_the_engine() -> None:
    ignored = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    copied = {name for line in said(stages()[0], "COPY") for name in line.split()[:-1]}

    assert ignored[0] == "*"
    assert copied == {line[1:] for line in ignored if line.startswith("!")}
    assert all((ROOT / name).exists() for name in copied)


def test_the_service_is_not_root() -> None:
    final = stages()[1]
    (user,) = said(final, "USER")
    words = [word for word, _ in final]

    assert user == "10001:10001"
    assert "--uid 10001" in said(final, "RUN")[0]
    assert words.index("USER") < words.index("ENTRYPOINT")
    assert "RUN" not in words[words.index("USER") :]


def test_health_is_asked_of_the_port_that_is_served() -> None:
    final = stages()[1]
    (check,) = said(final, "HEALTHCHECK")
    command = json.loads(check.partition("CMD ")[2])
    served = json.loads(said(final, "CMD")[0])

    assert "http://127.0.0.1:8000/healthz" in command[-1]
    compile(command[-1], "healthcheck", "exec")
    assert served == ["serve", "--host", "0.0.0.0", "--port", "8000"]
    assert said(final, "EXPOSE") == ["8000"]
    assert json.loads(said(final, "ENTRYPOINT")[0]) == ["dpledger"]


def test_the_ledger_outlives_the_container(compose: dict[str, Any]) -> None:
    final = stages()[1]
    assert said(final, "VOLUME") == ["/var/lib/dpledger"]
    assert "DPLEDGER_DATABASE=sqlite:////var/lib/dpledger/" in said(final, "ENV")[0]

    named = {
        volume.split(":")[0]
        for service in compose["services"].values()
        for volume in service.get("volumes", [])
        if not volume.startswith(".")
    }
    assert named == set(compose["volumes"])
    assert "ledger:/var/lib/postgresql/data" in compose["services"]["postgres"]["volumes"]
    assert "standby:/var/lib/postgresql/data" in compose["services"]["standby"]["volumes"]


def test_every_setting_that_is_used_exists(compose: dict[str, Any]) -> None:
    used = set(compose["services"]["dpledger"]["environment"])
    for name in ("Dockerfile", "docker-compose.yml", "deploy/standby.env", PROMETHEUS):
        used |= set(VARIABLE.findall((ROOT / name).read_text(encoding="utf-8")))

    assert {"DPLEDGER_DATABASE", "DPLEDGER_KEY_FILE", "DPLEDGER_ALERT_URL"} <= used
    assert used <= set(VARIABLES)


def test_nothing_is_open_to_other_machines(compose: dict[str, Any]) -> None:
    ports = [port for service in compose["services"].values() for port in service.get("ports", [])]

    assert ports == ["127.0.0.1:8000:8000", "127.0.0.1:9090:9090"]


def test_files_of_the_repository_are_mounted_where_they_are(compose: dict[str, Any]) -> None:
    mounted = {
        volume.split(":")[0]
        for service in compose["services"].values()
        for volume in service.get("volumes", [])
        if volume.startswith(".")
    }
    own = {path for path in mounted if "secrets" not in path}

    assert len(own) == 5
    assert [path for path in own if not (ROOT / path).is_file()] == []
    assert "deploy/secrets/" in (ROOT / ".gitignore").read_text(encoding="utf-8")


def test_only_the_service_and_its_database_start_without_a_profile(compose: dict[str, Any]) -> None:
    profiles = {name: service.get("profiles") for name, service in compose["services"].items()}

    assert profiles == {
        "dpledger": None,
        "postgres": None,
        "standby": ["standby"],
        "synchronize": ["standby"],
        "prometheus": ["prometheus"],
    }


def test_who_waits_for_whom(compose: dict[str, Any]) -> None:
    services = compose["services"]

    def healthy(name: str) -> list[str]:
        return [
            other
            for other, how in services[name]["depends_on"].items()
            if how == {"condition": "service_healthy"}
        ]

    assert healthy("dpledger") == ["postgres"]
    assert healthy("standby") == ["postgres"]
    assert healthy("synchronize") == ["standby"]
    assert all("healthcheck" in services[name] for name in ("postgres", "standby"))


def test_no_password_is_written_down(compose: dict[str, Any]) -> None:
    given = [
        str(value)
        for service in compose["services"].values()
        for name, value in service.get("environment", {}).items()
        if "PASSWORD" in name or name == "DPLEDGER_DATABASE"
    ]

    assert len(given) == 4
    assert all("${POSTGRES_PASSWORD:?" in value for value in given)


def test_prometheus_shows_a_token_of_its_own(compose: dict[str, Any]) -> None:
    scrape = yaml.safe_load((ROOT / PROMETHEUS).read_text(encoding="utf-8"))["scrape_configs"][0]
    file = scrape["authorization"]["credentials_file"]

    assert any(volume.endswith(f":{file}:ro") for volume in compose["services"]["prometheus"]["volumes"])
    assert scrape["static_configs"] == [{"targets": ["dpledger:8000"]}]
    # Prometheus asks at this path where none is configured.
    assert "metrics_path" not in scrape


def test_with_a_standby_the_service_knows_both_hosts(compose: dict[str, Any]) -> None:
    lines = (ROOT / "deploy/standby.env").read_text(encoding="utf-8").splitlines()
    given = dict(line.split("=", 1) for line in lines if not line.startswith("#"))

    assert given == {"COMPOSE_PROFILES": "standby", "POSTGRES_HOSTS": "postgres:5432,standby:5432"}
    assert "@${POSTGRES_HOSTS:-" in compose["services"]["dpledger"]["environment"]["DPLEDGER_DATABASE"]
