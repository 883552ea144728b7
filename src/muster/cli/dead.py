"""`muster dead`: tasks that have failed and get no more attempts; all of them, or those that a filter fits."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable, Mapping
from operator import itemgetter
from typing import Any, NamedTuple

from muster.cli.context import Context, connect
from muster.cli.fields import add_fields, print_tasks
from muster.cli.output import Screen, age, clean, listed, note, now_ms, print_json, ref_of
from muster.cli.task import TASK_CELLS, find_tasks
from muster.cli.task_actions import act_on, add_retry_options, named, post, retrying
from muster.cli.values import agreed
from muster.cli.waiting import ENDED, Waiting, add_waiting, duration_s, refuse_idle
from muster.client.api import plan_path
from muster.model.errors import BadInput, Conflict
from muster.model.json_value import Json
from muster.model.states import ErrorKind, TaskStatus
from muster.model.wording import counted

LIMIT = 100_000
SHOWN_MAX = 20
VALUES_SHOWN = 5
EXIT_DECLINED = 1


class Criterion(NamedTuple):
    fits: Callable[[Json, Any], bool]
    values: Callable[[Json], Iterable[str | None]]
    """What a task holds there, for saying what there is where nothing fits."""


def _same(one: str | None, other: str) -> bool:
    return (one or "").casefold() == other.casefold()


def _agents(task: Json) -> list[str | None]:
    return [task["lastAgent"] or task["wantedAgent"]]


def _age_s(task: Json) -> float:
    at_ms: int = task["endedAtMs"] or task["updatedAtMs"]
    return (now_ms() - at_ms) / 1000


CRITERIA: dict[str, Criterion] = {
    "plan": Criterion(lambda task, name: bool(task["plan"] == name), lambda task: [task["plan"]]),
    "epic": Criterion(lambda task, text: _same(task["epic"], text), lambda task: [task["epic"]]),
    "feature": Criterion(lambda task, text: _same(task["feature"], text), lambda task: [task["feature"]]),
    "tag": Criterion(lambda task, tags: set(tags) <= set(task["tags"]), lambda task: task["tags"]),
    "agent": Criterion(lambda task, name: name in _agents(task), _agents),
    "kind": Criterion(lambda task, kind: bool(task["errorKind"] == kind), lambda task: [task["errorKind"]]),
    "reason": Criterion(lambda task, text: text.casefold() in task["error"].casefold(), lambda _: ()),
    "since": Criterion(lambda task, age_s: _age_s(task) <= age_s, lambda _: ()),
    "older": Criterion(lambda task, age_s: _age_s(task) > age_s, lambda _: ()),
}


def add(parser: argparse.ArgumentParser) -> None:
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    listing = verbs.add_parser("list", act=_list, help="failed tasks, with why")
    retrying = verbs.add_parser("retry", act=_change, help="run them again")
    discarding = verbs.add_parser(
        "discard", act=_change, help="put them out of sight; they cannot be retried then"
    )
    for verb in (listing, retrying, discarding):
        verb.add_argument("refs", metavar="REF", nargs="*", help="of these tasks only")
        _add_filter(verb)
    add_fields(listing)
    for verb in (retrying, discarding):
        verb.add_argument("--all", action="store_true", help="all of them")
        verb.add_argument("--dry-run", action="store_true", help="only say which these are")
        verb.add_argument("-y", "--yes", action="store_true", help="do not ask, also on a terminal")
    add_retry_options(retrying)
    add_waiting(retrying, ENDED)


def _add_filter(parser: argparse.ArgumentParser) -> None:
    texts = {
        "--plan": ("PLAN", "those of this plan"),
        "--epic": ("TEXT", "those below this heading of their plan"),
        "--feature": ("TEXT", "those below this heading of their epic"),
        "--agent": ("AGENT", "those that this agent had last"),
        "--reason": ("TEXT", "those with this in their error, in whatever case"),
    }
    for name, (metavar, text) in texts.items():
        parser.add_argument(name, metavar=metavar, type=_some, help=text)
    parser.add_argument(
        "--tag", metavar="TAG", type=_some, action="append", help="those with this tag; may be given again"
    )
    parser.add_argument("--kind", choices=tuple(ErrorKind), help="those with this kind of error")
    parser.add_argument(
        "--since", metavar="TIME", type=duration_s, help="those that failed within this time, like 30m or 2d"
    )
    parser.add_argument(
        "--older", metavar="TIME", type=duration_s, help="those that failed longer ago than this"
    )


def _some(text: str) -> str:
    if not text.strip():
        raise argparse.ArgumentTypeError("it is empty, so it would fit everything or nothing")
    return text


def _is_filtered(args: argparse.Namespace) -> bool:
    return any(getattr(args, name) is not None for name in CRITERIA)


def _failed(context: Context, args: argparse.Namespace) -> tuple[list[Json], str]:
    """The failed tasks that are meant, and why there are none.  Raises NotFound for what is not there."""
    if args.plan is not None:
        context.api.get(plan_path(args.plan))
    if not args.refs:
        return _filtered(find_tasks(context, plan=args.plan, names=("failed",), limit=LIMIT), args)
    tasks = named(context, args.refs)
    if args.verb != "list" and not _is_filtered(args):
        return tasks, ""  # each that has not failed is refused by itself
    return _filtered([task for task in tasks if task["status"] == TaskStatus.FAILED], args)


def _filtered(tasks: list[Json], args: argparse.Namespace) -> tuple[list[Json], str]:
    """Those that fit everything that was asked for; else what nothing fits, and what there is."""
    for name, criterion in CRITERIA.items():
        wanted = getattr(args, name)
        if wanted is None:
            continue
        left = [task for task in tasks if criterion.fits(task, wanted)]
        if tasks and not left:
            return [], _missed(name, wanted, tasks, criterion)
        tasks = left
    return tasks, ""


def _missed(name: str, wanted: Any, tasks: list[Json], criterion: Criterion) -> str:
    there = sorted({value for task in tasks for value in criterion.values(task) if value})
    more = f" and {len(there) - VALUES_SHOWN} more" if len(there) > VALUES_SHOWN else ""
    known = f" (there is {', '.join(map(clean, there[:VALUES_SHOWN]))}{more})" if there else ""
    told = (
        f"{wanted:g} s"
        if isinstance(wanted, float)
        else ", ".join([wanted] if isinstance(wanted, str) else wanted)
    )
    return f"of {counted(len(tasks), 'failed task')} none fits --{name} {clean(told)}{known}"


def _list(args: argparse.Namespace) -> int:
    with connect(args) as context:
        tasks, missed = _failed(context, args)
    print_tasks(args, tasks, lambda screen: _table(tasks, screen, missed))
    return 0


_CELLS: Mapping[str, Callable[[Json], object]] = {
    "TASK": ref_of,
    "WHY": itemgetter("why"),
    "AGENT": lambda task: task["lastAgent"] or task["wantedAgent"] or "-",
    "ATTEMPTS": TASK_CELLS["ATTEMPTS"],
    "SINCE": lambda task: age(now_ms() - task["updatedAtMs"]),
}


def _table(tasks: list[Json], screen: Screen, missed: str = "") -> None:
    screen.table(tasks, _CELLS, give="WHY", look=lambda _: "failed", empty=missed or "no task has failed")


def _change(args: argparse.Namespace) -> int:
    some = bool(args.refs) or _is_filtered(args)
    if args.all == some:
        raise BadInput(
            "say which: tasks, a filter such as --plan PLAN, or --all alone; nothing was changed",
            f"muster dead {args.verb} --all --dry-run",
        )
    with connect(args) as context:
        tasks, missed = _failed(context, args)
        if args.dry_run:
            for task in tasks:
                _refuse_living(task, f"{ref_of(task)}: ")
        else:
            refuse_idle(args, context)
        if args.dry_run or not tasks:
            return _tell(args, tasks, missed)
        if (args.all or _is_filtered(args)) and not _confirmed(args, tasks):
            print("nothing was changed", file=sys.stderr)
            return EXIT_DECLINED
        waiting = Waiting(args, context)
        do = retrying(args) if args.verb == "retry" else post("archive")

        def act(context: Context, task: Json) -> Json:
            _refuse_living(task)
            return do(context, task)

        def tell(_: Json, moved: Json, __: Context) -> str:
            return f"starts anew (generation {moved['generation']})" if args.verb == "retry" else "discarded"

        return act_on(waiting, tasks, "ready" if args.verb == "retry" else "archived", act, tell)


def _refuse_living(task: Json, who: str = "") -> None:
    if task["status"] != TaskStatus.FAILED:
        raise Conflict(f"{who}it is {task['status']}, not FAILED; nothing was changed", "muster dead list")


def _tell(args: argparse.Namespace, tasks: list[Json], missed: str) -> int:
    """What would be done, or why nothing is."""
    told = f"{missed or 'no task has failed'}; nothing was changed"
    if args.json:
        print_json([listed(task) for task in tasks])
        if not tasks and not args.dry_run:
            note(told)
    elif not tasks:
        print(told)
    else:
        _table(tasks, Screen(args.color))
        what = {"retry": "retried", "discard": "discarded"}[args.verb]
        print(f"{counted(len(tasks), 'failed task')} would be {what}; nothing was changed")
    return 0


def _confirmed(args: argparse.Namespace, tasks: list[Json]) -> bool:
    """Asks only where somebody is there to answer; what it asks about is shown first, beside the answer."""
    if args.yes or not (sys.stdin.isatty() and sys.stderr.isatty()):
        if not args.json:
            print(counted(len(tasks), "failed task"))
        return True
    _table(tasks[:SHOWN_MAX], Screen(args.color, sys.stderr))
    if len(tasks) > SHOWN_MAX:
        print(f"and {len(tasks) - SHOWN_MAX} more: --dry-run shows all", file=sys.stderr)
    last = "" if args.verb == "retry" else " for good"
    return agreed(f"{args.verb} {counted(len(tasks), 'failed task')}{last}?")
