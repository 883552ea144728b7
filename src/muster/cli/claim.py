"""`muster claim`: tasks that a person, or a program outside of Muster, does by hand."""

from __future__ import annotations

import argparse
import os
import shlex
from collections.abc import Callable, Mapping
from functools import partial
from operator import itemgetter
from typing import Any

from muster.cli.context import Context, after_change, connect
from muster.cli.fields import add_fields, answer, names_of, print_rows
from muster.cli.output import (
    BOLD,
    Screen,
    age,
    clean,
    clock_time,
    inert,
    note,
    now_ms,
    print_json,
    ref_of,
    refused,
)
from muster.cli.report import result_of
from muster.cli.task import several
from muster.cli.task_actions import one
from muster.cli.values import time_s
from muster.cli.waiting import ENDED, Goal, Waiting, add_waiting
from muster.client.api import task_path
from muster.client.reports import MESSAGE_CHARS_MAX, text_of
from muster.model.errors import BadInput, IllegalMove
from muster.model.json_value import Json
from muster.model.states import FINAL, ErrorKind

LEASE_S_MAX = 7 * 86400
MINE = ("MUSTER_TASK_ID", "MUSTER_EPOCH")


def _is_free(task: Json) -> bool:
    """Nothing keeps it from being taken; or nothing ever will."""
    return task["status"] in FINAL or "claim" in task["actions"]


FREE = Goal("can be taken", reached=_is_free)

_HELP = """\
Takes a task as a worker would, for yourself: nobody else gets it while its lease holds.

    muster claim take billing/api                      # and it is yours for half an hour
    eval "$(muster claim take billing/api --env)"      # the same; then `muster report progress 40` works here
    muster claim renew                                 # half an hour more; every report does that as well
    muster claim release --done --result '{"rows": 120}'

A lease that has run out frees the task like that of a worker that died.  Until somebody else has it, `renew`
takes it up again.
"""


def add(parser: argparse.ArgumentParser) -> None:
    parser.description = _HELP
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    add_fields(verbs.add_parser("list", act=_list, help="who holds what, and for how long"))
    taking = verbs.add_parser("take", act=_take, help="take a task that waits for an agent")
    taking.add_argument("ref", metavar="TASK")
    taking.add_argument("--env", action="store_true", help="print only what `eval` needs for `muster report`")
    add_waiting(taking, FREE)
    renewing = verbs.add_parser(
        "renew", act=_renew, help="keep it longer, or take it up again after its lease"
    )
    releasing = verbs.add_parser("release", act=_release, help="give it back at no cost, or say how it ended")
    for verb in (renewing, releasing):
        verb.add_argument("ref", metavar="TASK", nargs="?", help="optional after `take --env`")
    for verb in (taking, renewing):
        verb.add_argument("--lease", metavar="TIME", type=_lease, help="how long from now (30m)")
    releasing.add_argument("--done", action="store_true", help="it is completed; its dependents run")
    releasing.add_argument("--result", metavar="JSON|@FILE", help="with --done: what came out, as JSON")
    add_waiting(releasing, ENDED, what="is given back and the task has ended")
    releasing.add_argument("--fail", metavar="TEXT", help="it could not be done; costs a retry")


def _lease(text: str) -> float:
    seconds = time_s(text)
    if not 1 <= seconds <= LEASE_S_MAX:
        raise argparse.ArgumentTypeError(f"{text!r} is not between 1s and 7d")
    return seconds


def _take(args: argparse.Namespace) -> int:
    import hashlib
    import secrets

    token = secrets.token_urlsafe(32)
    with connect(args) as context:
        task_id = one(context, args.ref)["id"]
        given = {"tokenHash": hashlib.sha256(token.encode()).hexdigest(), "leaseS": args.lease}
        taken = _take_when_free(Waiting(args, context, mute=True), task_id, given)
        job = taken["job"]
        env = env_of(context.reach, job, token)
    if args.json:
        print_json({**taken, "env": env})
    elif args.env:
        print("\n".join(_exports(env)))
        note(f"{ref_of(job)} is yours as attempt {job['epoch']} until {_until(taken)}")
    else:
        _show(taken, env, Screen(args.color))
    return 0


def env_of(reach: Mapping[str, str], job: Json, token: str) -> dict[str, str]:
    """What `muster report` needs."""
    return {
        **reach,
        "MUSTER_TOKEN": token,
        "MUSTER_TASK": ref_of(job),
        "MUSTER_TASK_ID": str(job["taskId"]),
        "MUSTER_EPOCH": str(job["epoch"]),
        "MUSTER_BY_HAND": "1",
    }


def _take_when_free(waiting: Waiting, task_id: int, body: Json) -> Json:
    """With `--wait` as soon as the task waits for an agent.  Raises Conflict where it has ended, WaitTimeout."""
    while True:
        try:
            taken: Json = waiting.context.post(task_path(task_id, "claim"), **body)
        except IllegalMove as error:
            task = waiting.context.api.get(task_path(task_id))["task"]
            if waiting.within_s is None or _is_free(task):  # then something else is in the way
                raise refused(error, ref_of(task), task_id) from None
        else:
            return taken
        waiting.tasks([task_id])


def _until(held: Mapping[str, Any]) -> str:
    ends_ms = held["leaseEndsAtMs"]
    return f"{clock_time(ends_ms)} ({age(ends_ms - now_ms() + 500)} from now)"


def _exports(env: Mapping[str, str]) -> list[str]:
    return [f"export {name}={shlex.quote(value)}" for name, value in env.items()]


def _show(taken: Json, env: Mapping[str, str], screen: Screen) -> None:
    job = taken["job"]
    ref = clean(ref_of(job))
    badge = screen.badge("running", f"yours as attempt {job['epoch']} until {_until(taken)}")
    screen.line(f"{screen.paint(ref, BOLD)}  {clean(job['title'])}  {badge}")
    saved = "muster report checkpoint --show   (what the attempt before has left)"
    rows = {
        "Text": inert(job["description"]).splitlines(),
        "Note": inert(job["note"]).splitlines(),
        "Saved": [] if job["checkpoint"] is None else [saved],
        "Export": _exports(env),
        "Next": [f"muster claim renew {ref}", f"muster claim release {ref} --done"],
    }
    screen.fields([row for name, lines in rows.items() for row in several(name, lines)])


def _mine(args: argparse.Namespace, context: Context) -> tuple[int, int | None]:
    """(task id, epoch) of what is meant.  An attempt that this shell has taken is named by its epoch, so that
    it can never be mistaken for a newer one."""
    named = [os.environ.get(name, "") for name in MINE]
    here = (
        (int(named[0]), int(named[1])) if all(name.isascii() and name.isdigit() for name in named) else None
    )
    if args.ref is None:
        if here is None:
            raise BadInput(
                "no task was named, and this shell has taken none; nothing was changed",
                f"muster claim {args.verb} TASK",
            )
        return here
    task_id, epoch = context.task_id(args.ref)
    if epoch is None and here is not None and here[0] == task_id:
        epoch = here[1]
    return task_id, epoch


def _renew(args: argparse.Namespace) -> int:
    with connect(args) as context:
        task_id, epoch = _mine(args, context)
        held = context.post(task_path(task_id, "claim/renew"), epoch=epoch, leaseS=args.lease)
    lines = [f"Yours    attempt {held['epoch']} until {_until(held)}"]
    if held["stop"] is not None:
        lines.append("Stop     somebody wants it back: muster claim release")
    if held["notice"]:
        lines.append(f"Note     {clean(held['notice'])}")
    return answer(args, held, *lines)


def _release(args: argparse.Namespace) -> int:
    body = _outcome(args)
    if args.done:
        args.goal = ENDED._replace(needs_crew=False)
    with connect(args) as context:
        waiting = Waiting(args, context)
        task_id, epoch = _mine(args, context)
        moved = context.post(task_path(task_id, "claim/release"), epoch=epoch, **body)
        told = {"released": "given back", "done": "completed", "failed": "failed"}[body["outcome"]]
        task = after_change(context, task_id, told)
        if not args.json:
            print(f"{clean(ref_of(task))}  {told}; {clean(task['why'])}", flush=True)
        ended = waiting.tasks([task_id])
    if args.json:
        print_json({**moved, **(ended[0] if ended else {})})
    return waiting.code(ended)


def _outcome(args: argparse.Namespace) -> Json:
    if args.fail is not None and args.done:
        raise BadInput("--done and --fail exclude each other; nothing was changed", "use one of them")
    if args.result is not None and not args.done:
        raise BadInput("--result is for what is done; nothing was changed", "add --done")
    if args.fail is not None:
        message = text_of("the reason", args.fail, MESSAGE_CHARS_MAX, note)
        if not message.strip():
            raise BadInput("--fail says no reason; nothing was changed", "--fail TEXT")
        return {"outcome": "failed", "kind": ErrorKind.CRASH.value, "message": message}
    return {"outcome": "done", **result_of(args)} if args.done else {"outcome": "released"}


def _list(args: argparse.Namespace) -> int:
    with connect(args) as context:
        claims: list[Json] = context.api.get("/api/v1/claims")
    rows = [{"ref": ref_of(claim), **claim} for claim in claims]
    names = partial(names_of, "ClaimView", "ref")
    print_rows(args, rows, lambda screen: _table(claims, screen), names=names)
    return 0


_CELLS: Mapping[str, Callable[[Json], object]] = {
    "TASK": ref_of,
    "HOLDER": itemgetter("holder"),
    "AGENT": itemgetter("agent"),
    "ATTEMPT": itemgetter("epoch"),
    "HELD": lambda claim: age(now_ms() - claim["claimedAtMs"]),
    "LEASE LEFT": lambda claim: "over" if claim["expired"] else age(claim["leaseEndsAtMs"] - now_ms()),
}


def _table(claims: list[Json], screen: Screen) -> None:
    screen.table(claims, _CELLS, give="HOLDER", look=_look, empty="nobody holds a task")


def _look(claim: Json) -> str:
    return "delayed" if claim["expired"] else "running"
