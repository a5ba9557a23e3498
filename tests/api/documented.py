"""docs/api.md and docs/plans.md as something that runs: each curl is sent, its answer stands below it.

``python -m tests.api.documented`` writes the answers anew.
"""

import json
import re
import shlex
import tempfile
import textwrap
from pathlib import Path
from string import Template
from typing import Any

import httpx2

from tests.api.service import Service, running

_FOLDER = Path(__file__).resolve().parents[2] / "docs"
PAGE = _FOLDER / "api.md"
PAGES = (PAGE, _FOLDER / "plans.md")
_EXAMPLE = re.compile(r"```sh\n(?P<command>curl .*?)\n```\n+```text\n(?P<answer>.*?)```", re.DOTALL)
_HEADING = re.compile(r"^### `(?P<method>[A-Z]+) (?P<path>/[^`]*)`$", re.MULTILINE)
_WIDTH = 130
_LONGEST = 110
_SECRET = {"actor", "by", "hash", "head", "kid", "owner", "previous", "receipt", "token", "x"}
"""What is different in every ledger."""


def routes(page: str) -> set[tuple[str, str]]:
    """Method and path of every heading."""
    return {(found["method"], found["path"]) for found in _HEADING.finditer(page)}


def described_routes(page: str) -> dict[tuple[str, str], str]:
    """Each heading with the text up to the next one."""
    found = list(_HEADING.finditer(page))
    ends = [*(each.start() for each in found[1:]), len(page)]
    return {
        (each["method"], each["path"]): page[each.end() : end] for each, end in zip(found, ends, strict=True)
    }


def run(page: str) -> str:
    """The page with the answers that its examples get now, from a service on an empty ledger."""
    with tempfile.TemporaryDirectory() as folder:
        database_target = Path(folder)
        with running(f"sqlite:///{database_target / 'ledger.db'}", database_target / "keys.json") as service:
            variables = {"URL": "", "TOKEN": service.token}
            return _EXAMPLE.sub(lambda found: _answered(service, variables, found), page)


def _answered(service: Service, variables: dict[str, str], found: "re.Match[str]") -> str:
    command = found["command"]
    answer = _sent(service, variables, command)
    if answer.url.path == "/v1/tokens" and answer.status_code == 201:
        variables["TOKEN_ID"] = answer.json()["id"]
    return f"```sh\n{command}\n```\n\n```text\n{_shown(answer)}```"


def _sent(service: Service, variables: dict[str, str], command: str) -> httpx2.Response:
    text = Template(command.replace("\\\n", " ")).substitute(variables)
    words = iter(shlex.split(text)[1:])
    method, path, headers, body = "GET", "", {}, None
    for word in words:
        if word == "-X":
            method = next(words)
        elif word == "-H":
            name, _, value = next(words).partition(": ")
            headers[name] = value
        elif word == "--json":
            method, body = "POST", next(words)
            headers["Content-Type"] = "application/json"
        else:
            path = word
    return service.client.request(method, path, headers=headers, content=body)


def _shown(answer: httpx2.Response) -> str:
    kind = answer.headers.get("content-type", "")
    lines = [f"{answer.status_code}"]
    if "idempotency-replayed" in answer.headers:
        lines.append("idempotency-replayed: true")
    if kind.startswith("text/plain"):
        lines += [line for line in answer.text.splitlines() if line.startswith("# TYPE dpledger_")]
    elif "ndjson" in kind:
        lines += [_written(json.loads(answer.text.splitlines()[0]), answer), "…"]
    elif answer.content:
        lines.append(_written(answer.json(), answer))
    return "\n".join(lines) + "\n"


def _written(content: Any, answer: httpx2.Response) -> str:
    text = json.dumps(_short(content, answer.url.path), ensure_ascii=False)
    return "\n".join(textwrap.wrap(text, _WIDTH, break_long_words=False, break_on_hyphens=False))


def _short(value: Any, path: str, name: str = "") -> Any:
    """The value as the page shows it: long lists and texts cut, secrets and chances left out."""
    if (name in _SECRET and value is not None) or (name == "id" and path.startswith("/v1/tokens")):
        return "…"
    if isinstance(value, dict):
        return {key: _short(each, path, key) for key, each in value.items()}
    if isinstance(value, list):
        return [_short(each, path) for each in value[:2]] + ["…"] * (len(value) > 2)
    if isinstance(value, float):
        return float(f"{value:.6g}")
    if isinstance(value, str) and len(value) > _LONGEST:
        return f"{value[:_LONGEST]}…"
    return value


if __name__ == "__main__":
    for each in PAGES:
        each.write_text(run(each.read_text(encoding="utf-8")), encoding="utf-8")
