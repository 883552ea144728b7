"""What is remembered of an attempt's processes, for after a crash of its worker."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from muster.agents.process import kill_recorded
from muster.agents.tree import Record
from muster.ports.host import ProcessId


def record_of(
    zoo, *members: ProcessId, holder: ProcessId | None = None, boot_id: str | None = None
) -> Record:
    return Record(
        boot_id=boot_id or zoo.host.boot_id,
        holder=holder or ProcessId(2**22 - 1, 1),
        mark=zoo.mark,
        members=frozenset(members),
    )


def test_the_record_names_the_holder_and_the_living_and_goes_with_the_tree(zoo):
    process = zoo.sh("setsid sleep $T & echo ready; sleep $T")
    zoo.until(lambda: process.descendants() == 2)
    pids = zoo.folder().path / "pids"
    record = Record.load(pids)
    assert record is not None
    assert record.boot_id == zoo.host.boot_id
    assert record.holder == zoo.host.identify(os.getpid())
    assert record.members == frozenset(zoo.alive())
    assert pids.stat().st_mode & 0o777 == 0o600
    assert kill_recorded(zoo.tmp_path / "attempts", zoo.host) == 0, "its worker lives"
    assert process.poll() is None
    process.kill()
    assert not pids.exists()


def test_the_tree_of_a_dead_worker_is_killed_by_its_record(zoo):
    code = (
        "import os, pathlib, sys, time\n"
        "from muster.agents.process import LocalLauncher\n"
        "from muster.ports.agent import AttemptFolder, Launch\n"
        "place = pathlib.Path(sys.argv[1])\n"
        "argv = ('sh', '-c', sys.argv[2])\n"
        "launch = Launch(argv=argv, env=dict(os.environ), cwd=place)\n"
        "process = LocalLauncher().start(launch, AttemptFolder(path=place), mark=sys.argv[3])\n"
        "while process.descendants() != 2: time.sleep(0.01)\n"
        "os._exit(0)\n"
    )
    # `env -i` in place of the shell as well: the mark finds none of them.
    script = f"env -i setsid sleep {zoo.token} & exec env -i sh -c 'sleep {zoo.token} & wait'"
    subprocess.run(
        [sys.executable, "-c", code, str(zoo.folder().path), script, "MUSTER_MARK=none"], check=True
    )
    zoo.until(lambda: len(zoo.alive()) == 3)
    assert kill_recorded(zoo.tmp_path / "attempts", zoo.host) == 3
    assert not zoo.alive()
    assert kill_recorded(zoo.tmp_path / "attempts", zoo.host) == 0


def test_a_record_never_kills_a_reused_pid_or_another_boot(zoo):
    process = zoo.start("sleep", zoo.token)
    real = zoo.host.identify(process.pid)
    assert real is not None
    fake = ProcessId(real.pid, real.start - 1)
    other = Record(**{**vars(record_of(zoo, fake)), "mark": "MUSTER_MARK=other"})
    other.save(zoo.folder("2").path / "pids")
    record_of(zoo, real, boot_id="another").save(zoo.folder("3").path / "pids")
    assert kill_recorded(zoo.tmp_path / "attempts", zoo.host) == 0
    assert process.poll() is None
    assert not (zoo.folder("2").path / "pids").exists()
    assert not (zoo.folder("3").path / "pids").exists()
    process.kill()


@pytest.mark.parametrize("content", [b"", b"boot x\nholder 1\n", b"\xff\xfe", b"a\nb\nc\nd"])
def test_a_broken_record_is_skipped(zoo, content, caplog):
    (zoo.folder().path / "pids").write_bytes(content)
    assert kill_recorded(zoo.tmp_path / "attempts", zoo.host) == 0
    assert "cannot read" in caplog.text


def test_a_broken_record_is_told_once_and_not_at_each_sweep(zoo, caplog):
    first, second = zoo.folder().path / "pids", zoo.folder("2").path / "pids"

    def told_by_sweeps() -> list[str]:
        caplog.clear()
        for _ in range(3):
            kill_recorded(zoo.tmp_path / "attempts", zoo.host)
        return [str(record.args[0]) for record in caplog.records]

    first.write_text("nonsense")
    assert told_by_sweeps() == [str(first)]
    second.write_text("nonsense")
    assert told_by_sweeps() == [str(second)]
    record_of(zoo, holder=zoo.host.identify(os.getpid())).save(first)
    assert told_by_sweeps() == []
    first.write_text("nonsense again")
    assert told_by_sweeps() == [str(first)]
    first.unlink()
    assert (Record.load(first), told_by_sweeps()) == (None, []), "gone is not broken"


def test_a_record_with_an_empty_mark_kills_nobody(zoo):
    Record(**{**vars(record_of(zoo)), "mark": ""}).save(zoo.folder().path / "pids")
    assert kill_recorded(zoo.tmp_path / "attempts", zoo.host) == 0


def test_a_run_goes_on_when_its_record_cannot_be_written(zoo, caplog):
    (zoo.folder().path / "pids.new").mkdir()
    process = zoo.start("true")
    assert process.wait(20) == 0
    process.sweep()
    assert "cannot record" in caplog.text
