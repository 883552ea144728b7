"""Servers of their own processes on one PostgreSQL store, by their folders' sockets; two of them against one; and
what the heartbeats of many agents cost one."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from inside import AGENT, registration
from outside import Hand, cpu_s, name, together
from pg_server import database, server_cpu_s
from setting import Setting, Stopwatch
from table import Row, least, most, told

from muster.client.api import Api
from muster.client.crew import HttpCrew
from muster.client.http import Connection
from muster.model import commands as c
from muster.runtimes.chance import SystemChance
from several_servers import Servers

SETTINGS = "[serve]\nrate = 0\n"
TO_ONE, HANDS = 1.6, 16
AGENTS, EVERY_S, CORE_SHARE = 10_000, 5.0, 0.5


class Crew:
    def __init__(self, servers: Servers) -> None:
        self._servers = servers

    def _socket(self, at: int) -> Path:
        return self._servers.every[at].folder / ".muster" / "muster.sock"

    def api(self, at: int) -> Api:
        return Api(Connection(self._socket(at)))

    def hand(self, at: int) -> Hand:
        return Hand(self._socket(at))

    def crew(self, at: int) -> HttpCrew:
        return HttpCrew(self._socket(at))

    def cpu_s(self) -> float:
        return sum(cpu_s(one.process.pid) for one in self._servers.every if one.process is not None)

    def add(self, number: int) -> None:
        tasks = [{"title": f"task {i}", "key": f"t{i}", "agent": AGENT} for i in range(number)]
        with closing(self.api(0)) as api:
            api.post("/api/v1/plans", {"plan": "bench", "source": None, "tasks": tasks, "actor": "bench"})


@contextmanager
def servers(folder: Path, url: str, count: int) -> Iterator[Crew]:
    made = Servers(folder, url, count, SETTINGS)
    try:
        made.start()
        yield Crew(made)
    finally:
        made.close()


def two(setting: Setting) -> Iterator[Row]:
    """The same hands, at one server and at two."""
    number, rates, used = setting.size(2000, 100), dict[int, list[float]](), ""
    for _ in range(setting.size(2, 1)):
        for count in (1, 2):
            with setting.place() as folder, database(setting) as url, servers(folder, url, count) as crew:
                rate, spent = _drain(setting, crew, count, number)
                rates.setdefault(count, []).append(rate)
                if count == 1:
                    allowed = (os.cpu_count() or 1) / (sum(spent.values()) * rate)
                    used = ", ".join(f"{who} {s * 1e6:.0f} us" for who, s in spent.items())
    for count, found in rates.items():
        yield told(f"drain one by one, {HANDS} callers, {count} servers", found, "/s", used * (count == 1))
    ratio = [statistics.median(rates[2]) / statistics.median(rates[1])]
    bound = f"CPU of a task at one server: {used}; {os.cpu_count()} cores allow {allowed:.2f} x of its rate"
    if allowed >= TO_ONE:
        yield least("two servers to one", ratio, "x", TO_ONE, bound)
    else:
        yield told(f"two servers to one (>= {TO_ONE} x where cores allow)", ratio, "x", bound)


def _drain(setting: Setting, crew: Crew, count: int, number: int) -> tuple[float, dict[str, float]]:
    """Tasks a second, and seconds of CPU for each by who has used them."""
    crew.add(number)
    hands = [crew.hand(n % count) for n in range(HANDS)]
    before, postgres_s, watch = crew.cpu_s(), server_cpu_s(setting), Stopwatch()
    done = sum(together([hand.drain for hand in hands]))
    assert done == number, f"{done} of {number} were drained"
    wall_s = watch.s
    spent = {
        "server": crew.cpu_s() - before,
        "PostgreSQL": server_cpu_s(setting) - postgres_s,
        "callers": watch.cpu_s,
    }
    return number / wall_s, {who: max(seconds, 0) / number for who, seconds in spent.items()}


def heartbeats(setting: Setting) -> Iterator[Row]:
    """Each agent holds an attempt, whose lease each heartbeat extends."""
    workers, each = setting.size((100, 100), (4, 10))
    with setting.place() as folder, database(setting) as url, servers(folder, url, 1) as crew:
        by_hundred = _beats(setting, crew, workers, each)
        by_one = _beats(setting, crew, setting.size(300, 20), 1)
    agents = workers * each
    scale = AGENTS / agents / EVERY_S
    yield most(
        f"{AGENTS:,} agents' heartbeats every {EVERY_S:g} s, of a server's core",
        [by_hundred[0] * scale],
        "x",
        CORE_SHARE,
        f"{workers} workers with {each} agents; PostgreSQL takes {by_hundred[1] * scale:.2f} of a core more",
    )
    scale = AGENTS / setting.size(300, 20) / EVERY_S
    yield told(
        "  each agent a worker of its own",
        [by_one[0] * scale],
        "x",
        f"PostgreSQL takes {by_one[1] * scale:.2f} of a core more; of a sample, in proportion",
    )


def _beats(setting: Setting, crew: Crew, workers: int, each: int) -> tuple[float, float]:
    """Seconds of CPU of the server and of PostgreSQL, for one heartbeat of each worker."""
    tasks = [{"title": f"task {i}", "agent": AGENT} for i in range(workers * each)]
    with closing(crew.api(0)) as api:
        api.post("/api/v1/plans", {"plan": name(), "source": None, "tasks": tasks, "actor": "bench"})
    caller, chance, held = crew.crew(0), SystemChance(), []
    for _ in range(workers):
        worker = name()
        caller.register(registration(worker, slots=each))
        claim = c.Claim(worker_id=worker, request_id=chance.name(16), slots=each, start=True)
        jobs = caller.claim(claim, wait_s=0).jobs
        assert len(jobs) == each, f"{len(jobs)} of {each} tasks were given"
        held.append(c.Heartbeat(worker_id=worker, attempts=tuple((job.task_id, job.epoch) for job in jobs)))
    rounds = setting.size(3, 1)
    time.sleep(0.2)
    before, postgres_s = crew.cpu_s(), server_cpu_s(setting)
    for _ in range(rounds):
        for beat in held:
            caller.heartbeat(beat, wait_s=0)
    return (crew.cpu_s() - before) / rounds, (server_cpu_s(setting) - postgres_s) / rounds
