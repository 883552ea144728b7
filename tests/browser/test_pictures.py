"""The pictures in the documentation are of the pages as they are."""

from __future__ import annotations

import struct
from pathlib import Path

from pictures import BYTES_MAX, FOLDER, PICTURES, SIZE, pictures, scene
from playwright.sync_api import Browser

PNG = b"\x89PNG\r\n\x1a\n"


def is_picture(data: bytes) -> bool:
    """That is small enough for a page, and of the size that was asked for."""
    size = struct.unpack(">II", data[16:24])
    return data.startswith(PNG) and len(data) < BYTES_MAX and size == (SIZE["width"], SIZE["height"])


def test_each_picture_of_the_documentation_can_be_made_again(browser: Browser, tmp_path: Path) -> None:
    with scene(tmp_path / "shop") as owner:
        made = dict(pictures(browser, owner))
    kept = {path.stem: path.read_bytes() for path in FOLDER.glob("*.png")}
    assert set(made) == set(kept) == set(PICTURES)
    assert [name for name in made if not is_picture(made[name]) or not is_picture(kept[name])] == []
