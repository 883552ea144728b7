"""`muster demo`: a real crew on a real plan, with two of its workers hurt on the way.

Nothing is canned: the supervisor, the owner and the workers are those of `muster run`, the agents are
processes that build a small package in a git repository, and every word about them was read from what they
left behind.
"""

from __future__ import annotations

import argparse
import os
import signal
import threading
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from muster.app.crew import SupervisedCrew
from muster.app.interrupts import Interrupts
from muster.cli.context import actor
from muster.cli.demo import checks, project, show, story
from muster.cli.demo.evidence import Evidence, Fault, LateWrite, read_ledger
from muster.cli.output import Screen, print_json
from muster.cli.plan_file import Given, plan_body
from muster.cli.printer import EventPrinter
from muster.cli.run import EXIT_INTERRUPTED
from muster.config.load import load_config
from muster.config.project import Project
from muster.model.errors import MusterError, Unavailable

WORKERS = 3
FREQUENT = ("checkpoint", "progress")
"""Events that would bury the others on a terminal."""
LIMIT_S = 120.0
EXIT_OK, EXIT_FAILED = 0, 1


def add(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        f"Builds a small Python package with {WORKERS} workers, kills one of them and stops another, and "
        "checks afterwards that nothing was lost or done by two.  Needs git, but no keys and no network, and "
        "takes less than a minute."
    )
    parser.add_argument("--keep", action="store_true", help="keep the folder afterwards")
    parser.add_argument("--dir", metavar="DIR", help="work in this new or empty folder, and leave it")


def run(args: argparse.Namespace) -> int:
    started_s = time.monotonic()
    project.refuse_without_git()
    screen = EventPrinter(as_json=args.json, colour=args.color)
    with Interrupts().counting() as interrupts:
        folder = project.choose_folder(args.dir)
        keep = args.keep or args.dir is not None
        try:
            with project.own_settings(folder):
                return _demo(args, folder, screen, interrupts, started_s, keep=keep)
        except (story.Interrupted, MusterError) as error:
            # Ctrl-C reaches git and the like, too: then their failure is no news.
            if isinstance(error, MusterError) and not interrupts.count:
                raise
            screen.say("Interrupted: everything was stopped.")
            return EXIT_INTERRUPTED
        finally:
            _leave(folder, screen, keep=keep)


def _leave(folder: Path, screen: EventPrinter, *, keep: bool) -> None:
    if keep:
        screen.say(f"Kept     {folder}   (try there: muster status, muster task list, git log)")
    elif not project.remove(folder):
        screen.say(f"note: {folder} could not be removed whole")


def _demo(
    args: argparse.Namespace,
    folder: Path,
    printer: EventPrinter,
    interrupts: Interrupts,
    started_s: float,
    *,
    keep: bool,
) -> int:
    project.make(folder)
    printer.say(f"Folder   {folder}, a new git repository")
    printer.say("Agents   real processes; scripts stand in for models, so no key is needed")
    where = Project(folder)
    faults, late = _work(where, printer, interrupts, hide=() if args.json else FREQUENT)
    found = _evidence(where, late, faults)
    recoveries = [checks.recovery(found, fault) for fault in faults]
    code, output = project.use_package(folder)
    verdicts = [*checks.check_all(found), checks.came_back(recoveries), checks.works(code, output)]
    commits = project.git(folder, "log", "--oneline").splitlines()
    ok = all(verdict.holds for verdict in verdicts)
    took_s = time.monotonic() - started_s
    if args.json:
        print_json(
            show.as_json(
                ok=ok,
                seconds=took_s,
                folder=str(folder) if keep else None,
                checks=verdicts,
                found=recoveries,
                late=late,
                output=output,
                commits=commits,
            ),
            lines=True,
        )
    else:
        screen = Screen(args.color)
        show.built(screen, output, commits)
        show.recoveries(screen, recoveries)
        show.promises(screen, verdicts)
        screen.line()
        screen.line(f"{'All of it holds' if ok else 'NOT ALL OF IT HOLDS'}; {took_s:.1f} s in all")
    return EXIT_OK if ok else EXIT_FAILED


def _evidence(where: Project, late: Collection[LateWrite], faults: Collection[Fault]) -> Evidence:
    from muster.app.history import allowed_changes, history_of

    ledger = read_ledger(where.root / project.LEDGER_FILE)
    return Evidence(
        history=history_of(where.store, [line.deed() for line in ledger]),
        ledger=ledger,
        late_writes=tuple(late),
        faults=tuple(faults),
        allowed=tuple(allowed_changes(where.store)),
    )


def _work(
    where: Project, printer: EventPrinter, interrupts: Interrupts, *, hide: Collection[str]
) -> tuple[list[Fault], list[LateWrite]]:
    """The plan, from its first task to its last.  When this returns or raises, no process is left."""
    from muster.plans.files import read_plan

    config = load_config(where.root)
    document = read_plan(where.root / project.PLAN_FILE)
    content = plan_body(Given(document, where.root / project.PLAN_FILE), config, where)
    crew = SupervisedCrew(where, config, WORKERS, say=printer.say, actor=actor(), interrupts=interrupts)
    with _swept(where, crew):
        crew.start()
        added = crew.api.post("/api/v1/plans", content)
        printer.say(f"Crew     {WORKERS} workers; plan {added['plan']} with {added['added']} tasks")
        stage = story.Stage(where, crew, added["plan"], printer, interrupts, hide=hide)
        limit = _Limit(crew, interrupts)
        try:
            faults, late = story.play(stage, config.health.lease_s)
            stage.close()
            stage.waits_for = "the workers to end"
            crew.wind_down()
            if interrupts.count:
                raise story.Interrupted
        except (story.Interrupted, Unavailable):
            limit.refuse(stage.waits_for)
            raise
        finally:
            limit.cancel()
            stage.close()
        saved = sum(event["event"] == "checkpoint" for event in stage.events)
        printer.say(f"--- done; {saved} checkpoints were saved{', not shown above' if hide else ''}")
    return faults, late


class _Limit:
    """Whatever hangs, the demo ends: after LIMIT_S it is interrupted, and who waits for the owner goes on."""

    def __init__(self, crew: SupervisedCrew, interrupts: Interrupts) -> None:
        self._crew = crew
        self._interrupts = interrupts
        self._over = False
        self._timer = threading.Timer(LIMIT_S, self._end)
        self._timer.daemon = True
        self._timer.start()

    def cancel(self) -> None:
        self._timer.cancel()

    def refuse(self, waits_for: str) -> None:
        """Raises MusterError where it was the limit that interrupted, and no person."""
        if self._over:
            self._interrupts.count = 0
            raise MusterError(
                f"the demo was to end in {LIMIT_S:.0f} s and still waits for {waits_for}",
                "muster demo --keep, then read .muster/muster.log there",
            )

    def _end(self) -> None:
        self._over = True
        self._interrupts.count = 3
        pid = self._crew.supervisor.owner.pid
        if pid is not None:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


@contextmanager
def _swept(where: Project, crew: SupervisedCrew) -> Iterator[None]:
    """Ends the crew in any case, and whatever is left of its agents."""
    from muster.hosts.local_host import LocalHost

    try:
        yield
    except BaseException:
        crew.kill()
        # Closed already where winding it down was interrupted late.
        with suppress(OSError):
            crew.close()
        raise
    finally:
        LocalHost().kill_marked([f"MUSTER_ROOT={where.root}"])
