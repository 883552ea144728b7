"""`muster down`: lets the workers finish what they hold, then ends everything."""

from __future__ import annotations

import argparse
from contextlib import closing

from muster.app.crew import CONTROL_S, bring_down, is_up
from muster.app.interrupts import DRAIN, STOP, Interrupts
from muster.app.settings import load_config
from muster.cli.context import actor, attempt_headers, project_of
from muster.cli.feed import running
from muster.cli.output import note
from muster.cli.printer import EventPrinter
from muster.client.api import Api
from muster.client.http import Connection
from muster.config.project import Project
from muster.config.settings import Config
from muster.model.errors import BadConfig, MusterError, StoreFault

EXIT_OK = 0


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--now", action="store_true", help="stop running agents with a checkpoint at once")


def run(args: argparse.Namespace) -> int:
    project = project_of(args)
    show = EventPrinter(as_json=args.json, colour=args.color)
    if not is_up(project):
        show.say("Nothing is up.")
        return EXIT_OK
    with Interrupts(STOP if args.now else DRAIN).counting() as interrupts:
        if not args.now:
            _tell_what_runs(project, show)
        try:
            bring_down(project, _config(project), say=show.say, actor=actor(), interrupts=interrupts)
        except StoreFault as error:
            show.say(f"Stopped. The store needs a person: {error.hint}")
            return EXIT_OK
    show.say("Stopped. `muster up` resumes where it stopped.")
    return EXIT_OK


def _config(project: Project) -> Config:
    """Nobody has to mend the settings to end a crew."""
    try:
        return load_config(project.root)
    except BadConfig as error:
        note(f"{error.message}; the defaults say how long agents may take to end")
        return Config()


def _tell_what_runs(project: Project, show: EventPrinter) -> None:
    with closing(Api(Connection(project.socket), attempt_headers(project), reply_s=CONTROL_S)) as api:
        try:
            held = running(api)
        except MusterError:
            return
    if held:
        show.say(f"Draining: {', '.join(held)} (Ctrl-C: checkpoint, stop and give them back now)")
