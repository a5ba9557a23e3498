"""A file that lets a job be restarted without paying, or releasing, anything twice.

Every request is written down with its idempotency key before it is sent, and every output before it is
handed to the caller, each with an fsync. A restarted job repeats its requests in the same order: each
gets its old key, so that the service answers as the first time and charges nothing; and a release
that was handed out before is handed out again as it was, without another look at the data and without
fresh noise, which would be a second release for one charge. Where the journal ends, the job goes on as usual.
What the ledger said is left, where the next request was chosen by it, is written down too: after a restart
less is left, and the request would be another.

A sample is secret like noise and is not kept. Where a job ends in the middle of a step of several releases
on one sample, the restarted job takes a **fresh** sample for those that are left. Under the kinds of budget
that add up Rényi curves, ρ or μ² (``FRESH_SAMPLE_COVERED``) that is covered: looks at independent samples
cost at most as much as as many looks at one, which is what was paid for. It is not covered where privacy-loss
distributions decide (q = 0.01, μ = 5: δ(0) is 0.0100 for two looks at one sample, 0.0196 for looks at two),
as in a ``plan`` budget and in an allocation of a ``shared`` one. There a step that was begun is refused with
``SampleLost``.

What is kept is what was released, which the ledger has been charged for, and descriptions of
mechanisms. It holds no secret, no data and no noise.
"""

import base64
import contextlib
import hashlib
import io
import json
import os
import secrets
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from dpledger_client.errors import JournalBusy, JournalError, JournalMismatch

__all__ = ["FRESH_SAMPLE_COVERED", "Journal", "new_key"]

FRESH_SAMPLE_COVERED = frozenset({"zcdp", "gdp", "rdp", "rdp-order", "rdp-curve"})
"""The kinds of budget under which what is left of a step may be released from a fresh sample after a restart.

A new kind belongs here only with a proof that k looks at k independent samples cost no more than k at one.
"""
_VERSION = 1
_PLAIN = (bool, int, float, str, type(None))


def new_key() -> str:
    """A fresh idempotency key."""
    return secrets.token_hex(16)


class Journal:
    """The journal of one job, which asks one thing after another.

    Use :meth:`at`, so that all handles of a process share one journal for a file.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._file: BinaryIO | None = None
        self._process = os.getpid()
        self._lock = threading.RLock()
        self._owner: str | None = None
        self._calls: list[dict[str, Any]] = []
        self._outputs: dict[str, Any] = {}
        self._answers: dict[str, Any] = {}
        self._next = 0

    @classmethod
    def at(cls, path: str | os.PathLike[str]) -> "Journal":
        """The journal in a file, which is made when it is first used."""
        name = str(Path(path).resolve())
        with _OPENING:
            found = _OPEN.get(name)
            if found is None or found._process != os.getpid():
                found = _OPEN[name] = cls(name)
            return found

    def __reduce__(self) -> tuple[Any, ...]:
        return Journal.at, (self.path,)

    def __del__(self) -> None:
        if self._file is not None:
            self._file.close()

    def __deepcopy__(self, _memo: object) -> "Journal":
        return self

    def call(self, owner: str, path: str, body: Any, key: str | None = None) -> str:
        """The key of the next request: the old one if it is on record, else a new one, written down first.

        ``owner`` is the id of the token: a key is another key under another token. What is asked again under
        a ``key`` that this job had, because no answer came, is the same request.
        """
        with self._lock:
            file = self._open(owner)
            if key is not None and any(record["key"] == key for record in self._calls[: self._next]):
                return key
            if self._next < len(self._calls):
                return self._find_repeated_key(path, body)
            record = {"intent": path, "body": body, "key": key or new_key()}
            self._append(file, record)
            self._calls.append(record)
            self._next += 1
            return str(record["key"])

    def upcoming(self, owner: str) -> Mapping[str, Any] | None:
        """The request that a restarted job has to repeat next, by path and body; None at the end."""
        with self._lock:
            self._open(owner)
            return self._calls[self._next] if self._next < len(self._calls) else None

    def answer(self, owner: str, query: Any, ask: Callable[[], Any]) -> Any:
        """What was answered to a query before the next request; else what ``ask`` gives, written down.

        For what changes when the job spends, such as what is left: a request that was chosen by it is the
        same after a restart.
        """
        asked = hashlib.sha256(json.dumps(query, sort_keys=True).encode()).hexdigest()
        with self._lock:
            file = self._open(owner)
            place = f"{self._next}?{asked}"
            if place not in self._answers:
                record = {"answer": place, "value": ask()}
                self._append(file, record)
                self._answers[place] = record["value"]
            return self._answers[place]

    def _find_repeated_key(self, path: str, body: Any) -> str:
        record = self._calls[self._next]
        if record["intent"] != path or record["body"] != json.loads(json.dumps(body)):
            raise JournalMismatch(
                f"{self.path} holds another request as number {self._next + 1}: "
                "a restarted job must repeat its requests in order; give another job another journal"
            )
        self._next += 1
        return str(record["key"])

    def settled(self, reservation: str) -> int | None:
        """How many uses a reservation was settled with, if that is on record."""
        for record in self._calls:
            if record["intent"].endswith(f"/{reservation}/settlement"):
                return int(record["body"]["used"])
        return None

    def repetitions(self, key: str) -> int:
        """How many repetitions of a reservation were begun, by what is on record of their outputs."""
        start = f"{key}#"
        with self._lock:
            rests = [place.removeprefix(start) for place in self._outputs if place.startswith(start)]
        numbers = [rest.partition("/")[0] for rest in rests]
        return max((int(number) + 1 for number in numbers if number.isdecimal()), default=0)

    def holds_part_of(self, place: str) -> bool:
        """Whether an output of this step is on record."""
        start = f"{place}/"
        with self._lock:
            return any(known.startswith(start) for known in self._outputs)

    def output(self, place: str, make: Callable[[], Any]) -> Any:
        """What was released at this place before; else what ``make`` returns, written down first."""
        with self._lock:
            if place in self._outputs:
                return _decode(self._outputs[place])
            made = make()
            record = _encode(made)
            if self._file is None:
                raise JournalError(f"{self.path} was closed while it was in use")
            self._append(self._file, {"output": place, "value": record})
            self._outputs[place] = record
            return made

    @contextlib.contextmanager
    def alone(self) -> Iterator["Journal"]:
        """Let other threads wait, which ask for the same, and let go of the file at the end."""
        with self._lock:
            try:
                yield self
            finally:
                self.close()

    def close(self) -> None:
        """Let go of the file; the next use reads it from its beginning, as a restarted job does."""
        with self._lock:
            if self._file is not None:
                self._file.close()
            self._file = None
            self._calls, self._outputs, self._answers, self._next = [], {}, {}, 0

    def _open(self, owner: str) -> BinaryIO:
        if self._process != os.getpid():
            raise JournalBusy(f"{self.path} is in use by the process that this one was forked from")
        if self._file is None:
            self._file = _open_locked(self.path)
            try:
                self._read(self._file, owner)
            except BaseException:
                self.close()
                raise
        if self._owner != owner:
            raise JournalMismatch(f"{self.path} was written with token {self._owner}, not {owner}")
        return self._file

    def _read(self, file: BinaryIO, owner: str) -> None:
        lines, end = _whole_lines(file)
        file.truncate(end)  # half a line was never acted upon
        if not lines:
            lines = [{"journal": _VERSION, "token": owner}]
            self._append(file, lines[0])
        if lines[0].get("journal") != _VERSION:
            raise JournalMismatch(f"{self.path} is not a journal that this version can read")
        self._owner = lines[0]["token"]
        self._calls = [line for line in lines if "intent" in line]
        self._outputs = {line["output"]: line["value"] for line in lines if "output" in line}
        self._answers = {line["answer"]: line["value"] for line in lines if "answer" in line}

    def _append(self, file: BinaryIO, record: Mapping[str, Any]) -> None:
        """Add a line and see it to the disk; what cannot be written whole is taken back."""
        end = file.seek(0, io.SEEK_END)
        line = json.dumps(record, separators=(",", ":"), allow_nan=False).encode() + b"\n"
        try:
            while line:  # a write without a buffer may take a part, as where the disk gets full
                line = line[file.write(line) :]
            os.fsync(file.fileno())
        except BaseException:
            file.truncate(end)
            raise


_OPEN: "weakref.WeakValueDictionary[str, Journal]" = weakref.WeakValueDictionary()
_OPENING = threading.Lock()


def _whole_lines(file: BinaryIO) -> tuple[list[dict[str, Any]], int]:
    file.seek(0)
    content = file.read()
    end = content.rfind(b"\n") + 1
    try:
        return [json.loads(line) for line in content[:end].splitlines()], end
    except ValueError:
        raise JournalMismatch(f"{file.name} is not a journal") from None


def _open_locked(path: str) -> BinaryIO:
    """The file, made if absent, held so that no other process can use it."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    file = os.fdopen(descriptor, "r+b", buffering=0)
    try:
        _lock(descriptor)
        _sync_folder(path)
    except OSError:
        file.close()
        raise JournalBusy(f"{path} is in use by another process") from None
    return file


def _lock(descriptor: int) -> None:
    try:
        import fcntl
    except ImportError:
        import msvcrt

        msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined]
    else:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _sync_folder(path: str) -> None:
    """A new file's name is on disk only when its folder is; where folders cannot be opened, it is."""
    with contextlib.suppress(PermissionError):
        folder = os.open(os.path.dirname(path), os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def _encode(value: Any) -> Any:
    if isinstance(value, np.ndarray) and value.dtype.kind in "biuf":
        data = base64.b64encode(np.ascontiguousarray(value).tobytes()).decode()
        return {"dtype": value.dtype.str, "shape": list(value.shape), "data": data}
    if isinstance(value, np.generic):
        return _encode(np.asarray(value))
    if isinstance(value, _PLAIN):
        return [value]
    raise TypeError(f"a journal keeps numbers and arrays, found {type(value).__name__}")


def _decode(record: Any) -> Any:
    if isinstance(record, list):
        return record[0]
    raw = np.frombuffer(base64.b64decode(record["data"]), dtype=np.dtype(record["dtype"]))
    array = raw.reshape(record["shape"]).copy()
    return array if record["shape"] else array[()]
