"""Amounts of bytes as people write them."""

from __future__ import annotations

import re

from muster.model.errors import BadConfig

SIZE_HINT = 'write it like "500KB", "64MB", "4GB" or "1.5GB"; a bare number is bytes'
_SIZE_MAX = 1 << 50
_SIZE = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*(?:([KMGT])i?)?B?", re.IGNORECASE)
_POWER = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4}


def parse_size(text: object) -> int:
    """Bytes in `4GB`, `512 MiB`, `64k` or a number; all of them are powers of 1024.

    Raises BadConfig for anything else, and for more than a pebibyte.
    """
    if isinstance(text, int) and not isinstance(text, bool):
        size = float(text)
    elif isinstance(text, str) and (match := _SIZE.fullmatch(text.strip())):
        size = float(match[1]) * 1024 ** _POWER[(match[2] or "").upper()]
    else:
        raise BadConfig(f"{text!r} is not a size", SIZE_HINT)
    if not 0 <= size <= _SIZE_MAX:
        raise BadConfig(f"{text!r} is out of range for a size", SIZE_HINT)
    return int(size)
