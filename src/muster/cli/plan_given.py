"""A plan as a command is given it: a file, or `-` for what another program writes."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import NamedTuple

from msgspec.structs import replace

from muster.config.project import Project
from muster.model.errors import BadInput, BadPlan
from muster.model.plan import PlanDocument

STDIN = "-"


class Given(NamedTuple):
    document: PlanDocument
    path: Path | None
    """None: there is no file, so the plan is known by its name, and no boxes are ticked."""

    def source(self, project: Project) -> str | None:
        """What the plan is known by, where it has a file."""
        return None if self.path is None else project.source_of(self.path)

    @property
    def short(self) -> str:
        """Before `:line` in errors."""
        return "stdin" if self.path is None else self.path.name


def given_plan(args: argparse.Namespace) -> Given:
    """Raises BadPlan, and BadInput for a plan from stdin that has no name."""
    if args.plan != STDIN:
        from muster.plans.files import read_plan

        if args.name is not None:
            raise BadInput("--name is for a plan from stdin; a file is known by its path", "leave it out")
        path = Path(args.plan)
        return Given(read_plan(path), path)
    document = _read_stdin()
    name = args.name if args.name is not None else document.title and document.name
    if not name.strip():
        raise BadInput(
            "a plan from stdin has no file that it could be named after; nothing was added",
            "--name NAME, or one `# Title` in the plan",
        )
    return Given(replace(document, name=name), None)


def _read_stdin() -> PlanDocument:
    from muster.plans import markdown
    from muster.plans.files import PLAN_BYTES_MAX

    data = sys.stdin.buffer.read(PLAN_BYTES_MAX + 1) if sys.stdin is not None else b""
    if len(data) > PLAN_BYTES_MAX:
        raise BadPlan(
            f"stdin: larger than {PLAN_BYTES_MAX // 1024 // 1024} MiB; nothing was added",
            "Split it into several plans.",
        )
    return markdown.parse(markdown.decode(data, "stdin"), "stdin")
