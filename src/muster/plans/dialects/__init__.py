"""How other tools write their plans: one file a dialect, listed here.  Pure."""

from __future__ import annotations

from typing import NamedTuple

from muster.plans.dialects.base import Dialect
from muster.plans.dialects.claude import ClaudeCode
from muster.plans.dialects.coditect import Coditect
from muster.plans.dialects.github import GitHubList
from muster.plans.dialects.numbered import Kiro, OpenSpec, TaskList
from muster.plans.dialects.obsidian import Obsidian
from muster.plans.dialects.refused import BacklogTask, OrgMode, ToolData
from muster.plans.dialects.spec_kit import SpecKit
from muster.plans.dialects.top import FileTop

PLAIN = Dialect()
NONE = "none"
"""`dialect: none` in a front matter: the file is read as Muster's own."""
DIALECTS: tuple[Dialect, ...] = (
    BacklogTask(),
    OrgMode(),
    ToolData(),
    SpecKit(),
    Coditect(),
    Kiro(),
    OpenSpec(),
    TaskList(),
    Obsidian(),
    ClaudeCode(),
    GitHubList(),
)
"""The first that recognises a file has it."""


class Recognised(NamedTuple):
    dialect: Dialect
    why: str
    """Empty where it is no dialect's."""


def recognised(text: str, file: str, wanted: object = None) -> Recognised:
    """Whose plan this is.  `wanted` is what its front matter says of that."""
    if wanted == NONE:
        return Recognised(PLAIN, "")
    for dialect in DIALECTS:
        if wanted == dialect.name:
            return Recognised(dialect, f"its front matter says `dialect: {wanted}`")
    top = FileTop(text, file)
    for dialect in DIALECTS:
        if why := dialect.recognise(top):
            return Recognised(dialect, why)
    return Recognised(PLAIN, "")
