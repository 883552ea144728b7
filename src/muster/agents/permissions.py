"""What Claude Code may run without asking, and how a person is told, to the letter, what it asks for."""

from __future__ import annotations

import contextlib
import hashlib
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from muster.agents.jsonlines import dict_of, list_of, text_of
from muster.agents.streaming import step_of

EXACT_CHARS_MAX = 4000
"""Of what is longer, a digest stands for the rest."""
_RULE = re.compile(r"\bBash(?:\(([^)]*)\)|(?![\w(]))")
_SAYS_NOTHING = frozenset({"description", "timeout"})


def exact(tool: str, given: dict[str, Any]) -> str:
    """`Bash: make test`; all that the tool was given where that is more than a command in one line."""
    what = {name: value for name, value in given.items() if name not in _SAYS_NOTHING}
    command = text_of(what, "command")
    plain = what.keys() == {"command"} and command.isprintable()
    text = f"{tool}: {command}" if plain else f"{tool} {msgspec.json.encode(what, order='sorted').decode()}"
    if len(text) <= EXACT_CHARS_MAX:
        return text
    return f"{text[:EXACT_CHARS_MAX]}… sha256:{hashlib.sha256(text.encode()).hexdigest()}"


def denials(final: dict[str, Any]) -> list[str]:
    """What Claude Code, and who speaks like it, was denied in this turn."""
    return [
        step_of(text_of(one, "tool_name"), dict_of(one, "tool_input"))
        for one in list_of(final, "permission_denials")
    ]


def allowing(commands: Sequence[str]) -> list[str]:
    """Claude Code's arguments by which it runs these commands, with any arguments, without asking."""
    return ["--allowedTools", *(f"Bash({command}:*)" for command in commands)] if commands else []


def allows(args: Sequence[str], root: Path, command: str) -> bool:
    """Whether these arguments, or the Claude settings of this project, allow a command that stands alone."""
    rules = _RULE.findall(" ".join(args))
    for name in ("settings.json", "settings.local.json"):
        with contextlib.suppress(OSError, ValueError):
            settings = msgspec.json.decode((root / ".claude" / name).read_bytes())
            rules += _RULE.findall(" ".join(map(str, list_of(dict_of(settings, "permissions"), "allow"))))
    return any(_covers(rule, command) for rule in rules)


def _covers(rule: str, command: str) -> bool:
    prefix = rule.removesuffix("*").rstrip(": ")
    open_ended = rule.endswith("*") or not rule
    return command == rule or (open_ended and (not prefix or f"{command} ".startswith(f"{prefix} ")))
