"""No half of an index is taken for a whole one, and none is left."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from test_contained_disk import namespace

from patience import PATIENCE_S

HALF_INDEX = Path(__file__).with_name("half_index.py")


def test_a_tree_is_not_staged_by_half_of_an_index(tmp_path: Path) -> None:
    argv = [*namespace(), sys.executable, str(HALF_INDEX), str(tmp_path)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["refused"].startswith(f"the disk of {tmp_path}") and os.uname().nodename in told["refused"]
    assert (told["left"], told["taken"]) == ([], "made")
