"""`muster budget PLAN|REF USD`: how much a plan or a task may cost, and on with what that had paused."""

from __future__ import annotations

import argparse
import re

from muster.cli.context import connect
from muster.cli.output import clean, print_json
from muster.cli.task_actions import one
from muster.model.errors import BadInput
from muster.model.json_value import Json

USD_MIN, USD_MAX = 1e-6, 1_000_000
_AMOUNT = re.compile(r"[0-9]{1,9}(\.[0-9]{0,9})?|\.[0-9]{1,9}")


def add(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Raises what a plan, or one task, may cost before it is paused, and resumes what was paused for that.  "
        "The usual ones are [budget] in muster.toml."
    )
    parser.add_argument("ref", metavar="PLAN|REF")
    parser.add_argument("usd", metavar="USD", help=f"as 20 or 2.50, up to {USD_MAX:,} (as good as no limit)")


def run(args: argparse.Namespace) -> int:
    usd = _dollars(args.usd)
    with connect(args) as context:
        plans: list[Json] = context.api.get("/api/v1/plans")
        named = {"plan": args.ref}
        if args.ref not in {plan["name"] for plan in plans}:
            named = {"taskId": one(context, args.ref)["id"]}
        context.post("/api/v1/budgets", **named, microusd=round(usd * 1e6))
    if args.json:
        print_json({"budget": args.ref, "usd": usd})
    else:
        print(f"{clean(args.ref)}  may cost ${usd:.2f} now")
    return 0


def _dollars(text: str) -> float:
    """Raises BadInput.  A shell makes `$5` an empty word, or another one, unless it is quoted."""
    amount = text.strip().removeprefix("$")
    if _AMOUNT.fullmatch(amount) and USD_MIN <= float(amount) <= USD_MAX:
        return float(amount)
    raise BadInput(
        f"{text[:50]!r} is not an amount of dollars; nothing was changed",
        f"muster budget PLAN 20, or 2.50; {USD_MAX} is as good as no limit",
    )
