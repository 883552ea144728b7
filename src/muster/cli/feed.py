"""The events of a crew as they happen, beside whatever else a command does."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import closing
from typing import Any

from muster.cli.attention import Attention, matters_of
from muster.cli.output import Screen, clean, columns, drop_unwritten, fit, inert, plan_counts, print_json
from muster.cli.terminal import beneath
from muster.client.api import Api
from muster.client.http import Connection
from muster.config.project import Project
from muster.hosts.full_disk import full_disk
from muster.model.errors import MusterError, Unavailable
from muster.model.states import TaskStatus

FOOTER_TASKS = 5
_NEEDY = frozenset({TaskStatus.PAUSED.value, TaskStatus.FAILED.value})


class Feed:
    """Follows the events in a thread of its own, through restarts of the owner."""

    def __init__(
        self,
        project: Project,
        after: int,
        show: EventPrinter,
        plan: str | None = None,
    ) -> None:
        """Its footer is told how far things are, those of `plan` where one is named."""
        self._project = project
        self._after = after
        self._show = show
        self._plan = plan
        self._connection = Connection(project.socket)
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="feed", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Shows what is still to be had, then ends."""
        self._closing.set()
        self._connection.hang_up()  # no event may come for as long as it waits
        self._thread.join(timeout=5.0)

    def _follow(self) -> None:
        told, looks = "", True
        with closing(Api(self._connection)) as api:
            while True:
                last = self._closing.is_set()
                full = full_disk(self._project.state_dir)
                if full != told:
                    told = full
                    self._show.say(full and f"{full}; until then nothing is written")
                try:
                    if self._show.footer is not None:
                        self._show.footer("" if last else _progress(api, self._plan))
                    page = api.get("/api/v1/events", {"after": self._after, "wait": 0 if last else 1})
                except Unavailable:
                    if last:
                        self._show.attend(None)
                        return
                    self._closing.wait(0.2)
                    continue
                except MusterError as error:
                    fix = f" ({error.hint})" if error.hint else ""
                    self._show.say(f"no more events are shown: {error.message}{fix}")
                    return
                for event in page:
                    self._after = event["id"]
                    self._show.event(event)
                if self._show.attention is not None and (looks or _asks(page)):
                    looks = False
                    self._show.attend(matters_of(api.get("/api/v1/inbox")))
                if last and not page:
                    self._show.attend(None)
                    return


def _asks(page: list[dict[str, Any]]) -> bool:
    """Whether something waits for a person since then, or does no more."""
    return any(not _NEEDY.isdisjoint((event["newStatus"], event["previousStatus"])) for event in page)


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


QUIET_EVENTS = frozenset(
    {"enqueued", "unblocked", "promoted", "claimed", "checkpoint", "declared", "publishing"}
)
"""Steps that nobody waits for; `muster task show` and `muster watch` have them all."""


class EventPrinter:
    """With `as_json`: events as JSON lines on stdout, remarks on stderr.  May be used by several threads."""

    def __init__(
        self,
        *,
        as_json: bool,
        colour: str,
        remark: Callable[[str], object] | None = None,
        attention: Attention | None = None,
    ) -> None:
        """`remark` takes them instead; `attention` is of a terminal alone."""
        self.as_json = as_json
        self._remark = remark
        self._screen = Screen(colour)
        self._lock = threading.Lock()
        self._mute = False
        self._footer = ""
        self._attention = attention
        self._live = self._screen.tty and not as_json and os.environ.get("TERM", "dumb") != "dumb"

    @property
    def attended(self) -> bool:
        """Somebody sits there who can be asked."""
        return self._screen.tty and not self.as_json and sys.stdin is not None and sys.stdin.isatty()

    @property
    def footer(self) -> Callable[[str], None] | None:
        """Shows one line below all others that is written over; None where that cannot be shown."""
        return self._set_footer if self._live else None

    @property
    def attention(self) -> Attention | None:
        return self._attention if self._live else None

    def attend(self, waiting: frozenset[object] | None) -> None:
        """These wait for a person; None: nobody looks any more."""
        if self.attention is None:
            return
        sequence = self.attention.over() if waiting is None else self.attention.told(waiting)
        if sequence:
            self._show(lambda: print(sequence, end="", file=beneath(sys.stdout)))

    def _set_footer(self, text: str) -> None:
        if text != self._footer:
            self._footer = text
            self._show(lambda: None)

    def event(self, event: Mapping[str, Any]) -> None:
        if self.as_json:
            self._show(lambda: print_json({"type": "event", **event}, lines=True))
        elif event["event"] not in QUIET_EVENTS:
            self._show(lambda: self._screen.line(self._screen.event(event)))

    def result(self, told: Mapping[str, Any]) -> None:
        if self.as_json:
            self._show(lambda: print_json({"type": "result", **told}, lines=True))

    def say(self, text: str) -> None:
        """Nothing where there is nothing to say."""
        if text and self._remark is not None:
            self._remark(inert(text))
        elif text:
            self._show(lambda: print(inert(text), file=sys.stderr if self.as_json else sys.stdout))

    def _show(self, show: Callable[[], None]) -> None:
        """A terminal that was closed, or `| head`, must not cost the crew its supervisor."""
        with self._lock:
            if self._mute:
                return
            try:
                if self._live:
                    beneath(sys.stdout).write("\r\x1b[K")
                show()
                if self._live and self._footer:
                    sys.stdout.write(fit(self._footer, columns() - 1).rstrip())
                (sys.stderr if self.as_json else sys.stdout).flush()
                sys.stdout.flush()
            except OSError:
                self._mute = True
                drop_unwritten()
