"""Which failed tasks are meant: by plan, heading, tag, agent, kind of error, reason and age; all must fit."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from muster.cli.context import Context
from muster.cli.output import clean, now_ms
from muster.cli.task import find_tasks
from muster.cli.task_actions import named
from muster.cli.waiting import duration_s
from muster.client.api import plan_path
from muster.model.json_value import Json
from muster.model.states import ErrorKind
from muster.model.wording import counted

LIMIT = 100_000
VALUES_SHOWN = 5


class Criterion(NamedTuple):
    fits: Callable[[Json, Any], bool]
    values: Callable[[Json], Iterable[str | None]]
    """What a task holds there, for saying what there is where nothing fits."""


def _same(one: str | None, other: str) -> bool:
    return (one or "").casefold() == other.casefold()


def _agents(task: Json) -> list[str | None]:
    return [task["lastAgent"] or task["wantedAgent"]]


CRITERIA: dict[str, Criterion] = {
    "plan": Criterion(lambda task, name: bool(task["plan"] == name), lambda task: [task["plan"]]),
    "epic": Criterion(lambda task, text: _same(task["epic"], text), lambda task: [task["epic"]]),
    "feature": Criterion(lambda task, text: _same(task["feature"], text), lambda task: [task["feature"]]),
    "tag": Criterion(lambda task, tags: set(tags) <= set(task["tags"]), lambda task: task["tags"]),
    "agent": Criterion(lambda task, name: name in _agents(task), _agents),
    "kind": Criterion(lambda task, kind: bool(task["errorKind"] == kind), lambda task: [task["errorKind"]]),
    "reason": Criterion(lambda task, text: text.casefold() in task["error"].casefold(), lambda _: ()),
    "since": Criterion(lambda task, age_s: _age_s(task) <= age_s, lambda _: ()),
    "older": Criterion(lambda task, age_s: _age_s(task) > age_s, lambda _: ()),
}


def _age_s(task: Json) -> float:
    at_ms: int = task["endedAtMs"] or task["updatedAtMs"]
    return (now_ms() - at_ms) / 1000


def add_filter(parser: argparse.ArgumentParser) -> None:
    texts = {
        "--plan": ("PLAN", "those of this plan"),
        "--epic": ("TEXT", "those below this heading of their plan"),
        "--feature": ("TEXT", "those below this heading of their epic"),
        "--agent": ("AGENT", "those that this agent had last"),
        "--reason": ("TEXT", "those with this in their error, in whatever case"),
    }
    for name, (metavar, text) in texts.items():
        parser.add_argument(name, metavar=metavar, type=_some, help=text)
    parser.add_argument(
        "--tag", metavar="TAG", type=_some, action="append", help="those with this tag; may be given again"
    )
    parser.add_argument("--kind", choices=tuple(ErrorKind), help="those with this kind of error")
    parser.add_argument(
        "--since", metavar="TIME", type=duration_s, help="those that failed within this time, like 30m or 2d"
    )
    parser.add_argument(
        "--older", metavar="TIME", type=duration_s, help="those that failed longer ago than this"
    )


def _some(text: str) -> str:
    if not text.strip():
        raise argparse.ArgumentTypeError("it is empty, so it would fit everything or nothing")
    return text


def is_filtered(args: argparse.Namespace) -> bool:
    return any(getattr(args, name) is not None for name in CRITERIA)


def chosen(context: Context, args: argparse.Namespace) -> list[Json]:
    """The tasks that were named, or all that have failed.  Raises NotFound for a plan that is not there."""
    if args.plan is not None:
        context.api.get(plan_path(args.plan))
    if args.refs:
        return named(context, args.refs)
    return find_tasks(context, plan=args.plan, names=("failed",), limit=LIMIT)


def filtered(tasks: list[Json], args: argparse.Namespace) -> tuple[list[Json], str]:
    """Those that fit everything that was asked for; else what nothing fits, and what there is."""
    for name, criterion in CRITERIA.items():
        wanted = getattr(args, name)
        if wanted is None:
            continue
        left = [task for task in tasks if criterion.fits(task, wanted)]
        if tasks and not left:
            return [], _missed(name, wanted, tasks, criterion)
        tasks = left
    return tasks, ""


def _missed(name: str, wanted: Any, tasks: list[Json], criterion: Criterion) -> str:
    there = sorted({value for task in tasks for value in criterion.values(task) if value})
    more = f" and {len(there) - VALUES_SHOWN} more" if len(there) > VALUES_SHOWN else ""
    known = f" (there is {', '.join(map(clean, there[:VALUES_SHOWN]))}{more})" if there else ""
    told = (
        f"{wanted:g} s"
        if isinstance(wanted, float)
        else ", ".join([wanted] if isinstance(wanted, str) else wanted)
    )
    count = counted(len(tasks), "failed task")
    return f"of {count} none fits --{name} {clean(told)}{known}"
