"""The host's processes: identity, marks, and killing that hits nobody else."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from muster.hosts import local_host as host_module
from muster.hosts import process_table
from muster.hosts.local_host import (
    LocalHost,
    adopted_orphans,
    become_subreaper,
    kill_all,
    reap_zombies,
)
from muster.hosts.process_table import read_proc, send, wait_for_ends
from muster.ports.host import Host, ProcessId
from patience import HOURS_S


def spawn(*argv: str, mark: str | None = None, **options: object) -> subprocess.Popen[bytes]:
    env = {"PATH": os.environ["PATH"]}
    if mark:
        name, _, value = mark.partition("=")
        env[name] = value
    return subprocess.Popen(argv, env=env, stdin=subprocess.DEVNULL, **options)


def end(*children: subprocess.Popen[bytes]) -> None:
    for child in children:
        child.kill()
        child.wait()


def test_it_is_a_host_that_knows_itself():
    host: Host = LocalHost()
    assert host.hostname == os.uname().nodename
    assert host.boot_id == Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    me = host.identify(os.getpid())
    assert me is not None and host.alive(me)
    assert not host.alive(ProcessId(me.pid, me.start + 1))


@pytest.mark.parametrize("told", [True, False], ids=["the kernel tells", "it is looked at"])
def test_ends_are_waited_for(hostiles, monkeypatch, told):
    if not told:
        monkeypatch.setattr(process_table, "open_pidfd", lambda pid: None)
    child, other = spawn("sleep", "600"), spawn("sleep", "600")
    ending, left = (hostiles.host.identify(one.pid) for one in (child, other))
    child.kill()
    assert wait_for_ends({ending}, within_s=HOURS_S) == set()
    assert wait_for_ends({ending, left}, within_s=0.01) == {left}
    assert wait_for_ends({left._replace(start=left.start + 1)}, within_s=HOURS_S) == set()
    end(child, other)


def test_a_zombie_counts_as_gone(hostiles):
    child = spawn("true")
    hostiles.until(lambda: Path(f"/proc/{child.pid}/stat").read_text().split()[2] == "Z")
    assert hostiles.host.identify(child.pid) is None
    row = read_proc(child.pid)
    assert row is not None and row.gone and not hostiles.host.alive(row.id)
    child.wait()
    assert read_proc(child.pid) is None


def test_a_process_whose_main_thread_alone_has_ended_is_alive(hostiles):
    script = (
        "import ctypes, threading, time\n"
        "threading.Thread(target=time.sleep, args=(1000,)).start()\n"
        "ctypes.CDLL(None).pthread_exit(None)"
    )
    child = spawn(sys.executable, "-S", "-E", "-c", script, mark=hostiles.mark)
    hostiles.until(lambda: Path(f"/proc/{child.pid}/stat").read_text().split()[2] == "Z")
    assert hostiles.host.identify(child.pid) is not None
    end(child)


def test_a_name_full_of_parentheses_and_spaces_is_parsed(hostiles, tmp_path):
    binary = tmp_path / "a) S 1 (b c"
    binary.symlink_to("/usr/bin/sleep")
    child = spawn(str(binary), hostiles.token)
    hostiles.until(lambda: b"a) S 1" in Path(f"/proc/{child.pid}/stat").read_bytes())
    row = read_proc(child.pid)
    assert row is not None and row.ppid == os.getpid() and not row.gone
    end(child)


def test_marks_match_whole_entries_only(hostiles):
    exact = spawn("sleep", hostiles.token, mark=hostiles.mark)
    longer = spawn("sleep", hostiles.token, mark=hostiles.mark + "1")
    other_name = spawn("sleep", hostiles.token, mark="X" + hostiles.mark)
    absent = hostiles.mark[:-1]
    found = hostiles.host.marked([hostiles.mark, absent])
    assert [process.pid for process in found[hostiles.mark]] == [exact.pid]
    assert found[absent] == []
    end(exact, longer, other_name)


def test_an_empty_mark_matches_nothing(hostiles):
    child = spawn("sleep", hostiles.token, mark=hostiles.mark)
    assert hostiles.host.marked([""]) == {"": []}
    assert hostiles.host.kill_marked([""]) == 0
    assert hostiles.host.kill_marked([]) == 0
    assert child.poll() is None
    end(child)


def test_kill_marked_takes_descendants_without_the_mark(hostiles):
    child = spawn("sh", "-c", f"env -i setsid sleep {hostiles.token} & wait", mark=hostiles.mark)
    bystander = spawn("sleep", hostiles.token)
    hostiles.until(lambda: len(hostiles.alive()) == 3)
    assert hostiles.host.kill_marked([hostiles.mark]) == 2
    assert [process.pid for process in hostiles.alive()] == [bystander.pid]
    assert child.wait() == -signal.SIGKILL
    end(bystander)


def test_marks_of_another_project_are_not_ours(hostiles):
    ours, theirs = LocalHost("ours"), LocalHost("theirs")
    env = {"PATH": os.environ["PATH"], hostiles.mark.partition("=")[0]: hostiles.mark.partition("=")[2]}
    children = [
        subprocess.Popen(["sleep", hostiles.token], env=env | host.project_marks) for host in (ours, theirs)
    ]
    hostiles.until(lambda: len(hostiles.alive()) == 2)
    assert [process.pid for process in ours.marked([hostiles.mark])[hostiles.mark]] == [children[0].pid]
    assert ours.kill_marked([hostiles.mark]) == 1
    assert children[0].wait() == -signal.SIGKILL
    assert children[1].poll() is None
    end(*children)


def test_kill_marked_by_another_process(hostiles):
    child = spawn("sh", "-c", f"sleep {hostiles.token} & sleep {hostiles.token}", mark=hostiles.mark)
    hostiles.until(lambda: len(hostiles.alive()) == 3)
    code = (
        f"from muster.hosts.local_host import LocalHost; print(LocalHost().kill_marked(['{hostiles.mark}']))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert done.stdout.strip() == b"3", done.stderr
    assert child.wait() == -signal.SIGKILL


def test_kill_marked_spares_its_caller_the_ancestors_and_their_other_children(hostiles):
    code = (
        "import os, subprocess\n"
        "from muster.hosts.local_host import LocalHost\n"
        f"plain = subprocess.Popen(['sleep', '{hostiles.token}'], env={{'PATH': os.environ['PATH']}})\n"
        f"marked = subprocess.Popen(['sleep', '{hostiles.token}'])\n"
        f"print(LocalHost().kill_marked(['{hostiles.mark}']), marked.wait(), plain.poll(), flush=True)\n"
        "plain.kill(); plain.wait()"
    )
    # The shell is marked as well: an ancestor of the caller.
    argv = ["sh", "-c", f'{shlex.quote(sys.executable)} -c "$CODE"; echo shell lives']
    name, _, value = hostiles.mark.partition("=")
    env = {"PATH": os.environ["PATH"], "CODE": code, "PYTHONPATH": os.pathsep.join(sys.path), name: value}
    done = subprocess.run(argv, capture_output=True, env=env, check=True)
    assert done.stdout.decode().splitlines() == ["1 -9 None", "shell lives"], done.stderr


def test_kill_marked_wins_against_a_process_that_keeps_forking(hostiles):
    # A comet: each generation starts the next one in a new session and leaves.
    comet = 'echo x >> "$LOG"; sleep 0.01; setsid sh -c "$COMET" &'
    name, _, value = hostiles.mark.partition("=")
    trail = hostiles.tmp_path / "trail"
    env = {"PATH": os.environ["PATH"], "COMET": comet, "LOG": str(trail), name: value}
    child = subprocess.Popen(["sh", "-c", comet], env=env)
    hostiles.until(lambda: trail.exists() and len(trail.read_text()) > 10)
    hostiles.until(lambda: hostiles.host.kill_marked([hostiles.mark]) >= 1)
    hostiles.until(lambda: not hostiles.alive())
    child.wait()


def test_a_reused_pid_is_not_signalled(hostiles, monkeypatch):
    child = spawn("sleep", hostiles.token)
    real = hostiles.host.identify(child.pid)
    assert real is not None
    fake = ProcessId(real.pid, real.start - 1)
    assert send(fake, signal.SIGKILL) is False
    monkeypatch.setattr(process_table, "open_pidfd", lambda pid: None)
    assert send(fake, signal.SIGKILL) is False
    assert hostiles.host.alive(real)
    assert send(real, signal.SIGKILL) is True
    assert child.wait() == -signal.SIGKILL
    assert send(real, signal.SIGKILL) is False


def test_nothing_ever_kills_the_caller_or_its_ancestors():
    rows = [row for pid in (os.getpid(), os.getppid(), 1) if (row := read_proc(pid))]
    assert kill_all(lambda: rows, lambda born: False) == set()


def test_all_are_stopped_before_any_is_killed(hostiles, monkeypatch):
    children = [spawn("sleep", hostiles.token, mark=hostiles.mark) for _ in range(3)]
    sent = []

    def note(process: ProcessId, number: int) -> bool:
        sent.append(number)
        return send(process, number)

    monkeypatch.setattr(host_module, "send", note)
    assert hostiles.host.kill_marked([hostiles.mark]) == 3
    assert sent == [signal.SIGSTOP] * 3 + [signal.SIGKILL] * 3
    end(*children)


def test_what_may_not_be_killed_is_given_up(hostiles, monkeypatch, caplog):
    child = spawn("sleep", hostiles.token, mark=hostiles.mark)

    def refuse(process: ProcessId, number: int) -> bool:
        raise PermissionError

    monkeypatch.setattr(host_module, "send", refuse)
    assert hostiles.host.kill_marked([hostiles.mark]) == 0
    assert f"cannot kill processes [{child.pid}]" in caplog.text
    end(child)


def test_a_subreaper_adopts_orphans_and_reaps_only_those(hostiles, subreaper):
    known = spawn("true", start_new_session=True)
    own = spawn("true")
    parent = spawn("setsid", "sh", "-c", f"sleep {hostiles.token} & sleep 0.01 & exit 0")
    parent.wait()
    orphans = lambda: adopted_orphans({known.pid})  # noqa: E731
    hostiles.until(lambda: [proc.gone for proc in orphans()].count(True) == 1)
    hostiles.until(lambda: sum(proc.gone for proc in orphans()) == 1 and len(orphans()) == 2)
    assert reap_zombies(orphans()) == 1
    sleeper = [proc for proc in orphans() if not proc.gone]
    assert len(sleeper) == 1 and sleeper[0].id in hostiles.alive()
    assert send(sleeper[0].id, signal.SIGKILL)
    hostiles.until(lambda: reap_zombies(orphans()) == 1)
    assert (known.wait(), own.wait()) == (0, 0)


@pytest.mark.parametrize("name", ["LINUX"])
def test_other_systems_answer_through_psutil(hostiles, monkeypatch, name):
    child = spawn("sleep", hostiles.token, mark=hostiles.mark)
    monkeypatch.setattr(process_table, name, False)
    monkeypatch.setattr(host_module, name, False)
    host = LocalHost()
    hostiles.until(
        lambda: [process.pid for process in host.marked([hostiles.mark])[hostiles.mark]] == [child.pid]
    )
    process = host.identify(child.pid)
    assert process is not None and host.alive(process)
    assert host.boot_id
    assert become_subreaper() is False
    assert host.kill_marked([hostiles.mark]) == 1
    assert host.identify(child.pid) is None
    assert child.wait() == -signal.SIGKILL


@pytest.mark.skipif(sys.platform != "linux", reason="the C library of Linux gives memory back")
def test_what_was_freed_goes_back_to_the_host() -> None:
    """The last piece stays: it keeps the C library from giving back all below it by itself."""
    script = """
from muster.hosts.local_host import give_back_memory

def resident_kb():
    return int(open("/proc/self/statm").read().split()[1]) * 4

pieces = [bytes(2000) for _ in range(20_000)]
last = pieces[-1]
del pieces
before_kb = resident_kb()
give_back_memory()
print(before_kb - resident_kb())
"""
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert int(ran.stdout) > 20_000
