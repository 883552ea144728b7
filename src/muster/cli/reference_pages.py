"""Pages of the documentation that are made from the code: all settings, and the tools of the MCP server."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator

from muster.config.keys import AGENT_KEYS, CHANNEL_KEYS, KEYS, Key
from muster.config.settings import SECTIONS, Config
from muster.config.variables import PREFIX
from muster.mcp.server import TOOLS, VERSIONS


def settings_page() -> str:
    lines = [
        "# All settings",
        "",
        "Every key of `muster.toml`, made from what Muster reads. [Settings](configuration.md) says where else "
        f"they may stand, and which layer goes before which. `{PREFIX}` and a key in capitals, with `_` for its "
        f"dots, is its variable: `{PREFIX}TASK_RETRIES` is `task.retries`.",
    ]
    above = [key for key in KEYS if "." not in key.path]
    lines += ["", "## Above all tables", "", *_keys(above)]
    for name, section in SECTIONS.items():
        says = (section.__doc__ or "").partition("  `[")[0]
        found = [key for key in KEYS if key.path.startswith(f"{name}.")]
        lines += ["", f"## [{name}]", "", says, "", *_keys(found)]
    lines += ["", "## [agents.NAME]", "", "One for each agent. They have no variables.", ""]
    lines += ["| key | what it is |", "|---|---|"]
    lines += [f"| `{key.path}` | {key.says} |" for key in AGENT_KEYS]
    lines += ["", "## [channels.NAME]", ""]
    lines += ["One for each place where [people are told](../how-to/notifications.md)."]
    lines += ["They have no variables.", "", "| key | what it is |", "|---|---|"]
    lines += [f"| `{key.path}` | {key.says} |" for key in CHANNEL_KEYS]
    lines += [
        "",
        "## [limits]",
        "",
        "A number for each `limit=` that tasks share: most of them that run at one time.",
    ]
    lines += ["", "## [profiles]", ""]
    lines += ["The words that ask for each kind of agent: see [the plan file](plan-file.md#who-gets-what)."]
    return "\n".join([*lines, ""])


def _keys(keys: Iterable[Key]) -> Iterator[str]:
    yield from ("| key | default | what it is |", "|---|---|---|")
    for key in keys:
        yield f"| `{key.path}` | {_default(key.value(Config()))} | {key.says} |"


def _default(value: object) -> str:
    """As TOML has it."""
    return "-" if value is None else f"`{value if isinstance(value, str) else json.dumps(value)}`"


def mcp_page() -> str:
    lines = [
        "# The MCP tools",
        "",
        "Muster gives these tools to the CLI of an agent, for the attempt that it works on: see "
        "[How agents report](../concepts.md#how-agents-report). They do what "
        "[`muster report`](commands.md#muster-report) does. The server is called `muster` and speaks over "
        f"stdin and stdout. It knows these versions of the protocol: {', '.join(VERSIONS)}.",
    ]
    for name, tool in TOOLS.items():
        lines += ["", f"## {name}", "", tool.about, ""]
        lines += ["| input | type | what it is |", "|---|---|---|"]
        for called, given in tool.inputs.items():
            needed = ", required" if called in tool.needs else ""
            options = given.get("enum")
            told = f": {', '.join(f'`{one}`' for one in options)}" if isinstance(options, list) else ""
            lines.append(f"| `{called}` | {given['type']}{needed} | {given['description']}{told} |")
        lines += ["", f"It answers: {tool.answer}"]
    return "\n".join([*lines, ""])
