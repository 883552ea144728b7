"""What goes on is what somebody has looked at: the same commits, into the same branch."""

from __future__ import annotations

import re

from muster.hosts.user_git import UserGit
from muster.model.errors import PreconditionFailed
from muster.ports.works import WorkSeen

SHORT = 9
_COMMIT = re.compile("[0-9a-f]{40,64}")


def refuse_unseen(git: UserGit, seen: WorkSeen, now: WorkSeen, branch: str, hint: str) -> None:
    """Raises PreconditionFailed; `now` is known in full."""
    told = []
    if seen.tip not in {None, now.tip}:
        told.append(f"{branch} is at {(now.tip or '')[:SHORT]} by now")
    if seen.into not in {None, now.into}:
        told.append(f"it would go into {called(now.into)}, and not into {called(seen.into)}")
    elif seen.onto is not None and not _has(git, now.onto or "", seen.onto):
        told.append(f"{called(now.into)} has not all that it had then")
    if told:
        raise PreconditionFailed(
            f"what would come has changed since you looked: {'; '.join(told)}; nothing was changed", hint
        )


def called(branch: str | None) -> str:
    return branch or "your commit"


def _has(git: UserGit, commit: str, other: str) -> bool:
    """Else it would bring commits that this one had already."""
    if not _COMMIT.fullmatch(other):
        return False
    return git.ask("merge-base", "--is-ancestor", other, commit).returncode == 0
