"""`muster up`: the owner and the workers, until `muster down` or Ctrl-C."""

from __future__ import annotations

import argparse
import logging
import os
import subprocess
import time
from contextlib import ExitStack, closing, suppress

from muster.app.crew import READY_S, SupervisedCrew
from muster.app.interrupts import Interrupts
from muster.app.parts import last_words, make_state_dir, python_module, upgraded
from muster.app.settings import load_config
from muster.cli.attention import Attention
from muster.cli.context import actor, project_of
from muster.cli.copied import confirm_copy
from muster.cli.feed import EventPrinter, Feed
from muster.cli.fields import answer
from muster.cli.plan_changed import changed_meanwhile
from muster.cli.worker import worker_count
from muster.client.api import Api
from muster.client.http import Connection, answers
from muster.config.project import Project
from muster.config.settings import Config, cores
from muster.hosts.file_lock import holder
from muster.hosts.log_file import LogFile, place_in
from muster.hosts.logs import JSON, log_as, log_lines
from muster.hosts.service_manager import ServiceManager
from muster.model.errors import Conflict, OwnerUnavailable, StoreFault, Unavailable
from muster.model.wording import counted

log = logging.getLogger(__name__)

EXIT_OK, EXIT_INTERRUPTED = 0, 130
LISTEN_S = 5.0
"""How long an owner that answers may take until it listens for others."""


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--daemon", action="store_true", help="in the background, output to .muster/muster.log"
    )
    parser.add_argument(
        "--workers", type=worker_count, metavar="N", help="worker processes (default: as configured)"
    )


def run(args: argparse.Namespace) -> int:
    project = project_of(args)
    config = load_config(project.root)
    refuse_two(project)
    confirm_copy(project)
    return _daemon(project, args) if args.daemon else _supervise(args, project, config)


def refuse_two(project: Project) -> None:
    supervisor = holder(project.supervisor_lock)
    if supervisor is not None:
        raise Conflict(f"the crew of {project.root} is up already (pid {supervisor})", "muster status")


def _supervise(args: argparse.Namespace, project: Project, config: Config) -> int:
    remark = None
    if config.log.format == JSON:
        log_lines("supervisor", LogFile(project.log_file))
        log_as(JSON)
        remark = log.info
    attention = Attention(project.root.name, config.notify)
    show = EventPrinter(
        as_json=args.json or remark is not None, colour=args.color, remark=remark, attention=attention
    )
    count = args.workers or config.workers.number(cores())
    manager = ServiceManager.taken_from(os.environ)
    begins = LogFile(project.log_file).end()
    with Interrupts(reloads=bool(manager)).counting() as interrupts:
        try:
            crew = SupervisedCrew(
                project,
                config,
                count,
                say=show.say,
                actor=actor(),
                interrupts=interrupts,
                manager=manager,
            )
        except OwnerUnavailable:
            refuse_two(project)
            raise
        with ExitStack() as stack, crew:
            if crew.start():
                if words := upgraded(project.log_file, begins):
                    show.say(words)
                show.say(f"Up       {counted(count, 'worker')}; `muster down` or Ctrl-C stops them")
                if serving := getattr(args, "serving", ""):
                    show.say(f"Serving  {_listening(crew.control, serving)}")
                if token := getattr(args, "first_token", ""):
                    show.say(f"Token    in {token}")
                for words in changed_meanwhile(crew.control):
                    show.say(words)
                feed = Feed(project, crew.last_event(), show)
                stack.enter_context(closing(feed))
            crew.work_until(lambda: False)
            crew.wind_down()
        show.say("Stopped. `muster up` resumes where it stopped.")
        return EXIT_INTERRUPTED if interrupts.by_hand else EXIT_OK


def _listening(owner: Api, url: str) -> str:
    """What to say of where others reach it, once it listens there."""
    deadline_s = time.monotonic() + LISTEN_S
    while time.monotonic() < deadline_s:
        with suppress(Unavailable):
            if owner.get("/api/v1/owner")["listening"] == url:
                return url
        time.sleep(0.05)  # it answers already, and tells nobody when it listens
    return f"nobody yet: {url} cannot be listened on, and is tried again; .muster/muster.log says why"


def _daemon(project: Project, args: argparse.Namespace) -> int:
    make_state_dir(project)
    argv = [*python_module("muster.cli.main"), "-C", str(project.root), "up"]
    if args.workers is not None:
        argv += ["--workers", str(args.workers)]
    with project.log_file.open("ab") as log_file:
        begins = place_in(log_file.fileno())
        process = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=log_file,
            stderr=log_file,
            start_new_session=True,
            cwd=project.root,
        )
    deadline_s = time.monotonic() + READY_S
    while holder(project.supervisor_lock) != process.pid or not answers(project.socket):
        if process.poll() is not None or time.monotonic() > deadline_s:
            goes_on = "" if process.poll() is not None else " (it goes on trying: `muster down` ends it)"
            words = last_words(project.log_file, begins)
            raise StoreFault(f"the crew did not start: {words}{goes_on}", "muster doctor")
        time.sleep(0.05)
    if words := upgraded(project.log_file, begins):
        log.warning("%s", words)
    api, serving = Api(Connection(project.socket)), getattr(args, "serving", "")
    more = [f"Serving  {_listening(api, serving)}"] if serving else []  # by then it is the owner that stays
    owner = api.get("/api/v1/owner")["pid"]
    # The daemon outlives this command on purpose.
    process.returncode = 0
    told = f"Up       supervisor pid {process.pid}, owner pid {owner}; `muster down` stops them"
    if token := getattr(args, "first_token", ""):
        more.append(f"Token    in {token}")
    more += changed_meanwhile(api)
    return answer(args, {"supervisor": process.pid, "owner": owner}, told, *more)
