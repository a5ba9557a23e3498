"""Every subcommand and every option says what it is, at the terminal and in docs/cli.md."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from dpledger import cli
from dpledger.cli.failures import ExitCode
from tests.cli.running import run

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "cli.md").read_text(encoding="utf-8")
WANTED = {
    *("serve", "migrate", "backup", "restore", "token create", "token list", "token revoke"),
    *("dataset open", "dataset list", "dataset show", "dataset budget", "dataset runs"),
    *("dataset change-budget", "entries", "verify", "accept-rollback", "export"),
    *("cost", "convert", "calibrate", "forecast", "registry", "report"),
    *("partition open", "partition list", "partition show", "reservation list", "reservation settle"),
    *("allocation create", "allocation list", "allocation show", "allocation return"),
    *("quota set", "quota remove", "quota list"),
    *("request open", "request list", "request show"),
    *("request approve", "request reject", "request withdraw"),
    *("epoch policy", "epoch show", "epoch open"),
}


def _commands(group: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from _commands(command, f"{path}{name} ")
        else:
            yield f"{path}{name}", command


COMMANDS = dict(_commands(typer.main.get_command(cli.app)))


def _section(command: str) -> str:
    """What the page says of one command, up to the next heading."""
    found = re.search(rf"^### `{command}`\n(.*?)(?=^#|\Z)", PAGE, re.MULTILINE | re.DOTALL)
    assert found is not None, f"docs/cli.md has no section on {command}"
    return found[1]


SHARED = {
    *("--url", "--token", "--timeout-seconds", "--database", "--key-file"),
    *("--json", "--quiet", "--limit", "--next", "--idempotency-key"),
}
"""Options that mean the same everywhere; the page describes them once."""


def test_the_commands_are_those_that_are_promised() -> None:
    assert set(COMMANDS) == WANTED


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_and_its_options_explain_themselves(command: str) -> None:
    assert COMMANDS[command].help
    for parameter in COMMANDS[command].params:
        assert getattr(parameter, "help", None), parameter.name
    reported = run(*command.split(), "--help")
    assert reported.code == 0
    assert COMMANDS[command].help.split("\n")[0].split()[0] in reported.out


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_has_its_section_with_an_example(command: str) -> None:
    section = _section(command)
    assert f"    $ dpledger {command}" in section
    for parameter in COMMANDS[command].params:
        for option in parameter.opts:
            if option.startswith("-") and option not in SHARED:
                assert re.search(rf"`{option}[` ]", section), f"{command} {option}"


@pytest.mark.parametrize("option", sorted(SHARED))
def test_a_shared_option_is_described_once(option: str) -> None:
    assert re.search(rf"^\| `{option}[` ]", PAGE, re.MULTILINE)
    assert any(option in each.opts for command in COMMANDS.values() for each in command.params)


@pytest.mark.parametrize("code", list(ExitCode))
def test_every_exit_code_is_described(code: ExitCode) -> None:
    assert re.search(rf"^\| {code.value} \|", PAGE, re.MULTILINE)


def _pure_examples() -> dict[str, str]:
    """Commands on the page that need neither a service nor a database, with what they print there."""
    blocks = re.findall(
        r"^    \$ dpledger ((?:cost|convert|calibrate) .*)\n((?:    .*\n)+)", PAGE, re.MULTILINE
    )
    return {command: printed for command, printed in blocks if "--url" not in command}


EXAMPLES = _pure_examples()


@pytest.mark.parametrize("command", EXAMPLES)
def test_the_pages_pure_examples_print_what_it_says(command: str) -> None:
    shown = [line.strip() for line in EXAMPLES[command].splitlines() if line.strip()]
    reported = run(*command.split())
    printed = [line.strip() for line in reported.out.splitlines() if line.strip()]
    assert reported.code == 0, reported.err
    assert printed == shown


def test_there_are_such_examples() -> None:
    assert {command.split()[0] for command in EXAMPLES} == {"cost", "convert", "calibrate"}


def test_no_command_alone_shows_the_help() -> None:
    reported = run()
    assert "serve" in reported.out + reported.err
    assert reported.code in (0, 2)
