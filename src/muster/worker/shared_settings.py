"""Settings of git that all trees of a repository share with the user's own folder: an agent may write them."""

from __future__ import annotations

from muster.hosts.user_git import without_logins
from muster.model.file_names import readable
from muster.worker.git import Repository

_NAMED_MAX = 10
_BY_THE_WAY = ("branch.", "submodule.")
"""Git itself notes there which branch follows which, and which submodules are set up."""


def shared_settings(repository: Repository) -> frozenset[str]:
    """Each with its value, as they stand in the file of this repository."""
    told = repository.ask("config", "--file", str(repository.common / "config"), "--list", "-z").stdout
    return frozenset(line for line in told.split("\0") if line and not line.startswith(_BY_THE_WAY))


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
