"""`muster dead`: tasks that have failed and get no more attempts."""

from __future__ import annotations

import argparse
from typing import Any

from muster.cli.context import Context, connect
from muster.cli.output import Screen, age, clean, now_ms, print_json, ref_of
from muster.cli.task import find_tasks
from muster.cli.task_moves import act_on, add_retry_options, named
from muster.client.api import task_path
from muster.model.errors import BadInput, Conflict
from muster.model.states import TaskStatus

Json = dict[str, Any]

LIMIT = 100_000


def add(parser: argparse.ArgumentParser) -> None:
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    listing = verbs.add_parser("list", help="failed tasks, with why")
    retrying = verbs.add_parser("retry", help="run them again")
    discarding = verbs.add_parser("discard", help="put them out of sight; they cannot be retried then")
    for verb in (listing, retrying, discarding):
        verb.add_argument("--plan", metavar="PLAN", help="those of this plan")
    for verb in (retrying, discarding):
        verb.add_argument("refs", metavar="REF", nargs="*")
        verb.add_argument("--all", action="store_true", help="all of them")
    add_retry_options(retrying)


def run(args: argparse.Namespace) -> int:
    if args.verb == "list":
        return _list(args)
    if sum((bool(args.refs), args.plan is not None, args.all)) != 1:
        raise BadInput(
            "say which: tasks, --plan PLAN or --all; nothing was changed", f"muster dead {args.verb} --all"
        )
    with connect(args) as context:
        tasks = named(context, args.refs) if args.refs else _failed(context, args.plan)
        return (_retry if args.verb == "retry" else _discard)(context, args, tasks)


def _failed(context: Context, plan: str | None) -> list[Json]:
    if plan is not None:
        from urllib.parse import quote

        context.api.get(f"/api/v1/plans/{quote(plan, safe='')}")  # refuses one that is not there
    return find_tasks(context, plan=plan, names=("failed",), limit=LIMIT)


def _list(args: argparse.Namespace) -> int:
    with connect(args) as context:
        tasks = _failed(context, args.plan)
    if args.json:
        print_json(tasks)
        return 0
    if not tasks:
        print("no task has failed")
        return 0
    rows = [
        [clean(ref_of(task)), clean(task["why"]), str(task["epoch"]), age(now_ms() - task["updatedAtMs"])]
        for task in tasks
    ]
    Screen(args.color).table(["TASK", "WHY", "ATTEMPTS", "SINCE"], rows, give=1, looks=["failed"] * len(rows))
    return 0


def _refuse_living(task: Json) -> None:
    if task["status"] != TaskStatus.FAILED:
        raise Conflict(f"it is {task['status']}, not FAILED; nothing was changed", "muster dead list")


def _retry(context: Context, args: argparse.Namespace, tasks: list[Json]) -> int:
    def act(context: Context, task: Json) -> Json:
        _refuse_living(task)
        body = {"actor": context.actor(), "note": args.note, "fresh": args.begin == "start"}
        moved: Json = context.api.post(task_path(task["id"], "retry"), body)
        return moved

    def tell(_: Json, moved: Json, __: Context) -> str:
        return f"starts anew (generation {moved['generation']})"

    return act_on(context, args, tasks, "ready", act=act, tell=tell)


def _discard(context: Context, args: argparse.Namespace, tasks: list[Json]) -> int:
    def act(context: Context, task: Json) -> Json:
        _refuse_living(task)
        moved: Json = context.api.post(task_path(task["id"], "archive"), {"actor": context.actor()})
        return moved

    return act_on(context, args, tasks, "archived", act=act, tell=lambda *_: "discarded")
