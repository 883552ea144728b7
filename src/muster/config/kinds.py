"""What settings must know of a kind of agent CLI.

Each kind states it as one AgentKind beside its adapter, which an entry point of the group `muster.agents` names:
`claude-code = "muster.agents.claude_code:KIND"`.  Those of other packages are read in the same way.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct

from muster.config.settings import AgentConfig
from muster.config.tables import fail
from muster.ports.agent import Agent, Entry, Home

GIVEN = "leave it out: Muster gives it"
USE_MODE = "write permission_mode instead, so that muster doctor can tell what it may do"
USE_MODEL = "write model instead"
_SETTING = re.compile(r"(?:-c=?|--config=)?\s*(\w+)\s*=")
_ATTACHED = re.compile(r"-[a-zA-Z](?=[^-])")


class AgentKind(Struct, frozen=True, kw_only=True):
    make: Callable[[AgentConfig, Home | None], Agent]
    """Of its settings and its HOME, where that is not the user's."""
    program: str = ""
    """Its usual command; without one, settings must have a command."""
    install: str = ""
    """The command that installs it."""
    login: str = ""
    """How its CLI gets a login."""
    provider: str = ""
    """Whose quota its agents share; empty: each agent has one of its own."""
    modes: tuple[str, ...] = ()
    """Its permission modes; which one, is for people to say."""
    levels: Mapping[str, str] = {}
    """The mode that `muster init` writes, by how much the agent may do: read, edit, all.  Empty: not offered."""
    refused: Mapping[str, str] = {}
    """Arguments that Muster has a setting for, or gives itself, with what to do instead of that."""
    options: tuple[str, ...] = ()
    """Settings of its own, in the table `options`; their values are its adapter's to check."""
    allowing: Callable[[Sequence[str]], list[str]] | None = None
    """The arguments by which it runs these commands without asking, where its level `edit` asks; None: it never
    asks for a command."""
    allows: Callable[[Sequence[str], Path, str], bool] = lambda _args, _root, _command: True
    """Whether arguments, in this project, let it run a command at that level."""
    budget: bool = False
    """It keeps a limit in dollars itself."""
    short_values: bool = False
    """It takes the value of a short option also without a space, and settings as `-c name=value`."""
    entries: Callable[[dict[str, Any]], Iterable[Entry]] | None = None
    """What people should read of one line of its standard output, for `muster logs`; None: its output as it is.

    A line that it does not know gives nothing.
    """
    talks: bool = False
    """It takes messages while it works, by `Launch.talk`."""
    resume: tuple[str, ...] = ()
    """Arguments that open a session of its own for a person, with `{session}` in them."""

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


Kinds = Mapping[str, AgentKind]
"""By name.  What it takes to look one up is up to the composition."""
