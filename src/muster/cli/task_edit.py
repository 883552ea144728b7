"""`muster task edit`: what a task is, where nothing of it runs."""

from __future__ import annotations

import argparse
from typing import Any

from muster.cli.context import connect
from muster.cli.fields import add_fields, print_one, refuse_unknown, task_names
from muster.cli.output import Screen, clean, listed, ref_of
from muster.cli.refusals import refused
from muster.cli.task_actions import one
from muster.cli.task_options import add_task_options, given_fields
from muster.client.api import task_path
from muster.model.errors import BadInput, IllegalMove
from muster.model.json_value import Json


def add(verbs: Any) -> None:
    parser = verbs.add_parser("edit", act=edit, help="change a task's fields; the others stay")
    parser.description = "An empty value takes away what was there: --agent '' lets any agent do it."
    parser.description += " A list replaces the old one."
    parser.add_argument("ref", metavar="REF")
    add_task_options(parser, editing=True)
    add_fields(parser)


def edit(args: argparse.Namespace) -> int:
    refuse_unknown(args, task_names)
    with connect(args) as context:
        task = one(context, args.ref)
        task_fields = given_fields(args, context)
        if "title" in task_fields and not (task_fields["title"] or "").strip():
            raise BadInput("the title is empty; nothing was changed", "muster task edit REF --title TEXT")
        if not task_fields:
            raise BadInput("nothing was asked to be otherwise", "muster task edit --help")
        try:
            context.api.post(task_path(task["id"], "edit"), {"actor": context.actor(), **task_fields})
        except IllegalMove as error:
            raise refused(error, ref_of(task), task["id"]) from None
        after: Json = context.api.get(task_path(task["id"]))["task"]

    def show() -> None:
        changed = after["updatedAtMs"] != task["updatedAtMs"] or after != task
        what = "edited" if changed else "is like that already"
        screen = Screen(args.color)
        screen.line(f"{screen.badge('ready', '')} {clean(ref_of(after))}  {what}  ({clean(after['why'])})")

    print_one(args, listed(after), show)
    return 0
