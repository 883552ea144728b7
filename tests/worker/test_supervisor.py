"""Who is started, started again, adopted, and sent home."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from muster.hosts.fork_server import ForkedProcess
from muster.hosts.local_host import LocalHost
from muster.model.errors import MusterError
from muster.worker import supervisor as module
from muster.worker.supervisor import Supervisor
from patience import PATIENCE_S

SLEEP = ["sleep", "300"]
DIES = ["sh", "-c", "kill -9 $$"]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Callable[..., Supervisor]]:
    made: list[Supervisor] = []

    def supervisor(workers: int = 2, argv: list[str] | None = None) -> Supervisor:
        made.append(
            Supervisor(
                LocalHost(),
                tmp_path / "log",
                tmp_path / "crew",
                owner_argv=SLEEP,
                worker_argv=argv or SLEEP,
                workers=workers,
                say=lambda _: None,
            )
        )
        return made[-1]

    yield supervisor
    for one in made:
        for child in (one.owner, *one.workers):
            if child.process is not None:
                child.process.kill()
                child.process.wait()
        for child in one._given_up:
            if child.process is not None:
                child.process.kill()
                child.process.wait()


def _pids(one: Supervisor) -> list[int | None]:
    return [child.pid for child in (one.owner, *one.workers)]


def _ended(process: subprocess.Popen[bytes] | None) -> int:
    assert process is not None
    return process.wait(PATIENCE_S)


def test_another_supervisor_adopts_all_of_a_dead_ones_processes(make: Callable[..., Supervisor]) -> None:
    """Whether or not the owner answers, and whether or not the workers have registered."""
    first, second = make(), make()
    first.tick()
    assert second.adopt() == [
        f"{name} {pid}" for name, pid in zip(["owner", "worker", "worker"], _pids(first), strict=True)
    ]
    assert _pids(second) == _pids(first)
    second.tick()
    assert _pids(second) == _pids(first), "nobody is started beside them"


def test_only_the_living_are_adopted_and_the_rest_is_started(make: Callable[..., Supervisor]) -> None:
    first, second = make(), make()
    first.tick()
    assert first.workers[0].process is not None
    first.workers[0].process.kill()
    _ended(first.workers[0].process)
    assert len(second.adopt()) == 2
    second.tick()
    living = set(_pids(second))
    assert None not in living and len(living) == 3
    assert len(living & set(_pids(first))) == 2


def test_workers_that_are_too_many_are_asked_to_end(make: Callable[..., Supervisor]) -> None:
    first, second = make(3), make(1)
    first.tick()
    second.adopt()
    assert set(_pids(second)) == set(_pids(first)), "until they have ended"
    assert [_ended(child.process) for child in first.workers[1:]] == [-signal.SIGTERM] * 2


@pytest.mark.parametrize("changed", ["boot", "project", "start", "half a line"])
def test_what_another_boot_project_or_process_left_is_not_ours(
    make: Callable[..., Supervisor], tmp_path: Path, changed: str
) -> None:
    first, second = make(), make()
    first.tick()
    told = json.loads((tmp_path / "crew").read_text())
    if changed == "start":
        told["processes"] = [(name, pid, start - 1) for name, pid, start in told["processes"]]
    else:
        told[changed] = "another"
    text = json.dumps(told)
    (tmp_path / "crew").write_text(text[:50] if changed == "half a line" else text)
    assert second.adopt() == []
    assert all(child.process and child.process.poll() is None for child in (first.owner, *first.workers))


def test_a_worker_that_could_not_register_yet_is_not_silent(
    make: Callable[..., Supervisor], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The owner was away: a worker that it has never known gets the time to come back to it."""
    one = make(1)
    one.tick()
    pid = one.workers[0].pid
    one.replace_silent([], lease_s=0.0)
    assert one.workers[0].pid == pid
    one.replace_silent([pid] if pid else [], lease_s=0.0)
    one.replace_silent([], lease_s=0.0)
    assert one.workers[0].pid == pid, "it may just have said goodbye"
    one.replace_silent([], lease_s=0.0)
    assert one.workers[0].pid is None, "it was known and is silent now"
    one.tick()
    monkeypatch.setattr(module, "REGISTER_S", 0.0)
    one.replace_silent([], lease_s=0.0)
    assert one.workers[0].pid is None, "it has had its time"


def test_a_replaced_worker_that_comes_back_is_sent_home(make: Callable[..., Supervisor]) -> None:
    one = make(1)
    one.tick()
    late = one.workers[0].process
    assert late is not None
    one.replace_silent([late.pid], lease_s=0.0)
    one.replace_silent([], lease_s=0.0)
    one.replace_silent([], lease_s=0.0)
    one.tick()
    assert one.workers[0].pid not in (None, late.pid)
    one.replace_silent([late.pid, one.workers[0].pid or 0], lease_s=0.0)
    assert _ended(late) == -signal.SIGTERM


def test_one_that_was_adopted_and_then_replaced_ends_with_the_crew(make: Callable[..., Supervisor]) -> None:
    first, second = make(1), make(1)
    first.tick()
    silent = first.workers[0].process
    assert silent is not None
    second.adopt()
    for living in ([silent.pid], [], []):
        second.replace_silent(living, lease_s=0.0)
    second.tick()
    assert silent.pid in second.own_pids
    second.kill_workers()
    assert _ended(silent) == -signal.SIGKILL


def test_one_that_was_replaced_is_sent_home_by_the_next_supervisor(make: Callable[..., Supervisor]) -> None:
    first, second = make(1), make(1)
    first.tick()
    silent = first.workers[0].process
    assert silent is not None
    for living in ([silent.pid], [], []):
        first.replace_silent(living, lease_s=0.0)
    first.tick()
    assert second.adopt() == [
        f"owner {first.owner.pid}",
        f"worker {first.workers[0].pid}",
        f"worker {silent.pid}",
    ]
    assert second.workers[0].pid == first.workers[0].pid, "who took its place stays"
    assert _ended(silent) == -signal.SIGTERM


def test_one_whose_exit_status_is_lost_starts_again(make: Callable[..., Supervisor]) -> None:
    class Collected:
        """Forks processes that have ended, and whose statuses were collected elsewhere."""

        pid = 1

        def fork(self, name: str) -> ForkedProcess | None:
            with subprocess.Popen(["false"]) as process:
                return ForkedProcess(process.pid)

    said: list[str] = []
    one = make(1)
    one._say, one._forks = said.append, Collected()
    one.tick()
    [owner, worker] = one.tick()
    assert owner.code is None and worker.code is None
    assert said[1] == f"worker (pid {worker.pid}) is gone; starts again in 0.1 s"
    assert one.workers[0].failures == 0, "nobody knows that it has failed"


def test_one_that_is_let_in_no_more_is_not_started_again(make: Callable[..., Supervisor]) -> None:
    said: list[str] = []
    one = make(1, ["sh", "-c", f"exit {module.NOT_LET_IN}"])
    one._say = said.append
    one.tick()
    one.workers[0].registered = True
    _ended(one.workers[0].process)
    one.tick()
    assert one.drained() and len(said) == 1 and said[0].endswith("; it is not started again")
    with pytest.raises(MusterError, match="no worker can start"):
        one.refuse_hopeless()


def _backoffs(one: Supervisor, lives_s: list[float]) -> list[str]:
    """What a worker that lives as long as given, again and again, has to wait."""
    said: list[str] = []
    one._say = said.append
    child = one.workers[0]
    one.tick()
    for life_s in lives_s:
        _ended(child.process)
        child.started_s = time.monotonic() - life_s
        one.tick()
        child.due_s = 0.0
        one.tick()
    return [line.split("starts again in ")[1] for line in said]


@pytest.fixture
def steady(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody works for an hour because the machine is busy."""
    monkeypatch.setattr(module, "STEADY_S", 3600.0)


def test_what_dies_at_once_is_started_ever_more_rarely(make: Callable[..., Supervisor], steady: None) -> None:
    one = make(1, DIES)
    assert _backoffs(one, [0.1] * 5) == ["0.1 s", "0.2 s", "0.4 s", "0.8 s", "1.6 s"]


def test_what_worked_for_a_while_is_back_soon(make: Callable[..., Supervisor], steady: None) -> None:
    one = make(1, DIES)
    waits = ["0.1 s", "0.2 s", "0.4 s", "0.8 s", "0.1 s", "0.1 s"]
    assert _backoffs(one, [0.1, 0.1, 0.1, 1000.0, 4000.0, 4000.0]) == waits
