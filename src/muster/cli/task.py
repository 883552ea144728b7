"""`muster task`: list, show, retry, cancel."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from typing import Any
from urllib.parse import quote

from muster.cli.context import Context, connect
from muster.cli.output import (
    BOLD,
    Screen,
    age,
    clean,
    clock_time,
    inert,
    note,
    now_ms,
    print_error,
    print_json,
    ref_of,
    task_word,
)
from muster.client.api import task_path
from muster.model.errors import BadInput, MusterError
from muster.model.states import TaskStatus

Json = dict[str, Any]

LIMIT = 500
PAGE = 500
EVENTS_SHOWN = 10
EVENTS_PAGE = 1000
RESULT_SHOWN = 2000

_T = TaskStatus
_STATES: dict[str, tuple[tuple[TaskStatus, ...], str | None]] = {
    **{status.lower(): ((status,), None) for status in TaskStatus},
    "blocked": ((_T.PENDING,), "blocked"),
    "ready": ((_T.PENDING,), "ready"),
    "delayed": ((_T.PENDING, _T.ABORTED), "delayed"),
}
"""What may be written after --status: the statuses, and the words that the table shows."""
_ENDS = {"completed": "completed", "failed": "attempt failed", "lost": "attempt failed", "running": "running"}
_ENDS |= {"assigned": "assigned", "stopping": "stopping", "cancelled": "cancelled", "released": "waiting"}


def add(parser: argparse.ArgumentParser) -> None:
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    listing = verbs.add_parser("list", help="one line for each task, with why it is where it is")
    listing.add_argument("--plan", metavar="PLAN", help="tasks of this plan only")
    listing.add_argument(
        "--status",
        metavar="STATUS",
        nargs="+",
        action="extend",
        default=[],
        help=f"only these: {', '.join(_STATES)}",
    )
    listing.add_argument(
        "--limit", metavar="N", type=_count, default=LIMIT, help=f"at most N tasks ({LIMIT})"
    )
    showing = verbs.add_parser("show", help="everything about one task, and what to do next")
    showing.add_argument("ref", metavar="REF")
    retrying = verbs.add_parser("retry", help="run tasks again; one that waits for its next try runs now")
    retrying.add_argument("refs", metavar="REF", nargs="+")
    retrying.add_argument(
        "--note", metavar="TEXT", default="", help="something the agent should know this time"
    )
    cancelling = verbs.add_parser("cancel", help="end tasks for good; running ones are stopped")
    cancelling.add_argument("refs", metavar="REF", nargs="+")
    cancelling.add_argument("--reason", metavar="TEXT", default="", help="kept in the task's events")


def run(args: argparse.Namespace) -> int:
    code: int = {"list": _list, "show": _show, "retry": _retry, "cancel": _cancel}[args.verb](args)
    return code


def _count(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not 1 <= int(text[:9]) <= 100_000:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 1 to 100000")
    return int(text)


def _list(args: argparse.Namespace) -> int:
    names = [name.lower() for text in args.status for name in text.split(",") if name]
    for name in names:
        if name not in _STATES:
            from difflib import get_close_matches

            near = get_close_matches(name, _STATES, n=1)
            hint = f"did you mean {near[0]}?" if near else f"one of {', '.join(_STATES)}"
            raise BadInput(f"--status {name!r} is no status", hint)
    with connect(args) as context:
        if args.plan is not None:
            context.api.get(f"/api/v1/plans/{quote(args.plan, safe='')}")  # refuses one that is not there
        tasks = find_tasks(context, plan=args.plan, names=names, limit=args.limit + 1)
    more = len(tasks) > args.limit
    del tasks[args.limit :]
    if args.json:
        print_json(tasks)
    elif tasks:
        _table(tasks, Screen(args.color))
    else:
        print("no such task: muster status" if names or args.plan else "0 tasks: muster run PLAN.md")
    if more:
        note(f"there are more than {args.limit} tasks: --limit {args.limit * 10}")
    return 0


def find_tasks(context: Context, *, plan: str | None, names: Sequence[str], limit: int) -> list[Json]:
    """The first `limit` tasks that fit one of the names (keys of _STATES), oldest first."""
    wanted = [_STATES[name] for name in names]
    statuses = sorted({status.lower() for group, _ in wanted for status in group})
    found: list[Json] = []
    after = 0
    while len(found) < limit:
        query = {"plan": plan, "status": statuses, "after": after, "limit": PAGE}
        page: list[Json] = context.api.get("/api/v1/agent-tasks", query)
        found += [task for task in page if not wanted or any(_fits(task, *each) for each in wanted)]
        if len(page) < PAGE:
            break
        after = page[-1]["id"]
    return found[:limit]


def _fits(task: Json, statuses: tuple[TaskStatus, ...], word: str | None) -> bool:
    return task["status"] in statuses and word in (None, task_word(task))


def _table(tasks: list[Json], screen: Screen) -> None:
    plain = Screen("never")
    now = now_ms()
    looks = [task_word(task) for task in tasks]
    rows = [
        [
            plain.badge(look),
            clean(ref_of(task)),
            clean(task["why"]),
            clean(task["agent"] or task["wantedAgent"] or "-"),
            str(task["epoch"]),
            age(now - task["createdAtMs"]),
        ]
        for task, look in zip(tasks, looks, strict=True)
    ]
    screen.table(["STATUS", "TASK", "WHY", "AGENT", "ATTEMPTS", "AGE"], rows, give=2, looks=looks)


def _show(args: argparse.Namespace) -> int:
    with connect(args) as context:
        task_id, epoch = context.task_id(args.ref)
        detail = context.api.get(task_path(task_id))
        if args.json:
            detail["events"] = _all_events(context, task_id, detail["events"])
    if epoch is not None:
        detail["attempts"] = [attempt for attempt in detail["attempts"] if attempt["epoch"] == epoch]
    if args.json:
        print_json(detail)
    else:
        _print_detail(detail, Screen(args.color))
    return 0


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


def _print_detail(detail: Json, screen: Screen) -> None:
    task = detail["task"]
    ref = clean(ref_of(task))
    screen.line(f"{screen.paint(ref, BOLD)}  {clean(task['title'])}  {screen.badge(task_word(task))}")
    rows = [("Why", clean(task["why"]))]
    rows += _several(
        "Blocks", [clean(f"{task['plan']}/{key}" if task["plan"] else key) for key in detail["blocks"]]
    )
    rows += _several("Attempts", [_attempt(attempt, screen) for attempt in detail["attempts"]])
    rows += _several("Artifacts", [clean(f"{name}  {location}") for name, location in detail["artifacts"]])
    if detail["result"] is not None:
        result = clean(detail["result"])
        cut = f"{result[:RESULT_SHOWN]}... (all of it: --json)" if len(result) > RESULT_SHOWN else result
        rows.append(("Result", cut))
    events = detail["events"]
    rows += _several("Events", [_event(event) for event in events[-EVENTS_SHOWN:]])
    rows += _several("Log tail", [inert(line) for line in detail["logTail"].splitlines()])
    rows += _several("Next", _next(task, ref, detail))
    screen.fields(rows)


def _several(name: str, values: list[str]) -> list[tuple[str, str]]:
    return [("" if at else name, value) for at, value in enumerate(values)]


def _attempt(attempt: Json, screen: Screen) -> str:
    begun = attempt["startedAtMs"] or attempt["assignedAtMs"]
    end = attempt["endedAtMs"]
    lasted = age((end if end is not None else now_ms()) - begun)
    look = _ENDS.get(attempt["status"], "waiting")
    parts = [f"#{attempt['epoch']} {clock_time(begun)}  {lasted}  {screen.badge(look, attempt['status'])}"]
    if attempt["errorKind"]:
        parts.append(attempt["errorKind"])
    if attempt["error"]:
        parts.append(clean(attempt["error"]))
    parts.append(f"{attempt['worker']} {clean(attempt['agent'])}")
    if number := attempt["checkpoints"]:
        parts.append(f"{number} checkpoint{'' if number == 1 else 's'}")
    return "  ".join(parts)


def _event(event: Json) -> str:
    told = f"{event['event']}  {clean(event['message'])}  by {clean(event['actor'])}"
    return f"{clock_time(event['atMs'])}  {told}"


def _next(task: Json, ref: str, detail: Json) -> list[str]:
    logs = [f"muster logs {ref}"] if detail["attempts"] else []
    match task_word(task):
        case "failed" | "cancelled":
            return [f"muster task retry {ref} [--note TEXT]", *logs]
        case "running" | "assigned" | "stopping":
            return [f"muster logs {ref} -f", f"muster task cancel {ref}"]
        case "delayed":
            return [f"muster task retry {ref}   (now)", *logs]
        case "blocked":
            broken = [name.split(" (")[0] for name in task["waitsFor"] if "(" in name]
            prefix = f"{task['plan']}/" if task["plan"] else ""
            return [clean(f"muster task retry {prefix}{key}") for key in broken] or [
                f"muster task cancel {ref}"
            ]
        case "completed":
            return logs
        case _:
            return [f"muster task cancel {ref}"]


def _retry(args: argparse.Namespace) -> int:
    def act(context: Context, task: Json) -> Json:
        body = {"actor": context.actor(), "note": args.note}
        moved: Json = context.api.post(task_path(task["id"], "retry"), body)
        if args.note and moved["generation"] == task["generation"]:
            note(f"{ref_of(task)} only waited for its next try, which is now; the note was not kept")
        return moved

    def tell(task: Json, moved: Json, context: Context) -> str:
        anew = moved["generation"] != task["generation"]
        what = f"starts anew (generation {moved['generation']})" if anew else "its next try is due now"
        return what + ("; `muster up` runs it" if context.direct else "")

    return _each(args, "ready", act, tell)


def _cancel(args: argparse.Namespace) -> int:
    def act(context: Context, task: Json) -> Json:
        body = {"actor": context.actor(), "reason": args.reason}
        moved: Json = context.api.post(task_path(task["id"], "cancel"), body)
        return moved

    def tell(task: Json, moved: Json, _: Context) -> str:
        if task["status"] == TaskStatus.CANCELLED:
            return "was cancelled already"
        held = task["status"] in (TaskStatus.ASSIGNED, TaskStatus.RUNNING)
        return f"cancelled; attempt {moved['epoch']} is stopped" if held else "cancelled"

    return _each(args, "cancelled", act, tell)


def _each(
    args: argparse.Namespace,
    look: str,
    act: Callable[[Context, Json], Json],
    tell: Callable[[Json, Json, Context], str],
) -> int:
    """Finds all tasks before it touches one; the first refusal is the exit code, the others still happen."""
    done: list[Json] = []
    code = 0
    screen = Screen(args.color)
    with connect(args) as context:
        for task in _named(context, args.refs):
            try:
                moved = act(context, task)
            except MusterError as error:
                code = code or error.exit_code
                prefixed = type(error)(f"{ref_of(task)}: {error.message}", error.hint)
                print_error(prefixed, as_json=args.json)
                continue
            done.append({"ref": ref_of(task), "previousStatus": task["status"], **moved})
            if not args.json:
                glyph = screen.badge(look, "")
                screen.line(f"{glyph} {clean(ref_of(task))}  {tell(task, moved, context)}")
    if args.json:
        print_json(done)
    return code


def _named(context: Context, references: Sequence[str]) -> list[Json]:
    found: dict[int, Json] = {}
    for reference in references:
        task_id, epoch = context.task_id(reference)
        if epoch is not None:
            raise BadInput(
                f"{reference} names an attempt, this is about tasks; nothing was changed",
                f"leave out #{epoch}",
            )
        if task_id not in found:
            found[task_id] = context.api.get(task_path(task_id))["task"]
    return list(found.values())
