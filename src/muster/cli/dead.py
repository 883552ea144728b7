"""`muster dead`: tasks that have failed and get no more attempts; all of them, or those that a filter fits."""

from __future__ import annotations

import argparse
import sys

from muster.cli.context import Context, connect
from muster.cli.dead_filter import add_filter, chosen, filtered, is_filtered
from muster.cli.fields import add_fields, print_rows, task_names
from muster.cli.output import Screen, age, clean, listed, note, now_ms, print_json, ref_of
from muster.cli.task_actions import act_on, add_retry_options
from muster.cli.waiting import ENDED, add_waiting, refuse_idle
from muster.client.api import task_path
from muster.model.errors import BadInput, Conflict
from muster.model.json_value import Json
from muster.model.states import TaskStatus
from muster.model.wording import counted

SHOWN_MAX = 20
EXIT_DECLINED = 1


def add(parser: argparse.ArgumentParser) -> None:
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    listing = verbs.add_parser("list", help="failed tasks, with why")
    retrying = verbs.add_parser("retry", help="run them again")
    discarding = verbs.add_parser("discard", help="put them out of sight; they cannot be retried then")
    for verb in (listing, retrying, discarding):
        verb.add_argument("refs", metavar="REF", nargs="*", help="of these tasks only")
        add_filter(verb)
    add_fields(listing)
    for verb in (retrying, discarding):
        verb.add_argument("--all", action="store_true", help="all of them")
        verb.add_argument("--dry-run", action="store_true", help="only say which these are")
        verb.add_argument("-y", "--yes", action="store_true", help="do not ask, also on a terminal")
    add_retry_options(retrying)
    add_waiting(retrying, ENDED)


def run(args: argparse.Namespace) -> int:
    if args.verb == "list":
        return _list(args)
    if args.all == (bool(args.refs) or is_filtered(args)):
        raise BadInput(
            "say which: tasks, a filter such as --plan PLAN, or --all alone; nothing was changed",
            f"muster dead {args.verb} --all --dry-run",
        )
    with connect(args) as context:
        tasks, missed = _chosen(context, args)
        if args.dry_run:
            return _tell(args, tasks, missed)
        if args.verb == "retry":
            refuse_idle(args, context)
        if not tasks:
            return _nothing(args, missed)
        if (args.all or is_filtered(args)) and not _confirmed(args, tasks):
            print("nothing was changed", file=sys.stderr)
            return EXIT_DECLINED
        return (_retry if args.verb == "retry" else _discard)(context, args, tasks)


def _chosen(context: Context, args: argparse.Namespace) -> tuple[list[Json], str]:
    """The tasks, and why there are none.  Raises NotFound for a plan or a task that is not there."""
    tasks = chosen(context, args)
    if args.refs and not is_filtered(args):
        return tasks, ""
    return filtered([task for task in tasks if task["status"] == TaskStatus.FAILED], args)


def _list(args: argparse.Namespace) -> int:
    with connect(args) as context:
        tasks, missed = filtered(
            [task for task in chosen(context, args) if task["status"] == TaskStatus.FAILED], args
        )

    def show() -> None:
        if tasks:
            _table(tasks, Screen(args.color))
        else:
            print(missed or "no task has failed")

    print_rows(args, [listed(task) for task in tasks], show, names=task_names)
    return 0


def _table(tasks: list[Json], screen: Screen) -> None:
    rows = [
        [
            clean(ref_of(task)),
            clean(task["why"]),
            clean(task["lastAgent"] or task["wantedAgent"] or "-"),
            str(task["epoch"]),
            age(now_ms() - task["updatedAtMs"]),
        ]
        for task in tasks
    ]
    head = ["TASK", "WHY", "AGENT", "ATTEMPTS", "SINCE"]
    screen.table(head, rows, give=1, looks=["failed"] * len(rows))


def _tell(args: argparse.Namespace, tasks: list[Json], missed: str) -> int:
    """What would be done.  Raises Conflict where a task that was named has not failed."""
    for task in tasks:
        try:
            _refuse_living(task)
        except Conflict as error:
            raise Conflict(f"{ref_of(task)}: {error.message}", error.hint) from None
    if args.json:
        print_json([listed(task) for task in tasks])
        return 0
    if not tasks:
        return _nothing(args, missed)
    _table(tasks, Screen(args.color))
    what = {"retry": "retried", "discard": "discarded"}[args.verb]
    print(f"{_count(tasks)} would be {what}; nothing was changed")
    return 0


def _nothing(args: argparse.Namespace, missed: str) -> int:
    told = f"{missed or 'no task has failed'}; nothing was changed"
    if args.json:
        print_json([])
        note(told)
    else:
        print(told)
    return 0


def _count(tasks: list[Json]) -> str:
    return counted(len(tasks), "failed task")


def _confirmed(args: argparse.Namespace, tasks: list[Json]) -> bool:
    """Asks only where somebody is there to answer; what it asks about is shown first, beside the answer."""
    if args.yes or not (sys.stdin.isatty() and sys.stderr.isatty()):
        if not args.json:
            print(_count(tasks))
        return True
    _table(tasks[:SHOWN_MAX], Screen(args.color, sys.stderr))
    if len(tasks) > SHOWN_MAX:
        print(f"and {len(tasks) - SHOWN_MAX} more: --dry-run shows all", file=sys.stderr)
    last = "" if args.verb == "retry" else " for good"
    print(f"{args.verb} {_count(tasks)}{last}? [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")


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
