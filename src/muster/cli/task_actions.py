"""`muster task retry | cancel | pause | resume | skip | complete | archive | transfer | depend`."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from muster.cli.context import Context, connect
from muster.cli.output import Screen, clean, note, print_error, print_json, ref_of
from muster.cli.refusals import refused
from muster.cli.waiting import (
    ENDED,
    RESTING,
    STILL,
    add_waiting,
    await_tasks,
    end_code,
    last_event,
    refuse_idle,
    within,
)
from muster.client.api import task_path
from muster.model.errors import BadInput, MusterError, NotFound
from muster.model.json_value import Json
from muster.model.states import TaskStatus

_HELD = (TaskStatus.ASSIGNED, TaskStatus.RUNNING)


def add(verbs: Any) -> None:
    parsers = {
        name: verbs.add_parser(name, act=act, help=text)
        for name, (act, text) in {
            "retry": (retry, "run tasks again; a delayed retry runs now"),
            "cancel": (_cancel, "end tasks for good; running ones are stopped"),
            "pause": (_pause, "pause tasks; running ones save a checkpoint and stop"),
            "resume": (_resume, "resume paused tasks"),
            "skip": (_skip, "skip unwanted tasks; their dependents run"),
            "complete": (_complete, "tasks that a person has done; their dependents run"),
            "archive": (archive, "hide ended tasks for good"),
            "transfer": (_transfer, "give tasks to another agent"),
            "depend": (_depend, "add dependencies to tasks that have not started"),
        }.items()
    }
    for parser in parsers.values():
        parser.add_argument("refs", metavar="REF", nargs="+")
    add_retry_options(parsers["retry"])
    for name, goal in {
        "retry": ENDED,
        "resume": ENDED,
        "transfer": ENDED,
        "cancel": STILL,
        "pause": RESTING,
    }.items():
        add_waiting(parsers[name], goal)
    for name in ("cancel", "skip"):
        parsers[name].add_argument("--reason", metavar="TEXT", default="", help="kept in the task's events")
    parsers["depend"].add_argument(
        "--on", metavar="REF", required=True, action="append", help="what they wait for; may be given again"
    )
    parsers["transfer"].add_argument(
        "--to", metavar="AGENT", required=True, help="the agent that is to do it"
    )


def add_retry_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--note", metavar="TEXT", default="", help="something the agent should know this time"
    )
    parser.add_argument(
        "--from",
        dest="begin",
        choices=("checkpoint", "start"),
        default="checkpoint",
        help="where the next attempt begins (checkpoint)",
    )


def retry(args: argparse.Namespace) -> int:
    def act(context: Context, task: Json) -> Json:
        body = {"actor": context.actor(), "note": args.note, "fresh": args.begin == "start"}
        moved: Json = context.api.post(task_path(task["id"], "retry"), body)
        if args.note and moved["generation"] == task["generation"]:
            note(f"{ref_of(task)} only waited for its next try, which is now; the note was not kept")
        return moved

    def tell(task: Json, moved: Json, context: Context) -> str:
        anew = moved["generation"] != task["generation"]
        what = f"starts anew (generation {moved['generation']})" if anew else "its next try is due now"
        return what + ("; `muster up` runs it" if context.direct else "")

    return each(args, "ready", act, tell)


def _cancel(args: argparse.Namespace) -> int:
    def tell(task: Json, moved: Json, _: Context) -> str:
        if task["status"] == TaskStatus.CANCELLED:
            return "was cancelled already"
        return f"cancelled; attempt {moved['epoch']} is stopped" if task["status"] in _HELD else "cancelled"

    return each(args, "cancelled", _post("cancel", {"reason": args.reason}), tell)


def _pause(args: argparse.Namespace) -> int:
    def tell(task: Json, moved: Json, _: Context) -> str:
        if task["status"] == TaskStatus.PAUSED:
            return "was paused already"
        held = moved["status"] in _HELD
        return (
            f"attempt {moved['epoch']} saves a checkpoint and stops; then it is paused" if held else "paused"
        )

    return each(args, "paused", _post("pause"), tell)


def _resume(args: argparse.Namespace) -> int:
    def tell(_: Json, moved: Json, context: Context) -> str:
        if moved["status"] in _HELD:
            return "goes on once its attempt has stopped"
        return "goes on" + ("; `muster up` runs it" if context.direct else "")

    return each(args, "ready", _post("resume"), tell)


def _skip(args: argparse.Namespace) -> int:
    def tell(task: Json, *_: object) -> str:
        return "was skipped already" if task["status"] == TaskStatus.CANCELLED else "skipped"

    return each(args, "cancelled", _post("skip", {"reason": args.reason}), tell)


def _complete(args: argparse.Namespace) -> int:
    def tell(task: Json, *_: object) -> str:
        return "was completed already" if task["status"] == TaskStatus.COMPLETED else "completed"

    return each(args, "completed", _post("complete"), tell)


def archive(args: argparse.Namespace) -> int:
    def tell(task: Json, *_: object) -> str:
        return "was archived already" if task["status"] == TaskStatus.ARCHIVED else "archived"

    return each(args, "archived", _post("archive"), tell)


def _transfer(args: argparse.Namespace) -> int:
    def tell(_: Json, moved: Json, __: Context) -> str:
        held = moved["status"] in _HELD
        return f"goes to {clean(args.to)}" + (f" once attempt {moved['epoch']} has stopped" if held else "")

    with connect(args) as context:
        refuse_unknown_agent(context, args.to)
    return each(args, "ready", _post("transfer", {"agent": args.to}), tell)


def _depend(args: argparse.Namespace) -> int:
    with connect(args) as context:
        parents = named(context, args.on)
    names = ", ".join(clean(ref_of(parent)) for parent in parents)
    more = {"dependsOn": [parent["id"] for parent in parents]}
    return each(args, "waiting", _post("depend", more), lambda *_: f"waits for {names}")


def _post(action: str, more: Json | None = None) -> Callable[[Context, Json], Json]:
    def act(context: Context, task: Json) -> Json:
        body = {"actor": context.actor(), **(more or {})}
        moved: Json = context.api.post(task_path(task["id"], action), body)
        return moved

    return act


def refuse_unknown_agent(context: Context, name: str) -> None:
    """Raises NotFound for an agent that is neither configured nor offered by a worker."""
    workers = context.api.get("/api/v1/workers")
    offered = {agent for worker in workers for agent in worker["agents"]}
    if name in offered:
        return
    from muster.app.settings import load_config

    known = offered | set(load_config(context.project.root).agents)
    if name not in known:
        names = ", ".join(sorted(known))
        raise NotFound(
            f"there is no agent {name}; nothing was changed",
            f"add [agents.{name}] to muster.toml, or use one of: {names}",
        )


def each(
    args: argparse.Namespace,
    look: str,
    act: Callable[[Context, Json], Json],
    tell: Callable[[Json, Json, Context], str],
) -> int:
    """Finds all tasks before it touches one; the first refusal is the exit code, the others still happen."""
    with connect(args) as context:
        refuse_idle(args, context)
        return act_on(context, args, named(context, args.refs), look, act=act, tell=tell)


def act_on(
    context: Context,
    args: argparse.Namespace,
    tasks: Iterable[Json],
    look: str,
    *,
    act: Callable[[Context, Json], Json],
    tell: Callable[[Json, Json, Context], str],
) -> int:
    done: list[Json] = []
    moved_ids: list[int] = []
    code = 0
    screen = Screen(args.color)
    within_s = within(args)
    after = 0 if within_s is None else last_event(context)
    for task in tasks:
        try:
            moved = act(context, task)
        except MusterError as error:
            code = code or error.exit_code
            if args.rewound is None:  # else it was told why already
                print_error(refused(error, ref_of(task), task["id"]), as_json=args.json)
            continue
        moved_ids.append(task["id"])
        done.append({"ref": ref_of(task), "previousStatus": task["status"], **moved})
        if not args.json:
            glyph = screen.badge(look, "")
            screen.line(f"{glyph} {clean(ref_of(task))}  {tell(task, moved, context)}")
    if within_s is not None:
        shown = None if args.json else screen
        ended = await_tasks(context, moved_ids, args.goal, within_s=within_s, screen=shown, after=after)
        done = [{**row, **task} for row, task in zip(done, ended, strict=True)]
        code = code or end_code(ended, args.goal)
    if args.json:
        print_json(done)
    return code


def named(context: Context, references: Sequence[str]) -> list[Json]:
    found: dict[int, Json] = {}
    for reference in references:
        task = one(context, reference)
        found.setdefault(task["id"], task)
    return list(found.values())


def one(context: Context, reference: str) -> Json:
    """The task that a reference names.  Raises BadInput where it names an attempt."""
    task_id, epoch = context.task_id(reference)
    if epoch is not None:
        raise BadInput(
            f"{reference} names an attempt, this is about tasks; nothing was changed",
            f"leave out #{epoch}",
        )
    task: Json = context.api.get(task_path(task_id))["task"]
    return task
