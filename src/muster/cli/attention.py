"""The title and the bell of a person's terminal: how much waits for them."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from muster.cli.output import clean
from muster.config.channels import NotifySettings

_KEEP, _PUT_BACK = "\x1b[22;2t", "\x1b[23;2t"
"""The title that was there before, for terminals that keep one."""


def matters_of(inbox: dict[str, Any]) -> frozenset[object]:
    """Each thing that waits, of an inbox or of all that was gathered; a task that asks again is another one."""
    tasks = {(task["id"], task["epoch"], task["status"]) for task in inbox["tasks"]}
    others = {("webhook", one["id"]) for one in inbox["webhooks"]} | set(inbox.get("channels", {}))
    others |= {("pool", name) for name in inbox.get("pools", ())}
    others |= {("budget", plan["name"]) for plan in inbox.get("plans", ())}
    return frozenset(tasks | others | {("file", file["plan"]) for file in inbox["files"]})


class Attention:
    """Sequences for a terminal.  No text of a task is ever in them."""

    def __init__(self, name: str, settings: NotifySettings) -> None:
        """`name` is that of the project's folder."""
        self._name, self._settings = clean(name), settings
        self._known: frozenset[object] | None = None

    def told(self, waiting: Collection[object]) -> str:
        """Where these wait; empty where nothing has changed.  What waited before rings nobody up."""
        found = frozenset(waiting)
        if found == self._known:
            return ""
        begins, new = self._known is None, found - (found if self._known is None else self._known)
        self._known = found
        bell = "\a" if new and self._settings.bell else ""
        if not self._settings.title:
            return bell
        number = f"({len(found)}) " if found else ""
        return f"{_KEEP if begins else ''}\x1b]2;{number}muster {self._name}\x1b\\{bell}"

    def over(self) -> str:
        """Nobody looks any more; who comes again is told as at the beginning."""
        begun, self._known = self._known is not None, None
        return _PUT_BACK if self._settings.title and begun else ""
