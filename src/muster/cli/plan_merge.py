"""`muster plan merge`: what the tasks of a plan have made comes into the branch that the user is on."""

from __future__ import annotations

import argparse

from muster.app.plan_merge import Brought, Incoming, look, merge, repository_git
from muster.cli.output import GREEN, RED, YELLOW, Screen, clean, print_json, shell_word
from muster.config.project import Project
from muster.model.json_value import Json
from muster.model.wording import counted

TOLD_MAX = 50
_COLOURS = {"A": GREEN, "D": RED}
_SHORT = 9


def run(
    args: argparse.Namespace, project: Project, plan: str, source: str | None, done: frozenset[str]
) -> int:
    git = repository_git(project.root)
    found = look(git, plan, project.root / source if source else None, done)
    screen = Screen(args.color)
    commit = None if args.dry_run or not found.commits else merge(git, found, _message(plan, found))
    if args.json:
        print_json(_told(plan, found, commit))
    elif not found.commits:
        screen.line(f"nothing to merge: {clean(found.branch)} has nothing that {_into(found)} has not")
    elif commit is None:
        _show(screen, plan, found)
    else:
        _tell(screen, found, f"merged   {_count(found)} into {_into(found)}: {commit[:_SHORT]}")
    return 0


def by_task(found: tuple[Brought, ...]) -> dict[str, list[Brought]]:
    tasks: dict[str, list[Brought]] = {}
    for one in found:
        tasks.setdefault(one.task, []).append(one)
    return tasks


def _message(plan: str, found: Incoming) -> str:
    tasks = by_task(found.commits)
    lines = [f"- {task}: {commits[-1].subject}" for task, commits in tasks.items() if task][:TOLD_MAX]
    return "\n\n".join(filter(None, (f"Merge plan {plan} ({found.branch})", "\n".join(lines))))


def _told(plan: str, found: Incoming, commit: str | None) -> Json:
    return {
        "plan": plan,
        "branch": found.branch,
        "into": found.into or None,
        "commit": commit,
        "commits": [
            {"commit": c.commit, "task": c.task or None, "subject": c.subject} for c in found.commits
        ],
        "files": [{"change": change, "path": path} for change, path in found.files],
        "conflicts": list(found.conflicts),
    }


def _count(found: Incoming) -> str:
    return f"{counted(len(found.commits), 'commit')}, {counted(len(found.files), 'file')}"


def _into(found: Incoming) -> str:
    return clean(found.into) or "your commit"


def _show(screen: Screen, plan: str, found: Incoming) -> None:
    _tell(screen, found, f"{_count(found)} would come from {clean(found.branch)} into {_into(found)}")
    if found.conflicts:
        screen.line(screen.paint(f"conflicts: {clean(', '.join(found.conflicts))}", RED))
    screen.line(f"nothing was changed; to do it: muster plan merge {shell_word(plan)}")


def _tell(screen: Screen, found: Incoming, head: str) -> None:
    screen.line(head)
    for task, commits in by_task(found.commits).items():
        for one in commits:
            who = clean(task) if task else "no task"
            screen.line(f"  {screen.paint(one.commit[:_SHORT], YELLOW)} {who}  {clean(one.subject)}")
    for change, path in found.files[:TOLD_MAX]:
        screen.line(f"  {screen.paint(change, _COLOURS.get(change, YELLOW))} {clean(path)}")
    if len(found.files) > TOLD_MAX:
        screen.line(f"  and {len(found.files) - TOLD_MAX} more files: git diff --stat HEAD...{found.branch}")
