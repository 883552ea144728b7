"""Who would get what of a plan, and when, before anything is added."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from operator import itemgetter
from types import MappingProxyType

from muster.app.plan_tasks import Assigned, Chosen, assign
from muster.cli import plan_order
from muster.cli.output import Screen, clean, print_json
from muster.config.settings import Config
from muster.model.edits import PlanDocument
from muster.model.json_value import Json
from muster.model.profiles import GENERAL_PURPOSE, Choice, required
from muster.model.rows import Lane, WorkerRow
from muster.model.states import FREE, TaskStatus
from muster.model.wording import counted
from muster.plans.order import waves

NO_ORDER = Chosen(FREE)


def show_takers(
    args: argparse.Namespace,
    document: PlanDocument,
    config: Config,
    ended: Mapping[str, str] = MappingProxyType({}),
    chosen: Chosen = NO_ORDER,
) -> int:
    """`ended` are the statuses of tasks that nobody would get, by key; people are told only how many."""
    found = takers(document, config, chosen, ended)
    if args.json:
        print_json(found)
        return 0
    screen = Screen(args.color)
    for line in (*plan_order.told(document, chosen), *plan_order.drawn(found["waves"])):
        screen.line(clean(line))
    _print_takers(document.name, found["tasks"], screen)
    return 0


def takers(
    document: PlanDocument,
    config: Config,
    chosen: Chosen,
    ended: Mapping[str, str] = MappingProxyType({}),
) -> Json:
    """Who would get what, and when, for programs."""
    from muster.app.parts import worker_of

    crew = worker_of(config)
    rows: list[Json] = []
    for assigned in assign(document, config):
        task = assigned.task
        if task.is_group:
            continue
        status = ended.get(task.key)
        agents = [] if status else _takers(assigned, crew)
        rows.append(
            {
                "key": task.key,
                "title": task.title,
                "done": task.done or status == TaskStatus.COMPLETED,
                "status": status,
                "after": task.depends_on,
                "agents": agents,
                "profile": assigned.profile,
                "why": f"it is {status}" if status else _why(assigned, agents, config),
            }
        )
    told = {"order": chosen.order, "orderWhy": chosen.why, "waves": waves(document.tasks, ended)}
    return {"plan": document.name, **plan_order.recognised(document), **told, "tasks": rows}


_CELLS: Mapping[str, Callable[[Json], object]] = {
    "TASK": itemgetter("key"),
    "AFTER": lambda row: ",".join(row["after"]) or "-",
    "AGENT": lambda row: ", ".join(row["agents"]) or "-",
    "PROFILE": lambda row: row["profile"] or "-",
    "WHY": itemgetter("why"),
}


def _print_takers(plan: str, rows: list[Json], screen: Screen) -> None:
    listed = [row for row in rows if not row["done"] and not row["status"]]
    if listed:
        screen.table(listed, _CELLS, give="WHY")
    words = ("completed" if row["done"] else (row["status"] or "").lower() for row in rows)
    counts = Counter(filter(None, words))
    ended = ", ".join(f"{number} {word}" for word, number in sorted(counts.items()))
    told = f"{clean(plan)}: {counted(len(rows), 'task')}"
    screen.line(told + (f" (not listed: {ended})" if ended else "") + "; nothing was changed")


def _takers(assigned: Assigned, crew: WorkerRow) -> list[str]:
    """Its agents, the one that is asked first in front."""
    if assigned.task.done:
        return []
    if _is_program(assigned, crew.agents):
        return [assigned.agent or ""]
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


def _is_program(assigned: Assigned, configured: Collection[str]) -> bool:
    """An agent that is in no settings has registered by itself: others were refused before."""
    return assigned.agent is not None and assigned.agent not in configured


def _why(assigned: Assigned, agents: list[str], config: Config) -> str:
    task = assigned.task
    if task.done:
        return "its box is ticked"
    if not agents:
        needs = [*task.capabilities, *([f"target {task.target}"] if task.target else [])]
        if not needs:
            return "it names no agent and there is none for such tasks: set `agent` in muster.toml"
        return f"nobody offers {', '.join(needs)}: it waits until somebody does"
    parts = []
    if _is_program(assigned, config.agents):
        parts.append("agent= names it, a program that has registered")
    elif task.agent is not None:
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
