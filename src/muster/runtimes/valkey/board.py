"""What the store holds, shown under the names that watchers know.

Written anew where it has changed, and all of it where somebody else has written it or Valkey has lost it.  All
keys end by themselves soon after nobody writes them any more.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any

from muster.ports.runtime import HeldTask, Picture, WaitingTask
from muster.runtimes.valkey.keys import ValkeyKeys, session_name
from muster.runtimes.valkey.link import ValkeyLink

KEPT_S = 300
WHOLE_S = 60.0
"""So often all of it is written, changed or not: its keys would end otherwise."""
SESSION_KEPT_S = 3600
PRIORITY_MAX = 10
_AGE_MS = 10**14
"""More than any time in milliseconds: a priority weighs more than any age."""

Command = tuple[Any, ...]
Shown = dict[str, Command]
"""By key, the command that writes it."""


class Board:
    def __init__(
        self, link: ValkeyLink, keys: ValkeyKeys, server: str, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._link, self._keys, self._server = link, keys, server
        self._clock = clock
        self._times = 0
        self._shown: Shown = {}
        self._sessions: Shown = {}
        self._whole_s = -WHOLE_S

    @property
    def _mark(self) -> bytes:
        return f"{self._server}:{self._times}".encode()

    async def show(self, picture: Picture) -> None:
        wanted, sessions = dict(self._keys_of(picture)), dict(self._sessions_of(picture))
        found = await self._link.send([("GET", self._keys.shown())])
        if found is None:
            return
        late = self._clock() - self._whole_s >= WHOLE_S
        whole = late or found[0] != self._mark
        known, known_sessions = ({}, {}) if whole else (self._shown, self._sessions)
        commands: list[Command] = []
        for key in self._shown | wanted:
            if wanted.get(key) != known.get(key) or whole:
                commands.append(("DEL", key))
                if key in wanted:
                    commands += [wanted[key], ("EXPIRE", key, KEPT_S)]
        for key, command in sessions.items():
            if command != known_sessions.get(key):
                commands += [command, ("EXPIRE", key, SESSION_KEPT_S)]
        if not commands and not whole:
            return
        self._times += 1
        commands.append(("SET", self._keys.shown(), self._mark, "EX", KEPT_S))
        answers = await self._link.send(commands, at_once=True)
        if answers is None or answers[-1] is None:
            self._whole_s = -WHOLE_S  # nobody knows whether it was written
            return
        self._shown, self._sessions = wanted, sessions
        self._whole_s = self._clock() if whole else self._whole_s

    def _keys_of(self, picture: Picture) -> Iterator[tuple[str, Command]]:
        for workspace_id, waiting in picture.waiting.items():
            if waiting:
                key = self._keys.pending(workspace_id)
                yield key, ("ZADD", key, *(part for task in waiting for part in (_score(task), task.id)))
        by_agent: dict[str, list[HeldTask]] = defaultdict(list)
        active: dict[int, list[HeldTask]] = defaultdict(list)
        for held in picture.held:
            by_agent[held.worker_id].append(held)
            active[held.workspace_id].append(held)
        for agent_id, tasks in by_agent.items():
            key = self._keys.held(agent_id)
            yield key, ("HSET", key, *(part for task in tasks for part in (task.id, task.since_ms)))
        for workspace_id, tasks in active.items():
            key = self._keys.active(workspace_id)
            sessions = ((task.id, session_name(task.session_key or "")) for task in tasks)
            yield key, ("SADD", key, *(f"{task_id}:{name}" for task_id, name in sessions))
        yield from self._crew_of(picture, by_agent)

    def _crew_of(
        self, picture: Picture, by_agent: dict[str, list[HeldTask]]
    ) -> Iterator[tuple[str, Command]]:
        for one in picture.crew:
            key, held = self._keys.status(one.id), by_agent.get(one.id)
            task = held[0].id if held else ""
            fields = ("status", one.status, "current_task", task, "last_heartbeat", one.heard_at_ms)
            yield key, ("HSET", key, *fields)
        stale = [one for one in picture.crew if one.stale]
        if stale:
            key = self._keys.stale()
            yield key, ("ZADD", key, *(part for one in stale for part in (one.heard_at_ms, one.id)))

    def _sessions_of(self, picture: Picture) -> Iterator[tuple[str, Command]]:
        """Whose they are, and nothing of what was said in them."""
        for held in picture.held:
            if held.session_key:
                key = self._keys.session(held.session_key)
                whose = ("workspace_id", held.workspace_id, "agent_id", held.worker_id, "task_id", held.id)
                yield key, ("HSET", key, *whose, "started_at", held.since_ms)


def _score(task: WaitingTask) -> int:
    """Lowest first.  Exact as a double."""
    return (PRIORITY_MAX - task.priority) * _AGE_MS + task.created_at_ms
