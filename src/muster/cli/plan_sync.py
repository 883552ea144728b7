"""`muster plan sync`: a plan and its file, brought into step."""

from __future__ import annotations

import argparse
from collections.abc import Callable

from muster.cli.context import Context, connect
from muster.cli.fields import add_fields, print_one
from muster.cli.output import Screen, clean
from muster.client.api import plan_path
from muster.model.json_value import Json


def add(parser: argparse.ArgumentParser) -> None:
    add_fields(parser)
    ways = parser.add_mutually_exclusive_group()
    ways.add_argument("--status", action="store_true", help="only show how plan and file stand to each other")
    ways.add_argument("--once", action="store_true", help="take in what has changed, once (the default)")


def run(args: argparse.Namespace, named: Callable[[Context, str], str]) -> int:
    """`named` finds the plan that is meant."""
    with connect(args) as context:
        path = plan_path(named(context, args.name), "sync")
        found: Json = context.api.get(path) if args.status else context.post(path)
    print_one(args, found, lambda screen: _show(found, screen))
    return 0


def _show(found: Json, screen: Screen) -> None:
    waits = found["conflicts"] or found["owed"] or found["problem"]
    screen.line(f"{clean(found['plan'])}  {clean(found['done'] or ('not in step' if waits else 'in step'))}")
    if found["problem"]:
        screen.line(f"  {clean(found['problem'])}")
    for key in found["owed"]:
        screen.line(f"  {clean(key)}  its box was not found: it is ticked as soon as it is there")
    for one in found["conflicts"]:
        screen.line(f"  {clean(one['key'])}  {one['kind']}  {clean(one['why'])}")
