"""`muster task wait | next`: what is being worked on, and what comes then."""

from __future__ import annotations

import argparse
from typing import Any

from muster.cli.context import connect
from muster.cli.fields import add_fields, print_rows, refuse_unknown, task_names
from muster.cli.output import Screen, clean, listed, ref_of, task_word
from muster.cli.task_actions import named
from muster.cli.values import number
from muster.cli.waiting import FOREVER_S, await_tasks, duration_s, end_code, last_event

NEXT = 10


def add(verbs: Any) -> None:
    waiting = verbs.add_parser("wait", act=_wait, help="return when tasks have ended, well or not")
    waiting.add_argument("refs", metavar="REF", nargs="+")
    waiting.add_argument(
        "--timeout", metavar="TIME", type=duration_s, help="give up after this time (exit code 8)"
    )
    add_fields(waiting)
    coming = verbs.add_parser("next", act=_next, help="the tasks that agents take next, in order")
    some = number(1, 1000)
    coming.add_argument("--limit", metavar="N", type=some, default=NEXT, help=f"at most N tasks ({NEXT})")
    add_fields(coming)


def _wait(args: argparse.Namespace) -> int:
    screen = Screen(args.color)
    refuse_unknown(args, task_names)
    within_s = FOREVER_S if args.timeout is None else args.timeout
    with connect(args) as context:
        after = last_event(context)
        ids = [task["id"] for task in named(context, args.refs)]
        shown = None if args.json or args.fields is not None else screen
        tasks = await_tasks(context, ids, within_s=within_s, screen=shown, after=after)

    def show() -> None:
        for task in tasks:
            screen.line(f"{screen.badge(task_word(task))}  {clean(ref_of(task))}  {clean(task['why'])}")

    print_rows(args, [listed(task) for task in tasks], show, names=task_names)
    return end_code(tasks)


def _next(args: argparse.Namespace) -> int:
    with connect(args) as context:
        found = context.api.get("/api/v1/agent-tasks/next", {"limit": args.limit})

    def show() -> None:
        screen = Screen(args.color)
        for task in found:
            screen.line(f"{screen.badge('ready', '')} {clean(ref_of(task))}  {clean(task['why'])}")
        if not found:
            screen.line("nothing is ready: muster status")

    print_rows(args, [listed(task) for task in found], show, names=task_names)
    return 0
