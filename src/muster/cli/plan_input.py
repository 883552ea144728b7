"""A plan file on its way in: who is to do what, and the request that adds it."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from muster.cli.context import actor, start_folder
from muster.cli.output import Screen, clean, print_json
from muster.client.api import Api
from muster.config.project import Project, find_project
from muster.config.settings import Config
from muster.model.errors import BadPlan
from muster.model.plan import PlanDocument, PlanTask
from muster.model.profiles import GENERAL_PURPOSE, Choice, Chooser, by_words
from muster.model.rows import Lane, Worker
from muster.model.states import WorkerStatus
from muster.model.targets import required

Json = dict[str, Any]

SHOWN_MAX = 20


class Assigned(NamedTuple):
    task: PlanTask
    agent: str | None
    """The one agent that may do it; None: any that will do."""
    profile: str | None
    choice: Choice | None
    """How its words led to the profile."""


def project_for(args: argparse.Namespace, plan_folder: Path) -> Project:
    """The project that this command runs in; without one, the plan's folder becomes one."""
    if args.root is not None:
        return find_project(start_folder(args.root), {}) or Project(start_folder(args.root))
    return find_project(Path.cwd(), os.environ) or find_project(plan_folder, {}) or Project(plan_folder)


def assign(document: PlanDocument, config: Config) -> list[Assigned]:
    """An agent that is named goes before all else, then what the task asks for, then the usual agent of
    `muster.toml`; only what is left is matched by its words."""
    chooser = Chooser(config.profiles)
    found = []
    for task in document.tasks:
        asks = bool(task.capabilities or task.target)
        agent = task.agent or (None if asks or task.profile else config.default_agent)
        choice = None
        if by_words(task.agent, task.profile, asks=asks, usual=config.default_agent):
            choice = chooser.choose(task.title, task.description, f"{task.epic} {task.feature}")
        found.append(Assigned(task, agent, choice.profile if choice else task.profile, choice))
    return found


def plan_body(document: PlanDocument, path: Path, config: Config) -> Json:
    """The plan as the API takes it.  Raises BadPlan, with `file:line`, where a task has no agent."""
    _refuse_unmanned(document, path, config)
    tasks = [_task_body(assigned, config) for assigned in assign(document, config)]
    return {"plan": document.name, "source": str(path), "tasks": tasks, "actor": actor()}


def _task_body(assigned: Assigned, config: Config) -> Json:
    task = assigned.task
    return {
        "title": task.title,
        "description": task.description,
        "key": task.key,
        "agent": assigned.agent,
        "capabilities": task.capabilities,
        "profile": assigned.profile,
        "limit_key": task.limit_key,
        "on_failed": task.on_failed,
        "tags": task.tags,
        "metadata": task.metadata,
        "priority": task.priority,
        "sort_key": task.sort_key,
        "not_before_ms": task.not_before_ms,
        "delay_s": task.delay_s,
        "expires_at_ms": task.expires_at_ms,
        "expires_s": task.expires_s,
        "estimated_s": task.estimated_s,
        "target": task.target,
        "timeout_s": int(task.timeout_s or config.task.timeout_s),
        "max_retries": config.task.retries if task.retries is None else task.retries,
        "depends_on": task.after,
        "parent": task.parent,
        "done": task.done,
        "epic": task.epic,
        "feature": task.feature,
    }


def _refuse_unmanned(document: PlanDocument, path: Path, config: Config) -> None:
    """A shell is only asked where that was said: it would run prose as a script."""
    problems = []
    for task in document.tasks:
        where = f"{path.name}:{task.line}: task {task.key}"
        if task.agent is not None and task.agent not in config.agents:
            problems.append(f"{where} wants agent {task.agent}, which is not configured")
        elif task.agent is None and not task.done and not config.general:
            problems.append(f"{where} names no agent, and none is configured")
    if problems:
        more = f"\nand {len(problems) - SHOWN_MAX} more" if len(problems) > SHOWN_MAX else ""
        known = ", ".join(sorted(config.agents))
        raise BadPlan(
            "\n".join(problems[:SHOWN_MAX]) + more + "\nnothing was added",
            f"write agent=NAME (known: {known}; `shell` runs a task's text as a script), "
            'or add [agents.NAME], or `agent = "NAME"` for all, to muster.toml',
        )


def add_plan(api: Api, content: Json, say: Callable[[str], None]) -> str:
    """Adds what is new and says what that was.  The plan's name."""
    added = api.post("/api/v1/plans", content)
    name: str = added["plan"]
    new, known = added["added"], added["existing"]
    say(f"Plan     {name}: {new} {'task' if new == 1 else 'tasks'} added, {known} there already")
    if new and not known and name != content["plan"]:
        say(f"         not {content['plan']}: that is the plan of another file (muster plan list)")
    if added["completed"]:
        say(f"         completed by their boxes: {', '.join(added['completed'])}")
    if added["changed"]:
        keys = ", ".join(added["changed"][:5])
        say(f"         changed in the file, kept as they were added: {keys}")
        say("         muster plan diff PLAN.md shows it, muster plan add --update PLAN.md applies it")
    return name


def dry_run(args: argparse.Namespace, document: PlanDocument, path: Path, config: Config) -> int:
    """Who would get what, and why.  Nothing is written, nobody is started."""
    _refuse_unmanned(document, path, config)
    return show_takers(args, document, config)


def show_takers(args: argparse.Namespace, document: PlanDocument, config: Config) -> int:
    crew = _everybody(config)
    rows: list[Json] = []
    for assigned in assign(document, config):
        task = assigned.task
        agents = _takers(assigned, crew)
        rows.append(
            {
                "key": task.key,
                "title": task.title,
                "done": task.done,
                "after": task.after,
                "agents": agents,
                "profile": assigned.profile,
                "why": _why(assigned, agents, config),
            }
        )
    if args.json:
        print_json({"plan": document.name, "tasks": rows})
        return 0
    screen = Screen(args.color)
    head = ["TASK", "AFTER", "AGENT", "PROFILE", "WHY"]
    cells = [
        [
            clean(row["key"]),
            clean(",".join(row["after"]) or "-"),
            ", ".join(row["agents"]) or "-",
            clean(row["profile"] or "-"),
            clean(row["why"]),
        ]
        for row in rows
    ]
    screen.table(head, cells, give=4, looks=["completed" if row["done"] else "" for row in rows])
    screen.line(f"{document.name}: {len(rows)} {'task' if len(rows) == 1 else 'tasks'}; nothing was changed")
    return 0


def _everybody(config: Config) -> Worker:
    """A worker as this configuration would make it: it is matched as the real ones are."""
    from muster.app.parts import offers_of

    return Worker(
        id="",
        hostname="",
        pid=0,
        pid_start=0,
        boot_id="",
        slots=1,
        agents=tuple(config.agents),
        general=config.general,
        offers=offers_of(config),
        unfit={},
        status=WorkerStatus.IDLE,
        registered_at_ms=0,
        last_seen_at_ms=0,
        heard_mono_ms=0,
        ended_at_ms=None,
        for_good=False,
        reason="",
    )


def _takers(assigned: Assigned, crew: Worker) -> list[str]:
    """Its agents, the one that is asked first in front."""
    if assigned.task.done:
        return []
    lane = Lane(
        id=0,
        workspace_id=0,
        plan_id=0,
        agent=assigned.agent or "",
        capabilities=required(assigned.task.capabilities, assigned.task.target),
        profile=assigned.profile or "",
        limit_key="",
    )
    return lane.agents_for(crew)


def _why(assigned: Assigned, agents: list[str], config: Config) -> str:
    task = assigned.task
    if task.done:
        return "its box is ticked"
    if not agents:
        needs = [*task.capabilities, *([f"target {task.target}"] if task.target else [])]
        return f"nobody offers {', '.join(needs)}: it waits until somebody does"
    parts = []
    if task.agent is not None:
        parts.append("agent= names it")
    elif assigned.agent is not None:
        parts.append("`agent` of muster.toml")
    if task.capabilities:
        parts.append(f"cap= requires {', '.join(task.capabilities)}")
    if task.target is not None:
        parts.append(f"target= is {task.target}")
    if task.profile is not None:
        parts.append("profile= prefers it")
    elif assigned.choice is not None:
        parts.append(_words(assigned.choice))
    profile = assigned.profile
    if assigned.agent is None and profile not in (None, GENERAL_PURPOSE):
        best = [name for name in agents if profile in config.agents[name].profiles]
        parts.append(f"{best[0]} offers it" if best else "no agent offers it, so any may")
    return "; ".join(parts)


def _words(choice: Choice) -> str:
    if not choice.words:
        return "no word of [profiles]"
    said = f"words: {', '.join(choice.words)}"
    return said + (
        f" (tie with {', '.join(choice.ties)}: the first in [profiles] wins)" if choice.ties else ""
    )
