"""Memory, CPU while idle, what a command and the start of a crew cost, and how fast ten workers end."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from inside import AGENT
from outside import Hand, Site, cpu_s, peak_mb, share_mb, site, together, until, wakeups
from setting import Setting, Stopwatch
from table import Row, most, told

from muster.plans.markdown import parse

OWNER_MB, WORKER_MB = 50.0, 40.0
IDLE_PERCENT, WAKEUPS_PER_S = 0.5, 20.0
CLI_MS, DOWN_S = 60.0, 3.0
PLAN_TASKS, PLAN_CPU_S = 10_000, 0.3


def rows(setting: Setting) -> Iterator[Row]:
    yield _owner_memory(setting)
    yield from _idle(setting)
    yield from _running(setting)
    yield from _cli(setting)
    yield from _starts(setting)
    yield _plan(setting)
    yield _down(setting)


def _owner_memory(setting: Setting) -> Row:
    number = setting.size(5000, 500)
    with setting.place() as folder, site(folder / "p") as project:
        _compile(project)
        owner = project.owner()
        fresh_mb = peak_mb(owner.pid)
        project.add("p", [{"title": f"task {i}", "key": f"t{i}", "agent": AGENT} for i in range(number)])
        added_mb = peak_mb(owner.pid)
        hands = [Hand(project.project.socket) for _ in range(8)]
        assert sum(together([hand.drain for hand in hands])) == number
        bound = f"{fresh_mb:.1f} MB when started, {added_mb:.1f} after one request with all {number:,} tasks"
        return most(f"owner's memory, {number:,} tasks drained", [peak_mb(owner.pid)], "MB", OWNER_MB, bound)


def _compile(project: Site) -> None:
    """The first start compiles all modules, which an installation has done: it is left out."""
    owner, worker = project.owner(), project.worker()
    for process in (worker, owner):
        process.terminate()
        process.wait()


def _idle(setting: Setting) -> Iterator[Row]:
    watch_s = setting.size(20.0, 2.0)
    with setting.place() as folder, site(folder / "p") as project:
        _compile(project)
        supervisor = project.up(1).pid
        (worker,), owner = (found["pid"] for found in project.workers()), project.owner_pid()
        time.sleep(1)  # the start of these processes is no part of what they cost then
        before = {pid: (cpu_s(pid), wakeups(pid)) for pid in (supervisor, owner, worker)}
        time.sleep(watch_s)  # the time that is measured
        after = {pid: (cpu_s(pid), wakeups(pid)) for pid in before}
        used = {pid: tuple(a - b for a, b in zip(after[pid], before[pid], strict=True)) for pid in after}
        percent = {pid: cpu / watch_s * 100 for pid, (cpu, _) in used.items()}
        rate = {pid: woken / watch_s for pid, (_, woken) in used.items()}
        bound = (
            f"{share_mb(worker):.1f} MB where a page counts by how many processes have it: they are forked"
        )
        yield most("worker's memory without an agent", [peak_mb(worker)], "MB", WORKER_MB, bound)
        yield most("idle worker, of a core", [percent[worker]], "%", IDLE_PERCENT, f"over {watch_s:g} s")
        yield most("idle worker, wake-ups", [rate[worker]], "/s", WAKEUPS_PER_S)
        sweeps = f"{rate[owner]:.0f} wake-ups a second; sweeps every 0.5 s look at each worker's process"
        yield told("idle owner with one worker, of a core", [percent[owner]], "%", sweeps)
        looks = f"{rate[supervisor]:.0f} wake-ups a second; it asks the owner once a second"
        yield told("idle supervisor (`muster up`), of a core", [percent[supervisor]], "%", looks)


def _running(setting: Setting) -> Iterator[Row]:
    """What the worker spends on agents that print a line five times a second."""
    watch_s, agents = setting.size(20.0, 2.0), 4
    with setting.place() as folder, site(folder / "p", f"[workers]\nslots = {agents}\n") as project:
        _compile(project)
        project.owner()
        worker = project.worker()
        time.sleep(1)  # the start of these processes is no part of what they cost then
        idle_mb = peak_mb(worker.pid)
        chatter = "while :; do echo working; sleep 0.2; done"
        tasks = [
            {"title": f"t{i}", "key": f"t{i}", "agent": "shell", "description": chatter}
            for i in range(agents)
        ]
        project.add("p", tasks)
        until(lambda: all(task["status"] == "RUNNING" for task in project.tasks()), 20, "all agents run")
        time.sleep(1)  # the start of these processes is no part of what they cost then
        before_s = cpu_s(worker.pid)
        time.sleep(watch_s)  # the time that is measured
        percent = (cpu_s(worker.pid) - before_s) / watch_s * 100 / agents
        more_mb = (peak_mb(worker.pid) - idle_mb) / agents
    of = f"of {agents} at once over {watch_s:g} s, each printing 5 lines a second"
    yield told("a running agent, of its worker's core", [percent], "%", of)
    yield told("a running agent, of its worker's memory", [more_mb], "MB")


def _cli(setting: Setting) -> Iterator[Row]:
    with setting.place() as folder, site(folder / "p") as project:
        project.owner()
        project.add("p", [{"title": f"task {i}", "key": f"t{i}", "agent": AGENT} for i in range(20)])
        empty = min(_python_cpu_ms(project) for _ in range(5))
        bound = f"of it {empty:.0f} ms Python's own start; the first run, which compiles, is left out"
        for argv in (["--help"], ["status"], ["status", "--json"], ["task", "list"]):
            costs = [_cli_cpu_ms(project, *argv) for _ in range(setting.size(11, 4))][1:]
            yield most(f"`muster {' '.join(argv)}`, CPU with start", costs, "ms", CLI_MS, bound)


def _starts(setting: Setting) -> Iterator[Row]:
    """What the processes of a crew spend on what they import, before they do anything."""
    with setting.place() as folder, site(folder / "p") as project:
        for process, module in {
            "owner": "app.owner",
            "worker": "app.worker",
            "`muster run`": "cli.run",
        }.items():
            imports = [sys.executable, "-P", "-c", f"import muster.{module}"]
            costs = [_cpu_ms(project, imports) for _ in range(setting.size(11, 4))][1:]
            yield told(f"imports of {process}, CPU with Python's own start", costs, "ms")


def _plan(setting: Setting) -> Row:
    """What a plan costs each time it is read: at `run`, and when its boxes are ticked."""
    number = setting.size(PLAN_TASKS, PLAN_TASKS // 10)
    text = "# Big\n" + "".join(
        f"## Epic {at // 100}\n" * (at % 100 == 0)
        + f"- [ ] Task {at} {{#t{at} after=t{max(0, at - 1)} agent=claude}}\n  Some text for it.\n"
        for at in range(1, number)
    )
    costs_s = []
    for _ in range(setting.size(5, 1)):
        watch = Stopwatch()
        parse(text + "- [ ] Root {#t0}\n", "plan.md")
        costs_s.append(watch.cpu_s)
    bound = "each with an id, a line of text, after= and agent="
    return most(f"a plan of {number:,} tasks read, CPU", costs_s, "s", PLAN_CPU_S, bound)


def _cli_cpu_ms(project: Site, *argv: str) -> float:
    return _cpu_ms(project, [str(Path(sys.executable).with_name("muster")), *argv])


def _python_cpu_ms(project: Site) -> float:
    return _cpu_ms(project, [sys.executable, "-c", "pass"])


def _cpu_ms(project: Site, argv: list[str]) -> float:
    process = subprocess.Popen(argv, cwd=project.root, env=project.env, stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0
    return (used.ru_utime + used.ru_stime) * 1000


def _down(setting: Setting) -> Row:
    workers = setting.size(10, 2)
    times_s, drained_s = [], []
    for _ in range(setting.size(3, 1)):
        with setting.place() as folder, site(folder / "p") as project:
            crew = project.up(workers)
            pids = [worker["pid"] for worker in project.workers()]
            started_s = time.monotonic()
            down = project.muster("down")
            until(lambda pids=pids: not any(map(_runs, pids)), 20, "all workers have ended")  # type: ignore[misc]
            drained_s.append(time.monotonic() - started_s)
            assert down.wait(20) == 0
            assert crew.wait(20) == 0
            times_s.append(time.monotonic() - started_s)
    bound = f"the workers are gone after {min(drained_s):.2f} s; the rest is owner, supervisor and command"
    return most(f"`muster down`, {workers} idle workers", times_s, "s", DOWN_S, bound)


def _runs(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as file:  # noqa: PTH123 - read often
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
