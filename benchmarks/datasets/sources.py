"""Raw files: in the folder that ``DPLEDGER_DATA`` or an option names, else what scikit-learn fetches."""

import gzip
import io
import os
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

__all__ = ["VARIABLE", "MissingData", "fetch", "find", "read_bytes", "read_lines"]

VARIABLE = "DPLEDGER_DATA"


class MissingData(FileNotFoundError):
    """Data that is neither in the folder nor fetched, with what to fetch and where to put it."""


def find(folder: str | os.PathLike[str] | None, name: str) -> Path | None:
    """The file of that name below the folder, with or without ``.gz``; None where there is none."""
    root = folder if folder is not None else os.environ.get(VARIABLE)
    if not root:
        return None
    plain = Path(root) / name
    return next((path for path in (plain, plain.with_name(f"{plain.name}.gz")) if path.is_file()), None)


def read_bytes(path: Path) -> bytes:
    """A file's bytes, unpacked where its name ends in ``.gz``."""
    return gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()


def read_lines(path: Path, member: str | None = None) -> Iterator[str]:
    """The lines of a text that are not blank; ``member`` names a text inside a zip file."""
    if member is not None:
        with zipfile.ZipFile(path) as archive:
            content = archive.read(member)
    else:
        content = read_bytes(path)
    for line in io.StringIO(content.decode("utf-8")):
        if stripped := line.strip():
            yield stripped


def fetch(what: Callable[[], Any], advice: str) -> Any:
    """What scikit-learn fetches, or a MissingData that says what to put where."""
    try:
        return what()
    except Exception as error:  # Without a network each of several layers fails in its own way.
        raise MissingData(f"{advice} (scikit-learn could not fetch it: {error})") from error
