"""Owner and workers as processes that are forked: their modules are imported once for all of a crew."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from muster.config.project import Project
from muster.hosts.fork_server import Entries, ForkServer


def begin_forks(project: Project) -> ForkServer | None:
    """None where each is to be started as a program."""
    return ForkServer.begin(partial(_entries, project.root), project.log_file, str(project.root))


def _entries(root: Path) -> Entries:
    # Here, for the supervisor's own memory is spared them.
    from muster.app import owner, worker

    return {"owner": partial(owner.main, root), "worker": partial(worker.main, root)}
