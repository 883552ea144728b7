"""A merge that is prepared in a task's own working tree, for its agent to solve.

Agents that may not run git, or whose sandbox keeps git's own files from them, could not begin one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from pathlib import Path

from muster.model.file_names import in_words, readable
from muster.worker.conflicts import HOW_TO_KEEP, Unmerged, conflicts, marked, resolve
from muster.worker.git import Repository
from muster.worker.plan_boxes import merged_by_boxes
from muster.worker.sparse import AS_MARKED, read_in
from muster.worker.tree_links import admin_of

OF_A_MERGE = ("MERGE_HEAD", "MERGE_MSG", "MERGE_MODE", "AUTO_MERGE")
NAMED_MAX = 10


def merge_plan(
    repository: Repository,
    path: Path,
    *,
    tip: str,
    keep: Callable[[], tuple[str, str]],
    message: str,
    plans: Collection[str] = (),
) -> str:
    """Merges `tip`, where the plan's branch stands, into the tree at `path`; what to tell the agent of it.

    `keep` commits all that is there and says what git has refused of it.  A conflict is left in the tree as git
    leaves it; whoever has the tree next finds it there.  Boxes of `plans` are in none.  Raises GitFailed.
    """
    head = repository.run("rev-parse", "HEAD", cwd=path)
    if repository.commit_of("MERGE_HEAD", path) is None:
        if repository.is_ancestor(tip, head):
            return ""
        commit, refused = keep()
        if refused:  # what is not fit to be published is no part of a merge
            return f"Other work has been published since; it is not merged, because git says: {refused}"
        if commit != head:
            repository.run("update-ref", "-m", "muster: what was not committed", "HEAD", commit, cwd=path)
        read_in(repository, path, commit)
        words = (*AS_MARKED, "merge", "--no-ff", "--no-commit", "--quiet", "--strategy=ort")
        done = repository.ask(*words, tip, cwd=path)
        if done.returncode == 0:
            _commit(repository, path, commit, tip, message)
            return "What other tasks have published since is merged into it."
        if repository.commit_of("MERGE_HEAD", path) is None:
            return f"Other work has been published since, and could not be merged: {done.stderr.strip()}"
    admin = admin_of(path)
    found = [
        each for each in conflicts(repository, admin / "index") if not _settled(repository, path, each, plans)
    ]
    if not found:
        return "A merge with what other tasks have published is under way here.  Muster commits it."
    files = [each.path for each in found]
    lines = marked(repository, f"worktrees/{admin.name}/AUTO_MERGE", files)
    tasks = tasks_between(repository, head, tip, files)
    other = f"the work of {', '.join(tasks)}" if tasks else "what others have published"
    return _conflict(files, [each.words(other, markers=each.path in lines) for each in found], other)


def _settled(repository: Repository, path: Path, each: Unmerged, plans: Collection[str]) -> bool:
    """Whether both sides differ in the boxes of a plan alone, as far as git could not tell: then it is merged."""
    sides = [each.sides.get(stage, "").partition(" ") for stage in "123"]
    if each.path not in plans or not all(name for _, _, name in sides):
        return False
    base, agents, published = (name for _, _, name in sides)
    merged = merged_by_boxes(repository, path, each.path, base=base, ours=published, theirs=agents)
    if merged:
        resolve(repository, admin_of(path) / "index", [(each.path, f"{sides[1][0]} {merged}")])
        repository.run("checkout-index", "--force", "--", each.path, cwd=path)
    return bool(merged)


def forget_merge(path: Path) -> None:
    """After its commit: git takes it for under way as long as it finds these."""
    for name in OF_A_MERGE:
        (admin_of(path) / name).unlink(missing_ok=True)


def _commit(repository: Repository, path: Path, ours: str, theirs: str, message: str) -> None:
    content = repository.run("write-tree", cwd=path)
    merged = repository.run("commit-tree", content, "-p", theirs, "-p", ours, "-m", message)
    repository.run("update-ref", "HEAD", merged, cwd=path)
    forget_merge(path)


def tasks_between(repository: Repository, base: str, tip: str, files: Sequence[str] = ()) -> list[str]:
    """The tasks that have changed these files, or any, between the two commits."""
    said = repository.run(
        "log", "--format=%(trailers:key=Task,valueonly,separator=%x20) (%s)", f"{base}..{tip}", "--", *files
    )
    named = [line for line in readable(said).splitlines() if not line.startswith(" ")]
    return list(dict.fromkeys(named))[:NAMED_MAX]


def _conflict(files: list[str], kinds: list[str], other: str) -> str:
    named = f"{', '.join(map(in_words, files[:NAMED_MAX]))}{' and more' if len(files) > NAMED_MAX else ''}"
    listed = "\n".join(f"- {kind}" for kind in kinds[:NAMED_MAX])
    return (
        f"Git cannot merge your work and {other} by itself.  Their merge is begun in this folder; there are "
        f"conflicts in {named}:\n{listed}\n"
        "Edit, write, rename or remove these files so that the intent of both sides holds; no markers (<<<<<<<, "
        f"=======, >>>>>>>) may be left; {HOW_TO_KEEP}.  You need not run git for the rest: Muster commits the "
        "merge when you are done."
    )
