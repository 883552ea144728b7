"""`muster worktree`: the working trees that tasks have left on this machine, and clearing them up now."""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from muster.app.settings import load_config
from muster.cli.context import Context, connect
from muster.cli.fields import add_fields, print_rows
from muster.cli.output import Screen, age, clean, now_ms, print_json, ref_of
from muster.client.api import task_path
from muster.config.identity import refuse_copy
from muster.model.durations import duration_text
from muster.model.errors import IllegalMove, NotFound
from muster.model.json_value import Json
from muster.model.refs import kept_refs
from muster.model.states import FINAL, TaskStatus
from muster.ports.files import TaskTrees

MEASURE_S = 10.0
"""How long the sizes may take in all."""
EXIT_STAYS = 1
_FIELDS = ("ref", "taskId", "plan", "key", "status", "endedAtMs", "ended", "path", "bytes")


class Left(NamedTuple):
    task_id: int
    task: Json | None
    """None where the store knows no such task."""
    path: Path
    size: int
    whole: bool
    """All of it was measured."""
    aside: bool = False
    """It is no tree any more, and nothing of Muster's removes it."""

    @property
    def over(self) -> bool:
        return not self.aside and self.task is not None and TaskStatus(self.task["status"]) in FINAL

    @property
    def ref(self) -> str:
        return ref_of(self.task) if self.task is not None else f"task {self.task_id}"


def add(parser: argparse.ArgumentParser) -> None:
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    listing = verbs.add_parser("list", help="all trees that are there, whose they are and what they take")
    add_fields(listing)
    clear = verbs.add_parser(
        "clear", help="remove those of ended tasks now; their work stays in refs (exit code 1: one stays)"
    )
    clear.add_argument(
        "ref", metavar="REF", nargs="*", help="only of these tasks; default: of all that ended"
    )


def run(args: argparse.Namespace) -> int:
    with connect(args) as context:
        return _list(args, context) if args.verb == "list" else _clear(args, context)


def size_of(folder: Path, until_s: float) -> tuple[int, bool]:
    """(bytes on the disk, whether all was counted before that moment of the monotonic clock)."""
    size, waiting = 0, [folder]
    while waiting:
        if time.monotonic() > until_s:
            return size, False
        try:
            with os.scandir(waiting.pop()) as entries:
                for entry in entries:
                    size += entry.stat(follow_symlinks=False).st_blocks * 512
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(Path(entry.path))
        except OSError:
            continue  # gone meanwhile, or closed to us
    return size, True


def size_text(size: int, whole: bool) -> str:
    return f"{'' if whole else 'more than '}{size / (1 << 20):.1f} MiB"


def _left(context: Context) -> list[Left]:
    from muster.worker.worktree_cleaner import set_aside, tree_ids

    folder, until_s = context.project.worktrees_dir, time.monotonic() + MEASURE_S
    found = []
    for task_id in tree_ids(folder):
        path = folder / str(task_id)
        found.append(Left(task_id, _task(context, task_id), path, *size_of(path, until_s)))
    for task_id, path in set_aside(folder):
        found.append(Left(task_id, _task(context, task_id), path, *size_of(path, until_s), aside=True))
    return found


def _task(context: Context, task_id: int) -> Json | None:
    try:
        task: Json = context.api.get(task_path(task_id))["task"]
    except NotFound:
        return None
    return task


def _list(args: argparse.Namespace, context: Context) -> int:
    left = _left(context)
    kept_s = load_config(context.project.root).retention.trees_s
    rows = [_row(one) for one in left]
    print_rows(args, rows, lambda screen: _print_list(screen, left, kept_s), names=lambda: _FIELDS)
    return 0


_CELLS: Mapping[str, Callable[[Left], object]] = {
    "STATUS": lambda one: "set aside" if one.aside else one.task["status"] if one.task else "unknown",
    "TASK": lambda one: one.ref,
    "ENDED": lambda one: age(now_ms() - one.task["endedAtMs"]) if one.task and one.task["endedAtMs"] else "-",
    "SIZE": lambda one: size_text(one.size, one.whole),
    "TREE": lambda one: one.path,
}


def _look(one: Left) -> str:
    return one.task["state"] if one.task else "archived"


def _print_list(screen: Screen, left: list[Left], kept_s: float) -> None:
    screen.table(left, _CELLS, give="TREE", look=_look, empty="0 working trees")
    if any(one.aside for one in left):
        screen.line("set aside: it belonged to no repository of this project; take from it what you need")
    ended = [one for one in left if one.over]
    if ended:
        kept = duration_text(kept_s)
        taken = size_text(sum(one.size for one in ended), all(one.whole for one in ended))
        screen.line(f"{len(ended)} of ended tasks take {taken}; each goes {kept} after the end of its task")
        screen.line("now: muster worktree clear")


def _row(one: Left) -> Json:
    task = one.task or {}
    of_task = (task.get("plan"), task.get("key"), task.get("status"), task.get("endedAtMs"))
    values = (one.ref, one.task_id, *of_task, one.over, str(one.path), one.size)
    return dict(zip(_FIELDS, values, strict=True))


def _clear(args: argparse.Namespace, context: Context) -> int:
    refuse_copy(context.project)
    trees = _trees(context)
    chosen = _chosen(args, context, _left(context))
    told = [{**_row(one), **_put_away(trees, one)} for one in chosen]
    if args.json:
        print_json(told)
    else:
        _tell(Screen(args.color), told, chosen)
    return EXIT_STAYS if any(row["stays"] for row in told) else 0


def _trees(context: Context) -> TaskTrees:
    from muster.app.parts import local_trees
    from muster.worker.git import find_repository

    repository = find_repository(context.project.root)
    if repository is None:
        raise NotFound(
            f"{context.project.root} is in no git repository, so no task has a tree here",
            "muster -C DIR worktree clear",
        )
    return local_trees(repository, context.project)


def _chosen(args: argparse.Namespace, context: Context, left: list[Left]) -> list[Left]:
    """Raises NotFound, IllegalMove, before anything is removed."""
    if not args.ref:
        return [one for one in left if one.over and not _lingers(one)]
    by_id = {one.task_id: one for one in left if not one.aside}
    chosen = []
    for reference in args.ref:
        task_id, _ = context.task_id(reference)
        one = by_id.get(task_id)
        if one is None:
            raise NotFound(f"{reference} has no working tree here", "muster worktree list")
        if not one.over or _lingers(one):
            raise IllegalMove(
                f"{one.ref} has not ended: its tree is where it goes on", f"muster task cancel {one.ref}"
            )
        chosen.append(one)
    return chosen


def _lingers(one: Left) -> bool:
    return one.task is not None and one.task["lingeringEpoch"] is not None


def _put_away(trees: TaskTrees, one: Left) -> Json:
    task = one.task
    assert task is not None, "it has ended"
    why = trees.put_away(one.task_id, task["plan"], task["key"], task["epoch"])
    return {"stays": why, "kept": kept_refs(task["plan"], task["key"])}


def _tell(screen: Screen, told: list[Json], chosen: list[Left]) -> None:
    for row, one in zip(told, chosen, strict=True):
        if row["stays"]:
            screen.line(f"stays    {clean(one.ref)}  {clean(row['stays'])}")
        else:
            size = size_text(one.size, one.whole)
            screen.line(f"removed  {clean(one.ref)}  {size}; its work: {clean(row['kept'])}/")
    if not told:
        screen.line("no tree of an ended task is there")
