"""What can happen to servers that share a store, to their database and to their Valkey, while a crew works."""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Callable
from functools import partial

from shared_backend import PostgresBackend

from faults import (
    ANSWERS,
    COMMITS,
    FAULTS,
    OF_OWNERS,
    Fault,
    Scene,
    busy,
    fires,
    kill,
    recovered,
    victims_of,
    worker,
)
from muster.model.errors import MusterError
from patience import through_restarts, until
from several_servers import SharedServer

Strike = Callable[[], int | None]
"""When it was healed, in milliseconds, where that was up to us; None: who is struck has to get over it."""
AWAY_S = (0.2, 6.0)
"""How long what comes back is away, or stands still: less than a lease, or twice as long."""
CUTS = 5
REAPED_S = 10.0
POINT_S = 15.0


def _backend(scene: Scene) -> PostgresBackend:
    backend = scene.rig.backend
    assert isinstance(backend, PostgresBackend)
    return backend


def _now_ms() -> int:
    return int(time.time() * 1000)


def _goes_on(scene: Scene, after: int, since_ms: int) -> float:
    """Seconds until something was written again."""
    rig = scene.rig

    def look() -> int | None:
        nonlocal after
        query = {"after": after, "wait": 1}
        page = through_restarts(lambda: rig.api.get("/api/v1/events", query))
        after = page[-1]["id"] if page else after
        return next((event["atMs"] for event in page if event["atMs"] >= since_ms), None)

    return (until(look, "work goes on") - since_ms) / 1000


def _struck(scene: Scene, fault: Fault, strike: Strike) -> Fault:
    """Once the crew has got over it, and its servers."""
    busy(scene)
    after: int = scene.rig.status()["status"]["lastEventId"]
    time.sleep(scene.chance.random() * 0.2)
    fault.at_ms = _now_ms()
    healed_ms = strike()
    fault.back_s = _goes_on(scene, after, fault.at_ms if healed_ms is None else healed_ms)
    return _whole(scene, fault)


def _whole(scene: Scene, fault: Fault) -> Fault:
    _backend(scene).revive()
    return recovered(scene, fault)


def _pause(scene: Scene) -> int:
    """Until when."""
    time.sleep(scene.chance.uniform(*AWAY_S))
    return _now_ms()


# -- servers


def _killed(server: SharedServer) -> None:
    assert server.process is not None
    server.send(signal.SIGKILL)
    server.process.wait()


def _another_leads(scene: Scene, server: SharedServer, term: int) -> float:
    """Seconds until it does; there is work all the time."""
    began_s = time.monotonic()
    (other,) = [one for one in _backend(scene).servers.every if one is not server]

    def leads() -> bool:
        scene.feed()
        with contextlib.suppress(MusterError):
            return other.term > term
        return False

    until(leads, "another server leads")
    return time.monotonic() - began_s


def leader_killed(scene: Scene) -> Fault:
    """It is started again when another one has its place, or at once."""
    leader = _backend(scene).leader()
    term, at_once = leader.term, scene.chance.random() < 0.3
    fault = Fault("leader, kill -9, and started at once" if at_once else "leader, kill -9")

    def strike() -> None:
        _killed(leader)
        if at_once:
            leader.begin()
        else:
            fault.led_s = _another_leads(scene, leader, term)

    return _struck(scene, fault, strike)


def leader_stopped(scene: Scene) -> Fault:
    """Until another one leads; then it goes on as if it still did."""
    leader, fault = _backend(scene).leader(), Fault("leader, stopped and awake again")
    term = leader.term

    def strike() -> None:
        leader.send(signal.SIGSTOP)
        try:
            fault.led_s = _another_leads(scene, leader, term)
        finally:
            leader.send(signal.SIGCONT)

    found = _struck(scene, fault, strike)
    until(lambda: not leader.leads, "it follows")
    return found


def leader_restarted(scene: Scene) -> Fault:
    leader, fault = _backend(scene).leader(), Fault("leader, ended and started")
    term = leader.term

    def strike() -> None:
        assert leader.end() == 0
        fault.led_s = _another_leads(scene, leader, term)

    return _struck(scene, fault, strike)


def follower_killed(scene: Scene) -> Fault:
    follower = _backend(scene).follower()
    return _struck(scene, Fault("follower, kill -9"), lambda: _killed(follower))


def follower_stopped(scene: Scene) -> Fault:
    follower = _backend(scene).follower()

    def strike() -> None:
        follower.send(signal.SIGSTOP)
        try:
            _pause(scene)
        finally:
            follower.send(signal.SIGCONT)

    return _struck(scene, Fault("follower, stopped and awake again"), strike)


def follower_restarted(scene: Scene) -> Fault:
    follower = _backend(scene).follower()

    def strike() -> None:
        assert follower.end() == 0

    return _struck(scene, Fault("follower, ended and started"), strike)


def servers_killed(scene: Scene) -> Fault:
    backend = _backend(scene)

    def strike() -> None:
        for server in backend.servers.every:
            _killed(server)
        backend.revive()

    return _struck(scene, Fault("both servers, kill -9"), strike)


def server_at(scene: Scene, point: str, kind: str) -> Fault:
    """Whichever server comes there first."""
    names = ANSWERS if point == "after_answer" else COMMITS

    def strike() -> int:
        scene.rig.arm(f"{point}:{scene.chance.randint(1, 4)}:{scene.chance.choice(names)}")
        # A crew that is never idle claims with the word that ends an attempt, and not by a request of its own.
        if not fires(scene.rig, POINT_S):
            scene.rig.arm(f"{point}:1:")
            assert fires(scene.rig), "the point was never passed"
        return _now_ms()

    scene.feed()
    return _struck(scene, Fault(kind), strike)


def leader_reaping(scene: Scene) -> Fault:
    """A worker is killed, and the leader while it frees that worker's task."""
    task, victim = busy(scene)
    point = scene.chance.choice(["before_commit", "after_commit"])
    scene.rig.arm(f"{point}:1:{scene.chance.choice(['Reap', 'BuryWorker'])}")
    kind = "worker, and the leader as it frees its task"
    fault = Fault(kind, victims=victims_of([task]), workers={victim["id"]})
    kill(victim["pid"])
    fires(scene.rig, REAPED_S)  # the task may have ended just before: then there was nothing to free
    return _whole(scene, fault)


def everything(scene: Scene) -> Fault:
    """Servers, database and workers; their agents as well, or they are left behind."""
    rig, backend = scene.rig, _backend(scene)
    busy(scene)
    running = rig.running()
    agents = [pid for task in running for pid in rig.agent_pids(task["id"], task["epoch"])]
    fault = Fault("everything at once", victims=victims_of(running), workers={w["id"] for w in rig.workers()})
    rig.kill_supervisor()
    for server in backend.servers.every:
        _killed(server)
    backend.database.end(signal.SIGKILL)
    rig.kill_own_processes()
    if scene.chance.random() < 0.5:
        for pid in agents:
            kill(pid)
    backend.database.start()
    backend.revive()
    rig.up(scene.size)
    return _whole(scene, fault)


# -- the database


def session_killed(scene: Scene) -> Fault:
    database = _backend(scene).database
    return _struck(
        scene, Fault("database, kill -9 of a session"), lambda: database.kill_a_session(scene.chance)
    )


def database_ended(scene: Scene, how: signal.Signals, kind: str) -> Fault:
    database = _backend(scene).database

    def strike() -> None:
        database.end(how)
        database.start()

    return _struck(scene, Fault(kind), strike)


def database_stopped(scene: Scene) -> Fault:
    database = _backend(scene).database

    def strike() -> int:
        database.stand_still()
        try:
            return _pause(scene)
        finally:
            database.go_on()

    return _struck(scene, Fault("database, stopped and awake again"), strike)


def sessions_ended(scene: Scene) -> Fault:
    return _struck(scene, Fault("database, all sessions terminated"), _backend(scene).database.end_sessions)


def lines_cut(scene: Scene) -> Fault:
    def strike() -> None:
        for _ in range(CUTS):
            for line in _backend(scene).lines:
                line.cut()
            time.sleep(scene.chance.random() * 0.2)

    return _struck(scene, Fault("connections to the database cut"), strike)


def lines_away(scene: Scene) -> Fault:
    lines = _backend(scene).lines

    def strike() -> int:
        for line in lines:
            line.cut(away=True)
        try:
            return _pause(scene)
        finally:
            for line in lines:
                line.mend()

    return _struck(scene, Fault("database away from both servers"), strike)


def one_cut_off(scene: Scene) -> Fault:
    line = scene.chance.choice(_backend(scene).lines)

    def strike() -> None:
        line.cut(away=True)
        try:
            _pause(scene)
        finally:
            line.mend()

    return _struck(scene, Fault("database away from one server"), strike)


# -- Valkey


def valkey_harmed(scene: Scene, kind: str, harm: str, heal: str) -> Fault:
    """Alone, or with a worker that is killed while it is so."""
    valkey = _backend(scene).valkey
    steps = {
        "copy": lambda: (valkey.take_a_copy(), time.sleep(0.5), valkey.promote_the_copy()),
        "absent": lambda: (valkey.kill(), _restarted(scene)),
        "again": lambda: (valkey.kill(), valkey.start()),
        "": lambda: None,
    }
    strike, mend = (steps.get(name) or getattr(valkey, name) for name in (harm, heal))
    if scene.chance.random() < 0.5:
        strike()
        fault = worker(scene)
        fault.kind = f"Valkey {kind}, and a worker killed"
    else:
        fault = _struck(scene, Fault(f"Valkey {kind}"), lambda: (strike(), None)[1])
    mend()
    return _whole(scene, fault)


def _restarted(scene: Scene) -> None:
    """A server begins while there is no Valkey."""
    server = scene.chance.choice(_backend(scene).servers.every)
    assert server.end() == 0
    server.start()


SHARED_FAULTS: dict[str, tuple[int, Callable[[Scene], Fault]]] = {
    **{name: found for name, found in FAULTS.items() if name not in OF_OWNERS},
    "leader-killed": (6, leader_killed),
    "leader-stopped": (4, leader_stopped),
    "leader-restarted": (4, leader_restarted),
    "follower-killed": (5, follower_killed),
    "follower-stopped": (4, follower_stopped),
    "follower-restarted": (3, follower_restarted),
    "servers-killed": (4, servers_killed),
    "before-commit": (6, partial(server_at, point="before_commit", kind="server, before a commit")),
    "after-commit": (
        6,
        partial(server_at, point="after_commit", kind="server, after a commit, before its answer"),
    ),
    "after-answer": (4, partial(server_at, point="after_answer", kind="server, after an answer")),
    "leader-reaping": (4, leader_reaping),
    "everything": (4, everything),
    "session-killed": (4, session_killed),
    "postmaster-killed": (
        5,
        partial(database_ended, how=signal.SIGKILL, kind="database, kill -9 of the postmaster, and started"),
    ),
    "database-restarted": (
        3,
        partial(database_ended, how=signal.SIGINT, kind="database, ended and started"),
    ),
    "database-stopped": (5, database_stopped),
    "sessions-ended": (5, sessions_ended),
    "lines-cut": (6, lines_cut),
    "lines-away": (5, lines_away),
    "one-cut-off": (5, one_cut_off),
    "valkey-flushed": (3, partial(valkey_harmed, kind="flushed", harm="flush", heal="")),
    "valkey-killed": (3, partial(valkey_harmed, kind="killed", harm="kill", heal="start")),
    "valkey-restarted": (3, partial(valkey_harmed, kind="killed and started", harm="again", heal="")),
    "valkey-stopped": (3, partial(valkey_harmed, kind="stopped and awake again", harm="stop", heal="go_on")),
    "valkey-stale": (3, partial(valkey_harmed, kind="replaced by an old copy", harm="copy", heal="")),
    "valkey-absent": (
        3,
        partial(valkey_harmed, kind="absent as a server starts", harm="absent", heal="start"),
    ),
}
"""As FAULTS, for a crew of a shared store."""
