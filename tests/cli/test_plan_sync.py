"""A plan and its file stay in step while a crew is up: real owner, real file, real git."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from git_projects import commit_first, git, make_project

from muster.cli.plan_changes import tell
from muster_command import run_muster as muster
from patience import until

CONFIG = 'agent = "shell"\n[workers]\ncount = 1\n[plan]\ndebounce = "0.05s"\nsettle = "0.1s"\n'
WAITING = "# Plan\n\n- [ ] First {#a after=gate}\n  true\n- [ ] Second {#b after=gate}\n  true\n"
GATE = "- [ ] Gate {#gate cap=nobody}\n  true\n"


class Project:
    def __init__(self, folder: Path) -> None:
        self.folder, self.plan = folder, folder / "plan.md"

    def ask(self, *argv: str) -> Any:
        """The answer as JSON."""
        done = muster(self.folder, *argv, "--json")
        assert done.returncode == 0, done.stdout + done.stderr
        return json.loads(done.stdout)

    def say(self, *argv: str) -> str:
        done = muster(self.folder, *argv)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def status(self, key: str) -> str:
        tasks = {task["key"]: task["status"] for task in self.ask("plan", "show", "plan")["tasks"]}
        return str(tasks.get(key, ""))

    def sync(self) -> Any:
        return self.ask("plan", "sync", "plan", "--status")

    def conflicts(self) -> dict[str, str]:
        return {one["key"]: one["kind"] for one in self.sync()["conflicts"]}

    def edit(self, old: str, new: str) -> None:
        text = self.plan.read_text()
        assert old in text
        beside = self.plan.with_name("new")
        beside.write_text(text.replace(old, new))
        beside.rename(self.plan)

    def becomes(self, key: str, status: str) -> None:
        until(lambda: self.status(key) == status, f"{key} is {status}")


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    folder = make_project(tmp_path / "project", config=CONFIG, plan=WAITING + GATE)
    commit_first(folder, "plan.md", "muster.toml")
    found = Project(folder)
    found.say("plan", "add", "plan.md")
    found.say("up", "--daemon")
    # Its first look at the file is behind it.
    found.say("plan", "sync", "plan", "--once")
    yield found
    muster(folder, "down", "--now")


def test_what_waits_for_the_end_of_its_task_is_not_offered_to_be_taken_in(project: Project) -> None:
    project.say("claim", "take", "plan/gate")
    project.edit("Gate {", "Great gate {")
    until(lambda: project.sync()["running"] == ["gate"], "the edit is seen")
    project.say("plan", "sync", "plan")
    told = project.say("plan", "sync", "plan", "--status")
    assert (
        "gate  edited: taken in once its task no longer runs, unless it is done by then" in told
        and "next:" not in told
    )


def test_a_persons_tick_completes_a_waiting_task_and_is_audited(project: Project) -> None:
    project.edit("[ ] First", "[x] First")
    project.becomes("a", "COMPLETED")
    events = project.ask("audit", "list", "--task", "plan/a")
    assert [event["actor"] for event in events if event["event"] == "completed"] == ["the file"]
    told = until(
        lambda: [e for e in project.ask("audit", "list") if e["event"] == "plan_synced"],
        "the log of the sync",
    )
    assert told[-1]["message"] == "completed: a"
    assert project.sync()["conflicts"] == []


def test_a_title_that_gets_too_long_is_told_in_plain_words(project: Project) -> None:
    title = project.plan.read_text().splitlines()[0]
    project.edit(title, f"# {'word ' * 90}")
    problem = until(lambda: project.sync()["problem"], "the edit is seen")
    assert "the plan's title makes a name of 449 characters, and a plan's name has at most 200" in problem


def test_a_new_box_joins(project: Project) -> None:
    project.edit(GATE, GATE + "- [ ] Third {#c}\n  true\n")
    project.becomes("c", "COMPLETED")
    until(lambda: "[x] Third" in project.plan.read_text(), "its box is ticked")
    assert project.say("plan", "sync", "plan") == "plan  in step\n"


def conflicts_of(project: Project, *keys: str) -> dict[str, str]:
    return until(
        lambda: found if (found := project.conflicts()).keys() >= set(keys) else None, f"{keys} wait"
    )


def test_a_cleared_box_asks_and_is_opened_again_or_ticked_again(project: Project) -> None:
    project.say("task", "complete", "plan/a", "plan/b")
    until(lambda: project.plan.read_text().count("[x]") == 2, "both boxes are ticked")
    project.edit("[x] First", "[ ] First, really")
    project.edit("[x] Second", "[ ] Second")
    assert conflicts_of(project, "a", "b") == {"a": "cleared", "b": "cleared"}
    assert "2 changes in its file: a, b" in project.say("status")
    assert [len(row["conflicts"]) for row in project.ask("inbox") if "conflicts" in row] == [2]
    assert (project.status("a"), project.status("b")) == ("COMPLETED", "COMPLETED")
    project.say("plan", "sync", "plan", "--accept", "a")
    assert project.status("a") == "PENDING"
    project.say("plan", "sync", "plan", "--reject", "plan/b")
    assert "[ ] First, really" in project.plan.read_text() and "[x] Second" in project.plan.read_text()
    until(lambda: not project.conflicts(), "they agree")
    assert "in its file" not in project.say("inbox")
    said = [event for event in project.ask("audit", "list") if event["event"] == "plan_synced"]
    assert {event["message"] for event in said} >= {"accepted: a", "rejected: b"}
    assert all(event["actor"].startswith("user:") for event in said if "cepted" in event["message"])


def test_a_group_is_not_accepted_before_its_tasks(project: Project) -> None:
    group = "- [ ] Group {#g}\n  - [ ] Inner {#i after=gate}\n    true\n"
    project.edit(GATE, f"{GATE}{group}- [ ] Behind {{#behind after=g}}\n  true\n")
    project.becomes("i", "PENDING")
    project.edit("[ ] Group", "[x] Group")
    conflicts_of(project, "g")
    told = project.say("plan", "sync", "plan", "--status")
    assert "next: muster plan sync plan --reject KEY, or tick the tasks below it\n" in told
    refused = muster(project.folder, "plan", "sync", "plan", "--accept", "g")
    assert refused.returncode == 6
    assert "g: tasks below it are still to be done" in refused.stderr and "--reject g" in refused.stderr
    all_of_it = muster(project.folder, "plan", "sync", "plan", "--accept")
    assert (all_of_it.returncode, all_of_it.stderr) == (6, refused.stderr), "nothing at all was accepted"
    project.say("task", "complete", "plan/a")
    until(lambda: "[x] First" in project.plan.read_text(), "its box is ticked")
    project.edit("[x] First", "[ ] First, now")
    until(lambda: set(project.conflicts()) == {"a", "g"}, "both are asked about")
    part = muster(project.folder, "plan", "sync", "plan", "--accept")
    assert (part.returncode, "accepted: a; not accepted: g" in part.stdout) == (1, True), part.stdout
    assert project.status("behind") == "PENDING"
    project.edit("[ ] Inner", "[x] Inner")
    project.becomes("behind", "COMPLETED")


def test_what_may_be_renamed_is_told_with_the_commands_that_work(project: Project) -> None:
    project.edit(GATE, GATE + "- [ ] Tell the team {after=gate}\n  true\n")
    project.becomes("tell-the-team", "PENDING")
    project.plan.rename(project.folder / "my plan.md")
    project.say("plan", "add", "my plan.md", "--as", "plan")
    project.plan = project.folder / "my plan.md"
    project.say("plan", "sync", "plan", "--once")
    project.say("task", "complete", "plan/tell-the-team")
    until(lambda: "[x] Tell the team" in project.plan.read_text(), "its box is ticked")
    project.edit("[x] Tell the team", "[ ] Announce it to the team")
    conflicts_of(project, "announce-it-to-the-team")
    add = "next: muster plan add 'my plan.md' --same tell-the-team=announce-it-to-the-team"
    told = project.say("plan", "sync", "plan", "--status")
    assert f"{add} if it is that task, or --new-task announce-it-to-the-team if it is new work\n" in told
    assert "next: muster plan sync plan --reject KEY keeps the plan as it is\n" in told
    assert "--accept" not in told
    project.say("task", "complete", "plan/a")
    until(lambda: "[x] First" in project.plan.read_text(), "its box is ticked")
    project.edit("[x] First", "[ ] First, now")
    conflicts_of(project, "a")
    told = project.say("plan", "sync", "plan", "--status")
    rest = "only --reject of announce-it-to-the-team, tell-the-team"
    assert add in told and f"next: muster plan sync plan --accept KEY, or --reject KEY; {rest}\n" in told
    project.say("plan", "add", "my plan.md", "--same", "tell-the-team=announce-it-to-the-team")
    until(lambda: "announce-it-to-the-team" not in project.conflicts(), "that is answered")


def test_what_comes_with_a_checkout_waits(project: Project) -> None:
    # Written elsewhere: in the project's folder it would be a person's tick until it is committed.
    beside = project.folder.with_name("beside")
    git(project.folder, "worktree", "add", "-qb", "other", str(beside))
    text = project.plan.read_text().replace("[ ] First", "[x] First") + "- [ ] New {#new}\n  true\n"
    (beside / "plan.md").write_text(text)
    git(beside, "commit", "-qam", "other")
    git(project.folder, "worktree", "remove", str(beside))
    git(project.folder, "checkout", "-q", "other")
    assert conflicts_of(project, "a", "new") == {"a": "ticked", "new": "added"}
    git(project.folder, "checkout", "-q", "-")
    until(lambda: not project.conflicts(), "what is not there any more is not asked")
    project.say("plan", "sync", "plan")
    git(project.folder, "checkout", "-q", "other")
    waits = conflicts_of(project, "a")
    assert waits["a"] == "ticked" and project.status("a") == "PAUSED"
    project.say("plan", "sync", "plan", "--accept")
    assert project.status("a") == "COMPLETED"


def test_a_rejected_edit_stays_rejected_until_it_is_edited_again(project: Project) -> None:
    project.say("down", "--now")
    project.edit("First", "Primo")
    before = project.say("plan", "sync", "plan", "--status")
    assert "a  edited: not taken in yet; once a crew is up, its task is held until you say so" in before
    up = project.say("up", "--daemon")
    assert "Changed  plan: a in its file; held until you say so\nNext     muster plan sync plan" in up
    assert conflicts_of(project, "a") == {"a": "edited"} and project.status("a") == "PAUSED"
    held = "what has not begun is held until"
    assert f"{held} you say so" in project.say("plan", "add", "plan.md")
    project.say("plan", "sync", "plan", "--reject", "a")
    added = project.say("plan", "add", "plan.md")
    assert "Changed  a: title" in added and held not in added
    assert project.say("plan", "sync", "plan") == "plan  in step\n" and project.status("a") == "PENDING"
    assert "a  title" in project.say("plan", "diff", "plan.md")
    project.edit("Primo", "Erste")
    until(lambda: "Erste" in project.say("task", "show", "plan/a"), "it is taken up")


def test_what_was_edited_while_no_crew_was_up_does_not_begin_with_its_old_text(project: Project) -> None:
    project.say("down", "--now")
    ready = "".join(f"- [ ] Ready {n} {{#r{n}}}\n  touch old-{n}\n" for n in range(9))
    project.plan.write_text(project.plan.read_text() + ready)
    project.say("plan", "add", "plan.md")
    project.plan.write_text(project.plan.read_text().replace("touch old", "touch new"))
    project.say("up", "--daemon")
    keys = {f"r{n}" for n in range(9)}
    assert conflicts_of(project, *keys) == dict.fromkeys(keys, "edited")
    assert {project.status(key) for key in keys} == {"PAUSED"}
    told = project.say("why", "plan/r0")
    assert "waits, because its box in the plan's file says otherwise" in told
    refused = muster(project.folder, "task", "resume", "plan/r0")
    assert refused.returncode == 6 and "--reject r0 to go on as it is" in refused.stderr
    project.say("plan", "sync", "plan", "--accept")
    for key in keys:
        project.becomes(key, "COMPLETED")
    made = git(project.folder, "ls-tree", "--name-only", "muster/plan/plan").split()
    assert {name for name in made if "-" in name} == {f"new-{n}" for n in range(9)}


def test_what_is_asked_of_a_file_that_is_gone_offers_no_answer(project: Project) -> None:
    project.say("down", "--now")
    project.edit("First", "Primo")
    project.say("up", "--daemon")
    conflicts_of(project, "a")
    project.plan.rename(project.folder / "elsewhere.md")
    told = project.say("plan", "sync", "plan", "--status")
    assert "plan.md is not there: muster plan add NEW_NAME" in told and "--accept" not in told
    gone = "muster plan add NEW_NAME goes on with it where it was renamed; 1 change in its file: a"
    until(lambda: gone in project.say("inbox"), "the inbox says it as well")


def test_other_settings_are_nobodys_edit(project: Project) -> None:
    project.say("down", "--now")
    with (project.folder / "muster.toml").open("a") as settings:
        settings.write("[task]\nretries = 8\n")
    assert "a  edited: by other settings; taken in soon" in project.say("plan", "sync", "plan", "--status")
    assert "Changed" not in project.say("up", "--daemon")
    until(lambda: project.ask("task", "show", "plan/a")["task"]["maxRetries"] == 8, "it is taken in")
    assert project.conflicts() == {}


def test_boxes_are_compared_and_written_again(project: Project) -> None:
    project.say("task", "complete", "plan/a")
    until(lambda: "[x] First" in project.plan.read_text(), "it is ticked")
    project.edit("[x] First", "[ ] First, now")
    assert "a  its box says otherwise than the task" in project.say("plan", "diff", "plan.md")
    project.say("plan", "tick", "plan")
    assert "[x] First" in project.plan.read_text()
    assert "boxes that differ" not in project.say("plan", "diff", "plan.md")


def test_boxes_that_cannot_be_ticked_are_an_error_of_the_command(project: Project) -> None:
    project.say("task", "complete", "plan/a")
    until(lambda: "[x] First" in project.plan.read_text(), "it is ticked")
    project.plan.rename(project.folder / "elsewhere")
    done = muster(project.folder, "plan", "tick", "plan")
    assert done.returncode == 1 and "plan  not ticked yet: " in done.stdout, done.stdout + done.stderr
    for words, code in (((), 1), (("--status",), 0), (("--reject",), 2)):
        done = muster(project.folder, "plan", "sync", "plan", *words)
        assert done.returncode == code, (words, done.stdout, done.stderr)
    (project.folder / "elsewhere").rename(project.plan)
    for verb in ("tick", "sync"):
        assert muster(project.folder, "plan", verb, "plan").returncode == 0, verb


def test_without_a_crew_it_is_done_by_the_command(project: Project) -> None:
    project.say("down", "--now")
    project.edit("[ ] First", "[x] First")
    project.edit(GATE, GATE + "- [ ] Third {#c after=gate}\n  true\n")
    differs = "plan  not in step\n  a  ticked: not taken in yet\n  c  added: not taken in yet\n"
    assert (
        project.say("plan", "sync", "plan", "--status")
        == f"{differs}  next: muster plan sync plan takes it in\n"
    )
    told = project.say("plan", "sync", "plan")
    assert told == "plan  completed: a; added: c\n"
    assert (project.status("a"), project.status("c")) == ("COMPLETED", "PENDING")
    project.say("task", "retry", "plan/a")
    assert "[ ] First" in project.plan.read_text(), "a task that is started anew has its box cleared"


def test_a_system_without_watches_is_polled(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    project.say("down", "--now")
    hook = project.folder.parent / "hook"
    hook.mkdir()
    (hook / "watchfiles.py").write_text("def watch(*_, **__):\n    raise OSError(28, 'no watches left')\n")
    monkeypatch.setenv("PYTHONPATH", str(hook))
    project.say("up", "--daemon")
    log = project.folder / ".muster" / "muster.log"
    until(lambda: "cannot be watched" in log.read_text(), "it says so")
    project.edit("[ ] First", "[x] First")
    project.becomes("a", "COMPLETED")


def test_a_moved_project_goes_on(project: Project) -> None:
    project.say("down", "--now")
    moved = Project(project.folder.rename(project.folder.with_name("moved")))
    moved.say("up", "--daemon")
    try:
        moved.edit("[ ] First", "[x] First")
        moved.becomes("a", "COMPLETED")
        moved.say("task", "complete", "plan/b")
        until(lambda: "[x] Second" in moved.plan.read_text(), "it is ticked")
    finally:
        moved.say("down", "--now")
        moved.folder.rename(project.folder)


def test_a_run_ends_with_the_boxes_that_differ(tmp_path: Path) -> None:
    """An agent ticks its own box, and fails."""
    script = "sed -i 's/^- ... Mine/- [x] Mine/' plan.md; exit 1"
    plan = f"- [ ] Mine {{#mine retries=0}}\n  {script}\n"
    folder = make_project(tmp_path / "bare", config=CONFIG, plan=plan)
    ran = muster(folder, "run", "plan.md")
    assert ran.returncode == 5, ran.stdout + ran.stderr
    assert "Boxes    1 box differs: mine; muster plan sync plan --status" in ran.stdout


def test_what_a_merge_brings_waits_before_and_after_its_commit(project: Project) -> None:
    folder = project.folder
    git(folder, "checkout", "-qb", "other")
    beside = folder.with_name("beside")
    git(folder, "checkout", "-q", "-")
    git(folder, "worktree", "add", "-q", str(beside), "other")
    text = (beside / "plan.md").read_text()
    (beside / "plan.md").write_text(text + "- [ ] Theirs {#theirs}\n  touch ran\n")
    git(beside, "commit", "-qam", "theirs")

    git(folder, "merge", "--no-commit", "--no-ff", "-q", "other")
    why = until(lambda: {one["key"]: one["why"] for one in project.sync()["conflicts"]}, "it waits")
    assert why == {"theirs": "git was at work at the same time"}
    git(folder, "commit", "-qm", "merged")
    project.say("plan", "sync", "plan", "--once")  # it sees where HEAD stands now
    project.edit("] Second", "] Another")  # a person's own, which is taken in once git is through
    until(lambda: project.ask("task", "show", "plan/b")["task"]["title"] == "Another", "the edit")
    assert project.status("theirs") == "" and set(project.conflicts()) == {"theirs"}
    project.say("plan", "sync", "plan", "--accept", "theirs")
    project.becomes("theirs", "COMPLETED")


@pytest.mark.parametrize(
    ("standing", "told"),
    [
        (
            {"conflicts": [{"key": "a"}], "untaken": []},
            "         what has not begun is held until you say so",
        ),
        (
            {"conflicts": [], "untaken": [["a", "edited", ""]]},
            "         what has not begun is held until it is taken in",
        ),
        (
            {"conflicts": [], "untaken": [["a", "edited", ""]], "unwatched": True},
            "         what has not begun is held until you say so",
        ),
        ({"conflicts": [{"key": "b"}], "untaken": [["c", "added", ""]]}, "--update"),
        (None, "--update"),
    ],
)
def test_what_is_held_is_told_as_the_crew_has_it(standing: Any, told: str) -> None:
    change = {"key": "a", "fields": ["title"], "kept": "", "status": "PENDING"}
    diff = {"renamed": [], "changed": [change], "removed": [], "restored": []}
    lines: list[str] = []
    tell(diff, lines.append, applied=False, standing=lambda: standing)
    assert told in lines[-1]
