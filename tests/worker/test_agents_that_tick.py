"""A crew whose agents tick and edit the plan that they work on."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
from repositories import GIT_ENV, git, make_repository

from muster_command import run_muster as muster

CONFIG = """\
agent = "writer"
[workers]
count = 2
[task]
retries = 0
[agents.writer]
command = ["sh", "-eu"]
prompt = "script"
writes = true
{more}
"""
TICKS = "sed -i 's/\\[ \\]/[x]/' plan.md; echo work > {name}.txt"
BRANCH = "muster/plan/p"


@pytest.fixture(autouse=True)
def a_name_for_commits(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("GIT_")]:
        monkeypatch.delenv(name)
    for name, value in GIT_ENV.items():
        monkeypatch.setenv(name, value)


def project(tmp_path: Path, tasks: dict[str, str], more: str = "", *, commit: bool = True) -> Path:
    """In a subfolder of its repository."""
    folder = make_repository(tmp_path / "home") / "sub"
    folder.mkdir()
    boxes = "".join(f"- [ ] {name}\n  {script}\n" for name, script in tasks.items())
    (folder / "plan.md").write_text(f"# P\n\n{boxes}")
    (folder / "muster.toml").write_text(CONFIG.format(more=more))
    if commit:
        git(folder, "add", "plan.md")
        git(folder, "commit", "-qm", "the plan")
    return folder


def statuses(folder: Path) -> dict[str, str]:
    told = json.loads(muster(folder, "task", "list", "--plan", "p", "--json").stdout)
    return {task["key"]: task["status"] for task in told}


def of_branch(folder: Path) -> bytes:
    shown = ["git", "show", f"{BRANCH}:./plan.md"]
    return subprocess.run(shown, cwd=folder, capture_output=True, check=True).stdout


def ticked(plan: bytes, *names: str) -> bytes:
    for name in names:
        plan = plan.replace(f"[ ] {name}".encode(), f"[x] {name}".encode())
    return plan


def test_two_that_tick_everything_at_once_complete_nothing_but_themselves(tmp_path: Path) -> None:
    """Each waits until the other one is at work as well; one commits by itself."""
    both = f"until test -e {tmp_path}/one -a -e {tmp_path}/two; do sleep 0.05; done"
    meet = {name: f"touch {tmp_path}/{name}; {both}; {TICKS.format(name=name)}" for name in ("one", "two")}
    mine = f"{meet['one']}; git add .; git -c user.name=a -c user.email=a@b commit -qm mine"
    folder = project(tmp_path, meet | {"one": mine, "later": "exit 1"})
    before = (folder / "plan.md").read_bytes()
    done = muster(folder, "run", "plan.md", "--order", "free")
    assert statuses(folder) == {"one": "COMPLETED", "two": "COMPLETED", "later": "FAILED"}, done.stdout
    assert of_branch(folder) == before
    assert git(folder, "ls-tree", "--name-only", BRANCH, ".").split() == ["one.txt", "plan.md", "two.txt"]
    assert (folder / "plan.md").read_bytes() == ticked(before, "one", "two"), "of the user's own what is true"
    merged = muster(folder, "plan", "merge", "p")
    assert merged.returncode == 0, merged.stderr
    assert (folder / "plan.md").read_bytes() == ticked(before, "one", "two")


def test_who_only_ticks_has_done_nothing(tmp_path: Path) -> None:
    folder = project(tmp_path, {"lazy": "sed -i 's/\\[ \\]/[x]/' plan.md", "other": "true"})
    before = (folder / "plan.md").read_bytes()
    done = muster(folder, "run", "plan.md", "--order", "free")
    assert statuses(folder)["lazy"] == "PAUSED", done.stdout
    assert "has changed nothing" in muster(folder, "task", "show", "p/lazy").stdout
    assert (folder / "plan.md").read_bytes() == before


def test_who_writes_the_plan_may_do_so(tmp_path: Path) -> None:
    edit = "sed -i '1s/.*/# P of ours/; s/\\[ \\]/[x]/' plan.md; echo '- [x] new' >> plan.md"
    folder = project(tmp_path, {"plan": edit})
    before = (folder / "plan.md").read_bytes()
    muster(folder, "run", "plan.md")
    assert of_branch(folder) == before.replace(b"# P\n", b"# P of ours\n") + b"- [ ] new\n"
    merged = muster(folder, "plan", "merge", "p")
    assert merged.returncode == 0, merged.stderr
    assert (folder / "plan.md").read_bytes() == ticked(of_branch(folder), "plan")


def test_where_it_is_switched_off_a_tick_is_a_change_like_any_other(tmp_path: Path) -> None:
    folder = project(tmp_path, {"one": TICKS.format(name="one"), "two": "true"}, "[plan]\nprotect = false\n")
    muster(folder, "run", "plan.md", "--order", "free")
    assert of_branch(folder) == ticked((folder / "plan.md").read_bytes(), "one", "two")


def test_in_the_users_own_folder_a_tick_waits_for_a_person(tmp_path: Path) -> None:
    """There its agent writes the file itself: the sync has to see that."""
    waits = "until muster plan sync p --status | grep 'two  ticked: an agent had it'; do sleep 0.1; done"
    folder = project(
        tmp_path, {"one": f"{TICKS.format(name='one')}; {waits}", "two": "exit 1"}, 'workdir = "project"\n'
    )
    done = muster(folder, "run", "plan.md", "--order", "file", "--workers", "1")
    assert statuses(folder) == {"one": "COMPLETED", "two": "FAILED"}, done.stdout
    assert (
        "two  ticked: an agent had it, or could write the file"
        in muster(folder, "plan", "sync", "p", "--status").stdout
    )
