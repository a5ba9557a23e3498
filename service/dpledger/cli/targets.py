"""Locates a ledger: a service with its token, or a database of this machine."""

import functools
import inspect
import os
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Concatenate, ParamSpec

import typer

from dpledger.cli.failures import ExitCode, Failed

__all__ = [
    "DATABASE_VARIABLE",
    "KEY_FILE_VARIABLE",
    "AsJson",
    "Cursor",
    "DatasetName",
    "Key",
    "LedgerTarget",
    "Limit",
    "Quiet",
    "at_a_ledger",
    "at_a_service",
    "new_key",
]

DATABASE_VARIABLE = "DPLEDGER_DATABASE"
KEY_FILE_VARIABLE = "DPLEDGER_KEY_FILE"
_URL_VARIABLE = "DPLEDGER_URL"
_TOKEN_VARIABLE = "DPLEDGER_TOKEN"  # the name of a variable  # nosec B105
_TIMEOUT_SECONDS = 30.0

DatasetName = Annotated[str, typer.Argument(metavar="DATASET", help="The dataset's name.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print the API's own JSON.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="Draw no progress bar.")]
Limit = Annotated[int, typer.Option(min=1, max=1_000_000, help="How many at most.")]
Cursor = Annotated[str | None, typer.Option("--next", help="The `next` of an earlier list, to go on.")]
Key = Annotated[
    str | None, typer.Option("--idempotency-key", help="The key of an earlier attempt, to repeat it.")
]
Url = Annotated[str | None, typer.Option(help="Address of a service; else DPLEDGER_URL.", metavar="URL")]
Token = Annotated[
    str | None, typer.Option(help="Token to send; better kept in DPLEDGER_TOKEN.", metavar="TOKEN")
]
Timeout = Annotated[
    float, typer.Option(min=0.1, max=86_400, help="How long to wait for the service's answer.")
]
Database = Annotated[
    str | None,
    typer.Option(help="URL of a database, opened directly; else DPLEDGER_DATABASE.", metavar="URL"),
]
KeyFile = Annotated[
    Path | None,
    typer.Option(help="The server's secrets, beside --database; else DPLEDGER_KEY_FILE.", metavar="FILE"),
]

P = ParamSpec("P")


@dataclass(frozen=True)
class LedgerTarget:
    """A service's URL, or where there is none, a database."""

    url: str | None
    token: str | None
    timeout_seconds: float
    database: str | None = None
    key_file: Path | None = None


def at_a_service(command: Callable[Concatenate[LedgerTarget, P], None]) -> Callable[..., None]:
    """Give a command the options that name a service; its first parameter becomes the place."""

    def with_target(url: str | None, token: str | None, timeout_seconds: float, **own: Any) -> None:
        ledger_target = LedgerTarget(url or os.environ.get(_URL_VARIABLE), _token(token), timeout_seconds)
        command(ledger_target, **own)  # type: ignore[call-arg]

    options = {"url": Url, "token": Token, "timeout_seconds": Timeout}
    return _with_options(command, with_target, options)


def at_a_ledger(command: Callable[Concatenate[LedgerTarget, P], None]) -> Callable[..., None]:
    """Give a command the options that name a service or a database."""

    def with_target(
        url: str | None,
        token: str | None,
        timeout_seconds: float,
        database: str | None,
        key_file: Path | None,
        **own: Any,
    ) -> None:
        at, where = _chosen(url, database)
        ledger_target = LedgerTarget(at, _token(token), timeout_seconds, where, _key_file(key_file))
        command(ledger_target, **own)  # type: ignore[call-arg]

    options = {
        "url": Url,
        "token": Token,
        "timeout_seconds": Timeout,
        "database": Database,
        "key_file": KeyFile,
    }
    return _with_options(command, with_target, options)


def new_key() -> str:
    """An idempotency key that nobody has used."""
    return str(uuid.uuid4())


def _chosen(url: str | None, database: str | None) -> tuple[str | None, str | None]:
    """An option comes before the environment; between two of one kind nobody could choose."""
    if url and database:
        raise Failed(ExitCode.USAGE, "give --url or --database, not both: they may be two ledgers")
    if url or database:
        return url, database
    url, database = os.environ.get(_URL_VARIABLE), os.environ.get(DATABASE_VARIABLE)
    if url and database:
        both = f"{_URL_VARIABLE} and {DATABASE_VARIABLE} are both set"
        raise Failed(ExitCode.USAGE, f"{both}: say which is meant by --url or --database")
    return url, database


def _token(given: str | None) -> str | None:
    return given or os.environ.get(_TOKEN_VARIABLE) or None


def _key_file(given: Path | None) -> Path | None:
    named = os.environ.get(KEY_FILE_VARIABLE)
    return given or (Path(named) if named else None)


def _with_options(
    command: Callable[..., None], with_target: Callable[..., None], options: dict[str, Any]
) -> Callable[..., None]:
    """``placed`` with the signature that a reader of the command line sees."""
    _, *own = inspect.signature(command, eval_str=True).parameters.values()
    keywords = [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in own]
    shared = [
        inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            default=_TIMEOUT_SECONDS if name == "timeout_seconds" else None,
            annotation=annotation,
        )
        for name, annotation in options.items()
    ]
    functools.update_wrapper(with_target, command)
    described: Any = with_target
    described.__signature__ = inspect.Signature([*keywords, *shared])
    described.__annotations__ = {each.name: each.annotation for each in (*keywords, *shared)}
    return with_target
