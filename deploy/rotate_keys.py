"""Give the service a new key for its receipts: ``python rotate_keys.py keys.json``.

Then restart every replica. Receipts that the old key signed can still be verified: its public half is kept
in the file. The key under which tokens are hashed stays; tokens are renewed one by one.
"""

import base64
import json
import os
import secrets
import stat
import sys
from pathlib import Path

from nacl.signing import SigningKey


def rotate(path: Path) -> None:
    """Replace the file in one step, so that whoever reads it meanwhile reads the old or the new one."""
    keys = json.loads(path.read_text(encoding="ascii"))
    old = SigningKey(base64.b64decode(keys["receipt_seed"])).verify_key.encode()
    keys["retired_public_keys"].append(base64.b64encode(old).decode())
    keys["receipt_seed"] = base64.b64encode(secrets.token_bytes(32)).decode()
    new, known = path.with_name(f".{path.name}.new"), path.stat()
    with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="ascii") as file:
        # Whoever could read the old file, the service above all, can read the new one.
        os.fchown(file.fileno(), known.st_uid, known.st_gid)
        os.fchmod(file.fileno(), stat.S_IMODE(known.st_mode))
        file.write(json.dumps(keys, indent=2) + "\n")
        file.flush()
        os.fsync(file.fileno())
    new.replace(path)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python rotate_keys.py keys.json")
    try:
        rotate(Path(sys.argv[1]))
    except OSError as error:
        sys.exit(f"{error.filename or sys.argv[1]}: {error.strerror}")
    except (ValueError, KeyError):
        sys.exit(f"{sys.argv[1]}: not a key file")
