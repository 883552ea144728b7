"""`muster answer REF TEXT`: a person's word for a task that has asked."""

from __future__ import annotations

import argparse

from muster.cli.context import connect
from muster.cli.output import Screen, clean, print_json, ref_of
from muster.cli.task_moves import one
from muster.client.api import task_path
from muster.model.errors import BadInput

TEXT_CHARS_MAX = 10_000


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("ref", metavar="REF")
    parser.add_argument("text", metavar="TEXT")


def run(args: argparse.Namespace) -> int:
    if not 0 < len(args.text.strip()) <= len(args.text) <= TEXT_CHARS_MAX:
        raise BadInput(
            f"the answer has {len(args.text)} characters, not 1 to {TEXT_CHARS_MAX}; nothing was changed",
            "put what is long into a file and name it",
        )
    with connect(args) as context:
        task = one(context, args.ref)
        body = {"actor": context.actor(), "text": args.text}
        moved = context.api.post(task_path(task["id"], "answer"), body)
        direct = context.direct
    if args.json:
        print_json({"ref": ref_of(task), "previousStatus": task["status"], **moved})
        return 0
    screen = Screen(args.color)
    runs = "; `muster up` runs it" if direct else ""
    screen.line(f"{screen.badge('ready', '')} {clean(ref_of(task))}  answered; it goes on with that{runs}")
    return 0
