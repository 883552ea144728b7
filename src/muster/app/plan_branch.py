"""Why the branch of a plan is not there."""

from __future__ import annotations

from subprocess import CompletedProcess
from typing import Any, Protocol

from muster.model.errors import NotFound
from muster.model.refs import plan_branch, published_ref


class _Git(Protocol):
    def commit_of(self, name: str) -> str | None: ...

    def ask(self, *words: str) -> CompletedProcess[Any]: ...


def no_branch(git: _Git, plan: str) -> NotFound:
    """What it had stays known after somebody has deleted it."""
    branch, had = plan_branch(plan), git.commit_of(published_ref(plan))
    if not had:
        return NotFound(
            f"there is no branch {branch}: no task of plan {plan} has published anything yet",
            f"muster plan show {plan}",
        )
    if git.ask("merge-base", "--is-ancestor", had, "HEAD").returncode == 0:
        return NotFound(
            f"there is no branch {branch}: it was deleted; all that was published on it is in yours already",
            f"if you need it: git branch {branch} {had[:12]}",
        )
    return NotFound(
        f"there is no branch {branch}: it was deleted; what was published on it is still there, at {had[:12]}",
        f"put it back: git branch {branch} {had[:12]}",
    )
