"""The work of a plan comes into the branch that its user has checked out, as `git merge` would bring it.

Only the plan's own file is not left to git: Muster ticks it all the time, so it is merged by its boxes.
"""

from __future__ import annotations

import os
import shlex
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from muster.app.plan_forms import PlanForm, form_of
from muster.app.seen_work import SHORT, called
from muster.hosts.git_head import under_way
from muster.hosts.user_git import UserGit, said, text_of
from muster.model.errors import BadPlan, Conflict, MusterError, NotFound, PreconditionFailed
from muster.model.file_names import in_words, readable
from muster.model.refs import plan_branch
from muster.model.works import BroughtCommit, BroughtFile, PlanMerged
from muster.plans.files import LocalPlanFiles
from muster.plans.versions import alike
from muster.worker.git import find_repository

NAMED_MAX = 10
TOLD_MAX = 50
_REGULAR = ("100644", "100755")
_LOCAL_CHANGES = "would be overwritten by merge"


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
    plan: _PlanFile | None
    """The plan's own file, where it has to be merged by its boxes."""


@dataclass(frozen=True)
class _PlanFile:
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
        raise NotFound(
            f"there is no branch {branch}: no task of plan {plan} has published anything yet",
            f"muster plan show {plan}",
        )
    if git.ask("merge-base", "--is-ancestor", tip, "HEAD").returncode == 0:
        return Incoming(branch, into, tip, onto, (), (), (), None)
    own = _plan_file(git, tip, file, done)
    found = Incoming(branch, into, tip, onto, brought(git, tip), _files(git, tip), (), own)
    names = git.ask(
        "merge-tree", "--write-tree", "--name-only", "--no-messages", "-z", "HEAD", _other(git, found)
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


def merge(git: UserGit, found: Incoming, message: str) -> str:
    """The merge commit, of both parents.

    Raises Conflict: where git refuses, then nothing was changed; or where files are left for the person, then
    the merge is under way.
    """
    _refuse_under_way(git)
    if found.plan is not None and not found.plan.clean:
        for ours in (found.plan.ours, found.plan.here):
            if merged(git, found.plan, ours).conflict:
                raise Conflict(
                    f"the text of {found.plan.path} was changed on {found.branch} and in your folder, and yours "
                    "is not committed; nothing was changed",
                    f"git add {found.plan.path} && git commit, then again",
                )
    if lost := _ignored(git, found):
        raise Conflict(
            f"it would overwrite what you have not committed, and git ignores: {named(lost)}; "
            "nothing was changed",
            "move it elsewhere, then again",
        )
    words = ("--no-ff", "--no-squash", "--no-commit", "--no-autostash", "--quiet", "-m", message)
    other = _other(git, found)
    _refuse_moved(git, found)
    done = git.ask("merge", *words, other)
    if not git.commit_of("MERGE_HEAD"):
        raise _refused(text_of(done.stderr))
    if found.plan is not None:
        try:
            _settle(git, found, found.plan, conflicts=bool(_unmerged(git)))
        except BaseException:
            git.ask("merge", "--abort")
            raise
    if files := _unmerged(git):
        raise Conflict(
            f"there are conflicts in {named(files)}; the merge is under way, the rest of it is done",
            "edit them, then: git add FILE && git commit; or undo it all: git merge --abort",
        )
    for step in (("hook", "run", "--ignore-missing", "pre-merge-commit"), ("commit", "--quiet", "--no-edit")):
        done = git.ask(*step)
        if done.returncode:
            hint = "git commit; or undo it: git merge --abort"
            raise Conflict(f"the merge is made and not committed: {said(done)}", hint)
    git.ask("hook", "run", "--ignore-missing", "post-merge", "--", "0")
    return git.commit_of("HEAD")


def _ignored(git: UserGit, found: Incoming) -> list[str]:
    """What lies where the merge would put a file, and git ignores: it would overwrite that without a word."""
    tracked = set(git.run("ls-files", "-z").split("\0"))
    there = {
        os.fspath(place)
        for change, path in found.files
        if change != "D" and path not in tracked
        for place in (Path(path), *Path(path).parents[:-1])
        if os.path.lexists(git.folder / place)
        and (
            os.fspath(place) == path or not (git.folder / place).is_dir() or (git.folder / place).is_symlink()
        )
    }
    if found.plan is not None:
        there.discard(found.plan.path)
    if not there:
        return []
    asked = ("ls-files", "-z", "--others", "--ignored", "--exclude-standard", "--")
    listed = git.run(*asked, *(f":(literal){place}" for place in sorted(there)))
    return list(filter(None, listed.split("\0")))


def named(files: tuple[str, ...] | list[str]) -> str:
    more = f" and {len(files) - NAMED_MAX} more" if len(files) > NAMED_MAX else ""
    return ", ".join(map(in_words, files[:NAMED_MAX])) + more


def _unmerged(git: UserGit) -> list[str]:
    listed = git.run("diff", "--name-only", "--diff-filter=U", "-z").split("\0")
    return list(filter(None, listed))


def _refuse_under_way(git: UserGit) -> None:
    lock = git.folder / git.run("rev-parse", "--git-path", "index.lock")
    if lock.exists():  # git finds it after it has written files
        raise Conflict(
            f"git's index is locked: {lock}: File exists; another git is at work, or was killed; "
            "nothing was changed",
            f"if no git is at work: rm {shlex.quote(str(lock))}, then again",
        )
    if what := under_way(git.folder / git.run("rev-parse", "--git-dir")):
        raise Conflict(
            f"a {what} is under way in {git.folder}; nothing was changed",
            f"finish it, or undo it: git {what} --abort",
        )


def _refuse_moved(git: UserGit, found: Incoming) -> None:
    """Raises PreconditionFailed where something else is checked out than was looked at."""
    into, onto = git.branch(), git.commit_of("HEAD")
    if into != found.into:
        now = f"{called(into)} is checked out by now, and not {called(found.into)}"
    elif onto != found.onto:
        now = f"{called(into)} is at {onto[:SHORT]} by now"
    else:
        return
    raise PreconditionFailed(f"{now}; nothing was changed", "the same once more")


def _refused(words: str) -> Conflict:
    """In fewer words than git's."""
    files = [line.strip() for line in words.splitlines() if line.startswith("\t")]
    if files and _LOCAL_CHANGES in words:
        return Conflict(
            f"it would overwrite what you have not committed: {named(files)}; nothing was changed",
            "commit it, or put it aside: git stash",
        )
    return Conflict(
        f"git refuses to merge: {words.strip() or 'no reason'}; nothing was changed", "git status"
    )


def _plan_file(git: UserGit, tip: str, file: Path | None, done: frozenset[str]) -> _PlanFile | None:
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
    found = _PlanFile(
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


def merged(git: UserGit, plan: _PlanFile, ours: bytes) -> _Text:
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


def _other(git: UserGit, found: Incoming) -> str:
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
    return git.run("commit-tree", tree, "-p", found.tip, "-m", f"{plan.path} as it was")


def _entry_name(git: UserGit, path: str) -> str:
    entry = _entry(git, "HEAD", path)
    assert entry is not None, "it is tracked"
    return entry[1]


def _settle(git: UserGit, found: Incoming, plan: _PlanFile, *, conflicts: bool) -> None:
    """Takes the branch's version of the plan into a merge that is under way without it."""
    head = Path(git.run("rev-parse", "--git-path", "MERGE_HEAD"))
    (git.folder / head).write_text(f"{found.tip}\n")
    seen = plan.here

    def edit(data: bytes) -> bytes:
        nonlocal seen
        seen = plan.form.of_folder(data, plan.kept)
        text = merged(git, plan, seen)
        if text.conflict and not (plan.tracked and seen == plan.ours):
            raise Conflict(f"{plan.path} was edited meanwhile; nothing was changed", "the same once more")
        return plan.form.to_folder(text.data, data, seen)

    LocalPlanFiles().rewrite(str(plan.file), edit)
    if conflicts and not (plan.tracked and seen == plan.ours):
        return  # in the index it would keep `git merge --abort` from giving back what was not committed
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
