"""`muster plan`: list, pause, resume."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from muster.client.http import ClientRequest, Connection
from muster.model import commands as c
from muster.model.errors import StoreFull
from muster.model.states import ErrorKind
from muster.model.usage import Usage
from patience import PATIENCE_S


def break_it(owner):
    """Four more failures after the seed's one."""
    tasks = tuple(c.Spec(title=key, key=key, max_retries=0) for key in ("f1", "f2", "f3", "f4", "rest"))
    owner.do(c.Enqueue(plan="billing", source=None, tasks=tasks, actor="user:ann"))
    jobs = owner.claim("r3", slots=4)
    for number, job in enumerate(jobs.values()):
        owner.begin(job)
        owner.do(c.Fail(task_id=job.task_id, epoch=1, kind=ErrorKind.CRASH, message=f"no {number}"))


def test_list_pause_and_resume(cli, owner):
    assert cli("plan", "list").out.startswith("billing  ")
    ran = cli("plan", "pause", "billing")
    assert (ran.code, ran.out) == (0, "billing  paused; what runs goes on\n")
    assert owner.claim("r8") == {}
    assert "plan billing: by a person; `muster plan resume billing` goes on" in cli("plan", "list").out
    assert json.loads(cli("plan", "list", "--json").out)[0]["paused"] == "user"
    assert "plan billing is paused" in cli("task", "show", "other").out
    assert "paused" in cli("status").out
    ran = cli("plan", "resume", "billing", "--json")
    assert json.loads(ran.out) == {"plan": "billing", "paused": None, "failures": 0}
    assert cli("plan", "resume", "billing").code == 6


def test_the_breaker_is_told_everywhere(cli, owner):
    break_it(owner)
    assert "5 tasks failed in a row" in cli("plan", "list").out
    assert "because 5 of its tasks failed in a row" in cli("task", "show", "rest").out


@pytest.mark.parametrize(
    "words",
    [
        ("run",),
        ("run", "--dry-run"),
        ("plan", "add"),
        ("plan", "check"),
        ("plan", "diff"),
        ("plan", "add", "--dry-run"),
    ],
)
def test_a_file_that_nothing_can_name_is_refused_before_anything_is_begun(cli, root, words):
    name = os.fsdecode(b"pl\xffan.md")
    (root / name).write_text("- [ ] A {#a agent=shell}\n  true\n")
    refused = cli(*words, name)
    assert (refused.code, refused.out) == (2, "")
    assert "the path of pl\ufffdan.md is not UTF-8; nothing was changed" in refused.err
    assert not (root / ".muster").exists()


@pytest.mark.parametrize(("hint", "shown"), [("", False), ("df -h", True)])
def test_a_store_that_takes_nothing_says_what_is_next_where_that_is_known(cli, owner, hint, shown):
    owner.served.unwritable = lambda: StoreFull("the disk of x is full: free some room", hint)
    told = cli("status").out
    assert "nothing is written: the disk of x is full" in told
    assert ("  next: df -h\n" in told, "next: \n" in told) == (shown, False)


@pytest.mark.parametrize("said", ["5", "$5", "5.0", " 5 "])
def test_a_budget_is_an_amount_of_dollars(cli, owner, said):
    assert cli("budget", "billing", said).out == "billing  may cost $5.00 now\n"


@pytest.mark.parametrize(
    "said", ["5,50", "none", "0", "-1", "1e400", "inf", "nan", "", "$", "5 USD", "1000001", "0.0000001"]
)
def test_what_is_no_amount_is_told_as_it_was_said_with_one_that_is(cli, owner, said):
    refused = cli("budget", "billing", said)
    assert refused.code == 2 and f"{said!r} is not an amount of dollars; nothing was changed" in refused.err
    assert "muster budget PLAN 20, or 2.50; 1000000 is as good as no limit" in refused.err


@pytest.mark.parametrize("words", [("agent", "test", "shell"), ("plan", "from", "words")])
def test_a_number_of_seconds_says_what_it_may_be(cli, words):
    refused = cli(*words, "--timeout", "soon")
    assert refused.code == 2 and "'soon' is not a number from 1 to " in refused.err


def test_a_plan_whose_budget_is_used_up_says_so_everywhere_with_what_raises_it(cli, owner):
    owner.do(c.SetBudget(plan="billing", microusd=10_000, actor="user:ann"))
    api = owner.tasks()["api"]
    spent = Usage(input_tokens=10, output_tokens=1, cost_microusd=20_000)
    owner.do(c.Account(task_id=api.id, epoch=api.epoch, usage=spent))
    said = "plan billing: its budget is used up; `muster budget billing USD` raises it"
    for words in (("plan", "list"), ("plan", "show", "billing"), ("inbox",), ("status",)):
        assert said in cli(*words).out, words
    [row] = [row for row in json.loads(cli("inbox", "--json").out) if row.get("kind") == "budget"]
    assert (row["plan"], row["next"]) == ("billing", "muster budget billing USD")
    assert said not in cli("inbox", "--plan", "other").out


@pytest.mark.parametrize("verb", ["pause", "resume"])
@pytest.mark.parametrize(
    ("argv", "code", "message"),
    [
        ((), 2, "NAME"),
        (("biling",), 3, "there is no plan 'biling'"),
        (("",), 3, "plan"),
        (("a/../b",), 3, "there is no plan"),
        (("\x00",), 3, "there is no plan"),
        (("billing", "more"), 2, "knows no argument 'more'"),
    ],
)
def test_wrong_input(refused, owner, verb, argv, code, message):
    refused("plan", verb, *argv, code=code, message=message)


def test_an_unknown_verb(cli, owner):
    ran = cli("plan", "pauze", "billing")
    assert ran.code == 2 and "did you mean 'pause'?" in ran.err


@pytest.mark.parametrize("name", ["my plan", "Übung", "100%", "b?c#d", "%2F"])
def test_any_name_is_found_also_without_an_owner(cli, root, name):
    (root / "muster.toml").touch()
    assert cli("task", "add", "x", "--plan", name, "--agent", "shell", "--prompt", "true").code == 0
    assert cli("plan", "show", name).code == 0
    assert cli("plan", "pause", name).code == 0


def test_no_plans(cli, empty):
    assert cli("plan", "list").out == "0 plans: muster run PLAN.md\n"


# -- a plan and its file

PLAN = """\
# Billing

## API
- [ ] Design the schema {#schema priority=P0}
- [ ] REST endpoints {#api after=schema}
  All of them.
  - [ ] Error pages {#errors}

## Release
- [ ] Write the guide {#guide after=api,errors}
"""
CONFIG = """\
[agents.claude]
command = ["claude"]
capabilities = ["rust"]
[agents.codex]
command = ["codex"]
profiles = ["codi-documentation-writer"]
"""


@pytest.fixture
def plan(root, empty):
    (root / "muster.toml").write_text(CONFIG)
    path = root / "plan.md"
    path.write_text(PLAN)
    return path


def test_a_plan_is_added_once_and_works_by_its_file(cli, empty, plan):
    ran = cli("plan", "add", "plan.md")
    assert (ran.code, ran.out) == (0, "Plan     billing: 4 tasks added, 0 there already\n")
    before = empty.fingerprint()
    assert json.loads(cli("plan", "add", "plan.md", "--json").out)["existing"] == 4
    assert cli("plan", "diff", "plan.md").out == "billing: the file and the plan agree\n"
    assert empty.fingerprint() == before
    assert empty.tasks()["errors"].parent_task_id == empty.tasks()["api"].id
    assert cli("plan", "list").out.startswith("billing  0 of 4  ")
    assert cli("plan", "pause", "plan.md").out == "billing  paused; what runs goes on\n"


def test_diff_shows_and_update_applies_and_what_runs_stays(cli, empty, plan):
    cli("plan", "add", "plan.md")
    empty.register(slots=1, agents=("claude",), general=("claude",))
    (job,) = empty.claim("r1").values()
    assert job.key == "schema"
    empty.begin(job)
    changed = PLAN.replace("Design", "Redesign").replace("REST endpoints", "GraphQL")
    changed = changed.replace("Write the guide {#guide after=api,errors}", "Tell them {#mail after=api}")
    plan.write_text(changed)
    before = empty.fingerprint()
    shown = cli("plan", "diff", "plan.md")
    assert shown.out.splitlines() == [
        "+ mail",
        "~ schema  title  (stays as it is: it runs now)",
        "~ api  title",
        "- guide  would be cancelled",
        "billing: 1 added, 1 changed, 1 removed, 1 kept as they are",
    ]
    assert empty.fingerprint() == before
    added = cli("plan", "add", "plan.md", "--update").out.splitlines()
    assert added[3:] == ["- guide  cancelled", "billing: 1 added, 1 changed, 1 removed, 1 kept as they are"]
    tasks = empty.tasks()
    assert (tasks["api"].title, tasks["schema"].title) == ("GraphQL", "Design the schema")
    assert tasks["guide"].status == "CANCELLED" and "mail" in tasks
    assert "taken out of its plan file" in cli("task", "show", "guide").out
    plan.write_text(changed + "- [ ] Write the guide {#guide after=api,errors}\n")
    assert "+ guide  is back, and starts anew" in cli("plan", "add", "plan.md", "--update").out
    assert json.loads(cli("plan", "diff", "plan.md", "--json").out)["removed"] == []


def test_a_chain_that_is_deeper_than_the_picture_is_wide_says_so(cli, empty):
    """Nobody takes what waits for each other for what goes on at once."""
    chain = [c.Spec(title=f"t{n}", key=f"t{n}", depends_on=(f"t{n - 1}",) if n else ()) for n in range(16)]
    beside = c.Spec(title="beside", key="beside", depends_on=("t11",))
    empty.do(c.Enqueue(plan="deep", source=None, actor="user:ann", tasks=(*chain, beside)))
    shown = [
        line.replace("◌ ", "").replace("○ ", "") for line in cli("plan", "graph", "deep").out.splitlines()
    ]
    assert shown[11:] == [
        f"{'':30}└─ t11",
        f"{'':33}├─ t12",
        f"{'':33}│  (13 deep) t13",
        f"{'':33}│  (14 deep) t14",
        f"{'':33}│  (15 deep) t15",
        f"{'':33}└─ beside",
    ]


def test_show_graph_and_export(cli, empty, plan):
    cli("plan", "add", "plan.md")
    shown = cli("plan", "show", "billing").out
    assert "\nAPI  " in shown and "0 of 3" in shown and "\nRelease  " in shown
    assert "  plan.md\n" in shown and "billing/guide" in shown
    assert len(json.loads(cli("plan", "show", "plan.md", "--json").out)["tasks"]) == 4
    assert cli("plan", "graph", "billing").out.splitlines() == [
        "◌ schema  Design the schema",
        "└─ ○ api  REST endpoints",
        "   └─ ○ guide  Write the guide  (after errors as well)",
        "◌ errors  Error pages",
    ]
    ids = {key: task.id for key, task in empty.tasks().items()}
    dot = cli("plan", "graph", "billing", "--dot").out
    assert dot.startswith('digraph "billing" {') and f"t{ids['schema']} -> t{ids['api']};" in dot
    mermaid = cli("plan", "graph", "billing", "--mermaid").out
    assert f't{ids["api"]}["api"]' in mermaid and f"t{ids['api']} --> t{ids['guide']}" in mermaid
    assert len(json.loads(cli("plan", "graph", "billing", "--json").out)["edges"]) == 3
    exported = cli("plan", "export", "billing")
    assert exported.err == ""
    plan.write_text(exported.out)
    assert cli("plan", "diff", "plan.md").out == "billing: the file and the plan agree\n"
    assert len(json.loads(cli("plan", "export", "billing", "--json").out)["tasks"]) == 4


def test_names_of_tasks_do_no_harm_in_a_graph(cli, empty):
    specs = (c.Spec(title='say "hi" <b>', key='k"]; end'), c.Spec(title="\x1b[2J", key="back\\slash"))
    empty.do(c.Enqueue(plan="odd", source=None, tasks=specs, actor="user:ann"))
    assert '[label="k\\"]; end"' in cli("plan", "graph", "odd", "--dot").out
    assert '[label="back\\\\slash"' in cli("plan", "graph", "odd", "--dot").out
    assert '["k#34;]#59; end"]' in cli("plan", "graph", "odd", "--mermaid").out
    assert "\x1b" not in cli("plan", "graph", "odd").out
    refused = cli("plan", "export", "odd")
    assert refused.code == 2 and "muster plan export odd --json" in refused.err


def test_a_long_chain_is_drawn(cli, empty):
    specs = tuple(c.Spec(title="t", key=f"t{n}", depends_on=(f"t{n - 1}",) if n else ()) for n in range(3000))
    empty.do(c.Enqueue(plan="chain", source=None, tasks=specs, actor="user:ann"))
    lines = cli("plan", "graph", "chain").out.splitlines()
    assert len(lines) == 3000 and max(map(len, lines)) < 80


def test_cancel_ends_all_that_has_not_ended(cli, owner):
    ran = cli("plan", "cancel", "billing", "--reason", "no longer wanted")
    assert (ran.code, ran.out) == (0, "billing  3 tasks cancelled, 1 of them while they ran\n")
    statuses = {key: task.status for key, task in owner.tasks().items()}
    assert (statuses["model"], statuses["tests"], statuses["api"]) == ("COMPLETED", "FAILED", "CANCELLED")
    assert "no longer wanted" in cli("task", "show", "docs").out
    again = json.loads(cli("plan", "cancel", "billing", "--json").out)
    assert again == {"plan": "billing", "cancelled": 0, "stopped": 0}


@pytest.mark.parametrize("command", [("run",), ("plan", "add")])
def test_a_dry_run_says_who_would_get_what_and_why_and_changes_nothing(cli, root, plan, command):
    plan.write_text(
        PLAN + "- [ ] Named {#n agent=codex}\n- [ ] Iron {#i cap=rust}\n- [ ] Gold {#g cap=gold}\n"
        "- [x] Done {#d}\n- [ ] Notes for the deploy and the guide {#tie}\n"
    )
    before = sorted(root.rglob("*"))
    rows = {}
    for row in json.loads(cli(*command, "plan.md", "--dry-run", "--json").out)["tasks"]:
        rows[row["key"]] = (row["agents"], row["profile"], row["why"])
    assert rows["guide"] == (
        ["codex", "claude"],
        "codi-documentation-writer",
        "words: guide; codex offers it",
    )
    assert rows["schema"][:2] == (["claude", "codex"], "database-architect")
    assert rows["schema"][2].endswith("no agent offers it, so any may")
    assert rows["n"] == (["codex"], None, "agent= names it")
    assert rows["i"] == (["claude"], "general-purpose", "cap= requires rust; no word of [profiles]")
    assert rows["g"] == ([], "general-purpose", "nobody offers gold: it waits until somebody does")
    assert rows["d"][0] == [] and rows["d"][2] == "its box is ticked"
    assert "tie with codi-documentation-writer: the first in [profiles] wins" in rows["tie"][2]
    text = cli(*command, "plan.md", "--dry-run").out
    assert (
        text.startswith("Order    free: ") and "\nTASK" in text and "Done" not in text and "\nd " not in text
    )
    assert text.endswith("billing: 9 tasks (not listed: 1 completed); nothing was changed\n")
    assert sorted(root.rglob("*")) == before


@pytest.mark.parametrize(
    ("argv", "code", "message"),
    [
        (("add",), 2, "PLAN"),
        (("add", "none.md"), 2, "none.md: no such file"),
        (
            ("add", "bad.md", "--update"),
            2,
            "bad.md:2: unknown attribute 'prioirty'; did you mean 'priority'?",
        ),
        (("add", "bad.md", "--dry-run"), 2, "bad.md:2"),
        (
            ("add", "ghost.md"),
            2,
            "ghost.md:1: task a wants agent ghost, which is neither configured nor offered by a worker or "
            "program",
        ),
        (("diff", "ghost.md"), 2, "ghost.md:1"),
        (("diff",), 2, "PLAN"),
        (("show", "biling"), 3, "there is no plan 'biling'"),
        (("graph", "biling"), 3, "there is no plan 'biling'"),
        (("export", "biling"), 3, "there is no plan 'biling'"),
        (("cancel", "biling"), 3, "there is no plan 'biling'"),
        (("show", "ghost.md"), 3, "there is no plan 'ghost.md'"),
        (("graph", "billing", "--dot", "--mermaid"), 2, "not allowed with"),
    ],
)
def test_wrong_input_to_the_others(refused, root, owner, argv, code, message):
    (root / "bad.md").write_text("- [ ] A {#a}\n- [ ] B {prioirty=3}\n")
    (root / "ghost.md").write_text("- [ ] A {#a agent=ghost}\n")
    refused("plan", *argv, code=code, message=message)


def test_a_crew_gives_each_task_to_the_agent_that_its_words_ask_for(root):
    """`muster run` from end to end: the dry run's word is kept."""
    (root / "muster.toml").write_text(
        '[agents.anna]\ncommand = ["true"]\n[workers]\ncount = 1\n'
        '[agents.tess]\ncommand = ["true"]\nprofiles = ["testing-specialist"]\n'
    )
    (root / "plan.md").write_text("# P\n- [ ] Write tests\n- [ ] Build it\n- [ ] Prove it {profile=tester}\n")
    run = [sys.executable, "-m", "muster.cli.main", "run", "plan.md", "--json"]
    dry = subprocess.run([*run, "--dry-run"], cwd=root, capture_output=True, timeout=PATIENCE_S, check=True)
    first = {row["key"]: row["agents"][0] for row in json.loads(dry.stdout)["tasks"]}
    assert first == {"write-tests": "tess", "build-it": "anna", "prove-it": "anna"}
    ran = subprocess.run(run, cwd=root, capture_output=True, timeout=PATIENCE_S, check=True)
    events = [json.loads(line) for line in ran.stdout.splitlines()]
    started = {event["key"]: event["message"] for event in events if event.get("event") == "started"}
    listed = subprocess.run(
        [*run[:3], "task", "show", "write-tests", "--json"],
        cwd=root,
        capture_output=True,
        timeout=PATIENCE_S,
        check=True,
    )
    assert started.keys() == first.keys()
    assert json.loads(listed.stdout)["attempts"][0]["agent"] == "tess"


# -- muster task edit


def test_a_task_is_edited(cli, owner):
    argv = ("--title", "New docs", "--after", "", "--priority", "9", "--timeout", "5m", "--retries", "0")
    more = ("--tag", "a,b", "--meta", "team=a", "--agent", "shell", "--sort", "-1", "--on-failed", "run")
    ran = cli("task", "edit", "docs", *argv, *more, "--prompt", "-", stdin="long ä".encode())
    assert ran.code == 0 and "billing/docs  edited" in ran.out
    task = owner.tasks()["docs"]
    assert (task.title, task.description, task.priority, task.unmet) == ("New docs", "long ä", 9, 0)
    assert (task.tags, task.metadata, task.wanted_agent) == (("a", "b"), {"team": "a"}, "shell")
    assert (task.max_retries, task.on_failed) == (0, "run")
    assert "is like that already" in cli("task", "edit", "docs", "--title", "New docs").out
    assert json.loads(cli("task", "edit", "docs", "--agent", "", "--json").out)["wantedAgent"] is None
    assert (
        "waits for tests (FAILED)"
        in cli("task", "edit", "docs", "--after", "tests", "--on-failed", "block").out
    )


@pytest.mark.parametrize(
    ("argv", "code", "message"),
    [
        (("docs",), 2, "nothing was asked"),
        (("docs", "--title", ""), 2, "the title is empty"),
        (("docs", "--title", "  "), 2, "the title is empty"),
        (("docs", "--agent", "ghost"), 3, "there is no agent ghost"),
        (("docs", "--after", "nothing"), 3, "there is no task 'nothing'"),
        (("docs", "--after", "docs"), 2, "cycle: docs -> docs"),
        (("docs", "--priority", "11"), 2, "1 to 10"),
        (("docs", "--retries", "-1"), 2, "not a number"),
        (("api", "--title", "x"), 6, "its agent has the old text"),
        (("model", "--title", "x"), 6, "is COMPLETED"),
        (("nothing", "--title", "x"), 3, "there is no task"),
    ],
)
def test_an_edit_that_cannot_be_changes_nothing(refused, owner, argv, code, message):
    refused("task", "edit", *argv, code=code, message=message)


def test_a_second_file_of_one_title_is_told_its_name_before_and_after(cli, empty, tmp_path):
    for name in ("one.md", "two.md"):
        (tmp_path / name).write_text("# Site\n- [ ] A {#a agent=shell}\n  true\n")
    assert "not site" not in cli("plan", "add", str(tmp_path / "one.md")).out
    two = str(tmp_path / "two.md")
    assert "site-2: 1 added" in cli("plan", "diff", two).out
    ran = cli("plan", "add", two)
    assert "site-2: 1 task added" in ran.out
    assert "not site: that is another plan" in ran.out
    assert "not site" not in cli("plan", "add", two).out


def test_a_new_file_beside_long_plans_does_not_load_their_tasks(cli, empty, monkeypatch):
    answers: dict[str, int] = {}
    whole = Connection.request

    def heard(self: Connection, asked: ClientRequest) -> tuple[int, bytes]:
        status, data = whole(self, asked)
        answers[asked.target] = len(data)
        return status, data

    (empty.root / "muster.toml").write_text('agent = "work"\n[agents.work]\ncommand = ["true"]\n')
    for name in ("long", "longer"):
        boxes = "".join(f"- [ ] Box {n} of {name}\n" for n in range(300))
        (empty.root / f"{name}.md").write_text(f"# {name}\n\n- [ ] In both\n{boxes}")
        assert cli("plan", "add", f"{name}.md").code == 0
    (empty.root / "short.md").write_text("# Short\n\n- [ ] Nowhere else\n")
    monkeypatch.setattr(Connection, "request", heard)
    assert cli("plan", "add", "short.md").code == 0
    assert answers["/api/v1/plans/namesakes"] == len("[]")
    assert not [target for target in answers if target.endswith("/tasks")]
    (empty.root / "longer.md").rename(empty.root / "renamed.md")
    assert "plan longer goes on: its file longer.md is renamed.md now" in cli("plan", "add", "renamed.md").err
    assert "/api/v1/plans/long/tasks" in answers, "they share a box"
