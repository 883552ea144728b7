"""Owner and workers as processes that are forked: their modules are imported once for all of a crew.

`python -m muster.app.forked ROOT` is the server that takes the place of a dead one.
"""

from __future__ import annotations

import sys
from functools import partial
from importlib import import_module
from pathlib import Path

from muster.app.parts import python_module
from muster.app.settings import load_config
from muster.config.project import Project
from muster.hosts.fork_server import Entries, ForkServer, serve_stdin

_LATER = (
    *("plans.files", "plans.markdown", "plans.order", "plans.versions"),
    *(
        "app.agents",
        "app.far_git",
        "app.network",
        "app.pull_request_opening",
        "app.works",
        "outbound.channels",
        "outbound.desktop",
        "outbound.email",
        "outbound.otel",
        "outbound.webhook_post",
        "web.gate",
        "web.network",
    ),
    *("runtimes.valkey.address", "runtimes.valkey.runtime"),
    *("web.examples", "web.field_words", "web.openapi", "web.reference_page"),
    *(
        f"web.pages.{name}"
        for name in (
            "assets",
            "diff_rows",
            "forecasts",
            "needs",
            "plan_drawing",
            "render",
            "written",
            "timeline",
            "transcript",
        )
    ),
)
"""What owner and workers import when they first need it.  A test of the tree knows all."""


def begin_forks(project: Project) -> ForkServer | None:
    """None where each is to be started as a program."""
    again = [*python_module("muster.app.forked"), str(project.root)]
    return ForkServer.begin(partial(_entries, project.root), project.log_file, str(project.root), again)


def _entries(root: Path) -> Entries:
    # Here, for the supervisor's own memory is spared them.
    from muster.app import owner, worker
    from muster.web.app import declared, pages

    # All that any of them ever imports: after an upgrade in place the rest would be of another version.
    for name in _LATER:
        import_module(f"muster.{name}")
    for _, route in (*declared(), *pages()):
        route.prepare()  # or each owner would
    return {"owner": partial(owner.main, root), "worker": partial(worker.main, root)}


def main(root: Path) -> None:
    serve_stdin(partial(_load_anew, root), Project(root).log_file, str(root))


def _load_anew(root: Path) -> Entries:
    load_config(root)  # imports the kinds of agents that it names, as a supervisor has done before it begins
    return _entries(root)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
