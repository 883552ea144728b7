"""`muster task add`: one task, without a plan file."""

from __future__ import annotations

import argparse
from functools import partial
from typing import Any

from muster.cli.context import Context, connect, project_of
from muster.cli.fields import add_fields, print_one, refuse_unknown, task_names
from muster.cli.output import Screen, clean, listed, ref_of
from muster.cli.task_actions import one
from muster.cli.task_options import add_task_options, given_fields, stated
from muster.cli.values import of_kind
from muster.cli.waiting import ENDED, FOREVER_S, add_waiting, await_tasks, end_code, last_event, refuse_idle
from muster.client.api import task_path
from muster.model.errors import BadInput, NotFound
from muster.model.json_value import Json
from muster.model.kinds import NAME


def add(verbs: Any) -> None:
    adding = verbs.add_parser("add", act=add_task, help="add one task")
    running = verbs.add_parser("run", act=add_task, help="add one task and wait until it has ended")
    for parser in (adding, running):
        add_waiting(parser, ENDED, timeout=False)
        _add_options(parser)


def _add_options(parser: argparse.ArgumentParser) -> None:
    name = partial(of_kind, NAME)
    parser.add_argument("title", metavar="TITLE")
    parser.add_argument("--plan", metavar="PLAN", type=name, help="the plan that it belongs to (tasks)")
    parser.add_argument("--key", metavar="KEY", type=name, help="its name within the plan")
    add_task_options(parser)
    parser.add_argument("--parent", metavar="REF", help="the task that this one came from")
    parser.add_argument(
        "--idempotency-key", metavar="K", type=name, help="repeating the command adds nothing"
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="only say which agent would get it, and why; change nothing"
    )
    add_fields(parser)


def add_task(args: argparse.Namespace) -> int:
    if not args.title.strip():
        raise BadInput("the title is empty; nothing was added", "muster task add TITLE")
    refuse_unknown(args, lambda: [*task_names(), "added"])
    mute = args.json or args.fields is not None
    if args.dry_run:
        return _dry_run(args)
    if args.verb == "run" and args.wait is None:
        args.wait = FOREVER_S
    within_s: float | None = args.wait
    with connect(args) as context:
        refuse_idle(args, context)
        after = 0 if within_s is None else last_event(context)
        added = context.api.post("/api/v1/agent-tasks", _body(args, context))
        task = context.api.get(task_path(added["taskIds"][0]))["task"]
        screen = Screen(args.color)
        if not mute:
            _tell(screen, task, is_new=bool(added["added"]))
        if within_s is not None:
            shown = None if mute else screen
            (task,) = await_tasks(context, [task["id"]], within_s=within_s, screen=shown, after=after)
    print_one(args, {**listed(task), "added": bool(added["added"])}, lambda: None)
    return 0 if within_s is None else end_code([task])


def _dry_run(args: argparse.Namespace) -> int:
    """As `muster plan add --dry-run` says it for a whole file.  Raises NotFound for an unknown agent."""
    from muster.app.settings import load_config
    from muster.cli.plan_input import show_takers
    from muster.model.plan import PlanDocument, PlanTask

    if args.fields is not None or args.wait is not None:
        raise BadInput("--dry-run adds nothing that could be waited for or have fields", "leave these out")
    config = load_config(project_of(args).root)
    task = PlanTask(key=args.key or "-", title=args.title, **stated(args))
    if task.agent is not None and task.agent not in config.agents:
        raise NotFound(
            f"there is no agent {task.agent}; nothing was changed",
            f"add [agents.{task.agent}] to muster.toml, or use one of: {', '.join(sorted(config.agents))}",
        )
    return show_takers(args, PlanDocument(name=args.plan or "tasks", title="", tasks=(task,)), config)


def _tell(screen: Screen, task: Json, *, is_new: bool) -> None:
    what = "added" if is_new else "was there already; nothing was added"
    ref, why = clean(ref_of(task)), clean(task["why"])
    screen.line(f"{screen.badge('ready', '')} {ref}  {what}  ({why})")
    screen.stream.flush()


def _body(args: argparse.Namespace, context: Context) -> Json:
    body: Json = {
        "actor": context.actor(),
        "title": args.title,
        "plan": args.plan,
        "key": args.key,
        "idempotencyKey": args.idempotency_key,
        "parentTaskId": None if args.parent is None else one(context, args.parent)["id"],
    }
    return {name: value for name, value in body.items() if value is not None} | given_fields(args, context)
