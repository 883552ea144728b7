"""`muster task run REF`: one task that there is already, now; by the crew that is up, or by one of its own."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from contextlib import ExitStack, closing
from functools import partial

from muster.cli.context import Context, actor, patiently
from muster.cli.fields import print_one
from muster.cli.output import clean, listed, ref_of, shell_word
from muster.cli.waiting import ENDED, FOREVER_S, RESTING, Waiting
from muster.client.api import task_path
from muster.config.project import Project
from muster.model.errors import Ambiguous, IllegalMove, NotFound, Unavailable
from muster.model.json_value import Json
from muster.model.states import FINAL, HELD, PauseReason, TaskStatus

EXIT_INTERRUPTED = 130
FIRST = 10
"""The priority of what is to run now."""
SOON_S = 3.0
"""A task that does not run after that says what it waits for."""


def existing(context: Context, text: str) -> Json | None:
    """The task, where this is a reference in full; what is only near may as well be a new task's title."""
    if any(map(str.isspace, text)) or not (text.isdecimal() or text[0] == "@" or "/" in text):
        return None
    try:
        task_id, _ = context.task_id(text)
    except (NotFound, Ambiguous):
        return None
    task: Json = context.api.get(task_path(task_id))["task"]
    known = {ref_of(task), f"{task['plan']}/{task['key']}", str(task["id"])}
    return task if text[0] == "@" or text in known else None


def refuse(task: Json) -> None:
    """Raises IllegalMove for what does not wait for an agent alone."""
    name, word = ref_of(task), shell_word(ref_of(task))
    if task["status"] in FINAL:
        fix = f"muster task retry {word}" if task["status"] != TaskStatus.ARCHIVED else ""
        raise IllegalMove(f"{name} is {task['status']}; nothing was started", fix)
    if task["unmet"]:
        raise IllegalMove(
            f"{name} waits for {', '.join(task['waitsFor'])}; nothing was started", f"muster why {word}"
        )
    if task["status"] == TaskStatus.PAUSED:
        raise IllegalMove(f"{name}: {task['why']}; nothing was started", f"muster task show {word}")


def run_now(args: argparse.Namespace, context: Context, task: Json) -> int:
    refuse(task)
    if context.direct:
        _refuse_git(context.project)
    if task["status"] not in HELD:
        if task["nextAttemptAtMs"] is not None:
            context.post(task_path(task["id"], "retry"))
        if task["priority"] < FIRST:
            context.post(task_path(task["id"], "edit"), priority=FIRST)
    if context.direct:
        return -1
    args.goal = ENDED
    args.wait = FOREVER_S if args.wait is None else args.wait
    waiting = Waiting(args, context, mute=args.json or args.fields is not None)
    tasks = waiting.tasks([task["id"]])
    print_one(args, listed(*tasks), lambda _: None)
    return waiting.code(tasks)


def _refuse_git(project: Project) -> None:
    """Before anything is changed for it: raises GitRefused."""
    from muster.app.crew import refuse_git
    from muster.app.settings import load_config

    refuse_git(project, load_config(project.root))


def run_alone(args: argparse.Namespace, context: Context, task: Json) -> int:
    """With a crew that does nothing else, and ends with it."""
    from muster.app.crew import SupervisedCrew
    from muster.app.interrupts import Interrupts
    from muster.app.settings import load_config
    from muster.cli.feed import EventPrinter, Feed

    project = context.project
    config = load_config(project.root)
    context.__exit__()  # the owner of this command makes room for that of the crew
    show = EventPrinter(as_json=args.json, colour=args.color)
    with Interrupts().counting() as interrupts, ExitStack() as stack:
        crew = stack.enter_context(
            SupervisedCrew(project, config, 1, say=show.say, actor=actor(), interrupts=interrupts)
        )
        if crew.start():
            crew.api.post("/api/v1/crew", {"actor": actor(), "status": "RUNNING", "onlyTaskId": task["id"]})
            feed = stack.enter_context(closing(Feed(project, crew.last_event(), show, task["plan"])))
            look = partial(crew.control.get, task_path(task["id"]))
            crew.work_until(_rests(look, show.say))
            feed.close()
        task = patiently(partial(crew.api.get, task_path(task["id"])))["task"]
        crew.wind_down()
    print_one(args, listed(task), lambda screen: screen.line(f"{clean(ref_of(task))}  {clean(task['why'])}"))
    if task["status"] not in FINAL and interrupts.count:
        return EXIT_INTERRUPTED
    return 0 if ENDED.good(task) else 5


def _rests(look: Callable[[], Json], say: Callable[[str], None]) -> Callable[[], bool]:
    since_s, told = time.monotonic(), ""

    def rests() -> bool:
        nonlocal told
        try:
            task = look()["task"]
        except Unavailable:
            return False
        stays = task["status"] == TaskStatus.PAUSED and task["pausedReason"] != PauseReason.EDIT
        if task["status"] in FINAL or stays:
            return RESTING.reached(task)
        if task["status"] not in HELD and time.monotonic() - since_s > SOON_S and task["why"] != told:
            told = task["why"]
            say(f"Waits    {told} (Ctrl-C: end)")
        return False

    return rests
