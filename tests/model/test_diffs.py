"""A diff of git's, read into files and lines: made by a real git, with names and lines that mislead."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from muster.app.works import _DIFF
from muster.model.diffs import FileDiff, parsed
from muster.model.errors import BadInput
from muster.model.notices import NOTE_CHARS_MAX
from muster.model.reviews import Remark, review_note

MISLEADING = "diff --git a/x b/x\n--- a/x\n+++ b/x\n@@ -1 +1 @@\n-old\n+new\n"
ODD_NAME = 'a "b"\tc\nd é'


def git(folder: Path, *words: str) -> bytes:
    env = {"PATH": os.environ["PATH"], "GIT_CONFIG_GLOBAL": os.devnull}
    env |= {f"GIT_{who}_{what}": "x@y" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    return subprocess.run(["git", *words], cwd=folder, env=env, capture_output=True, check=True).stdout


@pytest.fixture
def changed(tmp_path: Path) -> dict[str, FileDiff]:
    git(tmp_path, "init", "-q")
    (tmp_path / "kept.txt").write_text("".join(f"line {n}\n" for n in range(30)))
    (tmp_path / "gone.txt").write_text("a\nb")
    (tmp_path / "moved.txt").write_text("".join(f"same {n}\n" for n in range(30)))
    (tmp_path / "kind").write_text("plain\n")
    (tmp_path / "picture").write_bytes(bytes(range(256)))
    git(tmp_path, "add", "-A")
    git(tmp_path, "commit", "-qm", "first")
    (tmp_path / "kept.txt").write_text(
        "".join(f"line {n}\n" for n in range(30) if n != 3) + "-- dash\n++ plus\n"
    )
    (tmp_path / "gone.txt").unlink()
    (tmp_path / "moved.txt").rename(tmp_path / "elsewhere.txt")
    (tmp_path / "kind").unlink()
    (tmp_path / "kind").symlink_to("kept.txt")
    (tmp_path / "picture").write_bytes(bytes(reversed(range(256))))
    (tmp_path / ODD_NAME).write_text(MISLEADING)
    (tmp_path / "run.sh").write_text("echo\n")
    (tmp_path / "run.sh").chmod(0o755)
    git(tmp_path, "add", "-A")
    git(tmp_path, "commit", "-qm", "second")
    listing = git(tmp_path, *_DIFF, "--raw", "--numstat", "-z", "HEAD~1", "HEAD", "--")
    patch = git(tmp_path, *_DIFF, "--patch", "HEAD~1", "HEAD", "--")
    return {file.path: file for file in parsed(listing, patch, whole=True)}


def test_each_file_has_its_own_lines_and_numbers(changed: dict[str, FileDiff]) -> None:
    kept = changed["kept.txt"]
    assert (kept.change, kept.added, kept.removed) == ("changed", 2, 1)
    gone = kept.line("-4")
    assert gone is not None and gone.text == "line 3"
    assert [line.text for line in kept.lines if line.sign == "+"] == ["-- dash", "++ plus"]
    last = kept.line("+31")
    assert last is not None and last.text == "++ plus"
    assert kept.line("+999") is None


def test_what_is_no_line_is_told(changed: dict[str, FileDiff]) -> None:
    assert (changed["elsewhere.txt"].change, changed["elsewhere.txt"].was) == ("renamed", "moved.txt")
    assert changed["elsewhere.txt"].lines == ()
    assert changed["picture"].added is None and changed["picture"].remark == "it is no text"
    assert changed["run.sh"].remark == "a program now"
    assert changed["kind"].change == "other kind of file" and "symbolic link" in changed["kind"].remark
    assert [line.text for line in changed["kind"].lines if line.sign in "+-"] == ["plain", "kept.txt"]
    ends = [line for line in changed["gone.txt"].lines if line.sign == "\\"]
    assert [line.text for line in ends] == ["No newline at end of file"]


def test_no_name_and_no_line_is_taken_for_another_file(changed: dict[str, FileDiff]) -> None:
    assert set(changed) == {"kept.txt", "gone.txt", "elsewhere.txt", "kind", "picture", ODD_NAME, "run.sh"}
    odd = changed[ODD_NAME]
    assert odd.added == MISLEADING.count("\n")
    assert "\n".join(line.text for line in odd.lines if line.sign == "+") + "\n" == MISLEADING


def test_a_patch_that_was_cut_says_so_where_it_ends() -> None:
    listing = b":100644 100644 a b M\0one\0:100644 100644 a b M\0two\0001\t0\tone\0001\t0\ttwo\0"
    patch = b"diff --git a/one b/one\n--- a/one\n+++ b/one\n@@ -1 +1,2 @@\n a\n+b\n"
    one, two = parsed(listing, patch, whole=False)
    assert one.line("+2") is not None and "too long" in one.remark
    assert two.lines == () and "too long" in two.remark


def test_a_note_says_where_and_what() -> None:
    note = review_note(
        "attempt 2",
        "Nearly.",
        [Remark("a.py", "+7", "  x = 1", "Why 1?"), Remark("b.py", "-3", "y" * 500, "Keep it")],
    )
    assert note.split("\n") == [
        "Your work was looked at (attempt 2).",
        "",
        "Nearly.",
        "",
        "a.py:7: x = 1",
        "Why 1?",
        "",
        f"b.py:3 (a line that is gone): {'y' * 120}...",
        "Keep it",
    ]


def test_a_note_is_neither_empty_nor_cut() -> None:
    with pytest.raises(BadInput, match="nothing is said"):
        review_note("attempt 1", "", [])
    with pytest.raises(BadInput, match="a note takes"):
        review_note("attempt 1", "x" * NOTE_CHARS_MAX, [])
