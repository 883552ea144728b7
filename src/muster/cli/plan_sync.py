"""`muster plan sync` and `muster plan tick`: a plan and its file, brought into step."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Sequence
from contextlib import suppress

from muster.cli.context import Context, connect
from muster.cli.fields import add_fields, answer, print_one
from muster.cli.output import Screen, clean, shell_word
from muster.client.api import Api, plan_path
from muster.model.errors import MusterError
from muster.model.json_value import Json
from muster.model.states import TaskStatus
from muster.model.wording import OPEN_BELOW, counted, same_or_new

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pathlib import Path

EXIT_PART = 1
"""Something of it could not be done; where nothing at all could be accepted, that is refused."""
NAMED_MAX = 5
LOOK_BYTES_MAX = 100_000
"""How long a plan's file is at most that is compared only to say how it stands: some 2,000 tasks, in 0.3 s."""
ASKED_FIRST = {"edited", "removed"}
"""Kinds of differences that a crew asks about, where nobody has watched the file."""
Named = Callable[[Context, str], str]
"""Finds the plan that is meant."""


def add(parser: argparse.ArgumentParser) -> None:
    add_fields(parser)
    ways = parser.add_mutually_exclusive_group()
    ways.add_argument("--status", action="store_true", help="only show how plan and file stand to each other")
    ways.add_argument("--once", action="store_true", help="take in what has changed, once (the default)")
    for way, right in (
        ("accept", "the file is right: do what it says"),
        ("reject", "the plan stays as it is"),
    ):
        ways.add_argument(f"--{way}", nargs="*", metavar="KEY", help=f"of what waits (default: all): {right}")


def run(args: argparse.Namespace, named: Named) -> int:
    with connect(args) as context:
        name = named(context, args.name)
        path = plan_path(name, "sync")
        if args.status:
            found: Json = context.api.get(path)
        elif args.accept is None and args.reject is None:
            found = context.post(path)
        else:
            keys = [_key(name, key) for key in (args.reject if args.accept is None else args.accept)]
            found = context.post(path, accept=args.accept is not None, keys=keys)
        asked = any(one["box"] for one in found["conflicts"])
        source = context.api.get(plan_path(name))["plan"]["source"] if asked else ""
        # From wherever the command was given.
        file = source if context.here is None else os.path.relpath(context.here.root / source)
    print_one(args, found, lambda screen: _show(found, file, screen))
    return EXIT_PART if not args.status and _left(args, found) else 0


def _left(args: argparse.Namespace, found: Json) -> bool:
    """Whether it has done less than it was told to.  What waits for a person is what a sync is to show."""
    accepts_all = args.accept is not None and not args.accept
    return bool(found["problem"] or found.get("waits") or (accepts_all and found["conflicts"]))


def _key(plan: str, text: str) -> str:
    """Also where it is given as `plan/key`."""
    return text.removeprefix(f"{plan}/")


def _show(found: Json, file: str, screen: Screen) -> None:
    unticked = _unticked(found)
    waits = found["conflicts"] or found["owed"] or found["problem"] or found["untaken"] or unticked
    screen.line(f"{clean(found['plan'])}  {clean(found['done'] or ('not in step' if waits else 'in step'))}")
    if found["problem"]:
        screen.line(f"  {clean(found['problem'])}")
    if unticked:
        screen.line(f"  {unticked}")
    for key in found["owed"]:
        screen.line(f"  {clean(key)}  its box was not found: it is ticked as soon as it is there")
    for one in found["conflicts"]:
        screen.line(f"  {clean(one['key'])}  {one['kind']}: {clean(one['why'])}")
    for key, kind, *_ in found["untaken"]:
        screen.line(f"  {clean(key)}  {kind}: {_yet(found, key, kind)}")
    for key in found["edited"]:
        screen.line(f"  {clean(key)}  edited here; its box may say what it said before")
    if found["edited"]:
        screen.line(
            "  next: write it into the file, or muster plan add FILE --update takes what the file says"
        )
    if {key for key, *_ in found["untaken"]} - {*found["running"]} and not found["conflicts"]:
        screen.line(f"  next: muster plan sync {shell_word(found['plan'])} takes it in")
    if found["conflicts"]:
        _show_ways(found["conflicts"], f"muster plan sync {shell_word(found['plan'])}", file, screen)


def asked_first(found: Json, kind: str) -> bool:
    """Whether such a change that is not taken in yet is asked about, because nobody has watched the file."""
    return bool(found.get("unwatched")) and kind in ASKED_FIRST


def _yet(found: Json, key: str, kind: str) -> str:
    """When what differs is taken in."""
    if key in found["running"]:
        return "taken in once its task no longer runs, unless it is done by then"
    if key in found["bySettings"]:
        return "by other settings; taken in soon"
    if asked_first(found, kind):
        return "not taken in yet; once a crew is up, its task is held until you say so"
    return "not taken in yet" + (", perhaps behind what is asked above" if found["conflicts"] else "")


def _show_ways(conflicts: Sequence[Json], sync: str, file: str, screen: Screen) -> None:
    """The commands that work for what waits."""
    asked = {one["box"]: clean(same_or_new(one["box"], one["mayBe"])) for one in conflicts if one["box"]}
    add = f"  next: muster plan add {clean(shell_word(file))}"
    if len(asked) == 1:
        screen.line(f"{add} {''.join(asked.values())}")
    elif asked:
        screen.line(f"{add} and for each box, all at once:")
        for way in asked.values():
            screen.line(f"    {way}")
    left = [one for one in conflicts if one["takes"] and not one["box"]]
    only = dict.fromkeys(clean(one["key"]) for one in conflicts if one not in left)
    if any(one["why"] != OPEN_BELOW for one in left):
        ways = "--accept KEY, or --reject KEY"
    elif left:
        ways = "--reject KEY, or tick the tasks below it"
    else:
        ways, only = "--reject KEY keeps the plan as it is", {}
    rest = f"; only --reject of {', '.join(only)}" if only else ""
    screen.line(f"  next: {sync} {ways}{rest}")


def as_now(context: Context, files: Sequence[Json]) -> list[Json]:
    """Without a crew nobody looks at the files: what was wrong with one at the last look may be so no longer."""
    if not context.direct or not any(one["problem"] for one in files):
        return [*files]
    sources = {plan["name"]: plan["source"] for plan in context.api.get("/api/v1/plans")}
    now = [_looked_at(context, one, sources.get(one["plan"])) if one["problem"] else one for one in files]
    return [one for one in now if one["problem"] or one["conflicts"]]


def _looked_at(context: Context, kept: Json, source: str | None) -> Json:
    """To compare a long plan with its file takes seconds: of that it is said when it was so."""
    if source is None:
        return kept
    file = context.project.root / source
    with suppress(MusterError, OSError):  # then the store, or the file, is what has to be mended first
        if not file.exists() or file.stat().st_size <= LOOK_BYTES_MAX:
            found = context.api.get(plan_path(kept["plan"], "sync"))
            return {**kept, "problem": found["problem"], "conflicts": found["conflicts"]}
    return {**kept, "problem": f"{kept['problem']} (at the last look)"}


def show_files(files: Sequence[Json], screen: Screen) -> None:
    """Plans that are not in step with their files, a line or two each."""
    for found in files:
        waits = found["conflicts"]
        named = few([one["key"] for one in waits])
        changes = f"{counted(len(waits), 'change')} in its file: {named}" if waits else ""
        asked = any(one["why"] == found["problem"] for one in waits)
        told = [changes] if asked else [clean(found["problem"]), changes]
        screen.line(f"  {clean(found['plan'])}  {'; '.join(filter(None, told))}")
        screen.line(f"  next: {status_of(found['plan'])}")


def status_of(plan: str) -> str:
    """The command that tells more."""
    return f"muster plan sync {shell_word(plan)} --status"


def tick(args: argparse.Namespace, named: Named) -> int:
    from pathlib import Path

    file = Path(args.name)
    with connect(args) as context:
        if context.here is None and file.suffix == ".md" and file.is_file():
            name, done = _own_boxes(context, file)
        else:
            name = named(context, args.name)
            done = context.post(plan_path(name, "boxes"))
    answer(args, done, f"{clean(name)}  {_boxes(done) or 'every box is as its task'}")
    return EXIT_PART if done["waits"] else 0


def _own_boxes(context: Context, file: Path) -> tuple[str, Json]:
    """Ticks the caller's own copy of a plan that a server has no file of.  Raises BadPlan, NotFound."""
    from muster.plans.files import LocalPlanFiles, read_plan

    name = read_plan(file).name
    tasks = {task["box"]: task for task in context.api.get(plan_path(name, "tasks"))}
    done = {box for box, task in tasks.items() if _is_done(task)}
    files = LocalPlanFiles()
    files.tick(str(file.resolve()), done)
    differ = [
        box
        for box, ticked in files.boxes(str(file.resolve())).items()
        if box in tasks and ticked != (box in done)
    ]
    return name, {"plan": name, "waits": "", "differ": differ}


def _is_done(task: Json) -> bool:
    """Also where it was put away since."""
    archived = task["status"] == TaskStatus.ARCHIVED and not task["error"]
    return archived or bool(task["status"] == TaskStatus.COMPLETED)


def tick_boxes(api: Api, name: str) -> str:
    """Has the boxes of what is completed ticked now; says which are not as their tasks, empty where all are."""
    return _boxes(api.post(plan_path(name, "tick"), {}))


def unticked(api: Api, name: str) -> str:
    """Why boxes of what is completed wait, although they were tried now; empty where none does."""
    return _unticked(api.post(plan_path(name, "tick"), {}))


def few(keys: Sequence[str]) -> str:
    """So many of them as a person reads."""
    more = f" and {len(keys) - NAMED_MAX} more" if len(keys) > NAMED_MAX else ""
    return f"{', '.join(map(clean, keys[:NAMED_MAX]))}{more}"


def _unticked(found: Json) -> str:
    return f"not ticked yet: {clean(found['waits'])}" if found.get("waits") else ""


def _boxes(done: Json) -> str:
    if waits := _unticked(done):
        return waits
    if not (keys := done["differ"]):
        return ""
    number = "1 box differs" if len(keys) == 1 else f"{len(keys)} boxes differ"
    return f"{number}: {few(keys)}; {status_of(done['plan'])}"
