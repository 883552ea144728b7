"""`muster worker`: who works, one by one."""

from __future__ import annotations

import argparse
import time
from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial

from muster.cli.context import Context, connect, patiently, server_of, start_folder
from muster.cli.fields import add_fields, answer, names_of, print_one, print_rows
from muster.cli.output import BOLD, Screen, age, clean, note, now_ms, print_json
from muster.cli.status import WORKER_LOOKS
from muster.cli.values import number, of_kind
from muster.cli.waiting import STILL, add_waiting, within
from muster.client.api import worker_path
from muster.client.remote import CA_FILE
from muster.config.contexts import KnownServer
from muster.hosts.file_lock import holder
from muster.model import kinds
from muster.model.access import Right
from muster.model.errors import (
    BadInput,
    Forbidden,
    NotAllowed,
    NotFound,
    OwnerUnavailable,
    Unavailable,
    WaitTimeout,
)
from muster.model.json_value import Json
from muster.model.states import STOP_BY_S
from muster.model.wording import counted

WORKERS_MAX = 64
READY_S = 20.0
TICK_S = 0.1
_NONE_UP = "no worker is up: muster up"


def add(parser: argparse.ArgumentParser) -> None:
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    listing = verbs.add_parser("list", act=_list, help="all workers that are up")
    showing = verbs.add_parser("show", act=_show, help="everything about one worker, running or ended")
    showing.add_argument("name", metavar="NAME")
    telling = verbs.add_parser("status", act=_status, help="how many are up and what they do; or one of them")
    telling.add_argument("name", metavar="NAME", nargs="?")
    for verb in (listing, showing, telling):
        add_fields(verb)
    starting = verbs.add_parser("start", act=_start, help="add workers to the crew that is up")
    starting.description = (
        "Without --server orders more workers of the crew that is up here.  With --server this process runs "
        "workers for that server, until Ctrl-C: they take its tasks, and do them in this folder with the agents "
        "of its muster.toml.  The token needs the scope `serve`.  Of servers that share a store, name all: "
        "--server URL --server URL; workers whose server is gone go on at the next one."
    )
    starting.add_argument("-n", "--number", metavar="N", type=worker_count, default=1, help="how many (1)")
    starting.add_argument("--name", metavar="NAME", type=_name, help="what it is called, beside its own id")
    starting.add_argument(
        "--capabilities",
        metavar="CAP,...",
        type=lambda text: [_name(part) for part in text.split(",") if part],
        default=[],
        help="what it can do besides: tasks that ask for such may go to it",
    )
    starting.add_argument(
        "--meta",
        metavar="K=V",
        type=_pair,
        action="append",
        default=[],
        help="shown with it; may be repeated",
    )
    starting.add_argument(
        "--token",
        metavar="TOKEN",
        help="for the server (better in MUSTER_TOKEN, where no other user sees it)",
    )
    stopping = verbs.add_parser("stop", act=_stop, help="let one finish its task and end; it is not replaced")
    stopping.add_argument("name", metavar="NAME")
    stopping.add_argument("--now", action="store_true", help="what it holds is given back with a checkpoint")
    stopping.add_argument(
        "--graceful", action="store_true", help="finish what it holds first, which is usual"
    )
    add_waiting(stopping, STILL, what="has ended")


_name = partial(of_kind, kinds.NAME)


def _pair(text: str) -> tuple[str, str]:
    """For argparse."""
    name, equals, value = text.partition("=")
    if not equals:
        raise BadInput(f"--meta {text!r} has no value; nothing was started", f"--meta {text}=VALUE")
    return _name(name), value


def _traits(args: argparse.Namespace) -> Json:
    """Raises BadInput."""
    if args.name is not None and args.number > 1:
        raise BadInput(
            f"{args.number} workers cannot all be {args.name!r}; none was started", "--name for one"
        )
    told = {"name": args.name, "capabilities": args.capabilities, "metadata": dict(args.meta)}
    return {name: value for name, value in told.items() if value}


worker_count = number(1, WORKERS_MAX)
"""For argparse."""


def _living(context: Context) -> list[Json]:
    return context.workers(context.api.get("/api/v1/workers"))


def _named(context: Context, name: str) -> str:
    """The worker's whole name.  Raises NotFound, BadInput."""
    workers = _living(context)
    if called := [worker["id"] for worker in workers if worker["name"] == name]:
        if len(called) > 1:
            raise BadInput(f"{name!r} may be any of {', '.join(called)}; nothing was changed", "name one")
        return str(called[0])
    names: list[str] = [worker["id"] for worker in workers]
    # What is after `worker-` will do, and so will the beginning of either.
    near = [known for known in names if known.startswith((name, f"worker-{name}"))] if name else []
    if name in names or not near:
        return name
    if len(near) > 1:
        raise BadInput(f"{name!r} may be any of {', '.join(near)}; nothing was changed", "write more of it")
    return near[0]


def _worker(context: Context, name: str) -> Json:
    if not name:
        raise NotFound("a worker has a name", "muster worker list")
    found: Json = context.api.get(worker_path(_named(context, name)))
    return found


def _list(args: argparse.Namespace) -> int:
    with connect(args) as context:
        workers = _living(context)
    print_rows(args, workers, lambda screen: _table(workers, screen), names=lambda: names_of("WorkerView"))
    return 0


_CELLS: Mapping[str, Callable[[Json], object]] = {
    "WORKER": lambda worker: " ".join(filter(None, (worker["id"], clean(worker["name"] or "")))),
    "STATUS": lambda worker: worker["status"],
    "PROCESS": lambda worker: _process(worker, "{hostname}:{pid}"),
    "HEARD": lambda worker: age(now_ms() - worker["lastSeenAtMs"]),
    "AGENTS": lambda worker: ", ".join(worker["agents"]) or "none",
    "HOLDS": lambda worker: ", ".join(worker["holds"]) or "nothing",
}


def _process(worker: Json, form: str) -> str:
    """A program that serves itself may run anywhere."""
    return "serves itself" if worker["pid"] is None else clean(form.format_map(worker))


def _table(workers: list[Json], screen: Screen) -> None:
    screen.table(workers, _CELLS, give="HOLDS", look=_look, empty=_NONE_UP)


def _look(worker: Json) -> str:
    return WORKER_LOOKS.get(worker["status"], "ready")


def _show(args: argparse.Namespace) -> int:
    with connect(args) as context:
        worker = _worker(context, args.name)
    print_one(args, worker, lambda screen: _print_worker(worker, screen))
    return 0


def _print_worker(worker: Json, screen: Screen) -> None:
    now = now_ms()
    badge = screen.badge(_look(worker), worker["status"])
    screen.line(f"{screen.paint(worker['id'], BOLD)}  {badge}")
    rows = [
        ("Process", _process(worker, "pid {pid} on {hostname}")),
        ("Started", f"{age(now - worker['registeredAtMs'])} ago"),
        ("Heard", f"{age(now - worker['lastSeenAtMs'])} ago"),
        ("Agents", ", ".join(map(clean, worker["agents"])) or "none"),
        ("Holds", f"{', '.join(map(clean, worker['holds'])) or 'nothing'}; {worker['slots']} at most"),
    ]
    if worker["name"]:
        rows.insert(0, ("Name", clean(worker["name"])))
    if worker["capabilities"]:
        rows.append(("Can", ", ".join(map(clean, worker["capabilities"]))))
    rows += [(clean(name), clean(value)) for name, value in worker["metadata"].items()]
    if worker["endedAtMs"] is not None:
        rows.append(("Ended", f"{age(now - worker['endedAtMs'])} ago"))
    if worker["reason"]:
        rows.append(("Why", clean(worker["reason"])))
    rows += [("Unfit", clean(f"{name}: {missing}")) for name, missing in worker["unfit"].items()]
    screen.fields(rows)


def _status(args: argparse.Namespace) -> int:
    if args.name is not None:
        return _show(args)
    with connect(args) as context:
        workers = _living(context)
    counts = Counter(worker["status"] for worker in workers)
    holds = [reference for worker in workers for reference in worker["holds"]]
    quietest_ms = max((now_ms() - worker["lastSeenAtMs"] for worker in workers), default=None)
    told = {"workers": len(workers), "counts": counts, "holds": holds, "longestSilenceMs": quietest_ms}
    print_one(args, told, lambda screen: _print_counts(told, screen))
    return 0


def _print_counts(told: Json, screen: Screen) -> None:
    if not told["workers"]:
        screen.line(_NONE_UP)
        return
    looks = [
        (WORKER_LOOKS.get(state, "ready"), f"{n} {state}") for state, n in sorted(told["counts"].items())
    ]
    screen.fields(
        [
            ("Workers", f"{told['workers']}: {'  '.join(screen.badge(*look) for look in looks)}"),
            ("Holds", ", ".join(map(clean, told["holds"])) or "nothing"),
            ("Heard", f"all of them within {age(told['longestSilenceMs'] or 0)}"),
        ]
    )


def _start(args: argparse.Namespace) -> int:
    import secrets

    traits = _traits(args)
    if (server := server_of(args)) is not None:
        return _work_for(args, server, traits)
    if args.token:
        raise BadInput("--token is for a server", "muster worker start --server URL")
    with connect(args) as context:
        if context.direct or holder(context.project.supervisor_lock) is None:
            raise OwnerUnavailable(
                "no crew is up that a worker could be added to", f"muster up --workers {args.number}"
            )
        before = {worker["id"] for worker in _living(context)}
        if len(before) + args.number > WORKERS_MAX:
            raise BadInput(
                f"{len(before)} workers are up, and {WORKERS_MAX} is the most; none was added",
                f"muster worker start -n {max(1, WORKERS_MAX - len(before))}",
            )
        context.post("/api/v1/crew/workers", add=args.number, requestId=secrets.token_hex(8), traits=traits)
        added = _await(context, before, args.number)
    return answer(args, {"added": added}, *(f"{name}  started" for name in added))


def _work_for(args: argparse.Namespace, server: KnownServer, traits: Json) -> int:
    import json
    import os

    from muster.app.interrupts import Interrupts
    from muster.app.remote_crew import RemoteCrew
    from muster.app.settings import load_config
    from muster.config.project import Project, find_project
    from muster.model.marks import TRAITS

    folder = start_folder(args.root)
    project = find_project(folder, {}) or Project(folder)
    token = args.token or server.token
    for url in server.url.split(","):
        _refuse_idlers(KnownServer(url, token, server.ca))
    if server.ca:
        os.environ[CA_FILE] = server.ca
    os.environ[TRAITS] = json.dumps(traits)
    with Interrupts().counting() as interrupts:
        crew = RemoteCrew(
            project, load_config(project.root), server=server.url, token=token, workers=args.number, say=note
        )
        urls = server.url.replace(",", ", ")
        note(f"{counted(args.number, 'worker')} in {project.folder} for {urls}; Ctrl-C ends them")
        crew.work(interrupts)
    return 130 if interrupts.by_hand else 0


def _refuse_idlers(server: KnownServer) -> None:
    """Raises NotAllowed for a token that lets nobody work there."""
    from muster.cli.login import whoami

    try:
        who = whoami(server)
        if Right.SERVE not in who["rights"]:
            raise NotAllowed(
                f"a worker needs the right to {Right.SERVE}, which this token has not; no worker was started",
                "on the server's machine: muster token create NAME --member MEMBER --role ADMIN --scope serve",
            )
    except Forbidden:  # one that may only be a worker
        pass
    except Unavailable as error:
        note(f"{error.message}; it is asked again until it answers")


def _await(context: Context, before: set[str], number: int) -> list[str]:
    """The names of the new workers.  Raises Unavailable where they do not come."""
    deadline_s = time.monotonic() + READY_S
    while True:
        new = [worker["id"] for worker in _living(context) if worker["id"] not in before]
        if len(new) >= number:
            return new
        if time.monotonic() > deadline_s:
            raise Unavailable(
                f"of {number} ordered workers {len(new)} have come in {READY_S:.0f} s", "muster doctor"
            )
        time.sleep(TICK_S)


def _stop(args: argparse.Namespace) -> int:
    if args.graceful and args.now:
        raise BadInput("--graceful and --now exclude each other; nothing was stopped", "use one of them")
    with connect(args) as context:
        within_s = within(args)
        worker = _worker(context, args.name)
        name = worker["id"]
        if worker["endedAtMs"] is not None:
            told = "has ended already"
        else:
            context.post(worker_path(name, "stop"), stopByS=STOP_BY_S if args.now else None)
            held = ", ".join(map(clean, worker["holds"]))
            told = f"ends when it has {'given back' if args.now else 'finished'} {held}" if held else "ends"
        if not args.json:
            print(f"{name}  {told}", flush=True)
        if within_s is not None and worker["endedAtMs"] is None:
            worker = _await_end(context, worker, within_s)
            if not args.json:
                print(f"{name}  has ended")
    if args.json:
        print_json({"worker": name, "holds": worker["holds"], "ended": worker["endedAtMs"] is not None})
    return 0


def _await_end(context: Context, worker: Json, within_s: float) -> Json:
    """The worker, ended.  Raises WaitTimeout."""
    deadline_s = time.monotonic() + within_s
    path = worker_path(worker["id"])
    while worker["endedAtMs"] is None:
        if time.monotonic() > deadline_s:
            held = ", ".join(worker["holds"]) or "nothing"
            raise WaitTimeout(
                f"waited {within_s:g} s, and {worker['id']} goes on; it holds {held}",
                f"muster worker stop {worker['id']} --now",
            )
        time.sleep(TICK_S)
        worker = patiently(lambda: context.api.get(path))
    return worker
