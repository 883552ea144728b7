"""The kinds of agent CLIs that Muster brings: all that is known of each beside its adapter.

A new CLI is an adapter in `agents/`, with its test, and an entry here; other packages bring theirs by an entry
point, see `app.agents`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from muster.config.tables import fail

COMMAND = "command"
"""The kind of an agent that is any command."""
_OURS = "leave it out: Muster gives it"
_MODE = "write permission_mode instead, so that muster doctor can tell what it may do"
_MODEL = "write model instead"
_SETTING = re.compile(r"(?:-c=?|--config=)?\s*(\w+)\s*=")
_ATTACHED = re.compile(r"-[a-zA-Z](?=[^-])")


@dataclass(frozen=True, kw_only=True)
class AgentKind:
    program: str
    adapter: str
    """`module:class`, loaded by the worker that runs such an agent."""
    provider: str
    modes: tuple[str, ...]
    """Its permission modes; which one, is for people to say."""
    levels: Mapping[str, str]
    """The mode that `muster init` writes, by how much the agent may do: read, edit, all."""
    refused: Mapping[str, str]
    """Arguments that Muster has a setting for, or gives itself, with what to do instead of that."""
    budget: bool = False
    """It keeps a limit in dollars itself."""
    short_values: bool = False
    """It takes the value of a short option also without a space, and settings as `-c name=value`."""

    def refuse(self, key: str, args: tuple[str, ...]) -> None:
        """Raises BadConfig where `args` would say again what is stated elsewhere."""
        for before, argument in zip(("", *args), args, strict=False):
            name = argument.partition("=")[0]
            if self.short_values:
                short = _ATTACHED.match(argument)
                name = short[0] if short else name
                if before in ("-c", "--config") or argument.startswith(("-c", "--config=")):
                    setting = _SETTING.match(argument)
                    name = setting[1] if setting else name
            if name in self.refused:
                fail(key, f"{name} is not for args", self.refused[name])


KINDS: Mapping[str, AgentKind] = {
    "claude-code": AgentKind(
        program="claude",
        adapter="muster.agents.claude_code:ClaudeCodeAgent",
        provider="anthropic",
        modes=("plan", "dontAsk", "acceptEdits", "auto", "bypassPermissions"),
        levels={"read": "plan", "edit": "acceptEdits", "all": "bypassPermissions"},
        refused={
            **dict.fromkeys(("--permission-mode", "--dangerously-skip-permissions"), _MODE),
            **dict.fromkeys(("-p", "--print", "--input-format", "--output-format"), _OURS),
            **dict.fromkeys(("-c", "--continue", "-r", "--resume", "--session-id", "--fork-session"), _OURS),
            "--no-session-persistence": "leave it out: without its session it cannot go on after a kill",
            "--max-budget-usd": "write max_budget_usd instead",
            "--model": _MODEL,
        },
        budget=True,
    ),
    "codex": AgentKind(
        program="codex",
        adapter="muster.agents.codex:CodexAgent",
        provider="openai",
        modes=("read-only", "workspace-write", "danger-full-access"),
        levels={"read": "read-only", "edit": "workspace-write", "all": "danger-full-access"},
        refused={
            **dict.fromkeys(("-s", "--sandbox", "--full-auto", "--approve-for-me", "--yolo"), _MODE),
            "--dangerously-bypass-approvals-and-sandbox": _MODE,
            "sandbox_mode": _MODE,
            "approval_policy": _MODE,
            "--json": _OURS,
            "--ephemeral": "leave it out: without its thread it cannot go on after a kill",
            **dict.fromkeys(("-m", "--model"), _MODEL),
        },
        short_values=True,
    ),
}
