"""`muster orchestrator`: the whole crew under the name that other tools have for it."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping

from muster.cli import down, up
from muster.cli.context import connect, project_of, server_of
from muster.cli.fields import add_fields, answer, names_of, print_one, print_rows
from muster.cli.output import Screen, age, clean, now_ms, print_json
from muster.model.errors import BadInput, OwnerUnavailable, StoreHalted
from muster.model.json_value import Json
from muster.model.states import CrewStatus

_LOOKS = {"RUNNING": "running", "PAUSED": "paused", "STOPPED": "waiting", "ERROR": "failed"}
_RUN_LOOKS = {"": "running", "died": "failed", "failed": "failed"}
_FIXED = (
    ("deadWorkersFound", "dead workers found"),
    ("expiredClaimsReleased", "expired claims released"),
    ("orphanedTasksRecovered", "orphaned tasks recovered"),
    ("staleStatesFixed", "stale states fixed"),
)


def add(parser: argparse.ArgumentParser) -> None:
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    up.add(verbs.add_parser("start", act=up.run, help="the same as `muster up`"))
    stopping = verbs.add_parser("stop", act=_stop, help="the same as `muster down`")
    down.add(stopping)
    stopping.add_argument("--graceful", action="store_true", help="finish what runs first, which is usual")
    verbs.add_parser("pause", act=_set, help="hand out no more tasks; running ones finish, workers stay")
    verbs.add_parser("resume", act=_set, help="hand out tasks again")
    telling = verbs.add_parser(
        "status", act=_status, help="whether it does its work (else exit code 1 or 7), with which workers"
    )
    telling.add_argument(
        "--history", action="store_true", help="when it was up, and what it has completed, the newest first"
    )
    add_fields(telling)
    verbs.add_parser(
        "reconcile",
        act=_reconcile,
        help="look for dead workers, expired claims and wrong states now, and mend them",
    )


def _stop(args: argparse.Namespace) -> int:
    if args.graceful and args.now:
        raise BadInput("--graceful and --now exclude each other; nothing was stopped", "use one of them")
    return down.run(args)


def _set(args: argparse.Namespace) -> int:
    status = CrewStatus.PAUSED if args.verb == "pause" else CrewStatus.RUNNING
    with connect(args) as context:
        if context.direct:
            raise OwnerUnavailable("no crew is up; nothing was changed", "muster up")
        context.post("/api/v1/crew", status=status)
    return answer(
        args,
        {"status": status},
        f"crew  {'paused; what runs goes on' if args.verb == 'pause' else 'goes on'}",
    )


def _status(args: argparse.Namespace) -> int:
    if args.history:
        with connect(args) as context:
            runs = context.api.get("/api/v1/coordinator/runs")
        print_rows(args, runs, lambda screen: _history(runs, screen), names=lambda: names_of("CrewRun"))
        return 0
    try:
        with connect(args) as context:
            told: Json = context.api.get("/api/v1/coordinator/status")
    except (OwnerUnavailable, StoreHalted) as error:
        _say_error(args, error.message)
        raise
    print_one(args, told, lambda screen: _show(told, screen))
    if told["problem"]:
        return 1 if told["active"] else OwnerUnavailable.exit_code
    return 0


_CELLS: Mapping[str, Callable[[Json], object]] = {
    "STARTED": lambda run: f"{age(now_ms() - run['startedAtMs'])} ago",
    "FOR": lambda run: age((run["endedAtMs"] or now_ms()) - run["startedAtMs"]),
    "ENDED": lambda run: run["how"] or "goes on",
    "COMPLETED": lambda run: run["completed"],
    "FAILED": lambda run: run["failed"],
    "BY": lambda run: clean(run["startedBy"]),
}


def _history(runs: list[Json], screen: Screen) -> None:
    screen.table(
        runs,
        _CELLS,
        give="BY",
        look=lambda run: _RUN_LOOKS.get(run["how"], "ready"),
        empty="no crew was up yet",
    )


def _say_error(args: argparse.Namespace, message: str) -> None:
    """Somebody holds the store and does not answer, or it may not be written: neither up nor down."""
    if args.json:
        server = server_of(args)
        where = {"server": server.url} if server is not None else {"root": str(project_of(args).root)}
        print_json({"status": "ERROR", "problem": message, **where})
    else:
        Screen(args.color).line(Screen(args.color).badge(_LOOKS["ERROR"], "ERROR"))


def _show(told: Json, screen: Screen) -> None:
    now = now_ms()
    screen.line(screen.badge(_LOOKS[told["status"]], told["status"]))
    if told["active"] and told["problem"]:
        screen.line(screen.badge(_LOOKS["ERROR"], told["problem"]))
    rows = []
    if told["active"]:
        rows.append(("Owner", f"pid {told['pid']}, up {age(now - told['startedAtMs'])}, term {told['term']}"))
    else:
        rows.append(("Owner", "none: `muster orchestrator start`"))
    workers = told["workers"]
    states = ", ".join(f"{number} {state}" for state, number in workers.items())
    rows.append(("Workers", f"{sum(workers.values())}" + (f": {states}" if states else "")))
    claims = told["claims"]
    rows.append(("Claims", f"{claims['active']} active, {claims['expired']} expired"))
    rows.append(("Tasks", f"{told['pendingTasks']} pending, {told['runningTasks']} running"))
    rows.append(("Agents", f"{told['healthyAgents']} healthy, {told['staleAgents']} that cannot run"))
    looked_ms = told["lastReconcileAtMs"]
    rows.append(("Reconciled", "not yet" if looked_ms is None else f"{age(now - looked_ms)} ago"))
    screen.fields(rows)


def _reconcile(args: argparse.Namespace) -> int:
    with connect(args) as context:
        fixed: Json = context.api.post("/api/v1/coordinator/reconcile", {})
    if args.json:
        print_json(fixed)
    else:
        Screen(args.color).fields([(str(fixed[name]), words) for name, words in _FIXED])
    return 0
