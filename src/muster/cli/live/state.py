"""What the live watch shows and how keys change it.  Pure: no clock, no terminal, no network.

Two rules hold whatever arrives: the chosen row stays chosen, and no row that is on the screen moves unless a key
moves it.  So a row that is shown stays where it is when its task ends or fits the filter no more, a new one comes
below all others, and the row at the top of the window is remembered by its task, not by its number.  Where a task
is gone for good, its neighbour takes its place.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from muster.cli.output import ref_of
from muster.model.json_value import Json
from muster.model.states import FINAL, TaskStatus

LOG_LINES_MAX = 2000
HELP = (
    ("j k", "choose", "choose a task, as the arrows do (g, G: the first, the last; PgUp, PgDn: a page)"),
    ("J K", "", "scroll the output"),
    ("r", "retry", "retry the task"),
    ("c", "cancel", "cancel the task"),
    ("p", "pause", "pause the task, or resume it"),
    ("f", "follow", "follow the output, or not"),
    ("/", "filter", "only tasks whose name or reason holds a text (Enter keeps it, Esc drops it)"),
    ("a", "all", "show tasks that have ended, or not"),
    ("?", "help", "this page"),
    ("q", "leave", "leave; the crew goes on"),
)
"""Keys, the word for them in the last line, and what they do."""


class Prompt(NamedTuple):
    """Something for the owner to do."""

    action: str
    task_id: int
    ref: str


class News(NamedTuple):
    """What the feed has brought."""

    tasks: Sequence[Json] | None = None
    """All tasks that may be shown; None: as before."""
    status: Json | None = None
    log: Sequence[str] = ()
    """New whole lines of the chosen attempt."""
    log_of: tuple[int, int] | None = None
    """(task id, epoch) that `log` belongs to."""
    link: str = "live"
    """Or why not."""
    told: str = ""
    """How the last request ended; empty: nothing new."""
    cut: bool = False
    """There are more tasks that wait than were asked for."""


@dataclass
class State:
    plan: str | None = None
    cut: bool = False
    tasks: dict[int, Json] = field(default_factory=dict)
    status: Json | None = None
    chosen: int | None = None
    top: int | None = None
    """The task of the first row in the window."""
    show_ended: bool = False
    filter: str = ""
    typing: bool = False
    """The filter is being typed."""
    confirm: Prompt | None = None
    help: bool = False
    message: str = ""
    link: str = "connecting"
    done: bool = False
    log: list[str] = field(default_factory=list)
    log_of: tuple[int, int] | None = None
    follow: bool = True
    log_end: int = 0
    """The line below the last one that is shown, while the output is not followed."""
    page: int = 10
    """Rows that the window has room for; the drawing tells."""
    _order: list[int] = field(default_factory=list)
    """The rows that the window scrolls over, as tasks."""
    _seen_open: set[int] = field(default_factory=set)
    _log_page: int = 1

    def show(self, news: News) -> None:
        if news.tasks is not None:
            self._take_tasks(news.tasks)
        if news.status is not None:
            self.status = news.status
        if news.told:
            self.message = news.told
        self.link, self.cut = news.link, news.cut
        if news.log_of is not None and news.log_of == self.log_of:
            self._take_log(news.log)

    def _take_tasks(self, tasks: Sequence[Json]) -> None:
        self.tasks = {task["id"]: task for task in sorted(tasks, key=lambda task: task["id"])}
        self._seen_open |= {task_id for task_id, task in self.tasks.items() if task["status"] not in FINAL}
        self._arrange([task_id for task_id in self._order if task_id in self.tasks])

    def _arrange(self, stay: Sequence[int]) -> None:
        """These rows come first, as they stand; then all others that fit."""
        before, there = self._order, set(stay)
        self._order = [*stay, *(n for n, task in self.tasks.items() if n not in there and self._fits(task))]
        shown = set(self._order)
        if not shown:
            return
        self.top = _nearest(self.top, before, shown)
        self.chosen = _nearest(self.chosen, before, shown) or _above(self.chosen, self._order)

    def _fits(self, task: Json) -> bool:
        if not (self.show_ended or task["id"] in self._seen_open or task["status"] == TaskStatus.FAILED):
            return False
        said = f"{ref_of(task)} {task['title']} {task['state']} {task['why']}"
        return self.filter.casefold() in said.casefold()

    def _take_log(self, lines: Sequence[str]) -> None:
        self.log += lines
        if (extra := len(self.log) - LOG_LINES_MAX) > 0:
            del self.log[:extra]
            self.log_end = max(0, self.log_end - extra)

    def rows(self) -> list[Json]:
        """What the window scrolls over."""
        return [self.tasks[task_id] for task_id in self._order]

    def window(self, height: int) -> list[Json]:
        """The rows on the screen; the choice is among them, and the first one stays unless it would not be."""
        self.page = max(1, height)
        rows = self.rows()
        ids = [row["id"] for row in rows]
        first = ids.index(self.top) if self.top in ids else 0
        if self.chosen in ids:
            at = ids.index(self.chosen)
            first = min(max(first, at - self.page + 1), at)
        first = max(0, min(first, len(rows) - self.page))
        self.top = ids[first] if ids else None
        return rows[first : first + self.page]

    def log_window(self, height: int) -> list[str]:
        self._log_page = max(1, height)
        end = (
            len(self.log)
            if self.follow
            else max(min(self.log_end, len(self.log)), min(height, len(self.log)))
        )
        return self.log[max(0, end - height) : end]

    def log_wanted(self) -> tuple[int, int] | None:
        """The attempt whose output belongs on the screen; another one than before begins empty.  Who reads in an
        attempt, and does not follow, is not taken to the next one."""
        task = self.tasks.get(self.chosen) if self.chosen is not None else None
        wanted = (task["id"], task["epoch"]) if task is not None and task["epoch"] else None
        if wanted is not None and self.log_of is not None and not self.follow and wanted[0] == self.log_of[0]:
            return self.log_of
        if wanted != self.log_of:
            self.log_of, self.log, self.log_end, self.follow = wanted, [], 0, True
        return wanted

    def key(self, key: str) -> Prompt | None:
        """`key` is a character, or one of up, down, pgup, pgdn, home, end, enter, esc, backspace."""
        if self.typing:
            self._type(key)
            return None
        if self.confirm is not None:
            asked, self.confirm = self.confirm, None
            self.message = "" if key == "y" else "nothing was changed"
            return asked if key == "y" else None
        if self.help:
            self.help = False
            return None
        self.message = ""
        return self._command(key)

    def _type(self, key: str) -> None:
        match key:
            case "enter":
                self.typing = False
            case "esc":
                self.typing, self.filter = False, ""
            case "backspace":
                self.filter = self.filter[:-1]
            case _ if len(key) == 1 and key.isprintable():
                self.filter += key
        self._arrange(())

    def _command(self, key: str) -> Prompt | None:
        match key:
            case "q":
                self.done = True
            case "?":
                self.help = True
            case "/":
                self.typing, self.filter = True, ""
                self._arrange(())
            case "esc":
                self.filter = ""
                self._arrange(())
            case "a":
                self.show_ended = not self.show_ended
                self._arrange(())
            case "f":
                self.follow = not self.follow
                self.log_end = len(self.log)
            case "J" | "K":
                self._scroll_log(1 if key == "J" else -1)
            case "r" | "c" | "p":
                return self._act(key)
            case _:
                self._move(key)
        return None

    def _move(self, key: str) -> None:
        ids = [row["id"] for row in self.rows()]
        if not ids:
            return
        at = ids.index(self.chosen) if self.chosen in ids else 0
        steps = {"j": 1, "down": 1, "k": -1, "up": -1, "pgdn": self.page, "pgup": -self.page}
        ends = {"g": 0, "home": 0, "G": len(ids) - 1, "end": len(ids) - 1}
        to = ends.get(key, at + steps.get(key, 0))
        self.chosen = ids[max(0, min(to, len(ids) - 1))]

    def _scroll_log(self, by: int) -> None:
        at = len(self.log) if self.follow else self.log_end
        self.log_end = max(min(self._log_page, len(self.log)), min(at + by, len(self.log)))
        self.follow = self.log_end == len(self.log)

    def _act(self, key: str) -> Prompt | None:
        """Retry and cancel are asked back; a pause can be taken back by the same key."""
        task = self.tasks.get(self.chosen) if self.chosen in self._order else None
        if task is None:
            self.message = "no task is chosen"
            return None
        halt = "resume" if "resume" in task["actions"] else "pause"
        action = {"r": "retry", "c": "cancel", "p": halt}[key]
        asked = Prompt(action, task["id"], ref_of(task))
        if key == "p":
            return asked
        self.confirm = asked
        return None


def _nearest(row: int | None, before: Sequence[int], now: Collection[int]) -> int | None:
    """A row that is there: this one, or else the next of those that stood below it, or above it."""
    if row is None or row in now:
        return row
    at = before.index(row) if row in before else len(before)
    return next((other for other in (*before[at:], *reversed(before[:at])) if other in now), None)


def _above(row: int | None, order: Sequence[int]) -> int:
    """The first row whose task is newer than this one's."""
    return next((other for other in order if row is None or other > row), order[-1])
