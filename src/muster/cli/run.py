"""`muster run PLAN`: a plan goes in, a crew works on it, and the command ends when the plan has settled."""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path
from typing import Any

from muster.cli.context import actor, answers, start_folder
from muster.cli.crew import READY_S, STATUS_S, TICK_S, Crew, Feed, Interrupts, cores, running
from muster.cli.plan import paused_line
from muster.cli.printer import EventPrinter
from muster.client.api import Api
from muster.client.http import Connection
from muster.config.load import load_config
from muster.config.project import Project, find_project
from muster.config.settings import Config
from muster.model.errors import BadInput, BadPlan, MusterError, OwnerUnavailable, Unavailable

EXIT_OK, EXIT_UNSUCCESSFUL, EXIT_INTERRUPTED = 0, 5, 130


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("plan", metavar="PLAN", help="a markdown file with `- [ ]` tasks")
    parser.add_argument("--workers", type=int, metavar="N", help="worker processes (default: as configured)")


def run(args: argparse.Namespace) -> int:
    from muster.plans.files import read_plan

    if args.workers is not None and not 1 <= args.workers <= 64:
        raise BadInput(f"--workers {args.workers} is not between 1 and 64", "muster run PLAN --workers 3")
    path = Path(args.plan)
    document = read_plan(path)
    project = _project(args, path.resolve().parent)
    config = load_config(project.root)
    content = enqueue_body(document, path.resolve(), config)
    show = EventPrinter(as_json=args.json, colour=args.color)
    deadline_s = time.monotonic() + READY_S
    while True:
        if _supervised(project):
            if answers(project.socket):
                return _attached(project, content, show)
        else:
            try:
                crew = Crew(
                    project, config, args.workers or config.workers.number(cores()), show.say, actor()
                )
            except OwnerUnavailable:
                pass  # another one was faster at this very moment: attach to its crew
            else:
                return _supervising(crew, project, content, show)
        if time.monotonic() > deadline_s:
            raise OwnerUnavailable(f"the crew of {project.root} neither starts nor ends", "muster doctor")
        time.sleep(TICK_S)


def _project(args: argparse.Namespace, plan_folder: Path) -> Project:
    """The project that this command runs in; without one, the plan's folder becomes one."""
    if args.root is not None:
        return find_project(start_folder(args.root), {}) or Project(start_folder(args.root).resolve())
    return find_project(Path.cwd(), os.environ) or find_project(plan_folder, {}) or Project(plan_folder)


def enqueue_body(document: Any, path: Path, config: Config) -> dict[str, Any]:
    """The plan as the API takes it.  Raises BadPlan, with `file:line`, where a task has no agent."""
    _refuse_unmanned(document, path, config)
    tasks = []
    for task in document.tasks:
        asks = task.capabilities or task.profile  # then whoever offers that, not the usual agent
        tasks.append(
            {
                "title": task.title,
                "description": task.description,
                "key": task.key,
                "agent": task.agent or (None if asks else config.default_agent),
                "capabilities": task.capabilities,
                "profile": task.profile,
                "limit_key": task.limit_key,
                "on_failed": task.on_failed,
                "tags": task.tags,
                "priority": task.priority,
                "timeout_s": int(task.timeout_s or config.task.timeout_s),
                "max_retries": config.task.retries if task.retries is None else task.retries,
                "depends_on": task.after,
                "done": task.done,
                "epic": task.epic,
                "feature": task.feature,
            }
        )
    return {"plan": document.name, "source": str(path), "tasks": tasks, "actor": actor()}


def _refuse_unmanned(document: Any, path: Path, config: Config) -> None:
    """A shell is only asked where that was said: it would run prose as a script."""
    problems = []
    for task in document.tasks:
        where = f"{path.name}:{task.line}: task {task.key}"
        if task.agent is not None and task.agent not in config.agents:
            problems.append(f"{where} wants agent {task.agent}, which is not configured")
        elif task.agent is None and not task.done and not config.general:
            problems.append(f"{where} names no agent, and none is configured")
    if problems:
        more = f"\nand {len(problems) - 20} more" if len(problems) > 20 else ""
        known = ", ".join(sorted(config.agents))
        raise BadPlan(
            "\n".join(problems[:20]) + more + "\nnothing was added",
            f"write agent=NAME (known: {known}; `shell` runs a task's text as a script), "
            'or add [agents.NAME], or `agent = "NAME"` for all, to muster.toml',
        )


def _supervised(project: Project) -> bool:
    from muster.stores.sqlite.lock import holder

    return holder(project.supervisor_lock) is not None


def _add(api: Api, content: dict[str, Any], show: EventPrinter) -> str:
    added = api.post("/api/v1/plans", content)
    name: str = added["plan"]
    new, known = added["added"], added["existing"]
    show.say(f"Plan     {name}: {new} {'task' if new == 1 else 'tasks'} added, {known} there already")
    if added["completed"]:
        show.say(f"         completed by their boxes: {', '.join(added['completed'])}")
    if added["changed"]:
        keys = ", ".join(added["changed"][:5])
        show.say(f"         changed in the file, kept as they were added: {keys}")
    return name


def _last_event(api: Api) -> int:
    last: int = api.get("/api/v1/status")["status"]["lastEventId"]
    return last


def _attached(project: Project, content: dict[str, Any], show: EventPrinter) -> int:
    api = Api(Connection(project.socket))
    pid = api.get("/api/v1/status")["owner"]["pid"]
    show.say(f"Owner    already up (pid {pid}); Ctrl-C leaves it at work, `muster down` stops it")
    after = _last_event(api)
    name = _add(api, content, show)
    feed = Feed(project, after, show.event, show.footer, name)
    started_s = time.monotonic()
    with Interrupts().counting() as interrupts:
        while not _settled(api, name):
            if interrupts.count:
                feed.close()
                show.say("Detached; the crew goes on. `muster watch` follows it, `muster down` stops it.")
                return EXIT_INTERRUPTED
            if not answers(project.socket) and not _supervised(project):
                feed.close()
                show.say(
                    f"The crew has ended before {name} was done. The same command goes on where this left off."
                )
                return EXIT_UNSUCCESSFUL
            time.sleep(TICK_S)
    feed.close()
    return _sum_up(api, name, started_s, show)


def _supervising(crew: Crew, project: Project, content: dict[str, Any], show: EventPrinter) -> int:
    with Interrupts().counting() as interrupts:
        try:
            crew.start()
            count = len(crew.supervisor.workers)
            show.say(
                f"Crew     {count} {'worker' if count == 1 else 'workers'}, state in {project.state_dir}"
            )
            after = crew.last_event()
            name = _add(crew.api, content, show)
            feed = Feed(project, after, show.event, show.footer, name)
            started_s = time.monotonic()
            settled = _until_settled(crew, name, interrupts)
            code = _sum_up(crew.api, name, started_s, show, feed) if settled else EXIT_INTERRUPTED
            if settled:
                _work_for_others(crew, interrupts, show)
            if interrupts.count:
                _say_drain(crew, show)
            crew.wind_down(interrupts)
        except BaseException:
            crew.give_up()
            raise
        if not settled:
            feed.close()
            show.say("Stopped. The same command goes on where this left off.")
        return code


def _work_for_others(crew: Crew, interrupts: Interrupts, show: EventPrinter) -> None:
    """Other plans of this project have the same crew: somebody may be waiting for them."""
    told: list[str] = []
    while not interrupts.count and not crew.supervisor.drained():
        try:
            names = [plan["name"] for plan in crew.control.get("/api/v1/status")["status"]["plans"]]
            others = [name for name in names if not _settled(crew.control, name)]
        except MusterError:
            others = told
        if not others:
            return
        if others != told:
            told = others
            show.say(f"Crew     goes on with {', '.join(others)} (Ctrl-C: drain)")
        crew.tick()
        time.sleep(STATUS_S / 5)


def _until_settled(crew: Crew, name: str, interrupts: Interrupts) -> bool:
    """False on Ctrl-C, or when somebody else has drained the crew (`muster down`)."""
    asked_s = 0.0
    while not interrupts.count:
        crew.tick()
        if crew.supervisor.drained():
            return False
        if time.monotonic() - asked_s > STATUS_S / 5:
            asked_s = time.monotonic()
            if _settled(crew.control, name):
                return True
        time.sleep(TICK_S)
    return False


def _settled(api: Api, name: str) -> bool:
    """False as well while the owner is away."""
    from urllib.parse import quote

    try:
        return bool(api.get(f"/api/v1/plans/{quote(name, safe='')}")["settled"])
    except Unavailable:
        return False


def _say_drain(crew: Crew, show: EventPrinter) -> None:
    try:
        held = running(crew.control)
    except MusterError:
        held = []
    if held:
        show.say(f"Draining: waiting for {', '.join(held)} (Ctrl-C: checkpoint, stop and give them back)")
    else:
        show.say("Draining: nothing is running")


def _sum_up(api: Api, name: str, started_s: float, show: EventPrinter, feed: Feed | None = None) -> int:
    if feed is not None:
        feed.close()
    from urllib.parse import quote

    tasks = api.get("/api/v1/agent-tasks", {"plan": name, "limit": 100_000})
    counts: dict[str, int] = {}
    for task in tasks:
        word = "blocked" if task["status"] == "PENDING" and task["unmet"] else task["status"].lower()
        counts[word] = counts.get(word, 0) + 1
    took_s = time.monotonic() - started_s
    show.say(
        f"{name}: " + ", ".join(f"{n} {word}" for word, n in sorted(counts.items())) + f" in {took_s:.1f} s"
    )
    stuck = [task for task in tasks if task["status"] not in ("COMPLETED", "ARCHIVED")]
    if not stuck:
        return EXIT_OK
    for task in stuck[:10]:
        show.say(f"  {task['plan']}/{task['key']}  {task['why']}")
    plan = api.get(f"/api/v1/plans/{quote(name, safe='')}")["plan"]
    if plan["paused"]:
        show.say(f"Paused   {paused_line(plan)}")
    show.say(f"Why      muster task show {stuck[0]['plan']}/{stuck[0]['key']}")
    return EXIT_UNSUCCESSFUL
