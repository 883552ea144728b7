"""Files whose names are not UTF-8, through a whole crew: nobody ends by them, and people read what git writes."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest
from git_projects import commit_first, git, make_project

from muster.config.project import Project
from muster_command import run_muster as muster

CONFIG = """\
agent = "w"
[workers]
count = 3
[task]
backoff = { first = "1ms", max = "1ms" }
[agents.w]
command = ["sh", "-eu"]
prompt = "script"
writes = true
"""
PLAN = r"""---
order: free
---
# Names
- [ ] Markers {#markers}
  f=$(printf 'm\377.txt'); test "$MUSTER_EPOCH" = 1 || { echo fine > "$f"; exit; }
  printf '<<<<<<< x\n=======\n>>>>>>> y\n' > "$f"
- [ ] Nested {#nested}
  d=$(printf 'r\377'); test "$MUSTER_EPOCH" = 1 || { rm -rf "$d/.git"; exit; }
  git init -q "$d"; cd "$d"; git -c user.name=a -c user.email=a@b commit -q --allow-empty -m x; touch a
- [ ] Large {#large}
  head -c 10000001 /dev/zero > "$(printf 'b\377.bin')"
- [ ] Ignored {#ignored}
  echo x > "$(printf 'ign\351')"; echo y > y.txt
"""
CONFLICT = r"""---
order: free
---
# Both
- [ ] Theirs {#theirs}
  echo theirs > "$(printf 'caf\351.txt')"
- [ ] Ours {#ours}
  f=$(printf 'caf\351.txt')
  test "$MUSTER_EPOCH" = 1 || { printf %s "$MUSTER_HANDOVER" > told; echo both > "$f"; exit; }
  until git rev-parse -q --verify muster/plan/both; do sleep 0.05; done; echo ours > "$f"
"""


def project_with(tmp_path: Path, plan: str) -> Path:
    project = make_project(tmp_path / "project", config=CONFIG, plan=plan)
    (project / ".gitignore").write_text("ign*\n.muster/\n")
    (project / os.fsdecode(b"caf\351.txt")).write_text("begin\n")
    commit_first(project, "muster.toml", ".gitignore", os.fsdecode(b"caf\351.txt"))
    return project


@pytest.mark.promise("S18")
def test_what_is_sent_back_left_out_or_named_is_named_as_git_does_it(tmp_path: Path) -> None:
    project = project_with(tmp_path, PLAN)
    done = muster(project, "run", "plan.md")
    out = done.stdout
    assert done.returncode == 0, out
    assert r'conflict markers in what it has changed: "m\377.txt":1' in out
    assert r'"r\377" is a git repository of its own' in out and r"/r\377/.git'" in out
    assert r'with large files: "b\377.bin" (10 MB)' in out
    assert r'because git ignores it: "ign\351"' in out
    assert "UnicodeEncodeError" not in Project(project).log_file.read_text()
    for task, attempts in (("markers", 2), ("nested", 2), ("large", 1), ("ignored", 1)):
        listed = json.loads(muster(project, "attempt", "list", task, "--json").stdout)
        assert [each["status"] for each in listed][-1] == "completed" and len(listed) == attempts, task
    names = git(project, "ls-tree", "-r", "--name-only", "muster/plan/names").splitlines()
    assert {r'"m\377.txt"', r'"r\377/a"', r'"b\377.bin"', "y.txt"} <= set(names)
    told = json.loads(muster(project, "plan", "merge", "names", "--dry-run", "--json").stdout)
    assert r'"b\377.bin"' in [file["path"] for file in told["files"]]
    shown = muster(project, "plan", "merge", "names", "--dry-run")
    assert shown.returncode == 0 and r'A "m\377.txt"' in shown.stdout, shown


@pytest.mark.promise("S18")
def test_a_conflict_in_it_is_told_to_its_agent_and_solved(tmp_path: Path) -> None:
    project = project_with(tmp_path, CONFLICT)
    done = muster(project, "run", "plan.md")
    assert done.returncode == 0, done.stdout
    assert r'does not merge with branch muster/plan/both: "caf\351.txt"' in done.stdout
    assert "UnicodeEncodeError" not in Project(project).log_file.read_text()
    assert git(project, "show", r"muster/plan/both:told").count(r'"caf\351.txt"') >= 2
    shown = git(project, "ls-tree", "muster/plan/both", os.fsdecode(b"caf\351.txt"))
    assert git(project, "cat-file", "blob", shown.split()[2]) == "both"


def test_an_artifact_of_such_a_name_reaches_the_owner(tmp_path: Path) -> None:
    plan = (
        "# A\n- [ ] One {#one changes=none}\n"
        '  f=$(printf \'art\\351.txt\'); echo inside > "$f"; muster report artifact found "$f"; rm "$f"\n'
    )
    project = project_with(tmp_path, plan)
    env = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    done = muster(project, "run", "plan.md", env=env)
    assert done.returncode == 0, done.stdout
    assert muster(project, "artifact", "get", "one", "found").stdout == "inside\n"
    listed = json.loads(muster(project, "artifact", "list", "one", "--json").stdout)
    assert "art\\351.txt" in [each["location"] for each in listed]
