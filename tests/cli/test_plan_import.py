"""`muster plan import` as a person uses it."""

from __future__ import annotations

import json

TASKS = {
    "tasks": [
        {"id": 1, "title": "Read", "status": "done", "dependencies": []},
        {"id": 2, "title": "Draw", "description": "A chart.", "dependencies": [1], "assignee": "kim"},
    ]
}
CONFIG = 'agent = "prose"\n[agents.prose]\ncommand = ["cat"]\n'


def test_a_file_is_written_and_what_is_missing_told(cli, empty):
    (empty.root / "tasks.json").write_text(json.dumps(TASKS))
    done = cli("plan", "import", "tasks.json")
    assert done.code == 0, done.err
    assert "Missing  not carried over: the assignee (1 task)" in done.out
    assert "- [ ] Draw {#2 after=1}\n\n  A chart.\n" in (empty.root / "tasks.md").read_text()
    again = json.loads(cli("plan", "import", "tasks.json", "--json").out)
    assert (again["format"], again["file"], again["tasks"]) == ("task-master", "tasks.md", 2)
    assert again["lost"] == ["not carried over: the assignee (1 task)"]


def test_another_file_is_written_over_only_when_that_is_said(cli, empty):
    (empty.root / "tasks.json").write_text(json.dumps(TASKS))
    (empty.root / "tasks.md").write_text("mine")
    refused = cli("plan", "import", "tasks.json")
    assert refused.code == 6 and "tasks.md is there already" in refused.err
    assert (empty.root / "tasks.md").read_text() == "mine"
    assert cli("plan", "import", "tasks.json", "--force").code == 0
    assert "{#2 after=1}" in (empty.root / "tasks.md").read_text()


def test_stdin_is_printed_or_added(cli, empty):
    (empty.root / "muster.toml").write_text(CONFIG)
    data = json.dumps(TASKS).encode()
    printed = cli("plan", "import", "-", "--out", "-", stdin=data)
    assert printed.out.startswith("---\norder: free\n") and "note: not carried over" in printed.err
    added = cli("plan", "import", "-", "--add", "--name", "Charts", stdin=data)
    assert added.code == 0 and "Plan     charts: 2 tasks added" in added.out, added.err
    assert {key: task.status for key, task in empty.tasks().items()} == {"1": "COMPLETED", "2": "PENDING"}
    assert not list(empty.root.glob("*.md"))


def test_a_file_that_is_added_is_the_plans_file(cli, empty):
    (empty.root / "muster.toml").write_text(CONFIG)
    (empty.root / "tasks.json").write_text(json.dumps(TASKS))
    added = json.loads(cli("plan", "import", "tasks.json", "--add", "--out", "chart.md", "--json").out)
    plans = json.loads(cli("plan", "list", "--json").out)
    assert [(plan["name"], plan["source"]) for plan in plans] == [(added["plan"], "chart.md")]


def test_a_folder_of_a_tool_is_found_in_the_project(cli, empty):
    folder = empty.root / "backlog" / "tasks"
    folder.mkdir(parents=True)
    (folder / "task-1 - Read.md").write_text("---\nid: task-1\ntitle: Read\nstatus: To Do\n---\n")
    for source in (".", "backlog", "backlog/tasks"):
        assert "{#TASK-1}" in cli("plan", "import", source, "--out", "-").out
    (empty.root / ".beads").mkdir()
    (empty.root / ".beads" / "issues.jsonl").write_text('{"id": "a-1", "title": "x", "issue_type": "bug"}\n')
    assert "{#a-1}" in cli("plan", "import", ".beads", "--out", "-").out


def test_what_cannot_be_read_is_named_with_what_to_do(cli, empty):
    (empty.root / "x.json").write_text("{}")
    (empty.root / "nothing").mkdir()
    for arguments, code, said in (
        (["gone.json"], 3, "gone.json: no such file or folder"),
        (["nothing"], 3, "there is none of"),
        (["x.json"], 2, "not a source that Muster knows"),
        (["x.json", "--format", "bead"], 2, "did you mean 'beads'?"),
    ):
        refused = cli("plan", "import", *arguments)
        assert refused.code == code and said in refused.err, refused.err
