"""`muster attempt`: the runs of a task, and what each of them has changed."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping
from functools import partial

from muster.agents.handover import BEGINS
from muster.cli.context import Context, connect
from muster.cli.fields import add_fields, names_of, print_one, print_rows
from muster.cli.output import (
    BOLD,
    CYAN,
    GREEN,
    RED,
    Screen,
    clean,
    clock_time,
    inert,
    print_json,
    ref_of,
    usage_words,
)
from muster.cli.task import attempt_times, place_of, several
from muster.cli.transcripts import Readers, tail, tail_lines
from muster.client.api import task_path
from muster.config.project import Project
from muster.hosts.user_git import UserGit
from muster.model.errors import NotFound
from muster.model.json_value import Json
from muster.model.refs import AttemptRefs, attempt_refs, kept_refs
from muster.model.shown import attempt_kind, attempt_look, attempt_word
from muster.model.wording import STILL_AWAY

SAID_LINES = 20


def add(parser: argparse.ArgumentParser) -> None:
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    listing = verbs.add_parser("list", act=_list, help="all attempts of a task")
    listing.add_argument("ref", metavar="REF", help="the task")
    show = verbs.add_parser("show", act=_show, help="one attempt, with its events")
    diff = verbs.add_parser("diff", act=_diff, help="what the task had changed when the attempt ended")
    for verb in (show, diff):
        verb.add_argument("ref", metavar="REF[#ATTEMPT]", help="its newest attempt where none is named")
    add_fields(listing)
    add_fields(show)
    diff.add_argument("--stat", action="store_true", help="only how much, by file")


def _asked(args: argparse.Namespace) -> tuple[Project | None, Json, Json]:
    """The task, and the attempt that is meant.  Raises NotFound where the task has never run."""
    with connect(args) as context:
        return _found(args, context)


def _found(args: argparse.Namespace, context: Context) -> tuple[Project | None, Json, Json]:
    task_id, epoch = context.task_id(args.ref)
    detail: Json = context.api.get(task_path(task_id))
    attempts, ref = detail["attempts"], ref_of(detail["task"])
    if not attempts and args.verb != "list":
        raise NotFound(f"{ref} has not run yet", f"muster why {ref}")
    newest = attempts[-1] if attempts else {}
    return context.here, detail, next((one for one in attempts if one["epoch"] == epoch), newest)


def _works(project: Project | None, detail: Json, attempts: list[Json]) -> dict[int, str]:
    """What each attempt has left.  One whose worker was killed could not tell; the next one kept it for it."""
    told = dict(detail["artifacts"])
    works = {attempt["epoch"]: told.get(f"work of attempt {attempt['epoch']}", "") for attempt in attempts}
    ended = [attempt["epoch"] for attempt in attempts if attempt["endedAtMs"] is not None]
    silent = [epoch for epoch in ended if not works[epoch] or STILL_AWAY in works[epoch]]
    if silent and project is not None:
        task = detail["task"]
        there = _there(project, task)
        for epoch in silent:
            refs = _refs(task, epoch, there)
            if refs.kept in there:
                works[epoch] = _kept(project, *refs)
    return works


def _there(project: Project, task: Json) -> set[str]:
    found = UserGit(project.root).ask(
        "for-each-ref", "--format=%(refname)", kept_refs(task["plan"], task["key"])
    )
    return set(found.stdout.decode().split())


def _refs(task: Json, epoch: int, there: set[str]) -> AttemptRefs:
    return attempt_refs(task["plan"], task["key"], epoch, task["id"], there)


def _kept(project: Project, before: str, after: str) -> str:
    """As a worker says it."""
    from muster.worker.commits import Work

    asked = (
        ("rev-parse", after),
        ("rev-list", "--count", f"{before}..{after}"),
        ("diff", "--shortstat", before, after, "--"),
    )
    commit, commits, stat = (UserGit(project.root).ask(*words).stdout.decode().strip() for words in asked)
    return str(Work(commit, int(commits), stat or "no change"))


def _list(args: argparse.Namespace) -> int:
    project, detail, _ = _asked(args)
    works = _works(project, detail, detail["attempts"])
    attempts = [{**attempt, "work": works[attempt["epoch"]]} for attempt in detail["attempts"]]
    names = partial(names_of, "AttemptView", "epoch", "work")
    print_rows(args, attempts, lambda screen: _table(attempts, screen), names=names)
    return 0


_CELLS: Mapping[str, Callable[[Json], object]] = {
    "#": lambda attempt: f"#{attempt['epoch']}",
    "STATUS": attempt_word,
    "WHO": lambda attempt: f"{place_of(attempt)} {attempt['agent']}",
    "BEGUN": lambda attempt: attempt_times(attempt)[0],
    "TOOK": lambda attempt: attempt_times(attempt)[1],
    "WHAT": lambda attempt: attempt["error"] or "; ".join(filter(None, [attempt["work"], attempt["remark"]])),
}


def _table(attempts: list[Json], screen: Screen) -> None:
    screen.table(attempts, _CELLS, give="WHAT", look=attempt_look, empty="0 attempts")


def _show(args: argparse.Namespace) -> int:
    with connect(args) as context:
        project, detail, attempt = _found(args, context)
        told = tail(context.api, Readers(project), detail["task"]["id"], attempt)
    events = [event for event in detail["events"] if event["epoch"] == attempt["epoch"]]
    work = _works(project, detail, [attempt])[attempt["epoch"]]
    thing = {**attempt, "work": work, "events": events}
    said = tail_lines(told, Screen(args.color), SAID_LINES)
    print_one(args, thing, lambda screen: _print_attempt(ref_of(detail["task"]), thing, said, screen))
    return 0


def _print_attempt(ref: str, attempt: Json, said: list[str], screen: Screen) -> None:
    epoch, work = attempt["epoch"], attempt["work"]
    screen.line(f"{clean(ref)}#{epoch}  {screen.badge(attempt_look(attempt), attempt_word(attempt))}")
    rows = [
        ("Who", f"{place_of(attempt)} with agent {clean(attempt['agent'])}"),
        ("When", ", for ".join(attempt_times(attempt))),
    ]
    if attempt["exitCode"] is not None:
        rows.append(("Exit code", str(attempt["exitCode"])))
    if attempt["error"]:
        rows.append(("Error", " ".join(filter(None, [attempt_kind(attempt), clean(attempt["error"])]))))
    if about := "; ".join(filter(None, [work, attempt["remark"]])):
        rows.append(("Work", clean(about)))
    began = (event["message"] for event in attempt["events"] if event["event"] == "progress")
    rows += [("Resume", clean(said)) for said in began if said.startswith(BEGINS)][:1]
    if attempt["usage"]:
        rows.append(("Cost", usage_words(attempt["usage"])))
    rows += several("Said", said)
    told = [f"{clock_time(event['atMs'])}  {clean(event['message'])}" for event in attempt["events"]]
    rows += several("Events", told)
    rows += several(
        "Next", [f"muster {verb} {clean(ref)}#{epoch}" for verb in ("logs", "attempt diff")[: 1 + bool(work)]]
    )
    screen.fields(rows)


def _diff(args: argparse.Namespace) -> int:
    """Read from the repository on this machine; raises NotFound where it has no work of that attempt."""
    with connect(args) as context:
        project, (_, detail, attempt) = context.project, _found(args, context)
    task, epoch = detail["task"], attempt["epoch"]
    before, after = _refs(task, epoch, _there(project, task))
    screen, on_terminal = Screen(args.color), sys.stdout.isatty()
    colour = "always" if screen.colour and not on_terminal else "never"
    options = ["--no-ext-diff", "--no-textconv", f"--color={colour}", *(["--stat"] if args.stat else [])]
    done = UserGit(project.root).ask("diff", *options, before, after, "--")
    if done.returncode == 127:
        raise NotFound("git cannot be run", "install git")
    if done.returncode:
        raise NotFound(
            f"no work of {ref_of(task)}#{epoch} is kept in this repository",
            "agents with writes = true, in a git repository, have their work kept",
        )
    if args.json:
        print_json({"base": before, "ref": after, "diff": done.stdout.decode(errors="replace")})
        return 0
    if on_terminal:
        # The colours are ours: one that stands in a file could hide a line of it.
        for line in done.stdout.decode(errors="replace").removesuffix("\n").split("\n"):
            screen.line(screen.paint(inert(line), _line_colour(line)))
        return 0
    sys.stdout.flush()
    sys.stdout.buffer.write(done.stdout)
    return 0


def _line_colour(line: str) -> str:
    """As git colours a line of a diff; empty for those that are plain."""
    if line.startswith(("diff ", "index ", "--- ", "+++ ")):
        return BOLD
    return {"@": CYAN, "+": GREEN, "-": RED}.get(line[:1], "")
