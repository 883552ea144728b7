"""`muster plan show`, `graph` and `export`."""

from __future__ import annotations

import argparse
import sys

from muster.cli import plan_graph
from muster.cli.context import Context, connect
from muster.cli.fields import print_one
from muster.cli.output import BOLD, Screen, clean, inert, note, print_json
from muster.cli.plan_common import named, progress, tell
from muster.cli.task import find_tasks, table
from muster.client.api import plan_path
from muster.model.json_value import Json

TASKS_MAX = 100_000


def show(args: argparse.Namespace) -> int:
    with connect(args) as context:
        name = named(context, args.name)
        found: Json = context.api.get(plan_path(name))
        tasks = find_tasks(context, plan=name, names=(), limit=TASKS_MAX)
    whole = {**found, "tasks": tasks}
    print_one(
        args,
        {**found["plan"], **whole, "plan": found["plan"]["name"]},
        lambda: _print_plan(found, tasks, Screen(args.color)),
        whole=whole,
    )
    return 0


def _print_plan(found: Json, tasks: list[Json], screen: Screen) -> None:
    tell(found["plan"], screen)
    if found["plan"]["source"]:
        screen.line(f"  {clean(found['plan']['source'])}")
    for epic, counts in _epics(tasks).items():
        screen.line(f"  {screen.paint(clean(epic), BOLD)}  {progress({'counts': counts})}")
    if tasks:
        table(tasks, screen)


def _epics(tasks: list[Json]) -> dict[str, dict[str, int]]:
    """Tasks by epic and status; none where there is but one."""
    epics: dict[str, dict[str, int]] = {}
    for task in tasks:
        counts = epics.setdefault(task["epic"] or "(no epic)", {})
        counts[task["status"]] = counts.get(task["status"], 0) + 1
    return epics if len(epics) > 1 else {}


def graph(args: argparse.Namespace) -> int:
    with connect(args) as context:
        name, tasks = _tasks(context, args.name)
    found = plan_graph.graph_of(tasks)
    if args.json:
        edges = [[parent, child] for child, parents in found.parents.items() for parent in parents]
        print_json({"plan": name, "tasks": tasks, "edges": edges})
        return 0
    screen = Screen(args.color)
    if args.dot:
        lines = plan_graph.dot(found, name)
    elif args.mermaid:
        lines = plan_graph.mermaid(found)
    else:
        lines = plan_graph.tree(found, screen)
    for line in lines:
        screen.line(line)
    return 0


def _tasks(context: Context, text: str) -> tuple[str, list[Json]]:
    name = named(context, text)
    tasks: list[Json] = context.api.get(plan_path(name, "tasks"))
    return name, tasks


def export(args: argparse.Namespace) -> int:
    with connect(args) as context:
        name, tasks = _tasks(context, args.name)
        if args.json:
            print_json({"plan": name, "tasks": tasks})
            return 0
        root = context.project.root
    import msgspec

    from muster.app.settings import load_config
    from muster.model.edits import KeptTask
    from muster.model.errors import BadPlan
    from muster.model.profiles import Chooser
    from muster.plans.render import Usual, render

    config = load_config(root)
    usual = Usual(config.default_agent, int(config.task.timeout_s), config.task.retries)
    kept = msgspec.convert(tasks, list[KeptTask])
    choose = Chooser(config.profiles).choose
    guessed = {
        task.key: choose(task.title, task.description, f"{task.epic} {task.feature}").profile
        for task in kept
        if task.agent is None
    }
    try:
        rendered = render(name, kept, usual, guessed)
    except BadPlan as error:
        raise BadPlan(
            f"{name} cannot be written as a plan file:\n{error.message}", f"muster plan export {name} --json"
        ) from None
    print(inert(rendered.text) if sys.stdout.isatty() else rendered.text, end="")
    for lost in rendered.lost:
        note(lost)
    return 0
