"""S18 over real processes: checks, rounds and reviews, and what a cancel finds while a branch is moved."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest
from real_crew import crew
from repositories import git, make_repository
from test_publishing import BRANCH, STEPS, stage  # noqa: F401

from muster.client.api import Api
from muster.model.errors import MusterError
from muster.model.wording import FOR_YOU
from patience import until

CONFIG = """\
[health]
heartbeat = "200ms"
[task]
rounds = 2
{task}
[agents.writer]
command = ["sh", "-eu"]
prompt = "script"
writes = true
"""


class Crew:
    def __init__(self, api: Api, root: Path) -> None:
        self.api, self.root = api, root

    def add(self, script: str, **fields: Any) -> None:
        task = {"key": "t", "title": "t", "agent": "writer", "description": script} | fields
        self.api.post("/api/v1/plans", {"plan": "p", "source": None, "actor": "test", "tasks": [task]})

    @property
    def id(self) -> int:
        return self.id_of("t")

    def id_of(self, key: str) -> int:
        return int(self.api.get("/api/v1/resolve", {"ref": f"p/{key}"})["taskId"])

    def task(self, key: str = "t") -> dict[str, Any]:
        found: dict[str, Any] = self.api.get(f"/api/v1/agent-tasks/{self.id_of(key)}")["task"]
        return found

    def comes_to(self, status: str, key: str = "t") -> dict[str, Any]:
        until(lambda: self.task(key)["status"] in (status, "FAILED"), status)
        found = self.task(key)
        assert found["status"] == status, found["why"]
        return found

    def post(self, verb: str, **body: Any) -> None:
        self.api.post(f"/api/v1/agent-tasks/{self.id}/{verb}", {"actor": "ada", **body})

    def events(self) -> list[str]:
        found = self.api.get("/api/v1/events", {"task": self.id, "limit": 100})
        return [event["event"] for event in found]


@pytest.fixture
def run(tmp_path: Path, request: pytest.FixtureRequest) -> Any:
    root = make_repository(tmp_path / "home")
    task = getattr(request, "param", "")
    (root / "muster.toml").write_text(CONFIG.format(task=task))
    with crew(root, "owner", "worker") as (api, _):
        yield Crew(api, root)


APPEND = "echo x >> count.txt"


@pytest.mark.promise("S18")
def test_what_does_not_pass_its_check_goes_back_until_it_does(run: Crew) -> None:
    run.add(APPEND, checkCommand="test $(wc -l < count.txt) -ge 3 || { echo too few >&2; exit 4; }")
    run.comes_to("COMPLETED")
    assert run.events().count("sent_back") == 2
    assert git(run.root, "show", f"{BRANCH}:count.txt") == "x\nx\nx"
    attempts = run.api.get(f"/api/v1/agent-tasks/{run.id}")["attempts"]
    assert all(
        "exit code 4" in a["error"] and "too few" in a["error"] for a in attempts if a["status"] == "failed"
    )


@pytest.mark.promise("S18")
@pytest.mark.parametrize("run", ['check = "false"'], indirect=True)
def test_after_its_rounds_a_person_is_asked_and_may_accept_it(run: Crew) -> None:
    run.add(APPEND)
    found = run.comes_to("PAUSED")
    assert found["pausedReason"] == "review" and found["needsPerson"] and "accept" in found["actions"]
    assert "the check has not passed" in found["why"]
    assert git(run.root, "branch", "--list", BRANCH) == "", "no red branch"
    run.post("accept")
    run.comes_to("COMPLETED")
    assert git(run.root, "show", f"{BRANCH}:count.txt") == "x\nx\nx", (
        "published as it was, without another run"
    )


@pytest.mark.promise("S18")
@pytest.mark.parametrize("run", ['[git]\nmax_file = "1MB"'], indirect=True)
@pytest.mark.parametrize(
    "script",
    ["truncate -s 2M big", "printf '<<<<<<< HEAD\\na\\n=======\\nb\\n>>>>>>> x\\n' > big"],
    ids=["too large", "markers on purpose"],
)
def test_what_a_person_accepts_is_published_as_it_is(run: Crew, script: str) -> None:
    run.add(script)
    assert run.comes_to("PAUSED")["pausedReason"] == "review"
    run.post("accept")
    run.comes_to("COMPLETED")
    assert git(run.root, "ls-tree", "--name-only", BRANCH, "big") == "big"


@pytest.mark.promise("S18")
@pytest.mark.parametrize("run", ['check = "test -e ok"'], indirect=True)
def test_a_person_may_send_it_back_with_a_note(run: Crew) -> None:
    run.add("echo x >> count.txt; grep -q 'it, pleas[e]' $MUSTER_PROMPT_FILE && touch ok || true")
    run.comes_to("PAUSED")
    run.post("resume", note="do it, please")
    run.comes_to("COMPLETED")


def test_a_writer_that_changes_nothing_needs_a_review_unless_it_said_so(run: Crew) -> None:
    run.add("true")
    assert "has changed nothing" in run.comes_to("PAUSED")["why"]
    run.post("accept")
    run.comes_to("COMPLETED")


THERE = "done by attempt 1: its changes were already on the branch"


@pytest.mark.promise("S18")
@pytest.mark.parametrize(
    ("check", "status"), [("", "COMPLETED"), ("test -e own.txt", "COMPLETED"), ("false", "PAUSED")]
)
def test_what_another_task_has_published_meanwhile_is_done_once_its_check_has_passed(
    tmp_path: Path, check: str, status: str
) -> None:
    root = make_repository(tmp_path / "home")
    (root / "muster.toml").write_text(CONFIG.format(task=""))
    with crew(root, "owner", "worker", "worker") as (api, _):
        run = Crew(api, root)
        wait = f"until test -e {tmp_path}/go; do sleep 0.05; done"
        run.add(f"echo x > same.txt; {wait}", checkCommand=check)
        run.comes_to("RUNNING")
        run.add("echo x > same.txt; echo y > own.txt", key="other")
        run.comes_to("COMPLETED", "other")
        published = git(root, "rev-parse", BRANCH)
        (tmp_path / "go").touch()
        why = run.comes_to(status)["why"]
        assert why == THERE if status == "COMPLETED" else "the check has not passed" in why
        assert git(root, "rev-parse", BRANCH) == published


@pytest.mark.promise("S18")
def test_work_that_was_merged_with_the_same_on_the_branch_before_its_attempt_ended_is_done(run: Crew) -> None:
    """Its worker was lost with the work in the tree, while another task published the same."""
    run.add("test -e same.txt || { echo x > same.txt; muster report ask 'go on?'; sleep 60; }")
    run.comes_to("PAUSED")
    run.add("echo x > same.txt", key="other")
    run.comes_to("COMPLETED", "other")
    run.post("answer", text="yes")
    assert run.comes_to("COMPLETED")["why"].endswith("its changes were already on the branch")


@pytest.mark.promise("S18")
def test_a_conflict_that_is_solved_by_the_other_side_alone_changes_nothing(run: Crew) -> None:
    run.add(
        "test -e own.txt || { echo x > own.txt; muster report ask 'go on?'; sleep 60; }; echo z > own.txt"
    )
    run.comes_to("PAUSED")
    run.add("echo z > own.txt", key="other")
    run.comes_to("COMPLETED", "other")
    run.post("answer", text="yes")
    assert "has changed nothing" in run.comes_to("PAUSED")["why"]


def test_a_task_that_is_to_change_nothing_is_done(run: Crew) -> None:
    run.add("true", changes="none")
    assert run.comes_to("COMPLETED")["why"] == "done by attempt 1: it changed nothing"


def test_a_command_that_may_write_is_published_where_it_did(run: Crew) -> None:
    run.add("echo out > out.txt", agent="shell")
    run.comes_to("COMPLETED")
    assert git(run.root, "show", f"{BRANCH}:out.txt") == "out"
    assert git(run.root, "status", "--porcelain") == "?? muster.toml"


@pytest.mark.promise("S11", "S18")
def test_a_worker_that_dies_after_the_move_has_done_its_task(stage: Any) -> None:  # noqa: F811
    made = stage("owner", "worker")
    (made.root.parent / "strike").write_text(STEPS["after the merge"])
    made.run()
    until(lambda: made.task()["task"]["status"] == "COMPLETED", "the branch tells")
    assert made.task()["task"]["epoch"] == 1, "no further attempt was needed"
    assert git(made.root, "show", f"{BRANCH}:out.txt") == "work"


@pytest.mark.promise("S11", "S18")
def test_a_cancel_waits_for_what_is_being_published(stage: Any) -> None:  # noqa: F811
    made = stage("owner", "worker", health='lease = "30s"', strike=signal.SIGSTOP)
    (made.root.parent / "strike").write_text(STEPS["after the merge"])
    made.run()
    until(
        lambda: "publishing" in made.events() and (made.root.parent / "struck").exists(),
        "it moves the branch",
    )
    with pytest.raises(MusterError, match="is publishing its work"):
        made.api.post(f"/api/v1/agent-tasks/{made.task()['task']['id']}/cancel", {"actor": "ada"})
    made.processes[1].send_signal(signal.SIGCONT)
    made.check()


REVIEWER = """
[agents.reviewer]
command = ["sh", "-c", "test -e good || { echo it is not good >&2; exit 1; }"]
prompt = "none"
writes = false
"""


@pytest.mark.promise("S18")
@pytest.mark.parametrize("run", ['review = "reviewer"' + REVIEWER], indirect=True)
def test_a_reviewer_sends_it_back_until_it_is_good(run: Crew) -> None:
    run.add("if test -e first; then touch good; else touch first; fi")
    run.comes_to("COMPLETED")
    attempts = run.api.get(f"/api/v1/agent-tasks/{run.id}")["attempts"]
    assert any(
        "reviewer does not accept it" in a["error"] and "it is not good" in a["error"] for a in attempts
    )
    assert run.events().count("sent_back") == 1


SAYS = """
[agents.reviewer]
command = ["sh", "-c", "{}"]
prompt = "none"
writes = false
"""
GO_BY = 'review = "reviewer"\nrubric = "nothing is deleted"'


@pytest.mark.promise("S18")
@pytest.mark.parametrize(
    ("run", "why"),
    [
        ('review = "reviewer"' + SAYS.format("echo REJECT it deletes the data"), "it: it deletes the data"),
        (GO_BY + SAYS.format("echo REJECT this; echo ACCEPT that"), "does not accept it: this"),
        (GO_BY + SAYS.format("echo ACCEPT; echo REJECTED: no >&2"), "does not accept it: no"),
        (
            GO_BY + SAYS.format("echo blah"),
            "neither ACCEPT nor REJECT; it has said: blah",
        ),
        (GO_BY + SAYS.format("true"), "neither ACCEPT nor REJECT, and nothing else"),
    ],
    indirect=["run"],
)
def test_a_reviewer_that_does_not_accept_it_does_not_by_its_exit_code(run: Crew, why: str) -> None:
    run.add(APPEND)
    assert why in run.comes_to("PAUSED")["why"]
    assert git(run.root, "branch", "--list", BRANCH) == ""


@pytest.mark.promise("S18")
@pytest.mark.parametrize("run", [GO_BY + SAYS.format("echo looked; echo '**ACCEPT** it'")], indirect=True)
def test_a_command_accepts_by_the_word_as_well(run: Crew) -> None:
    run.add(APPEND)
    run.comes_to("COMPLETED")


@pytest.mark.parametrize("run", ['retries = 0\nreview = "reviewer"' + SAYS.format("exit 127")], indirect=True)
def test_a_reviewer_that_cannot_be_run_says_how_to_test_it(run: Crew) -> None:
    run.add(APPEND)
    until(lambda: "muster agent test reviewer" in run.task()["why"], "its name stands in the command")


@pytest.mark.promise("S18")
@pytest.mark.parametrize(
    ("check", "why"), [("no-such-command", "exit code 127"), ("sleep 1000", "longer than its time limit")]
)
def test_a_check_that_cannot_be_run_is_for_a_person_at_once(run: Crew, check: str, why: str) -> None:
    run.add(APPEND, checkCommand=check, timeoutS=2)
    found = run.comes_to("PAUSED")
    assert why in found["why"] and "no agent can mend that: correct the check" in found["why"]
    assert (found["pausedReason"], found["epoch"]) == ("review", 1)
    run.post("accept")
    run.comes_to("COMPLETED")
    assert git(run.root, "show", f"{BRANCH}:count.txt") == "x", "its agent has run once, and its work is kept"


@pytest.mark.promise("S18")
def test_a_person_may_want_to_see_it_first(run: Crew) -> None:
    run.add(APPEND, review="person")
    assert run.comes_to("PAUSED")["why"] == FOR_YOU
    run.post("accept")
    run.comes_to("COMPLETED")
    assert git(run.root, "show", f"{BRANCH}:count.txt") == "x"


EDIT = """\
if grep -q '^<<<<<<<' shared.txt
then sed -i '/^<<<<<<</d; /^=======/d; /^>>>>>>>/d' shared.txt
else
    until [ "$(ls {folder} | wc -l)" = {all} ]; do touch {folder}/{key}; sleep 0.05; done
    sed -i '1i {key}' shared.txt
fi
"""


@pytest.mark.promise("S18")
def test_agents_that_edit_one_line_are_all_merged(tmp_path: Path) -> None:
    """Each begins before any other has published: all but the first find a conflict, and solve it by an edit."""
    root, keys = make_repository(tmp_path / "home"), ["one", "two", "three"]
    (root / "shared.txt").write_text("first\n")
    git(root, "add", "shared.txt")
    git(root, "commit", "--quiet", "-m", "shared")
    (root / "muster.toml").write_text(CONFIG.format(task="").replace("rounds = 2", "rounds = 5"))
    (tmp_path / "begun").mkdir()
    scripts = {key: EDIT.format(folder=tmp_path / "begun", all=len(keys), key=key) for key in keys}
    tasks = [{"key": key, "title": key, "agent": "writer", "description": scripts[key]} for key in keys]
    with crew(root, "owner", *["worker"] * len(keys)) as (api, _):
        api.post("/api/v1/plans", {"plan": "p", "source": None, "actor": "test", "tasks": tasks})
        until(lambda: all(t["status"] == "COMPLETED" for t in api.get("/api/v1/agent-tasks")), "all are done")
    lines = git(root, "show", f"{BRANCH}:shared.txt").splitlines()
    assert sorted(lines) == sorted([*keys, "first"])
    signed = git(root, "log", "--first-parent", "--format=%(trailers:key=Task,valueonly)", BRANCH).split()
    assert sorted(signed) == sorted(f"p/{key}" for key in keys)
