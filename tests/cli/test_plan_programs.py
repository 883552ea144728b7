"""`agent=` in a plan may name a program that has registered itself, and nobody else who is not configured."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cli_owner import Cli, Owner
from muster.app.plan_reader import PlanReader
from muster.app.settings import load_config
from muster.client.http import ClientRequest, Connection
from muster.config.project import Project
from muster.model.errors import BadPlan

PLAN = "# P\n- [ ] A {#a agent=dev-1}\n- [ ] B {#b agent=shell}\n  true\n"
UNKNOWN = (
    "plan.md:2: task a wants agent dev-1, which is neither configured nor offered by a worker or program"
)
CONFIG = '[agents.shell]\nprompt = "script"\ncommand = ["sh"]\n'


@pytest.fixture(autouse=True)
def plan(root: Path) -> Path:
    (root / "muster.toml").write_text(CONFIG)
    path = root / "plan.md"
    path.write_text(PLAN)
    return path


def register(owner: Owner) -> None:
    body = json.dumps({"actor": "user:ann"}).encode()
    status, _ = Connection(owner.socket).request(ClientRequest("PUT", "/api/v1/agents/dev-1", body))
    assert status == 201


def test_a_plan_names_a_program(empty: Owner, cli: Cli, root: Path) -> None:
    refused = cli("plan", "add", "plan.md")
    assert refused.code == 2 and UNKNOWN in refused.err and "nothing was added" in refused.err
    register(empty)
    added = cli("plan", "add", "plan.md", "--json")
    assert added.code == 0, added.err
    agents = {task["key"]: task["wantedAgent"] for task in json.loads(cli("task", "list", "--json").out)}
    assert agents == {"a": "dev-1", "b": "shell"}
    assert cli("plan", "diff", "plan.md").code == 0


def test_who_would_get_what_tells_of_it(empty: Owner, cli: Cli) -> None:
    assert UNKNOWN in cli("plan", "add", "plan.md", "--dry-run").err
    assert cli("task", "add", "X", "--agent", "dev-1", "--dry-run").code == 3
    register(empty)
    told = json.loads(cli("plan", "add", "plan.md", "--dry-run", "--json").out)["tasks"]
    assert [(row["agents"], row["why"]) for row in told] == [
        (["dev-1"], "agent= names it, a program that has registered"),
        (["shell"], "agent= names it"),
    ]
    assert "dev-1" in cli("task", "add", "X", "--agent", "dev-1", "--dry-run").out


def test_the_check_of_a_plan_says_which_agent_nobody_knows(empty: Owner, cli: Cli, plan: Path) -> None:
    told = cli("plan", "check", "plan.md")
    assert told.code == 1 and UNKNOWN in told.out
    plan.write_text(PLAN.replace("agent=dev-1", "agent=shel"))
    assert "did you mean 'shell'?" in cli("plan", "check", "plan.md").out
    plan.write_text(PLAN)
    register(empty)
    assert cli("plan", "check", "plan.md").code == 0


def test_the_check_needs_no_store_and_makes_none(cli: Cli, root: Path) -> None:
    told = cli("plan", "check", "plan.md")
    assert told.code == 1 and UNKNOWN in told.out
    assert not (root / ".muster" / "state.db").exists()


def test_a_ticked_box_wants_nobody(empty: Owner, cli: Cli, plan: Path) -> None:
    plan.write_text(PLAN.replace("- [ ] A", "- [x] A"))
    assert cli("plan", "check", "plan.md").code == 0
    assert cli("plan", "add", "plan.md").code == 0


def test_a_file_may_go_on_naming_whom_its_tasks_name(empty: Owner, cli: Cli, root: Path, plan: Path) -> None:
    (root / "muster.toml").write_text(CONFIG + '[agents.dev-1]\nprompt = "script"\ncommand = ["sh"]\n')
    plan.write_text(PLAN.replace("agent=dev-1}", "agent=dev-1}\n  true"))
    assert cli("plan", "add", "plan.md").code == 0
    (root / "muster.toml").write_text(CONFIG)
    plan.write_text(plan.read_text() + "- [ ] C {#c agent=shell}\n  true\n")
    added = cli("plan", "add", "plan.md")
    assert (added.code, "1 task added" in added.out) == (0, True), added.err


def test_what_is_written_into_the_file_later_may_name_one(root: Path) -> None:
    reader = PlanReader(Project(root), load_config(root), in_reach=False)
    with pytest.raises(BadPlan, match="neither configured nor offered by a worker"):
        reader.wanted("plan.md", "", PLAN.encode(), [])
    assert [task.agent for task in reader.wanted("plan.md", "", PLAN.encode(), ["dev-1"]).tasks] == [
        "dev-1",
        "shell",
    ]
