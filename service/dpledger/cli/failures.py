"""Failures at a terminal: one line on stderr, and a documented exit code."""

import enum
import os
from typing import Any

import typer
from typer.core import TyperGroup

from dpledger.logs import redact

__all__ = ["ExitCode", "Failed", "OneLineErrors", "failure_of", "one_line"]

_LONGEST_LINE = 600
_STANDARD_OUTPUT = 1


class ExitCode(enum.IntEnum):
    """How a command ended; the numbers never change."""

    DONE = 0
    """Yes."""

    FAILURE = 1
    """An unforeseen failure, or one that needs an operator."""

    USAGE = 2
    """The command or one of its values cannot be read, or lies outside its range."""

    REFUSED = 3
    """Understood, and the answer is no."""

    NOT_FOUND = 4
    """There is no such dataset, partition or token."""

    UNAUTHORIZED = 5
    """No token, a wrong one, or one that lacks the required scope or dataset."""

    UNAVAILABLE = 6
    """The service or the database cannot be reached now; trying again later may help."""

    BROKEN = 7
    """A ledger that fails verification."""


_BY_SLUG = {"invalid-input": ExitCode.USAGE}
_BY_STATUS = {
    400: ExitCode.USAGE,
    401: ExitCode.UNAUTHORIZED,
    403: ExitCode.UNAUTHORIZED,
    404: ExitCode.NOT_FOUND,
    413: ExitCode.USAGE,
    502: ExitCode.UNAVAILABLE,
    503: ExitCode.UNAVAILABLE,
    504: ExitCode.UNAVAILABLE,
}


class Failed(Exception):
    """A command that ends here, with its exit code and its one line."""

    def __init__(self, code: ExitCode, message: str) -> None:
        self.code = code
        super().__init__(one_line(message))


def one_line(text: str) -> str:
    """``text`` without secrets, line ends or anything that would steer a terminal."""
    words = " ".join(redact(text).split())
    shown = "".join(character if character.isprintable() else "?" for character in words)
    return shown if len(shown) <= _LONGEST_LINE else shown[: _LONGEST_LINE - 1] + "…"


def failure_of(slug: str, status: int, detail: str) -> Failed:
    """The failure that a problem of the API is (RFC 9457), met over HTTP or in this process."""
    refused = ExitCode.REFUSED if 400 <= status < 500 else ExitCode.FAILURE
    return Failed(_BY_SLUG.get(slug) or _BY_STATUS.get(status) or refused, detail)


class OneLineErrors(TyperGroup):
    """A command line whose failures are reported in one line."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command that was asked for."""
        try:
            return super().invoke(ctx)
        except Failed as failed:
            raise _exit(failed) from None
        except UnicodeEncodeError as error:
            raise _exit(_unwritable(error)) from None
        except BrokenPipeError:
            raise
        except OSError as error:
            _discard_output()
            raise _exit(
                Failed(ExitCode.FAILURE, f"{error.filename or 'the output'}: {error.strerror}")
            ) from None


def _discard_output() -> None:
    """What could not be written is given up: the interpreter would try again at its end, and complain."""
    with open(os.devnull, "wb") as nowhere:
        os.dup2(nowhere.fileno(), _STANDARD_OUTPUT)


def _exit(failed: Failed) -> typer.Exit:
    typer.echo(f"Error: {failed}", err=True)
    return typer.Exit(failed.code)


def _unwritable(error: UnicodeEncodeError) -> Failed:
    """Bytes of the command line that are no text, or a terminal that has no such letter."""
    if any("\ud800" <= character <= "\udfff" for character in error.object):
        return Failed(ExitCode.USAGE, "an argument holds bytes that are no UTF-8")
    return Failed(ExitCode.FAILURE, f"the output takes {error.encoding} only; --json always fits")
