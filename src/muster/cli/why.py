"""`muster why`: why a task is in its state, with the evidence."""

from __future__ import annotations

import argparse
from typing import Any

from muster.cli.context import connect
from muster.cli.fields import add_fields, print_one
from muster.cli.output import Screen, age, clean, clock_time, now_ms, ref_of
from muster.cli.task import next_of, several
from muster.client.api import task_path

_EVIDENCE = frozenset({"suspected", "recovered", "lost", "failed", "stop_requested", "asked", "expired"})
_SHOWN_MAX = 5


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("ref", metavar="REF", help="the task")
    add_fields(parser)


def run(args: argparse.Namespace) -> int:
    with connect(args) as context:
        task_id, _ = context.task_id(args.ref)
        detail = context.api.get(task_path(task_id))
        context.tell_if_stale([detail["task"]])
    task = detail["task"]
    evidence = [event for event in detail["events"] if event["event"] in _EVIDENCE][-_SHOWN_MAX:]
    told = {"task": ref_of(task), "status": task["status"], "why": task["why"], "evidence": evidence}

    def show(screen: Screen) -> None:
        screen.line(f"{screen.badge(task['state'])}  {clean(ref_of(task))}  {clean(task['why'])}")
        rows = [(clock_time(event["atMs"]), clean(event["message"])) for event in evidence]
        steps = several("Next", next_of(detail)) if task["needsPerson"] else []
        screen.fields([*rows, *_attempt(detail), *steps])

    print_one(args, told, show)
    return 0


def _attempt(detail: dict[str, Any]) -> list[tuple[str, str]]:
    """What the newest attempt shows of itself, while it is open."""
    if not detail["attempts"] or detail["attempts"][-1]["endedAtMs"] is not None:
        return []
    attempt = detail["attempts"][-1]
    begun = attempt["startedAtMs"] or attempt["assignedAtMs"]
    return [
        (
            f"#{attempt['epoch']}",
            f"for {age(now_ms() - begun)} on {attempt['worker']}, {attempt['logBytes']} bytes of output, "
            f"{attempt['checkpoints']} checkpoints",
        )
    ]
