"""The layers that settings come in: the user's file, above it the project's, and variables above both."""

from __future__ import annotations

import os
import pwd
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from pathlib import Path

from msgspec import Struct

from muster.config.project import FILE_NAME
from muster.config.settings import COMMAND
from muster.config.variables import settings_in
from muster.model.errors import BadConfig
from muster.model.json_value import Json

_DEPTH_MAX = 20
"""Deeper tables are replaced, not merged: nothing that is read lies there."""

Options = Iterable[tuple[str, str, str]]
"""`--store`, the key that it stands for, and what it says."""


class Source(Struct, frozen=True, dict=True):
    """A file, one variable, or an option of a command."""

    name: str
    raw: Mapping[str, object]
    text: str | None = None
    """None for a variable, which has no lines."""

    @cached_property
    def _lines(self) -> dict[str, int]:
        return key_lines(self.text or "")

    def place(self, key: str) -> str:
        """`muster.toml:12`, or the variable."""
        return self.name if self.text is None else f"{self.name}:{line_of(self._lines, key) or 1}"


class Layers:
    """What all sources say together."""

    def __init__(self, sources: Iterable[Source]) -> None:
        """From the lowest to the one that goes before all others."""
        self.sources = tuple(sources)
        self.raw: Json = {}
        self._from: dict[str, tuple[Source, ...]] = {}
        """Of each key; of a table all that have put something into it, the highest first."""
        for source in self.sources:
            self._lay(source, source.raw, self.raw, ())

    def _lay(self, source: Source, over: Mapping[str, object], under: Json, path: tuple[str, ...]) -> None:
        for name, value in over.items():
            here = (*path, name)
            key, below = ".".join(here), under.get(name)
            if isinstance(value, dict) and len(here) <= _DEPTH_MAX:
                if not isinstance(below, dict) or (path == ("agents",) and _is_another(below, value)):
                    self._replace(under, name, key, {})
                self._lay(source, value, under[name], here)
            else:
                self._replace(under, name, key, value)
            self._from[key] = (source, *self._from.get(key, ()))

    def _replace(self, table: Json, name: str, key: str, value: object) -> None:
        if name in table:
            for known in [known for known in self._from if known == key or known.startswith(f"{key}.")]:
                del self._from[known]
        table[name] = value

    def origin(self, key: str) -> str | None:
        """Where its value comes from, None for a key that is nowhere."""
        found = [
            f"environment variable: {source.name}" if source.text is None else source.place(key)
            for source in self._from.get(key, ())
        ]
        return ", ".join(found) or None

    def placed(self, error: BadConfig) -> BadConfig:
        """The same error with the place of its key in place of `muster.toml`."""
        source, place = self._nearest(error.key)
        if source is None:
            return error
        message = place + error.message.removeprefix(FILE_NAME)
        other, its_place = self._nearest(error.against)
        if other not in (None, source):
            message += f"; {error.against} stands in {its_place}"
        return BadConfig(message, error.hint)

    def _nearest(self, key: str) -> tuple[Source | None, str]:
        """Who said it, or the first thing around it; a key that is missing has only that."""
        around = key
        while around and around not in self._from:
            around = around[:-1].rpartition("[" if around.endswith("]") else ".")[0]
        if not around:
            return None, ""
        source = self._from[around][0]
        return source, source.place(key)


def _is_another(below: Json, above: Json) -> bool:
    """An agent of another kind has nothing in common with the one below but its name."""
    return "kind" in above and above["kind"] != below.get("kind", COMMAND)


def read_layers(root: Path, env: Mapping[str, str], options: Options = ()) -> Layers:
    """What is set for the project in `root`, unchecked, and above that what a command's options say.

    Raises BadConfig for a file that cannot be read.
    """
    said = (Source(name, _nested(key, value)) for name, key, value in options)
    return Layers((*_sources(root, env), *said))


def text_source(text: str, name: str = FILE_NAME) -> Source:
    """Raises BadConfig where the text is not TOML."""
    import tomllib

    try:
        return Source(name, tomllib.loads(text), text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise BadConfig(f"{name} is not valid TOML: {error}", "correct that line") from error


def _sources(root: Path, env: Mapping[str, str]) -> Iterator[Source]:
    user = user_file(env)
    if user is not None:
        name = _short(user, env)
        may_read = f"let yourself read it and look into {Path(name).parent}"
        text = _text(user, name, f"{may_read}, or set XDG_CONFIG_HOME to another folder")
        if text is not None:
            yield text_source(text, name)
    project = root / FILE_NAME
    text = _text(project, FILE_NAME, f"make {project} a file that you can read")
    if text is not None:
        yield text_source(text)
    for variable in settings_in(env):
        yield Source(variable.name, _nested(variable.key, variable.value))


def _nested(key: str, value: object) -> Json:
    first, _, rest = key.partition(".")
    return {first: _nested(rest, value) if rest else value}


def user_file(env: Mapping[str, str]) -> Path | None:
    """Where the user's own settings stand if there are any; None for a user who has no home."""
    folder = Path(env.get("XDG_CONFIG_HOME", ""))
    if not folder.is_absolute():
        folder = _home(env) / ".config"
    return folder / "muster" / FILE_NAME if folder.is_absolute() else None


def _home(env: Mapping[str, str]) -> Path:
    if named := env.get("HOME"):
        return Path(named)
    try:
        return Path(pwd.getpwuid(os.getuid()).pw_dir)
    except KeyError:
        return Path()


def _short(path: Path, env: Mapping[str, str]) -> str:
    home = _home(env)
    return f"~/{path.relative_to(home)}" if home.is_absolute() and path.is_relative_to(home) else str(path)


def _text(path: Path, name: str, way_out: str) -> str | None:
    """None where there is no such file."""
    try:
        return path.read_bytes().decode("utf-8-sig")  # editors on Windows write a BOM
    except (FileNotFoundError, NotADirectoryError):  # HOME=/dev/null is how some say that they have none
        return None
    except OSError as error:
        raise BadConfig(f"{name} cannot be read: {error.strerror}", way_out) from error
    except UnicodeDecodeError as error:
        raise BadConfig(f"{name} is not UTF-8 text", f"save it as UTF-8 (byte {error.start})") from error


_PART = r"""(?:[A-Za-z0-9_-]+|"[^"\n]*"|'[^'\n]*')"""
_NAME = rf"{_PART}(?:\s*\.\s*{_PART})*"
_TABLE = re.compile(rf"\s*\[\[?\s*({_NAME})\s*\]")
_KEY = re.compile(rf"\s*({_NAME})\s*=")
_PARTS = re.compile(_PART)
_INDEX = re.compile(r"\[\d+\]$")


def key_lines(text: str) -> dict[str, int]:
    """The line, from 1, of each dotted key and table of a valid TOML text; keys of inline tables have none."""
    found: dict[str, int] = {}
    table, closing = "", ""
    for number, line in enumerate(text.splitlines(), 1):
        if closing:  # within a text of several lines
            closing = "" if closing in line else closing
            continue
        if heading := _TABLE.match(line):
            table = _dotted(heading[1])
            found.setdefault(table, number)
            continue
        if key := _KEY.match(line):
            name = _dotted(key[1])
            found.setdefault(f"{table}.{name}" if table else name, number)
        closing = next((quotes for quotes in ('"""', "'''") if line.count(quotes) % 2), "")
    return found


def line_of(lines: Mapping[str, int], key: str) -> int | None:
    """Of the key, of the first one in it, or of the table that it stands in."""
    while key:
        key = _INDEX.sub("", key)
        within = [line for name, line in lines.items() if name == key or name.startswith(f"{key}.")]
        if within:
            return min(within)
        key = key.rpartition(".")[0]
    return None


def _dotted(name: str) -> str:
    return ".".join(part.strip("\"'") for part in _PARTS.findall(name))
