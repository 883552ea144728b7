"""`muster plan ids`: an id for each box of a plan file."""

from __future__ import annotations

import argparse

from muster.cli.fields import answer
from muster.cli.output import clean
from muster.model.wording import counted

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def add(verbs: Any) -> None:
    parser = verbs.add_parser(
        "ids", act=run, help="give an id to each box of a file that has none, so that any edit keeps its task"
    )
    parser.add_argument("plan", metavar="PLAN", help="a markdown file")
    parser.add_argument("--write", action="store_true", help="write them into the file; else show them")


def run(args: argparse.Namespace) -> int:
    from muster.plans.files import LocalPlanFiles
    from muster.plans.ids import NewId, with_ids

    found: list[NewId] = []

    def edit(data: bytes) -> bytes:
        nonlocal found
        written, found = with_ids(data, args.plan)
        return written

    if args.write:
        LocalPlanFiles().rewrite(args.plan, edit)
    else:
        edit(LocalPlanFiles().read(args.plan).data)
    lines = [clean(f"{args.plan}:{one.line}: {one.title} {{#{one.id}}}") for one in found]
    done = "written" if args.write else "to be written; --write does that"
    told = "\n".join([*lines, f"{counted(len(found), 'id')} {done}"])
    return answer(args, {"written": args.write, "ids": [one._asdict() for one in found]}, told)
