"""`muster down`: lets the workers finish what they hold, then ends everything."""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import time
from collections.abc import Callable

from muster.cli.context import actor, answers, attempt_headers, project_of
from muster.cli.crew import STOP_BY_S, TICK_S, Interrupts, running
from muster.cli.printer import EventPrinter
from muster.client.api import Api
from muster.client.http import Connection
from muster.config.project import Project
from muster.model.errors import MusterError, OwnerUnavailable, Unavailable

EXIT_OK, EXIT_INTERRUPTED = 0, 130
SUPERVISOR_END_S, SUPERVISOR_LOOK_S = 10.0, 0.01
HALTED_STEP_S = 0.3
"""Between the signals that bring a supervisor from draining to killing."""
HALTED_END_S = 20.0


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--now", action="store_true", help="stop running agents with a checkpoint at once")


def run(args: argparse.Namespace) -> int:
    project = project_of(args)
    show = EventPrinter(as_json=args.json, colour=args.color)
    if not answers(project.socket):
        show.say("Nothing is up.")
        return EXIT_OK
    api = Api(Connection(project.socket), attempt_headers(project))
    if api.get("/api/v1/status")["halted"] is not None:
        return _end_halted(project, api, show)
    body = {"actor": actor()}
    with Interrupts().counting() as interrupts:
        api.post("/api/v1/crew", {**body, "status": "STOPPED"})
        held = running(api)
        if args.now:
            api.post("/api/v1/crew/stop", {**body, "stopByS": STOP_BY_S})
        elif held:
            show.say(f"Draining: {', '.join(held)} (Ctrl-C: checkpoint, stop and give them back now)")
        done = 0
        while not _ended(project, api):
            if interrupts.count > done:
                done = interrupts.count
                if done == 1:
                    show.say("stopping: agents are interrupted and give their tasks back (Ctrl-C: kill)")
                    _quietly(lambda: api.post("/api/v1/crew/stop", {**body, "stopByS": STOP_BY_S}))
                else:
                    show.say("killing the workers")
                    _kill(api)
            time.sleep(TICK_S)
    _await_supervisor(project)
    show.say("Stopped. `muster up` resumes where it stopped.")
    return EXIT_OK


def _await_supervisor(project: Project) -> None:
    """It ends a moment after its owner; until then it would refuse the next crew."""
    from muster.hosts.file_lock import holder

    deadline_s = time.monotonic() + SUPERVISOR_END_S
    while holder(project.supervisor_lock) is not None and time.monotonic() < deadline_s:
        time.sleep(SUPERVISOR_LOOK_S)


def _end_halted(project: Project, api: Api, show: EventPrinter) -> int:
    """Nobody can be told to drain where nothing can be written: what runs is killed, and resumed later."""
    from muster.hosts.file_lock import holder

    show.say("The store is halted: nothing can be given back, so the crew is killed.")
    deadline_s = time.monotonic() + HALTED_END_S
    while (owner := holder(project.owner_lock)) is not None:
        supervisor = holder(project.supervisor_lock)
        if supervisor is None:
            _kill(api)
        if time.monotonic() > deadline_s:
            raise OwnerUnavailable(f"process {owner} holds the store and does not end", f"kill {owner}")
        with contextlib.suppress(ProcessLookupError):
            os.kill(owner if supervisor is None else supervisor, signal.SIGTERM)
        time.sleep(HALTED_STEP_S)
    show.say("Stopped. `muster doctor` says what the store needs.")
    return EXIT_OK


def _ended(project: Project, api: Api) -> bool:
    from muster.hosts.file_lock import holder

    if holder(project.owner_lock) is None:
        return True
    # With no supervisor left, nobody else would end the owner.
    if holder(project.supervisor_lock) is None:
        _quietly(lambda: _shut_down_when_idle(api))
    return False


def _shut_down_when_idle(api: Api) -> None:
    if not api.get("/api/v1/workers"):
        api.post("/api/v1/shutdown", {})


def _kill(api: Api) -> None:
    try:
        workers = api.get("/api/v1/workers")
    except MusterError:
        return
    for worker in workers:
        try:
            os.kill(worker["pid"], signal.SIGKILL)
        except ProcessLookupError:
            continue


def _quietly(call: Callable[[], object]) -> None:
    """The owner may end while we speak to it: that is what we want."""
    try:
        call()
    except Unavailable:
        return
