"""Workers on this host for a server elsewhere, under supervision: started again when they die."""

from __future__ import annotations

import os
import secrets
import signal
import time
from collections.abc import Callable
from pathlib import Path

from muster.app.agents import agents_of
from muster.app.interrupts import DRAIN, Interrupts
from muster.app.leftovers import Leftovers, kill_leftovers
from muster.app.parts import make_state_dir, python_module
from muster.client.remote import ServerPlaces
from muster.config.identity import look, record_anew, settle, worker_key
from muster.config.project import Project
from muster.config.settings import Config
from muster.hosts.file_lock import Lock, holder
from muster.hosts.given_file import sweep
from muster.hosts.local_host import LocalHost, become_subreaper
from muster.hosts.plain_files import replace_plain
from muster.hosts.process_tree import kill_recorded
from muster.model.errors import Conflict, OwnerUnavailable, StoreRefused
from muster.worker.supervisor import TICK_S, Supervisor

KILL_S = 5.0
"""For the processes of workers that were killed."""
KNOWN_S = 10.0
"""Whoever has lived this long was let in by the server."""


def refuse_other_work(project: Project, server: str) -> None:
    """Raises Conflict in a folder that has tasks of its own, or works for another server: tasks have numbers,
    which each store gives out anew.  Of servers that share a store others may come and go, while one is the same.
    BadInput for what is no URL."""
    ServerPlaces(server)
    if project.has_begun:
        raise Conflict(
            f"{project.folder} has a store of its own; no worker was started",
            "mkdir a folder for the worker, with a muster.toml that names its agents, and start it there",
        )
    path = project.server_file
    known = path.read_text("utf-8").strip() if path.exists() else server
    if set(known.split(",")).isdisjoint(server.split(",")):
        raise Conflict(
            f"{project.folder} has worked for {known}; no worker was started",
            f"use another folder, or: rm {path}",
        )


def _take(project: Project) -> Lock:
    """Raises Conflict."""
    try:
        return Lock.take(project.supervisor_lock)
    except OwnerUnavailable:
        pid = holder(project.supervisor_lock)
        raise Conflict(
            f"workers run in {project.folder} already (pid {pid or '?'}); none was started",
            f"for more of them end those (kill {pid or 'PID'}), then start with -n; or start these in a folder "
            "of their own",
        ) from None


def adopt_host(project: Project) -> Path | None:
    """Makes a copied folder of workers one of its own: another identity, another key at the server (S19).

    What its original's workers had begun is theirs, and lies aside from now on: returns where, if there is any.
    Raises Conflict where the folder is no copy, or workers run in it.
    """
    if not look(project).copied:
        server = project.server_file.read_text("utf-8").strip() if project.server_file.exists() else "URL"
        fix = f"muster worker start --server {server}"
        raise Conflict(f"{project.folder} is no copy; nothing was changed", fix)
    lock = _take(project)
    try:
        aside = project.state_dir / f"of-{look(project).id}-{secrets.token_hex(2)}"
        parts = (
            project.attempts_dir,
            project.worktrees_dir,
            project.owed_dir,
            project.far_repository_dir,
            project.bundles_in_dir.parent,
            project.workers_dir,
        )
        begun = [path for path in parts if path.is_dir() and any(path.iterdir())]
        if begun:
            aside.mkdir(mode=0o700)
        for path in begun:
            path.rename(aside / path.name)
        for path in (project.worker_key_file, project.crew_file):
            path.unlink(missing_ok=True)
        # Last: killed before, a copy is one still.
        record_anew(project)
        return aside if begun else None
    finally:
        lock.release()


class RemoteCrew:
    def __init__(
        self,
        project: Project,
        config: Config,
        *,
        server: str,
        token: str,
        workers: int,
        say: Callable[[str], None],
    ) -> None:
        """Raises Conflict as refuse_other_work, and where others are supervised here."""
        refuse_other_work(project, server)
        agents_of(config, project)
        make_state_dir(project)
        self._lock = _take(project)
        self._project = project
        self._server = server
        project_id = settle(project)
        replace_plain(project.server_file, server.encode())
        worker_key(project)  # one for all of them
        self._host = LocalHost(project_id)
        become_subreaper()
        if token:
            os.environ["MUSTER_TOKEN"] = token  # where no list of processes shows it
        self._supervisor = Supervisor(
            self._host,
            project.log_file,
            project.crew_file,
            owner_argv=(),
            worker_argv=[*python_module("muster.app.worker"), str(project.root), server],
            workers=workers,
            say=say,
            project=project_id,
            folder=project.folder,
        )
        self._supervisor.owner.due_s = None
        self._supervisor.adopt()

    def work(self, interrupts: Interrupts) -> None:
        """Until all have drained: by the first interrupt, or as each was asked to; the second one kills.

        A server that ends is waited for.

        Raises MusterError where none can start.
        """
        supervisor, leftovers = self._supervisor, Leftovers()
        try:
            while not supervisor.drained():
                if not self._lock.in_place:
                    raise self._displaced()
                supervisor.tick()
                leftovers.look(supervisor.own_pids)
                if interrupts.level > DRAIN:
                    break
                if interrupts.level and not supervisor.draining:
                    supervisor.drain()
                    for child in supervisor.workers:
                        if child.pid is not None:
                            os.kill(child.pid, signal.SIGTERM)
                if not supervisor.draining:
                    self._know()
                    supervisor.refuse_hopeless()
                time.sleep(TICK_S)
            if not supervisor.draining:
                supervisor.refuse_hopeless()
        finally:
            self._kill()
            self._lock.release()

    def _kill(self) -> None:
        """Workers, and what their agents have started: that is looked for once a worker is gone, which may be a
        moment after its signal."""
        supervisor, deadline_s = self._supervisor, time.monotonic() + KILL_S
        supervisor.kill_workers()
        while not supervisor.drained() and time.monotonic() < deadline_s:
            supervisor.tick()
            time.sleep(TICK_S / 10)
        for attempts_dir in self._attempts_dirs():
            kill_recorded(attempts_dir, self._host)
            sweep(attempts_dir)
        while kill_leftovers(supervisor.own_pids) and time.monotonic() < deadline_s:
            time.sleep(TICK_S / 10)

    def _attempts_dirs(self) -> set[Path]:
        """Also where the folder is now, when it was moved; a worker may have begun at the old place once more."""
        now = self._lock.path_now
        known = self._project.attempts_dir
        return {known} if now is None else {known, now.parent / known.name}

    def _displaced(self) -> StoreRefused:
        """What a worker would do now, it would do in an empty folder."""
        now, state_dir = self._lock.path_now, self._project.state_dir
        begin = f"worker start --server {self._server}"
        if now is None:
            what, how = f"{state_dir} was deleted or replaced", f"muster {begin}"
        elif now.parent.name == state_dir.name:
            place = now.parent.parent
            what, how = f"{self._project.folder} was moved to {place}", f"muster -C {place} {begin}"
        else:
            what, how = (
                f"{state_dir} was moved to {now.parent}",
                f"mv {now.parent} {state_dir}; muster {begin}",
            )
        return StoreRefused(
            f"{what} while workers were at work there; they are ended, and others do their tasks", how
        )

    def _know(self) -> None:
        for child in self._supervisor.workers:
            if child.pid is not None and time.monotonic() - child.started_s > KNOWN_S:
                child.registered, child.failures = True, 0
