"""What the code says of the fields of its structs: the text below each of them."""

from __future__ import annotations

import inspect
import re
import sys

Words = dict[str, str]

# Lines, and not `ast`: Python 3.11 fails where two threads make syntax trees at the same time.
_CLASS = re.compile(r"^class (\w+)")
_FIELD = re.compile(r"^    (\w+):")
_OTHER = re.compile(r"^    (?:(?:async )?def |@|class )|^\S")
_QUOTES = '"""'


class FieldWords:
    """Reads each module once; to be let go of after use."""

    def __init__(self) -> None:
        self._modules: dict[str, dict[str, Words]] = {}

    def of(self, shape: type) -> Words:
        """By field, those of its bases included; "" is the class itself."""
        found: Words = {}
        for one in reversed(shape.__mro__):
            if one.__module__ == "builtins" or one.__module__.startswith("msgspec"):
                continue
            inherited = {name: text for name, text in found.items() if name}
            found = inherited | self._read(one.__module__).get(one.__name__, {})
        return found

    def _read(self, module: str) -> dict[str, Words]:
        if module not in self._modules:
            self._modules[module] = words_in(inspect.getsource(sys.modules[module]))
        return self._modules[module]


def words_in(source: str) -> dict[str, Words]:
    """By class, what is said of it and of its fields."""
    found: dict[str, Words] = {}
    words, field = Words(), None
    lines = iter(source.splitlines())
    for line in lines:
        if match := _CLASS.match(line):
            words, field = found.setdefault(match[1], {}), ""
        elif match := _FIELD.match(line):
            field = match[1]
        elif _OTHER.match(line):
            field = None
        elif line.startswith("    " + _QUOTES):
            text = line.strip().removeprefix(_QUOTES)
            while _QUOTES not in text:
                text += f" {next(lines).strip()}"
            if field is not None:
                words.setdefault(field, " ".join(text.partition(_QUOTES)[0].split()))
            field = None
    return found
