"""Boxes that another plan's file had before: the same work, which nobody is to do twice."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Collection

from muster.cli.output import clean
from muster.client.api import Api, plan_path
from muster.config.project import Project
from muster.model.edits import is_barrier
from muster.model.errors import BadPlan, Conflict
from muster.model.identity import Boxes
from muster.model.json_value import Json
from muster.model.states import FINAL, TaskStatus

NAMED_MAX = 5


def find_moved(
    args: argparse.Namespace, api: Api, project: Project, content: Json, added: Collection[str]
) -> None:
    """`added` are the keys of what is new in the plan.  Asks at a terminal whether that is other work.

    Raises Conflict where it is not, or nobody is there to be asked.
    """
    other_work = {*content["newTasks"]}
    fresh = {
        task["key"]: task["title"]
        for task in content["tasks"]
        if task["key"] in added and task["key"] not in other_work and not task.get("done")
    }
    for plan in api.get("/api/v1/plans") if fresh and not args.new else ():
        source = plan["source"]
        if source in (None, content["source"]):
            continue
        moved = _moved(api, project, plan, Boxes(fresh))
        if moved and not _is_other_work(args, content, source, moved):
            names = [f"{plan['name']}/{task['key']} ({task['status'].lower()})" for task in moved[:NAMED_MAX]]
            more = f" and {len(moved) - NAMED_MAX} more" if len(moved) > NAMED_MAX else ""
            raise Conflict(
                f"{content['source'] or 'this plan'} has boxes that stood in {source} before: "
                f"{', '.join(names)}{more}; nothing was changed",
                f"tick what is done, and muster plan add {source} --update takes the rest out of plan "
                f"{plan['name']}; --new-task NAME for what is other work, --new if all of it is",
            )


def _moved(api: Api, project: Project, plan: Json, fresh: Boxes) -> list[Json]:
    """Tasks that are among the `fresh` boxes and no longer in their plan's own file: still to be done, or their
    boxes still to be ticked.

    None where that file cannot be read.
    """
    from muster.plans.files import read_plan

    alike = [
        task
        for task in api.get(plan_path(plan["name"], "tasks"))
        if not is_barrier(task["key"]) and (task["box"], task["title"]) in fresh
    ]
    path = project.root / plan["source"]
    if not alike:
        return []
    try:
        found = Boxes({task.key: task.title for task in read_plan(path).tasks} if path.exists() else {})
    except BadPlan:
        return []
    moved = [task for task in alike if (task["box"], task["title"]) not in found]
    if any(task["status"] == TaskStatus.COMPLETED for task in moved):
        owed = api.get(plan_path(plan["name"], "sync"))["owed"]
        return [task for task in moved if task["status"] not in FINAL or task["key"] in owed]
    return [task for task in moved if task["status"] not in FINAL]


def _is_other_work(args: argparse.Namespace, content: Json, source: str, moved: list[Json]) -> bool:
    if args.json or not (sys.stdin.isatty() and sys.stderr.isatty()):
        return False
    print(clean(f"{content['source']} has boxes that stood in {source} before:"), file=sys.stderr)
    for task in moved:
        print(clean(f"  {task['key']}: {task['title']} ({task['status'].lower()})"), file=sys.stderr)
    while True:
        print("Are they other work, to be done as well? [y/n] ", end="", file=sys.stderr, flush=True)
        line = sys.stdin.readline()
        if line.strip().lower() in {"y", "yes"}:
            return True
        if not line or line.strip().lower() in {"n", "no"}:
            return False
