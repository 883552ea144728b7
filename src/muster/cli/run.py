"""`muster run PLAN`: a plan goes in, a crew works on it, and the command ends when the plan has settled."""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from contextlib import ExitStack, closing, suppress

from muster.app.crew import READY_S, SupervisedCrew, refuse_early
from muster.app.interrupts import Interrupts
from muster.app.plan_tasks import refuse_unmanned
from muster.app.settings import load_config
from muster.cli.attention import Attention
from muster.cli.context import actor, connect_to, refuse_foreign, refuse_server
from muster.cli.copied import confirm_copy
from muster.cli.feed import EventPrinter, Feed, running
from muster.cli.output import paused_line, ref_of, shell_word
from muster.cli.plan_changes import add_saying, find_out
from muster.cli.plan_file import (
    add_plan,
    dry_run,
    follow,
    in_order,
    others_in,
    others_of,
    plan_body,
    project_for,
)
from muster.cli.plan_options import add_order, add_which
from muster.cli.plan_order import unasked
from muster.cli.plan_sync import status_of, tick_boxes
from muster.cli.task import what_next
from muster.cli.trees import unseen_changes, where_agents_write, where_the_work_is
from muster.cli.worker import worker_count
from muster.client.api import Api, plan_path
from muster.client.http import Connection, answers
from muster.config.identity import look
from muster.config.project import Project
from muster.config.settings import Config, cores
from muster.hosts.file_lock import holder
from muster.model.errors import BadInput, MusterError, OwnerUnavailable, Unavailable, from_wire
from muster.model.file_conflicts import FileChange
from muster.model.json_value import Json
from muster.model.states import CrewStatus, PauseReason
from muster.model.wording import counted
from muster.worker.supervisor import TICK_S

EXIT_OK, EXIT_UNSUCCESSFUL, EXIT_INTERRUPTED = 0, 5, 130
TOLD_MAX = 10
_End = tuple[int, str]
"""The exit code, and the outcome in a word."""


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("plan", metavar="PLAN", help="a markdown file with `- [ ]` tasks")
    parser.add_argument(
        "--workers", type=worker_count, metavar="N", help="worker processes (default: as configured)"
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="show which agent would get each task, and why; run nothing"
    )
    parser.add_argument(
        "--update",
        action="store_true",
        help="also apply what was changed and taken out in the file since",
    )
    add_order(parser)
    add_which(parser)
    add_saying(parser)


def run(args: argparse.Namespace) -> int:
    from muster.cli.plan_file import STDIN, Given, named_in_utf8
    from muster.plans.files import read_plan

    if args.plan == STDIN:
        raise BadInput(
            "run works on a file, whose boxes it ticks; nothing was started",
            "write the plan to a file, or: muster plan add - --name NAME --wait, while a crew is up",
        )
    refuse_server(args)
    path = named_in_utf8(args.plan)
    given = Given(read_plan(path), path)
    project = project_for(args, given)
    refuse_foreign(project)
    config = load_config(project.root)
    refuse_early(project, config, 0)
    if args.dry_run:
        return dry_run(args, given, project, config)
    confirm_copy(project)
    others = others_in(project, given)
    refuse_unmanned(given.document, config, given.short, others)
    _await_old_crew(project)
    if project.store.exists():
        with connect_to(project) as context:
            follow(args, context.api, project, given)
            given, chosen = in_order(args, context.api, given, config, given.source(project), ask=True)
            content = plan_body(given, config, project, others_of(context, given), chosen)
            find_out(args, context.api, content)
    else:
        given, chosen = in_order(args, None, given, config, None, ask=True)
        content = plan_body(given, config, project, others, chosen)
    attention = Attention(project.root.name, config.notify)
    show = EventPrinter(as_json=args.json, colour=args.color, attention=attention)
    show.say((order := unasked(given.document, chosen)) and f"Order    {order}")
    show.say(where_agents_write(config, project, content["plan"], content["tasks"]))
    show.say(unseen_changes(config, project))
    goal = _Goal(project, content, show, update=args.update)
    try:
        code, outcome = _work(args, config, goal, show)
    except Exception as error:
        goal.tell(getattr(error, "exit_code", 1), "error")
        raise
    show.say(where_the_work_is(config, project, goal.name))
    return goal.tell(code, outcome)


def _await_old_crew(project: Project) -> None:
    """One whose folder was moved away from under it is about to end."""
    deadline_s = time.monotonic() + READY_S
    while look(project).origin is not None and time.monotonic() < deadline_s:
        if holder(project.supervisor_lock) is None:
            return
        time.sleep(TICK_S)


def _work(args: argparse.Namespace, config: Config, goal: _Goal, show: EventPrinter) -> _End:
    project = goal.project
    deadline_s = time.monotonic() + READY_S
    workers = args.workers or config.workers.number(cores())
    while True:
        with Interrupts().counting() as interrupts:
            if holder(project.supervisor_lock) is None:
                with suppress(OwnerUnavailable):  # another one was faster at this very moment: join its crew
                    crew = SupervisedCrew(
                        project, config, workers, say=show.say, actor=actor(), interrupts=interrupts
                    )
                    return _supervising(crew, workers, goal, show, interrupts)
            elif answers(project.socket):
                with closing(Api(Connection(project.socket))) as api:
                    feed = None
                    with suppress(
                        OwnerUnavailable
                    ):  # it has ended at this very moment, or its owner starts anew
                        feed = _join(api, args, goal, show)
                    if feed is not None:
                        return _attached(api, feed, goal, show, interrupts)
        if time.monotonic() > deadline_s:
            raise OwnerUnavailable(f"the crew of {project.root} neither starts nor ends", "muster doctor")
        time.sleep(TICK_S)


def _join(api: Api, args: argparse.Namespace, goal: _Goal, show: EventPrinter) -> Feed:
    """Gives the plan to the crew that is up.  Raises OwnerUnavailable."""
    pid = api.get("/api/v1/owner")["pid"]
    show.say(f"Owner    already up (pid {pid}); Ctrl-C leaves it at work, `muster down` stops it")
    crew = api.get("/api/v1/crew")
    if args.workers is not None:
        _say_workers(args.workers, len(crew["workers"]), show)
    if crew["crew"] == CrewStatus.PAUSED:
        show.say("Crew     paused: it takes no new tasks. `muster orchestrator resume` lets it go on")
    goal.begin(api)
    return Feed(goal.project, crew["lastEventId"], show, goal.name)


def _attached(api: Api, feed: Feed, goal: _Goal, show: EventPrinter, interrupts: Interrupts) -> _End:
    project = goal.project
    while not goal.reached(api):
        if interrupts.count:
            feed.close()
            show.say("Detached; the crew goes on. `muster watch` follows it, `muster down` stops it.")
            return EXIT_INTERRUPTED, "detached"
        if not answers(project.socket) and holder(project.supervisor_lock) is None:
            if goal.was_reached():
                break
            feed.close()
            _refuse_unsound(project)
            show.say(
                f"The crew has ended before {goal.name} was done. The same command resumes where it stopped."
            )
            return EXIT_UNSUCCESSFUL, "crew ended"
        time.sleep(TICK_S)
    feed.close()
    try:
        return goal.sum_up(api)
    except Unavailable:
        # Whoever had the crew has ended it, because this plan was the last: the store tells the rest.
        with connect_to(project) as context:
            return goal.sum_up(context.api)


def _say_workers(wanted: int, up: int, show: EventPrinter) -> None:
    more = f"; more: muster worker start -n {wanted - up}" if wanted > up else ""
    show.say(f"Workers  the crew that is up has {up}; --workers {wanted} changes nothing{more}")


def _refuse_unsound(project: Project) -> None:
    """Raises StoreFault where that is why the crew has ended."""
    with suppress(Unavailable), connect_to(project) as context:
        halted = context.api.get("/api/v1/owner")["halted"]
        if halted:
            raise from_wire(**halted)


def _supervising(
    crew: SupervisedCrew, count: int, goal: _Goal, show: EventPrinter, interrupts: Interrupts
) -> _End:
    end: _End | None = None
    with ExitStack() as stack, crew:
        if crew.start():
            show.say(f"Crew     {counted(count, 'worker')}, state in {goal.project.state_dir}")
            after = crew.last_event()
            goal.begin(crew.api)
            feed = stack.enter_context(closing(Feed(goal.project, after, show, goal.name)))
            if crew.work_until(lambda: goal.reached(crew.control)):
                feed.close()
                end = _outcome(crew, goal, show)
                _work_for_others(crew, goal.name, show)
        if interrupts.level:
            _say_drain(crew, show)
        crew.wind_down()
    if end is None:
        show.say("Stopped. The same command resumes where it stopped.")
    return end or (EXIT_INTERRUPTED, "stopped")


def _work_for_others(crew: SupervisedCrew, own: str, show: EventPrinter) -> None:
    """Other plans of this project have the same crew: somebody may be waiting for them."""
    told: list[str] = []

    def settled() -> bool:
        nonlocal told
        with suppress(MusterError):
            names = [plan["name"] for plan in crew.control.get("/api/v1/status")["status"]["plans"]]
            others = [name for name in names if name != own and not _settled(crew.control, name)]
            if others and others != told:
                show.say(f"Crew     goes on with {', '.join(others)} (Ctrl-C: drain)")
            told = others
        return not told

    crew.work_until(settled)


def _settled(api: Api, name: str) -> bool:
    """False as well while the owner is away."""
    try:
        return bool(api.get(plan_path(name))["settled"])
    except Unavailable:
        return False


def _say_drain(crew: SupervisedCrew, show: EventPrinter) -> None:
    held: list[str] = []
    with suppress(MusterError):
        held = running(crew.control)
    waits = f"waiting for {', '.join(held)} (Ctrl-C: checkpoint, stop and give them back)"
    show.say(f"Draining: {waits if held else 'nothing is running'}")


def _outcome(crew: SupervisedCrew, goal: _Goal, show: EventPrinter) -> _End:
    """The summary and how it ended, through a restart of the owner: nothing here may skip the winding down."""
    deadline_s = time.monotonic() + READY_S
    while True:
        try:
            return goal.sum_up(crew.api)
        except MusterError as error:
            if not isinstance(error, Unavailable) or time.monotonic() > deadline_s:
                show.say(f"How it ended is not known, for {error.message}; `muster status` tells")
                return error.exit_code, "unknown"
        crew.tick()
        time.sleep(TICK_S)


class _Goal:
    """What a run waits for: that its plan has settled, and that nobody in front of it is asked anything."""

    def __init__(self, project: Project, content: Json, show: EventPrinter, *, update: bool = False) -> None:
        """`content` is the plan, as it is added."""
        self.project = project
        self.name: str = content["plan"]
        self._content = content
        self._update = update
        self._show = show
        self._started_s = time.monotonic()
        self._told: set[str] = set()
        self._added = False
        self._result: Json = {"counts": None, "left": None, "boxes": None}

    def begin(self, api: Api) -> None:
        self.name = add_plan(api, self._content, self._show.say, update=self._update)
        self._added = True

    def reached(self, api: Api) -> bool:
        if not _settled(api, self.name):
            return False
        asked = self._asked(api) if self._show.attended else []
        for command in asked:
            if command not in self._told:
                self._show.say(f"Waiting  for an answer: {command} (Ctrl-C: end)")
        self._told = set(asked)
        return not asked

    def was_reached(self) -> bool:
        """For a crew that has ended: between two looks of `reached` its last task may have been done."""
        with suppress(Unavailable), connect_to(self.project) as context:
            return _settled(context.api, self.name)
        return False

    def _asked(self, api: Api) -> list[str]:
        try:
            paused = api.get("/api/v1/agent-tasks", {"plan": self.name, "status": "paused"})
        except Unavailable:
            return []
        return [what_next(task)[0] for task in paused if task["pausedReason"] == PauseReason.QUESTION]

    def tell(self, code: int, outcome: str) -> int:
        """For programs: the last line, after every end.  Returns the code."""
        if self._show.as_json and self._added and self._result["counts"] is None:
            with suppress(MusterError, OSError):  # the store may be what it ended for
                if self.project.store.exists():
                    with connect_to(self.project) as context:
                        self._look(context.api)
        took_s = round(time.monotonic() - self._started_s, 3)
        told = {"plan": self.name, "outcome": outcome, "exitCode": code, "tookS": took_s}
        self._show.result(told | self._result)
        return code

    def _look(self, api: Api) -> tuple[list[Json], list[Json]]:
        """(what is left to do or has failed, what else is worth a line), causes before what waits for them."""
        counts: dict[str, int] = {}
        tasks = sorted(
            api.rows("/api/v1/agent-tasks", {"plan": self.name}), key=lambda task: task["status"] != "FAILED"
        )
        for task in tasks:
            counts[task["state"]] = counts.get(task["state"], 0) + 1
        stuck = [task for task in tasks if task["status"] not in ("COMPLETED", "ARCHIVED", "CANCELLED")]
        stuck += _open_again(api, self.name, tasks)
        left = [{"ref": ref_of(task), "status": task["status"], "why": task["why"]} for task in stuck]
        self._result |= {"counts": counts, "left": left}
        # What a person has cancelled is no failure, nor is what was done without all that its agent wanted to do.
        return stuck, [
            task
            for task in tasks
            if task["status"] == "CANCELLED" or (task["status"] == "COMPLETED" and task["refused"])
        ]

    def sum_up(self, api: Api) -> _End:
        """Raises Unavailable."""
        name, show = self.name, self._show
        stuck, noted = self._look(api)
        plan = api.get(plan_path(name))["plan"]
        boxes = self._result["boxes"] = tick_boxes(api, name)
        counts = self._result["counts"]
        told = ", ".join(f"{n} {word}" for word, n in sorted(counts.items()))
        show.say(f"{name}: {told} in {time.monotonic() - self._started_s:.1f} s")
        for tasks_told in (stuck, noted):
            for task in tasks_told[:TOLD_MAX]:
                show.say(f"  {ref_of(task)}  {task['why']}")
            if len(tasks_told) > TOLD_MAX:
                show.say(f"  and {len(tasks_told) - TOLD_MAX} more: muster task list --plan {name}")
        if boxes:
            show.say(f"Boxes    {boxes}")
        if stuck:
            if plan["paused"]:
                show.say(f"Paused   {paused_line(plan)}")
            if stuck[0]["status"] != "ARCHIVED":
                show.say(f"Why      muster task show {shell_word(ref_of(stuck[0]))}")
        return (EXIT_UNSUCCESSFUL, "unfinished") if stuck else (EXIT_OK, "done")


def _open_again(api: Api, plan: str, tasks: Sequence[Json]) -> list[Json]:
    """What was put away, and has an open box all the same, of which nobody has said that it stays so."""
    put_away = {task["key"]: task for task in tasks if task["status"] == "ARCHIVED"}
    if not put_away:
        return []
    found = api.get(plan_path(plan, "sync"))
    open_boxes = {one["key"] for one in found["conflicts"] if one["kind"] == FileChange.ADDED}
    open_boxes |= {key for key, kind, *_ in found["untaken"] if kind == FileChange.ADDED}
    why = f"is archived, and its box is open: {status_of(plan)}"
    return [{**put_away[key], "why": why} for key in sorted(open_boxes & put_away.keys())]
