"""A project's folder that was copied: a person says whether it becomes a project of its own."""

from __future__ import annotations

import sys

from muster.cli.context import actor
from muster.cli.output import clean
from muster.cli.values import agreed
from muster.config.identity import copied_error, look
from muster.config.project import Project
from muster.model.answers import StoreRestored
from muster.model.wording import counted


def confirm_copy(project: Project) -> None:
    """Asks where there is somebody to answer.  Raises ProjectCopied where the answer is not yes."""
    found = look(project)
    if not found.copied:
        return
    error = copied_error(project, found)
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise error
    print(f"{clean(error.message)}.", file=sys.stderr)
    if not agreed("Go on here, as a project of its own, with the tasks that are left?"):
        raise error
    from muster.app.restore import restored

    done = restored(project, actor(), adopt=True)
    print(f"Adopted  {adopted(project, done)}", file=sys.stderr)


def adopted(project: Project, done: StoreRestored) -> str:
    """What has changed by it."""
    number = counted(done.lost, "attempt")
    lost = f"; {number} of the original counted as running here, and will begin anew" if done.lost else ""
    return clean(f"{project.folder} is a project of its own{lost}")
