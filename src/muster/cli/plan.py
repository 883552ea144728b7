"""`muster plan`: plans as a whole."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from typing import Any

from muster.cli import plan_changes, plan_graph, plan_ids, plan_items, plan_sync
from muster.cli.context import (
    Context,
    connect,
    no_rows,
    patiently,
    refuse_attempts,
    refuse_foreign,
    refuse_server,
)
from muster.cli.fields import add_fields, answer, names_of, print_one, print_rows
from muster.cli.output import (
    GREEN,
    RED,
    YELLOW,
    Screen,
    clean,
    note,
    paused_line,
    print_json,
    usage_words,
)
from muster.cli.plan_options import add_check, add_from, add_order, add_which
from muster.cli.task import find_tasks, table
from muster.cli.waiting import EXIT_UNSUCCESSFUL, Goal, Waiting, add_waiting
from muster.client.api import plan_path
from muster.model.errors import BadInput
from muster.model.json_value import Json
from muster.model.progress import progress
from muster.model.states import FINAL, HELD, TaskStatus
from muster.model.wording import counted

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

TASKS_MAX = 100_000
_ENDED = {TaskStatus.COMPLETED, TaskStatus.ARCHIVED, TaskStatus.CANCELLED}
SETTLED = Goal("has settled", needs_crew=True)
"""Everything has ended, or only a person can move what is left."""
QUIET = Goal("has nothing running any more")


def add(parser: argparse.ArgumentParser) -> None:
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    adding = verbs.add_parser(
        "add", act=_add, help="add a plan file; `muster up` or `muster run` works on it"
    )
    diff = verbs.add_parser("diff", act=_diff, help="what `add --update` would change")
    adding.add_argument(
        "plan", metavar="PLAN", help="a markdown file with `- [ ]` tasks; `-` reads it from stdin"
    )
    diff.add_argument("plan", metavar="PLAN", help="a markdown file; `-` reads it from stdin")
    for verb in (adding, diff):
        verb.add_argument(
            "--name", metavar="NAME", help="what a plan from stdin is known by (default: its `# Title`)"
        )
        add_order(verb)
        add_which(verb)
        plan_changes.add_saying(verb)
    adding.add_argument(
        "--update",
        action="store_true",
        help="also apply what was changed and taken out in the file since",
    )
    adding.add_argument(
        "--dry-run", action="store_true", help="show which agent would get each task, and why; change nothing"
    )
    add_fields(diff)
    add_check(verbs, _check)
    _add_import(verbs)
    add_from(verbs, _from)
    add_fields(verbs.add_parser("list", act=_list, help="all plans with their progress"))
    _add_named(verbs)
    add_waiting(adding, SETTLED)


def _add_named(verbs: Any) -> None:
    """Those that take a plan that is there already."""
    named = {
        name: verbs.add_parser(name, act=act, help=text)
        for name, (act, text) in {
            "show": (_show, "one plan: its progress and all its tasks"),
            "graph": (_graph, "which task waits for which"),
            "export": (_export, "write a plan as markdown, or with --json as data"),
            "merge": (_merge, "bring the branch with its tasks' work into the branch that you are on"),
            "sync": (
                lambda args: plan_sync.run(args, _named),
                "take in now what has changed in its file, and show what waits for you (exit code 1: a "
                "part of it could not be done)",
            ),
            "tick": (
                lambda args: plan_sync.tick(args, _named),
                "tick the box of each task that is done, also one that was cleared; of a server elsewhere in "
                "your own copy, where you name a file (exit code 1: one is not ticked)",
            ),
            "pause": (_pause, "hand out no more of its tasks; running ones finish"),
            "resume": (_pause, "hand out its tasks again, also after the circuit breaker has paused it"),
            "cancel": (_cancel, "end all its tasks for good; what runs is stopped"),
            "forget": (
                _forget,
                "let go of a plan: what is left is cancelled, all of it archived, and its file is free",
            ),
        }.items()
    }
    for verb in named.values():
        verb.add_argument("name", metavar="NAME")
    add_fields(named["show"])
    named["export"].add_argument(
        "--items", action="store_true", help="as JSON items, epic > feature > task, which `plan import` reads"
    )
    plan_sync.add(named["sync"])
    kinds = named["graph"].add_mutually_exclusive_group()
    kinds.add_argument("--dot", action="store_true", help="for Graphviz")
    kinds.add_argument("--mermaid", action="store_true", help="for Mermaid, as in markdown pages")
    coming = "show what would come in; change nothing"
    named["merge"].add_argument("--dry-run", action="store_true", help=coming)
    named["cancel"].add_argument("--reason", metavar="TEXT", default="", help="kept in each task's events")
    for verb, goal in (
        (named["resume"], SETTLED),
        (named["pause"], QUIET),
        (named["cancel"], QUIET),
    ):
        add_waiting(verb, goal)


def _check(args: argparse.Namespace) -> int:
    from muster.cli import plan_check

    return plan_check.run(args)


def _add_import(verbs: Any) -> None:
    plan_ids.add(verbs)
    importing = verbs.add_parser(
        "import", act=_import, help="write what another tool keeps (task-master, beads, ...) as a plan file"
    )
    importing.add_argument(
        "source",
        metavar="SOURCE",
        help="a file or folder of task-master, beads, Backlog.md, GitHub issues or work items; `-` is stdin",
    )
    for option, metavar, text in (
        ("--format", "NAME", "what SOURCE is (default: recognised by its content)"),
        ("--tag", "NAME", "which list of a task-master file is meant"),
        ("--name", "NAME", "what the plan is called"),
        ("--out", "FILE", "the plan file (default: named after the plan; `-` prints it)"),
    ):
        importing.add_argument(option, metavar=metavar, default="", help=text)
    importing.add_argument("--force", action="store_true", help="also over a file that is there")
    importing.add_argument(
        "--add", action="store_true", help="add it as a plan; without --out there is no file then"
    )
    importing.set_defaults(as_plan=None, new=False, order=None)


def _add(args: argparse.Namespace) -> int:
    from muster.app.plan_tasks import refuse_unmanned
    from muster.app.settings import load_config
    from muster.cli import plan_file
    from muster.cli.plan_order import unasked

    given = plan_file.given_plan(args)
    if args.dry_run:
        if args.wait is not None:
            raise BadInput("--dry-run changes nothing, so there is nothing to wait for", "leave one out")
        refuse_server(args)
        nearest = plan_file.project_for(args, given)
        refuse_foreign(nearest)
        return plan_file.dry_run(args, given, nearest, load_config(nearest.root))
    with connect(args) as context:
        config, project = context.settings(), context.here
        if project is not None:
            others = plan_file.others_of(context, given)
            refuse_unmanned(given.document, config, given.short, others)
        given = plan_file.as_known_to(context, given)
        plan_file.refuse_file_of(context.api, given)
        if project is not None:
            plan_file.follow(args, context.api, project, given)
        source = None if project is None else given.source(project)
        given, chosen = plan_file.in_order(args, context.api, given, config, source, ask=True)
        content = plan_file.body_for(context, given, config, chosen)
        if order := unasked(given.document, chosen):
            note(f"order {clean(order)}")
        waiting, path = Waiting(args, context), "/api/v1/plans/update" if args.update else "/api/v1/plans"
        added = plan_changes.said_or_asked(
            args, context.api, content, lambda: context.api.post(path, content)
        )
        if args.update:
            return _end(waiting, added, lambda: _tell_update(added, Screen(args.color)))
        if args.json:
            return _end(waiting, added, lambda: None)
        name = plan_file.tell_added(context.api, content, added, lambda text: print(clean(text), flush=True))
        if context.direct:
            run = ", or muster run with this plan," if given.path else ""
            print(f"Next     muster up{run} works on it")
        return _wait(waiting, name)


def _end(waiting: Waiting, done: Json, show: Callable[[], None]) -> int:
    """Tells what was done to a plan; for programs after the wait, for it is one answer."""
    if not waiting.args.json:
        show()
        sys.stdout.flush()
    code = _wait(waiting, done["plan"] if "plan" in done else done["name"])
    if waiting.args.json:
        print_json(done)
    return code


def _tell_update(updated: Json, screen: Screen) -> None:
    from muster.cli import plan_file

    _tell_diff(updated["diff"], screen, done=True)
    for key in updated["completed"]:
        screen.line(f"{screen.badge('completed', '')} {clean(key)}  completed by its box")
    for line in plan_file.unproved(updated):
        screen.line(clean(line))
    screen.line(_sum(updated["diff"], "changed nothing"))


def _import(args: argparse.Namespace) -> int:
    from muster.cli import plan_import

    return plan_import.run(args)


def _from(args: argparse.Namespace) -> int:
    from muster.cli import plan_from

    return plan_from.run(args)


def _diff(args: argparse.Namespace) -> int:
    from muster.cli import plan_file

    given = plan_file.given_plan(args)
    with connect(args) as context:
        config, given = context.settings(), plan_file.as_known_to(context, given)
        plan_file.refuse_file_of(context.api, given)
        source = None
        if (project := context.here) is not None:
            former = plan_file.former_source(args, context.api, project, given)
            source = former if former is not None else given.source(project)
        given, _ = plan_file.in_order(args, context.api, given, config, source, ask=False)
        content = {**plan_file.body_for(context, given, config), "source": source}
        plan_changes.take_said(args, content)
        found = context.api.post("/api/v1/plans/diff", content)

    def show(screen: Screen) -> None:
        _tell_diff(found, screen, done=False)
        screen.line(_sum(found, "the file and the plan agree"))

    print_one(args, found, show)
    return 0


def _tell_diff(found: Json, screen: Screen, *, done: bool) -> None:
    from muster.cli.plan_changes import fields_of

    for one in found["renamed"]:
        screen.line(f"{screen.paint('=', GREEN)} {clean(one['box'])}  is {clean(one['was'])}, renamed")
    for doubt in found["doubts"]:
        names = " or ".join(clean(one["box"]) for one in doubt["mayBe"])
        screen.line(f"{screen.paint('?', YELLOW)} {clean(doubt['box'])}  may be {names}, renamed")
    for one in found["moved"]:
        there = f"{one['task']['source']} before ({one['task']['status'].lower()})"
        screen.line(f"{screen.paint('?', YELLOW)} {clean(one['box'])}  stood in {clean(there)}")
    for key in found["added"]:
        screen.line(f"{screen.paint('+', GREEN)} {clean(key)}")
    for key in found["restored"]:
        screen.line(f"{screen.paint('+', GREEN)} {clean(key)}  is back, and starts anew")
    for change in found["changed"]:
        told = f"{clean(change['key'])}  {fields_of(change)}{_kept(change)}"
        screen.line(f"{screen.paint('~', YELLOW)} {told}")
    for key in found.get("boxes", ()):
        screen.line(f"{screen.paint('~', YELLOW)} {clean(key)}  its box says otherwise than the task")
    for change in found["removed"]:
        what = "archived" if change["status"] in FINAL else "cancelled"
        what = "" if change["kept"] else f"  {what}" if done else f"  would be {what}"
        screen.line(f"{screen.paint('-', RED)} {clean(change['key'])}{what}{_kept(change)}")


def _kept(change: Json) -> str:
    return f"  (stays as it is: {change['kept']})" if change["kept"] else ""


def _sum(found: Json, nothing: str) -> str:
    counts = {
        "renamed": len(found["renamed"]),
        "added": len(found["added"]) + len(found["restored"]),
        "changed": sum(not change["kept"] for change in found["changed"]),
        "removed": sum(not change["kept"] for change in found["removed"]),
        "boxes that differ": len(found["boxes"]),
        "kept as they are": sum(bool(c["kept"]) for c in (*found["changed"], *found["removed"])),
    }
    told = ", ".join(f"{number} {word}" for word, number in counts.items() if number)
    return f"{clean(found['plan'])}: {told or nothing}"


def _wait(waiting: Waiting, name: str) -> int:
    """Comes back when the plan has reached the goal: 0, or 5 where it settled with work that is not done.

    At once where nothing was said of waiting.  Raises WaitTimeout, OwnerUnavailable.
    """
    if waiting.within_s is None:
        return 0
    context, quiet = waiting.context, waiting.goal is QUIET

    def plan() -> Json:
        found: Json = patiently(lambda: context.api.get(plan_path(name)))
        return found

    def left() -> str:
        found = plan()
        counts = found["plan"]["counts"]
        reached: bool = found["settled"] if not quiet else not any(counts.get(status) for status in HELD)
        if reached and quiet:
            stopped = ("cancelled", "paused", "ready", "delayed")
            tasks = find_tasks(context, plan=name, names=stopped, limit=TASKS_MAX)
            reached = not any(task["atWork"] for task in tasks)
        return "" if reached else f"{name} will not go on"

    def late() -> tuple[str, str]:
        return f"{name} goes on: {_progress(plan()['plan'])} done", f"muster plan show {name}"

    def show(events: list[Json]) -> None:
        waiting.show(events, "plan", (name,))

    waiting.until(left, late, show)
    if waiting.screen is not None:
        show(waiting.events(0))
    return 0 if quiet else _outcome(waiting, plan()["plan"])


def _outcome(waiting: Waiting, plan: Json) -> int:
    name, screen = plan["name"], waiting.screen
    if boxes := patiently(lambda: plan_sync.tick_boxes(waiting.context.api, name)):
        note(f"boxes of {name}: {boxes}")
    if screen is not None:
        screen.line(f"{name}  {_progress(plan)}  {screen.counts(plan['counts'])}")
        if plan["paused"]:
            screen.line(paused_line(plan))
    return EXIT_UNSUCCESSFUL if plan["counts"].keys() - _ENDED else 0


def _list(args: argparse.Namespace) -> int:
    with connect(args) as context:
        plans: list[Json] = context.api.get("/api/v1/plans")

    def show(screen: Screen) -> None:
        for plan in plans:
            _tell(plan, screen)
        if not plans:
            screen.line(no_rows(args, "plans"))

    print_rows(args, plans, show, names=lambda: names_of("PlanView"))
    return 0


def _pause(args: argparse.Namespace) -> int:
    """Or resume it."""
    with connect(args) as context:
        name = _named(context, args.name)
        waiting = Waiting(args, context)
        moved: Json = context.post(plan_path(name, args.verb))
        told = "paused; what runs goes on" if moved["paused"] else "goes on"
        return _end(waiting, moved, lambda: print(f"{clean(name)}  {told}"))


def _cancel(args: argparse.Namespace) -> int:
    with connect(args) as context:
        name = _named(context, args.name)
        waiting = Waiting(args, context)
        done: Json = context.post(plan_path(name, "cancel"), reason=args.reason)
        stopped = f", {done['stopped']} of them while they ran" if done["stopped"] else ""
        told = f"{clean(done['plan'])}  {counted(done['cancelled'], 'task')} cancelled{stopped}"
        return _end(
            waiting, {key: done[key] for key in ("plan", "cancelled", "stopped")}, lambda: print(told)
        )


def _forget(args: argparse.Namespace) -> int:
    with connect(args) as context:
        done: Json = context.post(plan_path(_named(context, args.name), "forget"))
    cancelled = f", {done['cancelled']} of them cancelled" if done["cancelled"] else ""
    told = f"{clean(done['plan'])}  forgotten: {counted(done['archived'], 'task')} archived{cancelled}"
    kept = {key: done[key] for key in ("plan", "cancelled", "archived")}
    return answer(args, kept, f"{told}; its file may be taken in anew")


def _show(args: argparse.Namespace) -> int:
    with connect(args) as context:
        name = _named(context, args.name)
        found: Json = context.api.get(plan_path(name))
        items: list[Json] = context.api.get(plan_path(name, "items"))
        tasks = find_tasks(context, plan=name, names=(), limit=TASKS_MAX)
    whole = {**found, "items": items, "tasks": tasks}
    print_one(
        args,
        {**found["plan"], **whole, "plan": found["plan"]["name"]},
        lambda screen: _print_plan(found, items, tasks, screen),
        whole=whole,
    )
    return 0


def _print_plan(found: Json, items: list[Json], tasks: list[Json], screen: Screen) -> None:
    _tell(found["plan"], screen)
    if found["plan"]["source"]:
        screen.line(f"  {clean(found['plan']['source'])}")
    if found["plan"]["usage"]:
        screen.line(f"  {usage_words(found['plan']['usage'])}")
    plan_items.show(items, screen)
    if tasks:
        table(tasks, screen)


def _graph(args: argparse.Namespace) -> int:
    with connect(args) as context:
        name, tasks = _tasks(context, args.name)
        looks = {
            task["id"]: task["state"] for task in find_tasks(context, plan=name, names=(), limit=TASKS_MAX)
        }
    found = plan_graph.graph_of(tasks, looks)
    if args.json:
        print_json({"plan": name, "tasks": tasks, "edges": plan_graph.edges(found)})
        return 0
    screen = Screen(args.color)
    lines = plan_graph.dot(found, name) if args.dot else plan_graph.mermaid(found)
    for line in lines if args.dot or args.mermaid else plan_graph.tree(found, screen):
        screen.line(line)
    return 0


def _tasks(context: Context, text: str) -> tuple[str, list[Json]]:
    name = _named(context, text)
    tasks: list[Json] = context.api.get(plan_path(name, "tasks"))
    return name, tasks


def _export(args: argparse.Namespace) -> int:
    with connect(args) as context:
        name, tasks = _tasks(context, args.name)
        if args.json and not args.items:
            print_json({"plan": name, "tasks": tasks})
            return 0
        items: list[Json] = context.api.get(plan_path(name, "items")) if args.items else []
        config = context.settings()
    return plan_items.export(args, name, items, tasks, config)


def _merge(args: argparse.Namespace) -> int:
    from muster.cli import plan_merge

    with connect(args) as context:
        name = _named(context, args.name)
        refuse_attempts(context.api, "merge")
        source: str | None = context.api.get(plan_path(name))["plan"]["source"]
        tasks = context.api.get(plan_path(name, "tasks"))
    done = frozenset(task["box"] for task in tasks if task["status"] == TaskStatus.COMPLETED)
    return plan_merge.run(args, context.project, name, source, done)


def _named(context: Context, text: str) -> str:
    """The name of the plan that is meant: also by its file."""
    if text.endswith(".md"):
        source = text if context.here is None else context.here.source_of(text)
        for plan in context.api.get("/api/v1/plans"):
            if plan["source"] in {source, text}:
                name: str = plan["name"]
                return name
    return text


def _progress(plan: Json) -> str:
    """`3 of 5`."""
    completed, wanted = progress(plan["counts"])
    return f"{completed} of {wanted}"


def _tell(plan: Json, screen: Screen) -> None:
    screen.line(f"{clean(plan['name'])}  {_progress(plan)}  {screen.counts(plan['counts'])}")
    if plan["paused"]:
        screen.line(f"  {screen.badge('paused')}  {clean(paused_line(plan))}")
