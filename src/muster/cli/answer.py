"""`muster answer REF TEXT|--allow|--deny`: a person's word for a task that has asked."""

from __future__ import annotations

import argparse

from muster.cli.context import Context, connect
from muster.cli.task_actions import act_on, one, post, runs_it
from muster.cli.waiting import ENDED, Waiting, add_waiting
from muster.client.api import task_path
from muster.model.errors import BadInput, IllegalMove
from muster.model.json_value import Json
from muster.model.states import PauseReason

TEXT_CHARS_MAX = 10_000


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("ref", metavar="REF")
    parser.add_argument("text", metavar="TEXT", nargs="?", default="")
    verdict = parser.add_mutually_exclusive_group()
    verdict.add_argument(
        "--allow", action="store_true", default=None, help="it may do exactly what it has asked for"
    )
    verdict.add_argument(
        "--deny", dest="allow", action="store_false", default=None, help="it is to go on without that"
    )
    parser.add_argument(
        "--always",
        action="store_true",
        help="for all tasks of the plan with this agent, also those that have asked: muster agent allowed",
    )
    add_waiting(parser, ENDED)


def run(args: argparse.Namespace) -> int:
    if args.always and args.allow is None:
        raise BadInput("--always goes with --allow or --deny; nothing was changed")
    if len(args.text) > TEXT_CHARS_MAX or (args.allow is None and not args.text.strip()):
        raise BadInput(
            f"the answer has {len(args.text)} characters, not 1 to {TEXT_CHARS_MAX}; nothing was changed",
            "muster answer REF TEXT, or --allow or --deny; put what is long into a file and name it",
        )
    with connect(args) as context:
        waiting, task = Waiting(args, context), one(context, args.ref)
        send = post("answer", text=args.text, allow=args.allow, always=args.always)

        def act(context: Context, task: Json) -> Json:
            try:
                return send(context, task)
            except IllegalMove as error:
                raise _answered(context, task["id"]) or error from None

        word = {None: "answered", True: "allowed", False: "denied"}[args.allow]
        said = f"{word}; it goes on with that{runs_it(context)}"
        return act_on(waiting, [task], "ready", act, lambda *_: said, alone=True)


def _answered(context: Context, task_id: int) -> IllegalMove | None:
    """What somebody else was faster with."""
    detail = context.api.get(task_path(task_id))
    said = [event["message"] for event in detail["events"] if event["event"] == "answered"]
    if not said or detail["task"]["pausedReason"] == PauseReason.QUESTION:
        return None
    return IllegalMove(f"task {task_id} was answered already: {said[-1]}; it is {detail['task']['status']}")
