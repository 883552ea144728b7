"""`muster plan`: plans as a whole."""

from __future__ import annotations

import argparse
from collections.abc import Callable

from muster.cli.context import connect, no_rows
from muster.cli.fields import add_fields, names_of, print_rows
from muster.cli.output import Screen, clean, print_json
from muster.cli.plan_common import named, tell
from muster.cli.plan_renamed import add_which
from muster.cli.plan_wait import QUIET, SETTLED, PlanWait
from muster.cli.waiting import add_waiting
from muster.client.api import plan_path
from muster.model.json_value import Json
from muster.model.wording import counted

_NAME_HELP = "what a plan from stdin is known by (default: its `# Title`)"


def add(parser: argparse.ArgumentParser) -> None:
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    adding = verbs.add_parser("add", help="add a plan file; `muster up` or `muster run` works on it")
    adding.add_argument(
        "plan", metavar="PLAN", help="a markdown file with `- [ ]` tasks; `-` reads it from stdin"
    )
    adding.add_argument("--name", metavar="NAME", help=_NAME_HELP)
    adding.add_argument(
        "--update",
        action="store_true",
        help="also apply what was changed and taken out in the file since",
    )
    adding.add_argument(
        "--dry-run", action="store_true", help="show which agent would get each task, and why; change nothing"
    )
    add_which(adding)
    add_waiting(adding, SETTLED)
    diff = verbs.add_parser("diff", help="what `add --update` would change")
    diff.add_argument("plan", metavar="PLAN", help="a markdown file; `-` reads it from stdin")
    diff.add_argument("--name", metavar="NAME", help=_NAME_HELP)
    add_which(diff)
    add_fields(diff)
    add_fields(verbs.add_parser("list", help="all plans with their progress"))
    showing = verbs.add_parser("show", help="one plan: its progress and all its tasks")
    showing.add_argument("name", metavar="NAME")
    add_fields(showing)
    graph = verbs.add_parser("graph", help="which task waits for which")
    graph.add_argument("name", metavar="NAME")
    kinds = graph.add_mutually_exclusive_group()
    kinds.add_argument("--dot", action="store_true", help="for Graphviz")
    kinds.add_argument("--mermaid", action="store_true", help="for Mermaid, as in markdown pages")
    exporting = verbs.add_parser("export", help="write a plan as markdown, or with --json as data")
    exporting.add_argument("name", metavar="NAME")
    pausing = verbs.add_parser("pause", help="hand out no more of its tasks; running ones finish")
    pausing.add_argument("name", metavar="NAME")
    resuming = verbs.add_parser(
        "resume", help="hand out its tasks again, also after the circuit breaker has paused it"
    )
    resuming.add_argument("name", metavar="NAME")
    cancelling = verbs.add_parser("cancel", help="end all its tasks for good; what runs is stopped")
    cancelling.add_argument("name", metavar="NAME")
    cancelling.add_argument("--reason", metavar="TEXT", default="", help="kept in each task's events")
    forgetting = verbs.add_parser(
        "forget", help="let go of a plan: what is left is cancelled, all of it archived, and its file is free"
    )
    forgetting.add_argument("name", metavar="NAME")
    add_waiting(resuming, SETTLED)
    add_waiting(pausing, QUIET)
    add_waiting(cancelling, QUIET)


def run(args: argparse.Namespace) -> int:
    verb: str = args.verb
    if verb in {"add", "diff"}:
        from muster.cli import plan_add

        return plan_add.add(args) if verb == "add" else plan_add.diff(args)
    if verb in {"show", "graph", "export"}:
        from muster.cli import plan_view

        code: int = getattr(plan_view, verb)(args)
        return code
    others: dict[str, Callable[[argparse.Namespace], int]] = {
        "list": _list,
        "cancel": _cancel,
        "forget": _forget,
    }
    return others.get(verb, _move)(args)


def _list(args: argparse.Namespace) -> int:
    with connect(args) as context:
        plans: list[Json] = context.api.get("/api/v1/plans")

    def show() -> None:
        screen = Screen(args.color)
        for plan in plans:
            tell(plan, screen)
        if not plans:
            screen.line(no_rows(args, "plans"))

    print_rows(args, plans, show, names=lambda: names_of("PlanView"))
    return 0


def _move(args: argparse.Namespace) -> int:
    with connect(args) as context:
        name = named(context, args.name)
        waiting = PlanWait(args, context)
        moved: Json = context.api.post(plan_path(name, args.verb), {"actor": context.actor()})
        if args.json:
            code = waiting.end(name)
            print_json(moved)
            return code
        print(f"{clean(name)}  {'paused; what runs goes on' if moved['paused'] else 'goes on'}", flush=True)
        return waiting.end(name)


def _cancel(args: argparse.Namespace) -> int:
    with connect(args) as context:
        name = named(context, args.name)
        waiting = PlanWait(args, context)
        body = {"actor": context.actor(), "reason": args.reason}
        done: Json = context.api.post(plan_path(name, "cancel"), body)
        if args.json:
            code = waiting.end(name)
            print_json({"plan": done["plan"], "cancelled": done["cancelled"], "stopped": done["stopped"]})
            return code
        stopped = f", {done['stopped']} of them while they ran" if done["stopped"] else ""
        told = f"{clean(done['plan'])}  {counted(done['cancelled'], 'task')} cancelled{stopped}"
        print(told, flush=True)
        return waiting.end(name)


def _forget(args: argparse.Namespace) -> int:
    with connect(args) as context:
        name = named(context, args.name)
        done: Json = context.api.post(plan_path(name, "forget"), {"actor": context.actor()})
    if args.json:
        print_json({key: done[key] for key in ("plan", "cancelled", "archived")})
        return 0
    cancelled = f", {done['cancelled']} of them cancelled" if done["cancelled"] else ""
    count = counted(done["archived"], "task")
    print(f"{clean(done['plan'])}  forgotten: {count} archived{cancelled}; its file may be taken in anew")
    return 0
