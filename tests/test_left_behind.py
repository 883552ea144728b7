"""A run of the tests leaves nothing behind, and says what its tests would have left."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
LEAVES = """\
import subprocess, tempfile
def test_it():
    tempfile.mkdtemp(prefix="forgotten-")
    subprocess.run("sleep 4321 >/dev/null 2>&1 &", shell=True, check=True)
"""
CLEARS_UP = """\
def test_it(tmp_path):
    (tmp_path / "locked").mkdir(mode=0o500)
    assert False, "what a failed test has written is kept until the end"
"""


@pytest.mark.parametrize(
    ("code", "left"), [(LEAVES, ["sleep 4321", "forgotten-"]), (CLEARS_UP, [])], ids=["leaves", "clears up"]
)
@pytest.mark.parametrize("how", [[], ["-n2"]], ids=["alone", "side by side"])
def test_nothing_is_left_behind(tmp_path: Path, code: str, left: list[str], how: list[str]) -> None:
    file, temporary = tmp_path / "test_it.py", tmp_path / "t"
    file.write_text(code)
    temporary.mkdir()
    argv = [sys.executable, "-m", "pytest", "-c", os.devnull, "-p", "conftest", "-p", "no:cacheprovider"]
    env = {**os.environ, "TMPDIR": str(temporary), "PYTHONPATH": str(TESTS)}
    done = subprocess.run([*argv, *how, file], env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stdout
    said = done.stdout.partition("left behind by the tests")[2]
    assert [part for part in left if part not in said] == [], done.stdout
    assert bool(said) == bool(left)
    assert list(temporary.iterdir()) == []
