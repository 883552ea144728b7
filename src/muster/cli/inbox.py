"""`muster inbox`: what waits for a person."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from contextlib import suppress
from operator import itemgetter

from muster.cli.context import Context, connect
from muster.cli.fields import add_fields, print_rows, task_names
from muster.cli.output import Screen, age, clean, listed, note, now_ms, paused_line, paused_next, shell_word
from muster.cli.plan_sync import as_now, show_files, status_of
from muster.cli.task import TASK_CELLS, what_next
from muster.model.errors import BadConfig
from muster.model.json_value import Json
from muster.model.needs import MORE, gathered

_OTHERS = (
    *("next", "plan", "pool", "kind", "reason", "sinceMs", "pullRequest", "note"),
    *("done", "problem", "conflicts", "owed", "webhook", "channel"),
)


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--plan", metavar="PLAN", help="tasks of this plan only")
    add_fields(parser)


def run(args: argparse.Namespace) -> int:
    with connect(args) as context:
        inbox = context.api.get("/api/v1/inbox", {"plan": args.plan})
        pools = context.api.get("/api/v1/pools")
        found = gathered(inbox, pools, context.api.get("/api/v1/plans"), args.plan)
        proposed = _proposed(context, args.plan)
        files = as_now(context, found["files"])
    tasks: list[Json] = found["tasks"]
    webhooks: list[Json] = found["webhooks"]
    silent: dict[str, str] = found["channels"]
    paused: list[Json] = found["plans"]
    closed: dict[str, Json] = found["pools"]
    rows = [{"pool": name, **pool, "next": _open(context, name)} for name, pool in closed.items()]
    rows += [
        {"plan": plan["name"], "kind": "budget", "reason": paused_line(plan), "next": paused_next(plan)}
        for plan in paused
    ]
    rows += [{**listed(task), "next": what_next(task)[0]} for task in tasks]
    rows += proposed
    rows += [{"webhook": one["id"], "reason": one["disabled"], "next": _again(one)} for one in webhooks]
    rows += [{"channel": name, "reason": why, "next": _tell(name)} for name, why in silent.items()]
    rows += [{**file, "next": status_of(file["plan"])} for file in files]

    def show(screen: Screen) -> None:
        for name, pool in closed.items():
            print(f"{clean(name)} waits for you ({pool['kind']}): {clean(pool['reason'])}")
            print(f"  next: {_open(context, name)}")
        for plan in paused:
            print(clean(paused_line(plan)))
        if tasks:
            screen.table(tasks, _CELLS, give="WHY", look=itemgetter("state"), glyphs=True)
        for row in proposed:
            print(
                f"{clean(row['pullRequest'])} calls for a retry of {clean(row['ref'])}: {clean(row['note'])}"
            )
            print(f"  next: {row['next']}")
        for one in webhooks:
            print(f"webhook {one['id']} is told nothing any more: {clean(one['disabled'])}")
            print(f"  next: {_again(one)}")
        for name, why in silent.items():
            print(f"channel {clean(name)} tells you nothing any more: {clean(why)}")
            print(f"  next: {_tell(name)}")
        show_files(files, screen)
        if not rows and found["complete"]:
            print("nothing waits for you")

    print_rows(args, rows, show, names=lambda: [*task_names(), *_OTHERS])
    if not found["complete"]:
        note(MORE)
    return 0


def _proposed(context: Context, plan: str | None) -> list[Json]:
    """Retries that were proposed when `muster pr` last asked the forge; the forge itself is not asked here."""
    if context.here is None or not context.here.pull_requests.exists():
        return []
    from muster.app.pull_requests import due

    return [
        {
            "ref": one.ref,
            "pullRequest": record.url,
            "note": one.note,
            "next": f"muster pr retry {shell_word(record.ref)}",
        }
        for record, one in due(context.api, context.here, plan)
    ]


def _again(webhook: Json) -> str:
    return f"see to its receiver, then muster webhook resend {webhook['id']}"


def _tell(channel: str) -> str:
    return f"see to its receiver, then muster notify resend {clean(channel)}"


def _open(context: Context, pool: str) -> str:
    """The command that has the agents of a closed pool tried again."""
    from muster.app.settings import load_config

    name = pool
    if context.here is None:
        return f"see to it, then muster agent resume {clean(name)}"
    with suppress(BadConfig):  # whoever resumes it is told
        agents = load_config(context.here.root).agents.values()
        name = next((agent.name for agent in agents if agent.pool == pool), pool)
    return f"see to it, then muster agent resume {clean(name)}"


_CELLS: Mapping[str, Callable[[Json], object]] = {
    **{name: TASK_CELLS[name] for name in ("STATUS", "TASK", "WHY")},
    "NEXT": lambda task: what_next(task)[0],
    "SINCE": lambda task: age(now_ms() - task["updatedAtMs"]),
}
