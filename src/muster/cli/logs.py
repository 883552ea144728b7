"""`muster logs`: what the attempts of a task have said and done, or the bytes that they have printed."""

from __future__ import annotations

import argparse
import base64
from collections.abc import Iterable

from muster.cli.context import WAIT_S, Context, connect, patiently
from muster.cli.output import note, ref_of
from muster.cli.raw import Raw
from muster.cli.transcripts import Readable
from muster.client.api import task_path
from muster.model.errors import Ambiguous, BadInput, NotFound
from muster.model.json_value import Json
from muster.model.states import FINAL

Out = Raw | Readable


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "ref",
        metavar="REF[#ATTEMPT]|PLAN",
        help="the task; its newest attempt where none is named; or all tasks of a plan",
    )
    parser.add_argument(
        "-f", "--follow", action="store_true", help="go on until the attempt, or the task, has ended"
    )
    parser.add_argument("--all", action="store_true", help="all attempts, one after the other")
    parser.add_argument(
        "--grep", metavar="TEXT", help="only what holds this text, in all attempts of the task or the plan"
    )
    parser.add_argument(
        "--stream", metavar="stdout|stderr", choices=("stdout", "stderr"), help="only this one"
    )
    parser.add_argument("--raw", action="store_true", help="the bytes as they were printed")
    parser.description = (
        "What an agent said and did: messages, tools with what they brought, errors, tries of its provider, "
        "cost. The output of a plain command is shown as it is. --json gives one entry on each line."
    )


def run(args: argparse.Namespace) -> int:
    if args.raw and (args.json or args.grep is not None):
        raise BadInput("--raw gives bytes, without --json and --grep", "leave --raw out")
    with connect(args) as context:
        tasks, epoch = _asked(args, context)
        out = Raw(args.stream, context.here) if args.raw else Readable(args, context.here)
        try:
            if len(tasks) == 1 and (epoch is not None or not (args.all or args.grep is not None)):
                _one(context, tasks[0], epoch, out, follow=args.follow)
            elif args.follow:
                raise BadInput("--follow is for one task or attempt", "leave --all and --grep out")
            else:
                _all(context, tasks, out)
        finally:
            out.close()
    return 0


def _asked(args: argparse.Namespace, context: Context) -> tuple[list[int], int | None]:
    """The tasks, and the one attempt that is meant.  Raises NotFound, Ambiguous."""
    try:
        if args.grep is not None and (tasks := _of_plan(context, args.ref)):
            return tasks, None
        task_id, epoch = context.task_id(args.ref)
    except (NotFound, Ambiguous):
        if tasks := _of_plan(context, args.ref):
            return tasks, None
        raise
    return [task_id], epoch


def _of_plan(context: Context, name: str) -> list[int]:
    """Empty where there is no such plan, or nothing has run."""
    if "/" in name or "#" in name:
        return []
    return [row["id"] for row in context.api.rows("/api/v1/agent-tasks", {"plan": name}) if row["epoch"]]


def _one(context: Context, task_id: int, epoch: int | None, out: Out, *, follow: bool) -> None:
    if epoch is None:
        _newest(context, task_id, out, follow=follow)
    else:
        detail = patiently(lambda: context.api.get(task_path(task_id)))
        _attempt(context, detail, epoch, out, follow=follow)


def _all(context: Context, tasks: Iterable[int], out: Out) -> None:
    for task_id in tasks:
        detail = context.api.get(task_path(task_id))
        for attempt in detail["attempts"]:
            out.head(detail["task"], attempt)
            _attempt(context, detail, attempt["epoch"], out, follow=False)


def _newest(context: Context, task_id: int, out: Out, *, follow: bool) -> None:
    shown = 0
    while True:
        detail = patiently(lambda: context.api.get(task_path(task_id)))
        task = detail["task"]
        if task["epoch"] > shown:
            # A retry may have come and gone while we looked away.
            later = (attempt["epoch"] for attempt in detail["attempts"] if attempt["epoch"] > shown)
            epoch = next(later, task["epoch"]) if shown else task["epoch"]
            if shown:
                note(f"attempt {epoch} of {ref_of(task)}")
            wrote = _attempt(context, detail, epoch, out, follow=follow)
            shown = epoch
            if not follow and not wrote:
                _explain_silence(context, task, detail["attempts"])
            if follow:
                continue
        elif not follow:
            note(f"{ref_of(task)} has not run yet: {task['why']}")
        if not follow or task["status"] in FINAL:
            return
        if context.direct:
            note("no owner is up, so nothing more happens: `muster up`")
            return
        _await_news(context, task_id, detail["events"])


def _explain_silence(context: Context, task: Json, attempts: list[Json]) -> None:
    """The newest attempt last: after `db restored` their epochs are no numbers in a row."""
    *before, newest = attempts
    earlier = f"; earlier ones: muster logs {ref_of(task)}#{before[-1]['epoch']}" if before else ""
    if not (size := newest["logBytes"]):
        note(f"attempt {newest['epoch']} has printed nothing{earlier}")
    elif not context.api.get(task_path(task["id"], "output"), {"epoch": newest["epoch"]})["chunks"]:
        note(f"the {size} bytes that attempt {newest['epoch']} has printed are not kept any more{earlier}")
    else:
        note(f"attempt {newest['epoch']} has printed nothing there{earlier}")


def _await_news(context: Context, task_id: int, events: list[Json]) -> None:
    last = events[-1]["id"] if events else 0
    query = {"task": task_id, "after": last, "wait": WAIT_S, "limit": 1}
    patiently(lambda: context.api.get("/api/v1/events", query))


def _attempt(context: Context, detail: Json, epoch: int, out: Out, *, follow: bool) -> bool:
    """Prints what is there of one attempt, with `follow` all of it.  True where anything was printed."""
    task_id = detail["task"]["id"]
    after = 0
    wrote = False
    out.begin(detail, epoch)
    wait_s = WAIT_S if follow and not context.direct else 0
    while True:
        query = {"epoch": epoch, "after": after, "wait": wait_s}
        answer = patiently(lambda query=query: context.api.get(task_path(task_id, "output"), query))  # type: ignore[misc]
        for chunk in answer["chunks"]:
            wrote = out.write(chunk["stream"], chunk["offset"], base64.b64decode(chunk["data"])) or wrote
        out.flush()
        after = answer["next"]
        over = answer["done"] or (not answer["chunks"] and not wait_s)
        if over:
            out.end()
        if answer["done"]:
            wrote = _tell_the_rest(context, task_id, epoch, out) or wrote
        if over:
            return wrote


def _tell_the_rest(context: Context, task_id: int, epoch: int, out: Out) -> bool:
    """Where the worker was killed, what its agent had printed last was not taken in.  True where there is."""
    told = False
    if context.here is None:
        return told
    for stream, taken in out.taken().items():
        path = context.here.attempts_dir / str(task_id) / str(epoch) / stream
        try:
            missing = taken.missing_of(path)
        except OSError:
            continue  # its worker was on another machine, or it is long ago
        if missing > 0:
            out.flush()
            note(f"the last {missing} bytes of {stream} were not taken in; they are in {path}")
            told = True
    return told
