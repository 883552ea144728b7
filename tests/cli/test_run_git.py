"""Agents that write, in a real repository and beside one, through `muster run`."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from pathlib import Path

import pytest
from git_projects import commit_first, git, make_project

from muster.config.project import Project
from muster.hosts.file_lock import holder
from muster_command import MUSTER
from muster_command import run_muster as muster
from patience import until

CONFIG = """\
agent = "writer"
[workers]
count = 3
[task]
backoff = { first = "1ms", max = "1ms" }
[agents.writer]
command = ["sh", "-eu"]
prompt = "script"
writes = true
"""
OLD_GIT = """\
for word in "$@"; do [ "$word" = version ] && echo "git version 2.30.2" && exit; done
exec "$real" "$@"
"""
PLAN = """\
# Git

- [ ] One {#one}
  echo 1 > one.txt; git add one.txt; git -c user.name=a -c user.email=a@b commit -qm one
  echo "$MUSTER_PORT_BASE" > port-one.txt
- [ ] Two {#two}
  echo 2 > two.txt; echo "$MUSTER_PORT_BASE" > port-two.txt
- [ ] Three {#three after=one,two}
  cat one.txt two.txt > three.txt
  echo "$MUSTER_BRANCH" > branch.txt
- [ ] Fails first {#again}
  if [ -e half.txt ]; then echo "$MUSTER_HANDOVER" > told.txt; exit 0; fi
  echo half > half.txt; exit 1
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return make_project(tmp_path / "project", config=CONFIG, plan=PLAN)


@pytest.fixture
def repository(project: Path) -> Path:
    commit_first(project, "muster.toml")
    (project / "muster.toml").write_text(CONFIG + "\n# not committed\n")
    return project


def test_each_task_works_apart_and_their_work_comes_together(repository):
    done = muster(repository, "run", "plan.md")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 file has uncommitted changes" in done.stdout and "muster plan merge git" in done.stdout
    assert {path.name for path in repository.iterdir()} == {".git", ".muster", "muster.toml", "plan.md"}
    assert git(repository, "status", "--porcelain") == " M muster.toml\n?? plan.md"
    show = lambda name: git(repository, "show", f"muster/plan/git:{name}")  # noqa: E731
    assert show("three.txt") == "1\n2" and show("branch.txt") == "muster/task/git/three"
    assert show("half.txt") == "half" and "attempt (#1)" in show("told.txt")
    ports = {int(show("port-one.txt")), int(show("port-two.txt"))}
    assert all(20_000 <= port < 32_768 for port in ports)
    assert git(repository, "branch", "--list", "muster/task/*") == ""
    assert len(git(repository, "worktree", "list").splitlines()) == 1

    listed = json.loads(muster(repository, "attempt", "list", "again", "--json").stdout)
    assert [(attempt["status"], attempt["exitCode"]) for attempt in listed] == [
        ("failed", 1),
        ("completed", 0),
    ]
    assert "1 file changed, 1 insertion" in listed[0]["work"]
    assert "failed" in muster(repository, "attempt", "list", "again").stdout
    shown = muster(repository, "attempt", "show", "again#1").stdout
    assert "Exit code  1" in shown and "muster attempt diff git/again#1" in shown
    assert "+half" in muster(repository, "attempt", "diff", "again#1").stdout
    assert "told.txt" not in muster(repository, "attempt", "diff", "again#1").stdout
    assert "told.txt" in muster(repository, "attempt", "diff", "again", "--stat").stdout
    assert "+half" in json.loads(muster(repository, "attempt", "diff", "again#1", "--json").stdout)["diff"]
    why = muster(repository, "why", "again").stdout
    assert "done by attempt 2" in why and "exit code 1" in why


def test_work_that_is_tried_again_shows_what_is_new_of_it_alone(repository):
    """Neither what it has published itself nor what others have since."""
    script = 'echo "$MUSTER_EPOCH" > "one-$MUSTER_EPOCH.txt"'
    plan = f"# P\n- [ ] One {{#one}}\n  {script}\n- [ ] Two {{#two after=one}}\n  echo 2 > two.txt\n"
    (repository / "plan.md").write_text(plan)
    assert muster(repository, "run", "plan.md").returncode == 0
    assert muster(repository, "task", "retry", "one", "--note", "one more").returncode == 0
    assert muster(repository, "run", "plan.md").returncode == 0
    listed = json.loads(muster(repository, "attempt", "list", "one", "--json").stdout)
    assert [attempt["status"] for attempt in listed] == ["completed", "completed"]
    number = json.loads(muster(repository, "task", "show", "one", "--json").stdout)["task"]["id"]
    diff = {
        "command": muster(repository, "attempt", "diff", "one").stdout,
        "api": json.loads(muster(repository, "api", "get", f"/api/v1/agent-tasks/{number}/diff").stdout)[
            "diff"
        ],
    }
    for told in diff.values():
        assert "one-2.txt" in told and "one-1.txt" not in told and "two.txt" not in told, diff
    assert "one-1.txt" in muster(repository, "attempt", "diff", "one#1").stdout
    assert "one-2.txt" in git(repository, "ls-tree", "--name-only", "muster/plan/p")


def test_boxes_that_muster_has_ticked_are_no_change_to_commit(project):
    (project / "plan.md").write_text("# P\n- [ ] One {#one changes=none}\n  true\n")
    commit_first(project, "muster.toml", "plan.md")
    assert muster(project, "run", "plan.md").returncode == 0
    assert git(project, "status", "--porcelain") == " M plan.md"
    assert "uncommitted" not in muster(project, "run", "plan.md").stdout
    more = "- [ ] Two {#two changes=none}\n  echo new\n"
    (project / "plan.md").write_text((project / "plan.md").read_text() + more)
    assert "1 file has uncommitted changes" in muster(project, "run", "plan.md").stdout


def test_the_work_of_an_attempt_whose_worker_was_killed_is_told_as_well(repository):
    script = 'echo half > half.txt; [ "$MUSTER_EPOCH" = 2 ] || { kill -9 $PPID; sleep 100; }'
    (repository / "plan.md").write_text(f"# P\n- [ ] Killed {{#killed}}\n  {script}\n")
    assert muster(repository, "run", "plan.md").returncode == 0
    first, second = json.loads(muster(repository, "attempt", "list", "killed", "--json").stdout)
    assert (first["status"], second["status"]) == ("lost", "completed")
    assert "1 since its start, 1 file changed, 1 insertion" in first["work"]
    shown = muster(repository, "attempt", "show", "killed#1").stdout
    assert "1 file changed" in shown and "muster attempt diff p/killed#1" in shown
    assert "+half" in muster(repository, "attempt", "diff", "killed#1").stdout


@pytest.mark.promise("S18")
def test_done_work_is_published_once_after_the_whole_crew_was_killed(repository):
    (repository / "muster.toml").write_text(CONFIG.replace("[task]", "[task]\nlosses = 1"))
    script = (
        'echo ran >> "$R/runs"; echo work > out.txt; muster report done; echo $PPID > "$R/said"; sleep 1000'
    )
    plan = f'# P\n- [ ] Said {{#said retries=0}}\n  R="$MUSTER_ROOT"; {script}\n'
    (repository / "plan.md").write_text(plan)
    said, project = repository / "said", Project(repository)
    with subprocess.Popen([*MUSTER, "run", "plan.md"], cwd=repository, stdout=subprocess.DEVNULL) as run:
        until(lambda: said.exists() and said.read_text().strip(), "its agent has said that it is done")
        for pid in (run.pid, holder(project.owner_lock), int(said.read_text())):
            assert pid is not None
            os.kill(pid, signal.SIGKILL)
    done = muster(repository, "run", "plan.md")
    assert done.returncode == 0, done.stdout + done.stderr
    assert (repository / "runs").read_text() == "ran\n"
    assert len(git(repository, "log", "--format=%h", "muster/plan/p", "--", "out.txt").splitlines()) == 1
    assert muster(repository, "run", "plan.md").returncode == 0
    assert (repository / "runs").read_text() == "ran\n"


def test_setup_makes_a_tree_ready_and_its_failure_is_told(repository):
    config = CONFIG + '\n[git]\nsetup = "echo tool > tool.log; test ! -e stop"\nmerge = false\nkeep = true\n'
    (repository / "muster.toml").write_text(config)
    (repository / "plan.md").write_text("# P\n- [ ] Use it {#use}\n  cat tool.log > out.txt\n")
    (repository / ".git" / "info").mkdir(exist_ok=True)
    (repository / ".git" / "info" / "exclude").write_text("*.log\n")
    assert muster(repository, "run", "plan.md").returncode == 0
    assert git(repository, "show", "muster/task/p/use:out.txt") == "tool"
    assert git(repository, "branch", "--list", "muster/plan/*") == "", "merge = false"
    assert len(git(repository, "worktree", "list").splitlines()) == 2, "keep = true"
    (repository / "muster.toml").write_text(config.replace("test ! -e stop", "exit 9"))
    (repository / "more.md").write_text("# M\n- [ ] Never {#never retries=0}\n  true\n")
    assert muster(repository, "run", "more.md").returncode == 5
    why = muster(repository, "why", "m/never").stdout
    assert "git.setup ended with exit code 9: echo tool" in why


def test_without_a_repository_one_writes_at_a_time(project):
    script = "if mkdir busy; then sleep 0.3; rmdir busy; else exit 9; fi"
    tasks = "".join(f"- [ ] T{n} {{#t{n} retries=0}}\n  {script}\n" for n in range(4))
    (project / "plan.md").write_text(f"# P\n{tasks}")
    done = muster(project, "run", "plan.md")
    assert done.returncode == 0, done.stdout
    assert muster(project, "attempt", "diff", "t0").returncode == 3


def test_it_says_where_agents_write_before_they_do(project):
    one = '[agents.{}]\ncommand = ["true"]\n{}\n'
    more = one.format("reader", "writes = false") + one.format("ops", 'workdir = "project"')
    tasks = "".join(
        f"- [ ] {name} {{#{name} agent={name}}}\n  true\n" for name in ("writer", "reader", "ops")
    )

    def said(plan: str, config: str = "") -> str:
        text = (CONFIG + more).replace("[workers]", f"{config}[workers]")
        (project / "muster.toml").write_text(text.replace("writes = true", ""))
        (project / f"{plan}.md").write_text(f"# {plan}\n{tasks}")
        out = muster(project, "run", f"{plan}.md").stdout
        (line,) = (line for line in out.splitlines() if line.startswith("Writes"))
        assert out.index(line) < out.index("running"), "before the first of them begins"
        return line

    here = f"in {project} itself"
    assert said("a") == f"Writes   ops, writer {here}; reader changes nothing (it is in no git repository)"
    git(project, "init", "-q", "--template=")
    assert said("b").endswith("(its git repository has no commit yet)")
    git(project, "commit", "-qm", "first", "--allow-empty")
    trees = "writer in trees of their own, for"
    assert said("c") == f"Writes   ops {here}; reader changes nothing; {trees} branch muster/plan/c"
    assert said("d", "git.merge = false\n").endswith(f"{trees} a branch of each task")
    assert said("e", "git.worktrees = false\n").endswith("(git.worktrees = false)")


def test_agents_whose_workdir_is_the_project_work_in_its_folder(repository):
    (repository / "muster.toml").write_text(CONFIG.replace("writes = true", 'workdir = "project"'))
    (repository / "plan.md").write_text("# P\n- [ ] Here {#here}\n  touch here.txt\n")
    assert muster(repository, "run", "plan.md").returncode == 0
    assert (repository / "here.txt").exists()
    assert git(repository, "branch", "--list", "muster/*") == ""


def test_limits_and_hangs_through_the_whole_crew(project):
    (project / "muster.toml").write_text(
        CONFIG + 'home = "own"\nstall_after = "1500ms"\n[agents.writer.limits]\noutput = "2MB"\nfiles = 64\n'
    )
    (project / "plan.md").write_text(
        "---\norder: free\n---\n# P\n- [ ] Loud {#loud retries=0}\n  yes\n"
        "- [ ] Still {#still retries=0}\n  echo begun; sleep 1000\n"
        '- [ ] Fine {#fine}\n  test "$(ulimit -n)" = 64; touch "$HOME/seen"\n'
    )
    assert muster(project, "run", "plan.md").returncode == 5
    assert "(agents.writer.limits.output)" in muster(project, "why", "loud").stdout
    still = muster(project, "why", "still").stdout
    assert "it hung: " in still and "seems to hang: for " in still and "sleep" in still
    assert "seems to hang" in muster(project, "task", "show", "still").stdout
    (seen,) = (project / ".muster" / "homes" / "writer").glob("*/seen")
    assert seen.parent.name in {"1", "2", "3"}


def test_each_worker_has_a_home_and_all_share_a_folder(project):
    config = CONFIG.replace("count = 3", "count = 2").replace("writes = true", 'home = "own"')
    (project / "muster.toml").write_text(config)
    both = '[ "$(wc -l < "$MUSTER_SHARED/met")" -ge 2 ]'
    meet = f'echo "$HOME" >> "$MUSTER_SHARED/met"; until {both}; do sleep 0.05; done'
    both = f"- [ ] One {{#one}}\n  {meet}\n- [ ] Two {{#two}}\n  {meet}\n"
    (project / "plan.md").write_text(f"---\norder: free\n---\n# P\n{both}")
    assert muster(project, "run", "plan.md").returncode == 0
    homes = project / ".muster" / "homes" / "writer"
    assert sorted((homes / "shared" / "met").read_text().split()) == [str(homes / "1"), str(homes / "2")]
    (project / "again.md").write_text(f"# Q\n- [ ] Three {{#three}}\n  {meet}\n")
    assert muster(project, "run", "again.md").returncode == 0
    assert sorted(path.name for path in homes.iterdir()) == ["1", "2", "shared"], "a seat is taken again"


def test_doctor_tells_where_agents_write(repository, project):
    assert "trees and branches for writer" in muster(repository, "doctor").stdout
    old = project / "bin"
    old.mkdir()
    (old / "git").write_text(f"#!/bin/sh\nreal={shutil.which('git')}\n" + OLD_GIT)
    (old / "git").chmod(0o755)
    path = f"{old}{os.pathsep}{os.environ['PATH']}"
    told = subprocess.run(
        [*MUSTER, "doctor"],
        cwd=project,
        capture_output=True,
        text=True,
        env={**os.environ, "PATH": path},
        check=False,
    )
    assert "2.30.2 cannot merge what tasks have made" in told.stdout and "merge = false" in told.stdout
    (project / "muster.toml").write_text(CONFIG + "[git]\nworktrees = false\n")
    assert "one of writer works at a time" in muster(project, "doctor").stdout
