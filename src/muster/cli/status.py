"""`muster status`: where everything stands, and what waits for a person."""

from __future__ import annotations

import time

from muster.cli.context import LAST_HEARD, Context, connect, no_rows
from muster.cli.fields import add_fields, print_one
from muster.cli.output import Screen, age, clean, now_ms, paused_line, plan_counts, ref_of, short, usage_words
from muster.model.json_value import Json
from muster.model.states import AgentStatus

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse


SHOWN_MAX = 10
DAYS_SHOWN = 3

WORKER_LOOKS = {"busy": "running", "stopping": "stopping", "dead": "cancelled"}
_AGENT_LOOKS = {AgentStatus.IDLE: "ready", AgentStatus.BUSY: "running", AgentStatus.ERROR: "attempt failed"}


def add(parser: argparse.ArgumentParser) -> None:
    parser.description = "Plans, workers, agents, and what waits for a person."
    add_fields(parser)


def run(args: argparse.Namespace) -> int:
    with connect(args) as context:
        answer = gather(context)
    print_one(args, answer, lambda screen: _show(args, answer, screen))
    return 0


def gather(context: Context) -> Json:
    told = context.api.get("/api/v1/status")
    status = told["status"]
    counts = plan_counts(status["plans"])
    workers = context.workers(status["workers"])
    pools = context.api.get("/api/v1/pools")
    inbox = context.api.get("/api/v1/inbox")
    return {
        "crew": status["crew"],
        "owner": None if context.direct else told["owner"],
        "halted": told["halted"],
        "unwritable": told.get("unwritable"),
        "tasks": sum(counts.values()),
        "counts": counts,
        "plans": status["plans"],
        "workers": workers,
        "agents": status["agents"] if any(worker["status"] != "dead" for worker in workers) else [],
        "usageByAgent": status["usageByAgent"],
        "usageByDay": status["usageByDay"],
        "pools": [{"name": name, **pool} for name, pool in sorted(pools.items())],
        "needsPerson": [_need(task) for task in inbox["tasks"]],
        "needsPersonComplete": inbox["complete"],
        "files": _files(context, inbox["files"]),
        "refused": [_need(task) for task in context.api.get("/api/v1/agent-tasks/refused")],
        "lastEventId": status["lastEventId"],
    }


def _files(context: Context, kept: list[Json]) -> list[Json]:
    if not kept:
        return kept
    from muster.cli.plan_sync import as_now

    return as_now(context, kept)


def _need(task: Json) -> Json:
    return {
        "taskId": task["id"],
        "ref": ref_of(task),
        "title": task["title"],
        "status": task["status"],
        "state": task["state"],
        "why": task["why"],
    }


def _show(args: argparse.Namespace, answer: Json, screen: Screen) -> None:
    owner = answer["owner"]
    if args.rewound is not None:
        screen.line(screen.badge("failed", "store halted"))
    elif owner is None:
        screen.line(
            f"{screen.badge('waiting', 'no owner')}: `muster up` or `muster run PLAN.md` starts the crew"
        )
        if answer["workers"]:
            screen.line(f"  {LAST_HEARD}")
    else:
        up = age(now_ms() - owner["startedAtMs"])
        crew = answer["crew"].lower()
        look = {"running": "running", "paused": "paused", "error": "failed"}.get(crew, "waiting")
        screen.line(f"{screen.badge(look, f'crew {crew}')}, owner pid {owner['pid']}, up {up}")
        if crew == "paused":
            screen.line("  next: muster orchestrator resume")
    if answer["halted"] is not None and args.rewound is None:
        screen.line(f"{screen.badge('failed', 'store halted')}: {clean(answer['halted']['message'])}")
        _tell_next(answer["halted"]["hint"], screen)
    elif (held_up := answer["unwritable"]) is not None and args.rewound is None:
        screen.line(f"{screen.badge('failed', 'nothing is written')}: {clean(held_up['message'])}")
        _tell_next(held_up["hint"], screen)
    if any(plan["counts"] for plan in answer["plans"]):
        _show_plans(answer["plans"], screen)
    else:
        screen.line(no_rows(args))
    _show_workers(answer, screen)
    _show_pools(answer["pools"], screen)
    _show_spent(answer, screen)
    _show_needs(answer, screen)


def _tell_next(hint: str, screen: Screen) -> None:
    if hint:
        screen.line(f"  next: {clean(hint)}")


def _show_plans(plans: list[Json], screen: Screen) -> None:
    screen.line("\nPlans")
    room = max(len(plan["name"]) for plan in plans)
    for plan in plans:
        screen.line(f"  {clean(plan['name']):<{room}}  {screen.counts(plan['counts'])}")
        if plan["paused"]:
            screen.line(f"  {'':<{room}}  {screen.badge('paused')}  {clean(paused_line(plan))}")


def _show_workers(answer: Json, screen: Screen) -> None:
    if answer["workers"]:
        screen.line("\nWorkers")
    for worker in answer["workers"]:
        holds = ", ".join(map(clean, worker["holds"])) or "nothing"
        badge = screen.badge(WORKER_LOOKS.get(worker["status"], "ready"), worker["status"])
        held = "held" if worker["status"] == "dead" else "holds"
        process = "serves itself" if worker["pid"] is None else f"pid {worker['pid']}"
        screen.line(f"  {worker['id']}  {badge}  {process}  {held} {holds}")
    if answer["agents"]:
        screen.line("\nAgents")
    for agent in answer["agents"]:
        badge = screen.badge(_AGENT_LOOKS.get(agent["status"], "waiting"), agent["status"])
        more = f"  {clean(agent['problem'])}" if agent["problem"] else ""
        screen.line(f"  {clean(agent['name'])}  {badge}  on {agent['workers']} of its workers{more}")


def _show_spent(answer: Json, screen: Screen) -> None:
    days = sorted(answer["usageByDay"].items())[-DAYS_SHOWN:]
    if days:
        screen.line("\nSpent")
    for name, usage in [*sorted(answer["usageByAgent"].items()), *days]:
        screen.line(f"  {clean(name)}  {usage_words(usage)}")


def _show_pools(pools: list[Json], screen: Screen) -> None:
    if pools:
        screen.line("\nProviders that take no requests")
    for pool in pools:
        screen.line(
            f"  {clean(pool['name'])}  {screen.badge('waiting', pool_word(pool))}  {clean(pool['reason'])}"
        )


def pool_word(pool: Json) -> str:
    """What a closed provider waits for, and until when."""
    if pool["untilMs"] is None:
        return f"{pool['kind']}, waits for you: muster inbox"
    if pool["untilMs"] <= now_ms():
        return f"{pool['kind'].replace('_', ' ')}, one task tries for all"
    from muster.model.why import clock_word

    until = clock_word(pool["untilMs"], now_ms(), time.localtime(pool["untilMs"] / 1000).tm_gmtoff)
    return f"{pool['kind'].replace('_', ' ')}, until {until}"


def _show_needs(answer: Json, screen: Screen) -> None:
    if answer["files"]:
        from muster.cli.plan_sync import show_files

        screen.line("\nPlans and files that are not in step")
        show_files(answer["files"], screen)
    if refused := answer["refused"]:
        screen.line(f"\nDone, and not all of it is there ({len(refused)})")
        for need in refused[:SHOWN_MAX]:
            screen.line(f"  {clean(need['ref'])}  {short(clean(need['why']))}")
    needs = answer["needsPerson"]
    if not needs:
        return
    screen.line(f"\nNeeds you ({len(needs)}{'' if answer['needsPersonComplete'] else ' or more'})")
    for need in needs[:SHOWN_MAX]:
        screen.line(f"  {screen.badge(need['state'])}  {clean(need['ref'])}  {short(clean(need['why']))}")
    if len(needs) > SHOWN_MAX:
        screen.line(f"  and {len(needs) - SHOWN_MAX} more: muster task list --status failed blocked")
    screen.line(f"  next: muster task show {clean(needs[0]['ref'])}")
