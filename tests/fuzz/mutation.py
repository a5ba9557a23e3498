"""Turns a body that is valid into one that is not quite: at the level of JSON, and below it.

Everything is drawn from one ``random.Random``: a seed gives the same bodies again, and where hypothesis
brings the generator, it shrinks what fails.
"""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from random import Random
from typing import Any

__all__ = ["Mutator", "Raw", "Repeated", "to_text"]

Path = tuple[str | int, ...]


class Raw(str):
    """A token as it stands in the text, which need not be JSON."""

    __slots__ = ()


class Repeated(list[tuple[str, Any]]):
    """An object that may name a key twice."""


NUMBERS: tuple[Any, ...] = (
    0, -1, 1, 2, -0.0, 0.5, 1.0 - 2**-53, 1.0 + 2**-52, 5e-324, 2.3e-308, 1.7e308, -1.7e308, 1e-300, 1e300,
    1e16, 1e6,
    2**31 - 1, 2**31, 2**53 + 1, 2**62, 2**63 - 1, 2**63, 2**64, -(2**63), 10**30, 1e-17, 0.1, 1e-9, 3.0,
    Raw("NaN"), Raw("Infinity"), Raw("-Infinity"), Raw("1e400"), Raw("-1e400"), Raw("1e-400"), Raw("0e9"),
    Raw("1" + "0" * 400), Raw("9" * 5000), Raw("0." + "0" * 400 + "1"), Raw("01"), Raw("+1"), Raw(".5"),
    Raw("1."), Raw("0x10"), Raw("1_000"), Raw("1e"), Raw("-"), Raw("1.0e0"),
)  # fmt: skip
TEXTS: tuple[Any, ...] = (
    "", " ", "a", "\0", "a\0b", "\x1b[2J", "\x7f", "\u0085", "\u2028", "\u202e", "\ufeff", "\ufffe", "é",
    "e\u0301", "ß", "ı", "K", "𝒳", "👩‍👩‍👧", "\u0640" * 20, "a" * 63, "a" * 64, "a" * 201, "a" * 3000,
    "../../etc/passwd", "..",
    "%2e%2e", "' OR 1=1 --", "\r\nX-Evil: 1", "<script>", "{{7*7}}", "${x}", "NaN", "1e400", "null", "true",
    "0",
    "adult~1", "~", "a~-1", "a~99999999999999999999", "most", "full", "poisson", "gaussian", "admin", "read",
    Raw('"\\ud800"'), Raw('"\\udfff\\ud800"'), Raw('"\\u0000"'),
    Raw('"\\x"'), Raw('"\t"'), Raw('"'), Raw("'a'"),
)  # fmt: skip
SHAPES: tuple[Any, ...] = (
    None, True, False, [], {}, [[]], [None], {"": None}, [{}], {"a": {"a": {"a": 1}}}, [1, [2, [3]]],
    Raw("[" * 30 + "]" * 30), Raw("[" * 300 + "]" * 300), Raw('{"a":' * 40 + "1" + "}" * 40),
    Raw("[" * 3000), Raw("undefined"), Raw("[1,]"), Raw("{,}"), Raw("/* */ 1"), Raw(""),
)  # fmt: skip
KEYS = (
    "",
    "mechanism",
    "count",
    "epsilon",
    "rho",
    "scheme",
    "rate",
    "id",
    "times",
    "budget",
    "__class__",
    "é",
    "\0",
)
_FEW = 3


def to_text(value: Any) -> str:
    """The value as JSON, with raw tokens and repeated keys as they are."""
    if isinstance(value, Raw):
        return str(value)
    if isinstance(value, dict):
        value = Repeated(value.items())
    if isinstance(value, Repeated):
        return "{" + ",".join(f"{json.dumps(key)}:{to_text(each)}" for key, each in value) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(to_text, value)) + "]"
    return json.dumps(value)


@dataclass(frozen=True)
class Mutator:
    """Draws mutations."""

    random: Random

    def body(self, valid: Any) -> bytes:
        """A text that differs from a valid body in a few places, or in a few bytes."""
        value = valid
        for _ in range(self.random.randint(1, _FEW)):
            value = self.mutated(value)
        text = to_text(value).encode("utf-8", "surrogatepass")
        return self._broken(text) if self.random.random() < 0.1 else text

    def mutated(self, value: Any) -> Any:
        """The value with one place changed."""
        paths = list(_paths(value))
        path = paths[self.random.randrange(len(paths))]
        return _replaced(value, path, self._change)

    def odd(self) -> Any:
        """A value out of the ordinary."""
        return self._choose(self._choose((NUMBERS, TEXTS, SHAPES)))

    def _choose(self, options: Any) -> Any:
        return options[self.random.randrange(len(options))]

    def _change(self, value: Any) -> Any:
        changes: list[Callable[[Any], Any]] = [lambda _: self.odd(), lambda each: [each]]
        if isinstance(value, bool) or value is None:
            changes += [lambda each: not each]
        elif isinstance(value, (int, float)):
            changes = [self._number] * 4 + changes
        elif isinstance(value, str):
            changes = [
                lambda _: self._choose(TEXTS),
                lambda each: each + self.random.choice("~ \0é"),
            ] * 2 + changes
        elif isinstance(value, dict) and value:
            changes += [self._without_key, self._with_key, self._repeated, self._renamed]
        elif isinstance(value, list) and value:
            changes += [self._longer, lambda each: each[1:], lambda each: each[::-1]]
        return self._choose(changes)(value)

    def _number(self, value: float) -> Any:
        if self.random.random() < 0.5:
            return self._choose(NUMBERS)
        factor = self._choose((-1, 2, 10, 1000, 0.5, 1e-3, 1e-9, 1e9))
        return int(value * factor) if isinstance(value, int) else value * factor

    def _without_key(self, value: dict[str, Any]) -> Any:
        gone = self._choose(list(value))
        return {key: each for key, each in value.items() if key != gone}

    def _with_key(self, value: dict[str, Any]) -> Any:
        return {**value, self._choose(KEYS): self.odd()}

    def _repeated(self, value: dict[str, Any]) -> Any:
        key = self._choose(list(value))
        return Repeated([*value.items(), (key, self._choose((value[key], self.odd())))])

    def _renamed(self, value: dict[str, Any]) -> Any:
        old, new = self._choose(list(value)), self._choose(KEYS)
        return {new if key == old else key: each for key, each in value.items()}

    def _longer(self, value: list[Any]) -> Any:
        return value * self._choose((2, 3, 20, 70, 2000))

    def _broken(self, text: bytes) -> bytes:
        """Bytes that may be no JSON or no UTF-8 at all."""
        at = self.random.randrange(len(text) + 1)
        odd = (
            b"\xff",
            b"\xc0\x80",
            b"\xed\xa0\x80",
            b"\0",
            b"\xef\xbb\xbf",
            b"{",
            b"]",
            b",",
            b'"',
            b" " * 70_000,
        )
        broken: bytes = self._choose(
            (
                text[:at],
                text[:at] + self._choose(odd) + text[at:],
                text[:at] + text[at + 1 :],
                text + text,
                b"\xef\xbb\xbf" + text,
                text.decode("utf-8", "replace").encode("utf-16"),
            )
        )
        return broken


def _paths(value: Any, path: Path = ()) -> Iterator[Path]:
    yield path
    if isinstance(value, Repeated):
        return
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, each in inner:
        yield from _paths(each, (*path, key))


def _replaced(value: Any, path: Path, change: Callable[[Any], Any]) -> Any:
    if not path:
        return change(value)
    copy: Any = dict(value) if isinstance(value, dict) else list(value)
    copy[path[0]] = _replaced(value[path[0]], path[1:], change)
    return copy
