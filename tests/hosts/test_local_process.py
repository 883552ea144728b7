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

from muster.hosts import process as process_module
from muster.hosts.local_host import LocalHost, adopted_orphans
from muster.model.errors import AgentUnfit, BadInput, Unavailable
from muster.ports.agent import Launch, Launcher
from patience import HOURS_S, PATIENCE_S


def no_step(step: str) -> None:
    raise AssertionError(f"no rung should be taken, not {step}")


# Starting


def test_it_runs_in_its_own_session_with_only_the_given_environment(hostiles, monkeypatch):
    monkeypatch.setenv("SECRET", "hunter2")
    launcher: Launcher = hostiles.launcher
    assert launcher is hostiles.launcher
    process = hostiles.start("sh", "-c", "env; cat; ps -o sid= -p $$ 2>/dev/null; echo oops >&2; exit 3")
    assert process.wait(PATIENCE_S) == 3
    assert hostiles.mark in hostiles.said().splitlines()
    assert "SECRET" not in hostiles.said()
    assert hostiles.folder().stderr.read_text() == "oops\n"
    assert hostiles.folder().stdout.stat().st_mode & 0o777 == 0o600
    assert process.poll() == 3
    assert process.sweep() == 0
    assert process.poll() == 3
    assert process.kill() == 3


def test_what_was_started_and_cannot_be_watched_does_not_work_on(hostiles, monkeypatch):
    def none_left(pid: int) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    with monkeypatch.context() as patch:
        patch.setattr(process_module, "read_proc", none_left)
        with pytest.raises(OSError, match="Too many open files"):
            hostiles.start("sleep", "1000")
    assert LocalHost().marked([hostiles.mark]) == {hostiles.mark: []}


def test_stdin_is_the_given_file_and_output_is_appended(hostiles, tmp_path):
    hostiles.folder().stdout.write_text("before\n")
    (tmp_path / "in").write_text("hello")
    launch = Launch(argv=("cat",), env=dict(os.environ), cwd=tmp_path, stdin=tmp_path / "in")
    process = hostiles.launcher.start(launch, hostiles.folder(), mark=hostiles.mark)
    assert process.wait(PATIENCE_S) == 0
    assert hostiles.said() == "before\nhello"
    process.sweep()


def test_a_huge_line_is_whole(hostiles):
    process = hostiles.start(sys.executable, "-S", "-c", "print('x' * 400_000)")
    assert process.wait(PATIENCE_S) == 0
    assert hostiles.said() == "x" * 400_000 + "\n"
    process.sweep()


def test_the_signal_that_killed_it_is_its_code(hostiles):
    process = hostiles.start("sh", "-c", "kill -SEGV $$")
    assert process.wait(PATIENCE_S) == -signal.SIGSEGV
    process.sweep()


def test_a_missing_binary_names_itself(hostiles):
    with pytest.raises(AgentUnfit, match="no-such-agent") as caught:
        hostiles.start("no-such-agent")
    assert "install" in caught.value.hint


def test_a_file_that_is_not_executable(hostiles, tmp_path):
    (tmp_path / "agent").write_text("#!/bin/sh\n")
    with pytest.raises(AgentUnfit, match="cannot be executed") as caught:
        hostiles.start(str(tmp_path / "agent"))
    assert caught.value.hint == f"chmod +x {tmp_path / 'agent'}"


def test_a_script_without_a_first_line(hostiles, tmp_path):
    (tmp_path / "agent").write_text("echo\n")
    (tmp_path / "agent").chmod(0o700)
    with pytest.raises(AgentUnfit, match="cannot be executed"):
        hostiles.start(str(tmp_path / "agent"))


def test_a_missing_interpreter(hostiles, tmp_path):
    (tmp_path / "agent").write_text("#!/no/such/interpreter\n")
    (tmp_path / "agent").chmod(0o700)
    with pytest.raises(AgentUnfit, match="interpreter"):
        hostiles.start(str(tmp_path / "agent"))


def test_a_missing_directory(hostiles, tmp_path):
    launch = Launch(argv=("true",), env=dict(os.environ), cwd=tmp_path / "gone")
    with pytest.raises(AgentUnfit, match=f"{tmp_path}/gone"):
        hostiles.launcher.start(launch, hostiles.folder(), mark=hostiles.mark)


def test_an_argument_that_is_too_long(hostiles):
    with pytest.raises(BadInput, match="3,000,000") as caught:
        hostiles.start("echo", "x" * 3_000_000)
    assert 'prompt = "file"' in caught.value.hint


def test_what_is_closed_to_us_on_the_path_hides_no_error(hostiles, tmp_path, monkeypatch):
    (tmp_path / "echo").write_text("not executable")
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    with pytest.raises(BadInput, match="3,000,000"):
        hostiles.start("echo", "x" * 3_000_000)
    process = hostiles.start("echo", "found")
    assert process.wait(PATIENCE_S) == 0
    process.sweep()
    (tmp_path / "no-such-agent").write_text("not executable")
    with pytest.raises(AgentUnfit, match="cannot be executed"):
        hostiles.start("no-such-agent")


def test_an_argument_that_cannot_be_passed(hostiles):
    with pytest.raises(BadInput, match="null byte"):
        hostiles.start("echo", "a\0b")


def test_output_that_cannot_be_opened(hostiles):
    hostiles.folder().stdout.symlink_to("/dev/null")
    with pytest.raises(Unavailable, match="stdout"):
        hostiles.start("true")


def test_a_worker_that_ignores_signals_does_not_pass_that_on(tmp_path):
    code = (
        "import os, pathlib, signal\n"
        "from muster.hosts.process import LocalLauncher\n"
        "from muster.ports.agent import AttemptFolder, Launch\n"
        "launcher = LocalLauncher()\n"
        "place = pathlib.Path()\n"
        "argv = ('sh', '-c', 'kill -INT $$; kill -QUIT $$; exit 4')\n"
        "launch = Launch(argv=argv, env=dict(os.environ), cwd=place)\n"
        "process = launcher.start(launch, AttemptFolder(path=place), mark='MUSTER_MARK=1')\n"
        "os.kill(os.getpid(), signal.SIGINT)\n"
        "print(process.wait(100), process.sweep(), process.poll())\n"
    )
    argv = ["sh", "-c", f'trap "" INT QUIT CHLD; exec {shlex.quote(sys.executable)} -c "$CODE"']
    env = {**os.environ, "CODE": code}
    done = subprocess.run(argv, cwd=tmp_path, capture_output=True, env=env, check=False)
    assert done.stdout == b"-2 0 -2\n", done.stderr


# Waiting


@pytest.fixture(params=["pidfd", "polling"])
def either_way(request, monkeypatch):
    if request.param == "polling":
        monkeypatch.setattr(process_module, "open_pidfd", lambda pid: None)


def test_wait_times_out(hostiles, either_way):
    process = hostiles.start("sleep", hostiles.token)
    begin_s = time.monotonic()
    assert process.wait(0.1) is None
    assert time.monotonic() - begin_s >= 0.1
    assert process.wait(0) is None
    assert process.wait(-1) is None
    assert process.kill() == -signal.SIGKILL


def test_wait_ends_with_the_root(hostiles, either_way):
    process = hostiles.start("sleep", "0.1")
    assert process.wait(PATIENCE_S) == 0
    process.sweep()


def test_the_wake_fd_ends_a_wait_at_once(hostiles, either_way):
    process = hostiles.start("sleep", hostiles.token)
    reader, writer = os.pipe()
    waker = threading.Timer(0.1, os.write, (writer, b"x"))
    waker.start()
    assert process.wait(HOURS_S, wake_fd=reader) is None
    waker.join()
    os.close(reader)
    os.close(writer)
    process.kill()


def test_a_survivor_that_keeps_stdout_open_does_not_delay_the_end(hostiles):
    process = hostiles.start("sh", "-c", f"sleep {hostiles.token} & echo done")
    assert process.wait(PATIENCE_S) == 0
    assert hostiles.said() == "done\n"
    assert hostiles.descendants(process) == 1
    assert process.sweep() == 1
    assert hostiles.descendants(process) == 0
    assert process.sweep() == 0


# Sweeping


def test_a_daemon_by_double_fork_is_swept(hostiles):
    process = hostiles.python(
        "import os, time\n"
        "if os.fork() == 0:\n"
        "    os.setsid()\n"
        "    if os.fork() == 0:\n"
        "        print('ready', flush=True)\n"
        "        time.sleep(1000)\n"
        "    os._exit(0)\n"
        "os.wait()\n"
    )
    assert process.wait(PATIENCE_S) == 0
    assert hostiles.descendants(process) == 1
    assert process.sweep() == 1
    assert not hostiles.alive()


def test_a_session_of_its_own_is_swept(hostiles):
    process = hostiles.sh("setsid sleep $T & echo ready")
    assert process.wait(PATIENCE_S) == 0
    hostiles.until_apart(wiped=False)
    assert process.sweep() == 1
    assert not hostiles.alive()


def test_a_wiped_environment_is_swept_by_a_subreaper(hostiles, subreaper):
    process = hostiles.sh("env -i setsid sleep $T & echo ready")
    assert process.wait(PATIENCE_S) == 0
    hostiles.until_apart(wiped=True)
    assert process.sweep() == 1
    assert not hostiles.alive()


def test_a_wiped_environment_is_swept_without_a_subreaper_once_seen(hostiles):
    process = hostiles.sh("env -i setsid sleep $T & echo ready; while [ ! -e go ]; do sleep 0.01; done")
    hostiles.until_apart(wiped=True)
    assert hostiles.descendants(process) >= 1
    (hostiles.tmp_path / "go").touch()
    assert process.wait(PATIENCE_S) == 0
    assert hostiles.descendants(process) == 1
    assert process.sweep() == 1
    assert not hostiles.alive()


def test_a_wiped_environment_is_found_by_the_session_of_a_relative(hostiles):
    inner = "(env -i sleep $T &) ; echo ready; exec sleep $T"
    process = hostiles.sh(f"setsid sh -c '{inner}' & wait")
    hostiles.until(lambda: sum(b"MUSTER_MARK" not in environ for environ in hostiles.environments()) == 1)
    process.kill()
    assert not hostiles.alive()


def test_zombies_of_adopted_orphans_are_reaped_on_the_way(hostiles, subreaper):
    process = hostiles.sh("(setsid true &) ; echo ready; exec sleep $T")
    hostiles.until(lambda: [proc for proc in adopted_orphans({process.pid}) if proc.gone])
    assert hostiles.descendants(process) == 0
    assert adopted_orphans({process.pid}) == []
    process.kill()


def test_an_orphan_without_a_trace_waits_for_the_last_tree_that_may_own_it(hostiles, subreaper):
    first = hostiles.sh("echo ready; sleep $T", name="1")
    second = hostiles.sh("env -i setsid sleep $T & echo ready", name="2")
    assert second.wait(PATIENCE_S) == 0
    hostiles.until_apart(wiped=True)
    assert second.sweep() == 0
    hostiles.until_apart(wiped=True)
    first.kill()
    assert not hostiles.alive()


def test_an_orphan_older_than_the_other_trees_has_one_owner(hostiles, subreaper):
    first = hostiles.sh("env -i setsid sleep $T & echo ready", name="1")
    assert first.wait(PATIENCE_S) == 0
    hostiles.until_apart(wiped=True)
    # Start times are in ticks of 10 ms.
    time.sleep(0.05)
    second = hostiles.sh("echo ready; sleep $T", name="2")
    assert first.sweep() == 1
    assert second.poll() is None
    second.kill()


def test_two_trees_do_not_hurt_each_other(hostiles, subreaper):
    first = hostiles.start("sleep", hostiles.token, name="1")
    second = hostiles.sh("setsid sleep $T & echo ready; sleep $T", name="2")
    hostiles.until(lambda: hostiles.descendants(second) >= 2)
    assert first.kill() == -signal.SIGKILL
    assert second.poll() is None and hostiles.descendants(second) == 2
    second.kill()


def test_a_child_of_the_worker_that_is_no_orphan_is_left_alone(hostiles, subreaper):
    helper = subprocess.Popen(["sleep", "1000"])
    process = hostiles.start("sleep", hostiles.token)
    process.kill()
    assert helper.poll() is None
    helper.kill()
    helper.wait()


def test_many_threads_start_and_sweep_at_once(hostiles, subreaper):
    codes: list[int | None] = []

    def run(slot: int) -> None:
        for turn in range(5):
            name = f"{slot}-{turn}"
            process = hostiles.start(
                "sh", "-c", f"(setsid sleep {hostiles.token} &) ; exit {slot + 1}", name=name
            )
            codes.append(process.wait(PATIENCE_S))
            process.sweep()

    threads = [threading.Thread(target=run, args=(slot,)) for slot in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(codes) == sorted([slot + 1 for slot in range(4)] * 5)
    assert not hostiles.alive()


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
def test_the_ladder_ends_at_the_rung_that_works(hostiles, handlers, steps, code):
    process = hostiles.python(DIE_ON.format(handlers=handlers))
    grace_s = 0.2 if code == -9 else PATIENCE_S if code == 2 else 0.5
    assert stop(process, grace_s) == (steps, code)
    assert process.poll() == code


def test_who_takes_no_interrupt_is_terminated_at_once(hostiles):
    argv = (sys.executable, "-S", "-E", "-c", DIE_ON.format(handlers="signal.signal(signal.SIGTERM, end)"))
    launch = Launch(argv=argv, env={"PATH": os.environ["PATH"]}, cwd=hostiles.tmp_path, interrupts=False)
    process = hostiles.launcher.start(launch, hostiles.folder(), mark=hostiles.mark_of("1"))
    hostiles.until_said("ready")
    assert stop(process, HOURS_S) == (["terminate"], 15)


def test_no_rung_is_taken_once_all_have_ended(hostiles):
    process = hostiles.start("true")
    assert process.wait(PATIENCE_S) == 0
    assert process.stop(grace_s=PATIENCE_S, on_step=no_step) == 0


def test_the_ladder_goes_on_for_the_group_when_the_root_has_ended(hostiles):
    process = hostiles.sh("(trap '' INT; echo ready; exec sleep $T) & exec sleep $T")
    steps, code = stop(process, 0.3)
    assert (steps, code) == (["interrupt", "terminate"], -signal.SIGINT)


def test_a_survivor_outside_the_group_does_not_cost_the_grace(hostiles):
    process = hostiles.sh("setsid sleep $T & echo ready; exec sleep $T")
    hostiles.until_apart(wiped=False)
    assert stop(process, HOURS_S) == (["interrupt"], -signal.SIGINT)
    assert not hostiles.alive()


def test_a_stopped_process_obeys_the_interrupt(hostiles):
    process = hostiles.start("sleep", hostiles.token)
    os.kill(process.pid, signal.SIGSTOP)
    assert stop(process, PATIENCE_S) == (["interrupt"], -signal.SIGINT)


def test_kill_takes_the_whole_tree_at_once(hostiles):
    process = hostiles.sh("setsid sleep $T & sleep $T & env -i setsid sleep $T & echo ready; sleep $T")
    hostiles.until(lambda: len(hostiles.alive()) == 5)
    hostiles.until_apart(wiped=True)
    assert process.kill() == -signal.SIGKILL
    assert not hostiles.alive()
    assert process.kill() == -signal.SIGKILL
