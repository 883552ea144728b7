"""Plans that come from stdin, and what a dry run tells of plans that have begun."""

from __future__ import annotations

import json

import pytest

from muster.model import commands as c
from muster.model.states import ErrorKind

CONFIG = 'agent = "prose"\n[agents.prose]\ncommand = ["cat"]\n'
PIPED = b"# Nightly\n- [ ] Fetch {#fetch}\n- [ ] Build {#build after=fetch}\n- [x] Plan {#plan}\n"


def finish(owner, **ends: str) -> None:
    """Tasks by key: completed, failed or cancelled."""
    owner.do(
        c.Register(
            worker_id="worker-abcdefgh", hostname="h", pid=1, pid_start=1, boot_id="boot", slots=9,
            agents=("prose",), general=("prose",),
        )
    )  # fmt: skip
    jobs = owner.claim("r1")
    for key, end in ends.items():
        if end == "cancelled":
            owner.do(c.Cancel(task_id=owner.tasks()[key].id, actor="user:ann"))
            continue
        owner.begin(jobs[key])
        if end == "completed":
            owner.do(c.Complete(task_id=jobs[key].task_id, epoch=1, exit_code=0))
        else:
            owner.do(c.Fail(task_id=jobs[key].task_id, epoch=1, kind=ErrorKind.INVALID, message="no"))


@pytest.fixture
def owner(empty):
    (empty.root / "muster.toml").write_text(CONFIG)
    return empty


# A dry run


def heads(lines: list[str]) -> list[str]:
    """Of the table, and of the sum below it."""
    found = (line.split()[0] for line in lines)
    return [word for word in found if word not in ("Order", "Wave", "Waves")]


def test_a_dry_run_lists_only_what_is_still_to_be_done(cli, owner):
    plan = owner.root / "plan.md"
    boxes = "".join(f"- [ ] Task {{#{key}}}\n" for key in ("done", "bad", "unwanted", "open"))
    plan.write_text(f"# Work\n{boxes}- [x] Box {{#box}}\n- [ ] Next {{#next after=done}}\n")
    assert "(not listed: 1 completed)" in cli("plan", "add", "plan.md", "--dry-run").out
    assert cli("plan", "add", "plan.md").code == 0
    finish(owner, done="completed", bad="failed", unwanted="cancelled")
    before = owner.fingerprint()
    for command in (("plan", "add"), ("run",)):
        lines = cli(*command, "plan.md", "--dry-run").out.splitlines()
        assert heads(lines) == ["TASK", "open", "next", "work:"]
        ended = "1 cancelled, 2 completed, 1 failed"
        assert lines[-1] == f"work: 6 tasks (not listed: {ended}); nothing was changed"
    rows = json.loads(cli("plan", "add", "plan.md", "--dry-run", "--json").out)["tasks"]
    assert [(row["key"], row["done"], row["status"], row["agents"]) for row in rows] == [
        ("done", True, "COMPLETED", []),
        ("bad", False, "FAILED", []),
        ("unwanted", False, "CANCELLED", []),
        ("open", False, None, ["prose"]),
        ("box", True, "COMPLETED", []),
        ("next", False, None, ["prose"]),
    ]
    assert rows[0]["why"] == "it is COMPLETED"
    assert owner.fingerprint() == before


def test_a_dry_run_of_a_plan_that_is_done_or_of_another_file(cli, owner):
    (owner.root / "a.md").write_text("# P\n- [ ] A {#a}\n")
    (owner.root / "b.md").write_text("# P\n- [ ] A {#a}\n")
    cli("plan", "add", "a.md")
    finish(owner, a="completed")
    shown = cli("plan", "add", "a.md", "--dry-run").out
    assert shown == "p: 1 task (not listed: 1 completed); nothing was changed\n"
    assert cli("plan", "add", "b.md", "--dry-run").out.splitlines()[1].startswith("a  ")


def test_a_dry_run_of_an_update_lists_what_would_start_anew(cli, owner):
    plan = owner.root / "plan.md"
    plan.write_text("# P\n- [ ] A {#a}\n- [ ] B {#b}\n")
    cli("plan", "add", "plan.md")
    plan.write_text("# P\n- [ ] A {#a}\n")
    cli("plan", "add", "plan.md", "--update")
    plan.write_text("# P\n- [ ] A {#a}\n- [ ] B {#b}\n")
    assert "(not listed: 1 cancelled)" in cli("plan", "add", "plan.md", "--dry-run").out
    assert "\nb  " in cli("plan", "add", "plan.md", "--update", "--dry-run").out


def test_a_dry_run_of_a_project_that_nobody_has_up_asks_its_store(cli, root):
    (root / "muster.toml").write_text(CONFIG)
    (root / "plan.md").write_text("# P\n- [ ] A {#a}\n  true\n- [ ] B {#b}\n  true\n")
    assert cli("plan", "add", "plan.md").code == 0
    assert cli("task", "complete", "p/a").code == 0
    (root / "plan.md").write_text("# P\n- [ ] A {#a}\n  true\n- [ ] B {#b}\n  true\n")
    lines = cli("plan", "add", "plan.md", "--dry-run").out.splitlines()
    assert heads(lines) == ["TASK", "b", "p:"]


# From stdin


def test_a_plan_from_stdin_is_known_by_its_title_or_name(cli, owner):
    ran = cli("plan", "add", "-", stdin=PIPED)
    assert (ran.code, ran.out) == (0, "Plan     nightly: 3 tasks added, 0 there already\n")
    statuses = {key: task.status for key, task in owner.tasks().items()}
    assert statuses == {"fetch": "PENDING", "build": "PENDING", "plan": "COMPLETED"}
    assert "nightly: 0 tasks added, 3 there already" in cli("plan", "add", "-", stdin=PIPED).out
    named = cli("plan", "add", "-", "--name", "of today", stdin=PIPED)
    assert named.out == "Plan     of today: 3 tasks added, 0 there already\n"
    listed = json.loads(cli("plan", "list", "--json").out)
    assert [(plan["name"], plan["source"]) for plan in listed] == [("nightly", None), ("of today", None)]
    assert json.loads(cli("plan", "add", "-", "--json", stdin=PIPED).out)["existing"] == 3
    dry = cli("plan", "add", "-", "--dry-run", stdin=PIPED).out.splitlines()
    assert heads(dry) == ["TASK", "fetch", "build", "nightly:"]


def test_a_plan_from_stdin_is_compared_and_updated_by_its_name(cli, owner):
    cli("plan", "add", "-", stdin=PIPED)
    owner.do(
        c.Enqueue(plan="nightly", source=None, tasks=(c.Spec(title="t", key="byhand"),), actor="user:ann")
    )
    changed = PIPED.replace(b"Build {#build after=fetch}", b"Ship {#ship}").replace(b"Fetch", b"Pull")
    kept = cli("plan", "add", "-", stdin=PIPED.replace(b"Fetch", b"Pull")).out
    assert "Changed  fetch: title" in kept
    lines = [
        "+ ship",
        "~ fetch  title",
        "- build  would be cancelled",
        "nightly: 1 added, 1 changed, 1 removed",
    ]
    assert cli("plan", "diff", "-", stdin=changed).out.splitlines() == lines
    assert cli("plan", "add", "-", "--update", stdin=changed).code == 0
    tasks = owner.tasks()
    assert (tasks["fetch"].title, tasks["build"].status) == ("Pull", "CANCELLED")
    assert tasks["byhand"].status == "PENDING", "what was never in the plan stays"
    assert cli("plan", "diff", "-", stdin=changed).out.startswith("nightly: ")


@pytest.mark.parametrize(
    ("argv", "stdin", "message"),
    [
        (("add", "-"), b"- [ ] A\n", "--name NAME, or one `# Title`"),
        (("add", "-"), b"# A\n# B\n- [ ] A\n", "--name NAME, or one `# Title`"),
        (("add", "-", "--name", " "), b"- [ ] A\n", "--name NAME, or one `# Title`"),
        (("add", "-", "--name", "x"), b"", "stdin:1: the plan has no tasks"),
        (("add", "-", "--name", "x"), b"- [ ] A {prioirty=1}\n", "stdin:1: unknown attribute 'prioirty'"),
        (("add", "-", "--name", "x"), b"\n- [ ] A {agent=ghost}\n", "stdin:2: task a wants agent ghost"),
        (("add", "-", "--name", "x"), b"- [ ] \xff\n", "stdin:1: not UTF-8 (byte 0xff)"),
        (("add", "-", "--name", "x"), b"- [ ] A\n" + b" " * (8 << 20), "stdin: larger than 8 MiB"),
        (
            ("add", "-", "--name", "x" * 100_000),
            b"- [ ] A\n",
            "--name has 100,000 characters, and a plan's name",
        ),
        (("add", "plan.md", "--name", "x"), b"", "--name is for a plan from stdin"),
        (("add", "-", "--name", "filed"), b"- [ ] A\n", "plan.md; nothing was changed"),
        (("add", "-", "--update", "--name", "filed"), b"- [ ] A\n", "plan.md; nothing was changed"),
        (("add", "-", "--dry-run", "--name", "filed"), b"- [ ] A\n", "plan.md; nothing was changed"),
        (("diff", "-", "--name", "filed"), b"- [ ] A\n", "plan.md; nothing was changed"),
    ],
)
def test_what_stdin_cannot_be_is_refused(cli, owner, argv, stdin, message):
    (owner.root / "plan.md").write_text("# Filed\n- [ ] A {#a}\n")
    cli("plan", "add", "plan.md")
    before = owner.fingerprint()
    ran = cli("plan", *argv, stdin=stdin)
    assert ran.code == 2 and message in ran.err, ran.err
    assert owner.fingerprint() == before


def test_run_wants_a_file(cli, root):
    ran = cli("run", "-", stdin=PIPED)
    assert ran.code == 2 and "muster plan add - --name NAME --wait" in ran.err
    assert list(root.iterdir()) == []


def test_where_the_current_folder_is_gone_that_is_said(cli, root, tmp_path, monkeypatch):
    plan = root / "plan.md"
    plan.write_text("# P\n- [ ] A {agent=shell}\n  true\n")
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    for argv in (("run", str(plan)), ("plan", "add", str(plan)), ("plan", "add", "-")):
        ran = cli(*argv, "--dry-run", stdin=PIPED)
        assert (ran.code, "error: the current folder is gone" in ran.err) == (3, True), ran.err
        assert (
            cli(
                "-C", str(root), *argv, "--dry-run", stdin=PIPED.replace(b"}\n", b" agent=shell}\n  true\n")
            ).code
            == 0
        )


def test_a_title_that_is_too_long_is_told_by_all_in_the_same_words(cli, owner):
    path = owner.root / "plan.md"
    said = (
        "plan.md:2: the plan's title makes a name of 449 characters, and a plan's name has at most 200: "
        "shorten the title"
    )
    path.write_text(f"\n# {'word ' * 90}\n\n- [ ] A {{#a}}\n")
    for command in (
        ("plan", "check"),
        ("plan", "add", "--dry-run"),
        ("plan", "add"),
        ("run",),
        ("plan", "diff"),
    ):
        ran = cli(*command, "plan.md")
        assert ran.code == 2 and said in ran.err, (command, ran.err)
    path.write_text(f"# {'x' * 200}\n\n- [ ] A {{#a}}\n")
    assert cli("plan", "check", "plan.md").code == 0
    assert cli("plan", "add", "plan.md").code == 0
    longest = path.with_name("y" * 230 + ".md")
    longest.write_text("- [ ] A {#a}\n")
    named = cli("plan", "add", longest.name)
    assert named.code == 2 and "the file's name makes a name of 230 characters" in named.err
