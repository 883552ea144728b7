"""S19: a copy of a project is another project, and touches nothing of its original."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from copies import PLAN, RUN, Site, alive, at_a_terminal, site

from patience import PATIENCE_S


@pytest.fixture
def original(tmp_path: Path) -> Iterator[Site]:
    with site(tmp_path / "original") as made:
        made.add()
        yield made


@pytest.fixture
def copy(original: Site, tmp_path: Path) -> Iterator[Site]:
    """Of the original while its crew is at work."""
    original.up()
    with site(clone(original, tmp_path / "copy")) as made:
        yield made


def clone(of: Site, target: Path) -> Path:
    subprocess.run(["cp", "-r", of.root, target], check=True)
    (target / "begun").unlink(missing_ok=True)
    return target


@pytest.mark.promise("S19")
def test_a_copy_of_a_running_project_starts_nothing_and_changes_nothing(original: Site, copy: Site) -> None:
    crew, plan = original.pids(), original.project.store.read_bytes()
    for argv in (
        ["run", str(copy.root / "plan.md")],
        ["up"],
        ["up", "--daemon"],
        ["task", "cancel", "plan/one"],
    ):
        code, said = copy(*argv)
        assert code == 1 and f"{copy.root} is a copy of {original.root}, which is still there" in said, said
        assert "muster db adopt" in said
    code, said = copy("status")
    assert code == 0 and "is a copy of" in said and "1 running" in said
    code, said = copy("doctor")
    assert "is a copy of" in said and "muster db adopt" in said
    assert copy.begun() == [] and alive(crew) and crew == original.pids()
    assert (copy.root / "plan.md").read_text() == PLAN
    assert len(plan) == len(original.project.store.read_bytes())


@pytest.mark.promise("S19")
def test_an_adopted_copy_does_what_is_left_beside_its_original(original: Site, copy: Site) -> None:
    crew = original.pids()
    code, said = copy("db", "adopt")
    assert code == 0 and "1 attempt of the original" in said, said
    code, said = copy("why", "plan/one")
    assert "the project that this one was copied from" in said, said
    copy.up()
    assert alive(crew), "its sweeps match no process of the original"
    assert set(copy.pids()).isdisjoint(crew)
    copy.go()
    copy.settled()
    assert copy("down", "--now").code == 0
    assert alive(crew) and original.statuses() == {"one": "RUNNING", "two": "PENDING"}
    assert (original.root / "plan.md").read_text() == PLAN
    original.go()
    original.settled()
    assert len(original.begun()) == 2, "nothing was begun twice"


def test_the_original_that_ends_and_starts_again_leaves_its_copy_alone(original: Site, copy: Site) -> None:
    assert copy("db", "adopt").code == 0
    copy.up()
    crew = copy.pids()
    original.end()
    original.up()
    assert alive(crew) and crew == copy.pids()


def test_both_started_at_once_after_a_copy_made_at_rest(original: Site, tmp_path: Path) -> None:
    with site(clone(original, tmp_path / "copy")) as copy:
        for one in (original, copy):
            one.go()
        runs = [
            subprocess.Popen([*RUN, str(one.root), "run", str(one.root / "plan.md"), "--workers", "1"])
            for one in (copy, original)
        ]
        assert [process.wait(PATIENCE_S) for process in runs] == [1, 0]
        assert copy.begun() == [] and len(original.begun()) == 2


def test_a_copy_started_first_is_asked_all_the_same_and_adopted_is_a_project_like_any(
    original: Site, tmp_path: Path
) -> None:
    with site(clone(original, tmp_path / "copy")) as copy:
        code, said = copy.run()
        assert code == 1 and "which is still there" in said
        assert copy("db", "adopt").code == 0
        copy.go()
        assert copy.run().code == 0
        with site(clone(copy, tmp_path / "second")) as second:
            code, said = second.run()
            assert code == 1 and f"is a copy of {copy.root}, which is still there" in said
            shutil.rmtree(copy.root)
            code, said = second.run()
            assert code == 1 and f"is a copy of {copy.root}, or was moved from there to another disk" in said
            assert second("db", "adopt").code == 0
            code, said = second.run()
            assert code == 0 and "2 completed" in said and second.begun() == [], said
        assert original.begun() == []


def test_a_backup_put_back_in_place_of_the_folder_is_asked_about(original: Site, tmp_path: Path) -> None:
    kept = clone(original, tmp_path / "kept")
    shutil.rmtree(original.root)
    kept.rename(original.root)
    code, said = original.run()
    assert code == 1 and "was restored, or is a copy" in said
    assert original("db", "adopt").code == 0
    original.go()
    assert original.run().code == 0


def test_a_store_of_another_folder_is_asked_about(original: Site, tmp_path: Path) -> None:
    """Its record is another's, or gone."""
    with site(tmp_path / "other") as other:
        other.go()
        assert other.run().code == 0
        for name in ("state.db", "state.db-wal", "state.db-shm"):
            (other.project.state_dir / name).unlink(missing_ok=True)
        original.go()
        assert original.run().code == 0
        shutil.copy(original.project.store, other.project.store)
        code, said = other("task", "cancel", "plan/one")
        assert code == 1 and "was made in another folder" in said, said
        assert other("db", "adopt").code == 0
        assert other("task", "list").code == 0
        (other.project.state_dir / "identity").unlink()
        code, said = other("up")
        assert code == 1 and "was made in another folder" in said, said
        code, said = other("db", "adopt")
        assert code == 0, said


def test_what_is_no_copy_is_not_adopted(original: Site) -> None:
    code, said = original("db", "adopt")
    assert code == 6 and "is no copy; nothing was changed" in said


@pytest.mark.parametrize(("answer", "code"), [(b"n\n", 1), (b"\n", 1), (b"y\n", 0)])
def test_on_a_terminal_a_person_is_asked(original: Site, tmp_path: Path, answer: bytes, code: int) -> None:
    with site(clone(original, tmp_path / "copy")) as copy:
        copy.go()
        ran = at_a_terminal(copy.root, answer, "run", str(copy.root / "plan.md"), "--workers", "1")
        assert "as a project of its own, with the tasks that are left? [y/N]" in ran.said, ran.said
        assert ran.code == code, ran.said
        assert len(copy.begun()) == (0 if code else 2)
