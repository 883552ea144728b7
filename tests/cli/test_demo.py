"""`muster demo`: the real thing once, and each of its checks on evidence that was tampered with."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec
import psutil
import pytest

from factories import plain_attempt, plain_task
from muster.cli.demo import proof
from muster.cli.demo.agent import pieces_of
from muster.cli.demo.proof import Fault, LateWrite, Line
from muster.hosts.local_host import LocalHost
from muster.model.events import Event, Level
from muster.model.states import AttemptStatus
from muster.model.states import TaskStatus as S
from muster.model.task import Attempt
from muster.testing.promises import History
from patience import PATIENCE_S

MUSTER = [sys.executable, "-m", "muster.cli.main"]
A, B = 1, 2
W1, W2 = "worker-aaaaaaaa", "worker-bbbbbbbb"


def marked(folder: Path) -> list[Any]:
    """Processes of agents that run in this folder."""
    mark = f"MUSTER_ROOT={folder}"
    return LocalHost().marked([mark])[mark]


def naming(folder: Path) -> list[str]:
    """Processes (owner, workers) that were started with this folder as an argument."""
    table = subprocess.run(["ps", "-ww", "-eo", "args"], capture_output=True, text=True, check=True).stdout
    return [line for line in table.splitlines() if "muster.app." in line and str(folder) in line]


def environment(tmp_path: Path) -> dict[str, str]:
    """Its temporary folder is ours, nobody is at home, and there are settings that would end it at once."""
    (tmp_path / "home").mkdir()
    (tmp_path / "tmp").mkdir()
    (tmp_path / "config" / "muster").mkdir(parents=True)
    (tmp_path / "config" / "muster" / "muster.toml").write_text("[broken", "utf-8")
    return {
        "PATH": os.environ["PATH"],
        "HOME": str(tmp_path / "home"),
        "TMPDIR": str(tmp_path / "tmp"),
        "GIT_DIR": "/nowhere",
        "XDG_CONFIG_HOME": str(tmp_path / "config"),
        "MUSTER_TASK_RETRIES": "many",
    }


needs_git = pytest.mark.skipif(shutil.which("git") is None, reason="the demo needs git")


@needs_git
def test_the_whole_demo(tmp_path: Path) -> None:
    done = subprocess.run(
        [*MUSTER, "demo", "--json"],
        env=environment(tmp_path),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    *events, last = [json.loads(line) for line in done.stdout.splitlines()]
    demo = last["demo"]
    assert demo["ok"] and demo["folder"] is None
    assert {check["promise"] for check in demo["checks"]} >= {"S1", "S3", "S4", "S7", "S8"}
    assert [check for check in demo["checks"] if not check["ok"]] == []
    killed, stopped = demo["recoveries"]
    assert (killed["signal"], stopped["signal"]) == ("SIGKILL", "SIGSTOP")
    assert killed["kept"] >= 1 and stopped["kept"] >= 1
    assert 0 < killed["noticedMs"] <= killed["restartedMs"] < killed["doneMs"]
    assert stopped["noticedMs"] > 5_000 and stopped["afterSignal"] > 0
    assert len(demo["lateWrites"]) == 4 and all(write["refused"] for write in demo["lateWrites"])
    completed = {event["taskId"] for event in events if event.get("event") == "completed"}
    assert len(completed) == 8
    assert sum(event.get("event") == "checkpoint" for event in events) >= 55
    assert "words per sentence" in demo["output"] and demo["commits"] >= 9
    assert list((tmp_path / "tmp").iterdir()) == []
    assert naming(tmp_path) == []
    assert list((tmp_path / "home").iterdir()) == []


def at_work(tmp_path: Path) -> tuple[subprocess.Popen[str], Path]:
    """A demo whose agents are at work, and its folder."""
    demo = subprocess.Popen(
        [*MUSTER, "demo"],
        env=environment(tmp_path),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert demo.stdout is not None
    folder = None
    for line in demo.stdout:
        if line.startswith("Folder"):
            folder = Path(line.split()[1].rstrip(","))
        if "tally/words  running" in line:
            break
    assert folder is not None and folder.is_dir()
    return demo, folder


@needs_git
def test_ctrl_c_leaves_nothing(tmp_path: Path) -> None:
    demo, folder = at_work(tmp_path)
    demo.send_signal(signal.SIGINT)
    said = demo.communicate(timeout=PATIENCE_S)[0]
    assert demo.returncode == -signal.SIGINT, said
    assert "Interrupted" in said
    assert not folder.exists()
    assert marked(folder) == [] and naming(folder) == []


@needs_git
def test_a_run_that_is_killed_leaves_nothing(tmp_path: Path) -> None:
    demo, folder = at_work(tmp_path)
    (run,) = [child for child in psutil.Process(demo.pid).children() if "run" in child.cmdline()]
    run.kill()
    said = demo.communicate(timeout=PATIENCE_S)[0]
    assert demo.returncode == 1 and "which did not happen" in said
    assert not folder.exists()
    assert marked(folder) == [] and naming(folder) == []


def test_without_git(tmp_path: Path) -> None:
    done = subprocess.run(
        [*MUSTER, "demo"],
        env={"PATH": str(tmp_path), "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_S,
    )
    assert done.returncode == 1
    assert "no git on PATH" in done.stderr and "install git" in done.stderr


@needs_git
def test_a_folder_with_something_in_it_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("precious", "utf-8")
    done = subprocess.run(
        [*MUSTER, "demo", "--dir", str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_S,
    )
    assert done.returncode == 2 and "not empty" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


@dataclass(frozen=True)
class Evidence:
    """What the demo looks at in the end."""

    history: History
    ledger: tuple[Line, ...]
    late: tuple[LateWrite, ...]
    exit_code: int = 0

    def recovery(self) -> proof.Recovery:
        return proof.recovery(self.history, self.ledger, Fault("SIGKILL", W1, 7, A, "a", 1, 25))


class Tape:
    """Events of several tasks, numbered as a store would."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self._last: dict[int, Event] = {}

    def add(
        self, task: int, name: str, status: S, *, at: int, epoch: int = 0, actor: str = "coordinator"
    ) -> None:
        last = self._last.get(task)
        event = Event(
            task, last.seq + 1 if last else 1, at, Level.INFO, name, "", "{}",
            last.new_status if last else None, status, 1, epoch, actor,
        )  # fmt: skip
        self._last[task] = event
        self.events.append(event)


def _run(task: int, epoch: int, status: AttemptStatus, worker: str, began: int, ended: int | None) -> Attempt:
    return plain_attempt(
        task_id=task, epoch=epoch, status=status, worker_id=worker, assigned_at_ms=began, ended_at_ms=ended
    )


@pytest.fixture
def sound() -> Evidence:
    """Task b depends on a; a's first worker was killed after one of two pieces."""
    tape = Tape()
    tape.add(A, "enqueued", S.PENDING, at=0)
    tape.add(B, "enqueued", S.PENDING, at=0)
    tape.add(A, "claimed", S.ASSIGNED, at=10, epoch=1, actor=W1)
    tape.add(A, "started", S.RUNNING, at=11, epoch=1, actor=W1)
    tape.add(A, "checkpoint", S.RUNNING, at=20, epoch=1, actor=W1)
    tape.add(A, "lost", S.ABORTED, at=30, epoch=1, actor=W1)
    tape.add(A, "promoted", S.PENDING, at=30, epoch=1)
    tape.add(A, "claimed", S.ASSIGNED, at=31, epoch=2, actor=W2)
    tape.add(A, "started", S.RUNNING, at=32, epoch=2, actor=W2)
    tape.add(A, "completed", S.COMPLETED, at=40, epoch=2, actor=W2)
    tape.add(B, "unblocked", S.PENDING, at=40)
    tape.add(B, "claimed", S.ASSIGNED, at=41, epoch=1, actor=W2)
    tape.add(B, "started", S.RUNNING, at=42, epoch=1, actor=W2)
    tape.add(B, "completed", S.COMPLETED, at=50, epoch=1, actor=W2)
    ledger = (
        Line(A, "a", 1, 1, 2, 100, 19),
        Line(A, "a", 2, 2, 2, 101, 35),
        Line(B, "b", 1, 1, 1, 102, 45),
    )
    history = History(
        tasks=(
            plain_task(id=A, status=S.COMPLETED, epoch=2, event_seq=9),
            plain_task(id=B, status=S.COMPLETED, epoch=1, event_seq=5),
        ),
        attempts=(
            _run(A, 1, AttemptStatus.LOST, W1, 10, 30),
            _run(A, 2, AttemptStatus.COMPLETED, W2, 31, 40),
            _run(B, 1, AttemptStatus.COMPLETED, W2, 41, 50),
        ),
        events=tape.events,
        dependencies=((A, B),),
        deeds=[line.deed() for line in ledger],
    )
    return Evidence(history, ledger, late=(LateWrite("a#1", "checkpoint", True, "refused"),))


def broken(evidence: Evidence, **changes: Any) -> set[str]:
    """The promises that do not hold, with these parts of the history changed."""
    changed = replace(evidence, history=replace(evidence.history, **changes))
    found = proof.findings(changed.history, [changed.recovery()], changed.late, changed.exit_code)
    return {finding.promise for finding in found if not finding.holds}


def test_sound_evidence_passes(sound: Evidence) -> None:
    assert broken(sound) == set()
    found = sound.recovery()
    assert (found.noticed_ms, found.restarted_ms, found.done_ms) == (5, 7, 15)
    assert (found.before, found.kept, found.repeated, found.to_worker) == (1, 1, 0, W2)


def test_s1_two_open_attempts(sound: Evidence) -> None:
    _, *others = sound.history.attempts
    for ended_at_ms in (None, 35):
        first = _run(A, 1, AttemptStatus.LOST, W1, 10, ended_at_ms)
        assert broken(sound, attempts=(first, *others)) == {"S1"}


def test_s1_an_epoch_granted_twice(sound: Evidence) -> None:
    assert "S1" in broken(sound, events=[*sound.history.events, sound.history.events[2]])


def test_s3_work_after_supersession(sound: Evidence) -> None:
    late = (sound.ledger[0]._replace(at_ms=34), *sound.ledger[1:])
    assert broken(sound, deeds=[line.deed() for line in late]) == {"S3"}


def test_s3_an_event_of_a_superseded_attempt(sound: Evidence) -> None:
    events = list(sound.history.events)
    events[8] = msgspec.structs.replace(events[8], epoch=1)
    assert "S3" in broken(sound, events=events)


def test_s3_late_writes(sound: Evidence) -> None:
    accepted = LateWrite("a#1", "checkpoint", False, "{}")
    assert broken(replace(sound, late=(accepted,))) == {"S3"}
    assert broken(replace(sound, late=())) == {"S3"}


def test_s4_a_task_that_ended_twice_or_never(sound: Evidence) -> None:
    events = sound.history.events
    assert "S4" in broken(sound, events=[*events, events[-1]])
    assert "S7" in broken(sound, events=events[:-1])


def test_s7_a_missing_event(sound: Evidence) -> None:
    without = [event for event in sound.history.events if event.event != "checkpoint"]
    assert "S7" in broken(sound, events=without)


def test_s7_a_row_that_says_something_else(sound: Evidence) -> None:
    _, b = sound.history.tasks
    assert broken(sound, tasks=(plain_task(id=A, status=S.COMPLETED, epoch=2, event_seq=8), b)) == {"S7"}


def test_s8_a_child_that_started_early(sound: Evidence) -> None:
    *others, claimed, started, completed = sound.history.events
    assert "S8" in broken(sound, events=[*others[:4], claimed, started, completed, *others[4:]])


def test_s16_saved_work_that_is_done_again(sound: Evidence) -> None:
    from_start = (sound.ledger[0], sound.ledger[1]._replace(piece=1), *sound.ledger[1:])
    assert broken(replace(sound, ledger=from_start)) == {"S16"}
    assert replace(sound, ledger=from_start).recovery().repeated == 1


def test_work_that_was_not_done(sound: Evidence) -> None:
    a, _ = sound.history.tasks
    failed = plain_task(id=B, status=S.FAILED, epoch=1, event_seq=5)
    assert "lost 0" in broken(sound, tasks=(a, failed))
    assert broken(replace(sound, exit_code=1)) == {"use"}


def test_a_task_that_did_not_come_back(sound: Evidence) -> None:
    never = [event for event in sound.history.events if (event.task_id, event.event) != (A, "completed")]
    assert "back" in broken(sound, events=never)
    first, _, third = sound.history.attempts
    same = _run(A, 2, AttemptStatus.COMPLETED, W1, 31, 40)
    assert broken(sound, attempts=(first, same, third)) == {"back"}


def test_the_agent_reads_its_pieces_in_the_task() -> None:
    prompt = "Title\n\n```\nimport re\n\nfor n in range(2):\n    print(n)\n```\n\nA note.\n"
    assert pieces_of(prompt) == ["import re", "n = 0\nprint(n)", "n = 1\nprint(n)"]
