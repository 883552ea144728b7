"""`muster inbox`: what waits for a person."""

from __future__ import annotations

import argparse
from contextlib import suppress

from muster.cli.context import connect, project_of
from muster.cli.fields import add_fields, print_rows, task_names
from muster.cli.output import Screen, age, clean, listed, now_ms, ref_of
from muster.cli.task import what_next
from muster.model.errors import BadConfig
from muster.model.json_value import Json


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--plan", metavar="PLAN", help="tasks of this plan only")
    add_fields(parser)


def run(args: argparse.Namespace) -> int:
    with connect(args) as context:
        tasks: list[Json] = context.api.get("/api/v1/inbox", {"plan": args.plan})["tasks"]
        pools = context.api.get("/api/v1/pools")
    closed = {name: pool for name, pool in sorted(pools.items()) if pool["untilMs"] is None}
    rows = [{"pool": name, **pool, "next": _open(args, name)} for name, pool in closed.items()]
    rows += [{**listed(task), "next": what_next(task)[0]} for task in tasks]

    def show() -> None:
        for name, pool in closed.items():
            print(f"{clean(name)} waits for you ({pool['kind']}): {clean(pool['reason'])}")
            print(f"  next: {_open(args, name)}")
        if tasks:
            _table(tasks, Screen(args.color))
        elif not closed:
            print("nothing waits for you")

    print_rows(args, rows, show, names=lambda: [*task_names(), "next", "pool", "kind", "reason", "sinceMs"])
    return 0


def _open(args: argparse.Namespace, pool: str) -> str:
    """The command that has the agents of a closed pool tried again."""
    from muster.app.settings import load_config

    name = pool
    with suppress(BadConfig):  # whoever resumes it is told
        agents = load_config(project_of(args).root).agents.values()
        name = next((agent.name for agent in agents if agent.pool == pool), pool)
    return f"see to it, then muster agent resume {clean(name)}"


def _table(tasks: list[Json], screen: Screen) -> None:
    plain = Screen("never")
    looks = [task["state"] for task in tasks]
    rows = [
        [
            plain.badge(look),
            clean(ref_of(task)),
            clean(task["why"]),
            what_next(task)[0],
            age(now_ms() - task["updatedAtMs"]),
        ]
        for task, look in zip(tasks, looks, strict=True)
    ]
    screen.table(["STATUS", "TASK", "WHY", "NEXT", "SINCE"], rows, give=2, looks=looks)
