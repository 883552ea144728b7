"""A worker and its agents.  `python -m muster.app.worker ROOT [URL,...]`, with its token in MUSTER_TOKEN"""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path

import msgspec

from muster.agents.inputs import base_env
from muster.app.agents import agents_of, take_seat
from muster.app.parts import local_trees, offers_of, run_logged, traced, trees_in, trees_of
from muster.app.predecessors import Predecessors
from muster.app.salvage import attempts_at_work
from muster.app.settings import load_config
from muster.client.crew import HttpCrew
from muster.client.remote import CA_FILE
from muster.client.reports import SERVER, SOCKET
from muster.config.identity import settle, worker_key
from muster.config.project import Project
from muster.config.settings import COMMAND, AgentConfig, Config
from muster.hosts.given_file import sweep
from muster.hosts.local_host import LocalHost, become_subreaper
from muster.hosts.logs import always_about, log_as
from muster.hosts.process import LocalLauncher
from muster.hosts.process_tree import kill_recorded
from muster.hosts.signal_thread import hear
from muster.model.commands import Traits
from muster.model.marks import TRAITS
from muster.runtimes.chance import SystemChance
from muster.worker.context import FarTrees, WorkerContext
from muster.worker.given import SecretsOfAgents
from muster.worker.room import Room
from muster.worker.supervisor import DECLARED_DEAD, DRAINED, SERVER_STOPPED
from muster.worker.upstream import Upstream
from muster.worker.worker import Worker

FAR_REPLY_S = 10.0
"""How long a server's answer may take: who waits longer has no time left before its lease ends."""


def asked_of(config: Config, usual: str, own: Callable[[AgentConfig], str | None]) -> dict[str, str]:
    """By agent, what is asked of its work.  Who only reads has none, unless it was said."""
    agents = config.agents.items()
    return {name: own(agent) or ("" if agent.writes is False else usual) for name, agent in agents}


def places_of(config: Config) -> dict[str, str]:
    """By agent, how it is told of a task's place in its plan: CLIs of models, and commands that ask for it."""
    told = {
        name
        for name, agent in config.agents.items()
        if agent.kind != COMMAND or any("{place}" in part for part in agent.command)
    }
    return dict.fromkeys(told, config.plan.place) if config.plan.place else {}


def _reach(project: Project, crew: HttpCrew) -> dict[str, str]:
    if not (servers := crew.servers):
        return {SOCKET: project.socket}
    trusted = os.environ.get(CA_FILE, "")
    return {SERVER: servers, **({CA_FILE: trusted} if trusted else {})}


def _far_trees(crew: HttpCrew, project: Project, config: Config, host: str) -> FarTrees:
    upstream = Upstream(
        crew,
        project.far_repository_dir,
        project.owed_dir,
        project.worktrees_dir,
        author=config.git.author,
        lease_s=config.health.remote_lease_s,
    )
    return FarTrees(upstream, host, lambda repository: trees_in(repository, config, project))


def _mind(far: FarTrees, project: Project, config: Config) -> None:
    trees = local_trees(far.upstream.repository, project)
    far.upstream.mind(lambda: far.upstream.clear(config.retention.trees_s, trees.put_away))


def _around(
    project: Project,
    config: Config,
    *,
    worker_id: str,
    crew: HttpCrew,
    host: LocalHost,
    far: FarTrees | None,
    given: SecretsOfAgents,
) -> WorkerContext:
    return WorkerContext(
        worker_id=worker_id,
        root=project.root,
        attempts_dir=project.attempts_dir,
        reach=partial(_reach, project, crew),
        agents=agents_of(config, project, take_seat(config, project)),
        launcher=LocalLauncher(host),
        trees=None if crew.servers else trees_of(config, project),
        upstream=far,
        checks=asked_of(config, config.task.check, lambda agent: agent.check),
        reviews=asked_of(config, config.task.review, lambda agent: agent.review),
        places=places_of(config),
        given=given,
        rubric=config.task.rubric,
        room=Room(project.attempts_dir, project.root),
        env=base_env((), {}),
    )


def run_worker(root: Path, server: str = "") -> int:
    """For the owner of the project in `root`, or for a server far away; then `root` is where its agents work."""
    token = os.environ.pop("MUSTER_TOKEN", "") if server else ""
    project, config = Project(root), load_config(root)
    log_as(config.log.format)
    host, chance = LocalHost(settle(project)), SystemChance()
    become_subreaper()
    kill_recorded(project.attempts_dir, host)
    sweep(project.attempts_dir)
    process = host.identify(os.getpid())
    assert process is not None
    given = SecretsOfAgents({name: agent.secrets for name, agent in config.agents.items()})
    for handler in logging.getLogger().handlers:
        handler.addFilter(given)
    crew = (
        HttpCrew(server, token, key=worker_key(project), reply_s=FAR_REPLY_S)
        if server
        else HttpCrew(project.socket)
    )
    far = _far_trees(crew, project, config, host.hostname) if server and config.git.worktrees else None
    name = f"worker-{chance.name(8)}"
    around = _around(project, config, worker_id=name, crew=crew, host=host, far=far, given=given)
    always_about(worker=around.worker_id)
    others = Predecessors(project.workers_dir, host)
    gone = others.gone() if server else ()
    if server:
        others.enter(around.worker_id, process)
    worker = Worker(
        crew,
        around,
        chance,
        hostname=host.hostname,
        boot_id=host.boot_id,
        process=process,
        slots=config.workers.slots,
        general=config.general,
        offers=offers_of(config),
        orphan_grace_s=config.health.orphan_grace_s,
        traits=msgspec.json.decode(os.environ.pop(TRAITS, "{}"), type=Traits),
        gone=gone,
        registered=partial(others.forget, gone),
    )
    hear(signal.SIGTERM, worker.drain)
    if far is not None:
        far.upstream.keep_trees(attempts_at_work(project))
        threading.Thread(target=partial(_mind, far, project, config), name="owed", daemon=True).start()
    with traced("worker", config):
        drained = worker.run()
    others.forget((around.worker_id,))
    if server and drained and worker.to_come_back:
        return SERVER_STOPPED
    return DRAINED if drained else DECLARED_DEAD


def main(root: Path, server: str = "") -> int:
    return run_logged("worker", root, lambda: run_worker(root, server))


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), *sys.argv[2:]))
