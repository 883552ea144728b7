"""Templates and what browsers fetch, read once: an upgrade in place puts files of another version there."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from muster.model.keys import of_pages

_HERE = Path(__file__).parent
_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}

TEMPLATES = {path.name: path.read_text("utf-8") for path in sorted((_HERE / "templates").glob("*.html"))}
STATIC = {
    path.name: (_TYPES[path.suffix], path.read_bytes())
    for path in sorted((_HERE / "static").iterdir())
    if path.suffix in _TYPES
}
STATIC["key_list.js"] = (_TYPES[".js"], f"export const KEYS = {json.dumps(of_pages(), indent=1)};\n".encode())
VERSION = hashlib.sha256(b"".join(data for _, data in STATIC.values())).hexdigest()[:16]
"""A part of their paths, so that browsers may keep them for ever."""
