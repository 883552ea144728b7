"""Tables of `muster.toml`: typed values out, or a BadConfig that names the file, the key and the fix."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, NoReturn, TypeVar, cast

from msgspec import UNSET, Struct, StructMeta

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


class _Setting(NamedTuple):
    usual: Any
    spec: KeySpec


def setting(
    usual: _T,
    name: str,
    read: Callable[[str, object], Any] | None,
    says: str,
    show: Callable[[Any], object] | None = None,
) -> _T:
    """A field of a Section, with what it is called, how it is read and what it is, said once."""
    return cast(_T, _Setting(usual, KeySpec(name, read, says, show)))


class _SectionMeta(StructMeta):
    settings: dict[str, KeySpec]

    def __new__(cls, name: str, bases: tuple[type, ...], body: dict[str, Any], **options: Any) -> Any:
        told = {field: one for field, one in body.items() if isinstance(one, _Setting)}
        usual = {field: one.usual for field, one in told.items()}
        settings = {field: one.spec for field, one in told.items()}
        return super().__new__(cls, name, bases, {**body, **usual, "settings": settings}, **options)


class Section(Struct, frozen=True, metaclass=_SectionMeta):
    """A class that stands for a table: `settings` has its fields that are one key each."""


def read_section(
    table: Table, section: type[_T], named: Mapping[str, KeySpec], given: Mapping[str, Any] = {}
) -> _T:
    """The table as that class, the rest of it refused.  `given` goes before the defaults of the class."""
    values, tables = dict(given), {"": table}
    for name, one in named.items():
        if one.read is None:
            continue
        within, _, key = one.name.rpartition(".")
        if within not in tables:
            tables[within] = table.table(within)
        found = tables[within].read(key, one.read, values.get(name, UNSET))
        if found is not UNSET:
            values[name] = found
    for one_table in tables.values():
        one_table.refuse_the_rest()
    return section(**values)
