"""``dpledger entries``, ``verify`` and ``export``: what a ledger holds, and whether it holds together."""

import contextlib
import enum
import os
import re
import secrets
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Annotated

import typer

from dpledger.cli.comparison import Findings, compare_journals, compare_receipts
from dpledger.cli.datasets import DatasetName
from dpledger.cli.failures import ExitCode, Failed
from dpledger.cli.ledgers import EntryQuery, Fields, Ledger, collect_pages, open_ledger
from dpledger.cli.listing import print_page
from dpledger.cli.output import moment_text, percent_left, print_json, show_table
from dpledger.cli.progress import show_bar
from dpledger.cli.targets import AsJson, Cursor, Key, LedgerTarget, Limit, Quiet, at_a_ledger, new_key

__all__ = ["accept_rollback", "entries", "export", "open_file", "refuse_to_overwrite", "verify"]

_SHOWN_PROBLEMS = 3


class Kind(enum.Enum):
    """What an entry records."""

    OPENED = "opened"
    BUDGET_CHANGED = "budget-changed"
    PARTITIONS_OPENED = "partitions-opened"
    ALLOCATED = "allocated"
    ALLOCATION_RETURNED = "allocation-returned"
    QUOTA_CHANGED = "quota-changed"
    BUDGET_REQUESTED = "budget-requested"
    REQUEST_APPROVED = "request-approved"
    REQUEST_REJECTED = "request-rejected"
    REQUEST_WITHDRAWN = "request-withdrawn"
    RENEWAL_CHANGED = "renewal-changed"
    AUTHORIZED = "authorized"
    RESERVED = "reserved"
    SETTLED = "settled"
    EXPIRED = "expired"
    ROLLBACK_ACCEPTED = "rollback-accepted"


@at_a_ledger
def entries(
    ledger_target: LedgerTarget,
    name: DatasetName,
    run: Annotated[str | None, typer.Option(help="Only entries of this run.")] = None,
    kind: Annotated[Kind | None, typer.Option(help="Only entries of this kind.")] = None,
    partition: Annotated[str | None, typer.Option(help="Only entries of this partition.")] = None,
    allocation: Annotated[str | None, typer.Option(help="Only entries of this allocation.")] = None,
    newest_first: Annotated[bool, typer.Option("--newest-first", help="Newest entries first.")] = False,
    limit: Limit = 100,
    cursor: Cursor = None,
    as_json: AsJson = False,
) -> None:
    """List the entries of a dataset."""
    query = EntryQuery(None if kind is None else kind.value, run, partition, newest_first, allocation)
    with open_ledger(ledger_target) as ledger:
        page = collect_pages(lambda many, after: ledger.entries(name, query, many, after), limit, cursor)
    print_page(page, _show_entries, as_json)


def _show_entries(found: Sequence[Fields]) -> None:
    """A table, with a column of allocations where there are any: what is left is left of each then."""
    columns = ["entry>", "time (UTC)", "kind", "run", "purpose?", "times>?", "left>", "by?", "hash?"]
    rows = [_row(each) for each in found]
    parts = [_allocation(each) for each in found]
    if any(parts):
        columns.insert(_KIND + 1, "allocation")
        for row, part in zip(rows, parts, strict=True):
            row.insert(_KIND + 1, part)
    show_table(columns, rows, "no such entries")


_KIND = 2
"""The column that says of which kind an entry is."""


def _allocation(entry: Fields) -> str:
    """The allocation that an entry is about: one that it opens is named in its detail."""
    opens = entry["kind"] == "allocated"
    return str(entry["detail"]["name"] if opens else entry.get("allocation", ""))


def _row(entry: Fields) -> list[str]:
    fraction = entry.get("fraction_left")
    return [
        str(entry["sequence"]),
        moment_text(entry["at"]),
        entry["kind"],
        entry.get("run", ""),
        entry.get("purpose", ""),
        str(entry.get("used", entry.get("times", ""))),
        "" if fraction is None else percent_left(fraction),
        f"{entry['team']} ({entry['actor']})" if "team" in entry else entry["actor"],
        entry["hash"][:12],
    ]


@at_a_ledger
def verify(
    ledger_target: LedgerTarget,
    names: Annotated[
        list[str] | None, typer.Argument(metavar="DATASET", help="Datasets to verify; all by default.")
    ] = None,
    receipts: Annotated[
        list[Path] | None,
        typer.Option(metavar="FILE", help="Receipts to compare with, one per line; may be repeated."),
    ] = None,
    journal: Annotated[
        list[Path] | None,
        typer.Option(metavar="FILE", help="A job's journal to compare with; may be repeated."),
    ] = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Replay every entry: whether chains hold and totals are what the entries say; exit 7 if not.

    Also whether a ledger is behind its high-water mark, and whether it has what clients hold.
    """
    with open_ledger(ledger_target) as ledger:
        found = [_verify(ledger, name, quiet or as_json) for name in names or _all_names(ledger)]
        found += [] if names else ledger.lost()
        compared = [compare_receipts(ledger, receipts or []), compare_journals(ledger, journal or [])]
    for _, problems in compared:
        _add_problems(found, problems)
    if as_json:
        print_json(found[0] if names and len(names) == 1 else {"items": found, "next": None})
    else:
        columns = ("dataset", "verdict", "entries>", "head")
        rows = [_verdict(each) for each in found]
        show_table(columns, rows, "no datasets; dpledger dataset open makes one")
        for each in found:
            _tell_problems(each)
        if receipts or journal:
            typer.echo(f"compared {compared[0][0]} receipts and {compared[1][0]} requests of journals")
    if not all(each["valid"] for each in found):
        raise typer.Exit(ExitCode.BROKEN)


def _add_problems(found: list[Fields], problems: Findings) -> None:
    """Put what differs from the clients' copies to the verdict on its dataset."""
    verdicts = {each["dataset"]: each for each in found}
    for name, said in problems.items():
        if name not in verdicts:
            found.append({"dataset": name or "?", "sequence": 0, "problems": [], "head": None})
        verdict = verdicts.setdefault(name, found[-1])
        verdict["problems"] = [*verdict["problems"], *said]
        verdict["valid"] = False


def _all_names(ledger: Ledger) -> list[str]:
    page = collect_pages(lambda many, after: ledger.datasets(None, many, after), sys.maxsize, None)
    return [each["name"] for each in page["items"]]


def _verify(ledger: Ledger, name: str, quiet: bool) -> Fields:
    with show_bar(f"verifying {name}", quiet) as step:
        return ledger.verification(name, step)


def _verdict(found: Fields) -> list[str]:
    verdict = "holds" if found["valid"] else "BROKEN"
    return [found["dataset"], verdict, str(found["sequence"]), (found["head"] or "none")[:16]]


def _tell_problems(found: Fields) -> None:
    problems = found["problems"]
    for problem in problems[:_SHOWN_PROBLEMS]:
        typer.echo(f"{found['dataset']}: {problem}")
    if len(problems) > _SHOWN_PROBLEMS:
        typer.echo(f"{found['dataset']}: and {len(problems) - _SHOWN_PROBLEMS} more; --json lists them all")


@at_a_ledger
def accept_rollback(
    ledger_target: LedgerTarget,
    name: DatasetName,
    lost: Annotated[str, typer.Option(metavar="ENTRY:HASH", help="The lost entry, as the refusal names it.")],
    reason: Annotated[str, typer.Option(help="Why; recorded in the entry.")],
    idempotency_key: Key = None,
    as_json: AsJson = False,
) -> None:
    """Go on with a ledger that has lost entries: restored from an older copy, or after a fail-over.

    What was spent since is forgotten: lower the budget by it afterwards, before jobs go on. Needs an admin
    token, also directly in a database. Of a dataset that is gone as a whole, the mark itself is given up,
    with --database alone.
    """
    sequence, _, entry = lost.partition(":")
    if not (sequence.isascii() and sequence.isdigit() and re.fullmatch(r"[0-9a-f]{64}", entry)):
        raise Failed(ExitCode.USAGE, "--lost takes ENTRY:HASH, as the refusal names them")
    body = {"sequence": int(sequence), "entry": entry, "reason": reason}
    with open_ledger(ledger_target) as ledger:
        accepted = ledger.accept_rollback(name, body, idempotency_key or new_key())
    if as_json:
        print_json(accepted)
    elif accepted["sequence"]:
        typer.echo(f"{name} goes on at entry {accepted['sequence']}")
    else:
        typer.echo(f"the mark of {name} is given up; restart the services that had it")


@at_a_ledger
def export(
    ledger_target: LedgerTarget,
    name: DatasetName,
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FILE", help="File to write; - is standard output.")
    ] = Path("-"),
    force: Annotated[bool, typer.Option("--force", help="Replace the file if it exists.")] = False,
    quiet: Quiet = False,
) -> None:
    """Write every entry as a line of JSON, oldest first.

    A file appears when it is whole; a failed export leaves none behind.
    """
    if output != Path("-"):
        refuse_to_overwrite(ledger_target, output, force)
    with (
        open_ledger(ledger_target) as ledger,
        show_bar("exporting", quiet) as step,
        open_file(output) as file,
    ):
        total, done, last = ledger.dataset(name)["sequence"], 0, b"\n"
        for piece in ledger.export(name):
            file.write(piece)
            done, last = done + piece.count(b"\n"), piece[-1:]
            step(done, max(done, total))
        if last != b"\n":
            raise Failed(ExitCode.UNAVAILABLE, f"the export ended early, after {done} of {total} entries")
        if done < total:
            raise Failed(ExitCode.BROKEN, f"{name} counts {total} entries, and {done} are there")


def refuse_to_overwrite(ledger_target: LedgerTarget, output: Path, force: bool) -> None:
    """Refuse the ledger's own files, what is no file, and without ``force`` any file that is there."""
    if ledger_target.url is None:
        from dpledger.cli.databases import files_of
        from dpledger.settings import DEFAULT_DATABASE

        if output.resolve() in files_of(ledger_target.database or DEFAULT_DATABASE, ledger_target.key_file):
            raise Failed(ExitCode.REFUSED, f"{output} belongs to the ledger itself")
    if output.exists() and not output.is_file():
        raise Failed(ExitCode.REFUSED, f"{output} is no ordinary file; - is standard output")
    if output.exists() and not force:
        raise Failed(ExitCode.REFUSED, f"{output} exists; --force replaces it")


@contextlib.contextmanager
def open_file(output: Path) -> Iterator[IO[bytes]]:
    """Standard output, or a file that takes its name when it is whole and on disk."""
    if output == Path("-"):
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    partial = output.with_name(f".{output.name}.{secrets.token_hex(4)}")
    try:
        with partial.open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        partial.replace(output)
    except OSError as error:
        raise Failed(ExitCode.FAILURE, f"cannot write {output}: {error.strerror}") from None
    finally:
        partial.unlink(missing_ok=True)
