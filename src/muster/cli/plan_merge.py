"""`muster plan merge`: what the tasks of a plan have made comes into the branch that the user is on."""

from __future__ import annotations

import argparse
import sys
from contextlib import nullcontext
from pathlib import Path

from msgspec import to_builtins

from muster.app.interrupts import as_ctrl_c
from muster.app.merge_lock import one_merge
from muster.app.merging import merge
from muster.app.plan_merge import TOLD_MAX, Incoming, answer_of, by_task, look, message_of, repository_git
from muster.cli.output import GREEN, RED, YELLOW, Screen, clean, print_json, shell_word
from muster.config.project import Project
from muster.model.file_names import in_words
from muster.model.wording import counted

_COLOURS = {"A": GREEN, "D": RED}
_SHORT = 9


def run(
    args: argparse.Namespace, project: Project, plan: str, source: str | None, done: frozenset[str]
) -> int:
    try:
        found, commit = _merge(args, project, plan, project.root / source if source else None, done)
    except KeyboardInterrupt as interrupt:
        for note in getattr(interrupt, "__notes__", ()):
            print(note, file=sys.stderr, flush=True)
        raise
    screen = Screen(args.color)
    if args.json:
        print_json(to_builtins(answer_of(plan, found, commit)))
    elif not found.commits:
        screen.line(f"nothing to merge: {clean(found.branch)} has nothing that {_into(found)} has not")
    elif commit is None:
        _show(screen, plan, found)
    else:
        _tell(screen, found, f"merged   {_count(found)} into {_into(found)}: {commit[:_SHORT]}")
    return 0


def _merge(
    args: argparse.Namespace, project: Project, plan: str, file: Path | None, done: frozenset[str]
) -> tuple[Incoming, str | None]:
    git = repository_git(project.root)
    with nullcontext() if args.dry_run else one_merge(git, plan), as_ctrl_c():
        found = look(git, plan, file, done)
        if args.dry_run or not found.commits:
            return found, None
        return found, merge(git, found, message_of(plan, found))


def _count(found: Incoming) -> str:
    return f"{counted(len(found.commits), 'commit')}, {counted(len(found.files), 'file')}"


def _into(found: Incoming) -> str:
    return clean(found.into) or "your commit"


def _show(screen: Screen, plan: str, found: Incoming) -> None:
    _tell(screen, found, f"{_count(found)} would come from {clean(found.branch)} into {_into(found)}")
    if found.conflicts:
        screen.line(screen.paint(f"conflicts: {clean(', '.join(map(in_words, found.conflicts)))}", RED))
    screen.line(f"nothing was changed; to do it: muster plan merge {shell_word(plan)}")


def _tell(screen: Screen, found: Incoming, head: str) -> None:
    screen.line(head)
    for task, commits in by_task(found.commits).items():
        for one in commits:
            who = clean(task) if task else "no task"
            screen.line(f"  {screen.paint(one.commit[:_SHORT], YELLOW)} {who}  {clean(one.subject)}")
    for change, path in found.files[:TOLD_MAX]:
        screen.line(f"  {screen.paint(change, _COLOURS.get(change, YELLOW))} {clean(in_words(path))}")
    if len(found.files) > TOLD_MAX:
        screen.line(f"  and {len(found.files) - TOLD_MAX} more files: git diff --stat HEAD...{found.branch}")
