"""Ends the crew of a project from another process: `muster down`."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

from muster.app.crew import OWNER_END_S, STATUS_S, STEP_WORDS, STOP_S, SupervisedCrew
from muster.app.interrupts import DRAIN, KILL, Interrupts, ask
from muster.client.http import answers
from muster.config.identity import look
from muster.config.project import Project
from muster.config.settings import Config
from muster.hosts.file_lock import holder
from muster.hosts.local_host import LocalHost
from muster.hosts.process_table import read_proc, wait_for_ends
from muster.ports.host import ProcessId
from muster.worker.supervisor import TICK_S, recorded


def is_up(project: Project) -> bool:
    """Whether there is a supervisor, an owner or a worker, also one that hangs or cannot be reached."""
    supervised = holder(project.supervisor_lock) is not None
    return supervised or answers(project.socket) or bool(left_running(project))


def left_running(project: Project) -> list[tuple[str, ProcessId]]:
    """The living processes that the project's last supervisor has started: names and ids."""
    found = look(project)
    return [] if found.copied else recorded(project.crew_file, LocalHost(), found.id, project.folder)[1]


def holding_still(project: Project) -> list[str]:
    """Who of the crew was stopped by a signal, and hears of nothing before it goes on."""
    named = [("supervisor", holder(project.supervisor_lock) or 0)]
    named += [(name, process.pid) for name, process in left_running(project)]
    return [f"{name} (pid {pid})" for name, pid in named if (proc := read_proc(pid)) and proc.stopped]


def bring_down(
    project: Project,
    config: Config,
    *,
    say: Callable[[str], None],
    actor: str,
    interrupts: Interrupts,
    look: Callable[[], None],
) -> None:
    """Has the supervisor end its crew; where there is none, or it does not obey, does so itself.

    `look` is called while it waits for the supervisor.

    Raises StoreFault once everybody has ended, where the store is not sound.
    """
    there = _processes(project)
    try:
        _await_supervisor(project, config, say, interrupts, look)
        if is_up(project):
            with SupervisedCrew(project, config, 0, say=say, actor=actor, interrupts=interrupts) as crew:
                crew.adopt()
                crew.wind_down()
    finally:
        _await_end(there, say)


def _processes(project: Project) -> set[ProcessId]:
    pids = {holder(project.supervisor_lock), holder(project.owner_lock)} - {None, os.getpid()}
    found = {LocalHost().identify(pid) for pid in pids if pid is not None}
    return {process for _, process in left_running(project)} | {process for process in found if process}


def _await_end(there: set[ProcessId], say: Callable[[str], None]) -> None:
    """Locks are free, and workers killed, a moment before their processes have ended."""
    if left := wait_for_ends(there, OWNER_END_S):
        pids = ", ".join(str(process.pid) for process in left)
        say(f"Left     still ending after {OWNER_END_S:.0f} s: pid {pids}")


def _await_supervisor(
    project: Project,
    config: Config,
    say: Callable[[str], None],
    interrupts: Interrupts,
    look: Callable[[], None],
) -> None:
    deadline_s = time.monotonic() + config.workers.drain_s + 2 * STOP_S
    asked, asked_s = 0, 0.0
    while (supervisor := holder(project.supervisor_lock)) is not None:
        level = interrupts.level if time.monotonic() < deadline_s else KILL
        if level > asked or time.monotonic() - asked_s > STATUS_S:
            if level > max(asked, DRAIN):
                say(STEP_WORDS[level])
            if asked:
                look()
            asked, asked_s = level, time.monotonic()
            ask(supervisor, level)
        time.sleep(TICK_S / 2)  # nobody tells that a lock is free, and Ctrl-C wakes nobody
