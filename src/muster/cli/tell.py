"""`muster tell REF TEXT`: a person's word for the agent that is at a task, or comes to it."""

from __future__ import annotations

import argparse

from muster.cli.answer import TEXT_CHARS_MAX
from muster.cli.context import Context, connect
from muster.cli.output import clean
from muster.cli.task_actions import act_on, one, post
from muster.cli.waiting import ENDED, Waiting, add_waiting
from muster.model.errors import BadInput
from muster.model.json_value import Json
from muster.model.states import HELD


def add(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "An agent that takes messages while it works (Claude Code) reads it at its next turn; another one finds "
        "it in the file that its prompt names. Later attempts have it in their prompt as a note."
    )
    parser.add_argument("ref", metavar="REF")
    parser.add_argument("text", metavar="TEXT")
    add_waiting(parser, ENDED)


def run(args: argparse.Namespace) -> int:
    if not 0 < len(args.text.strip()) <= len(args.text) <= TEXT_CHARS_MAX:
        raise BadInput(
            f"the text has {len(args.text)} characters, not 1 to {TEXT_CHARS_MAX}; nobody was told",
            "put what is long into a file and name it",
        )
    with connect(args) as context:
        waiting, task = Waiting(args, context), one(context, args.ref)
        act = post("tell", text=args.text)
        return act_on(waiting, [task], "running", act, _said, alone=True)


def _said(task: Json, _: Json, context: Context) -> str:
    if task["status"] not in HELD:
        return "its next attempt is told, in its prompt"
    if context.here is None:
        return "told; an agent that takes no messages while it works finds it in its notice file"
    if str(task["worker"] or "").startswith("worker-") and _takes_messages(context, task["agent"]):
        return f"handed to {clean(task['agent'])}, which reads it at its next turn; kept for later attempts"
    return (
        f"{clean(task['agent'])} takes no messages while it works: it stands in its notice file, and in the "
        "prompt of later attempts"
    )


def _takes_messages(context: Context, name: str) -> bool:
    from muster.app.settings import KINDS, load_config
    from muster.config.settings import COMMAND

    agent = load_config(context.project.root).agents.get(name)
    return agent is not None and agent.kind != COMMAND and KINDS[agent.kind].talks
