"""How agents report: by `muster report` where they may run what they like, else by lines of their messages."""

from __future__ import annotations

import re

from muster.ports.agent import Reported

_REPORT = re.compile(
    r"^[\s>*`-]*muster: ?(progress|checkpoint|ask|keep) +(\S[^\n]*?)[\s`*]*$", re.MULTILINE | re.IGNORECASE
)
_COMMANDS = (
    "To report how far you are, to save what a successor needs to go on, or to ask a person, run: "
    "`muster report progress 40 --step TEXT`, `muster report checkpoint --text TEXT`, "
    "`muster report ask QUESTION` (then stop: the answer begins your next turn)."
)
_LINES = (
    "To report how far you are, to save what a successor needs to go on, or to ask a person, write a line of "
    "its own in a message: `muster: progress 40 TEXT`, `muster: checkpoint TEXT`, `muster: ask QUESTION` "
    "(then stop: the answer begins your next turn)."
)


_STASH = " Do not use git stash: this working tree shares it with those of other agents."


def how_to_report(*, commands: bool, notice: str, branch: bool = False) -> str:
    """Two lines at most.  `commands`: it may run any; `notice`: the file in which it is told things, or empty.

    `branch`: it works in a tree of its own, on a branch.
    """
    told = f"\nMessages for you while you work are in the file {notice}: look there now and then."
    return (_COMMANDS if commands else _LINES) + (_STASH if branch else "") + (told if notice else "")


def reports_in(text: str) -> list[Reported]:
    if "muster:" not in text.casefold():
        return []
    return [Reported(found[1].lower(), found[2]) for found in _REPORT.finditer(text)]
