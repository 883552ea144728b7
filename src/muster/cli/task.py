"""`muster task`: list and show; the other verbs have files of their own."""

from __future__ import annotations

import os
from importlib import import_module
from itertools import islice
from operator import itemgetter

from muster.cli.context import Context, connect, no_rows
from muster.cli.fields import add_fields, print_one, print_tasks
from muster.cli.output import (
    BOLD,
    Screen,
    age,
    clean,
    clock_time,
    inert,
    listed,
    note,
    now_ms,
    ref_of,
    shell_word,
    usage_words,
)
from muster.cli.values import number
from muster.client.api import plan_path, task_path
from muster.model.errors import BadInput
from muster.model.json_value import Json
from muster.model.shown import attempt_kind, attempt_look, attempt_word
from muster.model.states import TaskStatus
from muster.model.wording import counted, each_word, hint, refused_words

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from typing import Any

    from muster.cli.main import Parser


LIMIT = 500
EVENTS_SHOWN = LINES_SHOWN = 10
EVENTS_PAGE = 1000
RESULT_SHOWN = 2000
PROMPT_LINES_SHOWN = 12
PROMPT_COLUMNS_SHOWN = 500

_T = TaskStatus
_STATES: dict[str, tuple[tuple[TaskStatus, ...], str | None]] = {
    **{status.lower(): ((status,), None) for status in TaskStatus},
    "blocked": ((_T.PENDING,), "blocked"),
    "ready": ((_T.PENDING,), "ready"),
    "delayed": ((_T.PENDING, _T.ABORTED), "delayed"),
}
"""What may be written after --status: the statuses, and the words that the table shows."""
_LOOKS = ("list", "show")
_OF_SETTINGS = ("timeout_s", "max_retries")


def add(parser: Parser) -> None:
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    listing = verbs.add_parser("list", act=_list, help="one line per task, with the reason for its state")
    listing.add_argument("--plan", metavar="PLAN", help="tasks of this plan only")
    status = listing.add_argument(
        "--status",
        metavar="STATUS",
        nargs="+",
        action="extend",
        default=[],
        help=f"only these: {', '.join(_STATES)}",
    )
    # For completion.  `choices` would refuse several in one word.
    status.known = tuple(_STATES)
    listing.add_argument(
        "--tag", metavar="TAG", dest="tags", action="append", default=[], help="only tasks with this tag"
    )
    listing.add_argument(
        "--text",
        metavar="TEXT",
        help="only tasks with this in their title or their name, in any case of letters",
    )
    listing.add_argument(
        "--limit", metavar="N", type=number(1, 100_000), default=LIMIT, help=f"at most N tasks ({LIMIT})"
    )
    add_fields(listing)
    showing = verbs.add_parser("show", act=_show, help="everything about one task, and what to do next")
    showing.add_argument("ref", metavar="REF")
    add_fields(showing)
    if parser.asked not in _LOOKS:
        for module in _others():
            module.add(verbs)


def _others() -> Iterable[Any]:
    """Modules with `add(verbs)`.  Those who only look need none of them, and they cost 3 ms."""
    return (import_module(f"muster.cli.{name}") for name in ("task_fields", "task_actions"))


def _list(args: argparse.Namespace) -> int:
    names = [name.lower() for name in each_word(args.status)]
    for name in names:
        if name not in _STATES:
            raise BadInput(
                f"--status {name!r} is no status", hint(name, _STATES) or f"one of {', '.join(_STATES)}"
            )
    with connect(args) as context:
        if args.plan is not None:
            context.api.get(plan_path(args.plan))  # refuses one that is not there
        tasks = find_tasks(
            context, plan=args.plan, names=names, tags=args.tags, text=args.text, limit=args.limit + 1
        )
        context.tell_if_stale(tasks)
    more = len(tasks) > args.limit
    del tasks[args.limit :]

    def show(screen: Screen) -> None:
        if tasks:
            table(tasks, screen)
        else:
            screen.line("no such task: muster status" if names or args.plan or args.text else no_rows(args))

    print_tasks(args, tasks, show)
    if more:
        note(f"there are more than {args.limit} tasks: --limit {args.limit * 10}")
    return 0


def find_tasks(
    context: Context,
    *,
    plan: str | None,
    names: Sequence[str],
    tags: Sequence[str] = (),
    text: str | None = None,
    limit: int,
) -> list[Json]:
    """The first `limit` tasks that fit one of the names (keys of _STATES), oldest first."""
    wanted = [_STATES[name] for name in names]
    statuses = sorted({status.lower() for group, _ in wanted for status in group})
    query = {"plan": plan, "status": statuses, "tags": list(tags), "text": text or None}
    rows = context.api.rows("/api/v1/agent-tasks", query)
    fitting = (task for task in rows if not wanted or any(_fits(task, *each) for each in wanted))
    return list(islice(fitting, limit))


def _fits(task: Json, statuses: tuple[TaskStatus, ...], word: str | None) -> bool:
    return task["status"] in statuses and word in (None, task["state"])


TASK_CELLS: Mapping[str, Callable[[Json], object]] = {
    "STATUS": itemgetter("state"),
    "TASK": ref_of,
    "WHY": itemgetter("why"),
    "AGENT": lambda task: task["agent"] or task["wantedAgent"] or "-",
    "ATTEMPTS": itemgetter("attemptCount"),
    "AGE": lambda task: age(now_ms() - task["createdAtMs"]),
}


def table(tasks: list[Json], screen: Screen) -> None:
    screen.table(tasks, TASK_CELLS, give="WHY", look=itemgetter("state"), glyphs=True)


def _show(args: argparse.Namespace) -> int:
    with connect(args) as context:
        task_id, epoch = context.task_id(args.ref)
        detail = context.api.get(task_path(task_id))
        if args.json or args.fields is not None:
            detail["events"] = _all_events(context, task_id, detail["events"])
        context.tell_if_stale([detail["task"]])
        said = _said(args, context, detail)
    if epoch is not None:
        detail["attempts"] = [attempt for attempt in detail["attempts"] if attempt["epoch"] == epoch]
    thing = {**listed(detail["task"]), **detail}
    print_one(args, thing, lambda screen: _print_detail(detail, screen, said), whole=detail)
    return 0


def _said(args: argparse.Namespace, context: Context, detail: Json) -> list[str]:
    """The end of what its newest attempt has said and done; for a plain command of what it has printed."""
    printed = [inert(line) for line in detail["logTail"].splitlines()]
    if args.json or args.fields is not None or '{"' not in detail["logTail"]:
        return printed
    from muster.cli.transcripts import Readers, attempt_of, tail, tail_lines

    task = detail["task"]
    told = tail(context.api, Readers(context.here), task["id"], attempt_of(detail, task["epoch"]))
    return tail_lines(told, Screen(args.color), LINES_SHOWN) or printed


def _all_events(context: Context, task_id: int, newest: list[Json]) -> list[Json]:
    """A task's page holds its newest events; a long life has more."""
    if not newest or newest[0]["seq"] == 1:
        return newest
    events: list[Json] = []
    page = newest
    while len(page) >= EVENTS_PAGE or not events:
        query = {"task": task_id, "after": events[-1]["id"] if events else 0, "limit": EVENTS_PAGE}
        page = context.api.get("/api/v1/events", query)
        events += page
    return events


def _print_detail(detail: Json, screen: Screen, said: list[str]) -> None:
    task = detail["task"]
    ref = clean(ref_of(task))
    screen.line(f"{screen.paint(ref, BOLD)}  {clean(task['title'])}  {screen.badge(task['state'])}")
    rows = [("Why", clean(task["why"])), *_wishes(task)]
    rows += several(
        "Blocks", [clean(f"{task['plan']}/{key}" if task["plan"] else key) for key in detail["blocks"]]
    )
    rows += several("Attempts", [_attempt(attempt, screen) for attempt in detail["attempts"]])
    if detail["usage"] and len(detail["attempts"]) > 1:
        rows.append(("Together", usage_words(detail["usage"])))
    rows += several(
        "Artifacts", [f"{clean(name)}  {screen.link(location)}" for name, location in detail["artifacts"]]
    )
    if detail["result"] is not None:
        result = clean(detail["result"])
        cut = f"{result[:RESULT_SHOWN]}... (all of it: --json)" if len(result) > RESULT_SHOWN else result
        rows.append(("Result", cut))
    events = detail["events"]
    rows += several("Events", [_event(event) for event in events[-EVENTS_SHOWN:]])
    rows += several("Log tail", said)
    rows += several("Next", next_of(detail))
    screen.fields(rows)


def _wishes(task: Json) -> list[tuple[str, str]]:
    """What was asked for, where it is not the usual, and the prompt."""
    from muster.model.fields import ATTRIBUTES

    given = {"agent": task["wantedAgent"], "parent": task["parentTaskId"]}
    words = []
    for field in ATTRIBUTES.values():
        value = given.get(field.name, task.get(field.api, field.usual))
        if value and value != field.usual and field.name not in _OF_SETTINGS:
            words.append(f"{field.attribute}={field.kind.write(value)}")
    said = "  ".join(words)
    headings = " > ".join(filter(None, (task["epic"], task["feature"])))
    rows = [(name, clean(text)) for name, text in (("Asks for", said), ("Below", headings)) if text]
    lines = task["description"].splitlines()
    prompt = [inert(line[:PROMPT_COLUMNS_SHOWN]) for line in lines[:PROMPT_LINES_SHOWN]]
    if len(lines) > PROMPT_LINES_SHOWN or any(len(line) > PROMPT_COLUMNS_SHOWN for line in lines):
        prompt.append("... (all of it: --json)")
    return rows + several("Prompt", prompt)


def several(name: str, values: list[str]) -> list[tuple[str, str]]:
    return [("" if at else name, value) for at, value in enumerate(values)]


def attempt_times(attempt: Json) -> tuple[str, str]:
    """When it began, and how long it took, or takes already."""
    begun = attempt["startedAtMs"] or attempt["assignedAtMs"]
    end = attempt["endedAtMs"]
    return clock_time(begun), age((now_ms() if end is None else end) - begun)


def place_of(attempt: Json) -> str:
    """Its worker; with the host of one that is not on this one."""
    host = attempt.get("host", "")
    here = not host or host == os.uname().nodename
    return str(attempt["worker"]) if here else f"{attempt['worker']} at {clean(host)}"


def _attempt(attempt: Json, screen: Screen) -> str:
    begun, lasted = attempt_times(attempt)
    badge = screen.badge(attempt_look(attempt), attempt_word(attempt))
    parts = [f"#{attempt['epoch']} {begun}  {lasted}  {badge}"]
    if kind := attempt_kind(attempt):
        parts.append(kind)
    if attempt["error"]:
        parts.append(clean(attempt["error"]))
    parts.append(f"{place_of(attempt)} {clean(attempt['agent'])}")
    if refused := attempt.get("refused"):
        parts.append(refused_words([clean(what) for what in refused]))
    if number := attempt["checkpoints"]:
        parts.append(counted(number, "checkpoint"))
    if attempt.get("usage"):
        parts.append(usage_words(attempt["usage"]))
    return "  ".join(parts)


def _event(event: Json) -> str:
    message = clean(event["message"].removeprefix("artifact "))
    told = f"{event['event']}  {message}  by {clean(event['actor'])}"
    return f"{clock_time(event['atMs'])}  {told}"


_COMMANDS = {
    "answer": "muster answer {} TEXT",
    "accept": "muster task accept {}",
    "budget": "muster budget {} USD",
    "resume": "muster task resume {} [--note TEXT]",
    "retry": "muster task retry {} [--note TEXT]",
    "pause": "muster task pause {}",
    "cancel": "muster task cancel {}",
}
"""What is suggested of a task's actions, the most likely first."""


def what_next(task: Json) -> list[str]:
    """Commands that move a task on, the most likely first; what waits for others is moved by moving these."""
    ref = clean(shell_word(ref_of(task)))
    found = [command.format(ref) for name, command in _COMMANDS.items() if name in task["actions"]]
    if task["wish"] and "answer" in task["actions"]:
        found[0] = f"muster answer {ref} --allow|--deny [--always]"
    prefix = f"{task['plan']}/" if task["plan"] else ""
    failed = [name.split(" (")[0] for name in task["waitsFor"] if name.endswith(("(FAILED)", "(CANCELLED)"))]
    fix = [clean(task["fix"])] if task.get("fix") else []  # a server that is older does not tell it
    return [clean(f"muster task retry {shell_word(prefix + key)}") for key in failed] + fix + found


def next_of(detail: Json) -> list[str]:
    """Of a task with its attempts: what there is to look at, too."""
    task, ref = detail["task"], clean(shell_word(ref_of(detail["task"])))
    diff = [f"muster attempt diff {ref}"] if "accept" in task["actions"] else []
    follow = " -f" if task["worker"] else ""
    return diff + what_next(task) + ([f"muster logs {ref}{follow}"] if detail["attempts"] else [])
