"""Tables of `muster.toml`: typed values out, or a BadConfig that names the file, the key and the fix."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import MISSING, field, fields
from typing import Any, NamedTuple, NoReturn, TypeVar, cast

from muster.config.project import FILE_NAME
from muster.model.errors import BadConfig
from muster.model.wording import hint

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
                fail(self.path(key), "is not a known key", hint(key, self._known) or known)


def fail(key: str, problem: str, hint: str, *, against: str = "") -> NoReturn:
    """`against` is the key that this one does not go together with."""
    error = BadConfig(f"{FILE_NAME}: {key}: {problem}", hint)
    error.key, error.against = key, against
    raise error


def read_table(key: str, value: object) -> Table:
    if not isinstance(value, Mapping):
        fail(key, f"{value!r} is not a table", f"write it as a section [{key}] or as {{ key = value }}")
    return Table(key, value)


class KeySpec(NamedTuple):
    """One field of a class that stands for a table."""

    name: str
    """Its key there; with a dot, in a table of its own."""
    read: Callable[[str, object], Any] | None
    """None where something else decides whether and how."""
    says: str
    show: Callable[[Any], object] | None = None
    """As it is written, where that does not follow from what it is."""


def setting(
    usual: _T,
    name: str,
    read: Callable[[str, object], Any] | None,
    says: str,
    show: Callable[[Any], object] | None = None,
) -> _T:
    """A field of a dataclass, with what it is called, how it is read and what it is, said once."""
    metadata = {"setting": KeySpec(name, read, says, show)}
    if isinstance(usual, dict):
        return cast(_T, field(default_factory=usual.copy, metadata=metadata))
    return field(default=usual, metadata=metadata)


def settings_of(section: Any) -> dict[str, KeySpec]:
    return {one.name: one.metadata["setting"] for one in fields(section) if one.metadata}


def read_section(
    table: Table, section: type[_T], given: Mapping[str, Any] = {}, named: Mapping[str, KeySpec] | None = None
) -> _T:
    """The table as that class, the rest of it refused.  `given` goes before the defaults of the class."""
    values, tables = dict(given), {"": table}
    usual = {one.name: one.default for one in fields(section)}  # type: ignore[arg-type]  # a dataclass
    for name, one in (settings_of(section) if named is None else named).items():
        if one.read is None:
            continue
        within, _, key = one.name.rpartition(".")
        if within not in tables:
            tables[within] = table.table(within)
        found = tables[within].read(key, one.read, values.get(name, usual[name]))
        if found is not MISSING:
            values[name] = found
    for one_table in tables.values():
        one_table.refuse_the_rest()
    return section(**values)
