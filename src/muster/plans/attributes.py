"""The trailing `{#id key=value}` of a task's line."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple

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
_CODE_SPAN = re.compile(r"(`+)[^`]*\1")
_GROUP = re.compile(r"(?<![\\{$])\{([^{}]*)\}(?!\})")
_TEXT_AFTER = re.compile(r"[^\W_](?![^{]*\})")
"""What is neither punctuation nor in braces."""
_PAIR = re.compile(r"(?:^|[ \t,;:])([A-Za-z_][\w-]*)[ \t]*[=:](?!=)")
_SPACED_PAIR = re.compile(r"[ \t,;]*(?<![\w-])([A-Za-z_][\w-]*)[ \t]*[=:][ \t]*")
_AFTER = frozenset({"after", "depends", "depends_on", "depends-on", "deps"})
_BARE_AFTER = re.compile(r"(?:^|[ \t])(\(?\[?after=[\w./,#-]+[\])}]*)[.;]?$")
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
    target: str | None = None
    estimated_s: int | None = None
    on_failed: str = "block"
    tags: tuple[str, ...] = ()
    metadata: dict[str, str] = field(default_factory=dict)
    sort_key: int = 0
    not_before_ms: int | None = None
    delay_s: int | None = None
    expires_at_ms: int | None = None
    expires_s: int | None = None
    parent: str | None = None


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


def doubt(title: str, line: int, problems: Problems) -> None:
    """Notes what stayed in a title although it is meant as attributes: the order of the plan would be lost."""
    prose = _CODE_SPAN.sub("", title)
    for group in _GROUP.finditer(prose):
        words = _PAIR.findall(group[1])
        last = not _TEXT_AFTER.search(prose, group.end())
        known = last and (all(word in ATTRIBUTES for word in words) if words else ID.fullmatch(group[1][1:]))
        if not _AFTER.intersection(words) and not (known and (words or group[1].startswith("#"))):
            continue
        meant = " ".join(_SPACED_PAIR.sub(r" \1=", group[1].lstrip(":")).split())
        meant = re.sub(r"\bdep[a-z_-]*=", "after=", meant)
        problems.add(
            line,
            f"{quoted(group[0])} is not read as attributes: write {{{meant}}} as the last thing on the line, "
            "all in one pair of braces (or `...` around it, if it is none)",
        )
        return
    if bare := _BARE_AFTER.search(prose):
        problems.add(line, f"{quoted(bare[1])} stands in no braces: write {{{bare[1].strip('{}()[]')}}}")


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
        elif key and key not in ATTRIBUTES:
            problems.add(line, f"unknown attribute {key!r}", key, tuple(ATTRIBUTES))
        elif not key:
            found.id = _read_id(anchor, line, problems)
        else:
            known = ATTRIBUTES[key]
            if '"' in bare or not known.read(found, (in_quotes or bare).strip()):
                problems.add(line, f"{key}={in_quotes or bare} is wrong: {known.expected}")
        seen.add(name)
    if {"delay", "not-before"} <= seen:
        problems.add(line, "delay and not-before both say when it may begin: keep one")
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


def _seconds(value: str) -> int | None:
    match = _DURATION.fullmatch(value)
    seconds = int(match[1]) * _UNITS_S[match[2]] if match else 0
    return seconds if 1 <= seconds <= TIMEOUT_S_MAX else None


def _time_ms(value: str) -> int | None:
    """Unix time of an ISO 8601 date or time; one without a zone is local."""
    try:
        at_s = datetime.fromisoformat(value).astimezone().timestamp()
    except (ValueError, OverflowError, OSError):
        return None
    return round(at_s * 1000) if at_s >= 0 else None


def _read_timeout(found: Attributes, value: str) -> bool:
    found.timeout_s = _seconds(value)
    return found.timeout_s is not None


def _read_estimated(found: Attributes, value: str) -> bool:
    found.estimated_s = _seconds(value)
    return found.estimated_s is not None


def _read_target(found: Attributes, value: str) -> bool:
    found.target = value
    return 0 < len(value) <= NAME_CHARS_MAX


def _read_delay(found: Attributes, value: str) -> bool:
    found.delay_s = _seconds(value)
    return found.delay_s is not None


def _read_not_before(found: Attributes, value: str) -> bool:
    found.not_before_ms = _time_ms(value)
    return found.not_before_ms is not None


def _read_expires(found: Attributes, value: str) -> bool:
    found.expires_s = _seconds(value)
    found.expires_at_ms = None if found.expires_s else _time_ms(value)
    return bool(found.expires_s or found.expires_at_ms)


def _read_sort(found: Attributes, value: str) -> bool:
    number = _number(value.removeprefix("-"))
    found.sort_key = -number if number and value.startswith("-") else number or 0
    return number is not None


def _read_parent(found: Attributes, value: str) -> bool:
    found.parent = value
    return bool(value)


def _read_metadata(found: Attributes, value: str) -> bool:
    for pair in value.split(","):
        name, equals, text = pair.strip().partition("=")
        if not equals or not 0 < len(name) <= NAME_CHARS_MAX or name in found.metadata:
            return False
        found.metadata[name] = text
    return True


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


class Attribute(NamedTuple):
    read: Callable[[Attributes, str], bool]
    """False where the value is wrong."""
    expected: str
    """What a value must be, as an error says it."""
    meaning: str
    default: str
    """What holds without it."""


ATTRIBUTES: dict[str, Attribute] = {
    "after": Attribute(
        _read_after, "a task, or several with commas between them", "what must be done first", "nothing"
    ),
    "agent": Attribute(
        _read_agent,
        "the name of an agent",
        "who does it",
        "`agent` of `muster.toml`, or any that is configured",
    ),
    "profile": Attribute(
        _read_profile,
        "the kind of agent that is preferred",
        "the kind of agent that is preferred",
        "the one that its words suggest, or `general-purpose`",
    ),
    "cap": Attribute(
        _read_capabilities,
        "what the agent must offer, several with commas between them",
        "what the agent must offer; nobody else gets it",
        "anything",
    ),
    "target": Attribute(
        _read_target,
        "what it is about: a host, a repository, an environment",
        "what it is about (a host, a repository): only an agent with it in its `targets` gets it",
        "anything",
    ),
    "priority": Attribute(
        _read_priority,
        "1 to 10, high first, or P0, P1, P2",
        "1 to 10, high first; `P0` is 10, `P1` 7, `P2` 4",
        "5",
    ),
    "sort": Attribute(
        _read_sort, "a whole number, low first", "the order among tasks of one priority, low first", "0"
    ),
    "timeout": Attribute(
        _read_timeout,
        "a duration up to 365d, such as 90s, 30m, 2h or 1d",
        "how long one run may take: `90s`, `30m`, `2h`, `1d`; a bare number is seconds",
        "`[task] timeout`, 2 h",
    ),
    "estimated": Attribute(
        _read_estimated,
        "a duration up to 365d, such as 20m or 2h",
        "how long one run should take; half an hour past it the agent is told, ten silent minutes later stopped",
        "no limit but `timeout`",
    ),
    "retries": Attribute(
        _read_retries,
        f"a number from 0 to {RETRIES_MAX}",
        "runs after the first one that has failed",
        "`[task] retries`, 3",
    ),
    "limit": Attribute(
        _read_limit,
        "a name of [limits] in muster.toml",
        "tasks of one name share a number of places from `[limits]`",
        "none",
    ),
    "on-failed": Attribute(
        _read_on_failed,
        "block, skip or run: what it does when a task before it has failed",
        "`block`, `skip` or `run` when a task before it has failed",
        "`block`",
    ),
    "delay": Attribute(
        _read_delay,
        "a duration up to 365d, such as 30s or 2h",
        "how long after it was added it may begin",
        "at once",
    ),
    "not-before": Attribute(
        _read_not_before,
        "a date or time such as 2027-01-31 or 2027-01-31T18:00, local unless it names a zone",
        "when it may begin: `2027-01-31`, `2027-01-31T18:00`, `2027-01-31T18:00Z`; local without a zone",
        "at once",
    ),
    "expires": Attribute(
        _read_expires,
        "a duration such as 2h, or a time such as 2027-01-31T18:00",
        "it fails if no run has begun by then: a duration after it was added, or a time",
        "never",
    ),
    "parent": Attribute(
        _read_parent,
        "a task of this plan",
        "the task that it belongs to; no dependency",
        "the task whose box it stands under",
    ),
    "tags": Attribute(
        _read_tags,
        "a word, or several with commas between them",
        "words to find it by (`muster task list --tag`)",
        "none",
    ),
    "meta": Attribute(
        _read_metadata,
        "KEY=VALUE, or several with commas between them, each key once",
        "`meta=customer=acme,team=a`: kept with the task, for other programs",
        "none",
    ),
}
"""Everything that may stand between the braces beside `#id`."""
