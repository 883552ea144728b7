"""Words that every sentence for a person is made of."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence


def counted(number: int, what: str) -> str:
    """`1 task`, `2 tasks`."""
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


FOR_YOU = "its work is for you to review"
"""Whoever reads that decides; what can be done stands beside it, as buttons, keys or commands."""
FOR_REVIEW, SENT_BACK, ACCEPTED = "for review", "sent back", "accepted"
"""How an attempt stands whose work was to be looked at."""
OPEN_BELOW = "tasks below it are still to be done: tick those, and its box is ticked with the last of them"
"""Of a group whose box was ticked: there is nothing to accept."""
OTHERWISE = "its box in the plan's file says otherwise"
EDITED_BOX = "its box in the plan's file was edited, which is to be taken in first"
"""Of tasks that are held until that is settled."""
MAY_IT = "may it do this?"
"""How every question begins that is answered by allowing something, or not."""


STILL_AWAY = "until the server has it"
"""Stands with where the work of an attempt is, while that is another host."""
LEFT_OUT = "left out, because git ignores it: "
"""How that begins which is told among what an agent was not allowed to do: its work is without it, too."""


def in_one_line(told: object) -> str:
    """An error of several lines, for where there is one."""
    return "; ".join(line.strip() for line in str(told).splitlines() if line.strip())


def refused_words(refused: Sequence[str]) -> str:
    """`its agent was not allowed: Bash: make test, and 2 more`."""
    denied = [what for what in refused if not what.startswith(LEFT_OUT)]
    more = f", and {len(denied) - 1} more" if len(denied) > 1 else ""
    told = [f"its agent was not allowed: {denied[0]}{more}"] if denied else []
    return "; ".join([*told, *(what for what in refused if what.startswith(LEFT_OUT))])


def each_word(texts: Iterable[str]) -> list[str]:
    """Of several texts, each of which may hold some with commas between them; what holds none is one itself."""
    return [word for text in texts for word in [*filter(None, text.split(","))] or [text]]


def hint(word: str, known: Iterable[str], meant: Mapping[str, str] | None = None) -> str:
    """`did you mean 'this'?`, or nothing where nothing is like it; `meant` has what to say instead."""
    from difflib import get_close_matches  # costs each command some ms, and few need it

    close = next(iter(get_close_matches(word, list(known), n=1)), "")
    return f"did you mean {(meant[close] if meant else close)!r}?" if close else ""


def near(word: str, known: Iterable[str], meant: Mapping[str, str] | None = None) -> str:
    """The same as the end of a sentence."""
    told = hint(word, known, meant)
    return told and f"; {told}"


def same_or_new(box: str, may_be: Sequence[str]) -> str:
    """How `plan add` is told whether a box of the file is one of these tasks."""
    from shlex import quote

    same = " or ".join(f"--same {quote(f'{name}={box}')}" for name in may_be)
    which = "that task" if len(may_be) == 1 else "one of those"
    return f"{same} if it is {which}, or --new-task {quote(box)} if it is new work"


def task_name(plan: str, key: str) -> str:
    """As people know a task; those of no plan by their key alone."""
    return f"{plan}/{key}" if plan else key
