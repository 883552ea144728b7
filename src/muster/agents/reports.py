"""How agents report: by Muster's tools where their CLI has them, else by `muster report` or lines of messages."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from pathlib import Path

import msgspec

import muster
from muster.ports.agent import AttemptFolder, Reported

_REPORT = re.compile(
    r"^[\s>*`-]*muster: ?(progress|checkpoint|ask|keep) +(\S[^\n]*?)[\s`*]*$", re.MULTILINE | re.IGNORECASE
)
SERVER = "muster"
"""What the CLIs call the MCP server that has the tools."""
_CALLED = re.compile(rf"(?:\w+: )?(?:(?:mcp_+)?{SERVER}_+[a-z]+(?:: .*)?|[a-z]+ \({SERVER} MCP Server\))")
"""A step that is a call of one of its tools, as the CLIs name them."""
_NEEDED = {"MUSTER_TOKEN", "MUSTER_TASK_ID", "MUSTER_EPOCH"}
_REACH = ("MUSTER_SOCKET", "MUSTER_SERVER")
"""One of both."""
_TOOLS = (
    "To report how far you are, to save what a successor needs to go on, or to ask a person, call the tools "
    f"`progress`, `checkpoint` and `ask` of the MCP server `{SERVER}` (after `ask` stop: the answer begins your "
    "next turn)."
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


def mcp_server(folder: AttemptFolder) -> tuple[str, ...]:
    """The command of this attempt's MCP server."""
    program = Path(muster.__file__).parent / "mcp" / "__main__.py"
    return sys.executable, "-I", "-S", str(program), str(folder.identity.absolute())


def identity(env: Mapping[str, str]) -> bytes:
    """What that server reads: in a file, where no list of processes shows the token, and no CLI keeps it back.

    Empty where nobody could be told anything.
    """
    told = {
        name: env[name] for name in (*_NEEDED, *_REACH, "MUSTER_WORKDIR", "MUSTER_CA_FILE") if name in env
    }
    reached = told.keys() >= _NEEDED and not told.keys().isdisjoint(_REACH)
    return msgspec.json.encode(told) if reached else b""


def is_report(step: str) -> bool:
    return bool(_CALLED.fullmatch(step))


def how_to_report(*, tools: bool, commands: bool, notice: str, branch: bool = False) -> str:
    """Two lines at most.  `tools`: it has Muster's; `commands`: it may run any; `notice`: the file in which it is
    told things, or empty; `branch`: it works in a tree of its own, on a branch.
    """
    way = _TOOLS if tools else _COMMANDS if commands else _LINES
    told = f"\nMessages for you while you work are in the file {notice}: look there now and then."
    return way + (_STASH if branch else "") + (told if notice else "")


def reports_in(text: str) -> list[Reported]:
    if "muster:" not in text.casefold():
        return []
    return [Reported(found[1].lower(), found[2]) for found in _REPORT.finditer(text)]
