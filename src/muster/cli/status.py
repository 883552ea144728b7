"""`muster status`: where everything stands, and what waits for a person."""

from __future__ import annotations

import time

from muster.cli.context import LAST_HEARD, Context, connect
from muster.cli.fields import add_fields, print_one
from muster.cli.output import Screen, age, clean, now_ms, plan_counts, ref_of, task_word
from muster.model.json_value import Json
from muster.model.states import AgentStatus, ErrorKind, TaskStatus, WorkerStatus

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping


HELD_MAX = 1000
FAILED_MAX = 100
WAITING_MAX = 500
SHOWN_MAX = 10

_WAITING = (TaskStatus.PENDING, TaskStatus.ABORTED, TaskStatus.PAUSED)
_HELD = (TaskStatus.ASSIGNED, TaskStatus.RUNNING)
_AGENT_LOOKS = {AgentStatus.IDLE: "ready", AgentStatus.BUSY: "running", AgentStatus.ERROR: "attempt failed"}
_FOR_PEOPLE = (ErrorKind.AUTH, ErrorKind.BILLING)


def add(parser: argparse.ArgumentParser) -> None:
    parser.description = "Plans, workers, agents, and what waits for a person."
    add_fields(parser)


def run(args: argparse.Namespace) -> int:
    with connect(args) as context:
        answer = gather(context)
    print_one(args, answer, lambda: _show(answer, Screen(args.color)))
    return 0


def gather(context: Context) -> Json:
    told = context.api.get("/api/v1/status")
    status = told["status"]
    counts = plan_counts(status["plans"])
    held = _tasks(context, counts, _HELD, HELD_MAX)
    pools = context.api.get("/api/v1/pools")
    failed = _tasks(context, counts, (TaskStatus.FAILED,), FAILED_MAX)
    waiting = _tasks(context, counts, _WAITING, WAITING_MAX)
    needs = [_need(task) for task in failed]
    needs += [_need(task) for task in waiting if _waits_for_a_person(task, status)]
    return {
        "crew": status["crew"],
        "owner": None if context.direct else told["owner"],
        "halted": told["halted"],
        "tasks": sum(counts.values()),
        "counts": counts,
        "plans": status["plans"],
        "workers": status["workers"],
        "agents": _agents(status["workers"], held),
        "pools": [{"name": name, **pool} for name, pool in sorted(pools.items())],
        "needsPerson": needs,
        "needsPersonComplete": len(failed) < FAILED_MAX and len(waiting) < WAITING_MAX,
        "lastEventId": status["lastEventId"],
    }


def _tasks(
    context: Context, counts: Mapping[str, int], statuses: tuple[TaskStatus, ...], limit: int
) -> list[Json]:
    if not any(counts.get(status) for status in statuses):
        return []
    query = {"status": [status.lower() for status in statuses], "limit": limit}
    found: list[Json] = context.api.get("/api/v1/agent-tasks", query)
    return found


def _need(task: Json) -> Json:
    return {
        "taskId": task["id"],
        "ref": ref_of(task),
        "title": task["title"],
        "status": task["status"],
        "state": task_word(task),
        "why": task["why"],
    }


def _waits_for_a_person(task: Json, status: Json) -> bool:
    """True where nothing moves this task but a retry of another one, a login, an agent, or an answer."""
    if task["status"] == TaskStatus.PAUSED or task["errorKind"] in _FOR_PEOPLE:
        return True
    if task["unmet"]:
        # Others of its kind come first, see the query.
        return any(name.endswith(("(FAILED)", "(CANCELLED)")) for name in task["waitsFor"])
    if task["nextAttemptAtMs"] is not None:
        return False
    workers = status["workers"]
    if not workers:
        return (task["wantedAgent"] or "") in status["lastUnfit"]
    fit = {agent for worker in workers for agent in worker["agents"] if agent not in worker["unfit"]}
    wanted = task["wantedAgent"]
    return wanted not in fit if wanted is not None else not fit


def _agents(workers: list[Json], held: list[Json]) -> list[Json]:
    """What each agent does, told from the workers that offer it and the tasks that it holds."""
    found = []
    for name in sorted({agent for worker in workers for agent in worker["agents"]}):
        hosts = [worker for worker in workers if name in worker["agents"]]
        fit = [worker for worker in hosts if name not in worker["unfit"]]
        holds = [f"{ref_of(task)}#{task['epoch']}" for task in held if task["agent"] == name]
        if holds:
            state = AgentStatus.BUSY
        elif not fit:
            state = AgentStatus.ERROR
        elif all(worker["status"] == WorkerStatus.STOPPING for worker in fit):
            state = AgentStatus.DRAINING
        else:
            state = AgentStatus.IDLE
        missing = next((worker["unfit"][name] for worker in hosts if name in worker["unfit"]), "")
        found.append(
            {"name": name, "status": state.value, "workers": len(fit), "holds": holds, "problem": missing}
        )
    return found


def _show(answer: Json, screen: Screen) -> None:
    owner = answer["owner"]
    if owner is None:
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
    if answer["halted"] is not None:
        screen.line(f"{screen.badge('failed', 'store halted')}: {clean(answer['halted']['message'])}")
        screen.line(f"  next: {clean(answer['halted']['hint'])}")
    _show_plans(answer["plans"], screen)
    _show_workers(answer, screen)
    _show_pools(answer["pools"], screen)
    _show_needs(answer, screen)


def _show_plans(plans: list[Json], screen: Screen) -> None:
    if not any(plan["counts"] for plan in plans):
        screen.line("0 tasks: muster run PLAN.md")
        return
    screen.line()
    screen.line("Plans")
    room = max(len(plan["name"]) for plan in plans)
    for plan in plans:
        paused = f"  {screen.badge('paused')}" if plan["paused"] else ""
        screen.line(f"  {clean(plan['name']):<{room}}  {screen.counts(plan['counts'])}{paused}")


def _show_workers(answer: Json, screen: Screen) -> None:
    if answer["workers"]:
        screen.line()
        screen.line("Workers")
    for worker in answer["workers"]:
        look = {"busy": "running", "stopping": "stopping"}.get(worker["status"], "ready")
        holds = ", ".join(map(clean, worker["holds"])) or "nothing"
        badge = screen.badge(look, worker["status"])
        screen.line(f"  {worker['id']}  {badge}  pid {worker['pid']}  holds {holds}")
    if answer["agents"]:
        screen.line()
        screen.line("Agents")
    for agent in answer["agents"]:
        badge = screen.badge(_AGENT_LOOKS.get(agent["status"], "waiting"), agent["status"])
        more = f"  {clean(agent['problem'])}" if agent["problem"] else ""
        screen.line(f"  {clean(agent['name'])}  {badge}  on {agent['workers']} of its workers{more}")


def _show_pools(pools: list[Json], screen: Screen) -> None:
    if pools:
        screen.line()
        screen.line("Providers that take no requests")
    for pool in pools:
        screen.line(
            f"  {clean(pool['name'])}  {screen.badge('waiting', pool_word(pool))}  {clean(pool['reason'])}"
        )


def pool_word(pool: Json) -> str:
    """What a closed provider waits for, and until when."""
    if pool["untilMs"] is None:
        return f"{pool['kind']}, waits for you: muster inbox"
    from muster.model.why import clock_word

    until = clock_word(pool["untilMs"], now_ms(), time.localtime(pool["untilMs"] / 1000).tm_gmtoff)
    return f"{pool['kind'].replace('_', ' ')}, until {until}"


def _show_needs(answer: Json, screen: Screen) -> None:
    needs = answer["needsPerson"]
    if not needs:
        return
    screen.line()
    screen.line(f"Needs you ({len(needs)}{'' if answer['needsPersonComplete'] else ' or more'})")
    for need in needs[:SHOWN_MAX]:
        screen.line(f"  {screen.badge(need['state'])}  {clean(need['ref'])}  {clean(need['why'])}")
    if len(needs) > SHOWN_MAX:
        screen.line(f"  and {len(needs) - SHOWN_MAX} more: muster task list --status failed blocked")
    screen.line(f"  next: muster task show {clean(needs[0]['ref'])}")
