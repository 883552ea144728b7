"""What work has to pass before its task is done: a command that is run on the merged tree."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from muster.model.answers import ClaimedJob

NOTHING = "none"
"""Said of a task: whatever its agent or the project asks for, this one needs none."""
TAIL_BYTES = 6000
"""So much of what a check has printed goes back to the agent; the rest stands in the attempt's log."""


def said_or(said: str, by_agent: Mapping[str, str], job: ClaimedJob) -> str:
    """What the task says of its check or its review, else its agent; empty: there is to be none."""
    found = said or by_agent.get(job.agent, "")
    return "" if found == NOTHING or job.accepted else found


def check_words(command: str, why: str, stdout: Path, begins: int) -> str:
    """What is told of a check that has not passed, with the end of what it printed since byte `begins`."""
    with stdout.open("rb") as file:
        file.seek(0, 2)
        size = file.tell()
        file.seek(max(begins, size - TAIL_BYTES))
        printed = file.read().decode(errors="replace").strip()
    return f"the check has not passed ({why}): {command}\n{printed}".strip()
