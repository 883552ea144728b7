"""`muster task edit`: what a task is, where nothing of it runs."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

from muster.cli.context import Context, connect
from muster.cli.fields import add_fields, print_one, refuse_unknown, task_names
from muster.cli.output import Screen, clean, listed, now_ms, ref_of
from muster.cli.refusals import refused
from muster.cli.task_actions import one, refuse_unknown_agent
from muster.cli.task_add import count, list_of, metadata_of, pair, priority, prompt_of, whole_s
from muster.client.api import task_path
from muster.model.errors import BadInput, IllegalMove
from muster.model.states import FailedDependency

Json = dict[str, Any]


def add(verbs: Any) -> None:
    parser = verbs.add_parser("edit", help="change what a task is; what is not given stays")
    parser.description = "An empty value takes away what was there: --agent '' lets any agent do it."
    parser.add_argument("ref", metavar="REF")
    parser.add_argument("--title", metavar="TEXT", help="what it is called")
    parser.add_argument("--prompt", metavar="TEXT", help="what the agent is told; - reads stdin")
    parser.add_argument("--after", metavar="REF,...", type=_texts, help="waits for these and no others")
    parser.add_argument("--agent", metavar="AGENT", help="the one agent that may do it")
    parser.add_argument("--cap", metavar="C,...", type=_texts, help="the agent must offer these")
    parser.add_argument("--profile", metavar="P", help="the kind of agent that is preferred")
    parser.add_argument("--priority", metavar="N", type=priority, help="1 to 10, high first")
    parser.add_argument("--sort", metavar="N", type=int, help="among tasks of one priority, low first")
    parser.add_argument("--timeout", metavar="TIME", type=whole_s, help="how long one run may take")
    parser.add_argument("--estimated", metavar="TIME", type=_seconds, help="how long one run should take")
    parser.add_argument("--delay", metavar="TIME", type=_seconds, help="begins after this time from now on")
    parser.add_argument(
        "--expires", metavar="TIME", type=_seconds, help="fails if no agent has begun by then"
    )
    parser.add_argument("--target", metavar="T", help="what it is about; the agent must serve this")
    parser.add_argument("--retries", metavar="N", type=count, help="runs after the first one that has failed")
    parser.add_argument(
        "--on-failed", choices=tuple(FailedDependency), help="when a task before it has failed"
    )
    parser.add_argument(
        "--tags", metavar="T,...", type=_texts, help="words to find it by; replaces all that were there"
    )
    parser.add_argument(
        "--meta", metavar="K=V", type=pair, action="append", help="replaces all that was there"
    )
    parser.add_argument("--limit-key", metavar="K", help="a name of [limits] in muster.toml")
    add_fields(parser)


def edit(args: argparse.Namespace) -> int:
    if args.title is not None and not args.title.strip():
        raise BadInput("the title is empty; nothing was changed", "muster task edit REF --title TEXT")
    refuse_unknown(args, task_names)
    with connect(args) as context:
        task = one(context, args.ref)
        if args.agent:
            refuse_unknown_agent(context, args.agent)
        task_fields = _wishes(args, context)
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


def _wishes(args: argparse.Namespace, context: Context) -> Json:
    given = {
        "title": args.title,
        "description": None if args.prompt is None else prompt_of(args.prompt),
        "capabilities": args.cap,
        "priority": args.priority,
        "sortKey": args.sort,
        "timeoutS": args.timeout,
        "maxRetries": args.retries,
        "onFailed": args.on_failed,
        "tags": args.tags,
        "metadata": None if args.meta is None else metadata_of(args.meta),
        "dependsOn": None if args.after is None else [str(one(context, ref)["id"]) for ref in args.after],
    }
    task_fields = {name: value for name, value in given.items() if value is not None}
    cleared = {
        "agent": args.agent,
        "profile": args.profile,
        "limitKey": args.limit_key,
        "target": args.target,
        "estimatedS": args.estimated,
        "notBeforeMs": args.delay and now_ms() + args.delay * 1000,
        "expiresAtMs": args.expires and now_ms() + args.expires * 1000,
    }
    return task_fields | {name: value or None for name, value in cleared.items() if value is not None}


def _texts(text: str) -> list[str]:
    return list_of(text) if text else []


def _seconds(text: str) -> int:
    """0 where the text is empty, which takes the time away."""
    return whole_s(text) if text else 0


VERBS: dict[str, Callable[[argparse.Namespace], int]] = {"edit": edit}
