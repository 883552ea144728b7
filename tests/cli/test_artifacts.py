"""Files that attempts have made: they are kept as they were reported, and read again."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import pytest
from test_run import folder

from muster.hosts.attempt_folders import attempt_folder, kept_artifact, take_artifact
from muster.model.artifacts import ArtifactPart, ArtifactReceived
from muster.model.errors import BadInput, TooLarge
from muster.model.numbers import ARTIFACT_BYTES_MAX, ARTIFACT_PART_BYTES, ATTEMPT_ARTIFACTS_BYTES_MAX
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
  muster report artifact 'page of text' out.bin
- [ ] Two {#b after=a}
  true
"""


def same(data: bytes) -> bytes:
    return data


def test_what_an_attempt_has_made_is_listed_and_read(folder: Path) -> None:
    (folder / "plan.md").write_text(PLAN)
    done = muster(folder, "run", "plan.md")
    assert done.returncode == 0, done.stdout + done.stderr
    made = json.loads(muster(folder, "artifact", "list", "plan/a", "--json").stdout)
    assert [(row["name"], row["bytes"]) for row in made] == [
        ("gone", None),
        ("page", None),
        ("page of text", 5),
        ("the report/1", 7),
    ]
    assert muster(folder, "artifact", "get", "plan/a", "the report/1", "-o", "copy").returncode == 0
    assert (folder / "copy").read_bytes() == b"first \xff", "as it was when it was named"
    shown = muster(folder, "artifact", "get", "plan/a", "page of text", "-o", "-")
    assert (shown.returncode, shown.stdout, (folder / "-").exists()) == (0, "other", False), shown.stderr
    nowhere = muster(folder, "artifact", "get", "plan/a", "the report/1", "-o", "none/copy")
    assert (nowhere.returncode, "none/copy cannot be written: No such file" in nowhere.stderr) == (2, True)
    text = muster(folder, "artifact", "list", "plan/a").stdout
    assert "not here" in text and "https://example.org/page" in text
    for name, words in (("gone", "nothing is kept here of gone"), ("none", "has no artifact 'none'")):
        refused = muster(folder, "artifact", "get", "plan/a", name)
        assert (refused.returncode, words in refused.stderr) == (3, True), refused.stderr
    assert "it has made nothing yet" in muster(folder, "artifact", "list", "plan/b").stdout


AGAIN = """\
# Plan

- [ ] One {#a retries=1 backoff=1s}
  echo "by $MUSTER_EPOCH" > out
  muster report artifact page out
  test "$MUSTER_EPOCH" = 2
"""


def test_what_an_older_attempt_has_made_under_the_same_name_is_reached_by_its_number(folder: Path) -> None:
    (folder / "plan.md").write_text(AGAIN)
    done = muster(folder, "run", "plan.md")
    assert done.returncode == 0, done.stdout + done.stderr
    for ref, made in (("plan/a", "by 2\n"), ("plan/a#1", "by 1\n"), ("plan/a#2", "by 2\n")):
        got = muster(folder, "artifact", "get", ref, "page")
        assert (got.returncode, got.stdout) == (0, made), got.stderr
    listed = muster(folder, "artifact", "list", "plan/a#1", "--json").stdout
    assert [row["epoch"] for row in json.loads(listed)] == [1]
    refused = muster(folder, "artifact", "get", "plan/a#1", "none")
    assert (refused.returncode, "plan/a#1 has no artifact 'none'" in refused.stderr) == (3, True)
    assert muster(folder, "artifact", "get", "plan/a#3", "page").returncode == 3


def test_only_ordinary_files_of_a_bounded_size_are_kept(cli: Any, owner: Any, root: Path) -> None:
    env = owner.inside()
    secret, link, pipe, large = (root / name for name in ("secret", "link", "pipe", "large"))
    secret.write_text("s")
    link.symlink_to(secret)
    os.mkfifo(pipe)
    with large.open("wb") as file:
        file.truncate(ARTIFACT_BYTES_MAX + 1)
    for path in (link, pipe, large, root, root / "none"):
        said = cli("report", "artifact", path.name, str(path), env=env)
        assert said.code == 0 and f"only the name of {path} is kept" in said.err
        assert cli("artifact", "get", "billing/api", path.name).code == 3
    assert cli("report", "artifact", "../../n", "secret", env=env).code == 0
    assert cli("artifact", "get", "billing/api", "../../n").out == "s"
    found = [path.parent.name for path in root.rglob("*") if path.is_file() and len(path.name) == 64]
    assert found == ["artifacts"]


def test_a_large_file_comes_in_parts_and_is_whole_before_it_is_named(
    cli: Any, owner: Any, root: Path
) -> None:
    data = os.urandom(3 * ARTIFACT_PART_BYTES + 7)
    (root / "large").write_bytes(data)
    env, task_id = owner.inside(), owner.tasks()["api"].id
    whole = hashlib.sha256(data).hexdigest()
    first = ArtifactPart(name="out", sha256=whole, size=len(data), offset=0, data=data[:100])
    attempts = root / ".muster" / "attempts"
    folder = attempt_folder(attempts, task_id, 1)
    assert take_artifact(attempts, task_id, 1, first, same) == ArtifactReceived(received=100, whole=False)
    assert take_artifact(attempts, task_id, 1, first, same).received == 100, "its answer was lost"
    assert kept_artifact(folder, "out") is None, "half of it is nothing"
    assert cli("report", "artifact", "out", "large", env=env).code == 0, "goes on where it was"
    assert cli("artifact", "get", "billing/api", "out").raw == data
    (root / "large").write_bytes(b"")
    assert cli("report", "artifact", "empty", "large", env=env).code == 0
    rows = json.loads(cli("artifact", "list", "billing/api", "--json").out)
    assert {row["name"]: row["bytes"] for row in rows} == {"out": len(data), "empty": 0}
    assert not [*attempts.rglob("*.part")]


def test_what_is_not_what_was_announced_or_too_much_is_not_kept(tmp_path: Path) -> None:
    wrong = ArtifactPart(name="n", sha256="0" * 64, size=1, offset=0, data=b"x")
    with pytest.raises(BadInput, match="not the one that was announced"):
        take_artifact(tmp_path, 7, 1, wrong, same)
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]
    half = ArtifactPart(name="half", sha256="1" * 64, size=2, offset=0, data=b"x")
    assert not take_artifact(tmp_path, 7, 1, half, same).whole
    begun = next(tmp_path.rglob("*.part"))
    for large in (tmp_path / "7" / "1" / "artifacts" / "others", begun):
        with large.open("ab") as file:
            file.truncate(ATTEMPT_ARTIFACTS_BYTES_MAX)
        with pytest.raises(TooLarge, match="of at most 128"):
            take_artifact(tmp_path, 7, 1, wrong, same)
        large.unlink()
