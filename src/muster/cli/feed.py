"""The events of a crew as they happen, beside whatever else a command does."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from muster.cli.output import Screen, clean, plan_counts
from muster.client.api import Api
from muster.client.http import Connection
from muster.config.project import Project
from muster.model.errors import MusterError

FOOTER_TASKS = 5


class Feed:
    """Follows the events in a thread of its own, through restarts of the owner."""

    def __init__(
        self,
        project: Project,
        after: int,
        show: Callable[[dict[str, Any]], None],
        footer: Callable[[str], None] | None = None,
        plan: str | None = None,
    ) -> None:
        """`footer` is told how far things are, those of `plan` where one is named."""
        self._project = project
        self._after = after
        self._show = show
        self._footer = footer
        self._plan = plan
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="feed", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Shows what is still to be had, then ends."""
        self._closing.set()
        self._thread.join(timeout=5.0)

    def _follow(self) -> None:
        api = Api(Connection(self._project.socket))
        while True:
            last = self._closing.is_set()
            try:
                if self._footer is not None:
                    self._footer("" if last else _progress(api, self._plan))
                page = api.get("/api/v1/events", {"after": self._after, "wait": 0 if last else 1})
            except MusterError:
                if last:
                    return
                self._closing.wait(0.2)
                continue
            for event in page:
                self._after = event["id"]
                self._show(event)
            if last and not page:
                return


def _progress(api: Api, plan: str | None) -> str:
    """`✓ 3 completed  ● 2 running   api 40% pytest, docs`."""
    counts = plan_counts(api.get("/api/v1/status")["status"]["plans"], plan)
    query = {"plan": plan, "status": "running", "limit": FOOTER_TASKS}
    tasks = [
        clean(f"{task['key']} {task['percent']}% {task['step']}" if task["percent"] else task["key"]).rstrip()
        for task in api.get("/api/v1/agent-tasks", query)
    ]
    return f"{Screen('never').counts(counts)}   {', '.join(tasks)}".rstrip()


def running(api: Api) -> list[str]:
    """References of everything that an agent holds now."""
    workers = api.get("/api/v1/workers")
    return [reference for worker in workers for reference in worker["holds"]]
