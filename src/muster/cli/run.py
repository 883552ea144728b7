"""`muster run PLAN`: a plan goes in, a crew works on it, and the command ends when the plan has settled."""

from __future__ import annotations

import argparse
import math
import time
from pathlib import Path
from typing import Any

from muster.cli.context import actor, answers, connect, refuse_foreign
from muster.cli.copied import confirm_copy
from muster.cli.crew import READY_S, STATUS_S, TICK_S, Crew, Feed, Interrupts, cores, running
from muster.cli.plan_common import paused_line, tick_boxes
from muster.cli.plan_input import add_plan, dry_run, plan_body, project_for
from muster.cli.printer import EventPrinter
from muster.cli.worker import worker_count
from muster.client.api import Api, plan_path
from muster.client.http import Connection
from muster.config.identity import look
from muster.config.load import load_config
from muster.config.project import Project
from muster.config.settings import Config
from muster.model.errors import BadInput, MusterError, OwnerUnavailable, Unavailable

EXIT_OK, EXIT_UNSUCCESSFUL, EXIT_INTERRUPTED = 0, 5, 130
TOLD_MAX = 10


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("plan", metavar="PLAN", help="a markdown file with `- [ ]` tasks")
    parser.add_argument(
        "--workers", type=worker_count, metavar="N", help="worker processes (default: as configured)"
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="show which agent would get each task, and why; run nothing"
    )


def run(args: argparse.Namespace) -> int:
    from muster.cli.plan_given import STDIN, Given
    from muster.plans.files import read_plan

    if args.plan == STDIN:
        raise BadInput(
            "run works on a file, whose boxes it ticks; nothing was started",
            "write the plan to a file, or: muster plan add - --name NAME --wait, while a crew is up",
        )
    path = Path(args.plan)
    given = Given(read_plan(path), path)
    project = project_for(args, given)
    refuse_foreign(project)
    config = load_config(project.root)
    if args.dry_run:
        return dry_run(args, given, project, config)
    confirm_copy(project)
    content = plan_body(given, config, project)
    show = EventPrinter(as_json=args.json, colour=args.color)
    if not config.writers:
        return _work(args, project, config, content, show)
    from muster.cli.trees import unseen_changes, where_the_work_is

    _say(show, unseen_changes(config, project))
    code = _work(args, project, config, content, show)
    _say(show, where_the_work_is(config, project, given.document.name))
    return code


def _say(show: EventPrinter, text: str) -> None:
    if text:
        show.say(text)


def _work(
    args: argparse.Namespace, project: Project, config: Config, content: dict[str, Any], show: EventPrinter
) -> int:
    deadline_s = time.monotonic() + READY_S
    while True:
        if _supervised(project):
            # One of a place that the project was moved away from ends by itself.
            if look(project).origin is None and answers(project.socket):
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


def _supervised(project: Project) -> bool:
    from muster.hosts.file_lock import holder

    return holder(project.supervisor_lock) is not None


def _last_event(api: Api) -> int:
    last: int = api.get("/api/v1/crew")["lastEventId"]
    return last


def _attached(project: Project, content: dict[str, Any], show: EventPrinter) -> int:
    api = Api(Connection(project.socket))
    pid = api.get("/api/v1/status")["owner"]["pid"]
    show.say(f"Owner    already up (pid {pid}); Ctrl-C leaves it at work, `muster down` stops it")
    after = _last_event(api)
    name = add_plan(api, content, show.say)
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
                    f"The crew has ended before {name} was done. The same command resumes where it stopped."
                )
                return EXIT_UNSUCCESSFUL
            time.sleep(TICK_S)
    feed.close()
    try:
        return _sum_up(api, name, started_s, show)
    except Unavailable:
        # Whoever had the crew has ended it, because this plan was the last: the store tells the rest.
        with connect(argparse.Namespace(root=str(project.root))) as context:
            return _sum_up(context.api, name, started_s, show)


def _supervising(crew: Crew, project: Project, content: dict[str, Any], show: EventPrinter) -> int:
    with Interrupts().counting() as interrupts:
        try:
            crew.start()
            count = len(crew.supervisor.workers)
            show.say(
                f"Crew     {count} {'worker' if count == 1 else 'workers'}, state in {project.state_dir}"
            )
            after = crew.last_event()
            name = add_plan(crew.api, content, show.say)
            feed = Feed(project, after, show.event, show.footer, name)
            started_s = time.monotonic()
            settled = _until_settled(crew, name, interrupts)
            code = _outcome(crew, name, started_s, show, feed) if settled else EXIT_INTERRUPTED
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
            show.say("Stopped. The same command resumes where it stopped.")
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
    asked_s = -math.inf
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

    try:
        return bool(api.get(plan_path(name))["settled"])
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


def _outcome(crew: Crew, name: str, started_s: float, show: EventPrinter, feed: Feed) -> int:
    """The summary and its exit code, through a restart of the owner: nothing here may skip the winding down."""
    feed.close()
    deadline_s = time.monotonic() + READY_S
    while True:
        try:
            return _sum_up(crew.api, name, started_s, show)
        except MusterError as error:
            if not isinstance(error, Unavailable) or time.monotonic() > deadline_s:
                show.say(f"How it ended is not known, for {error.message}; `muster status` tells")
                return error.exit_code
        crew.tick()
        time.sleep(TICK_S)


def _sum_up(api: Api, name: str, started_s: float, show: EventPrinter) -> int:

    tasks = api.get("/api/v1/agent-tasks", {"plan": name, "limit": 100_000})
    plan = api.get(plan_path(name))["plan"]
    boxes = tick_boxes(api, name)
    counts: dict[str, int] = {}
    for task in tasks:
        word = "blocked" if task["status"] == "PENDING" and task["unmet"] else task["status"].lower()
        counts[word] = counts.get(word, 0) + 1
    took_s = time.monotonic() - started_s
    show.say(
        f"{name}: " + ", ".join(f"{n} {word}" for word, n in sorted(counts.items())) + f" in {took_s:.1f} s"
    )
    # A person has decided that these are not wanted: no failure, but worth a line.
    unwanted = [task for task in tasks if task["status"] == "CANCELLED"]
    stuck = [task for task in tasks if task["status"] not in ("COMPLETED", "ARCHIVED", "CANCELLED")]
    stuck.sort(key=lambda task: task["status"] != "FAILED")  # causes before what waits for them
    for tasks_told in (stuck, unwanted):
        for task in tasks_told[:TOLD_MAX]:
            show.say(f"  {task['plan']}/{task['key']}  {task['why']}")
        if len(tasks_told) > TOLD_MAX:
            show.say(f"  and {len(tasks_told) - TOLD_MAX} more: muster task list --plan {name}")
    if boxes:
        show.say(f"Boxes    {boxes}")
    if not stuck:
        return EXIT_OK
    if plan["paused"]:
        show.say(f"Paused   {paused_line(plan)}")
    show.say(f"Why      muster task show {stuck[0]['plan']}/{stuck[0]['key']}")
    return EXIT_UNSUCCESSFUL
