"""Tables of `muster.toml`: typed values out, or a BadConfig that names the file, the key and the fix."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NoReturn, TypeVar

from muster.config.project import FILE_NAME
from muster.config.sizes import parse_size
from muster.model.durations import DURATION_HINT, parse_duration
from muster.model.errors import BadConfig

_T = TypeVar("_T")
_D = TypeVar("_D")


class Table:
    """One TOML table: hands out its keys and knows which were never asked for."""

    def __init__(self, path: str, raw: Mapping[str, object]) -> None:
        self._path = path
        self._raw = raw
        self._known: list[str] = []

    def path(self, key: str) -> str:
        return f"{self._path}.{key}" if self._path else key

    def has(self, key: str) -> bool:
        return key in self._raw

    def names(self) -> tuple[str, ...]:
        return tuple(self._raw)

    def read(self, key: str, parse: Callable[[str, object], _T], default: _D) -> _T | _D:
        self._known.append(key)
        return parse(self.path(key), self._raw[key]) if key in self._raw else default

    def table(self, key: str) -> Table:
        return self.read(key, read_table, Table(self.path(key), {}))

    def refuse_the_rest(self) -> None:
        """Raises BadConfig for the first key that nothing has read."""
        for key in self._raw:
            if key not in self._known:
                known = "known keys: " + ", ".join(sorted(self._known))
                fail(self.path(key), "is not a known key", near(key, self._known) or known)


def fail(key: str, problem: str, hint: str, *, against: str = "") -> NoReturn:
    """`against` is the key that this one does not go together with."""
    error = BadConfig(f"{FILE_NAME}: {key}: {problem}", hint)
    error.key, error.against = key, against
    raise error


def near(word: str, known: Mapping[str, object] | list[str] | tuple[str, ...]) -> str:
    from difflib import get_close_matches

    close = get_close_matches(word, list(known), n=1)
    return f"did you mean {close[0]!r}?" if close else ""


def read_table(key: str, value: object) -> Table:
    if not isinstance(value, Mapping):
        fail(key, f"{value!r} is not a table", f"write it as a section [{key}] or as {{ key = value }}")
    return Table(key, value)


def read_text(key: str, value: object) -> str:
    if not isinstance(value, str) or not value.strip() or "\0" in value:
        fail(key, f"{value!r} is not a text", f'write {key.rpartition(".")[2]} = "..."')
    return value


def read_texts(key: str, value: object) -> tuple[str, ...]:
    if isinstance(value, str):
        parts = ", ".join(f'"{part}"' for part in value.split())
        fail(key, "is one text where a list is needed", f"write {key.rpartition('.')[2]} = [{parts}]")
    if not isinstance(value, list):
        fail(key, f"{value!r} is not a list of texts", f'write {key.rpartition(".")[2]} = ["..."]')
    return tuple(read_text(f"{key}[{at}]", item) for at, item in enumerate(value))


def read_whole(key: str, value: object, least: int) -> int:
    # TOML's true is an int to Python.
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= 1_000_000:
        fail(key, f"{value!r} is not a whole number from {least} up", "write it without quotes, like 3")
    return value


def read_flag(key: str, value: object) -> bool:
    if not isinstance(value, bool):
        fail(key, f"{value!r} is neither true nor false", "write true or false, without quotes")
    return value


def read_count(key: str, value: object) -> int:
    return read_whole(key, value, 1)


def read_count_or_zero(key: str, value: object) -> int:
    return read_whole(key, value, 0)


def read_duration(key: str, value: object) -> float:
    try:
        return parse_duration(value)  # type: ignore[arg-type]  # it refuses what is neither text nor number
    except BadConfig as error:
        fail(key, error.message, error.hint)


def read_size(key: str, value: object) -> int:
    try:
        return parse_size(value)
    except BadConfig as error:
        fail(key, error.message, error.hint)


def read_interval(key: str, value: object) -> float:
    seconds = read_duration(key, value)
    if seconds == 0:
        fail(key, "may not be zero", DURATION_HINT)
    return seconds
