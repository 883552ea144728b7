"""What the kernel says about processes that it has killed for want of memory."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from muster.hosts.oom import OomEvidence, oom_kills
from patience import PATIENCE_S

MB = 1 << 20
GREEDY = f"{sys.executable} -S -E -c 'bytearray({300 * MB})'"
V1, V2 = Path("/sys/fs/cgroup/memory"), Path("/sys/fs/cgroup")
MEMORY = {V1: "memory.limit_in_bytes", V2: "memory.max"}


def group(name: str, size: int) -> Path:
    """A cgroup of that much memory.  Raises OSError where we may not make one."""
    for top in (V2, V1):
        place = top / name
        try:
            place.mkdir()
            with (place / MEMORY[top]).open("r+") as limit:  # which is the kernel's, or is not there
                limit.write(str(size))
        except OSError:
            if place.is_dir():
                place.rmdir()
            continue
        return place
    raise OSError("no cgroup can be made here")


@pytest.fixture
def small(hostiles) -> Iterator[Path]:
    """A real cgroup of 32 MB, of the version that this host has."""
    try:
        place = group(f"muster-test-{os.getpid()}", 32 * MB)
    except OSError as error:
        pytest.skip(str(error))
    yield place
    hostiles.kill_leftovers()
    hostiles.until(lambda: not (place / "cgroup.procs").read_text())
    place.rmdir()


def greedy(hostiles, place: Path, then: str = ""):
    """A process that has moved into the cgroup and is to be killed there; it waits for the file `go`."""
    return hostiles.sh(
        f"echo $$ > {place}/cgroup.procs; echo ready; while [ ! -e go ]; do sleep 0.02; done; {then}{GREEDY}"
    )


def test_the_count_of_its_own_cgroup_is_evidence(hostiles, small, tmp_path):
    """Whatever the log says: on many hosts it is closed to us."""
    witness = OomEvidence(kernel_log=tmp_path / "absent")
    process = greedy(hostiles, small, "exec ")
    witness.look(process.pid)
    (tmp_path / "go").touch()
    assert process.wait(PATIENCE_S) == -signal.SIGKILL
    assert "killed by the kernel (cgroup memory." in witness.evidence({process.pid})
    late = OomEvidence(kernel_log=tmp_path / "absent")
    assert late.evidence({process.pid}) == "", "it counts from its own beginning"
    process.sweep()


def test_the_kernels_log_names_the_process(hostiles, small):
    if not os.access("/dev/kmsg", os.R_OK):
        pytest.skip("the kernel's log is closed to us")
    process = greedy(hostiles, small, "exec ")
    (hostiles.tmp_path / "go").touch()
    assert process.wait(PATIENCE_S) == -signal.SIGKILL
    said = f"process {process.pid} was killed by the kernel (kernel log: Memory cgroup out of memory)"
    hostiles.until(lambda: process.starved() == said)
    process.sweep()
    assert process.starved() == said, "also after the sweep"


def test_a_child_that_was_killed_is_one_of_the_tree(hostiles, small):
    process = greedy(hostiles, small, "")
    process.usage()
    (hostiles.tmp_path / "go").touch()
    assert process.wait(PATIENCE_S) == 137, "a shell says so of what it has started"
    assert "killed by the kernel" in process.starved()
    process.sweep()


def test_a_kill_from_outside_is_none(hostiles):
    process = hostiles.sh("echo ready; exec sleep $T")
    before = oom_kills()
    os.kill(process.pid, signal.SIGKILL)
    assert process.wait(PATIENCE_S) == -signal.SIGKILL
    assert process.starved() == "" or oom_kills() != before, "the host itself was out of memory meanwhile"
    process.sweep()


# What other hosts and containers look like


class Host:
    """A /proc and a kernel log as other hosts show them."""

    def __init__(self, folder: Path) -> None:
        self.proc = folder / "proc"
        self.log = folder / "kmsg"
        self.log.touch()
        (self.proc / "self" / "ns").mkdir(parents=True)
        (self.proc / "7").mkdir()
        (self.proc / "vmstat").write_text("pgfault 1\noom_kill 3\n")
        self.mounts("")

    def mounts(self, text: str) -> None:
        (self.proc / "self" / "mountinfo").write_text(text)

    def place(self, text: str) -> None:
        (self.proc / "7" / "cgroup").write_text(text)

    def witness(self) -> OomEvidence:
        return OomEvidence(self.proc, self.log)


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


def counting(folder: Path, name: str, count: int) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(f"max 0\noom 9\noom_kill {count}\n")


@pytest.mark.parametrize(
    ("mount", "place", "file"),
    [
        ("31 24 0:27 / {} rw shared:9 - cgroup2 cgroup2 rw,nsdelegate", "0::/user/x", "user/x/memory.events"),
        ("31 24 0:27 / {} rw - cgroup cgroup rw,memory", "4:memory:/user/x", "user/x/memory.oom_control"),
        ("31 24 0:27 / {} rw - cgroup cgroup rw,cpu,memory", "4:cpu,memory:/x", "x/memory.oom_control"),
        # A container without a cgroup namespace: its list names the host's place, its mount begins there.
        ("31 24 0:27 /docker/c1 {} ro - cgroup2 cgroup rw", "0::/docker/c1", "memory.events"),
        ("31 24 0:27 /docker/c1 {} ro - cgroup2 cgroup rw", "0::/docker/c1/in", "in/memory.events"),
    ],
)
def test_each_version_of_cgroups_is_read_where_it_is_mounted(host, tmp_path, mount, place, file):
    top = tmp_path / "my groups"
    counter = top / file
    counting(counter.parent, counter.name, 4)
    host.mounts(mount.format(str(top).replace(" ", "\\040")) + "\n30 1 0:1 / / rw - ext4 /dev/vda rw\n")
    host.place(f"9:name=systemd:/\n8:pids:/elsewhere\n{place}\n")
    witness = host.witness()
    witness.look(7)
    assert witness.evidence({7}) == "", "what was counted before is not ours"
    counting(counter.parent, counter.name, 5)
    assert witness.evidence({7}) == f"killed by the kernel (cgroup {counter.name})"


def test_a_place_outside_of_the_mount_is_not_ours(host, tmp_path):
    counting(tmp_path / "top", "memory.events", 0)
    host.mounts(f"31 24 0:27 /docker/c1 {tmp_path}/top ro - cgroup2 cgroup rw\n")
    host.place("0::/docker/c11\n")
    witness = host.witness()
    witness.look(7)
    counting(tmp_path / "top", "memory.events", 1)
    assert witness.evidence({7}) == ""


def test_it_is_looked_for_where_the_process_has_moved_to(host, tmp_path):
    host.mounts(f"31 24 0:27 / {tmp_path}/top rw - cgroup2 cgroup2 rw\n")
    for name in ("a", "b"):
        counting(tmp_path / "top" / name, "memory.events", 0)
    witness = host.witness()
    for place in ("0::/a\n", "0::/b\n", "0::/gone\n"):
        host.place(place)
        witness.look(7)
    (host.proc / "7" / "cgroup").unlink()
    witness.look(7)
    counting(tmp_path / "top" / "b", "memory.events", 1)
    assert "cgroup memory.events" in witness.evidence({7})


def test_the_host_as_a_whole_is_the_last_witness(host):
    witness = host.witness()
    assert witness.evidence({7}) == ""
    (host.proc / "vmstat").write_text("oom_kill 4\n")
    assert witness.evidence({7}) == "killed while the host was out of memory (oom_kill in /proc/vmstat)"
    (host.proc / "vmstat").unlink()
    assert oom_kills(host.proc) is None and witness.evidence({7}) == ""


def test_who_was_killed_on_this_host_meanwhile_was_somebody_else_where_our_own_cgroup_counts(host, tmp_path):
    host.mounts(f"31 24 0:27 / {tmp_path}/top rw - cgroup2 cgroup2 rw\n")
    counting(tmp_path / "top" / "a", "memory.events", 2)
    host.place("0::/a\n")
    witness = host.witness()
    witness.look(7)
    (host.proc / "vmstat").write_text("oom_kill 4\n")
    assert witness.evidence({7}) == ""


def test_who_was_killed_on_this_host_meanwhile_was_somebody_else_where_the_log_is_open(host, monkeypatch):
    (host.proc / "self" / "ns" / "pid").hardlink_to(host.log)
    monkeypatch.setattr("muster.hosts.oom._HOST_PIDS", host.log.stat().st_ino)
    witness = host.witness()
    (host.proc / "vmstat").write_text("oom_kill 4\n")
    assert witness.evidence({7}) == ""


KILLED = "Memory cgroup out of memory: Killed process 7 (python3) total-vm:1kB, anon-rss:1kB\n"


@pytest.mark.parametrize(
    ("priority", "age_s", "text", "found"),
    [
        (3, 0, KILLED, "Memory cgroup out of memory"),
        (3, 0, KILLED.replace("Memory cgroup out", "Out"), "Out of memory"),
        (3, 0, KILLED.replace("process 7", "process 77"), ""),
        (3, 60, KILLED, ""),
        (11, 0, KILLED, ""),
        (3, 0, "oom_reaper: reaped process 7 (python3)\n", ""),
    ],
    ids=["cgroup", "host", "another", "before", "written by a program", "another line"],
)
def test_only_what_the_kernel_said_of_us_and_now_counts(host, monkeypatch, priority, age_s, text, found):
    (host.proc / "self" / "ns" / "pid").hardlink_to(host.log)
    monkeypatch.setattr("muster.hosts.oom._HOST_PIDS", host.log.stat().st_ino)
    monkeypatch.setattr("muster.hosts.oom._RECORD_BYTES", len(text) + 64)
    witness = host.witness()
    head = f"{priority},900,{int((time.monotonic() - age_s) * 1e6)},-;"
    host.log.write_text(head + text)
    said = witness.evidence({7})
    assert (f"(kernel log: {found})" in said) if found else said == ""


def test_a_log_of_other_pids_than_ours_is_not_read(host):
    """In a container a number means another process."""
    (host.proc / "self" / "ns" / "pid").touch()
    host.log.write_text(f"3,1,{int(time.monotonic() * 1e6)},-;{KILLED}")
    assert host.witness().evidence({7}) == ""
