"""What is remembered of an attempt's processes, for after a crash of its worker."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from msgspec.structs import replace

from muster.hosts.local_host import LocalHost
from muster.hosts.process import kill_recorded
from muster.hosts.process_tree import Record
from muster.ports.host import ProcessId
from patience import PATIENCE_S


def record_of(
    hostiles, *members: ProcessId, holder: ProcessId | None = None, boot_id: str | None = None
) -> Record:
    return Record(
        boot_id=boot_id or hostiles.host.boot_id,
        holder=holder or ProcessId(2**22 - 1, 1),
        mark=hostiles.mark,
        members=frozenset(members),
    )


def test_the_record_names_the_holder_and_the_living_and_goes_with_the_tree(hostiles):
    process = hostiles.sh("setsid sleep $T & echo ready; sleep $T")
    hostiles.until(lambda: hostiles.descendants(process) == 2)
    pids = hostiles.folder().path / "pids"
    record = Record.load(pids)
    assert record is not None
    assert record.boot_id == hostiles.host.boot_id
    assert record.holder == hostiles.host.identify(os.getpid())
    assert record.members == frozenset(hostiles.alive())
    assert pids.stat().st_mode & 0o777 == 0o600
    assert kill_recorded(hostiles.tmp_path / "attempts", hostiles.host) == 0, "its worker lives"
    assert process.poll() is None
    process.kill()
    assert not pids.exists()


def test_the_tree_of_a_dead_worker_is_killed_by_its_record(hostiles):
    code = (
        "import os, pathlib, sys, time\n"
        "from muster.hosts.process import LocalLauncher\n"
        "from muster.ports.agent import AttemptFolder, Launch\n"
        "place = pathlib.Path(sys.argv[1])\n"
        "argv = ('sh', '-c', sys.argv[2])\n"
        "launch = Launch(argv=argv, env=dict(os.environ), cwd=place)\n"
        "process = LocalLauncher().start(launch, AttemptFolder(path=place), mark=sys.argv[3])\n"
        "while process.usage().processes != 3: time.sleep(0.01)\n"
        "os._exit(0)\n"
    )
    # `env -i` in place of the shell as well: the mark finds none of them.
    script = f"env -i setsid sleep {hostiles.token} & exec env -i sh -c 'sleep {hostiles.token} & wait'"
    subprocess.run(
        [sys.executable, "-c", code, str(hostiles.folder().path), script, "MUSTER_MARK=none"], check=True
    )
    hostiles.until(lambda: len(hostiles.alive()) == 3)
    assert kill_recorded(hostiles.tmp_path / "attempts", hostiles.host) == 3
    assert not hostiles.alive()
    assert kill_recorded(hostiles.tmp_path / "attempts", hostiles.host) == 0


def test_a_record_never_kills_a_reused_pid_or_another_boot(hostiles):
    process = hostiles.start("sleep", hostiles.token)
    real = hostiles.host.identify(process.pid)
    assert real is not None
    fake = ProcessId(real.pid, real.start - 1)
    other = replace(record_of(hostiles, fake), mark="MUSTER_MARK=other")
    other.save(hostiles.folder("2").path / "pids")
    record_of(hostiles, real, boot_id="another").save(hostiles.folder("3").path / "pids")
    assert kill_recorded(hostiles.tmp_path / "attempts", hostiles.host) == 0
    assert process.poll() is None
    assert not (hostiles.folder("2").path / "pids").exists()
    assert not (hostiles.folder("3").path / "pids").exists()
    process.kill()


@pytest.mark.parametrize("content", [b"", b"boot x\nholder 1\n", b"\xff\xfe", b"a\nb\nc\nd"])
def test_a_broken_record_is_skipped(hostiles, content, caplog):
    (hostiles.folder().path / "pids").write_bytes(content)
    assert kill_recorded(hostiles.tmp_path / "attempts", hostiles.host) == 0
    assert "cannot read" in caplog.text


def test_a_broken_record_is_told_once_and_not_at_each_sweep(hostiles, caplog):
    first, second = hostiles.folder().path / "pids", hostiles.folder("2").path / "pids"

    def told_by_sweeps() -> list[str]:
        caplog.clear()
        for _ in range(3):
            kill_recorded(hostiles.tmp_path / "attempts", hostiles.host)
        return [str(record.args[0]) for record in caplog.records]

    first.write_text("nonsense")
    assert told_by_sweeps() == [str(first)]
    second.write_text("nonsense")
    assert told_by_sweeps() == [str(second)]
    record_of(hostiles, holder=hostiles.host.identify(os.getpid())).save(first)
    assert told_by_sweeps() == []
    first.write_text("nonsense again")
    assert told_by_sweeps() == [str(first)]
    first.unlink()
    assert (Record.load(first), told_by_sweeps()) == (None, []), "gone is not broken"


def test_a_record_of_before_the_first_release_is_one_of_its_folder(hostiles):
    """It names no project: what a store of then has left at work ends before its task is given out again."""
    process = hostiles.sh("echo ready; sleep $T")
    members, path = hostiles.alive(), hostiles.folder("2").path / "pids"
    record_of(hostiles, *members).save(path)
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(line for line in lines if not line.startswith("project ")))
    assert kill_recorded(hostiles.tmp_path / "attempts", LocalHost("any")) == len(members)
    assert not path.exists() and process.wait(PATIENCE_S)
    process.kill()


def test_a_record_with_an_empty_mark_kills_nobody(hostiles):
    replace(record_of(hostiles), mark="").save(hostiles.folder().path / "pids")
    assert kill_recorded(hostiles.tmp_path / "attempts", hostiles.host) == 0


def test_a_run_goes_on_when_its_record_cannot_be_written(hostiles, caplog):
    (hostiles.folder().path / "pids.new").mkdir()
    process = hostiles.start("true")
    assert process.wait(PATIENCE_S) == 0
    process.sweep()
    assert "cannot record" in caplog.text


def test_a_copied_record_is_no_word_on_the_processes_of_its_original(hostiles):
    process = hostiles.sh("echo ready; sleep $T")
    record = record_of(hostiles, *hostiles.alive())
    path = hostiles.folder("2").path / "pids"
    replace(record, project="original").save(path)
    assert kill_recorded(hostiles.tmp_path / "attempts", hostiles.host) == 0
    assert not path.exists() and process.poll() is None
    process.kill()
