"""`muster down`: lets the workers finish what they hold, then ends everything."""

from __future__ import annotations

import argparse
import os
import signal
import time
from contextlib import closing, suppress

from muster.app.crew import CONTROL_S
from muster.app.ending import bring_down, holding_still, is_up
from muster.app.interrupts import DRAIN, STOP, Interrupts
from muster.app.settings import load_config
from muster.cli.context import Context, actor, attempt_headers, connect_to, project_of, refuse_attempts
from muster.cli.feed import EventPrinter, running
from muster.cli.output import clean, note, ref_of
from muster.cli.plan_sync import unticked
from muster.client.api import Api, task_path
from muster.client.http import Connection
from muster.config.project import Project
from muster.config.settings import Config
from muster.hosts.file_lock import holder
from muster.model.errors import BadConfig, MusterError, NotAllowed, OwnerUnavailable, StoreFault, Unavailable
from muster.model.states import TaskStatus

EXIT_OK = 0
SERVER_END_S = 20.0
"""It answers who still asks, and gives up the coordinator's place."""


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--now", action="store_true", help="stop running agents with a checkpoint at once")


def run(args: argparse.Namespace) -> int:
    project = project_of(args)
    show = EventPrinter(as_json=args.json, colour=args.color)
    if project.shares_store:
        return _end_server(project, show)
    if not is_up(project):
        show.say("Nothing is up.")
        return EXIT_OK
    held: list[str] | None = None

    def look() -> None:
        """Until the owner tells what runs: one that was stopped does once it was told to go on."""
        nonlocal held
        if held is None and (held := _held(project)) and not args.now:
            show.say(f"Draining: {', '.join(held)} (Ctrl-C: checkpoint, stop and give them back now)")

    look()
    if still := holding_still(project):
        show.say(
            f"Stopped  {', '.join(still)} (SIGSTOP): told to go on, to give back what they hold, and to end"
        )
    elif held is None:
        show.say("The owner does not answer; its supervisor is told to end it")
    with Interrupts(STOP if args.now else DRAIN).counting() as interrupts:
        try:
            bring_down(
                project, _config(project), say=show.say, actor=actor(), interrupts=interrupts, look=look
            )
        except StoreFault as error:
            show.say(f"Stopped. The store needs a person: {error.hint}")
            return EXIT_OK
    _say_what_is_left(project, held or [], show)
    show.say("Stopped. `muster up` resumes where it stopped.")
    return EXIT_OK


def _end_server(project: Project, show: EventPrinter) -> int:
    """One of several: workers go on, and the other servers answer them."""
    pid = holder(project.owner_lock)
    if pid is None:
        show.say("Nothing is up.")
        return EXIT_OK
    api = Api(Connection(project.socket), attempt_headers(project), reply_s=CONTROL_S)
    with closing(api), suppress(OwnerUnavailable):
        refuse_attempts(api, "down")
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGTERM)
    deadline_s = time.monotonic() + SERVER_END_S
    while holder(project.owner_lock) == pid:
        if time.monotonic() > deadline_s:
            raise Unavailable(f"server {pid} has not ended in {SERVER_END_S:.0f} s", f"kill -9 {pid}")
        time.sleep(0.05)  # nobody tells that a process of somebody else has ended
    show.say("Stopped. Other servers of its store go on.")
    return EXIT_OK


def _config(project: Project) -> Config:
    """Nobody has to mend the settings to end a crew."""
    try:
        return load_config(project.root)
    except BadConfig as error:
        note(f"{error.message}; the defaults say how long agents may take to end")
        return Config()


def _held(project: Project) -> list[str] | None:
    """References of what runs; None where the owner that tells hangs.  Raises NotAllowed inside of a task."""
    with closing(Api(Connection(project.socket), attempt_headers(project), reply_s=CONTROL_S)) as api:
        try:
            refuse_attempts(api, "down")
            return running(api)
        except NotAllowed:
            raise
        except MusterError:
            return None


def _say_what_is_left(project: Project, held: list[str], show: EventPrinter) -> None:
    """Opens the store once for both: what others have to go on with, and boxes that are not as their tasks."""
    unknown = [f"what became of {', '.join(held)}"] if held else []
    unknown.append("whether boxes of completed tasks are still to be ticked")
    try:
        with connect_to(project) as context:
            if back := _given_back(context, held):
                show.say(f"Given back: {', '.join(back)}")
            del unknown[:-1]
            # The owner has ticked what it could as it ended: what is left is tried once more, to say why.
            for plan in context.api.get("/api/v1/plans"):
                if plan["source"] is not None and (why := unticked(context.api, plan["name"])):
                    show.say(f"Boxes    {clean(plan['name'])}: {why}")
    except MusterError as error:
        note(f"{error.message}; not known: {' and '.join(unknown)}")


def _given_back(context: Context, held: list[str]) -> list[str]:
    """Those of the tasks that somebody else has to go on with."""
    ids = [context.task_id(reference)[0] for reference in held]
    tasks = [context.api.get(task_path(task_id))["task"] for task_id in ids]
    return [
        clean(ref_of(task)) for task in tasks if task["status"] in (TaskStatus.PENDING, TaskStatus.ABORTED)
    ]
