"""Comparing a ledger with what its clients hold: signed receipts, and the journals of jobs."""

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from dpledger.cli.failures import ExitCode, Failed
from dpledger.cli.ledgers import Held, Ledger

__all__ = ["Findings", "compare_journals", "compare_receipts"]

Findings = dict[str, list[str]]
"""What is wrong, by dataset."""
_DATASET = re.compile(r"^/v1/datasets/([^/]+)/")
_RESERVATION = re.compile(r"^/v1/reservations/([^/~]+)~")
_SEVERAL = ""
"""The dataset of what concerns several, as lists do."""


class _Receipt(NamedTuple):
    where: str
    dataset: str
    sequence: int
    entry: str


def compare_receipts(ledger: Ledger, files: Sequence[Path]) -> tuple[int, Findings]:
    """Check each receipt's signature, and that the ledger has the very entry that it states.

    A file has one receipt per line: the compact text itself, or JSON with a field ``receipt``, such as an
    answer of the API. Returns how many there were, and what is wrong.
    """
    from dpledger.ledger.receipts import BadReceipt, verify_receipt

    key_set = ledger.key_set() if files else {}
    found: Findings = {}
    many = 0
    for where, text in _lines(files):
        many += 1
        try:
            receipt = _to_receipt(where, verify_receipt(_receipt_in(text), key_set))
        except (BadReceipt, KeyError, TypeError, ValueError) as error:
            found.setdefault(_SEVERAL, []).append(f"{where}: no receipt of this ledger: {error}")
            continue
        problem = _difference(ledger, receipt)
        if problem is not None:
            found.setdefault(receipt.dataset, []).append(f"{where}: {problem}")
    return many, found


def _receipt_in(text: str) -> str:
    return str(json.loads(text)["receipt"]) if text.startswith("{") else text


def _to_receipt(where: str, statement: dict[str, Any]) -> _Receipt:
    return _Receipt(where, statement["dataset"], int(statement["sequence"]), statement["entry"])


def _difference(ledger: Ledger, receipt: _Receipt) -> str | None:
    try:
        entry = ledger.entry(receipt.dataset, receipt.sequence)
    except Failed as failed:
        if failed.code is not ExitCode.NOT_FOUND:
            raise
        return f"a receipt of entry {receipt.sequence}, which the ledger does not have"
    if entry["hash"] != receipt.entry:
        return f"a receipt of entry {receipt.sequence}, which is another one in the ledger"
    return None


def compare_journals(ledger: Ledger, files: Sequence[Path]) -> tuple[int, Findings]:
    """Check that every request of which a journal has an output is granted in the ledger.

    A request without an output may never have been answered, so it shows nothing. Returns how many were
    compared, and what is wrong.
    """
    found: Findings = {}
    many = 0
    for file in files:
        held = _read_journal(file)
        many += len(held)
        for each, outcome in zip(held, ledger.outcomes(held), strict=True):
            if outcome != "granted":
                said = "does not have" if outcome is None else f"has as {outcome}"
                problem = f"{file}: an output under key {each.key}, whose request the ledger {said}"
                found.setdefault(each.dataset or _SEVERAL, []).append(problem)
    return many, found


def _read_journal(file: Path) -> list[Held]:
    """The requests of a journal that were answered with a yes: those of which it has outputs."""
    try:
        first, *records = [json.loads(text) for _, text in _lines([file], whole=True)]
        owner = str(first["token"])
        calls = {str(each["key"]): str(each["intent"]) for each in records if "intent" in each}
        outputs = [str(each["output"]) for each in records if "output" in each]
    except (KeyError, TypeError, ValueError):
        raise Failed(ExitCode.USAGE, f"{file} is not the journal of a job") from None
    proven = {key for ledger_target in outputs for key in _beginnings(ledger_target) if key in calls}
    return [Held(owner, _dataset_of(path), path, key) for key, path in calls.items() if key in proven]


def _beginnings(ledger_target: str) -> Iterator[str]:
    """What may be the key of a place: ``key/number/use`` or ``key#repetition/number/use``."""
    return (ledger_target[:at] for at, character in enumerate(ledger_target) if character in "/#")


def _dataset_of(path: str) -> str | None:
    named = _DATASET.match(path) or _RESERVATION.match(path)
    return None if named is None else named[1]


def _lines(files: Sequence[Path], *, whole: bool = False) -> Iterator[tuple[str, str]]:
    """Lines that are not empty, each with where it stands; ``whole`` leaves out a last one without an end."""
    for file in files:
        try:
            content = file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            said = error.strerror if isinstance(error, OSError) else "is no text"
            raise Failed(ExitCode.USAGE, f"cannot read {file}: {said}") from None
        if whole:  # a journal's half line was never acted upon
            content = content[: content.rfind("\n") + 1]
        for number, text in enumerate(content.splitlines(), 1):
            if text.strip():
                yield f"{file}, line {number}", text.strip()
