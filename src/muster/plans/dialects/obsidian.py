"""Obsidian Tasks: dates, priorities, ids and dependencies as signs, or as Dataview's `[due:: 2027-01-31]`."""

from __future__ import annotations

import re
from typing import Any

from muster.model.kinds import MOMENT
from muster.plans.dialects.base import Dialect, Parts
from muster.plans.dialects.top import FileTop

_VARIANT = "\ufe0f?"
_SIGNS = {
    "due": "[📅📆🗓]",
    "scheduled": "[⏳⌛]",
    "start": "🛫",
    "created": "➕",
    "completion": "✅",
    "cancelled": "❌",
}
_PRIORITIES = {"🔺": 10, "⏫": 8, "🔼": 6, "🔽": 3, "⏬": 1}
_WORDS = {"highest": 10, "high": 8, "medium": 6, "low": 3, "lowest": 1}
_DATE = r"\d{4}-\d{2}-\d{2}"
_DATED = {name: re.compile(rf"\s*{sign}{_VARIANT}\s*({_DATE})") for name, sign in _SIGNS.items()}
_NAME = r"[A-Za-z0-9_-]+"
_ID = re.compile(rf"\s*🆔{_VARIANT}\s*({_NAME})")
_AFTER = re.compile(rf"\s*⛔{_VARIANT}\s*({_NAME}(?:\s*,\s*{_NAME})*)")
_PRIORITY = re.compile(rf"\s*([{''.join(_PRIORITIES)}]){_VARIANT}")
_REPEATS = re.compile(rf"\s*🔁{_VARIANT}\s*([^📅📆🗓⏳⌛🛫➕✅❌🆔⛔🏁🔺⏫🔼🔽⏬\[]*)")
_WHEN_DONE = re.compile(rf"\s*🏁{_VARIANT}\s*(?:keep|delete)?")
_FIELD = re.compile(
    r"\s*[\[(](due|scheduled|start|created|completion|cancelled|priority|id|dependsOn|repeat|onCompletion)"
    r"::\s*([^\])]*)[\])]"
)
_TAG = re.compile(r"(?:^|(?<=\s))#([^\s#\[\](){},;:'\"!?.]*[^\W\d][^\s#\[\](){},;:'\"!?.]*)")


class Obsidian(Dialect):
    name = "obsidian"
    order = "free"
    says = "⛔ waits for 🆔, 🛫 and ⏳ say when it may start; `[-]` is cancelled"
    dropped_marks = "-"
    known_marks = "/"

    def recognise(self, top: FileTop) -> str:
        signs = sum(top.count(pattern) for pattern in (*_DATED.values(), _ID, _AFTER, _REPEATS))
        if signs or top.count(_FIELD):
            return "it has signs like 📅, ⏳ or 🆔" if signs else "it has fields like [due:: 2027-01-31]"
        return "it has signs like ⏫ and 🔽" if top.count(_PRIORITY) > 1 else ""

    def read_title(self, text: str) -> Parts:
        said = {name: value.strip() for name, value in _FIELD.findall(text)}
        title = _FIELD.sub("", text)
        for name, pattern in _DATED.items():
            if match := pattern.search(title):
                said[name] = match[1]
                title = pattern.sub("", title)
        for name, pattern in (("id", _ID), ("dependsOn", _AFTER), ("repeat", _REPEATS), ("sign", _PRIORITY)):
            if match := pattern.search(title):
                said[name] = match[1].strip()
                title = pattern.sub(" ", title)
        title = _WHEN_DONE.sub("", title)
        tags = tuple(dict.fromkeys(tag for tag in _TAG.findall(title) if tag != "task"))
        title = " ".join(_TAG.sub("", title).split())
        after = tuple(name.strip() for name in said.get("dependsOn", "").split(",") if name.strip())
        doubt = f"it repeats ({said['repeat']}): here it is done once" if said.get("repeat") else ""
        return Parts(title or text, said.get("id", ""), after, fields=_fields(said, tags), doubt=doubt)


def _fields(said: dict[str, str], tags: tuple[str, ...]) -> dict[str, Any]:
    fields: dict[str, Any] = {"tags": tags} if tags else {}
    if priority := _PRIORITIES.get(said.get("sign", "")) or _WORDS.get(said.get("priority", "").lower()):
        fields["priority"] = priority
    begins = [at_ms for name in ("start", "scheduled") if (at_ms := _moment(said.get(name, "")))]
    if begins:
        fields["not_before_ms"] = max(begins)
    if due := said.get("due"):
        fields["metadata"] = {"due": due}
    return fields


def _moment(date: str) -> int:
    try:
        return int(MOMENT.read(date)) if date else 0
    except ValueError:
        return 0
