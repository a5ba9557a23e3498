"""The server's own secrets: the key under which tokens are hashed, and the seed that signs receipts.

They live in a file of their own, readable by its owner alone, so that a copy of the database holds
nothing with which a token could be guessed or a receipt forged.
"""

import base64
import binascii
import json
import os
import secrets
import stat
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["BadKeyFile", "ServerKeys", "load_keys", "new_keys"]

KEY_BYTES = 32
_OWNER_ONLY = 0o600
_FORBIDDEN = 0o027
"""A group may read it, which is how orchestrators mount secrets; nobody else may do anything."""
_VERSION = 1


class BadKeyFile(Exception):
    """The key file cannot be read, or is not one."""


@dataclass(frozen=True)
class ServerKeys:
    """Secrets of one deployment; every replica of it is given the same."""

    token_key: bytes
    receipt_seed: bytes
    retired_public_keys: tuple[bytes, ...] = ()
    """Public keys of seeds used before: receipts signed with them can still be verified."""

    def __repr__(self) -> str:
        return "ServerKeys(…)"


def new_keys() -> ServerKeys:
    """Fresh secrets from the operating system."""
    return ServerKeys(secrets.token_bytes(KEY_BYTES), secrets.token_bytes(KEY_BYTES))


def load_keys(path: Path, *, has_tokens: Callable[[], bool] = lambda: False) -> ServerKeys:
    """Read the key file; where there is none and no token was made with one, make one first.

    Two processes that start together agree on one file: whoever links it into place first wins, and
    both read what is there then.
    """
    if not path.exists():
        if has_tokens():
            raise BadKeyFile(
                f"there is no key file {path}, and the ledger has tokens that were made with one: name the"
                " right file by --key-file or DPLEDGER_KEY_FILE, or put it back. If it is lost for good,"
                " dpledger token create --new-keys makes another, and every token ends"
            )
        _create(path, new_keys())
    return _read(path)


def _create(path: Path, keys: ServerKeys) -> None:
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    try:
        with _open_new(temporary) as file:
            file.write(_document(keys))
            file.flush()
            os.fsync(file.fileno())
        _link(temporary, path)
    except OSError as error:
        raise BadKeyFile(f"cannot write the key file {path}: {error.strerror}") from None
    finally:
        temporary.unlink(missing_ok=True)


def _open_new(path: Path) -> Any:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
    return os.fdopen(os.open(path, flags, _OWNER_ONLY), "w", encoding="ascii")


def _link(temporary: Path, path: Path) -> None:
    try:
        os.link(temporary, path)
    except FileExistsError:
        return
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _read(path: Path) -> ServerKeys:
    try:
        _refuse_open_to_others(path)
        return _parse(path.read_text(encoding="ascii"))
    except OSError as error:
        raise BadKeyFile(f"cannot read the key file {path}: {error.strerror}") from None
    except (ValueError, KeyError, TypeError, binascii.Error):
        # The text of such an error may quote the file, which is secret.
        raise BadKeyFile(f"{path} is not a key file of this service") from None


def _refuse_open_to_others(path: Path) -> None:
    mode = stat.S_IMODE(path.stat().st_mode)
    if mode & _FORBIDDEN:
        raise BadKeyFile(f"the key file {path} has mode {mode:o}: it must be closed to others, as 600 is")


def _document(keys: ServerKeys) -> str:
    content = {
        "version": _VERSION,
        "token_key": _text(keys.token_key),
        "receipt_seed": _text(keys.receipt_seed),
        "retired_public_keys": [_text(key) for key in keys.retired_public_keys],
    }
    return json.dumps(content, indent=2) + "\n"


def _parse(text: str) -> ServerKeys:
    content = json.loads(text)
    if content["version"] != _VERSION:
        raise ValueError("version")
    retired = tuple(_key(each) for each in content["retired_public_keys"])
    return ServerKeys(_key(content["token_key"]), _key(content["receipt_seed"]), retired)


def _text(key: bytes) -> str:
    return base64.b64encode(key).decode()


def _key(text: str) -> bytes:
    key = base64.b64decode(text, validate=True)
    if len(key) != KEY_BYTES:
        raise ValueError("length")
    return key
