"""Where the work of a task begins, once the work of others was merged into it."""

from __future__ import annotations

from collections.abc import Iterable

from muster.worker.git import Repository


def base_now(repository: Repository, base: str, *, head: str, tip: str, own: Iterable[str]) -> str:
    """The commit against which the work at `head` shows what this task has changed, and nothing else.

    It began at `base`; what `head` has of the plan's branch at `tip` beyond that is the work of others.  `own` is
    what was kept of the task, as far as it is shown.
    """
    merged = repository.ask("merge-base", head, tip).stdout.partition("\n")[0].strip()
    if not merged or repository.is_ancestor(merged, base):
        return base
    for commit in own:
        if repository.is_ancestor(commit, merged) and not repository.is_ancestor(commit, base):
            return base  # published already: on the branch it is one with the work of others
    if repository.is_ancestor(base, merged):
        return merged
    # It began at a commit of the user's that the plan's branch does not have.
    both = repository.ask("merge-tree", "--write-tree", "--no-messages", base, merged)
    if both.returncode:
        return base
    return repository.run(
        "commit-tree", both.stdout.strip(), "-p", base, "-p", merged, "-m", "where the work of a task begins"
    )
