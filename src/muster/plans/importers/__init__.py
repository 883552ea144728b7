"""Plans that other tools keep as data or in a folder, read into plan files.  Pure: files in, text out."""

from __future__ import annotations

from typing import Protocol

from muster.model.errors import BadPlan

from . import backlog, beads, github, items, taskmaster
from .source import Reading, ToolFiles
from .writing import WrittenPlan, written


class Importer(Protocol):
    """One module each."""

    NAME: str

    def recognise(self, source: ToolFiles) -> str:
        """Why this is its source; empty: it is not."""

    def read(self, source: ToolFiles) -> Reading: ...


_ALL: tuple[Importer, ...] = (backlog, taskmaster, beads, items, github)
IMPORTERS: dict[str, Importer] = {importer.NAME: importer for importer in _ALL}


def recognised(source: ToolFiles) -> tuple[str, str]:
    """The name of the importer whose source this is, and why.  Raises BadPlan."""
    for name, importer in IMPORTERS.items():
        if why := importer.recognise(source):
            return name, why
    raise BadPlan(
        f"{source.name}: not a source that Muster knows ({', '.join(IMPORTERS)})",
        "--format NAME says which it is; a markdown file needs no import: muster run FILE",
    )


def read(source: ToolFiles, form: str, title: str = "") -> WrittenPlan:
    """`title` is what the plan is called; the source may say that as well.  Raises BadPlan, and BadInput for a
    tag that is not there."""
    found = IMPORTERS[form].read(source)
    found.title = title or found.title
    return written(found)
