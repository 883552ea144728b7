"""The trailing `{#id key=value}` of a task's line."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from .problems import Problems, quoted

ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]*")
PRIORITIES = {"P0": 10, "P1": 7, "P2": 4}
TIMEOUT_S_MAX = 365 * 86_400
RETRIES_MAX = 1000
NAME_CHARS_MAX = 200
ON_FAILED = ("block", "skip", "run")

_UNITS_S = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86_400}
_DURATION = re.compile(r"([0-9]{1,9})([smhd]?)")
_MEANT = re.compile(r"#|(?:.*[ \t])?[A-Za-z_][\w-]*=(?!=)")
_TOKEN = re.compile(r'[ \t]*(?:#([^ \t]*)|([A-Za-z_][\w-]*)=(?:"([^"]*)"(?=[ \t]|\Z)|([^ \t]*))|([^ \t]+))')


@dataclass(slots=True)
class Attributes:
    id: str | None = None
    after: tuple[str, ...] = ()
    agent: str | None = None
    priority: int | None = None
    timeout_s: int | None = None
    retries: int | None = None
    capabilities: tuple[str, ...] = ()
    profile: str | None = None
    limit_key: str | None = None
    on_failed: str = "block"
    tags: tuple[str, ...] = ()


def split(text: str, line: int, problems: Problems) -> tuple[str, str]:
    """A task's text without its attributes, and what stands between their braces."""
    start = text.rfind("{")
    if start < 0 or text[start - 1 : start] == "\\":
        return text, ""
    group = text[start + 1 :]
    inner = group.removesuffix("}").strip()
    if "}" in inner or not _MEANT.match(inner) or "`" in inner:
        return text, ""
    if not group.endswith("}"):
        problems.add(line, f"the attributes {quoted(text[start:])} have no closing brace")
        inner = ""
    return text[:start].rstrip(), inner


def read(inner: str, line: int, problems: Problems) -> Attributes:
    """The attributes between the braces; what is wrong with them goes to `problems`."""
    found = Attributes()
    seen: set[str] = set()
    for anchor, key, in_quotes, bare, stray in _TOKEN.findall(inner):
        name = key or ("" if stray else "#")
        if stray:
            problems.add(line, f"{quoted(stray)} is no attribute (a list is written after=a,b)")
        elif name in seen:
            problems.add(line, f"attribute {name!r} is given twice")
        elif key and key not in _READERS:
            problems.add(line, f"unknown attribute {key!r}", key, tuple(_READERS))
        elif not key:
            found.id = _read_id(anchor, line, problems)
        else:
            read_value, expected = _READERS[key]
            if '"' in bare or not read_value(found, (in_quotes or bare).strip()):
                problems.add(line, f"{key}={in_quotes or bare} is wrong: {expected}")
        seen.add(name)
    return found


def _read_id(name: str, line: int, problems: Problems) -> str | None:
    if not ID.fullmatch(name):
        problems.add(line, f"{{#{name}}} is no id: letters, digits and . _ / - only, a letter or digit first")
    return name or None


def _read_after(found: Attributes, value: str) -> bool:
    names = [name.strip() for name in value.split(",")]
    found.after = tuple(dict.fromkeys(name for name in names if name))
    return all(names)


def _read_agent(found: Attributes, value: str) -> bool:
    found.agent = value
    return bool(value)


def _read_priority(found: Attributes, value: str) -> bool:
    number = PRIORITIES.get(value.upper()) or _number(value)
    found.priority = number
    return number is not None and 1 <= number <= 10


def _read_timeout(found: Attributes, value: str) -> bool:
    match = _DURATION.fullmatch(value)
    found.timeout_s = int(match[1]) * _UNITS_S[match[2]] if match else None
    return found.timeout_s is not None and 1 <= found.timeout_s <= TIMEOUT_S_MAX


def _read_retries(found: Attributes, value: str) -> bool:
    found.retries = _number(value)
    return found.retries is not None and found.retries <= RETRIES_MAX


def _names(value: str) -> tuple[str, ...] | None:
    names = [name.strip() for name in value.split(",")]
    return tuple(dict.fromkeys(names)) if all(0 < len(name) <= NAME_CHARS_MAX for name in names) else None


def _read_capabilities(found: Attributes, value: str) -> bool:
    names = _names(value)
    found.capabilities = names or ()
    return names is not None


def _read_profile(found: Attributes, value: str) -> bool:
    found.profile = value
    return 0 < len(value) <= NAME_CHARS_MAX


def _read_limit(found: Attributes, value: str) -> bool:
    found.limit_key = value
    return 0 < len(value) <= NAME_CHARS_MAX


def _read_on_failed(found: Attributes, value: str) -> bool:
    found.on_failed = value
    return value in ON_FAILED


def _read_tags(found: Attributes, value: str) -> bool:
    names = _names(value)
    found.tags = names or ()
    return names is not None


def _number(value: str) -> int | None:
    return int(value) if re.fullmatch(r"[0-9]{1,9}", value) else None


_READERS: dict[str, tuple[Callable[[Attributes, str], bool], str]] = {
    "after": (_read_after, "a task, or several with commas between them"),
    "agent": (_read_agent, "the name of an agent"),
    "priority": (_read_priority, "1 to 10, high first, or P0, P1, P2"),
    "timeout": (_read_timeout, "a duration up to 365d, such as 90s, 30m, 2h or 1d"),
    "retries": (_read_retries, f"a number from 0 to {RETRIES_MAX}"),
    "cap": (_read_capabilities, "what the agent must offer, several with commas between them"),
    "profile": (_read_profile, "the kind of agent that is preferred"),
    "limit": (_read_limit, "a name of [limits] in muster.toml"),
    "on-failed": (_read_on_failed, "block, skip or run: what it does when a task before it has failed"),
    "tags": (_read_tags, "a word, or several with commas between them"),
}
