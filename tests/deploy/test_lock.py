"""The image installs pinned versions that the service's own requirements allow."""

import re
import tomllib
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[2]
PINNED = re.compile(r"^(?P<name>[a-z0-9._-]+)(\[[^]]*])?==(?P<version>[^ ;\\]+)", re.MULTILINE)


def _lock() -> str:
    return (ROOT / "deploy" / "requirements.lock").read_text(encoding="utf-8")


def _requirements() -> list[Requirement]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    return [Requirement(line) for line in [*project["dependencies"], *extras["oidc"], *extras["otel"]]]


def test_every_requirement_of_the_service_is_pinned_within_its_range() -> None:
    pinned = {found["name"]: found["version"] for found in PINNED.finditer(_lock())}
    assert len(pinned) > 20
    wrong = [
        str(each)
        for each in _requirements()
        if not each.specifier.contains(pinned.get(each.name.lower(), "0"), prereleases=True)
    ]
    assert wrong == []


def test_every_pin_has_a_hash_and_no_host() -> None:
    pins = re.split(r"(?m)^(?=[a-z0-9])", _lock())[1:]
    assert [pin for pin in pins if "--hash=sha256:" not in pin] == []
    assert "://" not in _lock()
