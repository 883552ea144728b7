"""The boxes of plans in a task's working tree: no work of an agent's, so what it writes there goes no further."""

from __future__ import annotations

import logging
import os
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

from muster.hosts.plain_files import read_plain
from muster.plans.files import PLAN_BYTES_MAX
from muster.worker.commits import stage
from muster.worker.git import GitFailed, Repository
from muster.worker.tree_links import admin_of

log = logging.getLogger(__name__)

RENAMES_MAX = 20
"""So many files that are gone from the checkout are compared with a plan that git does not know."""
_MARKER = b"<<<<<<<"


def plan_paths(repository: Repository, sources: Iterable[str]) -> tuple[str, ...]:
    """These files of plans, as the project names them, by their paths in the repository; none of outside."""
    folder = repository.top / repository.prefix
    found: dict[str, None] = {}
    for source in sources:
        for path in (Path(os.path.normpath(folder / source)), (folder / source).resolve()):
            if path.is_relative_to(repository.top):
                found[os.fspath(path.relative_to(repository.top))] = None
    return tuple(found)


def level_boxes(repository: Repository, path: Path, plans: tuple[str, ...], base: str, branch: str) -> None:
    """Gives the boxes of these plans in the tree at `path` back the marks that they had before its agent came.

    `base` is where the task began, `branch` that of its plan.  All else that was written there stays; a box that
    is new is not ticked.  Never raises: the rest of the work is worth more.
    """
    try:
        _level_all(repository, path, plans, base, branch)
    except (GitFailed, OSError) as error:
        log.warning("the boxes of plans in %s stay as they are: %s", path, error)


def _level_all(repository: Repository, path: Path, plans: tuple[str, ...], base: str, branch: str) -> None:
    before = _as_named_before(repository, plans, base)
    if not before:
        return
    tip = repository.commit_of(f"refs/heads/{branch}")
    diff = ("--literal-pathspecs", "diff", "--name-only", "--no-renames", "-z", base, "--", *before.values())
    changed = set(repository.run(*diff, cwd=path).split("\0"))
    for old in changed.intersection(before.values()):
        newest = _before_the_agent(repository, path, base, tip)
        data = _laid_out(repository, path, f"{newest}:{old}") or _laid_out(repository, path, f"{base}:{old}")
        for name in _found(repository, path, old, base):
            if data is not None:
                _level(path, name, data)


def merged_by_boxes(
    repository: Repository, tree: Path, file: str, *, base: str, ours: str, theirs: str
) -> str:
    """The object with the text of both sides and the boxes of `ours`; empty where their texts are in conflict.

    Each is named as for `Repository.blob`.  `file` is the plan's path in `tree`, whose filter is used.
    """
    from muster.plans.versions import levelled

    driver = repository.run("check-attr", "-z", "filter", "--", file, cwd=tree).split("\0")[2]
    # Git merges in its own form, line by line; of that only a filter may be able to tell lines.
    how = () if driver in ("unspecified", "unset") else (f"--path={file}",)
    mine, old, other = (_text(repository, tree, name, how) for name in (ours, base, theirs))
    if mine is None or old is None or other is None:
        return ""
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder, name) for name in ("ours", "base", "theirs")]
        for kept, data in zip(files, (mine, levelled(mine, old), levelled(mine, other)), strict=True):
            kept.write_bytes(data)
        done = repository.ask_bytes("merge-file", "-p", *map(str, files))
    if done.returncode:
        return ""
    return repository.run("hash-object", "-w", "--stdin", *how, given=os.fsdecode(done.stdout), cwd=tree)


def _text(repository: Repository, tree: Path, name: str, how: tuple[str, ...]) -> bytes | None:
    if not how:
        return repository.blob(name)
    done = repository.ask_bytes("cat-file", "--filters", *how, name, cwd=tree)
    return done.stdout if done.returncode == 0 else None


def _as_named_before(repository: Repository, plans: tuple[str, ...], base: str) -> dict[str, str]:
    """By its path, the one that each plan had at `base`; without those that git did not know there."""
    if not plans:
        return {}
    there = _listed(repository, base, plans)
    before = {plan: plan for plan in plans if plan in there}
    missing = tuple(plan for plan in plans if plan not in there)
    if not missing:
        return before
    committed = _listed(repository, "HEAD", missing).intersection(missing)
    if committed:
        before |= {new: old for old, new in _renames(repository, base, "HEAD") if new in committed}
    return before | _renamed_by_hand(repository, base, [plan for plan in missing if plan not in committed])


def _renamed_by_hand(repository: Repository, base: str, plans: Iterable[str]) -> dict[str, str]:
    """As `_as_named_before`, of what a person has renamed in the checkout and not committed yet."""
    from muster.plans.versions import are_of_one_plan

    found = {}
    for file in (repository.top / plan for plan in plans):
        if not file.is_file():
            continue
        data = read_plain(file.resolve(), PLAN_BYTES_MAX)
        ask = (
            "diff",
            "--name-only",
            "--no-renames",
            "--diff-filter=D",
            "-z",
            "HEAD",
            "--",
            f"*{file.suffix}",
        )
        gone = repository.run(*ask).split("\0")
        for old in gone[:RENAMES_MAX]:
            before = _laid_out(repository, repository.top, f"{base}:{old}") if old else None
            if before is not None and are_of_one_plan(before, data):
                found[os.fspath(file.relative_to(repository.top))] = old
    return found


def _laid_out(repository: Repository, tree: Path, name: str) -> bytes | None:
    """The file `COMMIT:PATH` as it would lie in `tree`: what git keeps only a filter may be able to read."""
    done = repository.ask_bytes("cat-file", "--filters", name, cwd=tree)
    return done.stdout if done.returncode == 0 else repository.blob(name)


def _listed(repository: Repository, commit: str, paths: tuple[str, ...]) -> set[str]:
    ask = ("--literal-pathspecs", "ls-tree", "-z", "--full-tree", "--name-only", commit, "--", *paths)
    return set(repository.run(*ask).split("\0"))


def _renames(repository: Repository, one: str, other: str) -> Iterator[tuple[str, str]]:
    ask = ("diff", "--find-renames", "--diff-filter=R", "--name-status", "-z", one, other, "--")
    fields = iter(repository.run(*ask).split("\0"))
    for _, old, new in zip(fields, fields, fields, strict=False):
        yield old, new


def _found(repository: Repository, path: Path, old: str, base: str) -> list[str]:
    """Where the file lies in the tree, whatever its agent has called it."""
    if os.path.lexists(path / old):
        return [old]
    tree = stage(repository, path, admin_of(path), base).tree
    return [new for was, new in _renames(repository, base, tree) if was == old]


def _before_the_agent(repository: Repository, path: Path, base: str, tip: str | None) -> str:
    """The newest commit that has come into the tree, and that no agent has made."""
    here = [repository.run("rev-parse", "HEAD", cwd=path)]
    here += filter(None, [repository.commit_of("MERGE_HEAD", path)])
    newest = base
    for other in filter(None, (tip, repository.commit_of("HEAD"))):
        common = repository.ask("merge-base", other, *here).stdout.strip()
        if common and not repository.is_ancestor(common, newest):
            newest = common
    return newest


def _level(path: Path, name: str, base: bytes) -> None:
    from muster.plans.versions import levelled

    file = path / name
    # Written where it lies, so it must be in this tree alone.
    if file.resolve() != path.resolve() / name or file.stat().st_nlink > 1:
        return
    data = read_plain(file, PLAN_BYTES_MAX + 1)
    after = data if len(data) > PLAN_BYTES_MAX or _MARKER in data else levelled(base, data, name)
    if after == data:
        return
    with file.open("r+b") as open_file:
        open_file.write(after)
        open_file.truncate()
    log.info("the boxes in %s are as they were before its agent ticked them", file)
