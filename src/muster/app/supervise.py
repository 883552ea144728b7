"""The supervisor of one project's owner and workers."""

from __future__ import annotations

from collections.abc import Callable

from muster.app.parts import python_module
from muster.config.identity import settle
from muster.config.project import Project
from muster.hosts.local_host import LocalHost, become_subreaper
from muster.worker.supervisor import Supervisor


def supervisor(project: Project, workers: int, *, say: Callable[[str], None]) -> Supervisor:
    """The caller becomes the parent of orphans, so that a dead worker's processes can be found here."""
    become_subreaper()
    project_id = settle(project)
    return Supervisor(
        LocalHost(project_id),
        project.log_file,
        project.crew_file,
        owner_argv=[*python_module("muster.app.owner"), str(project.root)],
        worker_argv=[*python_module("muster.app.worker"), str(project.root)],
        workers=workers,
        say=say,
        project=project_id,
        folder=project.folder,
    )
