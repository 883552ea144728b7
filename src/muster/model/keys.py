"""The keys of `muster watch` and of the pages: one list, so that no key means two things.

A key does what a button or a link of the page does that it is pressed on, and in a terminal the same to the row
that is chosen.  What is possible with a task is told by its `actions`, never by a key.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple


class KeyBinding(NamedTuple):
    key: str
    """One, or two with a blank between them, pressed one after the other."""
    says: str
    page: tuple[str, str] | None = None
    """What the script of the pages does, and where; None: the key is of a terminal alone."""
    short: str = ""
    """Its word in the last line of a terminal; empty: it stands only in the list of all keys."""
    actions: tuple[str, ...] = ()
    """Of `forms.TASK_ACTIONS` or `forms.PLAN_ACTIONS`: it does the first one that is possible."""
    terminal: bool = True
    """False: it is about what only pages have."""
    many: bool = False
    """It is done with all that are listed."""


def _form(*names: str) -> tuple[str, str]:
    """Presses what does one of these: a button that does it at once, or a link to the page that asks first."""
    found = [f'[data-actions] [action$="/{name}"] button' for name in names]
    found += [f'[data-actions] a[href$="/{name}"]' for name in names]
    return "press", ", ".join(found)


def _all(name: str) -> tuple[str, str]:
    """Presses the link to the page that names them."""
    return "press", f'[data-live="bulk"] a[href^="/bulk/{name}"]'


KEYS = (
    KeyBinding("j", "the next row", ("move", "1")),
    KeyBinding("k", "the row before", ("move", "-1")),
    KeyBinding("g g", "the first row", ("move", "-9999")),
    KeyBinding("G", "the last row", ("move", "9999")),
    KeyBinding("enter", "open the row", short="open"),
    KeyBinding("esc", "back, or drop the filter"),
    KeyBinding(
        "w", "answer what it has asked", ("focus", ".answer textarea, .answer button"), "answer", ("answer",)
    ),
    KeyBinding(
        "y",
        "accept its result",
        ("focus", '[data-actions] :is([action$="/accept"] button, [value="accept"])'),
        "accept",
        ("accept",),
    ),
    KeyBinding(
        "b", "send it back with a note", ("focus", '[name="words"]'), "send back", ("resume", "retry")
    ),
    KeyBinding("n", "the next file of what is looked at"),
    KeyBinding("N", "the file before"),
    KeyBinding("v", "look at what it has changed", ("press", '[data-actions] a[href$="/review"]'), "review"),
    KeyBinding("r", "retry it, or a provider", _form("retry"), "retry", ("retry", "open")),
    KeyBinding("c", "cancel it (asks first)", _form("cancel"), "cancel", ("cancel",)),
    KeyBinding("p", "pause it, or resume it", _form("pause", "resume"), "pause", ("resume", "pause")),
    KeyBinding("s", "skip it (asks first)", _form("skip"), "", ("skip",)),
    KeyBinding("d", "mark it as done (asks first)", _form("complete"), "", ("complete",)),
    KeyBinding("t", "give it to another agent", _form("transfer"), "", ("transfer",)),
    KeyBinding("A", "archive it (asks first)", _form("archive"), "", ("archive",)),
    KeyBinding("M", "merge the branch of a plan (asks first)", _form("merge"), "merge", ("merge",)),
    KeyBinding("* r", "retry all that are listed (asks first)", _all("retry"), "", ("retry",), many=True),
    KeyBinding("* p", "pause all that are listed (asks first)", _all("pause"), "", ("pause",), many=True),
    KeyBinding("* u", "resume all that are listed (asks first)", _all("resume"), "", ("resume",), many=True),
    KeyBinding("* y", "accept all that are listed (asks first)", _all("accept"), "", ("accept",), many=True),
    KeyBinding("* s", "skip all that are listed (asks first)", _all("skip"), "", ("skip",), many=True),
    KeyBinding("* c", "cancel all that are listed (asks first)", _all("cancel"), "", ("cancel",), many=True),
    KeyBinding(
        "* A", "archive all that are listed (asks first)", _all("archive"), "", ("archive",), many=True
    ),
    KeyBinding("J", "scroll what an agent says down", ("scroll", "1")),
    KeyBinding("K", "scroll it up", ("scroll", "-1")),
    KeyBinding("f", "follow what it says, or stop that", ("press", "[data-follow]")),
    KeyBinding("m", "show the moves of this card, or of the first one", ("moves", ""), terminal=False),
    KeyBinding("[", "the attempt before"),
    KeyBinding("]", "the next attempt"),
    KeyBinding("a", "show tasks that have ended, or not", ("press", "[data-all]"), "all"),
    KeyBinding("/", "filter", ("focus", ".filter input, .filter select"), "filter"),
    KeyBinding("g o", "overview", ("open", "/")),
    KeyBinding("g t", "tasks", ("open", "/tasks")),
    KeyBinding("g p", "plans", ("open", "/plans")),
    KeyBinding("g i", "inbox", ("open", "/inbox")),
    KeyBinding("g d", "dead letter", ("open", "/tasks?status=failed")),
    KeyBinding("?", "these keys", ("help", ""), "keys"),
    KeyBinding("q", "leave; the crew goes on", short="leave"),
)
BY_KEY: Mapping[str, KeyBinding] = {key.key: key for key in KEYS}


def of_pages() -> list[dict[str, Any]]:
    """For the script of the pages."""
    return [
        {"key": key.key, "says": key.says, "does": key.page[0], "to": key.page[1]}
        for key in KEYS
        if key.page is not None
    ]
