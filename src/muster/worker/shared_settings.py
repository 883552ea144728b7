"""Settings of git that all trees of a repository share with the user's own folder: an agent may write them.

Only those in the repository's own file of settings are seen. Not seen is what an agent writes elsewhere: into the
user's settings (`git config --global`), those of one tree (`--worktree`), a file that is included, hooks, or
`info/attributes` and `info/exclude`; nor `branch.*` and `submodule.*`.
"""

from __future__ import annotations

import re

from muster.hosts.user_git import without_logins
from muster.model.file_names import readable
from muster.worker.git import Repository

_NAMED_MAX = 10
_BY_THE_WAY = re.compile(
    r"branch\.|submodule\.|lfs\.repositoryformatversion\n|lfs\.[^\n]+\.(?:access|locksverify)\n"
)
"""Git itself notes there which branch follows which, and which submodules are set up; Git LFS, how a server wants
to be asked.  Other settings of LFS name servers and programs, and none is made by the way.
"""


def shared_settings(repository: Repository) -> frozenset[str]:
    """Each with its value, as they stand in the file of this repository."""
    told = repository.ask("config", "--file", str(repository.common / "config"), "--list", "-z").stdout
    return frozenset(line for line in told.split("\0") if line and not _BY_THE_WAY.match(line))


def changed_since(repository: Repository, before: frozenset[str]) -> str:
    """What to tell people of it: names alone, because a value may be a secret, and without the logins of the
    addresses in some (`url.ADDRESS.insteadOf`); empty where nothing is changed.
    """
    lines = before ^ shared_settings(repository)
    names = sorted({readable(without_logins(line.partition("\n")[0])) for line in lines})
    if not names:
        return ""
    more = f" and {len(names) - _NAMED_MAX} more" if len(names) > _NAMED_MAX else ""
    return (
        "while it ran, settings of git were changed that the whole repository shares: "
        f"{', '.join(names[:_NAMED_MAX])}{more}; look at them: git config --local --list"
    )
