"""Ticking plans on disk while somebody edits them."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muster.model.errors import BadPlan
from muster.plans import files as plan_files
from muster.plans.files import LocalPlanFiles, Moment, exchange
from muster.ports.files import PlanFiles

PLAN = "# Billing\r\n- [ ] Model {#model}\r\n- [ ] Docs {#docs}\r\n"
TICKED = PLAN.replace("[ ] Model", "[x] Model")

linux_only = pytest.mark.skipif(sys.platform != "linux", reason="leases are Linux's")


def later_s() -> float:
    return time.time() + 61


class Edited(LocalPlanFiles):
    """Runs one edit after the other at the moments asked for."""

    def __init__(self, *edits: tuple[Moment, object], swaps: bool = True, now_s=time.time) -> None:
        super().__init__(now_s=now_s, pause=lambda _: None)
        self.edits = list(edits)
        self.swaps = swaps

    def _at(self, moment: Moment, target: Path) -> None:
        while self.edits and self.edits[0][0] == moment:
            self.edits.pop(0)[1](target)

    def _exchange(self, one: Path, other: Path) -> bool:
        return self.swaps and super()._exchange(one, other)


def by_rename(line: str):
    def edit(target: Path) -> None:
        new = target.with_name("editor's.tmp")
        new.write_bytes(target.read_bytes() + line.encode())
        new.replace(target)

    return edit


def in_place(line: str):
    def edit(target: Path) -> None:
        target.write_bytes(target.read_bytes() + line.encode())

    return edit


def kept(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.muster-kept-*"))


def hidden(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.name.startswith("."))


def everything(folder: Path) -> str:
    return "".join(text(path) for path in folder.iterdir())


@pytest.fixture
def plan(tmp_path):
    path = tmp_path / "plan.md"
    path.write_bytes(PLAN.encode())
    return path


def text(path: Path) -> str:
    return path.read_bytes().decode()


# Ticking


def test_a_tick_changes_one_byte_and_leaves_nothing_behind(plan):
    files: PlanFiles = LocalPlanFiles()
    assert files.tick(str(plan), ["model", "gone"]) == {"model"}
    assert text(plan) == TICKED
    assert [path.name for path in plan.parent.iterdir()] == ["plan.md"]


def test_a_box_that_is_ticked_already_counts_and_nothing_is_written(plan):
    LocalPlanFiles().tick(str(plan), ["model"])
    before = plan.stat()
    assert LocalPlanFiles().tick(str(plan), ["model", "gone"]) == {"model"}
    assert plan.stat().st_ino == before.st_ino
    assert plan.stat().st_mtime_ns == before.st_mtime_ns


def test_mode_and_attributes_stay_and_the_mtime_moves(plan):
    plan.chmod(0o640)
    os.utime(plan, (1, 1))
    if hasattr(os, "setxattr"):
        os.setxattr(plan, "user.note", b"mine")
    LocalPlanFiles().tick(str(plan), ["model"])
    assert stat.S_IMODE(plan.stat().st_mode) == 0o640
    assert plan.stat().st_mtime > 1
    if hasattr(os, "setxattr"):
        assert os.getxattr(plan, "user.note") == b"mine"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_owner_and_group_stay(plan):
    os.chown(plan, 12345, 12346)
    LocalPlanFiles().tick(str(plan), ["model"])
    assert (plan.stat().st_uid, plan.stat().st_gid) == (12345, 12346)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_a_plan_whose_owner_cannot_be_kept_stays_as_it_is(plan, monkeypatch):
    def refuse(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    os.chown(plan, 12345, 12346)
    monkeypatch.setattr(plan_files.os, "fchown", refuse)
    with pytest.raises(BadPlan, match="owner and group could not be kept"):
        LocalPlanFiles().tick(str(plan), ["model"])
    assert text(plan) == PLAN
    assert hidden(plan.parent) == []


def test_a_write_protected_plan_stays_as_it_is(plan, monkeypatch):
    monkeypatch.setattr(plan_files.os, "access", lambda *_: False)
    with pytest.raises(BadPlan, match="cannot be ticked: it is write-protected"):
        LocalPlanFiles().tick(str(plan), ["model"])
    assert text(plan) == PLAN


def test_a_link_stays_a_link_and_its_target_is_ticked(plan, tmp_path):
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    link = folder / "link.md"
    link.symlink_to(plan)
    assert LocalPlanFiles().tick(str(link), ["model"]) == {"model"}
    assert link.is_symlink()
    assert text(plan) == TICKED


def test_a_very_long_name_can_be_ticked(tmp_path):
    plan = tmp_path / ("ä" * 126 + ".md")
    plan.write_text(PLAN)
    assert LocalPlanFiles().tick(str(plan), ["model"]) == {"model"}
    assert [path.name for path in tmp_path.iterdir()] == [plan.name]


def test_what_is_clear_is_ticked_also_where_the_rest_of_the_file_is_not(plan):
    data = b"- [ ] a {#model oops=1}\n- [ ] b {#b}\n- [ ] c {#b}\n- [-] d\n\0\n- [ ] e {#e after=\n"
    plan.write_bytes(data)
    assert LocalPlanFiles().tick(str(plan), ["model", "b"]) == {"model"}
    assert plan.read_bytes() == data.replace(b"[ ] a", b"[x] a")


def test_a_file_that_is_no_plan_now_is_refused_and_untouched(plan):
    plan.write_bytes(data := b"- [ ] a {#model}\n\xff")
    with pytest.raises(BadPlan, match=r"plan\.md:\d"):
        LocalPlanFiles().tick(str(plan), ["model"])
    assert plan.read_bytes() == data


def test_a_missing_plan_is_a_bad_plan(tmp_path):
    with pytest.raises(BadPlan, match="no such file"):
        LocalPlanFiles().tick(str(tmp_path / "none.md"), ["a"])


def test_a_full_disk_leaves_the_plan_and_no_temporary_file(plan, monkeypatch):
    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(plan_files.os, "fsync", full)
    with pytest.raises(BadPlan, match="cannot be ticked: No space left"):
        LocalPlanFiles().tick(str(plan), ["model"])
    assert text(plan) == PLAN
    assert hidden(plan.parent) == []


def test_while_another_process_ticks_the_plan_is_left_to_it(plan):
    code = (
        "import fcntl, os, sys; fd = os.open(sys.argv[1], os.O_RDONLY); fcntl.flock(fd, fcntl.LOCK_EX);"
        "print('locked', flush=True); sys.stdin.read()"
    )
    argv = [sys.executable, "-c", code, str(plan.parent)]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout.readline() == b"locked\n"
        with pytest.raises(BadPlan, match="another process is ticking"):
            LocalPlanFiles().tick(str(plan), ["model"])
        other.stdin.close()
    assert LocalPlanFiles().tick(str(plan), ["model"]) == {"model"}


# Edits meanwhile


@pytest.mark.parametrize("edit", [by_rename, in_place])
@pytest.mark.parametrize("moment", ["read", "exchange", "check"])
def test_an_edit_at_any_moment_is_in_the_plan_beside_the_tick(plan, moment, edit):
    ticked = Edited((moment, edit("- [ ] New\n"))).tick(str(plan), ["model"])
    assert ticked == {"model"}
    assert text(plan) == TICKED + "- [ ] New\n"
    assert hidden(plan.parent) == []
    assert kept(plan.parent) == []


def test_an_edit_that_slipped_in_keeps_its_own_mode(plan):
    def private(target: Path) -> None:
        by_rename("secret\n")(target)
        target.chmod(0o600)

    Edited(("exchange", private)).tick(str(plan), ["model"])
    assert stat.S_IMODE(plan.stat().st_mode) == 0o600
    assert "secret" in text(plan)


@pytest.mark.parametrize("first", [by_rename, in_place])
@pytest.mark.parametrize("second", [by_rename, in_place])
def test_of_two_edits_around_one_swap_the_later_is_the_plan_and_the_earlier_is_kept(plan, first, second):
    files = Edited(("exchange", first("one\n")), ("check", second("two\n")))
    with pytest.raises(BadPlan, match="two edits met") as caught:
        files.tick(str(plan), ["model"])
    (copy,) = kept(plan.parent)
    assert str(copy) in caught.value.message
    assert text(copy) == PLAN + "one\n"
    assert text(plan) == TICKED + "two\n"
    assert hidden(plan.parent) == []
    assert files.tick(str(plan), ["model"]) == {"model"}


@pytest.mark.parametrize("second", [by_rename, in_place])
def test_an_edit_right_before_the_swap_back_is_the_plan(plan, second):
    class Late(Edited):
        swapped = 0

        def _exchange(self, one: Path, other: Path) -> bool:
            self.swapped += 1
            if self.swapped == 2:
                second("two\n")(other)
            return super()._exchange(one, other)

    with pytest.raises(BadPlan, match="two edits met"):
        Late(("exchange", by_rename("one\n"))).tick(str(plan), ["model"])
    (copy,) = kept(plan.parent)
    assert text(copy) == PLAN + "one\n"
    assert text(plan) == TICKED + "two\n"
    assert hidden(plan.parent) == []


def test_a_plan_that_is_deleted_while_it_is_ticked_stays_deleted(plan):
    with pytest.raises(BadPlan, match="no such file"):
        Edited(("exchange", Path.unlink)).tick(str(plan), ["model"])
    assert list(plan.parent.iterdir()) == []


def test_an_edit_whose_plan_is_deleted_after_the_swap_is_kept(plan):
    files = Edited(("exchange", by_rename("mine\n")), ("check", Path.unlink))
    with pytest.raises(BadPlan, match="is kept in"):
        files.tick(str(plan), ["model"])
    (copy,) = kept(plan.parent)
    assert text(copy) == PLAN + "mine\n"


def test_a_plan_that_becomes_a_link_meanwhile_stays_that_link(plan, tmp_path):
    other = tmp_path / "other.md"
    other.write_text("- [ ] Other {#model}\n")

    def relink(target: Path) -> None:
        target.unlink()
        target.symlink_to(other)

    files = Edited(("exchange", relink))
    with pytest.raises(BadPlan, match="keeps writing"):
        files.tick(str(plan), ["model"])
    assert plan.is_symlink()
    assert files.tick(str(plan), ["model"]) == {"model"}
    assert text(other) == "- [x] Other {#model}\n"
    assert hidden(plan.parent) == []


@linux_only
def test_a_writer_that_still_has_the_plan_open_keeps_its_file(plan):
    writers = []
    files = Edited(("exchange", lambda target: writers.append(target.open("a"))))
    with pytest.raises(BadPlan, match="another program keeps writing it"):
        files.tick(str(plan), ["model"])
    with writers[0] as writer:
        writer.write("late\n")
    assert text(plan) == PLAN + "late\n"
    assert files.tick(str(plan), ["model"]) == {"model"}
    assert text(plan) == TICKED + "late\n"


@linux_only
def test_half_a_saved_plan_is_never_taken_for_the_plan(plan):
    with plan.open("w") as writer:
        writer.write("- [ ] Docs {#docs}\n")
        writer.flush()
        with pytest.raises(BadPlan, match="another program keeps writing it"):
            Edited().tick(str(plan), ["model"])
        writer.write("- [ ] Model {#model}\n")
    assert Edited().tick(str(plan), ["model"]) == {"model"}


def test_a_plan_that_changes_again_and_again_is_left_for_later(plan):
    class Restless(LocalPlanFiles):
        def _at(self, moment: Moment, target: Path) -> None:
            if moment == "exchange":
                by_rename("more\n")(target)

    with pytest.raises(BadPlan) as caught:
        Restless().tick(str(plan), ["model"])
    assert "later" in caught.value.hint
    assert text(plan) == PLAN + "more\n" * plan_files.TRIES_MAX
    assert hidden(plan.parent) == []


@pytest.mark.parametrize("edit", [by_rename, in_place])
@pytest.mark.parametrize("moment", ["read", "exchange"])
def test_where_names_cannot_be_swapped_the_plan_is_compared_again(plan, moment, edit):
    files = Edited((moment, edit("new\n")), swaps=False)
    assert files.tick(str(plan), ["model"]) == {"model"}
    assert text(plan) == TICKED + "new\n"
    assert hidden(plan.parent) == []


EDITS = st.lists(
    st.tuples(
        st.sampled_from(["read", "exchange", "check"]),
        st.sampled_from([by_rename, in_place]),
    ),
    max_size=8,
)


@settings(max_examples=150, deadline=None)
@given(edits=EDITS)
def test_no_interleaving_loses_an_edit_or_a_tick(edits):
    lines = [f"note {number};\n" for number in range(len(edits))]
    with tempfile.TemporaryDirectory() as name:
        plan = Path(name) / "plan.md"
        plan.write_bytes(PLAN.encode())
        pending = [(moment, edit(line)) for (moment, edit), line in zip(edits, lines, strict=True)]
        files = Edited(*pending)
        copies = 0
        ticked: frozenset[str] = frozenset()
        for _ in range(len(edits) + 1):
            try:
                ticked = files.tick(str(plan), ["model"])
                break
            except BadPlan as error:
                copies += "is kept in" in error.message
        assert ticked == {"model"}
        assert text(plan).startswith(TICKED)
        used = lines[: len(lines) - len(files.edits)]
        found = everything(plan.parent) if copies else text(plan)
        assert [line for line in used if line not in found] == []
        assert len(kept(plan.parent)) == copies
        assert hidden(plan.parent) == []


def test_an_edit_by_another_thread_is_never_lost(tmp_path):
    plan = tmp_path / "plan.md"
    rounds = 150
    plan.write_text("".join(f"- [ ] Task {number} {{#t{number}}}\n" for number in range(rounds)))
    start = threading.Barrier(2)

    def edit() -> None:
        for number in range(rounds):
            start.wait()
            by_rename(f"note {number};\n")(plan)
            start.wait()

    editor = threading.Thread(target=edit)
    editor.start()
    for number in range(rounds):
        start.wait()
        assert LocalPlanFiles().tick(str(plan), [f"t{number}"]) == {f"t{number}"}
        start.wait()
    editor.join()
    assert [number for number in range(rounds) if f"note {number};" not in text(plan)] == []
    assert [path.name for path in tmp_path.iterdir()] == ["plan.md"]


# After a crash


class Crash(BaseException):
    pass


def crash_at(plan: Path, moment: Moment, monkeypatch, *before: tuple[Moment, object]) -> Path:
    """Leaves what a power cut at this moment leaves: no clean-up runs."""

    def fail(_: Path) -> None:
        monkeypatch.setattr(plan_files.os.path, "lexists", lambda _: False)
        raise Crash

    with monkeypatch.context() as patch:
        monkeypatch = patch
        with pytest.raises(Crash):
            Edited(*before, (moment, fail)).tick(str(plan), ["model"])
    (temp,) = hidden(plan.parent)
    return plan.with_name(temp)


@pytest.mark.parametrize("moment", ["exchange", "check"])
def test_a_temporary_file_of_a_crash_is_recognisable_and_goes_after_a_minute(plan, moment, monkeypatch):
    temp = crash_at(plan, moment, monkeypatch)
    assert temp.name.startswith(".plan.md.muster-")
    LocalPlanFiles().tick(str(plan), ["docs"])
    assert temp.exists()
    LocalPlanFiles(now_s=later_s).tick(str(plan), ["docs"])
    assert hidden(plan.parent) == []
    assert kept(plan.parent) == []


def test_a_half_written_temporary_file_goes_after_a_minute(plan):
    part = plan.with_name(".plan.md.muster-0123abcd.part")
    part.write_text("- [ ] ha")
    LocalPlanFiles(now_s=later_s).tick(str(plan), ["docs"])
    assert hidden(plan.parent) == []


def test_other_hidden_files_are_left_alone(plan):
    others = [".plan.md.swp", ".plan.md.muster-x", ".other.md.muster-0123abcd.part", ".muster"]
    for name in others:
        plan.with_name(name).write_text("mine")
    LocalPlanFiles(now_s=later_s).tick(str(plan), ["docs"])
    assert hidden(plan.parent) == sorted(others)


def test_an_edit_that_a_crash_left_swapped_out_goes_back_into_its_place(plan, monkeypatch):
    crash_at(plan, "check", monkeypatch, ("exchange", by_rename("mine\n")))
    assert "mine" not in text(plan)
    assert LocalPlanFiles(now_s=later_s).tick(str(plan), ["model"]) == {"model"}
    assert text(plan) == TICKED + "mine\n"
    assert hidden(plan.parent) == []
    assert kept(plan.parent) == []


def test_an_edit_that_a_crash_left_is_kept_beside_a_plan_that_was_edited_since(plan, monkeypatch):
    crash_at(plan, "check", monkeypatch, ("exchange", by_rename("mine\n")))
    by_rename("since\n")(plan)
    files = LocalPlanFiles(now_s=later_s)
    with pytest.raises(BadPlan, match="is kept in"):
        files.tick(str(plan), ["docs"])
    (copy,) = kept(plan.parent)
    assert text(copy) == PLAN + "mine\n"
    assert text(plan) == TICKED + "since\n"
    assert files.tick(str(plan), ["docs"]) == {"docs"}


@pytest.mark.parametrize("moment", ["exchange", "check"])
def test_an_interrupted_tick_leaves_no_temporary_file(plan, moment):
    def interrupt(_: Path) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Edited((moment, interrupt)).tick(str(plan), ["model"])
    assert hidden(plan.parent) == []
    assert text(plan) in (PLAN, TICKED)


def test_an_interruption_after_the_swap_gives_an_edit_back(plan):
    def interrupt(_: Path) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Edited(("exchange", by_rename("mine\n")), ("check", interrupt)).tick(str(plan), ["model"])
    assert text(plan) == PLAN + "mine\n"
    assert hidden(plan.parent) == []


# The swap


def test_two_names_are_swapped_and_a_missing_one_is_an_error(tmp_path):
    one, other = tmp_path / "one", tmp_path / "other"
    one.write_text("1")
    other.write_text("2")
    assert exchange(one, other)
    assert (one.read_text(), other.read_text()) == ("2", "1")
    other.unlink()
    with pytest.raises(FileNotFoundError):
        exchange(one, other)
    assert one.read_text() == "2"
