"""`muster budget PLAN|REF USD`: how much a plan or a task may cost, and on with what that had paused."""

from __future__ import annotations

import argparse

from muster.cli.context import connect
from muster.cli.output import clean, print_json
from muster.cli.task_actions import one
from muster.model.errors import BadInput
from muster.model.json_value import Json

USD_MAX = 1e6


def add(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Raises what a plan, or one task, may cost before it is paused, and resumes what was paused for that.  "
        "The usual ones are [budget] in muster.toml."
    )
    parser.add_argument("ref", metavar="PLAN|REF")
    parser.add_argument("usd", type=float, metavar="USD")


def run(args: argparse.Namespace) -> int:
    if not 0 < args.usd <= USD_MAX:
        raise BadInput(
            f"{args.usd:g} is not an amount of dollars; nothing was changed", "muster budget PLAN 20"
        )
    with connect(args) as context:
        plans: list[Json] = context.api.get("/api/v1/plans")
        named = {"plan": args.ref}
        if args.ref not in {plan["name"] for plan in plans}:
            named = {"taskId": one(context, args.ref)["id"]}
        context.post("/api/v1/budgets", **named, microusd=round(args.usd * 1e6))
    if args.json:
        print_json({"budget": args.ref, "usd": args.usd})
    else:
        print(f"{clean(args.ref)}  may cost ${args.usd:.2f} now")
    return 0
