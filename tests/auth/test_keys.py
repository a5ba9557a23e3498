"""The key file: made once, closed to others, the same for all."""

import json
import threading
from pathlib import Path

import pytest

from dpledger.auth.keys import BadKeyFile, ServerKeys, load_keys, new_keys


def test_a_missing_file_is_made_for_its_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"

    keys = load_keys(path)

    assert path.stat().st_mode & 0o777 == 0o600
    assert load_keys(path) == keys
    assert (len(keys.token_key), len(keys.receipt_seed)) == (32, 32)
    assert list(tmp_path.iterdir()) == [path]


def test_keys_are_random_and_not_shown() -> None:
    first, second = new_keys(), new_keys()

    assert first.token_key != second.token_key
    assert first.receipt_seed != second.receipt_seed
    assert repr(first) == "ServerKeys(…)"


def test_all_that_start_together_agree(tmp_path: Path) -> None:
    path, found, barrier = tmp_path / "keys.json", [], threading.Barrier(8)

    def start() -> None:
        barrier.wait()
        found.append(load_keys(path))

    threads = [threading.Thread(target=start) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(found) == 8
    assert len({keys.token_key for keys in found}) == 1
    assert list(tmp_path.iterdir()) == [path]


def test_retired_keys_are_read(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    load_keys(path)
    content = json.loads(path.read_text())
    content["retired_public_keys"] = [content["receipt_seed"]]
    path.write_text(json.dumps(content))

    keys = load_keys(path)

    assert keys == ServerKeys(keys.token_key, keys.receipt_seed, (keys.receipt_seed,))


@pytest.mark.parametrize("mode", [0o644, 0o602, 0o620, 0o604])
def test_a_file_that_is_open_to_others_is_refused(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "keys.json"
    load_keys(path)
    path.chmod(mode)

    with pytest.raises(BadKeyFile, match="closed to others"):
        load_keys(path)


@pytest.mark.parametrize("mode", [0o400, 0o600, 0o440])
def test_a_mounted_secret_is_read(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "keys.json"
    keys = load_keys(path)
    path.chmod(mode)

    assert load_keys(path) == keys


@pytest.mark.parametrize(
    "changes",
    [
        {"version": 2},
        {"token_key": "c2hvcnQ="},
        {"token_key": 7},
        {"receipt_seed": "not base64!"},
        {"retired_public_keys": None},
        {"retired_public_keys": ["c2hvcnQ="]},
    ],
)
def test_what_is_no_key_file_is_refused_without_quoting_it(
    tmp_path: Path, changes: dict[str, object]
) -> None:
    path = tmp_path / "keys.json"
    load_keys(path)
    content = json.loads(path.read_text())
    path.write_text(json.dumps({**content, **changes}))

    with pytest.raises(BadKeyFile) as refused:
        load_keys(path)

    assert "keys.json" in str(refused.value)
    assert content["token_key"] not in str(refused.value)


@pytest.mark.parametrize("text", ["", "[]", "{}", "\xff"])
def test_other_text_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "keys.json"
    load_keys(path)
    path.write_text(text, encoding="utf-8")

    with pytest.raises(BadKeyFile):
        load_keys(path)


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadKeyFile, match="cannot write"):
        load_keys(tmp_path / "missing" / "keys.json")


def test_a_place_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    folder = tmp_path / "keys.json"
    folder.mkdir(mode=0o700)

    with pytest.raises(BadKeyFile, match="cannot read"):
        load_keys(folder)
