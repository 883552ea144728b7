"""A worker and its agents.  `python -m muster.app.worker ROOT`"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from muster.app.agents import agents_of, take_seat
from muster.app.parts import offers_of, run_logged, trees_of
from muster.app.settings import load_config
from muster.client.crew import HttpCrew
from muster.config.identity import settle
from muster.config.project import Project
from muster.hosts.local_host import LocalHost, become_subreaper
from muster.hosts.process import LocalLauncher
from muster.hosts.process_tree import kill_recorded
from muster.runtimes.local import SystemChance
from muster.worker.runner import WorkerContext
from muster.worker.supervisor import DECLARED_DEAD, DRAINED
from muster.worker.worker import Worker


def run_worker(root: Path) -> int:
    project, config = Project(root), load_config(root)
    host, chance = LocalHost(settle(project)), SystemChance()
    become_subreaper()
    kill_recorded(project.attempts_dir, host)
    process = host.identify(os.getpid())
    assert process is not None
    around = WorkerContext(
        worker_id=f"worker-{chance.name(8)}",
        root=root,
        attempts_dir=project.attempts_dir,
        socket=Path(project.socket),
        agents=agents_of(config, project, take_seat(config, project)),
        launcher=LocalLauncher(host),
        trees=trees_of(config, project),
    )
    worker = Worker(
        HttpCrew(project.socket),
        around,
        chance,
        hostname=host.hostname,
        boot_id=host.boot_id,
        process=process,
        slots=config.workers.slots,
        general=config.general,
        offers=offers_of(config),
        orphan_grace_s=config.health.orphan_grace_s,
    )
    signal.signal(signal.SIGTERM, lambda *_: worker.drain())
    return DRAINED if worker.run() else DECLARED_DEAD


if __name__ == "__main__":
    sys.exit(run_logged("worker", lambda: run_worker(Path(sys.argv[1]))))
