"""`muster answer REF TEXT`: a person's word for a task that has asked."""

from __future__ import annotations

import argparse

from muster.cli.context import connect
from muster.cli.task_actions import act_on, one, post, runs_it
from muster.cli.waiting import ENDED, Waiting, add_waiting
from muster.model.errors import BadInput

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
    with connect(args) as context:
        waiting, task = Waiting(args, context), one(context, args.ref)
        act = post("answer", text=args.text)
        said = f"answered; it goes on with that{runs_it(context)}"
        return act_on(waiting, [task], "ready", act, lambda *_: said, alone=True)
