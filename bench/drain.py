"""No-op tasks, claimed, started and completed with their audit: against the bare loop and the peers."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from pathlib import Path

from inside import Inside, copy, remove, template
from outside import Hand, Site, cpu_s, site, together
from peers_venv import Peers
from replay import Recording, RecordingStore, TimedStore, hottest, replay, shares
from setting import Setting, Stopwatch
from table import Row, least, told

from muster.config.identity import settle

BATCHES, AS_AGENTS = (1, 10, 100, 500), (1, 100)
BARE_SHARE, PEER_FACTOR, ONE_BY_ONE, SOCKET_ONE_BY_ONE = 0.5, 2.5, 2000.0, 1500.0


def rows(setting: Setting) -> Iterator[Row]:
    peers = Peers()
    medians: dict[int, float] = {}
    with setting.place() as folder:
        for batch in BATCHES:
            number = {1: setting.size(1500, 300), 10: setting.size(5000, 500)}.get(
                batch, setting.size(10_000, 1000)
            )
            source = template(folder / "template.db", number)
            bare, muster = _interleaved(
                setting, folder, source, batch, number, peers if batch == 100 else None
            )
            medians[batch] = statistics.median(muster)
            yield told(
                f"drain, bare loop, batches of {batch}", bare, "/s", "SQL writes and synced commits alone"
            )
            yield from _inside_rows(folder, source, batch, number, bare, muster)
            if batch in AS_AGENTS:
                yield from _as_agents(setting, folder, source, batch, number)
            remove(source)
    yield from _peer_rows(peers, medians[100])
    yield from _socket(setting)


def _interleaved(
    setting: Setting, folder: Path, source: Path, batch: int, number: int, peers: Peers | None
) -> tuple[list[float], list[float]]:
    """Tasks per second of (the bare loop, the engine), in turns."""
    recording, bare, muster = _record(source, folder, batch, number), list[float](), list[float]()
    for _ in range(setting.repetitions):
        seconds = replay(copy(source, folder / "bare.db"), recording)
        bare.append(number / seconds)
        with Inside(copy(source, folder / "engine.db")) as inside:
            watch = Stopwatch()
            assert inside.drain(batch) == number
            muster.append(number / watch.s)
        if peers is not None:
            peers.measure("huey", setting)
            peers.measure("dbos", setting)
    return bare, muster


def _record(source: Path, folder: Path, batch: int, number: int, *, as_agents: bool = False) -> Recording:
    with Inside(copy(source, folder / "record.db"), RecordingStore) as inside:
        assert inside.drain(batch, as_agents=as_agents) == number
        recording: Recording = inside.store.recording[1:]  # registering is no part of the drain
        return recording


def _as_agents(setting: Setting, folder: Path, source: Path, batch: int, number: int) -> Iterator[Row]:
    """As workers of agent CLIs do it: the start of the process is a write of its own."""
    recording, rates, ratios = _record(source, folder, batch, number, as_agents=True), [], []
    for _ in range(setting.repetitions):
        bare_s = replay(copy(source, folder / "bare.db"), recording)
        with Inside(copy(source, folder / "engine.db")) as inside:
            watch = Stopwatch()
            assert inside.drain(batch, as_agents=True) == number
            rates.append(number / watch.s)
            ratios.append(bare_s / watch.s)
    yield told(f"drain, in process, batches of {batch}, starts apart", rates, "/s")
    yield told("  its share of the bare loop", ratios, "x")


def _inside_rows(
    folder: Path, source: Path, batch: int, number: int, bare: list[float], muster: list[float]
) -> Iterator[Row]:
    why = _where_time_goes(folder, source, batch, number)
    what = f"drain, in process, batches of {batch}"
    if batch == 1:
        yield least(what, muster, "/s", ONE_BY_ONE, why)
    else:
        yield told(what, muster, "/s", why)
    ratios = [ours / theirs for ours, theirs in zip(muster, bare, strict=True)]
    if batch == 100:
        yield least("  its share of the bare loop", ratios, "x", BARE_SHARE, _profile(folder, source, batch))
    else:
        yield told("  its share of the bare loop", ratios, "x")


def _where_time_goes(folder: Path, source: Path, batch: int, number: int) -> str:
    with Inside(copy(source, folder / "timed.db"), TimedStore) as inside:
        inside.store.forget()
        watch = Stopwatch()
        inside.drain(batch)
        return shares(inside.store, watch.s, number)


def _profile(folder: Path, source: Path, batch: int) -> str:
    with Inside(copy(source, folder / "profiled.db")) as inside:
        return hottest(lambda: inside.drain(batch))


def _peer_rows(peers: Peers, ours: float) -> Iterator[Row]:
    for name in ("huey", "dbos"):
        if name in peers.refused:
            yield Row(f"drain, {name} on SQLite", not_run=peers.refused[name])
        else:
            yield told(f"drain, {name} on SQLite", peers.rates[name, "drain"], "/s", "synchronous=FULL")
    drains = [rate for (_, what), rate in peers.rates.items() if what == "drain"]
    what = "drain, batches of 100, to the fastest peer"
    if not drains:
        yield Row(what, target=f">= {PEER_FACTOR:g} x", not_run="no peer was run")
        return
    fastest = max(statistics.median(rates) for rates in drains)
    bound = f"ours {ours:,.0f}/s, with audit; the fastest peer {fastest:,.0f}/s, without"
    yield least(what, [ours / fastest], "x", PEER_FACTOR, bound)


def _socket(setting: Setting) -> Iterator[Row]:
    """Through a real owner: each connection asks for its next task when it has ended one."""
    number = setting.size(3000, 300)
    known = _cpu_inside(setting)
    for hands in setting.size((1, 8, 32), (1, 8)):
        what = f"drain, through the socket, {hands} connections"
        rates, bound = _drains_socket(setting, hands, number, known, as_agents=False)
        if hands == 8:
            yield least(what, rates, "/s", SOCKET_ONE_BY_ONE, bound)
        else:
            yield told(what, rates, "/s", bound)
        if hands == 8:
            rates, bound = _drains_socket(setting, hands, number, known, as_agents=True)
            yield told("  with a start of its own, as for agents", rates, "/s", bound)


def _drains_socket(
    setting: Setting, hands: int, number: int, known: str, *, as_agents: bool
) -> tuple[list[float], str]:
    rates, bound = [], ""
    for _ in range(setting.size(3, 1)):
        with setting.place() as folder, site(folder / "p") as project:
            settle(project.project)  # before there is a store, or it would be taken for a copied one
            template(project.project.store, number)
            rate, bound = _drain_socket(project, hands, number, known, as_agents=as_agents)
        rates.append(rate)
    return rates, bound


def _cpu_inside(setting: Setting) -> str:
    """What one task costs the engine without a server, and the server without the engine."""
    number = setting.size(1000, 200)
    with setting.place() as folder, Inside(template(folder / "cpu.db", number)) as inside:
        watch = Stopwatch()
        inside.drain(1)
        engine_us = watch.cpu_s / number * 1e6
    with setting.place() as folder, site(folder / "p") as project, project.api() as api:
        owner = project.owner()
        before_s = cpu_s(owner.pid)
        for _ in range(number):
            api.get("/healthz")
        http_us = (cpu_s(owner.pid) - before_s) / number * 1e6
    return f"engine and SQLite alone, one by one: {engine_us:.0f} us; an empty request: {http_us:.0f} us"


def _drain_socket(
    project: Site, hands: int, number: int, known: str, *, as_agents: bool
) -> tuple[float, str]:
    process = project.owner()
    workers = [Hand(project.project.socket) for _ in range(hands)]
    owner_before_s, watch = cpu_s(process.pid), Stopwatch()
    done = sum(together([lambda worker=worker: worker.drain(as_agents=as_agents) for worker in workers]))  # type: ignore[misc]
    wall_s, clients_s, owner_s = watch.s, watch.cpu_s, cpu_s(process.pid) - owner_before_s
    assert done == number, f"{done} of {number} were drained"
    per_task_us = owner_s / number * 1e6
    bound = (
        f"owner's CPU {per_task_us:.0f} us per task = {owner_s / wall_s:.0%} of a core, the rest of the time "
        f"waits for syncs and hand-overs between threads ({known}); clients {clients_s / wall_s:.0%} of a core"
    )
    return number / wall_s, bound
