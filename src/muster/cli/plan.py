"""`muster plan`: list, pause, resume."""

from __future__ import annotations

import argparse
from typing import Any
from urllib.parse import quote

from muster.cli.context import connect
from muster.cli.output import Screen, clean, print_json

Json = dict[str, Any]


def add(parser: argparse.ArgumentParser) -> None:
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    verbs.add_parser("list", help="all plans, with how far they are")
    pausing = verbs.add_parser("pause", help="give out no more of its tasks; what runs goes on")
    pausing.add_argument("name", metavar="NAME")
    resuming = verbs.add_parser(
        "resume", help="give out its tasks again, also after too many failed in a row"
    )
    resuming.add_argument("name", metavar="NAME")


def run(args: argparse.Namespace) -> int:
    return _list(args) if args.verb == "list" else _move(args)


def paused_line(plan: Json) -> str:
    """Why a plan is paused, and what goes on with it."""
    reason = f"{plan['failures']} tasks failed in a row" if plan["paused"] == "breaker" else "by a person"
    return f"plan {plan['name']}: {reason}; `muster plan resume {plan['name']}` goes on"


def _list(args: argparse.Namespace) -> int:
    with connect(args) as context:
        plans: list[Json] = context.api.get("/api/v1/plans")
    if args.json:
        print_json(plans)
        return 0
    if not plans:
        print("0 plans: muster run PLAN.md")
        return 0
    screen = Screen(args.color)
    for plan in plans:
        screen.line(f"{clean(plan['name'])}  {screen.counts(plan['counts'])}")
        if plan["paused"]:
            screen.line(f"  {screen.badge('paused')}  {clean(paused_line(plan))}")
    return 0


def _move(args: argparse.Namespace) -> int:
    with connect(args) as context:
        path = f"/api/v1/plans/{quote(args.name, safe='')}/{args.verb}"
        moved: Json = context.api.post(path, {"actor": context.actor()})
    if args.json:
        print_json(moved)
    elif moved["paused"]:
        print(f"{clean(args.name)}  paused; what runs goes on")
    else:
        print(f"{clean(args.name)}  goes on")
    return 0
