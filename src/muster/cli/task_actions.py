"""`muster task retry | cancel | pause | resume | ...`: what moves tasks; and `wait` and `next`."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from muster.cli.context import Context, connect
from muster.cli.fields import add_fields, print_tasks, refuse_unknown, task_names
from muster.cli.offers import known_agents, offered, registered
from muster.cli.output import Screen, clean, note, print_error, print_json, ref_of, refused
from muster.cli.values import number
from muster.cli.waiting import ENDED, FOREVER_S, RESTING, STILL, Waiting, add_waiting, duration_s
from muster.client.api import task_path
from muster.model.errors import BadInput, MusterError, NotFound
from muster.model.json_value import Json
from muster.model.states import FOR_ITS_FILE, HELD, TaskStatus
from muster.model.wording import OTHERWISE

Act = Callable[[Context, Json], Json]
Tell = Callable[[Json, Json, Context], str]
"""What was done to a task, of how it was, how it is, and who answers."""
NEXT = 10


def add(verbs: Any) -> None:
    parsers = {
        name: verbs.add_parser(name, act=act, help=text)
        for name, (act, text) in {
            "retry": (_retry, "run tasks again; a delayed retry runs now"),
            "cancel": (_cancel, "end tasks for good; running ones are stopped"),
            "pause": (_pause, "pause tasks; running ones save a checkpoint and stop"),
            "resume": (_resume, "resume paused tasks"),
            "skip": (
                _end("skip", TaskStatus.CANCELLED, "skipped"),
                "skip unwanted tasks; their dependents run",
            ),
            "complete": (
                _end("complete", TaskStatus.COMPLETED, "completed"),
                "tasks that a person has done; their dependents run",
            ),
            "archive": (_end("archive", TaskStatus.ARCHIVED, "archived"), "hide ended tasks for good"),
            "accept": (_accept, "take the reviewed work of tasks as it is; it is published next"),
            "transfer": (_transfer, "give tasks to another agent"),
            "depend": (_depend, "add dependencies to tasks that have not started"),
            "wait": (_wait, "return when tasks have ended, well or not"),
        }.items()
    }
    for parser in parsers.values():
        parser.add_argument("refs", metavar="REF", nargs="+")
    add_retry_options(parsers["retry"])
    parsers["resume"].add_argument("--note", metavar="TEXT", default="", help="something for the agent")
    for name in ("retry", "resume", "transfer", "accept"):
        add_waiting(parsers[name], ENDED)
    add_waiting(parsers["cancel"], STILL)
    add_waiting(parsers["pause"], RESTING)
    for name in ("cancel", "skip"):
        parsers[name].add_argument("--reason", metavar="TEXT", default="", help="kept in the task's events")
    parsers["depend"].add_argument(
        "--on", metavar="REF", required=True, action="append", help="what they wait for; may be given again"
    )
    parsers["transfer"].add_argument(
        "--to", metavar="AGENT", required=True, help="the agent that is to do it"
    )
    parsers["wait"].add_argument(
        "--timeout",
        dest="wait",
        metavar="TIME",
        type=duration_s,
        default=FOREVER_S,
        help="give up after this time (exit code 8)",
    )
    parsers["wait"].set_defaults(goal=ENDED._replace(needs_crew=False))
    coming = verbs.add_parser("next", act=_next, help="the tasks that agents take next, in order")
    some = number(1, 1000)
    coming.add_argument("--limit", metavar="N", type=some, default=NEXT, help=f"at most N tasks ({NEXT})")
    for parser in (parsers["wait"], coming):
        add_fields(parser)


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


def retrying(args: argparse.Namespace) -> Act:
    return post("retry", note=args.note, fresh=args.begin == "start")


def _retry(args: argparse.Namespace) -> int:
    def tell(task: Json, moved: Json, context: Context) -> str:
        if held := _held_again(task, moved):
            return held
        anew = moved["generation"] != task["generation"]
        what = f"starts anew (generation {moved['generation']})" if anew else "its next try is due now"
        return what + runs_it(context)

    return _each(args, "ready", retrying(args), tell)


def _held_again(task: Json, moved: Json) -> str:
    """What has come back, and is not begun before its plan's file is settled."""
    told = f"waits: {OTHERWISE}; `muster why {ref_of(task)}` tells how"
    return clean(told) if moved["status"] == TaskStatus.PAUSED else ""


def runs_it(context: Context) -> str:
    return "; `muster up` runs it" if context.direct else ""


def _cancel(args: argparse.Namespace) -> int:
    def tell(task: Json, moved: Json, _: Context) -> str:
        if task["status"] == TaskStatus.CANCELLED:
            return "was cancelled already"
        return f"cancelled; attempt {moved['epoch']} is stopped" if task["status"] in HELD else "cancelled"

    return _each(args, "cancelled", post("cancel", reason=args.reason), tell)


def _pause(args: argparse.Namespace) -> int:
    def tell(task: Json, moved: Json, _: Context) -> str:
        if moved["status"] in HELD:
            return f"attempt {moved['epoch']} saves a checkpoint and stops; then it is paused"
        paused = task["status"] == TaskStatus.PAUSED and task["pausedReason"] not in FOR_ITS_FILE
        return "was paused already" if paused else "paused"

    return _each(args, "paused", post("pause"), tell)


def _resume(args: argparse.Namespace) -> int:
    def tell(task: Json, moved: Json, context: Context) -> str:
        if said := _held_again(task, moved):
            return said
        held = moved["status"] in HELD
        return "goes on once its attempt has stopped" if held else f"goes on{runs_it(context)}"

    return _each(args, "ready", post("resume", note=args.note), tell)


def _accept(args: argparse.Namespace) -> int:
    def tell(_: Json, __: Json, context: Context) -> str:
        return f"accepted; its work is published next{runs_it(context)}"

    return _each(args, "ready", post("accept"), tell)


def _end(action: str, status: TaskStatus, word: str) -> Callable[[argparse.Namespace], int]:
    def tell(task: Json, *_: object) -> str:
        return f"was {word} already" if task["status"] == status else word

    def run(args: argparse.Namespace) -> int:
        more = {"reason": args.reason} if action == "skip" else {}
        return _each(args, status.lower(), post(action, **more), tell)

    return run


def _transfer(args: argparse.Namespace) -> int:
    def tell(_: Json, moved: Json, __: Context) -> str:
        held = moved["status"] in HELD
        return f"goes to {clean(args.to)}" + (f" once attempt {moved['epoch']} has stopped" if held else "")

    with connect(args) as context:
        refuse_unknown_agent(context, args.to)
    return _each(args, "ready", post("transfer", agent=args.to), tell)


def _depend(args: argparse.Namespace) -> int:
    with connect(args) as context:
        parents = named(context, args.on)
    names = ", ".join(clean(ref_of(parent)) for parent in parents)
    act = post("depend", dependsOn=[parent["id"] for parent in parents])
    return _each(args, "waiting", act, lambda *_: f"waits for {names}")


def post(action: str, **more: Any) -> Act:
    def act(context: Context, task: Json) -> Json:
        moved: Json = context.post(task_path(task["id"], action), **more)
        return moved

    return act


def refuse_unknown_agent(context: Context, name: str) -> None:
    """Raises NotFound for an agent that no task may name: see `engine.known_agents`."""
    if name in offered(context.api):
        return
    if name in registered(context.api):
        note(f"agent {clean(name)}, a program, is offline: such a task waits until it is heard again")
        return
    configured: set[str] = set()
    if context.here is not None:  # else its settings are elsewhere
        from muster.app.settings import load_config

        configured = {*load_config(context.here.root).agents}
    if name in configured:
        return
    known = known_agents(context.api)
    if context.here is None or name in known:
        note(f"no worker that is up offers agent {clean(name)}: such a task waits until one does")
        return
    names = ", ".join(sorted(known | configured))
    raise NotFound(
        f"there is no agent {name}; nothing was changed",
        f"add [agents.{name}] to muster.toml, or use one of: {names}",
    )


def _each(args: argparse.Namespace, look: str, act: Act, tell: Tell) -> int:
    """Finds all tasks before it touches one."""
    with connect(args) as context:
        return act_on(Waiting(args, context), named(context, args.refs), look, act, tell)


def act_on(
    waiting: Waiting, tasks: Iterable[Json], look: str, act: Act, tell: Tell, *, alone: bool = False
) -> int:
    """The first refusal is the exit code, the others still happen.  `alone`: for programs it is no list."""
    args = waiting.args
    done: list[Json] = []
    ids: list[int] = []
    code = 0
    screen = Screen(args.color)
    for task in tasks:
        try:
            moved = act(waiting.context, task)
        except MusterError as error:
            code = code or error.exit_code
            if args.rewound is None:  # else it was told why already
                print_error(refused(error, ref_of(task), task["id"]), as_json=args.json)
            continue
        ids.append(task["id"])
        done.append({"ref": ref_of(task), "previousStatus": task["status"], **moved})
        if not args.json:
            told = tell(task, moved, waiting.context)
            screen.line(f"{screen.badge(look, '')} {clean(ref_of(task))}  {told}")
    ended = waiting.tasks(ids)
    if args.json:
        rows = [{**row, **task} for row, task in zip(done, ended or [{}] * len(done), strict=True)]
        for answer in rows if alone else [rows]:
            print_json(answer)
    return code or waiting.code(ended)


def named(context: Context, references: Sequence[str]) -> list[Json]:
    tasks = (one(context, reference) for reference in references)
    return list({task["id"]: task for task in tasks}.values())


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


def _wait(args: argparse.Namespace) -> int:
    refuse_unknown(args, task_names)
    with connect(args) as context:
        waiting = Waiting(args, context, mute=args.fields is not None)
        tasks = waiting.tasks(task["id"] for task in named(context, args.refs))
    print_tasks(args, tasks, lambda screen: show_tasks(tasks, screen))
    return waiting.code(tasks)


def show_tasks(tasks: Iterable[Json], screen: Screen) -> None:
    for task in tasks:
        screen.line(f"{screen.badge(task['state'])}  {clean(ref_of(task))}  {clean(task['why'])}")


def _next(args: argparse.Namespace) -> int:
    with connect(args) as context:
        found = context.api.get("/api/v1/agent-tasks/next", {"limit": args.limit})

    def show(screen: Screen) -> None:
        for task in found:
            screen.line(f"{screen.badge('ready', '')} {clean(ref_of(task))}  {clean(task['why'])}")
        if not found:
            screen.line("nothing is ready: muster status")

    print_tasks(args, found, show)
    return 0
