"""The work of a plan comes into the branch that its user has checked out, as `git merge` would bring it.

Only the plan's own file is not left to git: Muster ticks it all the time, so it is merged by its boxes.
"""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from muster.app.plan_branch import no_branch
from muster.app.plan_forms import PlanForm, form_of
from muster.hosts.user_git import UserGit, said, text_of
from muster.model.errors import BadPlan, Conflict, MusterError, NotFound
from muster.model.file_names import in_words, readable
from muster.model.refs import plan_branch
from muster.model.works import BroughtCommit, BroughtFile, PlanMerged
from muster.plans.files import LocalPlanFiles
from muster.plans.versions import alike
from muster.worker.git import find_repository

TOLD_MAX = 50
_REGULAR = ("100644", "100755")
_NOBODY = {f"GIT_{who}_{what}": "muster" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}


class Brought(NamedTuple):
    """One commit on the plan's branch, with whatever was merged into it there."""

    commit: str
    task: str
    """Whose work it is; empty for a commit that is not Muster's."""
    subject: str


@dataclass(frozen=True)
class Incoming:
    branch: str
    into: str
    """The branch that is checked out; empty where none is."""
    tip: str
    onto: str
    """The commit that is checked out."""
    commits: tuple[Brought, ...]
    files: tuple[tuple[str, str], ...]
    """(A, M or D, path)."""
    conflicts: tuple[str, ...]
    """Files that would be left for the person."""
    plan: PlanFile | None
    """The plan's own file, where it has to be merged by its boxes."""


@dataclass(frozen=True)
class PlanFile:
    path: str
    """In the repository."""
    form: PlanForm
    """That of all of its versions."""
    file: Path
    mode: str
    base: bytes
    ours: bytes
    """As it is committed; as it lies there where it is not."""
    theirs: bytes
    here: bytes
    """As it lies in the user's folder."""
    kept: bytes
    """What is committed, as git keeps it; empty where nothing is."""
    tracked: bool
    done: frozenset[str]
    """Keys of the tasks that are completed."""

    @property
    def clean(self) -> bool:
        """All of it is committed."""
        return self.tracked and self.here == self.ours


def repository_git(folder: Path) -> UserGit:
    """Git at the top of the user's working tree.  Raises NotFound where there is no repository with a commit."""
    found = find_repository(folder)
    if found is None:
        raise NotFound(
            f"{folder} is in no git repository with a commit, so there is no branch of a plan",
            "the agents have worked in this folder itself: git init && git add . && git commit",
        )
    return UserGit(found.top)


def look(git: UserGit, plan: str, file: Path | None, done: frozenset[str]) -> Incoming:
    """What a merge would bring; `file` is the plan's own, `done` are the keys of its completed tasks.

    Without commits where there is nothing to merge.  Raises NotFound where there is no branch.
    """
    branch = plan_branch(plan)
    tip, into, onto = git.commit_of(f"refs/heads/{branch}"), git.branch(), git.commit_of("HEAD")
    if not tip:
        raise no_branch(git, plan)
    if git.ask("merge-base", "--is-ancestor", tip, "HEAD").returncode == 0:
        return Incoming(branch, into, tip, onto, (), (), (), None)
    own = _plan_file(git, tip, file, done)
    found = Incoming(branch, into, tip, onto, brought(git, tip), _files(git, tip), (), own)
    names = git.ask(
        "merge-tree", "--write-tree", "--name-only", "--no-messages", "-z", "HEAD", other_of(git, found)
    )
    conflicts = text_of(names.stdout).split("\0")[1:] if names.returncode == 1 else []
    if own is not None and merged(git, own, own.ours).conflict:
        conflicts.append(own.path)
    return replace(found, conflicts=tuple(filter(None, conflicts)))


def by_task(found: tuple[Brought, ...]) -> dict[str, list[Brought]]:
    tasks: dict[str, list[Brought]] = {}
    for one in found:
        tasks.setdefault(one.task, []).append(one)
    return tasks


def message_of(plan: str, found: Incoming) -> str:
    """What the merge commit says."""
    tasks = by_task(found.commits)
    lines = [f"- {task}: {commits[-1].subject}" for task, commits in tasks.items() if task][:TOLD_MAX]
    return "\n\n".join(filter(None, (f"Merge plan {plan} ({found.branch})", "\n".join(lines))))


def answer_of(plan: str, found: Incoming, commit: str | None) -> PlanMerged:
    return PlanMerged(
        plan=plan,
        branch=found.branch,
        into=found.into or None,
        commit=commit,
        commits=told_commits(found.commits),
        files=tuple(BroughtFile(change=change, path=in_words(path)) for change, path in found.files),
        conflicts=tuple(map(in_words, found.conflicts)),
        tip=found.tip,
        onto=found.onto,
    )


def told_commits(found: tuple[Brought, ...]) -> tuple[BroughtCommit, ...]:
    return tuple(
        BroughtCommit(commit=one.commit, task=one.task or None, subject=readable(one.subject))
        for one in found
    )


def brought(git: UserGit, tip: str, since: str = "HEAD") -> tuple[Brought, ...]:
    """The commits of the plan's branch that are not in `since`, the oldest first."""
    form = "--format=%H%x00%(trailers:key=Task,valueonly,separator=%x20)%x00%s"
    lines = git.run("log", "--first-parent", "--reverse", form, f"{since}..{tip}").splitlines()
    return tuple(Brought(*line.split("\0", 2)) for line in lines)


def _files(git: UserGit, tip: str) -> tuple[tuple[str, str], ...]:
    fields = git.run("diff", "--name-status", "--no-renames", "-z", f"HEAD...{tip}").split("\0")
    return tuple(zip(fields[::2], fields[1::2], strict=False))


def _plan_file(git: UserGit, tip: str, file: Path | None, done: frozenset[str]) -> PlanFile | None:
    """None where git may merge it as any other file: it is not in here, or only one side has changed it."""
    if file is None or not file.is_file() or not file.resolve().is_relative_to(git.folder):
        return None
    path = os.fspath(file.resolve().relative_to(git.folder))
    base = text_of(git.ask("merge-base", "HEAD", tip).stdout).partition("\n")[0]
    old, own, other = (_entry(git, commit, path) for commit in (base, "HEAD", tip))
    if other is None or other in (old, own) or other[0] not in _REGULAR or (own or other)[0] not in _REGULAR:
        return None
    form, kept = form_of(git, path), _blob(git, own[1]) if own else b""
    here = form.of_folder(file.read_bytes(), kept)
    found = PlanFile(
        path=path,
        form=form,
        file=file,
        mode=(own or other)[0],
        base=form.of_blob(_blob(git, old[1])) if old else b"",
        ours=form.of_blob(kept) if own else here,
        theirs=form.of_blob(_blob(git, other[1])),
        here=here,
        kept=kept,
        tracked=own is not None,
        done=done,
    )
    try:
        for version in (found.ours, here):
            alike(found.base, version, found.theirs, done)
    except BadPlan:
        return None
    return found


def _entry(git: UserGit, commit: str, path: str) -> tuple[str, str] | None:
    """(mode, object)."""
    said_of = git.ask("ls-tree", "-z", commit, "--", path).stdout.split(b"\0")[0]
    if not commit or not said_of:
        return None
    mode, _, name = text_of(said_of.partition(b"\t")[0]).split(" ")
    return mode, name


def _blob(git: UserGit, name: str) -> bytes:
    return git.ask("cat-file", "blob", name).stdout


class _Text(NamedTuple):
    data: bytes
    conflict: bool
    """It holds markers."""


def merged(git: UserGit, plan: PlanFile, ours: bytes) -> _Text:
    """The branch's version merged into `ours`.  Raises BadPlan where `ours` is no plan."""
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder, name) for name in ("yours", "base", "theirs")]
        base, ours, theirs = alike(plan.base, ours, plan.theirs, plan.done)
        for file, data in zip(files, (ours, base, theirs), strict=True):
            file.write_bytes(data)
        labels = [word for name in ("yours", "before", "the plan's branch") for word in ("-L", name)]
        done = git.ask("merge-file", "-p", *labels, *map(str, files))
    if done.returncode not in range(128):
        raise MusterError(f"git merge-file failed: {said(done)}", "try it by hand")
    return _Text(done.stdout, done.returncode > 0)


def three_way(git: UserGit, base: bytes, ours: bytes, theirs: bytes) -> bytes | None:
    """None where they conflict."""
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder, name) for name in ("ours", "base", "theirs")]
        for file, data in zip(files, (ours, base, theirs), strict=True):
            file.write_bytes(data)
        done = git.ask("merge-file", "-p", *map(str, files))
    return None if done.returncode else done.stdout


def other_of(git: UserGit, found: Incoming) -> str:
    """What git is to merge: the branch's tip, or a commit on it in which the plan's file is as ours.

    So git neither touches that file nor refuses because Muster has ticked it.
    """
    plan = found.plan
    if plan is None:
        return found.tip
    with tempfile.TemporaryDirectory() as folder:
        index = ("-c", "core.splitIndex=false")
        own = UserGit(git.folder, {"GIT_INDEX_FILE": str(Path(folder, "index"))})
        own.run(*index, "read-tree", found.tip)
        if plan.tracked:
            entry = f"{plan.mode},{_entry_name(git, plan.path)},{plan.path}"
            own.run(*index, "update-index", "--add", "--cacheinfo", entry)
        else:
            own.run(*index, "update-index", "--force-remove", "--", plan.path)
        tree = own.run(*index, "write-tree")
    # Beside the tip, not above it: a merge that is cut off before the plan's file is in it, and committed by
    # hand, has not merged the tip.  Nobody's name has to be known for it.
    above = [
        word for parent in git.run("log", "-1", "--format=%P", found.tip).split() for word in ("-p", parent)
    ]
    own = UserGit(git.folder, _NOBODY)
    return own.run(
        "commit-tree", tree, *above, "-m", f"{found.branch}, without {plan.path}, for {found.onto}"
    )


def _entry_name(git: UserGit, path: str) -> str:
    entry = _entry(git, "HEAD", path)
    assert entry is not None, "it is tracked"
    return entry[1]


@dataclass
class Settled:
    """What became of the plan's file in the folder."""

    seen: bytes = b""
    known: bytes = b""
    """As `PlanFile.here`, of what was seen."""
    left: bytes | None = None
    """None: not written yet."""


def settle(git: UserGit, found: Incoming, record: Settled, *, conflicts: bool) -> None:
    """Takes the branch's version of the plan into a merge that is under way without it."""
    plan = found.plan
    assert plan is not None

    def edit(data: bytes) -> bytes:
        known = plan.form.of_folder(data, plan.kept)
        text = merged(git, plan, known)
        if text.conflict and not (plan.tracked and known == plan.ours):
            raise Conflict(f"{plan.path} was edited meanwhile; nothing was changed", "the same once more")
        record.seen, record.known = data, known
        record.left = plan.form.to_folder(text.data, data, known)
        return record.left

    LocalPlanFiles().rewrite(str(plan.file), edit)
    # In the index it would keep `git merge --abort` from giving back what was not committed.
    if not conflicts or (plan.tracked and record.known == plan.ours):
        _into_index(git, plan)
    # Only now: who commits what is there by hand has not merged the branch before all of it is.
    head = git.folder / git.run("rev-parse", "--git-path", "MERGE_HEAD")
    new = head.with_name("MERGE_HEAD.muster")
    new.write_text(f"{found.tip}\n")
    new.replace(head)


def _into_index(git: UserGit, plan: PlanFile) -> None:
    text = merged(git, plan, plan.ours)
    if not text.conflict:
        given = plan.form.to_blob(text.data, plan.kept)
        name = git.run("hash-object", "-w", "--stdin", given=given)
        git.run("update-index", "--add", "--cacheinfo", f"{plan.mode},{name},{plan.path}")
        return
    sides = [plan.form.to_blob(side, plan.kept) for side in (plan.base, plan.ours, plan.theirs)]
    names = [git.run("hash-object", "-w", "--stdin", given=side) for side in sides]
    lines = [f"{plan.mode} {name} {stage}\t{plan.path}" for stage, name in enumerate(names, 1)]
    told = "\0".join([f"0 {'0' * len(names[0])}\t{plan.path}", *lines, ""])
    git.run("update-index", "-z", "--index-info", given=os.fsencode(told))
