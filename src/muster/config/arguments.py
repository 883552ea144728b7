"""Arguments of agent CLIs that Muster has a setting for, or gives itself: in `args` they would undo those."""

from __future__ import annotations

import re
from collections.abc import Mapping

from muster.config.settings import CLAUDE_CODE, CODEX
from muster.config.tables import fail

_OURS = "leave it out: Muster gives it"
_MODE = "write permission_mode instead, so that muster doctor can tell what it may do"
_MODEL = "write model instead"
_REFUSED: Mapping[str, Mapping[str, str]] = {
    CLAUDE_CODE: {
        **dict.fromkeys(("--permission-mode", "--dangerously-skip-permissions"), _MODE),
        **dict.fromkeys(("-p", "--print", "--input-format", "--output-format"), _OURS),
        **dict.fromkeys(("-c", "--continue", "-r", "--resume", "--session-id", "--fork-session"), _OURS),
        "--no-session-persistence": "leave it out: without its session it cannot go on after a kill",
        "--max-budget-usd": "write max_budget_usd instead",
        "--model": _MODEL,
    },
    CODEX: {
        **dict.fromkeys(("-s", "--sandbox", "--full-auto", "--approve-for-me", "--yolo"), _MODE),
        "--dangerously-bypass-approvals-and-sandbox": _MODE,
        "sandbox_mode": _MODE,
        "approval_policy": _MODE,
        "--json": _OURS,
        "--ephemeral": "leave it out: without its thread it cannot go on after a kill",
        **dict.fromkeys(("-m", "--model"), _MODEL),
    },
}
_SETTING = re.compile(r"(?:-c=?|--config=)?\s*(\w+)\s*=")
_ATTACHED = re.compile(r"-[a-zA-Z](?=[^-])")
"""Codex takes the value of a short option also without a space."""


def refuse_stated(key: str, kind: str, args: tuple[str, ...]) -> None:
    """Raises ConfigError where `args` of an agent of this kind would say again what is stated elsewhere."""
    refused = _REFUSED[kind]
    for before, argument in zip(("", *args), args, strict=False):
        short = _ATTACHED.match(argument) if kind == CODEX else None
        name = short[0] if short else argument.partition("=")[0]
        if kind == CODEX and (before in ("-c", "--config") or argument.startswith(("-c", "--config="))):
            setting = _SETTING.match(argument)
            name = setting[1] if setting else name
        if name in refused:
            fail(key, f"{name} is not for args", refused[name])
