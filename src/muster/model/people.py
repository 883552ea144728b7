"""What only people decide: an agent that could would pass its own review, or allow itself what it was denied."""

from __future__ import annotations

from typing import Any

from muster.model import commands as c
from muster.model.edits import Edit
from muster.model.errors import NotAllowed

ATTEMPT = "attempt:"
"""The actor of what comes from inside an attempt begins with this, whatever its body says."""
FOR_PEOPLE: dict[type[c.Command], str] = {
    c.AnswerQuestion: "an answer",
    c.Accept: "a review",
    c.Tell: "telling an agent something",
    c.Retry: "a retry",
    c.Resume: "going on after a pause",
    c.CompleteByPerson: "completing a task by hand",
    c.Skip: "skipping a task",
    c.SetBudget: "a budget",
    c.OpenPool: "opening a provider's pool",
    c.RevokePermission: "what agents may do",
}
_GATES = frozenset({"check_command", "review", "changes"})


def refuse_attempts(command: Any) -> None:
    """Raises NotAllowed where an attempt's own processes want what is for people."""
    what = FOR_PEOPLE.get(type(command))
    if type(command) is Edit and not _GATES.isdisjoint(command.changed):
        what = "what a task has to pass"
    if what is not None and command.actor.startswith(ATTEMPT):
        raise NotAllowed(
            f"{what} is for a person, and this comes from inside {command.actor}; nothing was changed",
            "do it in a shell that no agent has started; an agent asks: muster report ask QUESTION",
        )
