"""Files that attempts have made: they are kept as they were reported, and read again."""

from __future__ import annotations

import json
import os
from pathlib import Path

from test_run import folder

from muster.hosts.attempt_folders import ARTIFACT_BYTES_MAX, keep_artifact, kept_artifact
from muster_command import run_muster as muster

__all__ = ["folder"]

PLAN = """\
# Plan

- [ ] One {#a}
  printf 'first \\377' > out.bin
  muster report artifact 'the report/1' out.bin
  muster report artifact page https://example.org/page
  muster report artifact gone nothing.txt
  printf 'other' > out.bin
- [ ] Two {#b after=a}
  true
"""


def test_what_an_attempt_has_made_is_listed_and_read(folder: Path) -> None:
    (folder / "plan.md").write_text(PLAN)
    done = muster(folder, "run", "plan.md")
    assert done.returncode == 0, done.stdout + done.stderr
    made = json.loads(muster(folder, "artifact", "list", "plan/a", "--json").stdout)
    assert [(row["name"], row["bytes"]) for row in made] == [
        ("gone", None),
        ("page", None),
        ("the report/1", 7),
    ]
    assert muster(folder, "artifact", "get", "plan/a", "the report/1", "-o", "copy").returncode == 0
    assert (folder / "copy").read_bytes() == b"first \xff", "as it was when it was named"
    nowhere = muster(folder, "artifact", "get", "plan/a", "the report/1", "-o", "none/copy")
    assert (nowhere.returncode, "none/copy cannot be written: No such file" in nowhere.stderr) == (2, True)
    text = muster(folder, "artifact", "list", "plan/a").stdout
    assert "not here" in text and "https://example.org/page" in text
    for name, words in (("gone", "nothing is kept here of gone"), ("none", "has no artifact 'none'")):
        refused = muster(folder, "artifact", "get", "plan/a", name)
        assert (refused.returncode, words in refused.stderr) == (3, True), refused.stderr
    assert "it has made nothing yet" in muster(folder, "artifact", "list", "plan/b").stdout


def test_only_ordinary_files_of_a_bounded_size_are_kept(tmp_path: Path) -> None:
    secret, link, pipe, large = (tmp_path / name for name in ("secret", "link", "pipe", "large"))
    secret.write_text("s")
    link.symlink_to(secret)
    os.mkfifo(pipe)
    with large.open("wb") as file:
        file.truncate(ARTIFACT_BYTES_MAX + 1)
    for path in (link, pipe, large, tmp_path, tmp_path / "none"):
        assert not keep_artifact(tmp_path, "n", path)
    assert kept_artifact(tmp_path, "n") is None
    assert keep_artifact(tmp_path, "../../n", secret)
    assert kept_artifact(tmp_path, "../../n") == b"s"
    assert [path.parent.name for path in tmp_path.rglob("*") if path.is_file() and len(path.name) == 64] == [
        "artifacts"
    ]
