"""`--fields` of everything that shows a list or one thing."""

from __future__ import annotations

import json
import os

import pytest

from muster.cli.surface import surface
from muster.config.contexts import KnownServer, SavedContexts
from muster.model import commands as c
from muster.model.access import Role
from muster.model.notify import ChannelPlan, Matter

ONE = {
    ("status",): ((), "crew,tasks"),
    ("task", "show"): (("billing/api",), "ref,state,why,attempts"),
    ("task", "add"): (("Another", "--plan", "p"), "ref,added"),
    ("task", "edit"): (("billing/docs", "--priority", "9"), "ref,priority"),
    ("why",): (("billing/tests",), "task,why"),
    ("plan", "show"): (("billing",), "name,settled,counts,tasks"),
    ("plan", "diff"): (("new.md",), "plan,added"),
    ("worker", "show"): (("abcdefgh",), "id,holds"),
    ("worker", "status"): ((), "workers,counts"),
    ("agent", "show"): (("shell",), "name,kind,slots"),
    ("agent", "test"): (("shell",), "name,ok"),
    ("attempt", "show"): (("billing/tests",), "epoch,status,errorKind,events"),
    ("audit", "verify"): ((), "whole,sealed"),
    ("orchestrator", "status"): ((), "status,pendingTasks"),
}
"""Commands that show one thing, with arguments and fields."""
MANY = {
    ("task", "list"): ((), "ref,state,why"),
    ("task", "next"): ((), "ref,priority"),
    ("task", "wait"): (("billing/tests",), "ref,status"),
    ("plan", "list"): ((), "name,paused"),
    ("worker", "list"): ((), "id,pid,holds"),
    ("agent", "list"): ((), "name,problem"),
    ("attempt", "list"): (("billing/tests",), "epoch,work"),
    ("claim", "list"): ((), "ref,holder"),
    ("config", "show"): ((), "key,origin"),
    ("dead", "list"): ((), "ref,errorKind,error"),
    ("inbox",): ((), "ref,next,pool"),
    ("audit", "list"): ((), "ref,event,level"),
    ("doctor",): ((), "name,ok"),
    ("worktree", "list"): ((), "ref,bytes"),
    ("workspace", "list"): ((), "id,name"),
    ("member", "list"): ((), "name,role"),
    ("token", "list"): ((), "name,member,role,lastUsedAtMs"),
    ("webhook", "list"): ((), "id,url,kinds,disabled"),
    ("notify", "list"): ((), "name,kind,to,tells,disabled"),
    ("secrets", "list"): ((), "name,setBy"),
    ("context", "list"): ((), "context,server,inUse"),
}
ALL = ONE | MANY
EMPTY = [
    "task list",
    "task next",
    "plan list",
    "worker list",
    "claim list",
    "dead list",
    "inbox",
    "audit list",
    "worktree list",
]


@pytest.fixture
def project(owner, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "settings"))
    known = KnownServer("https://muster.example.org", "secret")
    with SavedContexts.change(os.environ) as saved:
        saved.servers["there"] = known
    (owner.root / "new.md").write_text("- [ ] Say it {#say agent=shell}\n  true\n")
    (owner.root / ".muster" / "worktrees" / "7").mkdir(parents=True)
    owner.do(c.SetMember(name="ada", role=Role.ADMIN, actor="root"))
    token = c.AddToken(name="t", member="ada", role=Role.VIEWER, token_hash="0" * 64, actor="root")
    owner.do(token)
    owner.do(c.AddWebhook(url="https://example.org/hook", sealed="", actor="root"))
    owner.do(c.PutSecret(name="TOKEN", sealed="", actor="root"))
    phone = ChannelPlan(name="phone", kind="ntfy", to="https://ntfy.sh/topic", tells=(Matter.DEAD,))
    owner.served.channels = (phone,)
    return owner


def test_they_are_there_for_whatever_lists_or_shows():
    nodes = {node.path: node for command in surface() for node in command.walk() if not node.verbs}
    offered = {path for path, node in nodes.items() if any("--fields" in o.names for o in node.options)}
    assert offered == ALL.keys() | {
        ("task", "run"),
        ("agent", "allowed"),
        ("plan", "sync"),
        ("webhook", "messages"),
        ("notify", "messages"),
        ("artifact", "list"),
        ("context", "show"),  # asks a server
    }  # as `task add`; empty
    shows = {path for path in nodes if path[-1] in ("list", "show", "status", "next", "wait", "verify")}
    assert shows - {("pr", "status")} <= offered  # what a forge says is told in sentences


@pytest.mark.parametrize("path", ONE, ids=" ".join)
def test_of_one_thing(cli, project, path):
    words, fields = ONE[path]
    names = fields.split(",")
    picked = json.loads(cli(*path, *words, "--fields", fields, "--json").out)
    assert list(picked) == names
    cells = cli(*path, *words, "--fields", fields).out.rstrip("\n").split("\t")
    assert len(cells) == len(names)
    if path not in {("task", "add"), ("audit", "verify")}:  # what these tell is another thing the second time
        assert [_read(cell, picked[name]) for cell, name in zip(cells, names, strict=True)] == list(
            picked.values()
        )


@pytest.mark.parametrize("path", MANY, ids=" ".join)
def test_of_a_list(cli, project, path):
    words, fields = MANY[path]
    names = fields.split(",")
    picked = json.loads(cli(*path, *words, "--fields", fields, "--json").out)
    assert picked
    assert all(list(row) == names for row in picked)
    lines = cli(*path, *words, "--fields", fields).out.splitlines()
    assert len(lines) == len(picked)
    for line, row in zip(lines, picked, strict=True):
        cells = zip(line.split("\t"), row.values(), strict=True)
        assert [_read(cell, value) for cell, value in cells] == list(row.values())


@pytest.mark.parametrize("path", MANY, ids=" ".join)
def test_a_list_by_lines_is_the_same_list(cli, project, path):
    words, fields = MANY[path]
    whole = cli(*path, *words, "--fields", fields, "--json")
    apart = cli(*path, *words, "--fields", fields, "--jsonl")
    assert [json.loads(line) for line in apart.out.splitlines()] == json.loads(whole.out) != []
    assert apart.code == whole.code


def test_by_lines_one_thing_is_one_line_nothing_is_none_and_an_error_is_json(cli, project):
    (line,) = cli("status", "--jsonl").out.splitlines()
    assert json.loads(line)["crew"] == "RUNNING"
    assert cli("task", "list", "--status", "archived", "--jsonl").out == ""
    assert json.loads(cli("task", "show", "nowhere", "--jsonl").err)["error"]["code"] == "not_found"
    assert cli("task", "list", "--status", "archived", "--json").out == "[]\n", (
        "it holds for its command only"
    )


def _read(cell: str, like: object) -> object:
    if like is None:
        return cell or None
    return cell if isinstance(like, str) else json.loads(cell)


@pytest.mark.parametrize("path", ALL, ids=" ".join)
def test_one_that_is_not_there_changes_nothing(cli, project, path):
    before = project.fingerprint()
    good = ALL[path][1].split(",")[0]
    ran = cli(*path, *ALL[path][0], "--fields", f"{good},{good}X")
    assert (ran.code, ran.raw) == (2, b"")
    assert f"there is no field '{good}X'; did you mean '{good}'?" in ran.err
    assert good in ran.err.partition("fields: ")[2].replace(",", "").split()
    assert project.fingerprint() == before


@pytest.mark.parametrize("words", EMPTY)
def test_one_that_is_not_there_in_an_empty_list(cli, root, words):
    (root / "muster.toml").touch()
    good = ALL[tuple(words.split())][1]
    assert cli(*words.split(), "--fields", good)[:2] == (0, b"")
    assert json.loads(cli(*words.split(), "--fields", good, "--json").out) == []
    ran = cli(*words.split(), "--fields", "nonsense")
    assert (ran.code, ran.raw) == (2, b"")
    assert "there is no field 'nonsense'" in ran.err


def test_a_cell_stays_one_cell(cli, owner):
    cli("task", "add", "two\tcolumns", "--prompt", "two\nlines\x1b[2J", "--plan", "p", "--key", "k")
    assert cli("task", "show", "p/k", "--fields", "title,description").out == "two columns\ttwo lines^[[2J\n"
