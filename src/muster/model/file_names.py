"""Names of files in words.  To git and to the system they are bytes, which are UTF-8 almost always.

Where they are not, Python keeps each such byte as half of a surrogate pair, which no store, no JSON and no page
takes.  For people and agents they read as git writes them; what goes back to git stays as it came.
"""

from __future__ import annotations

import re
import shlex

_STRAY = re.compile("[\ud800-\udfff]")
_ESCAPED = re.compile(r'[\\"\x00-\x1f\x7f]|[^\x00-\x7f]')
_SHORT = {"\\": "\\\\", '"': '\\"', "\t": "\\t", "\n": "\\n", "\r": "\\r"}


def in_words(name: str) -> str:
    """`"caf\\351.txt"` for a name that is not UTF-8; any other one as it is."""
    return f'"{_octal(name)}"' if _STRAY.search(name) else name


def in_shell(name: str) -> str:
    r"""As one word of a command that people copy: `$'caf\351.txt'` where it is not UTF-8."""
    if not _STRAY.search(name):
        return shlex.quote(name)
    return "$'{}'".format(_octal(name).replace('\\"', '"').replace("'", "\\'"))


def readable(text: str) -> str:
    r"""Text with such names, or other bytes that are no UTF-8, somewhere in it: each of these bytes as `\351`."""
    return _STRAY.sub(lambda found: _bytes(found[0]), text)


def _octal(name: str) -> str:
    return _ESCAPED.sub(lambda found: _SHORT.get(found[0]) or _bytes(found[0]), name)


def _bytes(char: str) -> str:
    try:
        data = char.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:  # no byte's, but of some JSON
        data = char.encode("utf-8", "surrogatepass")
    return "".join(f"\\{byte:03o}" for byte in data)
