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
    return "" if found == NOTHING or job.accepted is not None else found


MISSING = (126, 127)
"""Exit codes by which a shell says that a command is not there, or cannot be executed."""


def printed(output: Path, begins: int, limit: int = 1_000_000) -> str:
    """The end of what was printed to this file since byte `begins`."""
    if not output.exists():
        return ""
    with output.open("rb") as file:
        size = file.seek(0, 2)
        file.seek(max(begins, size - limit))
        return file.read().decode(errors="replace").strip()


def check_words(command: str, why: str, stdout: Path, begins: int) -> str:
    """What is told of a check that has not passed, with the end of what it printed since byte `begins`."""
    return f"the check has not passed ({why}): {command}\n{printed(stdout, begins, TAIL_BYTES)}".strip()
