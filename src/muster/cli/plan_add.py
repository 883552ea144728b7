"""`muster plan add` and `muster plan diff`: a plan file against the kept plan."""

from __future__ import annotations

import argparse

from muster.app.settings import load_config
from muster.cli.context import Context, connect, refuse_foreign
from muster.cli.fields import print_one
from muster.cli.output import GREEN, RED, YELLOW, Screen, clean, print_json
from muster.cli.plan_given import given_plan
from muster.cli.plan_input import add_plan, dry_run, plan_body, project_for, refuse_file_of
from muster.cli.plan_renamed import follow, former_source
from muster.cli.plan_wait import PlanWait
from muster.model.errors import BadInput
from muster.model.fields import ATTRIBUTES
from muster.model.json_value import Json
from muster.model.states import TaskStatus

_WORDS = {"description": "text"} | {field.name: field.attribute for field in ATTRIBUTES.values()}
"""Fields as a plan file calls them."""


def add(args: argparse.Namespace) -> int:
    given = given_plan(args)
    if args.dry_run:
        if args.wait is not None:
            raise BadInput("--dry-run changes nothing, so there is nothing to wait for", "leave one out")
        project = project_for(args, given)
        refuse_foreign(project)
        return dry_run(args, given, project, load_config(project.root))
    with connect(args) as context:
        content = plan_body(given, load_config(context.project.root), context.project)
        refuse_file_of(context.api, given)
        follow(args, context.api, context.project, given)
        waiting = PlanWait(args, context)
        if args.update:
            return _update(args, context, content, waiting)
        if args.json:
            added = context.api.post("/api/v1/plans", content)
            code = waiting.end(added["plan"])
            print_json(added)
            return code
        name = add_plan(context.api, content, lambda text: print(clean(text), flush=True))
        if context.direct:
            run = ", or muster run with this plan," if given.path else ""
            print(f"Next     muster up{run} works on it")
        return waiting.end(name)


def _update(args: argparse.Namespace, context: Context, content: Json, waiting: PlanWait) -> int:
    updated = context.api.post("/api/v1/plans/update", content)
    if args.json:
        code = waiting.end(updated["plan"])
        print_json(updated)
        return code
    screen = Screen(args.color)
    _tell(updated["diff"], screen, done=True)
    for key in updated["completed"]:
        screen.line(f"{screen.badge('completed', '')} {clean(key)}  completed by its box")
    screen.line(_sum(updated["diff"], "changed nothing"))
    screen.stream.flush()
    return waiting.end(updated["plan"])


def diff(args: argparse.Namespace) -> int:
    given = given_plan(args)
    with connect(args) as context:
        content = plan_body(given, load_config(context.project.root), context.project)
        refuse_file_of(context.api, given)
        if (source := former_source(args, context.api, context.project, given)) is not None:
            content["source"] = source
        found = context.api.post("/api/v1/plans/diff", content)

    def show() -> None:
        screen = Screen(args.color)
        _tell(found, screen, done=False)
        screen.line(_sum(found, "the file and the plan agree"))

    print_one(args, found, show)
    return 0


def _tell(found: Json, screen: Screen, *, done: bool) -> None:
    for key in found["added"]:
        screen.line(f"{screen.paint('+', GREEN)} {clean(key)}")
    for key in found["restored"]:
        screen.line(f"{screen.paint('+', GREEN)} {clean(key)}  is back, and starts anew")
    for change in found["changed"]:
        fields = ", ".join(_WORDS.get(name, name) for name in change["fields"])
        screen.line(f"{screen.paint('~', YELLOW)} {clean(change['key'])}  {fields}{_kept(change)}")
    for change in found["removed"]:
        is_final = change["status"] in {TaskStatus.COMPLETED, TaskStatus.FAILED, TaskStatus.CANCELLED}
        what = "archived" if is_final else "cancelled"
        what = "" if change["kept"] else f"  {what}" if done else f"  would be {what}"
        screen.line(f"{screen.paint('-', RED)} {clean(change['key'])}{what}{_kept(change)}")


def _kept(change: Json) -> str:
    return f"  (stays as it is: {change['kept']})" if change["kept"] else ""


def _sum(found: Json, nothing: str) -> str:
    counts = {
        "added": len(found["added"]) + len(found["restored"]),
        "changed": sum(not change["kept"] for change in found["changed"]),
        "removed": sum(not change["kept"] for change in found["removed"]),
        "kept as they are": sum(bool(c["kept"]) for c in (*found["changed"], *found["removed"])),
    }
    told = ", ".join(f"{number} {word}" for word, number in counts.items() if number)
    return f"{clean(found['plan'])}: {told or nothing}"
