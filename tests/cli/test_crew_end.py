"""How a crew ends, pauses, and refuses to begin: workers that cannot start, orders over the API, questions."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
from contextlib import closing, suppress
from pathlib import Path

import pytest
from test_run import QUICK, SLOW, folder, started, until

from muster.app.ending import left_running
from muster.client.api import Api
from muster.client.http import Connection, answers
from muster.config.project import Project
from muster.hosts.file_lock import Lock, holder
from muster.hosts.local_host import LocalHost
from muster.worker.supervisor import START_TRIES
from muster_command import MUSTER
from muster_command import run_muster as muster
from patience import PATIENCE_S

__all__ = ["folder"]


def workers_of(folder: Path) -> list[int]:
    found = left_running(Project(folder))
    return [process.pid for name, process in found if name == "worker"]


def known(folder: Path) -> int:
    """How many workers the owner knows."""
    if not answers(Project(folder).socket):
        return 0
    with closing(Api(Connection(Project(folder).socket))) as api:
        return len(api.get("/api/v1/workers"))


def set_crew(folder: Path, status: str) -> None:
    body = json.dumps({"actor": "me", "status": status})
    assert muster(folder, "api", "POST", "/api/v1/crew", "--data", body).returncode == 0


def nobody_up(folder: Path) -> bool:
    project = Project(folder)
    locks = (project.owner_lock, project.supervisor_lock)
    return not any(map(holder, locks)) and not left_running(project)


@pytest.mark.parametrize("verb", [("run", "plan.md"), ("up",)])
def test_a_mistyped_kind_is_refused_before_anything_starts(folder: Path, verb: tuple[str, ...]) -> None:
    (folder / "plan.md").write_text("# P\n- [ ] One {#one agent=c}\n")
    (folder / "muster.toml").write_text('[agents.c]\nkind = "claude-cod"\npermission_mode = "plan"\n')
    ran = muster(folder, *verb)
    assert ran.returncode == 2
    assert "muster.toml:2: agents.c.kind: no kind of agent is called 'claude-cod'" in ran.stderr
    assert "did you mean 'claude-code'?" in ran.stderr
    assert not (folder / ".muster").exists()


def test_workers_that_cannot_start_are_given_up_and_down_ends(folder: Path) -> None:
    """The settings are broken after `up`: the running worker goes on, the killed one has no successor."""
    with started(folder, "up", "--workers", "2") as up:
        until(lambda: known(folder) == 2, "all are up")
        (folder / "muster.toml").write_text("agent = \n")
        os.kill(workers_of(folder)[0], signal.SIGKILL)
        assert up.stdout is not None
        told: list[str] = []
        for line in up.stdout:
            told += [line] if "exit code" in line else []
            if "it is not started again" in line:
                break
        assert len(told) == START_TRIES and all("is not valid TOML" in line for line in told), told
        down = muster(folder, "down")
        assert down.returncode == 0, down.stderr
        assert "the defaults say how long" in down.stderr
        assert up.wait(PATIENCE_S) == 0
    assert nobody_up(folder)


def test_a_run_none_of_whose_workers_can_start_says_why(folder: Path) -> None:
    (folder / "plan.md").write_text(SLOW)
    with started(folder, "run", "plan.md", "--workers", "1") as run:
        until((folder / "begun").exists, "the task has begun")
        (folder / "muster.toml").write_text("agent = \n")
        os.kill(workers_of(folder)[0], signal.SIGKILL)
        assert run.stdout is not None
        said = run.stdout.read()
        assert run.wait(PATIENCE_S) == 1
    assert "no worker can start: muster.toml is not valid TOML" in said
    assert nobody_up(folder)


def test_a_paused_crew_finishes_what_runs_and_stays(folder: Path) -> None:
    first = "touch begun; until [ -e go ]; do sleep 0.1; done"
    (folder / "plan.md").write_text(
        f"# P\n- [ ] One {{#one}}\n  {first}\n- [ ] Two {{#two after=one}}\n  true\n"
    )
    with started(folder, "up", "--workers", "2"):
        until(lambda: answers(Project(folder).socket), "it is up")
        assert muster(folder, "plan", "add", "plan.md").returncode == 0
        until((folder / "begun").exists, "the first task runs")
        until(lambda: known(folder) == 2, "the other worker is up as well")
        workers = workers_of(folder)
        paused = muster(folder, "orchestrator", "pause")
        assert (paused.returncode, paused.stdout) == (0, "crew  paused; what runs goes on\n")
        (folder / "go").touch()
        until(
            lambda: (
                "p/one  completed" in muster(folder, "task", "list", "--all").stdout
                or "completed" in muster(folder, "task", "show", "p/one").stdout
            ),
            "what ran is finished",
        )
        assert "`muster orchestrator resume` goes on" in muster(folder, "why", "p/two").stdout
        owner = holder(Project(folder).owner_lock)
        assert owner
        os.kill(owner, signal.SIGKILL)
        until(lambda: holder(Project(folder).owner_lock) not in (None, owner), "another owner is there")
        until(lambda: answers(Project(folder).socket), "it answers")
        assert "the crew is paused" in muster(folder, "why", "p/two").stdout, "a new owner does not forget it"
        assert workers_of(folder) == workers
        assert muster(folder, "orchestrator", "resume", "--json").stdout == '{"status": "RUNNING"}\n'
        until(lambda: "completed" in muster(folder, "task", "show", "p/two").stdout, "it goes on")
        assert workers_of(folder) == workers
        set_crew(folder, "STOPPED")
        until(lambda: nobody_up(folder), "stopped is the end")


def test_down_ends_what_a_dead_supervisor_and_a_dead_owner_left(folder: Path) -> None:
    (folder / "plan.md").write_text(SLOW)
    with started(folder, "run", "plan.md", "--workers", "1") as run:
        until((folder / "begun").exists, "the task has begun")
        owner = holder(Project(folder).owner_lock)
        assert owner
        run.kill()
        os.kill(owner, signal.SIGKILL)
        run.wait()
    down = muster(folder, "down", "--now")
    assert down.returncode == 0, down.stderr
    assert "took over from a dead supervisor: worker" in down.stdout
    assert nobody_up(folder)
    events = muster(folder, "logs", "slow/long").stdout
    assert "begun" in events
    task = json.loads(muster(folder, "task", "show", "slow/long", "--json").stdout)
    task = task.get("task", task)
    assert (task["status"], task["losses"]) == ("PENDING", 0), "its agent has given it back"


def test_up_is_not_refused_because_a_short_command_has_the_store(folder: Path) -> None:
    """Such a command is an owner of its own while it lasts."""
    assert muster(folder, "status").returncode == 0
    project = Project(folder)
    lock = Lock.take(project.owner_lock)
    try:
        with started(folder, "up", "--workers", "1") as up:
            log = project.log_file
            until(lambda: log.exists() and "is held by process" in log.read_text(), "an owner found it taken")
            lock.release()
            until(lambda: answers(project.socket), "it is up all the same")
            assert muster(folder, "down").returncode == 0
            assert up.wait(PATIENCE_S) == 0
    finally:
        with suppress(OSError):
            lock.release()


def test_the_last_line_of_a_run_for_programs_is_its_result(folder: Path) -> None:
    (folder / "plan.md").write_text(QUICK + "- [ ] Bad {#bad retries=0}\n  exit 3\n")
    ran = muster(folder, "run", "plan.md", "--json")
    *events, result = map(json.loads, ran.stdout.splitlines())
    assert {event["type"] for event in events} == {"event"}
    assert (ran.returncode, result["type"], result["exitCode"], result["outcome"]) == (
        5,
        "result",
        5,
        "unfinished",
    )
    assert result["counts"] == {"completed": 4, "failed": 1} and result["plan"] == "quick"
    assert [left["ref"] for left in result["left"]] == ["quick/bad"]


RESULT_KEYS = {"type", "plan", "outcome", "exitCode", "tookS", "counts", "left", "boxes"}


@pytest.mark.parametrize("way", ["down", "Ctrl-C", "store gone"])
def test_every_end_of_a_run_for_programs_has_one_result(folder: Path, way: str) -> None:
    (folder / "plan.md").write_text(SLOW)
    argv = [*MUSTER, "run", "plan.md", "--json", "--workers", "1"]
    with subprocess.Popen(
        argv, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as run:
        until((folder / "begun").exists, "the task has begun")
        if way == "down":
            assert muster(folder, "down", "--now").returncode == 0
        elif way == "Ctrl-C":
            run.send_signal(signal.SIGINT)
            until(lambda: "STOPPED" in muster(folder, "api", "GET", "/api/v1/crew").stdout, "it drains")
            run.send_signal(signal.SIGINT)
        else:
            (folder / ".muster" / "state.db").unlink()
        said, _ = run.communicate()
    (result,) = [line for line in map(json.loads, said.splitlines()) if line["type"] == "result"]
    assert result.keys() == RESULT_KEYS
    code, outcome, counts = {
        "store gone": (1, "error", None),
    }.get(way, (130, "stopped", {"ready": 1, "blocked": 1}))
    ended = -signal.SIGINT if way == "Ctrl-C" else code
    assert (run.returncode, result["exitCode"], result["outcome"]) == (ended, code, outcome)
    assert result["counts"] == counts
    left = [task["ref"] for task in result["left"] or ()]
    assert left == ([] if counts is None else ["slow/long", "slow/after"])


@pytest.mark.parametrize("how", ["--now", "over its time"])
def test_down_names_what_is_given_back_and_waits_for_all_processes(folder: Path, how: str) -> None:
    (folder / "plan.md").write_text(SLOW)
    (folder / "muster.toml").write_text('agent = "shell"\n[workers]\ndrain = "1s"\n')
    late = "import atexit, sys, time; from muster.cli.main import main; atexit.register(time.sleep, 2); "
    argv = [sys.executable, "-c", f"{late} sys.exit(main())", "run", "plan.md", "--workers", "1"]
    with subprocess.Popen(argv, cwd=folder, stdout=subprocess.DEVNULL) as run:
        until((folder / "begun").exists, "the task has begun")
        crew = [run.pid, *(process.pid for _, process in left_running(Project(folder)))]
        down = muster(folder, "down", *(["--now"] if how == "--now" else []))
        assert [pid for pid in crew if LocalHost().identify(pid)] == []
    assert down.returncode == 0
    assert "Given back: slow/long\n" in down.stdout


def test_down_names_who_was_stopped_by_a_signal_and_ends_them(folder: Path) -> None:
    (folder / "plan.md").write_text(SLOW)
    with started(folder, "run", "plan.md", "--workers", "1") as run:
        until((folder / "begun").exists, "the task has begun")
        crew = [run.pid, *(process.pid for _, process in left_running(Project(folder)))]
        for pid in crew:
            os.kill(pid, signal.SIGSTOP)
        down = muster(folder, "down", "--now")
        assert [pid for pid in crew if LocalHost().identify(pid)] == []
    names = ("supervisor", "owner", "worker")
    assert down.returncode == 0
    assert all(f"{name} (pid {pid})" in down.stdout for name, pid in zip(names, crew, strict=True)), (
        down.stdout
    )
    assert "(SIGSTOP): told to go on, to give back what they hold, and to end" in down.stdout


def test_watch_waits_for_a_crew_and_for_the_next(folder: Path) -> None:
    (folder / "plan.md").write_text(QUICK)
    assert muster(folder, "plan", "add", "plan.md").returncode == 0
    with started(folder, "watch") as watch:
        assert watch.stdout is not None
        while "no crew is up: this waits for one" not in watch.stdout.readline():
            pass
        for n in range(2):
            (folder / "more.md").write_text(f"# More\n- [ ] Task {n} {{#m{n}}}\n  true\n")
            assert muster(folder, "run", "more.md").returncode == 0
            for line in watch.stdout:
                if f"more/m{n}  completed" in line:
                    break


def test_a_question_does_not_end_a_run_on_a_terminal(folder: Path) -> None:
    (folder / "plan.md").write_text(
        "# P\n- [ ] One {#one}\n  [ -e asked ] && exit 0; touch asked; muster report ask 'red or blue?'\n"
    )
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(folder)
        os.environ["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        os.execv(sys.executable, [*MUSTER, "run", "plan.md", "--workers", "1"])
    said = b""
    while b"Waiting  for an answer: muster answer p/one TEXT" not in said:
        said += os.read(terminal, 4096)
    assert b"red or blue?" in said
    assert muster(folder, "answer", "p/one", "blue").returncode == 0
    with suppress(OSError):  # a terminal that nobody has open any more
        while part := os.read(terminal, 4096):
            said += part
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0, said.decode()
    os.close(terminal)
    assert subprocess.run([*MUSTER, "task", "show", "p/one"], cwd=folder, check=False).returncode == 0
