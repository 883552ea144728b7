"""S19: a moved project is the same one, also when it was moved while its crew was at work."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from copies import RUN, Site, alive, site

from muster.config.identity import look, settle
from muster.config.project import Project
from muster.hosts.file_lock import holder
from muster.hosts.local_host import LocalHost
from patience import PATIENCE_S, until


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Site]:
    with site(tmp_path / "here") as made:
        yield made


def gone(pids: list[int]) -> bool:
    return all(LocalHost().identify(pid) is None for pid in pids)


@pytest.mark.promise("S19")
def test_a_project_moved_between_two_runs_does_nothing_twice(here: Site, tmp_path: Path) -> None:
    here.go()
    assert here.run().code == 0
    here.root.rename(tmp_path / "there")
    with site(tmp_path / "there") as there:
        code, said = there.run()
        assert code == 0 and "0 tasks added, 2 there already" in said, said
        assert len(there.begun()) == 2
        plan = (there.root / "plan.md").read_text()
        assert plan.count("[x]") == 2
        (there.root / "plan.md").write_text(plan + "- [ ] Three {#three agent=work}\n")
        code, said = there.run()
        assert code == 0 and "1 task added" in said
        assert (there.root / "plan.md").read_text().count("[x]") == 3, (
            "boxes are ticked where the plan is now"
        )


@pytest.mark.promise("S19")
def test_a_project_moved_under_its_crew_ends_it_and_goes_on_in_its_new_place(
    here: Site, tmp_path: Path
) -> None:
    here.add()
    crew = subprocess.Popen([*RUN, str(here.root), "up", "--workers", "1"], stderr=subprocess.PIPE)
    until(here.begun, "an agent is at work")
    old = here.pids()
    here.root.rename(tmp_path / "there")
    _, said = crew.communicate(timeout=PATIENCE_S)
    assert crew.returncode == 1
    assert f"was moved to {tmp_path / 'there'} while its crew was at work".encode() in said, said
    with site(tmp_path / "there") as there:
        told = there("status").said
        assert "no owner" in told and "dead  pid" in told and "busy" not in told, told
        assert "ended without a word" not in told
        there.up()
        assert gone(old), "nobody works for the old place"
        there.go()
        there.settled()
        assert [task for task, _ in there.begun()].count(there.begun()[0][0]) == 2, "the one that was cut off"
        assert len(there.begun()) == 3
        assert not here.root.exists(), "nothing was written to the old place"


@pytest.mark.promise("S19")
def test_a_state_folder_renamed_under_its_crew_is_named_with_the_way_back(here: Site) -> None:
    here.add()
    crew = subprocess.Popen([*RUN, str(here.root), "up", "--workers", "1"], stderr=subprocess.PIPE)
    until(here.begun, "an agent is at work")
    aside = here.root / "aside"
    here.project.state_dir.rename(aside)
    _, said = crew.communicate(timeout=PATIENCE_S)
    assert crew.returncode == 1
    assert f"{here.project.state_dir} was moved to {aside} while".encode() in said, said
    assert f"mv {aside} {here.project.state_dir}; muster up".encode() in said, said
    assert not here.project.state_dir.exists(), "or it could not be put back"
    aside.rename(here.project.state_dir)
    here.go()
    code, told = here.run()
    assert code == 0 and "2 completed" in told, told


def test_run_right_after_the_move_waits_for_the_old_crew_to_end(here: Site, tmp_path: Path) -> None:
    here.add()
    here.up()
    old = here.pids()
    here.root.rename(tmp_path / "there")
    with site(tmp_path / "there") as there:
        there.go()
        code, said = there.run()
        assert code == 0 and "2 completed" in said, said
        assert gone(old)


def test_what_a_dead_supervisor_left_in_the_old_place_is_ended(here: Site, tmp_path: Path) -> None:
    here.add()
    here.up()
    old = here.pids()
    supervisor = holder(here.project.supervisor_lock)
    assert supervisor is not None
    os.kill(supervisor, 9)
    until(lambda: LocalHost().identify(supervisor) is None, "the supervisor is dead")
    assert alive(old)
    here.root.rename(tmp_path / "there")
    with site(tmp_path / "there") as there:
        assert there("status").code == 0
        there.go()
        code, said = there.run()
        assert code == 0 and "the project was moved while it was at work" in said, said
        assert gone(old)
        assert "2 completed" in said


WAYS = {
    "mv": ("mv {a} {b}", "moved"),
    "cp -r": ("cp -r {a} {b}", "copied"),
    "cp -a": ("cp -a {a} {b}", "copied"),
    "cp -a, original gone": ("cp -a {a} {b} && rm -r {a}", "copied"),
    "tar": ("mkdir {b} && tar -C {a} -c . | tar -C {b} -x", "copied"),
    "mv to another disk": ("mv {a} {disk}/b", "copied"),
    "restored in its place": ("cp -a {a} {b} && rm -r {a} && mv {b} {a}", "restored"),
    "swapped for a copy": ("mv {a} {b} && cp -a {b} {a}", "moved"),
    "a symbolic link": ("ln -s {a} {b}", "same"),
    "hard links": ("cp -al {a} {b}", "copied"),
    "only .muster moved": ("mkdir {b} && mv {a}/.muster {b}/.muster", "copied"),
}


@pytest.mark.parametrize("way", WAYS)
def test_what_a_folder_is_to_the_store_in_it(way: str, tmp_path: Path) -> None:
    command, expected = WAYS[way]
    a, b = tmp_path / "a", tmp_path / "b"
    (a / ".muster").mkdir(parents=True)
    project = Project(a)
    first = settle(project)
    (a / ".muster" / "state.db").touch()
    assert settle(project) == first
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as disk:
        if way == "mv to another disk" and Path(disk).stat().st_dev == tmp_path.stat().st_dev:
            pytest.skip("one disk only")
        subprocess.run(["sh", "-c", command.format(a=a, b=b, disk=disk)], check=True)
        there = a if expected == "restored" else Path(disk, "b") if "disk" in command else b.resolve()
        found = look(Project(there))
    assert found.id == first
    origin = None if expected == "same" else str(a)
    assert (found.origin, found.copied) == (origin, expected in {"copied", "restored"})
    if expected == "moved":
        assert settle(Project(there)) == first
        assert look(Project(there)).origin is None, "from now on it belongs there"
    if way == "swapped for a copy":
        assert look(project).copied, "the folder at the old place is another one"
