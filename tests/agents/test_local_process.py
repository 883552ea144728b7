"""Agents' processes: started, watched, and ended with everything that they left behind."""

from __future__ import annotations

import errno
import os
import shlex
import signal
import subprocess
import sys
import threading
import time

import pytest

from muster.agents import process as process_module
from muster.agents.host import LocalHost, adopted_orphans
from muster.model.errors import AgentUnfit, BadInput, Unavailable
from muster.ports.agent import Launch, Launcher

WAIT_S = 20.0


def no_step(step: str) -> None:
    raise AssertionError(f"no rung should be taken, not {step}")


# Starting


def test_it_runs_in_its_own_session_with_only_the_given_environment(zoo, monkeypatch):
    monkeypatch.setenv("SECRET", "hunter2")
    launcher: Launcher = zoo.launcher
    assert launcher is zoo.launcher
    process = zoo.start("sh", "-c", "env; cat; ps -o sid= -p $$ 2>/dev/null; echo oops >&2; exit 3")
    assert process.wait(WAIT_S) == 3
    assert zoo.mark in zoo.said().splitlines()
    assert "SECRET" not in zoo.said()
    assert zoo.folder().stderr.read_text() == "oops\n"
    assert zoo.folder().stdout.stat().st_mode & 0o777 == 0o600
    assert process.poll() == 3
    assert process.sweep() == 0
    assert process.poll() == 3
    assert process.kill() == 3


def test_what_was_started_and_cannot_be_watched_does_not_work_on(zoo, monkeypatch):
    def none_left(pid: int) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    with monkeypatch.context() as patch:
        patch.setattr(process_module, "read_proc", none_left)
        with pytest.raises(OSError, match="Too many open files"):
            zoo.start("sleep", "1000")
    assert LocalHost().marked([zoo.mark]) == {zoo.mark: []}


def test_stdin_is_the_given_file_and_output_is_appended(zoo, tmp_path):
    zoo.folder().stdout.write_text("before\n")
    (tmp_path / "in").write_text("hello")
    launch = Launch(argv=("cat",), env=dict(os.environ), cwd=tmp_path, stdin=tmp_path / "in")
    process = zoo.launcher.start(launch, zoo.folder(), mark=zoo.mark)
    assert process.wait(WAIT_S) == 0
    assert zoo.said() == "before\nhello"
    process.sweep()


def test_a_huge_line_is_whole(zoo):
    process = zoo.start(sys.executable, "-S", "-c", "print('x' * 400_000)")
    assert process.wait(WAIT_S) == 0
    assert zoo.said() == "x" * 400_000 + "\n"
    process.sweep()


def test_the_signal_that_killed_it_is_its_code(zoo):
    process = zoo.start("sh", "-c", "kill -SEGV $$")
    assert process.wait(WAIT_S) == -signal.SIGSEGV
    process.sweep()


def test_a_missing_binary_names_itself(zoo):
    with pytest.raises(AgentUnfit, match="no-such-agent") as caught:
        zoo.start("no-such-agent")
    assert "install" in caught.value.hint


def test_a_file_that_is_not_executable(zoo, tmp_path):
    (tmp_path / "agent").write_text("#!/bin/sh\n")
    with pytest.raises(AgentUnfit, match="cannot be executed") as caught:
        zoo.start(str(tmp_path / "agent"))
    assert caught.value.hint == f"chmod +x {tmp_path / 'agent'}"


def test_a_script_without_a_first_line(zoo, tmp_path):
    (tmp_path / "agent").write_text("echo\n")
    (tmp_path / "agent").chmod(0o700)
    with pytest.raises(AgentUnfit, match="cannot be executed"):
        zoo.start(str(tmp_path / "agent"))


def test_a_missing_interpreter(zoo, tmp_path):
    (tmp_path / "agent").write_text("#!/no/such/interpreter\n")
    (tmp_path / "agent").chmod(0o700)
    with pytest.raises(AgentUnfit, match="interpreter"):
        zoo.start(str(tmp_path / "agent"))


def test_a_missing_directory(zoo, tmp_path):
    launch = Launch(argv=("true",), env=dict(os.environ), cwd=tmp_path / "gone")
    with pytest.raises(AgentUnfit, match=f"{tmp_path}/gone"):
        zoo.launcher.start(launch, zoo.folder(), mark=zoo.mark)


def test_an_argument_that_is_too_long(zoo):
    with pytest.raises(BadInput, match="3,000,000") as caught:
        zoo.start("echo", "x" * 3_000_000)
    assert 'prompt = "file"' in caught.value.hint


def test_what_is_closed_to_us_on_the_path_hides_no_error(zoo, tmp_path, monkeypatch):
    (tmp_path / "echo").write_text("not executable")
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    with pytest.raises(BadInput, match="3,000,000"):
        zoo.start("echo", "x" * 3_000_000)
    process = zoo.start("echo", "found")
    assert process.wait(WAIT_S) == 0
    process.sweep()
    (tmp_path / "no-such-agent").write_text("not executable")
    with pytest.raises(AgentUnfit, match="cannot be executed"):
        zoo.start("no-such-agent")


def test_an_argument_that_cannot_be_passed(zoo):
    with pytest.raises(BadInput, match="null byte"):
        zoo.start("echo", "a\0b")


def test_output_that_cannot_be_opened(zoo):
    zoo.folder().stdout.symlink_to("/dev/null")
    with pytest.raises(Unavailable, match="stdout"):
        zoo.start("true")


def test_a_worker_that_ignores_signals_does_not_pass_that_on():
    code = (
        "import os, pathlib, signal, tempfile\n"
        "from muster.agents.process import LocalLauncher\n"
        "from muster.ports.agent import AttemptFolder, Launch\n"
        "launcher = LocalLauncher()\n"
        "place = pathlib.Path(tempfile.mkdtemp())\n"
        "argv = ('sh', '-c', 'kill -INT $$; kill -QUIT $$; exit 4')\n"
        "launch = Launch(argv=argv, env=dict(os.environ), cwd=place)\n"
        "process = launcher.start(launch, AttemptFolder(path=place), mark='MUSTER_MARK=1')\n"
        "os.kill(os.getpid(), signal.SIGINT)\n"
        "print(process.wait(20), process.sweep(), process.poll())\n"
    )
    argv = ["sh", "-c", f'trap "" INT QUIT CHLD; exec {shlex.quote(sys.executable)} -c "$CODE"']
    done = subprocess.run(argv, capture_output=True, env={**os.environ, "CODE": code}, check=False)
    assert done.stdout == b"-2 0 -2\n", done.stderr


# Waiting


@pytest.fixture(params=["pidfd", "polling"])
def either_way(request, monkeypatch):
    if request.param == "polling":
        monkeypatch.setattr(process_module, "open_pidfd", lambda pid: None)


def test_wait_times_out(zoo, either_way):
    process = zoo.start("sleep", zoo.token)
    begin_s = time.monotonic()
    assert process.wait(0.1) is None
    assert 0.1 <= time.monotonic() - begin_s < 5
    assert process.wait(0) is None
    assert process.wait(-1) is None
    assert process.kill() == -signal.SIGKILL


def test_wait_ends_with_the_root(zoo, either_way):
    process = zoo.start("sleep", "0.1")
    assert process.wait(WAIT_S) == 0
    process.sweep()


def test_the_wake_fd_ends_a_wait_at_once(zoo, either_way):
    process = zoo.start("sleep", zoo.token)
    reader, writer = os.pipe()
    woken_s = []

    def wake() -> None:
        time.sleep(0.1)
        woken_s.append(time.monotonic())
        os.write(writer, b"x")

    thread = threading.Thread(target=wake)
    thread.start()
    assert process.wait(WAIT_S, wake_fd=reader) is None
    late_s = time.monotonic() - woken_s[0]
    thread.join()
    os.close(reader)
    os.close(writer)
    process.kill()
    assert late_s < 0.1


def test_a_survivor_that_keeps_stdout_open_does_not_delay_the_end(zoo):
    process = zoo.start("sh", "-c", f"sleep {zoo.token} & echo done")
    assert process.wait(WAIT_S) == 0
    assert zoo.said() == "done\n"
    assert process.descendants() == 1
    assert process.sweep() == 1
    assert process.descendants() == 0
    assert process.sweep() == 0


# Sweeping


def test_a_daemon_by_double_fork_is_swept(zoo):
    process = zoo.python(
        "import os, time\n"
        "if os.fork() == 0:\n"
        "    os.setsid()\n"
        "    if os.fork() == 0:\n"
        "        print('ready', flush=True)\n"
        "        time.sleep(1000)\n"
        "    os._exit(0)\n"
        "os.wait()\n"
    )
    assert process.wait(WAIT_S) == 0
    assert process.descendants() == 1
    assert process.sweep() == 1
    assert not zoo.alive()


def test_a_session_of_its_own_is_swept(zoo):
    process = zoo.sh("setsid sleep $T & echo ready")
    assert process.wait(WAIT_S) == 0
    zoo.until_apart(wiped=False)
    assert process.sweep() == 1
    assert not zoo.alive()


def test_a_wiped_environment_is_swept_by_a_subreaper(zoo, subreaper):
    process = zoo.sh("env -i setsid sleep $T & echo ready")
    assert process.wait(WAIT_S) == 0
    zoo.until_apart(wiped=True)
    assert process.sweep() == 1
    assert not zoo.alive()


def test_a_wiped_environment_is_swept_without_a_subreaper_once_seen(zoo):
    process = zoo.sh("env -i setsid sleep $T & echo ready; while [ ! -e go ]; do sleep 0.01; done")
    zoo.until_apart(wiped=True)
    assert process.descendants() >= 1
    (zoo.tmp_path / "go").touch()
    assert process.wait(WAIT_S) == 0
    assert process.descendants() == 1
    assert process.sweep() == 1
    assert not zoo.alive()


def test_a_wiped_environment_is_found_by_the_session_of_a_relative(zoo):
    inner = "(env -i sleep $T &) ; echo ready; exec sleep $T"
    process = zoo.sh(f"setsid sh -c '{inner}' & wait")
    zoo.until(lambda: sum(b"MUSTER_MARK" not in environ for environ in zoo.environments()) == 1)
    process.kill()
    assert not zoo.alive()


def test_zombies_of_adopted_orphans_are_reaped_on_the_way(zoo, subreaper):
    process = zoo.sh("(setsid true &) ; echo ready; exec sleep $T")
    zoo.until(lambda: [proc for proc in adopted_orphans({process.pid}) if proc.gone])
    assert process.descendants() == 0
    assert adopted_orphans({process.pid}) == []
    process.kill()


def test_an_orphan_without_a_trace_waits_for_the_last_tree_that_may_own_it(zoo, subreaper):
    first = zoo.sh("echo ready; sleep $T", name="1")
    second = zoo.sh("env -i setsid sleep $T & echo ready", name="2")
    assert second.wait(WAIT_S) == 0
    zoo.until_apart(wiped=True)
    assert second.sweep() == 0
    zoo.until_apart(wiped=True)
    first.kill()
    assert not zoo.alive()


def test_an_orphan_older_than_the_other_trees_has_one_owner(zoo, subreaper):
    first = zoo.sh("env -i setsid sleep $T & echo ready", name="1")
    assert first.wait(WAIT_S) == 0
    zoo.until_apart(wiped=True)
    # Start times are in ticks of 10 ms.
    time.sleep(0.05)
    second = zoo.sh("echo ready; sleep $T", name="2")
    assert first.sweep() == 1
    assert second.poll() is None
    second.kill()


def test_two_trees_do_not_hurt_each_other(zoo, subreaper):
    first = zoo.start("sleep", zoo.token, name="1")
    second = zoo.sh("setsid sleep $T & echo ready; sleep $T", name="2")
    zoo.until(lambda: second.descendants() >= 2)
    assert first.kill() == -signal.SIGKILL
    assert second.poll() is None and second.descendants() == 2
    second.kill()


def test_a_child_of_the_worker_that_is_no_orphan_is_left_alone(zoo, subreaper):
    helper = subprocess.Popen(["sleep", "1000"])
    process = zoo.start("sleep", zoo.token)
    process.kill()
    assert helper.poll() is None
    helper.kill()
    helper.wait()


def test_many_threads_start_and_sweep_at_once(zoo, subreaper):
    codes: list[int | None] = []

    def run(slot: int) -> None:
        for turn in range(5):
            name = f"{slot}-{turn}"
            process = zoo.start("sh", "-c", f"(setsid sleep {zoo.token} &) ; exit {slot + 1}", name=name)
            codes.append(process.wait(WAIT_S))
            process.sweep()

    threads = [threading.Thread(target=run, args=(slot,)) for slot in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(codes) == sorted([slot + 1 for slot in range(4)] * 5)
    assert not zoo.alive()


# The ladder


def stop(process, grace_s: float) -> tuple[list[str], int]:
    steps: list[str] = []
    return steps, process.stop(grace_s=grace_s, on_step=steps.append)


DIE_ON = (
    "import signal, sys, time\n"
    "def end(number, frame): sys.exit(number)\n"
    "for number in (signal.SIGINT, signal.SIGTERM): signal.signal(number, signal.SIG_IGN)\n"
    "{handlers}\n"
    "print('ready', flush=True)\n"
    "time.sleep(1000)\n"
)


@pytest.mark.parametrize(
    ("handlers", "steps", "code"),
    [
        ("signal.signal(signal.SIGINT, end)", ["interrupt"], 2),
        ("signal.signal(signal.SIGTERM, end)", ["interrupt", "terminate"], 15),
        ("", ["interrupt", "terminate", "kill"], -9),
    ],
)
def test_the_ladder_ends_at_the_rung_that_works(zoo, handlers, steps, code):
    process = zoo.python(DIE_ON.format(handlers=handlers))
    grace_s = 0.2 if code == -9 else WAIT_S if code == 2 else 0.5
    assert stop(process, grace_s) == (steps, code)
    assert process.poll() == code


def test_no_rung_is_taken_once_all_have_ended(zoo):
    process = zoo.start("true")
    assert process.wait(WAIT_S) == 0
    assert process.stop(grace_s=WAIT_S, on_step=no_step) == 0


def test_the_ladder_goes_on_for_the_group_when_the_root_has_ended(zoo):
    process = zoo.sh("(trap '' INT; echo ready; exec sleep $T) & exec sleep $T")
    steps, code = stop(process, 0.3)
    assert (steps, code) == (["interrupt", "terminate"], -signal.SIGINT)


def test_a_survivor_outside_the_group_does_not_cost_the_grace(zoo):
    process = zoo.sh("setsid sleep $T & echo ready; exec sleep $T")
    zoo.until_apart(wiped=False)
    begin_s = time.monotonic()
    assert stop(process, WAIT_S) == (["interrupt"], -signal.SIGINT)
    assert time.monotonic() - begin_s < WAIT_S / 2
    assert not zoo.alive()


def test_a_stopped_process_obeys_the_interrupt(zoo):
    process = zoo.start("sleep", zoo.token)
    os.kill(process.pid, signal.SIGSTOP)
    assert stop(process, WAIT_S) == (["interrupt"], -signal.SIGINT)


def test_kill_takes_the_whole_tree_at_once(zoo):
    process = zoo.sh("setsid sleep $T & sleep $T & env -i setsid sleep $T & echo ready; sleep $T")
    zoo.until(lambda: len(zoo.alive()) == 5)
    zoo.until_apart(wiped=True)
    assert process.kill() == -signal.SIGKILL
    assert not zoo.alive()
    assert process.kill() == -signal.SIGKILL
