"""What can happen to a crew.  Each fault strikes, waits until the crew has got over it, and says whom it hit."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from lost import lose_answers
from rig import Rig

from muster.worker.supervisor import STEADY_S
from patience import PATIENCE_S, through_restarts, until

SETTLED_SHARE = 0.8
RECOVERY_LIMIT_S = 5 * PATIENCE_S
"""Where a machine is so busy that its store takes seconds for a commit, nobody's silence proves anything."""
COMMITS = ("", "Claim", "Start", "SaveCheckpoint", "Complete", "Heartbeat")
ANSWERS = ("", "claim", "start", "checkpoint", "complete", "heartbeat")


@dataclass
class Fault:
    kind: str
    at_ms: int = field(default_factory=lambda: int(time.time() * 1000))
    """Wall time of the kill."""
    victims: list[tuple[int, int]] = field(default_factory=list)
    """(task, epoch) of the attempts that it was aimed at."""
    workers: set[str] = field(default_factory=set)
    """Those that were killed: whatever they held at that moment was hit as well."""
    back_s: float | None = None
    """How long nobody answered, or nothing was written, for faults of others than workers and agents."""
    led_s: float | None = None
    """How long it took until another server led."""
    beside: set[tuple[int, int]] = field(default_factory=set)
    """Attempts whose agents nobody can stop: on another host, while their worker stands still."""


@dataclass
class Scene:
    rig: Rig
    chance: random.Random
    size: int
    """Workers of the whole crew."""
    pieces: int
    feed: Callable[[], object] = lambda: None
    """Adds work where little is left."""


def victims_of(tasks: list[dict[str, Any]]) -> list[tuple[int, int]]:
    return [(task["id"], task["epoch"]) for task in tasks]


def recovered(scene: Scene, fault: Fault) -> Fault:
    """Once every victim has moved on and the crew is whole again."""

    def moved_on(task_id: int, epoch: int) -> bool:
        now = scene.rig.task(task_id)["task"]
        over = now["status"] in {"COMPLETED", "CANCELLED"} or now["epoch"] > epoch + 1
        return bool(over or (now["epoch"] > epoch and now["status"] == "RUNNING"))

    for task_id, epoch in fault.victims:
        goes_on = lambda t=task_id, e=epoch: moved_on(t, e)  # noqa: E731
        until(goes_on, f"task {task_id} goes on", RECOVERY_LIMIT_S)
    until(lambda: scene.rig.strength() == scene.size, "the crew has its full size", RECOVERY_LIMIT_S)
    return fault


def busy(scene: Scene) -> tuple[dict[str, Any], dict[str, Any]]:
    """A running task of the crew, and its worker."""

    def look() -> tuple[dict[str, Any], dict[str, Any]] | None:
        workers = {worker["id"]: worker for worker in scene.rig.workers()}
        found = [task for task in scene.rig.running() if task["worker"] in workers]
        if not found:
            return None
        task = scene.chance.choice(found)
        return task, workers[task["worker"]]

    return until(look, "a worker has something to do")


def kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


# -- workers and agents


def worker(scene: Scene) -> Fault:
    time.sleep(scene.chance.random() * 0.2)
    task, victim = busy(scene)
    fault = Fault("worker, at random", victims=victims_of([task]), workers={victim["id"]})
    kill(victim["pid"])
    return recovered(scene, fault)


def worker_at(scene: Scene, event: str, kind: str) -> Fault:
    """As soon as the event is heard of, a few milliseconds after it was committed."""
    rig = scene.rig
    pids = {worker["id"]: worker["pid"] for worker in rig.workers()}
    after = rig.status()["status"]["lastEventId"]

    def look() -> dict[str, Any] | None:
        nonlocal after
        query = {"after": after, "wait": 1}
        page = through_restarts(lambda: rig.api.get("/api/v1/events", query))
        after = page[-1]["id"] if page else after
        return next((e for e in page if e["event"] == event and e["actor"] in pids), None)

    heard = until(look, f"something is {event}")
    fault = Fault(kind, victims=[(heard["taskId"], heard["epoch"])], workers={heard["actor"]})
    kill(pids[heard["actor"]])
    return recovered(scene, fault)


def worker_finishing(scene: Scene) -> Fault:
    """Between the last piece of work and the word that it is done."""
    rig = scene.rig

    def look() -> tuple[dict[str, Any], int] | None:
        with rig.ledger_file.open("rb") as ledger:
            ledger.seek(start)
            text = ledger.read().decode()
        last = f'"piece": {scene.pieces},'
        for line in reversed(text.splitlines()):
            if last in line and line.endswith("}"):
                task_id = int(line.split('"task": ')[1].split(",")[0])
                task = rig.task(task_id)["task"]
                pid = {worker["id"]: worker["pid"] for worker in rig.workers()}.get(task["worker"])
                return (task, pid) if pid else None
        return None

    start = rig.ledger_file.stat().st_size
    task, pid = until(look, "an agent is about to end")
    time.sleep(scene.chance.random() * 0.05)
    fault = Fault("worker, as its agent ends", victims=victims_of([task]), workers={task["worker"]})
    kill(pid)
    return recovered(scene, fault)


def zombie(scene: Scene) -> Fault:
    """A worker that stands still for longer than its lease, and then goes on."""
    task, victim = busy(scene)
    fault = Fault("worker, stopped and awake again", victims=victims_of([task]), workers={victim["id"]})
    fault.beside = set(fault.victims) if scene.rig.backend.far else set()
    os.kill(victim["pid"], signal.SIGSTOP)
    try:
        buried = lambda: victim["id"] not in [w["id"] for w in scene.rig.workers()]  # noqa: E731
        until(buried, "the silent worker is given up", RECOVERY_LIMIT_S)
    finally:
        os.kill(victim["pid"], signal.SIGCONT)
    rig = scene.rig
    # Where nobody has its task yet, a worker of another host that is heard again goes on with it.
    heard = lambda: rig.backend.far and victim["id"] in [w["id"] for w in rig.workers()]  # noqa: E731
    until(lambda: victim["pid"] not in rig.crew_pids() or heard(), "it has ended, or goes on")
    return recovered(scene, fault)


def agent(scene: Scene) -> Fault:
    def look() -> tuple[dict[str, Any], list[int]] | None:
        task, _ = busy(scene)
        pids = scene.rig.agent_pids(task["id"], task["epoch"])
        return (task, pids) if pids else None

    task, pids = until(look, "an agent runs")
    fault = Fault("agent, at random", victims=victims_of([task]))
    for pid in pids:
        kill(pid)
    return recovered(scene, fault)


# -- the owner


def _owner_dies(scene: Scene, fault: Fault, old_pid: int) -> Fault:
    began_s = time.monotonic() - (time.time() - fault.at_ms / 1000)
    until(lambda: scene.rig.owner_pid() != old_pid, "another owner answers")
    fault.back_s = time.monotonic() - began_s
    return recovered(scene, fault)


def _settled(scene: Scene) -> None:
    """Mostly an owner has worked for a while before it is struck: what dies at its start again and again is
    started ever more rarely, on purpose, and the figures would tell of nothing but that."""

    def look() -> bool:
        alive_ms = time.time() * 1000 - scene.rig.status()["owner"]["startedAtMs"]
        return alive_ms > (STEADY_S + 0.3) * 1000

    if scene.chance.random() < SETTLED_SHARE:
        until(look, "the owner has worked for a while")
    busy(scene)


def owner(scene: Scene) -> Fault:
    _settled(scene)
    pid = scene.rig.owner_pid()
    time.sleep(scene.chance.random() * 0.2)
    fault = Fault("owner, at random")
    kill(pid)
    return _owner_dies(scene, fault, pid)


def fires(rig: Rig, within_s: float = PATIENCE_S) -> bool:
    """Waits until the failpoint has struck; takes it away where it does not."""
    deadline_s = time.monotonic() + within_s
    while rig.failpoint.exists():
        if time.monotonic() > deadline_s:
            rig.failpoint.unlink(missing_ok=True)
            return False
        time.sleep(0.002)
    return True


def owner_at(scene: Scene, point: str, kind: str) -> Fault:
    names = ANSWERS if point == "after_answer" else COMMITS
    _settled(scene)
    pid = scene.rig.owner_pid()
    scene.rig.arm(f"{point}:{scene.chance.randint(1, 4)}:{scene.chance.choice(names)}")
    assert fires(scene.rig), "the point was never passed"
    return _owner_dies(scene, Fault(kind), pid)


def owner_taking_over(scene: Scene) -> Fault:
    """Twice: the second one dies while it takes over from the first."""
    _settled(scene)
    pid = scene.rig.owner_pid()
    scene.rig.arm(f"{scene.chance.choice(['before_commit', 'after_commit'])}:1:NewBoot")
    fault = Fault("owner, again while taking over")
    kill(pid)
    assert fires(scene.rig), "nobody took over"
    return _owner_dies(scene, fault, pid)


def owner_reaping(scene: Scene) -> Fault:
    """A worker is killed, and the owner while it frees that worker's task."""
    _settled(scene)
    task, victim = busy(scene)
    pid = scene.rig.owner_pid()
    point = scene.chance.choice(["before_commit", "after_commit"])
    scene.rig.arm(f"{point}:1:{scene.chance.choice(['Reap', 'BuryWorker', 'Register'])}")
    kind = "worker, and the owner as it frees its task"
    fault = Fault(kind, victims=victims_of([task]), workers={victim["id"]})
    kill(victim["pid"])
    # The task may have ended just before: then there was nothing to free.
    if fires(scene.rig, 5.0):
        return _owner_dies(scene, fault, pid)
    return recovered(scene, fault)


# -- the supervisor, and everybody


def supervisor(scene: Scene) -> Fault:
    rig = scene.rig
    fault = Fault("supervisor")
    began_s = time.monotonic()
    rig.kill_supervisor()
    rig.up(scene.size)
    fault.back_s = time.monotonic() - began_s
    # And the new one minds whom it has adopted, also while it does so.
    then = scene.chance.choice(("worker", "nobody") if rig.backend.far else ("worker", "owner", "nobody"))
    if then == "worker":
        task, victim = busy(scene)
        fault = Fault("supervisor, then a worker", victims=victims_of([task]), workers={victim["id"]})
        kill(victim["pid"])
    elif then == "owner":
        pid = rig.owner_pid()
        fault = Fault("supervisor, then the owner")
        kill(pid)
        return _owner_dies(scene, fault, pid)
    return recovered(scene, fault)


def everybody(scene: Scene) -> Fault:
    rig = scene.rig
    busy(scene)
    running = rig.running()
    agents = [pid for task in running for pid in rig.agent_pids(task["id"], task["epoch"])]
    workers = {worker["id"] for worker in rig.workers()}
    kind = "all workers at once" if rig.backend.far else "everything at once"
    fault = Fault(kind, victims=victims_of(running), workers=workers)
    rig.kill_supervisor()
    rig.kill_own_processes()
    if scene.chance.random() < 0.5:  # or they are orphans, to be killed by the next owner
        for pid in agents:
            kill(pid)
    rig.up(scene.size)
    return recovered(scene, fault)


def lost_answers(scene: Scene) -> Fault:
    fault = Fault("answers lost")
    lose_answers(scene.rig, scene.chance, scene.pieces)
    return recovered(scene, fault)


def _at_point(point: str, kind: str) -> Callable[[Scene], Fault]:
    return lambda scene: owner_at(scene, point, kind)


def _at_event(event: str, kind: str) -> Callable[[Scene], Fault]:
    return lambda scene: worker_at(scene, event, kind)


FAULTS: dict[str, tuple[int, Callable[[Scene], Fault]]] = {
    "worker": (20, worker),
    "worker-claimed": (6, _at_event("claimed", "worker, as it gets a task")),
    "worker-started": (6, _at_event("started", "worker, as it starts an agent")),
    "worker-finishing": (6, worker_finishing),
    "zombie": (4, zombie),
    "agent": (14, agent),
    "owner": (8, owner),
    "before-commit": (8, _at_point("before_commit", "owner, before a commit")),
    "after-commit": (8, _at_point("after_commit", "owner, after a commit, before its answer")),
    "after-answer": (6, _at_point("after_answer", "owner, after an answer")),
    "owner-taking-over": (3, owner_taking_over),
    "owner-reaping": (4, owner_reaping),
    "supervisor": (6, supervisor),
    "everybody": (4, everybody),
    "lost-answers": (7, lost_answers),
}
"""Name: (weight, fault)."""
OF_OWNERS = {"owner", "before-commit", "after-commit", "after-answer", "owner-taking-over", "owner-reaping"}
"""Those of them that need an owner which the crew's supervisor starts again."""
