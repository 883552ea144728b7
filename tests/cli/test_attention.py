"""The title and the bell of a terminal in which a crew is at work."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from muster.cli.attention import Attention
from muster.config.channels import NotifySettings
from muster_command import MUSTER
from patience import PATIENCE_S
from pseudo_terminal import read_to_end

PLAN = """\
# P

- [ ] Fails {#a agent=shell retries=0}
  printf '\\033]2;evil\\007'; exit 3
"""
KEEP, BACK = "\x1b[22;2t", "\x1b[23;2t"


def test_what_waits_stands_in_the_title_and_something_new_rings() -> None:
    asks, fails = (1, 1, "PAUSED"), (2, 1, "FAILED")
    told = Attention("a\x1b]2;b\u202e", NotifySettings())
    name = "muster a^[]2;b<202E>\x1b\\"
    assert told.over() == ""
    assert told.told([asks]) == f"{KEEP}\x1b]2;(1) {name}", "what waited before rings nobody up"
    assert told.told([asks]) == ""
    assert told.told([asks, fails]) == f"\x1b]2;(2) {name}\a"
    assert told.told([fails]) == f"\x1b]2;(1) {name}"
    assert told.told([(1, 2, "PAUSED")]) == f"\x1b]2;(1) {name}\a", "it asks again"
    assert told.told([]) == f"\x1b]2;{name}"
    assert told.over() == BACK


def test_each_of_them_can_be_left_out() -> None:
    quiet = Attention("a", NotifySettings(bell=False, title=False))
    assert [quiet.told([]), quiet.told([1]), quiet.over()] == ["", "", ""]
    rings = Attention("a", NotifySettings(title=False))
    assert [rings.told([]), rings.told([1]), rings.over()] == ["", "\a", ""]


@pytest.mark.skipif("sys.platform == 'darwin'")
def test_a_run_on_a_terminal_tells_and_puts_its_title_back(tmp_path: Path) -> None:
    (tmp_path / "plan.md").write_text(PLAN)
    ours, theirs = os.openpty()
    env = {**os.environ, "TERM": "xterm"}
    argv = [*MUSTER, "run", "plan.md", "--workers", "1"]
    with subprocess.Popen(argv, cwd=tmp_path, stdin=theirs, stdout=theirs, stderr=theirs, env=env) as run:
        os.close(theirs)
        seen = read_to_end(ours).decode()
        assert run.wait(PATIENCE_S) == 5
    name = tmp_path.name
    assert f"{KEEP}\x1b]2;muster {name}\x1b\\" in seen and f"\x1b]2;(1) muster {name}\x1b\\\a" in seen
    assert BACK in seen.rpartition("\x1b]2;")[2] and "\x1b]2;evil" not in seen
    piped = subprocess.run(argv, cwd=tmp_path, capture_output=True, check=False, timeout=PATIENCE_S)
    assert b"\x1b]" not in piped.stdout + piped.stderr and b"\a" not in piped.stdout + piped.stderr
