"""`muster watch`: what happens, one line for each event and for what agents say and do."""

from __future__ import annotations

import argparse
import math
import os
import sys
import time
from contextlib import suppress

from muster.cli.context import WAIT_S, Context, connect, no_rows, patiently
from muster.cli.output import BOLD, Screen, clean, columns, note, print_json, ref_of
from muster.cli.task import find_tasks
from muster.cli.transcripts import TAIL_CHUNKS, Readers, Said, as_json, lines_of
from muster.client.api import plan_path
from muster.client.http import answers
from muster.model.errors import BadInput, Unavailable
from muster.model.json_value import Json
from muster.model.states import HELD

SHOWN_MAX = 50
RECENT = 3
"""So many entries of what an agent has said before are shown at the start."""
LOOK_S = 0.2
TALK_S = 1.0
"""Agents are asked this often what they say."""
ROOM_MIN = 20
RESTART_S = 2.0
"""An owner that was restarted is back by then."""
_OPEN = ("pending", "assigned", "running", "paused", "aborted")


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--plan", metavar="PLAN", help="this plan only")
    parser.add_argument("--lines", action="store_true", help="lines, also on a terminal")
    parser.description = (
        "On a terminal: tasks with reasons, agents and the output of the chosen task, live; ? tells the keys. "
        "Elsewhere: where things stand, then a line for each event, and for what agents say and do, until Ctrl-C."
    )


def run(args: argparse.Namespace) -> int:
    """Until Ctrl-C, through the end of a crew and the beginning of the next one."""
    screen = Screen(args.color)
    last: int | None = None
    while True:
        with connect(args) as context:
            if args.plan is not None:
                context.api.get(plan_path(args.plan))  # refuses one that is not there
            if args.rewound is None and _is_live(args):
                from muster.cli.live import as_it_is, watch

                first = as_it_is(context, args.plan)
                break
            last = _present(context, args, screen) if last is None else last
            if args.rewound is not None:
                return 0  # and `main` says that it was halted
            if not context.direct:
                last = _follow(context, args, screen, last)
        _await_crew(context)
    # Nobody can bring a crew up while this process holds the store.
    return watch(context, first, plan=args.plan, colour=args.color)


def _await_crew(context: Context) -> None:
    if context.here is None:
        note("the server does not answer: this waits for it")
        patiently(lambda: context.api.get("/api/v1/crew"), math.inf, quiet=True)
        return
    restarted_s = time.monotonic() + RESTART_S
    while not answers(context.here.socket):
        time.sleep(LOOK_S)
        if time.monotonic() > restarted_s:
            restarted_s = math.inf
            note("no crew is up: this waits for one (muster up)")


def _is_live(args: argparse.Namespace) -> bool:
    if args.json or args.lines or os.environ.get("TERM", "dumb") == "dumb":
        return False
    return sys.stdin is not None and sys.stdin.isatty() and sys.stdout.isatty()


def _present(context: Context, args: argparse.Namespace, screen: Screen) -> int:
    """Prints where things stand; returns the last event that this takes in."""
    status = context.api.get("/api/v1/status")["status"]
    plans = [plan for plan in status["plans"] if args.plan in (None, plan["name"])]
    tasks = find_tasks(context, plan=args.plan, names=_OPEN, limit=SHOWN_MAX + 1)
    if args.json:
        print_json({"type": "state", "crew": status["crew"], "plans": plans, "tasks": tasks}, lines=True)
    else:
        for plan in plans:
            screen.line(f"{clean(plan['name'])}  {screen.counts(plan['counts'])}")
        for task in tasks[:SHOWN_MAX]:
            screen.line(f"  {screen.badge(task['state'])}  {clean(ref_of(task))}  {clean(task['why'])}")
        if len(tasks) > SHOWN_MAX:
            screen.line("  and more: muster task list")
        if not plans:
            screen.line(no_rows(args))
        screen.stream.flush()
    last: int = status["lastEventId"]
    return last


def _follow(context: Context, args: argparse.Namespace, screen: Screen, last: int) -> int:
    """Until the owner ends; returns the last event that was shown."""
    voices = _Voices(context, args, screen)
    while True:
        try:
            wait_s = TALK_S if voices.heard else WAIT_S
            events: list[Json] | None = _after(context, last, wait_s)
            if events is None:
                last = context.api.get("/api/v1/status")["status"]["lastEventId"]
                note(f"an older store was put back: this goes on after its event {last}")
                voices = _Voices(context, args, screen)
                continue
            for event in events:
                last = event["id"]
                if args.plan not in (None, event["plan"]):
                    continue
                if event["event"] == "started":
                    voices.listen(event["taskId"], event["epoch"], ref_of(event))
                elif event["newStatus"] not in HELD:
                    with suppress(Unavailable):  # its last words come before its end, where they can be had
                        voices.tell()
                if args.json:
                    print_json({"type": "event", **event}, lines=True)
                else:
                    screen.line(screen.event(event))
            voices.tell()
        except Unavailable:
            return last
        screen.stream.flush()


def _after(context: Context, last: int, wait_s: float) -> list[Json] | None:
    """None where the store has no event `last`.  Raises Unavailable."""
    try:
        found: list[Json] = context.api.get("/api/v1/events", {"after": last, "wait": wait_s})
    except BadInput:
        return None
    return found


class _Voices:
    """What the agents at work say and do."""

    def __init__(self, context: Context, args: argparse.Namespace, screen: Screen) -> None:
        self._api, self._screen, self._json = context.api, screen, args.json
        self._readers = Readers(context.here)
        self.heard: dict[tuple[int, int], tuple[str, Said]] = {}
        for task in find_tasks(context, plan=args.plan, names=["running"], limit=SHOWN_MAX):
            self.listen(task["id"], task["epoch"], ref_of(task), recent=RECENT)

    def listen(self, task_id: int, epoch: int, ref: str, recent: int | None = None) -> None:
        # An entry may be spread over chunks, so that the last chunk alone may hold none.
        said = Said(self._readers, task_id, epoch, last=recent and TAIL_CHUNKS, recent=recent)
        self.heard.setdefault((task_id, epoch), (ref, said))

    def tell(self) -> None:
        """Raises Unavailable."""
        for (task_id, epoch), (ref, said) in list(self.heard.items()):
            for stream, entry in said.news(self._api):
                if self._json:
                    of = {"type": "said", "ref": ref, "taskId": task_id, "attempt": epoch}
                    print_json({**of, **as_json(stream, entry)}, lines=True)
                    continue
                name = self._screen.paint(clean(ref), BOLD)
                room = max(ROOM_MIN, columns() - len(ref) - 2) if self._screen.tty else 0
                for line in lines_of(entry, self._screen, stream=stream, room=room):
                    self._screen.line(f"{name}  {line}")
            if said.over:
                del self.heard[task_id, epoch]
