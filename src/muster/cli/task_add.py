"""`muster task add`: one task, without a plan file."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from typing import Any

from muster.cli.context import Context, connect, project_of
from muster.cli.fields import add_fields, print_one, refuse_unknown, task_names
from muster.cli.output import Screen, clean, listed, ref_of
from muster.cli.task_actions import one, refuse_unknown_agent
from muster.cli.waiting import ENDED, FOREVER_S, add_waiting, await_tasks, end_code, last_event, refuse_idle
from muster.client.api import task_path
from muster.model.errors import BadConfig, BadInput, NotFound
from muster.model.states import FailedDependency

Json = dict[str, Any]

NAME_CHARS_MAX = 200
SECONDS_MAX = 366 * 86400
PROMPT_BYTES_MAX = 4 << 20


def add(verbs: Any) -> None:
    adding = verbs.add_parser("add", help="add one task")
    running = verbs.add_parser("run", help="add one task and wait until it has ended")
    for parser in (adding, running):
        add_waiting(parser, ENDED, timeout=False)
        _add_options(parser)


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("title", metavar="TITLE")
    parser.add_argument("--prompt", metavar="TEXT", default="", help="what the agent is told; - reads stdin")
    parser.add_argument("--plan", metavar="PLAN", type=_name, help="the plan that it belongs to (tasks)")
    parser.add_argument("--key", metavar="KEY", type=_name, help="its name within the plan")
    parser.add_argument(
        "--after", metavar="REF,...", type=list_of, action="extend", default=[], help="waits for these"
    )
    parser.add_argument("--agent", metavar="AGENT", type=_name, help="the one agent that may do it")
    parser.add_argument(
        "--cap", metavar="C", type=_name, action="append", default=[], help="the agent must offer this"
    )
    parser.add_argument(
        "--profile", metavar="P", type=_name, help="the kind of agent that is preferred (its words say)"
    )
    parser.add_argument(
        "--target", metavar="T", type=_name, help="what it is about; the agent must serve this"
    )
    parser.add_argument("--priority", metavar="N", type=priority, default=5, help="1 to 10, high first (5)")
    parser.add_argument("--sort", metavar="N", type=int, help="among tasks of one priority, low first (0)")
    parser.add_argument("--timeout", metavar="TIME", type=whole_s, help="how long one run may take")
    parser.add_argument("--estimated", metavar="TIME", type=whole_s, help="how long one run should take")
    parser.add_argument("--retries", metavar="N", type=count, help="runs after the first one that has failed")
    parser.add_argument(
        "--delay", metavar="TIME", type=whole_s, help="begins after this time at the earliest"
    )
    parser.add_argument("--expires", metavar="TIME", type=whole_s, help="fails if no agent has begun by then")
    parser.add_argument(
        "--on-failed",
        choices=tuple(FailedDependency),
        default="block",
        help="when a task before it has failed (block)",
    )
    parser.add_argument(
        "--idempotency-key", metavar="K", type=_name, help="repeating the command adds nothing"
    )
    parser.add_argument(
        "--tag", metavar="T", type=_name, action="append", default=[], help="a word to find it by"
    )
    parser.add_argument(
        "--meta", metavar="K=V", type=pair, action="append", default=[], help="a fact that is kept with it"
    )
    parser.add_argument("--parent", metavar="REF", help="the task that this one came from")
    parser.add_argument("--limit-key", metavar="K", type=_name, help="a name of [limits] in muster.toml")
    parser.add_argument(
        "--dry-run", action="store_true", help="only say who would get it, and why; change nothing"
    )
    add_fields(parser)


def add_task(args: argparse.Namespace) -> int:
    if not args.title.strip():
        raise BadInput("the title is empty; nothing was added", "muster task add TITLE")
    refuse_unknown(args, lambda: [*task_names(), "added"])
    prompt = prompt_of(args.prompt)
    mute = args.json or args.fields is not None
    if args.dry_run:
        return _dry_run(args, prompt)
    if args.verb == "run" and args.wait is None:
        args.wait = FOREVER_S
    within_s: float | None = args.wait
    with connect(args) as context:
        refuse_idle(args, context)
        if args.agent is not None:
            refuse_unknown_agent(context, args.agent)
        after = 0 if within_s is None else last_event(context)
        added = context.api.post("/api/v1/agent-tasks", _body(args, prompt, context))
        task = context.api.get(task_path(added["taskIds"][0]))["task"]
        screen = Screen(args.color)
        if not mute:
            _tell(screen, task, is_new=bool(added["added"]))
        if within_s is not None:
            shown = None if mute else screen
            (task,) = await_tasks(context, [task["id"]], within_s=within_s, screen=shown, after=after)
    print_one(args, {**listed(task), "added": bool(added["added"])}, lambda: None)
    return 0 if within_s is None else end_code([task])


def _dry_run(args: argparse.Namespace, prompt: str) -> int:
    """As `muster plan add --dry-run` says it for a whole file.  Raises NotFound for an unknown agent."""
    from muster.cli.plan_input import show_takers
    from muster.config.load import load_config
    from muster.model.plan import PlanDocument, PlanTask

    if args.fields is not None or args.wait is not None:
        raise BadInput("--dry-run adds nothing that could be waited for or have fields", "leave these out")
    config = load_config(project_of(args).root)
    if args.agent is not None and args.agent not in config.agents:
        raise NotFound(
            f"there is no agent {args.agent}; nothing was changed",
            f"add [agents.{args.agent}] to muster.toml, or use one of: {', '.join(sorted(config.agents))}",
        )
    task = PlanTask(
        key=args.key or "-",
        title=args.title,
        description=prompt,
        after=tuple(args.after),
        agent=args.agent,
        capabilities=tuple(args.cap),
        profile=args.profile,
        target=args.target,
    )
    return show_takers(args, PlanDocument(name=args.plan or "tasks", title="", tasks=(task,)), config)


def _tell(screen: Screen, task: Json, *, is_new: bool) -> None:
    what = "added" if is_new else "was there already; nothing was added"
    ref, why = clean(ref_of(task)), clean(task["why"])
    screen.line(f"{screen.badge('ready', '')} {ref}  {what}  ({why})")
    screen.stream.flush()


def _body(args: argparse.Namespace, prompt: str, context: Context) -> Json:
    body: Json = {
        "actor": context.actor(),
        "title": args.title,
        "description": prompt,
        "plan": args.plan,
        "key": args.key,
        "agent": args.agent,
        "capabilities": args.cap,
        "profile": args.profile,
        "priority": args.priority,
        "dependsOn": [str(one(context, reference)["id"]) for reference in args.after],
        "target": args.target,
        "sortKey": args.sort,
        "timeoutS": args.timeout,
        "estimatedS": args.estimated,
        "maxRetries": args.retries,
        "delayS": args.delay,
        "expiresS": args.expires,
        "onFailed": args.on_failed,
        "idempotencyKey": args.idempotency_key,
        "tags": args.tag,
        "metadata": metadata_of(args.meta),
        "parentTaskId": None if args.parent is None else one(context, args.parent)["id"],
        "limitKey": args.limit_key,
    }
    return {name: value for name, value in body.items() if value is not None}


def whole_s(text: str) -> int:
    """A duration of whole seconds, at least one and at most a year."""
    seconds = round(time_s(text))
    if not 1 <= seconds <= SECONDS_MAX:
        raise argparse.ArgumentTypeError(f"{text!r} is not between 1s and 366d")
    return seconds


def count(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 6):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 0 to 999999")
    return int(text)


def prompt_of(text: str) -> str:
    if text != "-":
        return text
    data = sys.stdin.buffer.read(PROMPT_BYTES_MAX + 1)
    if len(data) > PROMPT_BYTES_MAX:
        raise BadInput(
            f"the prompt has more than {PROMPT_BYTES_MAX} bytes; nothing was added", "name a file in it"
        )
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise BadInput(f"the prompt is not UTF-8: {error}; nothing was added", "save it as UTF-8") from None


def metadata_of(pairs: list[tuple[str, str]]) -> dict[str, str]:
    for name, _ in pairs:
        if sum(name == other for other, _ in pairs) > 1:
            raise BadInput(f"--meta {name} is given twice; nothing was added", "give each key once")
    return dict(pairs)


def _name(text: str) -> str:
    if not 0 < len(text.strip()) <= NAME_CHARS_MAX:
        raise argparse.ArgumentTypeError(f"{text[:50]!r} has not 1 to {NAME_CHARS_MAX} characters")
    return text


def list_of(text: str) -> list[str]:
    names = [name.strip() for name in text.split(",")]
    if not all(names):
        raise argparse.ArgumentTypeError(f"{text!r} is not REF or REF,REF")
    return names


def priority(text: str) -> int:
    if not (text.isascii() and text.isdigit() and 1 <= int(text[:4]) <= 10):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 1 to 10")
    return int(text)


def time_s(text: str) -> float:
    from muster.config.durations import parse_duration

    try:
        return parse_duration(text)
    except BadConfig as error:
        raise argparse.ArgumentTypeError(error.message) from None


def pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not (name and equals) or len(name) > NAME_CHARS_MAX:
        raise argparse.ArgumentTypeError(f"{text!r} is not KEY=VALUE")
    return name, value


VERBS: dict[str, Callable[[argparse.Namespace], int]] = {"add": add_task, "run": add_task}
