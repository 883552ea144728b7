"""Reading plans from disk."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import pytest

from muster.model.errors import BadPlan
from muster.plans import files as plan_files
from muster.plans.files import LocalPlanFiles, read_plan
from muster.plans.markdown import decode

PLAN = "# Billing\r\n- [ ] Model {#model}\r\n- [ ] Docs {#docs}\r\n"


@pytest.fixture
def plan(tmp_path):
    path = tmp_path / "plan.md"
    path.write_bytes(PLAN.encode())
    return path


def test_a_plan_is_read_from_its_file(plan):
    document = read_plan(plan)
    assert document.name == "billing"
    assert [task.key for task in document.tasks] == ["model", "docs"]


def test_a_plan_without_a_title_is_named_after_its_file(tmp_path):
    path = tmp_path / "Next Steps.md"
    path.write_text("- [ ] Go\n")
    assert read_plan(path).name == "next-steps"


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda path: None, "no such file"),
        (lambda path: path.mkdir(), "it is a directory"),
        (os.mkfifo, "not a regular file"),
        (lambda path: path.symlink_to(path), "cannot be read: Too many levels of symbolic links"),
        (lambda path: path.write_bytes(b"- [ ] a\n- [ ] b\n\n\xff"), ":4"),
        (lambda path: path.write_bytes(b"- [ ] a\n" * (1024 * 1024 + 1)), "larger than 8 MiB"),
        (lambda path: path.write_bytes(b"Nothing to do\n"), ":1: the plan has no tasks"),
    ],
)
def test_what_cannot_be_read_is_named_with_its_cause_and_a_way_out(tmp_path, monkeypatch, make, message):
    monkeypatch.chdir(tmp_path)
    path = Path("plan.md")
    make(path)
    with pytest.raises(BadPlan) as caught:
        read_plan(path)
    assert caught.value.message.startswith("plan.md:")
    assert message in caught.value.message
    assert caught.value.hint


def test_a_nul_in_the_name_is_a_bad_plan():
    with pytest.raises(BadPlan, match="no such file"):
        read_plan(Path("a\0b"))
    with pytest.raises(BadPlan, match="no such file"):
        LocalPlanFiles().tick("a\0b", ["model"])


def test_problems_name_the_path_as_it_was_given(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("sub").mkdir()
    Path("sub/plan.md").write_text("- [ ] a {#a after=b}\n")
    with pytest.raises(BadPlan, match=r"^sub/plan\.md:1: after=b"):
        read_plan(Path("sub/plan.md"))


@pytest.mark.skipif(sys.platform != "linux", reason="leases are Linux's")
def test_a_plan_that_is_being_saved_is_read_when_its_writer_is_done(plan, monkeypatch):
    writer = plan.open("w")
    writer.write("- [ ] One\n")
    writer.flush()

    def finish(_: float) -> None:
        writer.write("- [ ] Two\n")
        writer.close()

    monkeypatch.setattr(plan_files.time, "sleep", finish)
    assert [task.title for task in read_plan(plan).tasks] == ["One", "Two"]


CONFLICT = """\
- [ ] Begin {#begin}
<<<<<<< Updated upstream
- [x] Bake the tart slowly
=======
- [ ] Bake the tart with cream
>>>>>>> Stashed changes
"""


MARKS = "<<<<<<< a\n1\n||||||| base\n2\n=======\n3\n>>>>>>> b\n"


@pytest.mark.parametrize(
    ("text", "line", "ours", "theirs"),
    [
        (MARKS, 1, "1\n", "3\n"),
        (f"0\n{MARKS}4", 2, "0\n1\n4", "0\n3\n4"),
        (
            f"T\n=======\n{MARKS}>>>>>>> b\n{MARKS}",
            3,
            "T\n=======\n1\n>>>>>>> b\n1\n",
            "T\n=======\n3\n>>>>>>> b\n3\n",
        ),
        (f"<<<<<<< a\n5\n{MARKS}", 3, "<<<<<<< a\n5\n1\n", "<<<<<<< a\n5\n3\n"),
        (f"{MARKS}<<<<<<< a\n5\n=======\n", 1, "1\n<<<<<<< a\n5\n=======\n", "3\n<<<<<<< a\n5\n=======\n"),
        (MARKS.replace("\n", "\r\n"), 1, "1\r\n", "3\r\n"),
        ("<<<<<<<\n1\n=======\n>>>>>>>", 1, "1", ""),
    ],
)
def test_both_sides_of_a_conflict(text: str, line: int, ours: str, theirs: str) -> None:
    with pytest.raises(BadPlan, match=f":{line}: git has left a conflict") as refused:
        decode(text.encode(), "plan.md")
    assert [one.decode() for one in refused.value.sides] == [ours, theirs]


def test_marks_of_conflicts_that_never_end_are_read_at_once() -> None:
    marks = "<<<<<<< a\n" * 3000 + "||||||| b\n" * 3000 + "=======\n" * 3000
    began = time.process_time()
    assert decode(marks.encode(), "plan.md") == marks
    assert time.process_time() - began < 5, "some ms on an idle core"


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_a_conflict_that_git_has_left_is_no_plan(tmp_path: Path, end: str) -> None:
    path = tmp_path / "plan.md"
    path.write_text(CONFLICT, newline=end)
    for read in (lambda: read_plan(path), lambda: LocalPlanFiles().boxes(str(path))):
        with pytest.raises(BadPlan, match=r"plan\.md:2: git has left a conflict") as refused:
            read()
        assert "<<<<<<<" in refused.value.hint
    path.write_text("Title\n=======\n\n- [ ] Explain <<<<<<< {#explain}\n>>>>>>> quoted\n")
    assert [task.key for task in read_plan(path).tasks] == ["explain"]
