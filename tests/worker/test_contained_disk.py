"""Attempts that fill a disk, with real bytes: a small one that is mounted for it, or the one that is there."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from contained import Deaf, Rig

from muster.hosts.local_host import LocalHost
from muster.model import commands as c
from muster.model.states import ErrorKind
from patience import PATIENCE_S

MB = 1 << 20
SMALL_DISK = Path(__file__).with_name("small_disk.py")


def namespace() -> list[str]:
    """A mount namespace in which we may mount something."""
    for how in (["unshare", "-Urm"], ["unshare", "-m"]):
        if shutil.which(how[0]) and not subprocess.run([*how, "true"], check=False).returncode:
            return how
    pytest.skip("nothing can be mounted here")


def on_a_disk_of(size_mb: int, folder: Path, script: str, order_s: float = 0) -> dict[str, Any]:
    argv = [*namespace(), sys.executable, str(SMALL_DISK), str(folder), str(size_mb), str(order_s), script]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 0, done.stderr
    said: dict[str, Any] = json.loads(done.stdout)
    assert said["left"] == 0, "a process is left"
    return said


def test_a_disk_that_is_really_full_is_named_for_whoever_fails_on_it(tmp_path: Path) -> None:
    """Not even the reason can be printed then; the next attempt learns it as well, if it can begin at all."""
    said = on_a_disk_of(8, tmp_path, "cat < /dev/zero > big")
    assert said["free"] <= 4096
    first, second = said["ends"]
    # A page may be left, which is enough to begin.  What cannot begin is given back, and costs no try.
    for end in (first,) if second == {"end": "Release"} else (first, second):
        assert (end["end"], end["kind"]) == ("Fail", "crash")
        assert str(tmp_path) in end["message"]
        assert "is full: free some room" in end["message"] or "No space left on device" in end["message"]


def test_one_that_writes_on_against_a_full_disk_is_stopped(tmp_path: Path) -> None:
    script = "trap '' INT TERM; while :; do cat < /dev/zero > big; sleep 0.02; done"
    first, _ = on_a_disk_of(8, tmp_path, script, order_s=PATIENCE_S / 2)["ends"]
    assert first["end"] == "Fail" and "the disk is nearly full" in first["message"]


def test_one_that_fills_the_disk_is_stopped_while_others_still_have_room(tmp_path: Path) -> None:
    # Nearly full soon, and then slowly: a busy machine looks late.
    slowly = "while :; do head -c 500000 /dev/zero >> big; sleep 0.02; done"
    script = f"head -c 80000000 /dev/zero > big; {slowly}"
    said = on_a_disk_of(224, tmp_path, script)
    first, second = said["ends"]
    assert first["end"] == "Fail" and "the disk is nearly full" in first["message"]
    assert second["end"] == "Complete", "the next one works on what is left"
    assert said["free"] > MB


@dataclass
class Forgetful(Deaf):
    """Keeps how much it was told, not what."""

    taken: dict[str, int] = field(default_factory=dict)

    def report(self, command: c.AttemptCommand) -> Any:
        if not isinstance(command, c.AppendLog):
            return super().report(command)
        self.taken[command.stream] = self.taken.get(command.stream, 0) + len(command.data)
        return None


def peak_bytes() -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("VmHWM"))


@pytest.mark.skipif(sys.platform != "linux", reason="the peak of memory is read from /proc")
def test_output_without_end_costs_no_memory(tmp_path: Path) -> None:
    """One line, at full speed."""
    crew = Forgetful()
    rig = Rig(tmp_path, crew)
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
    before = peak_bytes()
    end = rig.run("trap '' INT TERM; while :; do head -c 100000000 /dev/zero; done", output_bytes=256 * MB)
    assert isinstance(end, c.Fail) and end.kind is ErrorKind.CRASH
    assert "its limit is 256.0 MB (agents.sh.limits.output)" in end.message
    stdout = rig.folder / "stdout"
    assert stdout.stat().st_size == 256 * MB, "what came after the limit is given back to the disk"
    assert peak_bytes() - before < 64 * MB
    assert sum(crew.taken.values()) <= 16 * MB, "the store gets the beginning and the end"
    stdout.unlink()
    mark = f"MUSTER_ROOT={tmp_path}"
    assert LocalHost().marked([mark])[mark] == []
