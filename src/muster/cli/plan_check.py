"""`muster plan check`: what a plan file holds, and all that looks odd in it."""

from __future__ import annotations

import argparse
from collections.abc import Collection

from muster.app.parts import repository_of
from muster.app.plan_tasks import UNKNOWN, Others, choose_order, unknown_agents
from muster.app.settings import load_config
from muster.cli import plan_order
from muster.cli.context import connect, server_of
from muster.cli.output import Screen, clean, note, print_json
from muster.cli.plan_file import Given, named_in_utf8, others_in, others_of, project_for
from muster.config.project import Project
from muster.config.settings import Config
from muster.model.errors import BadPlan
from muster.model.wording import counted
from muster.plans.files import read_plan
from muster.plans.order import ordered, waves
from muster.plans.problems import Problems
from muster.worker.git import GitRefused

EXIT_DOUBTS = 1


def run(args: argparse.Namespace) -> int:
    """0 where all is clear, 1 where something looks odd.  Raises BadPlan (2) where it cannot be read."""
    doubts, path = Problems(args.plan, shown_max=None), named_in_utf8(args.plan)
    try:
        document = read_plan(path, doubts)
    except BadPlan:
        for line in doubts.told():
            note(clean(line))
        raise
    given = Given(document, path)
    project = project_for(args, given)
    config = load_config(project.root)
    chosen = choose_order(document, config, "", args.order)
    for task in unknown_agents(document, config, _others(args, project, given)):
        said = f"task {task.key} wants agent {task.agent}, {UNKNOWN}"
        doubts.add(task.line, said, task.agent or "", config.agents)
    tasks = [task for task in document.tasks if not task.is_group]
    groups = len(document.tasks) - len(tasks)
    found = waves(ordered(document, chosen.order).tasks)
    told = [*doubts.told(), *_of_git(config, project)]
    if args.json:
        about = {"order": chosen.order, "orderWhy": chosen.why, "waves": found, "warnings": told}
        counts = {"tasks": len(tasks), "groups": groups, "done": sum(task.done for task in tasks)}
        print_json({"plan": document.name, **plan_order.recognised(document), **counts, **about})
        return EXIT_DOUBTS if told else 0
    screen = Screen(args.color)
    for line in (*plan_order.told(document, chosen), *plan_order.drawn(found), *told):
        screen.line(clean(line))
    more = f", {counted(groups, 'group')}" if groups else ""
    odd = counted(len(told), "warning") if told else "nothing looks odd"
    screen.line(f"{clean(document.name)}: {counted(len(tasks), 'task')}{more}; {odd}")
    return EXIT_DOUBTS if told else 0


def _others(args: argparse.Namespace, project: Project, given: Given) -> Others:
    """As the server knows them, where one is meant that the plan would go to."""
    if server_of(args) is None:
        return others_in(project, given)

    def found() -> Collection[str]:
        with connect(args) as context:
            return others_of(context, given)()

    return found


def _of_git(config: Config, project: Project) -> list[str]:
    """Why no task would be started, where that is because of the repository."""
    try:
        repository_of(config, project)
    except GitRefused as error:
        return [f"no task would be started: {error.message}; {error.hint}"]
    return []
