"""A program that is killed in the middle of a task: what was done stays done."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import muster
from muster.client.http import answers
from muster.config.project import Project
from muster.model.states import ErrorKind
from patience import PATIENCE_S, until

PROGRAM = """
import os, sys, time
from pathlib import Path
import muster
from muster.sdk import function_worker

folder, mode = Path(sys.argv[1]), sys.argv[2]
app = muster.App("reports", project=folder)

def note(what):
    with (folder / "ledger").open("a") as file:
        file.write(f"{what} {os.getpid()}\\n")
    return what

def last(what):
    note(what)
    while mode == "hang":
        time.sleep(0.01)
    return what

@app.task(retries=0)
def build(ctx: muster.TaskContext, name: str) -> list[str]:
    return [ctx.step("one", note, "one"), ctx.step("two", note, "two"), ctx.step("three", last, name)]

@app.task(retries=0)
def fatal(ctx: muster.TaskContext, n: int, at: int = 2) -> int:
    note(n)
    if n == at:
        os._exit(9)
    return n

if __name__ == "__main__":
    if mode == "quick":
        function_worker.GATHER_S = 10.0  # they are quick on any machine
    app.run_worker(batch=int(sys.argv[3]))
"""


def start(folder: Path, mode: str, batch: int = 1) -> subprocess.Popen[bytes]:
    program = folder / "program.py"
    program.write_text(PROGRAM)
    return subprocess.Popen([sys.executable, str(program), str(folder), mode, str(batch)])


def ledger(folder: Path) -> list[str]:
    path = folder / "ledger"
    return [line.split()[0] for line in path.read_text().splitlines()] if path.exists() else []


def task_of(app: muster.App, name: str, **options: object) -> muster.AppTask[..., object]:
    """Known by its name and signature only, as in a program that adds tasks for others."""
    made: dict[str, muster.AppTask[..., object]] = {}
    if name == "build":

        @app.task(name="build", **options)
        def build(ctx: muster.TaskContext, name: str) -> list[str]:
            raise AssertionError

        made[name] = build
    else:

        @app.task(name="fatal", **options)
        def fatal(n: int, at: int = 2) -> int:
            raise AssertionError

        made[name] = fatal
    return made[name]


@pytest.mark.promise("S16")
@pytest.mark.parametrize("batch", [1, 5])
def test_steps_that_are_done_are_not_run_again_after_kill_9(tmp_path: Path, batch: int):
    handle = task_of(muster.App("reports", project=tmp_path), "build").enqueue("three")
    processes = [start(tmp_path, "hang", batch)]
    try:
        until(lambda: "three" in ledger(tmp_path), "the last step has begun")
        processes[0].kill()
        processes[0].wait()
        processes.append(start(tmp_path, "end", batch))
        assert handle.result(PATIENCE_S) == ["one", "two", "three"]
    finally:
        for process in processes:
            process.terminate()
            process.wait(PATIENCE_S)
    assert ledger(tmp_path) == ["one", "two", "three", "three"]
    attempts = handle.detail().attempts
    assert [attempt.error_kind for attempt in attempts] == [ErrorKind.LOST, None]
    assert handle.task().retries == 0, "a kill from outside spends none of its tries"


@pytest.mark.parametrize(("number", "at"), [(5, 2), (40, 27)])
def test_a_task_that_ends_its_process_fails_alone(tmp_path: Path, number: int, at: int):
    """Its neighbours in a batch are run; only they are not lost with it again and again."""
    (tmp_path / "muster.toml").write_text('[task]\nlosses = 3\n[task.backoff]\nfirst = "10ms"\n')
    app = muster.App("reports", project=tmp_path)
    fatal = task_of(app, "fatal", retries=0)
    handles = app.enqueue([fatal.call(n, at) for n in range(number)])
    others = [handle for handle in handles if handle is not handles[at]]
    process = start(tmp_path, "quick", 5)
    try:

        def settled() -> bool:
            nonlocal process
            if process.poll() is not None:
                process = start(tmp_path, "quick", 5)
            return failed(handles[at]) and all(handle.task().status == "COMPLETED" for handle in others)

        until(settled, "all have ended")
    finally:
        process.terminate()
        process.wait(PATIENCE_S)
    assert handles[at].task().losses == 3
    assert all(handle.task().losses <= 1 for handle in others)
    if number > 5:
        assert any(map(started_with_claim, others)), "a batch of quick ones"


def started_with_claim(handle: muster.Handle[object]) -> bool:
    """In one commit: nothing was noted in between."""
    numbers = {event.event: event.id for event in handle.events()}
    return numbers["started"] == numbers["claimed"] + 1


def failed(handle: muster.Handle[object]) -> bool:
    return handle.task().status == "FAILED"


def test_sigterm_ends_a_worker_in_good_order(tmp_path: Path):
    handle = task_of(muster.App("reports", project=tmp_path), "build").enqueue("three")
    process = start(tmp_path, "end")
    try:
        handle.result(PATIENCE_S)
    finally:
        os.kill(process.pid, signal.SIGTERM)
        assert process.wait(PATIENCE_S) == 0


def test_another_worker_takes_the_place_of_an_owner_that_is_killed(tmp_path: Path):
    """Two programs with one app: the first is the owner, the second has come by its socket."""
    handle = task_of(muster.App("reports", project=tmp_path), "build").enqueue("three")
    first = start(tmp_path, "hang")
    processes = [first]
    try:
        until(lambda: "three" in ledger(tmp_path), "the last step has begun")
        processes.append(start(tmp_path, "end"))
        client = muster.Client(tmp_path)
        until(lambda: len(client.status().workers) == 2, "the second has come")
        first.kill()
        first.wait()
        assert handle.result(PATIENCE_S) == ["one", "two", "three"]
        assert processes[1].poll() is None
        until(lambda: answers(Project(tmp_path).socket), "the second is the owner now")
    finally:
        for process in processes:
            process.terminate()
            process.wait(PATIENCE_S)
    assert ledger(tmp_path) == ["one", "two", "three", "three"]
