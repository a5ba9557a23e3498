"""Parses steps, budgets and guarantees as they are written on a command line.

Each has a short form, ``gaussian:sensitivity=1,noise_std=2``, and the API's own JSON, in place or in a
file: ``{"mechanism": …}``, ``@step.json``, ``@-`` for standard input. Numbers are read as strictly as
the API reads them: what does not fit a double is refused, not rounded.
"""

import re
import sys
from pathlib import Path
from typing import Any

from dpledger.cli.failures import ExitCode, Failed

__all__ = ["number", "number_list", "parse_description", "sample_of"]

_BETWEEN_FIELDS = re.compile(r",(?![^\[]*\])")
_SHORT = re.compile(r"[a-z][a-z0-9-]*")


def parse_description(option: str, text: str, kind: str) -> dict[str, Any]:
    """The object that ``text`` stands for; in the short form its first word is the field ``kind``."""
    if text.startswith("@"):
        return _object(option, _content(option, text[1:]))
    if text.lstrip().startswith("{"):
        return _object(option, text.encode(errors="replace"))
    name, _, rest = text.partition(":")
    if not _SHORT.fullmatch(name):
        raise Failed(ExitCode.USAGE, f"{option}: {text} is neither name:field=value,… nor JSON nor @file")
    return {kind: name, **dict(_field(option, part) for part in _BETWEEN_FIELDS.split(rest) if part)}


def number(text: str) -> float:
    """A finite number, exactly as written."""
    value = _parse("a number", text.encode(errors="replace"))
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise Failed(ExitCode.USAGE, f"{text} is not a number")
    return value


def number_list(text: str) -> list[float]:
    """Numbers with commas between them."""
    return [number(part.strip()) for part in text.split(",")]


def sample_of(scheme: str | None, rate: float | None) -> dict[str, Any]:
    """The member ``sample`` of a body; none where nothing was said of it."""
    if scheme is None and rate is None:
        return {}
    if scheme is None:
        raise Failed(ExitCode.USAGE, "--rate needs --sample: poisson or without-replacement")
    return {"sample": {"scheme": scheme, **({} if rate is None else {"rate": rate})}}


def _content(option: str, name: str) -> bytes:
    try:
        return sys.stdin.buffer.read() if name == "-" else Path(name).read_bytes()
    except OSError as error:
        raise Failed(ExitCode.USAGE, f"{option}: cannot read {name}: {error.strerror}") from None


def _object(option: str, content: bytes) -> dict[str, Any]:
    found = _parse(option, content)
    if not isinstance(found, dict):
        raise Failed(ExitCode.USAGE, f"{option}: the JSON is not an object")
    return found


def _field(option: str, part: str) -> tuple[str, Any]:
    name, equals, text = part.partition("=")
    if not equals:
        raise Failed(ExitCode.USAGE, f"{option}: {part} is not field=value")
    # A word is a word: only what begins like JSON is read as JSON.
    as_json = re.match(r"[-\[{\"0-9]|(true|false|null|NaN|Infinity)$", text) is not None
    return name.strip(), _parse(f"{option}: {name.strip()}", text.encode()) if as_json else text


def _parse(what: str, content: bytes) -> Any:
    # Imported here because it brings the web framework, and most commands read no JSON.
    from dpledger.api.http.body import parse_json
    from dpledger.api.http.problems import RefusedRequest

    try:
        return parse_json(content)
    except RefusedRequest as error:
        raise Failed(ExitCode.USAGE, f"{what}: {error.detail}") from None
