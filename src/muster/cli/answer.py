"""`muster answer REF TEXT`: a person's word for a task that has asked."""

from __future__ import annotations

import argparse

from muster.cli.context import connect
from muster.cli.output import Screen, clean, print_json, ref_of
from muster.cli.refusals import refused
from muster.cli.task_actions import one
from muster.cli.waiting import ENDED, add_waiting, await_tasks, end_code, last_event, refuse_idle, within
from muster.client.api import task_path
from muster.model.errors import BadInput, IllegalMove

TEXT_CHARS_MAX = 10_000


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("ref", metavar="REF")
    parser.add_argument("text", metavar="TEXT")
    add_waiting(parser, ENDED)


def run(args: argparse.Namespace) -> int:
    if not 0 < len(args.text.strip()) <= len(args.text) <= TEXT_CHARS_MAX:
        raise BadInput(
            f"the answer has {len(args.text)} characters, not 1 to {TEXT_CHARS_MAX}; nothing was changed",
            "put what is long into a file and name it",
        )
    screen = None if args.json else Screen(args.color)
    with connect(args) as context:
        refuse_idle(args, context)
        within_s = within(args)
        after = 0 if within_s is None else last_event(context)
        task = one(context, args.ref)
        body = {"actor": context.actor(), "text": args.text}
        try:
            moved = context.api.post(task_path(task["id"], "answer"), body)
        except IllegalMove as error:
            raise refused(error, ref_of(task), task["id"]) from None
        if screen is not None:
            runs = "; `muster up` runs it" if context.direct else ""
            ref = clean(ref_of(task))
            screen.line(f"{screen.badge('ready', '')} {ref}  answered; it goes on with that{runs}")
            screen.stream.flush()
        ended = (
            []
            if within_s is None
            else await_tasks(context, [task["id"]], within_s=within_s, screen=screen, after=after)
        )
    if args.json:
        row = {"ref": ref_of(task), "previousStatus": task["status"], **moved}
        print_json({**row, **(ended[0] if ended else {})})
    return end_code(ended)
