"""What the live watch shows and how keys change it.  Pure: no clock, no terminal, no network.

Two rules hold whatever arrives: the chosen row stays chosen, and no row that is on the screen moves unless a key
moves it.  So a row that is shown stays where it is when its task ends or fits the filter no more, a new one comes
below all others, and the row at the top of the window is remembered by its task, not by its number.  Where a task
is gone for good, its neighbour takes its place.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field

from muster.cli.live.dialog import (
    COMING,
    NOTHING,
    Dialog,
    InputLine,
    Prompt,
    Unsent,
    at_once,
    dialog_of,
    dialog_of_all,
    label_of,
)
from muster.cli.live.news import News
from muster.cli.live.output_window import OutputWindow
from muster.cli.live.review import Review, ReviewedWork
from muster.cli.live.review_dialogs import COMMENT, LEAVE, commenting, leaving, merging, sending_back
from muster.cli.live.reviews import Reviews
from muster.cli.live.rows import RowId, above, nearest, need_rows, path_to, plan_rows, rank, row_id, stepped
from muster.cli.output import ref_of
from muster.model.access import RIGHTS, Right, Role
from muster.model.forms import tag_seen
from muster.model.json_value import Json
from muster.model.keys import BY_KEY, KEYS, KeyBinding
from muster.model.reviews import REMARKS_MAX
from muster.model.states import FINAL, TaskStatus
from muster.web.rights import right_for

OVERVIEW, TASKS, PLANS, INBOX, DEAD = "overview", "tasks", "plans", "inbox", "dead letter"
_REVIEW_KEYS = frozenset({"j", "k", "J", "K", "n", "N", "G", "g g"})
_REVIEW_KEYS |= {"up", "down", "pgup", "pgdn", "home", "end"}
_VIEWS = {"g o": OVERVIEW, "g t": TASKS, "g p": PLANS, "g i": INBOX, "g d": DEAD}
LIST_KEYS = [key for key in KEYS if key.terminal and key.key not in ("esc", "?")]


@dataclass
class State:
    plan: str | None = None
    cut: bool = False
    tasks: dict[int, Json] = field(default_factory=dict)
    needs: Json | None = None
    status: Json | None = None
    detail: Json | None = None
    rights: frozenset[Right] = RIGHTS[Role.OWNER]
    view: str = OVERVIEW
    of_plan: str = ""
    """Only tasks of this plan, whose row was opened."""
    chosen: RowId | None = None
    top: RowId | None = None
    """The task of the first row in the window."""
    open: bool = False
    """The page of the chosen task is shown."""
    attempt: int | None = None
    """The one whose output is shown; None: the newest."""
    show_ended: bool = False
    filter: str = ""
    typing: InputLine | None = None
    """The filter, while it is typed."""
    dialog: Dialog | None = None
    reviewing: tuple[int, int] | None = None
    """(task id, epoch) whose work is looked at."""
    startled: bool = False
    """Somebody writes where nothing is written: what comes next was not meant as keys."""
    help: int | None = None
    """The key that is chosen in the list of all keys; None: that is not shown."""
    message: str = ""
    link: str = "connecting"
    heard_ms: int = 0
    """When the owner was heard last."""
    done: bool = False
    output: OutputWindow = field(default_factory=OutputWindow)
    page: int = 10
    """Rows that the window has room for; the drawing tells."""
    _begun: str = ""
    """The first of two keys."""
    _others: dict[RowId, Json] = field(default_factory=dict)
    """Rows that are no tasks, by their names."""
    _order: list[RowId] = field(default_factory=list)
    """The rows that the window scrolls over."""
    _seen_open: set[int] = field(default_factory=set)
    _unsent: Unsent = field(default_factory=Unsent)
    _reviews: Reviews = field(default_factory=Reviews)

    def show(self, news: News, now_ms: int = 0) -> None:
        self.heard_ms = now_ms
        if news.status is not None:
            self.status = news.status
        if news.needs is not None:
            self.needs = news.needs
        if news.rights is not None:
            self.rights = news.rights
        if news.detail is not None:
            self.detail = news.detail
        if news.tasks is not None or news.needs is not None or self.view == PLANS:
            self._take_rows(self.tasks.values() if news.tasks is None else news.tasks)
        if news.work is not None or news.no_work:
            self._take_work(news.work, news.no_work)
        if news.told:
            self.message = news.told
        self._unsent.keep(news.undone)
        self._reviews.take_back(news.undone)
        if news.coming is not None:
            self._ask_merge(news.coming, news.told)
        if news.again is not None and news.status is not None:
            self._ask_again(news.again, news.told)
        self.link, self.cut = news.link, news.cut
        if news.log_of is not None and news.log_of == self.output.of:
            self.output.take(news.log)

    def _take_rows(self, tasks: Collection[Json]) -> None:
        self.tasks = {task["id"]: task for task in sorted(tasks, key=lambda task: task["id"])}
        for task in self.needs["tasks"] if self.needs else ():
            self.tasks.setdefault(task["id"], task)
        self._seen_open |= {task_id for task_id, task in self.tasks.items() if task["status"] not in FINAL}
        rows = need_rows(self.needs) if self.needs else []
        rows += plan_rows(self._plans(), self.status["status"]["lastEventId"] if self.status else 0)
        self._others = {row_id(row): row for row in rows}
        self._arrange([one for one in self._order if self.row(one) is not None])

    def _take_work(self, work: ReviewedWork | None, problem: str) -> None:
        if problem:
            self.reviewing, self.message = None, problem
        elif work is not None and work.of == self.reviewing:
            self.message = self._reviews.take(work, self.tasks.get(work.of[0]))

    @property
    def review_shown(self) -> Review | None:
        """Of the task that is chosen, and no other one."""
        wanted = self.reviewing
        return self._reviews.of(wanted) if wanted is not None and wanted[0] == self.chosen else None

    def _ask_merge(self, coming: Json, refused: str) -> None:
        """Unless its reader has gone on to something else."""
        row = self.chosen_row if self.chosen == f"plan {coming['plan']}" else None
        if self.dialog is None and row is not None:
            asked = merging(coming, row, refused)
            self.message, self.dialog = (
                (asked, None) if isinstance(asked, str) else ("", self._reviews.warned(asked))
            )

    def _ask_again(self, refused: Prompt, why: str) -> None:
        """In the same way."""
        row = self.chosen_row if self.chosen == row_id(refused.row) else None
        if self.dialog is None and row is not None and refused.action in row["actions"]:
            self.dialog = self._unsent.again(dialog_of(refused.action, row, refused=why))

    def _plans(self) -> list[Json]:
        plans: list[Json] = self.status["status"]["plans"] if self.status else []
        return [plan for plan in plans if self.plan in (None, plan["name"])]

    def row(self, one: RowId | None) -> Json | None:
        if isinstance(one, int):
            return self.tasks.get(one)
        return self._others.get(one) if one is not None else None

    def _arrange(self, stay: Sequence[RowId]) -> None:
        """These rows come first, as they stand; then all others that fit."""
        before, there = self._order, set(stay)
        self._order = [*stay, *(one for one in self._candidates() if one not in there)]
        shown = set(self._order)
        if not shown:
            return
        self.top = nearest(self.top, before, shown)
        self.chosen = nearest(self.chosen, before, shown) or above(self.chosen, self._order)

    def _candidates(self) -> Iterator[RowId]:
        """The rows of this view, in its order."""
        fitting = (number for number, task in self.tasks.items() if self._fits(task))
        needed = [one for one, row in self._others.items() if row["kind"] != "plan" and self._holds(row)]
        match self.view:
            case "overview":
                yield from needed
                yield from sorted(fitting, key=lambda number: rank(self.tasks[number]))
            case "inbox":
                yield from needed
                found = self.needs["tasks"] if self.needs else ()
                yield from (task["id"] for task in found if self._holds(task))
            case "plans":
                yield from (
                    one for one, row in self._others.items() if row["kind"] == "plan" and self._holds(row)
                )
            case _:
                yield from fitting

    def _fits(self, task: Json) -> bool:
        if self.of_plan and task["plan"] != self.of_plan:
            return False
        failed = task["status"] == TaskStatus.FAILED
        if self.view == DEAD:
            return failed and self._holds(task)
        return (self.show_ended or failed or task["id"] in self._seen_open) and self._holds(task)

    def _holds(self, row: Json) -> bool:
        """What the filter asks for."""
        said = f"{ref_of(row)} {row['title']} {row['state']} {row['why']}"
        return self.filter.casefold() in said.casefold()

    def rows(self) -> list[Json]:
        """What the window scrolls over."""
        return [row for one in self._order if (row := self.row(one)) is not None]

    def window(self, height: int) -> list[Json]:
        """The rows on the screen; the choice is among them, and the first one stays unless it would not be."""
        self.page = max(1, height)
        ids = self._order
        first = ids.index(self.top) if self.top in ids else 0
        if self.chosen in ids:
            at = ids.index(self.chosen)
            first = min(max(first, at - self.page + 1), at)
        first = max(0, min(first, len(ids) - self.page))
        self.top = ids[first] if ids else None
        return [row for one in ids[first : first + self.page] if (row := self.row(one)) is not None]

    @property
    def chosen_row(self) -> Json | None:
        return self.row(self.chosen) if self.chosen in self._order else None

    def log_wanted(self) -> tuple[int, int] | None:
        """The attempt whose output belongs on the screen; another one than before begins empty.  Who reads in an
        attempt, and does not follow, is not taken to the next one."""
        task, shown = self.chosen_row, self.output.of
        wanted = (task["id"], self.attempt or task["epoch"]) if task is not None and task["epoch"] else None
        stays = wanted is not None and shown is not None and wanted[0] == shown[0] and self.attempt is None
        if stays and not self.output.follow:
            return shown
        if wanted != shown:
            self.output.begin(wanted)
        return wanted

    def detail_wanted(self) -> int | None:
        return self.chosen if self.open and isinstance(self.chosen, int) else None

    @property
    def detail_shown(self) -> Json | None:
        """Of the task that is chosen, and no other one."""
        return self.detail if self.detail is not None and self.detail["task"]["id"] == self.chosen else None

    # Keys

    def key(self, key: str) -> Prompt | None:
        """`key` is a character, or one of up, down, left, right, pgup, pgdn, home, end, enter, esc, tab, backtab,
        backspace, delete, ctrl-u, ctrl-w; or what was pasted, after `paste:`."""
        if key.startswith("paste:"):
            self._paste(key.removeprefix("paste:"))
            return None
        if self.dialog is not None:
            return self._answer(self.dialog.key(key), key)
        if self.typing is not None:
            self._type(self.typing, key)
            return None
        if self.help is not None:
            return self._choose_key(key, self.help)
        self.message = ""
        asked = f"{self._begun} {key}" if self._begun else key
        self._begun = key if not self._begun and any(one.startswith(f"{key} ") for one in BY_KEY) else ""
        return None if self._begun else self._command(asked)

    def _paste(self, text: str) -> None:
        text = " ".join(text.split())
        if self.dialog is not None:
            self.dialog.paste(text)
        elif self.typing is not None:
            self.typing.write(text)
            self._refilter()

    def _answer(self, said: Prompt | str | None, key: str) -> Prompt | None:
        if said is None:
            return None
        self.dialog = None
        if isinstance(said, str):
            self.message, self.startled = said, key not in ("esc", "n")
            return None
        if said.action == COMMENT:
            if (review := self.review_shown) is not None:
                review.comment(str(said.body.get("text", "")))
            return None
        if said.action == LEAVE:
            self.done = True
            return None
        if said.work is not None:
            self.reviewing = None
        self._reviews.send(said)
        self._unsent.sent(said)
        return said

    def _type(self, line: InputLine, key: str) -> None:
        if key == "esc":
            line.text = ""
        if key in ("enter", "esc"):
            self.typing = None
        line.key(key)
        self.filter = line.text
        self._arrange(())

    def _refilter(self) -> None:
        self.filter = self.typing.text if self.typing is not None else ""
        self._arrange(())

    def _choose_key(self, key: str, at: int) -> Prompt | None:
        steps = {"j": 1, "down": 1, "k": -1, "up": -1, "pgdn": 10, "pgup": -10}
        if key in steps:
            self.help = max(0, min(at + steps[key], len(LIST_KEYS) - 1))
            return None
        self.help = None
        if key in ("esc", "?", "q"):
            return None
        if key == "enter":
            return self._command(LIST_KEYS[at].key)
        return self.key(key)

    def _command(self, key: str) -> Prompt | None:
        found = BY_KEY.get(key)
        if found is not None and found.actions:
            return self._act(found)
        if (review := self.review_shown) is not None and self._in_review(review, key):
            return None
        if key in _VIEWS:
            self._look(_VIEWS[key])
            return None
        does: dict[str, Callable[[], None]] = {
            "q": self._leave,
            "?": self._list_keys,
            "/": self._begin_filter,
            "esc": self._back,
            "enter": self._enter,
            "v": self._begin_review,
            "a": self._toggle_ended,
            "f": self.output.toggle,
            "J": lambda: self.output.scroll(1),
            "K": lambda: self.output.scroll(-1),
            "[": lambda: self._step_attempt(-1),
            "]": lambda: self._step_attempt(1),
        }
        does.get(key, lambda: self._move(key))()
        return None

    def _in_review(self, review: Review, key: str) -> bool:
        """Whether the key means something there."""
        if key == "esc":
            self.reviewing = None
        elif key == "enter":
            self._comment(review)
        elif key in _REVIEW_KEYS:
            review.move(key)
        else:
            return False
        return True

    def _comment(self, review: Review) -> None:
        row, place = self.chosen_row, review.here
        if place is None or row is None:
            self.message = "a comment stands on a line"
        elif len(review.remarks) >= REMARKS_MAX and place not in review.remarks:
            self.message = f"{REMARKS_MAX} comments are one note: b sends them back"
        else:
            self.dialog = commenting(review, place, row)

    def _begin_review(self) -> None:
        wanted = self.log_wanted()
        if wanted is None:
            self.message = "it has not run yet"
            return
        self.reviewing, self.message = wanted, "what it has changed is asked for"
        if self.review_shown is not None:
            self.message = ""

    def _leave(self) -> None:
        unsent = self._reviews.told()
        self.dialog = leaving(unsent) if unsent else None
        self.done = self.dialog is None

    def _list_keys(self) -> None:
        self.help = 0

    def _begin_filter(self) -> None:
        self.typing = InputLine()
        self._refilter()

    def _toggle_ended(self) -> None:
        self.show_ended = not self.show_ended
        self._arrange(())

    def _back(self) -> None:
        """From a page to its list, from that to all of it."""
        if self.open:
            self.open = False
            return
        self.filter = self.of_plan = ""
        self._arrange(())

    def _look(self, view: str) -> None:
        self.view, self.open, self.of_plan, self.filter = view, False, "", ""
        self.top = self.chosen = self.attempt = self.reviewing = None
        self._arrange(())
        self.chosen = self._order[0] if self._order else None

    def _enter(self) -> None:
        row = self.chosen_row
        if row is None:
            return
        if row.get("kind") in ("plan", "budget", "file"):
            self._look(TASKS)
            self.of_plan = row["key"]
            self._arrange(())
            self.chosen = self._order[0] if self._order else None
        elif "kind" not in row:
            self.open = True

    def _step_attempt(self, by: int) -> None:
        detail = self.detail_shown
        row = self.chosen_row
        if row is None or not row["epoch"]:
            return
        epochs = [one["epoch"] for one in detail["attempts"]] if detail else [row["epoch"]]
        at = self.attempt or row["epoch"]
        place = epochs.index(at) if at in epochs else len(epochs) - 1
        epoch = epochs[max(0, min(place + by, len(epochs) - 1))]
        self.attempt = None if epoch == epochs[-1] else epoch
        self.output.follow = True

    def _move(self, key: str) -> None:
        chosen = stepped(key, self._order, self.chosen, self.page)
        if chosen != self.chosen:
            self.chosen, self.attempt = chosen, None

    # What may be done

    def possible(self, key: KeyBinding, row: Json | None) -> str:
        """The action that the key stands for now; empty: none."""
        if row is None:
            return ""
        found = (one for one in key.actions if one in row["actions"] and self._may(row, one))
        return "" if key.many else next(found, "")

    def _may(self, row: Json, action: str) -> bool:
        return right_for("POST", path_to(row, action).split("/")) in self.rights

    def _act(self, key: KeyBinding) -> Prompt | None:
        """What can be taken back by the same key is done at once; all else is asked back."""
        if key.many:
            self._act_on_all(key.actions[0])
            return None
        row = self.chosen_row
        if row is None:
            self.message = "no task is chosen"
            return None
        action = self.possible(key, row)
        if not action:
            self.message = self._why_not(key, row)
            return None
        if action == "merge":
            self.message = "what it would bring is asked for"
            return Prompt(COMING, row)
        tag = "" if "kind" in row else tag_seen(action, row)
        shown = self.review_shown or self._reviews.of((row["id"], row["epoch"]))
        if action == "accept" and shown is not None and shown.work.of[1] != row["epoch"]:
            self.message = f"attempt {row['epoch']} is newer than what you look at; {NOTHING}"
        elif action == "accept" and (refused := self._reviews.refused_accept([row])):
            self.message = refused
        elif key.key == "b":
            self.dialog = sending_back(action, row, tag, shown)
        elif at_once(action, row) and not (action == "resume" and self._reviews.told([row])):
            return Prompt(action, row, tag=tag, label=label_of(action, row))
        else:
            self.dialog = self._reviews.warned(self._unsent.again(dialog_of(action, row, tag)))
        return None

    def _act_on_all(self, action: str) -> None:
        rows = [row for row in self.rows() if "kind" not in row and action in row["actions"]]
        if rows and not self._may(rows[0], action):
            self.message = f"{action}: this is not yours to do here; {NOTHING}"
        elif not rows:
            self.message = f"{action}: possible with none that is listed"
        elif action == "accept" and (refused := self._reviews.refused_accept(rows)):
            self.message = refused
        else:
            self.dialog = self._reviews.warned(dialog_of_all(action, rows))

    def _why_not(self, key: KeyBinding, row: Json) -> str:
        """In the words of the pages."""
        wanted = key.short or key.actions[0]
        if any(one in row["actions"] for one in key.actions):
            return f"{wanted}: this is not yours to do here; {NOTHING}"
        keys = [f"{one.key} {one.short or one.actions[0]}" for one in KEYS if self.possible(one, row)]
        return f"{wanted} is not possible now; what is: {', '.join(keys) or 'nothing'}"
