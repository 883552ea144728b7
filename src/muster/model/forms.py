"""What a person may be asked before an action, the same on the pages and in `muster watch`.

Whether an action is possible now is not said here: the engine tells it with each task (`actions`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from enum import IntEnum, auto
from typing import NamedTuple

from muster.model.errors import Conflict
from muster.model.json_value import Json
from muster.model.shown import used_up
from muster.model.spending import BUDGET
from muster.model.states import FINAL, HELD, TaskStatus
from muster.model.wording import counted


class FormField(NamedTuple):
    name: str
    """As the API calls it."""
    label: str
    long: bool = False
    required: bool = False
    flag: bool = False
    choices: tuple[str, ...] = ()
    """One of these."""
    rule: str = ""
    """What it takes, in words."""


class Enough(IntEnum):
    """How little is enough for an action: the more of it is lost by a slip of the hand, the more it takes."""

    KEY = auto()
    """One press, in the watch: what the same key takes back, or what does no harm."""
    DRAG = auto()
    """Of its card to another column, which another drag takes back."""
    BUTTON = auto()
    """With its name on it."""


class Action(NamedTuple):
    label: str
    fields: tuple[FormField, ...] = ()
    warns: str = ""
    """What a person is told before; empty: it is done at once."""
    as_seen: bool = True
    """It is for the task as it was looked at: where that has changed since, it is refused."""

    done: str = ""
    """What those are called with which it was done, of BULK."""
    told: str = "done"
    """What has become of it once it was accepted."""
    enough: Enough = Enough.DRAG
    """Where it warns of nothing."""
    of_many: str = ""
    """What else is said of those tasks that it warns of, where it is for many."""

    @property
    def asks(self) -> bool:
        """It has a page of its own, with its fields and a button."""
        return bool(self.warns) or any(field.required for field in self.fields)


_REASON = FormField("reason", "Why? (kept in its history)", long=True)
_NOTE = FormField("note", "A note for its agent", long=True)
TASK_ACTIONS: dict[str, Action] = {
    "answer": Action(
        "Answer",
        (
            FormField("text", "Your answer", long=True),
            FormField("allow", "Allow it", flag=True),
            FormField("always", "For all tasks of the plan", flag=True),
        ),
    ),
    "accept": Action("Accept the result", done="Accepted", enough=Enough.BUTTON),
    "resume": Action("Resume", (_NOTE,), done="Resumed", enough=Enough.KEY),
    "retry": Action("Retry", (_NOTE, FormField("fresh", "From the start", flag=True)), done="Retried"),
    "pause": Action("Pause", as_seen=False, done="Paused", enough=Enough.KEY),
    "cancel": Action(
        "Cancel", (_REASON,), "It is ended now, also where its agent is at work.", done="Cancelled"
    ),
    "complete": Action(
        "Mark as done", (FormField("summary", "What was done", long=True),), "Nobody checks it."
    ),
    "skip": Action("Skip", (_REASON,), "It is not done, and what waits for it goes on.", done="Skipped"),
    "transfer": Action("Give to another agent", (FormField("agent", "Agent", required=True),)),
    "archive": Action("Archive", (), "It is hidden for good.", done="Archived"),
}
"""Those of model.actions that people have forms for, by the same names."""
DONE_AGAIN = "It is done. Do it again?"
_SEND_BACK = Action(
    "Send back",
    (_NOTE,),
    "Its agent goes on; a note tells it why.",
    done=TASK_ACTIONS["resume"].done,
    of_many="For you to review, and sent back by this",
)


def task_action(name: str, task: Json) -> Action:
    """As it is for this task: what is called by what it does there, or asked before.  Raises KeyError."""
    found = TASK_ACTIONS[name]
    if name == "resume" and "accept" in task["actions"]:
        return _SEND_BACK
    if name == "retry" and task["status"] == TaskStatus.COMPLETED:
        return found._replace(warns=DONE_AGAIN, of_many="Already done, and done again by this")
    return found


TASK_BUTTONS = TASK_ACTIONS | {
    "send-back": _SEND_BACK,
    "approve": Action("Approve"),
    "allow": Action("Allow"),
    "deny": Action("Deny"),
}
"""What has been pressed: actions, and buttons of theirs that are called something else."""


def task_button(name: str, task: Json, fields: Mapping[str, str]) -> str:
    """The one of TASK_BUTTONS that asks for this action with such a task, in a form with these fields."""
    if name == "answer" and task["wish"]:
        return "allow" if fields.get("allow") == "true" else "deny"
    return "send-back" if task_action(name, task) is _SEND_BACK else name


def action_for_all(name: str, tasks: Iterable[Json]) -> Action:
    """As it is for all of these: it warns of what it would warn of for one of them.  Raises KeyError."""
    found = TASK_ACTIONS[name]
    some = Counter(says for task in tasks if (says := task_action(name, task).of_many))
    told = (f"{says}: {counted(number, 'task')}." for says, number in some.items())
    return found._replace(warns=" ".join(filter(None, (found.warns, *told))))


BULK = ("retry", "resume", "pause", "accept", "skip", "cancel", "archive")
"""Those that are offered for many tasks at once ..."""
BULK_MAX = 500
"""... and for how many."""
PLAN_ACTIONS = {
    "pause": Action("Pause", enough=Enough.KEY),
    "resume": Action("Resume", enough=Enough.KEY),
    "cancel": Action(
        "Cancel", (FormField("reason", "Why?", long=True),), "All of it that has not ended is ended now."
    ),
    "merge": Action("Merge", (), "Its branch is merged into the one that is named here."),
    "review": Action("Send back"),
}
"""Those of the API, and what its review does."""
RAISE_BUDGET = Action(
    "Raise its budget",
    (FormField("usd", "Dollars that it may cost in all", required=True, rule="such as 2.50"),),
)
"""Of a plan or a task, where `budget` is one of its actions."""
SEEN_EVENT = "seenEvent"
"""As the cancel of a plan calls the newest event that was seen of it."""
SEEN_MERGE = ("seenTip", "seenInto", "seenOnto")
"""Likewise its merge, of what would come and where to ..."""
SEEN_PULL = ("seenTip", "seenBase")
"""... and its pull request."""

POOL_ACTIONS = {"open": Action("Try it again", enough=Enough.KEY)}
"""Of a provider that a person has seen to."""


def body_of_form(action: Action, fields: Mapping[str, str]) -> Json:
    """What the API takes; a field that was left empty is left out."""
    body: Json = {}
    for field in action.fields:
        value = fields.get(field.name, "").strip()
        if value:
            body[field.name] = value == "true" if field.flag else value
    return body


def seen_of_merge(coming: Json) -> Json:
    """What was shown, as the merge wants to know it."""
    return dict(zip(SEEN_MERGE, (coming["tip"], coming["into"] or "", coming["onto"]), strict=True))


def tag_seen(action: str, task: Json) -> str:
    """As what whoever does this has seen the task, for `If-Match`; empty: it is meant whatever has happened.

    While an attempt holds a task its events come all the time, and who stops it means that attempt.  An edit
    tells itself what it is an edit of.
    """
    wanted = TASK_ACTIONS.get(action)
    if task["status"] not in HELD:
        return "" if wanted is not None and not wanted.as_seen else f"{task['seq']}"
    return f"{task['seq']}@{task['epoch']}" if wanted is not None and wanted.as_seen else ""


def open_tasks(plan: Json) -> int:
    """How many of its tasks a cancel ends."""
    return sum(number for status, number in plan["counts"].items() if status not in FINAL)


def possible_for_plan(plan: Json) -> list[str]:
    """What may be done with a plan now, of PLAN_ACTIONS, and `budget`."""
    found = [BUDGET if used_up(plan) else "resume" if plan["paused"] else "pause"]
    if open_tasks(plan):
        return [*found, "cancel"]
    over = found == ["pause"] and any(plan["counts"].values())
    return [] if over else found


def other_question(ref: str, question: str, status: TaskStatus) -> Conflict:
    """An answer is to the question that was read, and to no other one.  `question`: what is asked by now."""
    if question:
        now = "asks something else by now"
    elif status in FINAL:
        now = f"needs no answer any more, it is {status}"
    else:
        now = "was answered meanwhile"
    return Conflict(f"{ref} {now}; nothing was changed", "look at its page again")
