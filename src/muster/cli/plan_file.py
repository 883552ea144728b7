"""A plan file on its way in: what it holds, whose it is, who is to do what, and the request that adds it."""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import NamedTuple

from msgspec.structs import replace

from muster.app.plan_tasks import (
    Chosen,
    Others,
    choose_order,
    far_bodies,
    refuse_unmanned,
    task_bodies,
)
from muster.cli import plan_order
from muster.cli.context import Context, actor, connect_to, start_folder
from muster.cli.offers import known_agents
from muster.cli.output import clean, note, shell_word
from muster.cli.plan_changes import find_out, tell
from muster.cli.plan_takers import show_takers
from muster.client.api import Api, plan_path
from muster.config.project import Project, find_project
from muster.config.settings import PROJECT_WORKDIR, Config
from muster.model.edits import PlanDocument, is_barrier
from muster.model.errors import BadInput, BadPlan, Conflict, MusterError
from muster.model.json_value import Json
from muster.model.kinds import NAME_CHARS_MAX
from muster.model.states import FINAL, TaskStatus
from muster.model.task import REMOVED
from muster.model.wording import counted
from muster.plans.order import ordered

STDIN = "-"


class Given(NamedTuple):
    document: PlanDocument
    path: Path | None
    """None: there is no file, so the plan is known by its name, and no boxes are ticked."""

    def source(self, project: Project) -> str | None:
        """What the plan is known by, where it has a file."""
        return None if self.path is None else project.source_of(self.path)

    @property
    def short(self) -> str:
        """Before `:line` in errors."""
        return "stdin" if self.path is None else self.path.name


def given_plan(args: argparse.Namespace) -> Given:
    """Raises BadPlan, and BadInput for a plan from stdin that has no name."""
    if args.plan != STDIN:
        from muster.plans.files import read_plan

        if args.name is not None:
            raise BadInput("--name is for a plan from stdin; a file is known by its path", "leave it out")
        path = named_in_utf8(args.plan)
        return Given(read_plan(path), path)
    document = _read_stdin()
    name = args.name if args.name is not None else document.title and document.name
    if not name.strip():
        raise BadInput(
            "a plan from stdin has no file that it could be named after; nothing was added",
            "--name NAME, or one `# Title` in the plan",
        )
    if len(name) > NAME_CHARS_MAX:
        raise BadInput(
            f"--name has {len(name):,} characters, and a plan's name has at most {NAME_CHARS_MAX}; "
            "nothing was added",
            "a shorter one",
        )
    return Given(replace(document, name=name), None)


def named_in_utf8(name: str) -> Path:
    """Raises BadInput for a file that neither the store nor JSON can name."""
    path = Path(name)
    try:
        str(path.resolve()).encode()
    except UnicodeEncodeError:
        told = os.fsencode(name).decode(errors="replace")
        raise BadInput(f"the path of {told} is not UTF-8; nothing was changed", "rename it") from None
    return path


def _read_stdin() -> PlanDocument:
    from muster.plans import markdown
    from muster.plans.files import PLAN_BYTES_MAX

    data = sys.stdin.buffer.read(PLAN_BYTES_MAX + 1) if sys.stdin is not None else b""
    if len(data) > PLAN_BYTES_MAX:
        raise BadPlan(
            f"stdin: larger than {PLAN_BYTES_MAX // 1024 // 1024} MiB; nothing was added",
            "Split it into several plans.",
        )
    return markdown.parse(markdown.decode(data, "stdin"), "stdin")


class _Likely(NamedTuple):
    """A plan whose file no longer holds it."""

    name: str
    source: str
    common: int
    """How many of its tasks are in the given file."""
    tasks: int
    left: int
    """How many are in its own."""


def former_source(args: argparse.Namespace, api: Api, project: Project, given: Given) -> str | None:
    """What the plan in this file was known by, where that is another file; None where it is known, or new.

    Asks at a terminal where that cannot be told for sure, and raises Conflict elsewhere.
    """
    plans: list[Json] = api.get("/api/v1/plans")
    source = given.source(project)
    if args.as_plan is not None:
        return _named(args.as_plan, api, plans, project, source)
    if source is None or args.new or any(plan["source"] == source for plan in plans):
        return None
    titles = _titles(given.document)
    alike = _alike(api, titles)
    likely = []
    for plan in plans:
        if plan["source"] is None:
            continue
        common = alike[plan["name"]]
        if common or plan["name"] == given.document.name:
            kept = _kept(api, plan["name"])
            left = _left(project, plan["source"], kept)
            if 2 * left < len(kept):
                likely.append(_Likely(plan["name"], plan["source"], common, len(kept), left))
    if not likely:
        return None
    one = likely[0]
    if len(likely) == 1 and not one.left and 2 * one.common >= max(len(titles), one.tasks):
        return one.source
    return _asked(args, source, likely)


def follow(args: argparse.Namespace, api: Api, project: Project, given: Given) -> None:
    """As `former_source`; from now on the plan is known by this file."""
    before = former_source(args, api, project, given)
    if before is None:
        return
    (plan,) = (plan["name"] for plan in api.get("/api/v1/plans") if plan["source"] == before)
    source = given.source(project)
    api.post(plan_path(plan, "move"), {"actor": actor(), "source": source})
    note(f"plan {clean(plan)} goes on: its file {clean(before)} is {clean(source or '')} now")


def _named(name: str, api: Api, plans: list[Json], project: Project, source: str | None) -> str | None:
    """Raises BadInput, and Conflict where that plan still has its file."""
    found: str | None = next((plan["source"] for plan in plans if plan["name"] == name), None)
    if found is None or source is None:
        raise BadInput(f"there is no plan {name!r} with a file; nothing was changed", "muster plan list")
    if found == source:
        return None
    kept = _kept(api, name)
    if (project.root / found).exists() and 2 * _left(project, found, kept) >= len(kept):
        raise Conflict(
            f"plan {name} still has its file {found}; nothing was changed",
            f"remove that file first, or --new for a plan beside {name}",
        )
    return found


def _alike(api: Api, titles: Mapping[str, str]) -> Counter[str]:
    """By plan with a file, how many of its tasks these boxes are."""
    found = api.post("/api/v1/plans/namesakes", {"names": [*titles]})
    return Counter(
        task["plan"]
        for task in found
        if not is_barrier(task["key"]) and _common(titles, {task["box"]: task["title"]})
    )


def _kept(api: Api, plan: str) -> dict[str, str]:
    """Titles of the tasks that the plan has, by the names of their boxes."""
    return {
        task["box"]: task["title"]
        for task in api.get(plan_path(plan, "tasks"))
        if task["status"] != TaskStatus.ARCHIVED and not is_barrier(task["key"])
    }


def _titles(document: PlanDocument) -> dict[str, str]:
    return {task.key: task.title for task in document.tasks}


def _common(titles: Mapping[str, str], kept: Mapping[str, str]) -> int:
    """How many tasks they both have, of what a plan keeps."""
    from muster.model.titles import titles_alike

    return sum(key in titles and titles_alike(titles[key], title) for key, title in kept.items())


def _left(project: Project, source: str, kept: Mapping[str, str]) -> int:
    """How many of these the plan's own file still has."""
    from muster.plans.files import read_plan

    path = project.root / source
    if not path.exists():
        return 0
    try:
        return _common(_titles(read_plan(path)), kept)
    except BadPlan:
        return len(kept)  # being edited, perhaps: whose it was it is


def _asked(args: argparse.Namespace, source: str, likely: list[_Likely]) -> str | None:
    told = [
        f"{one.name}, whose file was {one.source} ({one.common} of its {one.tasks} tasks are in it)"
        for one in likely
    ]
    if len(likely) == 1 and not args.json and sys.stdin.isatty() and sys.stderr.isatty():
        question = f"{source} may be plan {told[0]}. Is it that plan? [y/n] "
        while True:
            print(clean(question), end="", file=sys.stderr, flush=True)
            answer = sys.stdin.readline()
            if answer.strip().lower() in {"y", "yes"}:
                return likely[0].source
            if answer.strip().lower() in {"n", "no"}:
                return None
            if not answer:
                break
    raise Conflict(
        f"{source} may be the renamed file of plan {'; or of plan '.join(told)}; nothing was changed",
        f"--as {likely[0].name} if it is; --new if it is another plan",
    )


def project_for(args: argparse.Namespace, given: Given) -> Project:
    """The project that this command runs in; without one, the plan's folder becomes one.

    Raises BadInput where `-C` names no folder, NotFound where the current one is gone.
    """
    start = start_folder(args.root)
    if args.root is not None:
        return find_project(start, {}) or Project(start)
    beside = start if given.path is None else given.path.resolve().parent
    return find_project(start, os.environ) or find_project(beside, {}) or Project(beside)


def in_order(
    args: argparse.Namespace, api: Api | None, given: Given, config: Config, source: str | None, *, ask: bool
) -> tuple[Given, Chosen]:
    """The plan with its order as dependencies; `api` knows how it went on so far, None: nobody does.

    Tells what looks odd in it.
    """
    plan_order.tell_doubts(given.document, given.short)
    plans: list[Json] = api.get("/api/v1/plans") if api is not None else []
    kept = plan_order.kept_order(plans, source, given.document.name)
    chosen = choose_order(given.document, config, kept, args.order)
    if chosen.guessed and ask and not args.json and (said := plan_order.asked(given.document)):
        chosen = choose_order(given.document, config, kept, said)
    return given._replace(document=ordered(given.document, chosen.order)), chosen


def as_known_to(context: Context, given: Given) -> Given:
    """For a server elsewhere a plan has no file, whose boxes could be ticked: it is known by its name."""
    return given if context.here is not None else given._replace(path=None)


def body_for(context: Context, given: Given, config: Config, chosen: Chosen | None = None) -> Json:
    """The plan as whoever is asked takes it.  Raises as `plan_body`."""
    if context.here is not None:
        return plan_body(given, config, context.here, others_of(context, given), chosen)
    told = {"plan": given.document.name, "source": None, "whole": True, "actor": actor()}
    return {
        **told,
        "order": chosen.kept if chosen is not None else "",
        "tasks": far_bodies(given.document),
    }


def others_of(context: Context, given: Given) -> Others:
    """Those whom this plan may name, as who is asked knows them."""
    source = None if context.here is None else given.source(context.here)
    return lambda: known_agents(context.api, given.document.name, source)


def others_in(project: Project, given: Given) -> Others:
    """The same where nobody has been asked yet."""

    def found() -> Collection[str]:
        if not project.has_begun:
            return ()
        with connect_to(project) as context:
            return others_of(context, given)()

    return found


def plan_body(
    given: Given, config: Config, project: Project, others: Others, chosen: Chosen | None = None
) -> Json:
    """The plan as this project's API takes it.  Raises BadPlan, with `file:line`, where a task has no agent."""
    document, source = given.document, given.source(project)
    tasks = task_bodies(document, config, given.short, others)
    return {
        "plan": document.name,
        "source": source,
        "whole": source is None,
        "order": chosen.kept if chosen is not None else "",
        "tasks": tasks,
        "actor": actor(),
        "inReach": source is not None and _in_reach(document, config, project),
    }


def _in_reach(document: PlanDocument, config: Config, project: Project) -> bool:
    """Whether agents work where the file is; it takes a look at git, so only where a box is ticked."""
    from muster.app.parts import repository_of
    from muster.worker.git import GitRefused

    if not any(task.done for task in document.tasks):
        return False
    if any(agent.workdir == PROJECT_WORKDIR for agent in config.agents.values()):
        return True
    try:
        return repository_of(config, project) is None
    except GitRefused:
        return False  # none works there instead


def add_plan(api: Api, content: Json, say: Callable[[str], None], *, update: bool = False) -> str:
    """Adds what is new, with `update` changes what is otherwise now, and says what that was.  The plan's name."""
    added = api.post("/api/v1/plans/update" if update else "/api/v1/plans", content)
    return tell_added(api, content, added, say, update=update)


def tell_added(
    api: Api, content: Json, added: Json, say: Callable[[str], None], *, update: bool = False
) -> str:
    """What an answer to `content` says.  The plan's name."""
    name: str = added["plan"]
    way = plan_path(name, "sync")
    new, known = added["added"], added["existing"]
    say(f"Plan     {name}: {counted(new, 'task')} added, {known} there already")
    if new and not known and name != content["plan"]:
        say(f"         not {content['plan']}: that is another plan (muster plan list)")
    if added["completed"]:
        say(f"         completed by their boxes: {', '.join(added['completed'])}")
    for line in unproved(added):
        say(f"         {line}")
    if "diff" in added:
        watched = content["source"] is not None

        def standing() -> Json | None:
            with contextlib.suppress(MusterError):  # what was added is there, whatever this tells
                return api.get(way) if watched else None
            return None

        tell(added["diff"], say, applied=update, standing=standing)
    return name


def unproved(added: Json) -> list[str]:
    """What is told of ticks that have completed nothing."""
    if not added["unproved"]:
        return []
    refs = [shell_word(f"{added['plan']}/{key}") for key in added["unproved"]]
    return [
        f"ticked, and left as they are: {', '.join(added['unproved'])}",
        "an agent has had them, or could write the file, or tasks below them are still to be done, so a "
        "tick proves nothing; where they are done:",
        f"muster task complete {' '.join(refs)}",
    ]


def refuse_file_of(api: Api, given: Given) -> None:
    """Raises BadInput where a plan without a file has the name of one that has a file: it would be mixed up."""
    if given.path is not None:
        return
    for plan in api.get("/api/v1/plans"):
        if plan["name"] == given.document.name and plan["source"]:
            raise BadInput(
                f"plan {plan['name']} is that of {plan['source']}; nothing was changed",
                "another --name, or write the tasks into that file",
            )


def dry_run(args: argparse.Namespace, given: Given, project: Project, config: Config) -> int:
    """Who would get what, and why.  Nothing is written, nobody is started."""
    plan_order.tell_doubts(given.document, given.short)
    refuse_unmanned(given.document, config, given.short, others_in(project, given))
    ended, kept = {}, ""
    if project.has_begun:
        with connect_to(project, args) as context:
            refuse_file_of(context.api, given)
            former = former_source(args, context.api, project, given)
            source = former if former is not None else given.source(project)
            content = plan_body(given, config, project, others_of(context, given))
            _tell_questions(args, context.api, {**content, "source": source})
            ended = _ended(context.api, given, source, anew=getattr(args, "update", False))
            kept = plan_order.kept_order(context.api.get("/api/v1/plans"), source, given.document.name)
    chosen = choose_order(given.document, config, kept, args.order)
    return show_takers(args, ordered(given.document, chosen.order), config, ended, chosen)


def _tell_questions(args: argparse.Namespace, api: Api, content: Json) -> None:
    """What a person would have to say first."""
    try:
        find_out(args, api, content, ask=False)
    except (BadInput, Conflict) as error:
        note(f"it would ask: {error.message} ({error.hint})")


def _ended(api: Api, given: Given, source: str | None, *, anew: bool) -> dict[str, str]:
    """The status of those tasks that are no longer to be done, by key.

    `anew`: what the file had taken out starts again when it is back.
    """
    for plan in api.get("/api/v1/plans"):
        if plan["source"] == source and (source is not None or plan["name"] == given.document.name):
            return {
                task["box"]: task["status"]
                for task in api.get(plan_path(plan["name"], "tasks"))
                if task["status"] in FINAL
                and not (anew and task["status"] == TaskStatus.CANCELLED and task["error"] == REMOVED)
            }
    return {}
