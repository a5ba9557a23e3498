"""The README's picture can be drawn anew, and is small enough for a first page."""

import struct
from pathlib import Path

from tests.browser.picture import PICTURE, VIEWPORT, serve, spend_for_a_month, take_picture

LARGEST_BYTES = 150_000


def _size(file: Path) -> tuple[int, int]:
    """Width and height of a PNG, from its header."""
    content = file.read_bytes()
    assert content.startswith(b"\x89PNG\r\n\x1a\n")
    width, height = struct.unpack(">II", content[16:24])
    return width, height


def test_the_picture_is_drawn_by_the_service_itself(tmp_path: Path) -> None:
    with serve(tmp_path) as service:
        spend_for_a_month(service)
        take_picture(service, tmp_path / "dashboard.png")
    wanted = (VIEWPORT["width"], VIEWPORT["height"])
    assert _size(tmp_path / "dashboard.png") == _size(PICTURE) == wanted
    assert PICTURE.stat().st_size <= LARGEST_BYTES
