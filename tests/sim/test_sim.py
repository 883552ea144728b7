"""The simulator: it holds the engine to its promises, replays exactly, and finds what is put in to be found."""

from __future__ import annotations

import asyncio
import logging
import os
import re
import shlex
import subprocess
import sys
from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from simulator.__main__ import found, main
from simulator.hosts import Process
from simulator.leases import Leases
from simulator.loop import VirtualLoop
from simulator.owner import PumpedBatcher
from simulator.planted_bugs import PLANTED_BUGS
from simulator.reference import Reference
from simulator.scenario import FAULTS, harsh, scenario
from simulator.silence import BrakeWatch
from simulator.simulation import Report, simulate
from simulator.world import World

import shared_store
from muster.model.task import Task
from searches import new_seed

ROOT = Path(__file__).parents[2]
SEEDS = 20
REPLAYED = 1046
JUMPY = 51
"""A harsh one in which the clock is set six times, forth and back, around a restart of the machine."""

MUST_HAPPEN = {
    *(f"fault: {fault}" for fault in FAULTS),
    "a message was lost",
    "a silent attempt was reaped",
    "a dead worker's attempt was reaped",
    "a stale word was refused",
    "an attempt resumed from a checkpoint",
    "an end has claimed what is next",
    "readopted",
    "a later attempt published the work",
    "lost",
    "retried",
    "unblocked",
    "process_gone",
    "depends",
}
"""Without these a run without findings would prove nothing."""


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def tell(report: Report) -> str:
    return f"seed {report.seed}: {report.broken}\n" + "\n".join(report.story)


def test_promises_hold_in_some_seeds_and_a_random_one() -> None:
    seen: Counter[str] = Counter()
    for seed in [*range(SEEDS), new_seed()]:
        report = simulate(seed)
        assert report.broken is None, tell(report)
        assert report.commits > 20 and report.tasks > 0
        seen.update(report.seen)
    for seed in (*range(3), JUMPY):
        report = simulate(seed, chosen=harsh(seed))
        assert report.broken is None, tell(report)
        seen.update(report.seen)
    assert seen.keys() >= MUST_HAPPEN, MUST_HAPPEN - seen.keys()


def test_promises_hold_on_a_store_that_other_servers_write_too() -> None:
    """Nothing is remembered between its transactions, and whoever decides on what it does not hold is a bug."""
    for seed in range(4):
        report = simulate(seed, store="shared")
        assert report.broken is None, tell(report)
        assert report.commits > 20


def test_what_nobody_holds_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the simulator itself."""

    async def tasks(tx: Any, ids: Collection[int]) -> list[Task]:
        return await tx._tx.tasks(ids)  # type: ignore[no-any-return]

    monkeypatch.setattr(shared_store._HeldTx, "tasks", tasks)
    report = simulate(1, store="shared")
    assert report.broken is not None and "nobody holds them" in str(report.broken)


def test_a_run_in_which_nothing_happens_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the simulator itself: nothing was broken, because nothing was done."""
    monkeypatch.setattr(PumpedBatcher, "_pump", lambda self: asyncio.sleep(0))
    report = simulate(0)
    assert report.broken is not None and report.broken.promise == "simulator"
    assert report.commits == 0


@pytest.mark.parametrize("idle", ["tasks", "workers"])
def test_nor_does_one_pass_in_which_nobody_asks_or_nobody_works(idle: str) -> None:
    report = simulate(0, chosen=replace(scenario(0), faults=(), **{idle: 0}))
    assert report.broken is not None and report.broken.promise in {"simulator", "L4"}


def test_seeds_differ_and_each_is_one_scenario() -> None:
    assert scenario(7) == scenario(7)
    assert len({str(scenario(seed)) for seed in range(20)}) == 20


def test_a_full_disk_before_a_restart_of_the_machine_is_no_excuse_after_it() -> None:
    """Of the simulator itself: each boot has a clock of its own, and both may show the same time."""
    world = World(scenario(0), VirtualLoop(), keep_trace=False)
    leases, (host, *_) = Leases(world, Reference()), world.hosts
    for _ in range(2):
        host.reboot()
        leases.owner_leads(Process(host, "owner"), host.now())
        assert leases.refused_ms == (0, 0)
        leases.store_refused(host.now())
    world.loop.close()


def test_a_reaper_may_have_looked_right_after_the_watch_did() -> None:
    """Of the simulator itself: its brake ends before the one that is reckoned from the watch's next look."""
    watch = BrakeWatch(lease_ms=6_000)
    watch.look(24, 18, 10_000, over=False)
    watch.look(24, 18, 10_250, over=True)
    assert watch.is_on(15_999) and not watch.is_on(16_000)


def test_a_seed_replays_exactly_here_and_in_another_process() -> None:
    first = simulate(REPLAYED)
    simulate(3)
    again = simulate(REPLAYED)
    assert first.digest == again.digest
    assert first.digest != simulate(REPLAYED + 1).digest
    for hash_seed in ("1", "2"):
        done = subprocess.run(
            [sys.executable, "-m", "simulator", "--seed", str(REPLAYED)],
            cwd=Path(__file__).parent,
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stdout.splitlines()[-1] == f"trace {first.digest}"


def test_a_broken_promise_is_told_with_its_story_and_the_command_that_replays_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    command = ["--plant", "skip-without-unblocking", "--seeds", "1"]
    assert main(command) == 1
    told = capsys.readouterr().out
    assert re.search(r"^seed 0: S8: task \d+ counts", told)
    assert "enqueued" in told, "the history of the task is missing"
    (again,) = re.findall(r"again: \./run sim (.*)", told)
    assert main(shlex.split(again)) == 1
    replayed = capsys.readouterr().out
    assert "commit 1 NewBoot" in replayed
    assert told.splitlines()[0] in replayed.splitlines()


def test_without_its_bug_the_product_is_whole_again() -> None:
    """What was planted is pulled out, also where the simulation was cut short by what it found."""
    before = simulate(2).digest
    for plant in PLANTED_BUGS.values():
        with plant.planted():
            pass
    assert simulate(2).digest == before


@pytest.mark.parametrize(
    "arguments", [["--seeds", "0"], ["--trace"], ["--plant", "no-such-bug"], ["--seed", "one"], ["extra"]]
)
def test_wrong_arguments_are_refused(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(arguments)
    assert end.value.code == 2
    assert "usage: ./run sim" in capsys.readouterr().err


def test_the_checkout_s_command_names_it() -> None:
    done = subprocess.run([ROOT / "run", "nonsense"], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "| sim" in done.stderr


def shown() -> list[str]:
    return re.findall(r"`\./run sim ([^`]*)`", (ROOT / "docs" / "reliability.md").read_text("utf-8"))


@pytest.mark.parametrize("name", sorted(PLANTED_BUGS))
def test_a_planted_bug_is_found(name: str) -> None:
    assert found(PLANTED_BUGS[name]) is not None, PLANTED_BUGS[name].says


@pytest.mark.parametrize("arguments", shown())
def test_commands_of_the_documentation_work(
    arguments: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With two bugs and two seeds: each of them is looked at above."""
    for name in sorted(PLANTED_BUGS)[2:] if arguments == "--plants" else ():
        monkeypatch.delitem(PLANTED_BUGS, name)
    arguments = re.sub(r"--seeds \d+", "--seeds 2", arguments)
    failing = "--plant " in arguments
    assert main(shlex.split(arguments)) == int(failing), capsys.readouterr().out


def test_the_documentation_shows_how_to_run_it() -> None:
    assert "--plants" in shown()
