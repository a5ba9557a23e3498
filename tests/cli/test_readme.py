"""The README's sessions at a terminal, of a data owner and of a platform engineer, print what it shows."""

import os
import re
import subprocess
import sys
from pathlib import Path

from tests.cli.running import served

README = (Path(__file__).resolve().parents[2] / "README.md").read_text(encoding="utf-8")
SECTIONS = ("A data owner", "A platform engineer")
WAIT_SECONDS = 120
CURL = """
import sys, urllib.request
words, headers, data, url = iter(sys.argv[1:]), {}, None, ""
for word in words:
    if word == "-H":
        headers.update([next(words).split(": ", 1)])
    elif word == "--json":
        headers["Content-Type"], data = "application/json", next(words).encode()
    elif word != "-s":
        url = word
print(urllib.request.urlopen(urllib.request.Request(url, data, headers)).read().decode())
"""
"""What the page uses of curl, for a machine that has none; and a new line after the answer."""


def _session(section: str) -> list[str]:
    """The lines of a section's block: commands after a prompt, and what they print."""
    text = README.split(f"\n## {section}\n")[1].split("\n## ")[0]
    return [line[4:] for line in text.splitlines() if line.startswith("    ")]


def _script(lines: list[str]) -> str:
    """The commands of a session, each of which fails the whole if it fails."""
    commands = [line[2:] for line in lines if line.startswith("$ ")]
    return "\n".join(["set -eo pipefail", 'curl() { "$PYTHON" -c "$CURL" "$@"; }', *commands])


def _printed(lines: list[str]) -> str:
    """What a session shows as printed, as a pattern: an ellipsis stands for what differs."""
    shown = [re.escape(line).replace("…", ".*") for line in lines if not line.startswith("$ ")]
    return "\n".join(shown) + "\n"


def test_the_sessions_print_what_the_page_shows(tmp_path: Path) -> None:
    lines = [line for section in SECTIONS for line in _session(section)]
    with served(tmp_path) as service:
        script = _script(lines).replace("http://127.0.0.1:8000", service.address)
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        ended = subprocess.run(
            ["bash", "-c", script.replace("dpl_…", service.token)],
            env={"PATH": path, "LC_ALL": "C.UTF-8", "PYTHON": sys.executable, "CURL": CURL},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=WAIT_SECONDS,
            check=False,
        )
    assert (ended.returncode, ended.stderr) == (0, "")
    printed = "".join(f"{line.rstrip()}\n" for line in ended.stdout.splitlines())
    assert re.fullmatch(_printed(lines), printed), printed


def test_each_session_has_commands_and_what_they_print() -> None:
    for section in SECTIONS:
        lines = _session(section)
        assert 0 < sum(line.startswith("$ ") for line in lines) < len(lines) <= 10
