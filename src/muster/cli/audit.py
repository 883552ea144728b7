"""`muster audit`: list what happened, verify that nobody has changed it."""

from __future__ import annotations

import argparse

from muster.cli.context import connect
from muster.cli.fields import add_fields, names_of, print_one, print_rows
from muster.cli.output import Screen, clean, note, now_ms, ref_of
from muster.cli.values import number, time_s
from muster.model.errors import BadInput
from muster.model.json_value import Json
from muster.model.wording import counted

LEVELS = ("debug", "info", "warn", "error", "critical")
LIMIT = 100
VERIFY_S = 600
"""A million events take a while."""
EXIT_BROKEN = 1


def add(parser: argparse.ArgumentParser) -> None:
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    listing = verbs.add_parser("list", act=_list, help="the newest events")
    listing.add_argument("--task", metavar="REF", help="of this task only")
    listing.add_argument(
        "--subject",
        metavar="WHAT",
        help="about these: worker, agent, pool, crew, coordinator, 'token 12'",
    )
    listing.add_argument(
        "--level", metavar="LEVEL", type=str.lower, choices=LEVELS, help=f"this or worse: {', '.join(LEVELS)}"
    )
    listing.add_argument("--since", metavar="TIME", type=time_s, help="how far back, like 30m or 2d")
    some = number(1, 10_000)
    listing.add_argument("--limit", metavar="N", type=some, default=LIMIT, help=f"at most N ({LIMIT})")
    verifying = verbs.add_parser(
        "verify", act=_verify, help="look for an edit, a hole or a cut (exit code 1: there is one)"
    )
    add_fields(listing)
    add_fields(verifying)


def _list(args: argparse.Namespace) -> int:
    query: Json = {"level": args.level, "limit": args.limit, "subject": args.subject}
    if args.since is not None:
        query["since"] = max(0, now_ms() - int(args.since * 1000))
    with connect(args) as context:
        if args.task is not None:
            task_id, epoch = context.task_id(args.task)
            if epoch is not None:
                raise BadInput(
                    f"the audit is a task's, not an attempt's: leave out #{epoch}", "muster audit list"
                )
            query["task"] = task_id
        events = context.api.get("/api/v1/audit", query)

    def show(screen: Screen) -> None:
        for event in events:
            screen.line(f"{screen.event(event)}  {clean(event['level'].lower())}  by {clean(event['actor'])}")
        if not events:
            screen.line("0 events")

    rows = [{"ref": ref_of(event), **event} for event in events]
    print_rows(args, rows, show, names=lambda: names_of("EventView", "ref"))
    if len(events) == args.limit:
        note(f"there may be older ones: --limit {min(10_000, args.limit * 10)}")
    return 0


def _verify(args: argparse.Namespace) -> int:
    with connect(args) as context:
        report: Json = context.api.get("/api/v1/audit/verify", wait_s=VERIFY_S)

    def show(screen: Screen) -> None:
        for problem in report["problems"]:
            screen.line(f"broken  {clean(problem)}")
        seals = counted(report["seals"], "seal")
        counts = f"{counted(report['sealed'], 'event')} sealed, {report['pruned']} pruned, in {seals}"
        screen.line(f"{'whole' if report['whole'] else 'BROKEN'}: {counts}")
        if report["unsealed"]:
            screen.line(
                f"open  {report['unsealed']} newer events are not sealed yet: an edit of them would not show"
            )
        if report["lost"]:
            screen.line(f"lost  {report['lost']} seals, before the store was restored")
        screen.line(f"head  {report['head']}")

    print_one(args, report, show)
    return 0 if report["whole"] else EXIT_BROKEN
