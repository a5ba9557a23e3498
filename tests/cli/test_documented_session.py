"""The commands of docs/cli.md that need a ledger are run as they stand there, in the page's order.

What a command shows on the page is compared word by word: names, labels and headings have to be printed in
that order, while numbers, ids, times and the widths of columns may differ. Commands that only compute are in
``test_documented.py``.
"""

import json
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cli.running import Ended, Served, run, served

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "cli.md").read_text(encoding="utf-8")
COMPUTED = ("cost", "convert", "calibrate")
ELSEWHERE = {
    "serve": "tests/cli/test_serving.py",
    "migrate": "tests/cli/test_serving.py",
    "backup": "tests/cli/test_backups.py",
    "restore": "tests/cli/test_backups.py",
    "accept-rollback": "tests/cli/test_rollback.py",
    "verify --receipts": "tests/cli/test_rollback.py",
}
"""Commands that take a database to themselves, or a ledger that has lost entries, and their own tests."""
FAILING = {"--url http://127.0.0.1:9": 6, "--token dpl_abcd_": 5}
"""The page's two failures, and how they exit."""
STEP = {"mechanism": "gaussian", "sensitivity": 3.0, "noise_std": 30.0, "purpose": "gradient"}
SGD = {
    "sample": {"scheme": "poisson", "rate": 0.01},
    "releases": [{"mechanism": "gaussian", "sensitivity": 1.0, "noise_std": 1.1}],
}
LOOK = {"releases": [{"mechanism": "gaussian", "sensitivity": 1.0, "noise_std": 100.0}]}
PLAN = {
    "accounting": "plan",
    "epsilon": 1.0,
    "delta": 1e-5,
    "items": [
        {"name": "sgd", **SGD, "times": "most"},
        {"name": "evaluate", **LOOK, "times": 1},
        {"name": "reserve", "gdp": {"mu": 0.05}},
    ],
}
Scene = Callable[[Served], Any]


def _commands() -> list[tuple[str, list[str]]]:
    """Every command after a prompt that needs a ledger, and the lines that it shows."""
    found: list[tuple[str, list[str]]] = []
    for block in re.findall(r"(?:^    .*\n|^\n(?=    ))+", PAGE, re.MULTILINE):
        for part in re.split(r"^    \$ ", block, flags=re.MULTILINE)[1:]:
            command, *shown = part.replace("\\\n", "").splitlines()
            found.append((command, [line.strip() for line in shown if line.strip()]))
    return [each for each in found if each[0].startswith("dpledger") and not _elsewhere(each[0])]


def _elsewhere(command: str) -> bool:
    words = command.removeprefix("dpledger ")
    return words.split()[0] in COMPUTED or any(words.startswith(name) for name in ELSEWHERE)


def _open(name: str, budget: dict[str, Any]) -> Scene:
    return lambda service: service.post("datasets", f"open-{name}", {"name": name, "budget": budget})


def _spend(dataset: str, key: str, step: dict[str, Any], **more: Any) -> Scene:
    return lambda service: service.post(f"datasets/{dataset}/authorizations", key, {**step, **more})


def _all(*scenes: Scene) -> Scene:
    return lambda service: [scene(service) for scene in scenes]


def _part_of_census(service: Served) -> Any:
    body = {"name": "team-b", "epsilon": 0.5, "delta": 1e-6, "budget": {"accounting": "gdp"}}
    return service.post("datasets/census/allocations", "team-b", body)


def _reserve_of_adult(service: Served) -> Any:
    body = {"run": "sgd", "releases": [STEP], "times": 10, "expires_in_seconds": 3600}
    return service.post("datasets/adult/reservations", "held", body)


BEFORE: dict[str, Scene] = {
    "dataset list": _all(
        _open("mnist", {"accounting": "rdp", "epsilon": 3.0, "delta": 1e-5}),
        *(_spend("adult", f"adult-{number}", {"releases": [STEP]}, run="agd-7") for number in range(2)),
    ),
    "dataset budget income": _all(
        *(_spend("income", f"sgd-{number}", SGD, run="fit", item="sgd") for number in range(6)),
        _spend("income", "evaluate", LOOK, run="fit", item="evaluate"),
        _spend(
            "income", "reserve", {"releases": [{"mechanism": "gdp", "mu": 0.025}]}, run="fit", item="reserve"
        ),
    ),
    "partition open trips": _open("trips", {"accounting": "zcdp", "rho": 0.5}),
    "partition list trips": _spend("trips", "trip", {"releases": [STEP]}, run="taxi", partition="2026-01"),
    "reservation list adult": _reserve_of_adult,
    "request open parks --budget zcdp:rho=0.03": _open("parks", {"accounting": "zcdp", "rho": 0.02}),
    "allocation create census": _open("census", {"accounting": "shared", "epsilon": 3.0, "delta": 1e-5}),
    "allocation list census": _part_of_census,
}
"""What has happened by the time that a command is shown: other jobs' requests."""


def _prepare(command: str, service: Served) -> None:
    for start, scene in BEFORE.items():
        if command.startswith(f"dpledger {start}") and "--url" not in command:
            scene(service)


def _arguments(command: str, service: Served, made: list[str]) -> list[str]:
    """Its words, for this service and the token that was made here."""
    command = command.replace("http://127.0.0.1:8000", service.address)
    if "token revoke" in command:
        command = f"dpledger token revoke {made[0].split('_')[1]}"
    if "epoch open" in command:
        command = command.replace("2026-12", service.get("datasets/trips/renewal")["next"])
    return shlex.split(command)[1:]


def _pattern(line: str) -> re.Pattern[str]:
    """The words of a line in their order, whatever stands between them."""
    words = re.findall(r"(?<![\w.])[A-Za-zε-ω][a-zA-Zε-ω'-]*(?![\w])", line)
    return re.compile(".*".join(map(re.escape, words)))


def _assert_shown(shown: list[str], ended: Ended) -> None:
    printed = ended.out + ended.err
    for line in shown:
        if not line.startswith(("─", "dpl_", "{")) and line != "…":
            assert _pattern(line).search(printed), f"{line}\nis not among\n{printed}"
        elif line.startswith("{"):
            assert json.loads(ended.out).keys() == json.loads(line).keys()


def test_the_pages_session_runs_as_it_stands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "plan.json").write_text(json.dumps(PLAN), encoding="utf-8")
    made: list[str] = []
    with served(tmp_path) as service:
        for command, shown in _commands():
            _prepare(command, service)
            named = "--url" in command
            monkeypatch.setenv("DPLEDGER_URL", "" if named else service.address)
            monkeypatch.setenv("DPLEDGER_TOKEN", service.token)
            ended = run(*_arguments(command, service, made))
            expected = next((code for words, code in FAILING.items() if words in command), 0)
            assert ended.code == expected, f"{command}\n{ended.out}{ended.err}"
            if "token create" in command:
                made.append(ended.out.strip())
            _assert_shown(["revoked"] if "token revoke" in command else shown, ended)


def test_the_session_covers_every_command_that_a_ledger_answers() -> None:
    run_here = {" ".join(re.findall(r"^dpledger ([a-z-]+)(?: ([a-z-]+))?", c)[0]) for c, _ in _commands()}
    assert len(_commands()) >= 30
    assert {"dataset open", "quota set", "reservation settle", "allocation return"} <= run_here
    assert all(any(name in command for command, _ in _commands()) for name in FAILING)


@pytest.mark.parametrize("name", ELSEWHERE)
def test_what_is_left_out_is_on_the_page_and_has_its_own_tests(name: str) -> None:
    assert f"    $ dpledger {name}" in PAGE
    tests = (Path(__file__).resolve().parents[2] / ELSEWHERE[name]).read_text(encoding="utf-8")
    assert f'"{name.split()[0]}"' in tests
