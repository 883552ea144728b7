"""`muster init`, `muster doctor`, and how a command finds its owner."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import stat
import subprocess
import sys
import tomllib
from functools import partial
from pathlib import Path

import pytest
from msgspec import convert

from muster.app.engine_settings import policy_of
from muster.app.parts import offers_of
from muster.app.settings import KINDS, load_config
from muster.cli import doctor
from muster.cli.init import PLAN, settings_for
from muster.cli.plan_file import Given, plan_body
from muster.client.http import Connection
from muster.config import load
from muster.config.project import Project
from muster.config.settings import Config, TaskDefaults
from muster.hosts.local_host import LocalHost
from muster.hosts.process_tree import Record
from muster.model.commands import Enqueue, Offer
from muster.plans.markdown import parse
from patience import PATIENCE_S

parse_config = partial(load.parse_config, kinds=KINDS)


def test_init_makes_a_project_that_is_valid(cli, root):
    ran = cli("init")
    assert ran.code == 0
    assert "Created  muster.toml, plan.md, .muster/" in ran.out
    assert "Next     muster run plan.md" in ran.out
    assert load_config(root) == Config()
    assert stat.S_IMODE((root / ".muster").stat().st_mode) == 0o700
    assert (root / ".muster" / ".gitignore").read_text() == "*\n"


def test_init_twice_changes_nothing(cli, root):
    cli("init")
    (root / "plan.md").write_text("mine")
    (root / "muster.toml").write_text("broken = [")
    ran = cli("init")
    assert ran.code == 0
    assert "Kept     muster.toml, plan.md, .muster/: already there" in ran.out
    assert (root / "plan.md").read_text() == "mine"
    assert (root / "muster.toml").read_text() == "broken = ["
    assert json.loads(cli("init", "--json").out)["created"] == []


def test_init_follows_no_link_to_write(cli, root, tmp_path):
    (root / "plan.md").symlink_to(tmp_path / "elsewhere")
    assert cli("init").code == 0
    assert not (tmp_path / "elsewhere").exists()


def test_a_folder_whose_name_is_not_utf8_is_refused_before_anything_is_made(cli, tmp_path):
    folder = Path(os.fsdecode(os.fsencode(tmp_path) + b"/n\xff"))
    try:
        folder.mkdir()
    except OSError:
        pytest.skip("this file system knows no such names")
    (folder / "plan.md").write_text("# P\n- [ ] A {agent=shell}\n  true\n")
    for argv in (("init", "-C", str(folder)), ("run", str(folder / "plan.md"))):
        ran = cli(*argv)
        assert (ran.code, "is not UTF-8; nothing was changed" in ran.err) == (2, True), ran.err
    assert [path.name for path in folder.iterdir()] == ["plan.md"]


@pytest.fixture
def on_path(tmp_path):
    """An environment in which the agents of these names are installed."""

    def install(*names):
        folder = tmp_path / "agents-on-path"
        folder.mkdir()
        for name in names:
            (folder / name).write_text("#!/bin/sh\n")
            (folder / name).chmod(0o755)
        return {"PATH": f"{folder}:/usr/bin:/bin"}

    return install


def _modes(root):
    return {
        name: agent.permission_mode for name, agent in load_config(root).agents.items() if name != "shell"
    }


def test_init_sets_up_the_agents_that_it_finds(cli, root, on_path):
    ran = cli("init", env=on_path("claude", "codex"))
    assert "Found    claude, codex on PATH" in ran.out
    assert "for most commands it asks, or is refused (edit)" in ran.out
    assert _modes(root) == {"claude": "acceptEdits", "codex": "workspace-write"}
    assert load_config(root).default_agent == "claude"
    plan = parse((root / "plan.md").read_text(), "plan.md")
    assert [(task.key, task.agent, set(task.depends_on)) for task in plan.tasks] == [
        ("overview", None, set()),
        ("gaps", None, set()),
        ("summary", "shell", {"overview", "gaps"}),
    ]
    assert cli("plan", "add", "plan.md", "--dry-run").code == 0


@pytest.mark.parametrize(
    ("permissions", "mode", "writes"),
    [("read", "read-only", False), ("edit", "workspace-write", True), ("all", "danger-full-access", True)],
)
def test_init_sets_up_the_agent_that_a_script_names(cli, root, permissions, mode, writes):
    ran = cli("init", "--agent", "codex", "--yes", "--permissions", permissions, "--json")
    made = json.loads(ran.out)
    assert (made["agents"], made["permissions"]) == (["codex"], permissions)
    config = load_config(root)
    assert (config.default_agent, _modes(root)) == ("codex", {"codex": mode})
    assert config.agents["codex"].writes is writes
    assert ("Write OVERVIEW.md" in (root / "plan.md").read_text()) is writes, "a plan that it can do"


def test_init_says_how_to_get_an_agent_that_is_not_on_path(cli, root, on_path):
    ran = cli("init", "--agent", "claude", "--yes", env=on_path("codex"))
    assert ran.code == 0
    assert "Missing  claude is not on PATH: npm install -g @anthropic-ai/claude-code, or" in ran.out
    assert ran.out.endswith("Next     muster doctor, then muster run plan.md\n")


def test_init_can_leave_the_agents_on_path_alone(cli, root, on_path):
    assert cli("init", "--agent", "shell", env=on_path("claude")).code == 0
    assert load_config(root) == Config()
    assert (root / "plan.md").read_text() == PLAN


def test_init_refuses_an_agent_that_it_does_not_know(cli, root):
    ran = cli("init", "--agent", "claud")
    assert (ran.code, "did you mean 'claude'?" in ran.err) == (2, True)
    assert "'claud' is not one of claude, codex, gemini, letta, opencode, qwen, aider, shell;" in ran.err
    assert list(root.iterdir()) == []


@pytest.mark.parametrize(
    ("typed", "mode"),
    [("\n", "acceptEdits"), ("1\n", "plan"), ("9\nall\n", "bypassPermissions"), ("\x04", None)],
)
def test_on_a_terminal_init_asks_once_what_agents_may_do(root, on_path, typed, mode):
    ours, theirs = os.openpty()
    argv = [sys.executable, "-m", "muster.cli.main", "init"]
    env = {**os.environ, **on_path("claude")}
    with os.fdopen(ours, "r+b", buffering=0) as keyboard:
        process = subprocess.Popen(argv, cwd=root, env=env, stdin=theirs, stdout=theirs, stderr=theirs)
        os.close(theirs)
        seen = b""
        while b"]: " not in seen:
            seen += keyboard.read(4096)
        keyboard.write(typed.encode())
        with contextlib.suppress(OSError):  # how Linux tells that the other side of a terminal is closed
            while chunk := keyboard.read(4096):
                seen += chunk
        assert process.wait(PATIENCE_S) == (0 if mode else 2), seen
    assert seen.count(b"What may claude do without asking?") == 1
    if mode is None:
        assert b"nothing was written" in seen and list(root.iterdir()) == []
    else:
        assert _modes(root) == {"claude": mode}


def test_every_option_of_the_example_is_valid_once_uncommented():
    text = re.sub(r"^#(?=[a-z\[])", "", settings_for([], "edit"), flags=re.MULTILINE)
    config = parse_config(tomllib.loads(text))
    assert config.default_agent == "check"
    clis = {"aider", "claude", "codex", "gemini", "letta", "opencode", "qwen"}
    assert set(config.agents) == {"shell", "check", *clis}
    asked = TaskDefaults(check="make test", review="person", rubric="...")
    assert (config.task, config.health) == (asked, Config().health)


def test_the_example_plan_really_runs(root):
    plan = parse(PLAN, "plan.md")
    assert [(task.key, set(task.depends_on)) for task in plan.tasks] == [
        ("machine", set()),
        ("files", {"machine"}),
        ("disk", {"machine"}),
        ("summary", {"files", "disk"}),
    ]
    for task in plan.tasks:
        assert task.agent == "shell"
        script = task.description.replace("sleep 1", "sleep 0")
        ran = subprocess.run(["sh", "-eu", "-c", script], cwd=root, capture_output=True, check=False)
        assert ran.returncode == 0, ran.stderr
        assert ran.stdout
    assert list(root.iterdir()) == []


def test_init_says_what_stands_in_the_way(cli, root):
    (root / ".muster").write_text("a file")
    ran = cli("init")
    assert ran.code == 1
    assert ".muster: there is a file of that name" in ran.err
    assert (root / ".muster").read_text() == "a file"
    assert cli("init", "-C", "nowhere").code == 2
    assert cli("init", "extra").code == 2


def _checks(ran):
    return {check["name"]: check for check in json.loads(ran.out)["checks"]}


def test_doctor_of_a_sound_project(cli, root):
    cli("init")
    ran = cli("doctor")
    assert ran.code == 0, ran.out
    assert "all is well" in ran.out
    checks = _checks(cli("doctor", "--json"))
    assert checks["owner"]["ok"] is None
    assert checks["agent shell"]["ok"] is True
    assert {"Python", "SQLite", "git", "file system", "permissions", "disk", "clock", "processes"} <= set(
        checks
    )


def test_doctor_outside_of_a_project(cli, root):
    ran = cli("doctor")
    assert ran.code == 1
    assert "there is no project in" in ran.out
    assert "fix: muster init" in ran.out
    assert list(root.iterdir()) == []


def test_doctor_finds_what_is_wrong(cli, root):
    cli("init")
    (root / "muster.toml").write_text("[task]\nretry = 1\n")
    (root / ".muster").chmod(0o755)
    (root / ".muster" / "state.halted").write_text("EIO")
    (root / ".muster" / "state.db").touch()
    os.utime(root / ".muster" / "state.db", (4e9, 4e9))
    ran = cli("doctor", "--json")
    assert ran.code == 1
    checks = _checks(ran)
    assert {name for name, check in checks.items() if check["ok"] is False} == {
        "configuration",
        "permissions",
        "store",
        "clock",
    }
    assert "retry" in checks["configuration"]["found"]
    assert checks["permissions"]["fix"] == f"chmod 700 {root / '.muster'}"
    assert all(check["fix"] for check in checks.values() if check["ok"] is False)


def test_doctor_knows_an_agent_that_cannot_run(cli, root):
    (root / "muster.toml").write_text('[agents.ghost]\ncommand = ["no-such-binary"]\n')
    ran = cli("doctor", "--json")
    assert ran.code == 1
    check = _checks(ran)["agent ghost"]
    assert "no-such-binary not found" in check["found"]
    assert check["fix"]


def test_doctor_refuses_a_shared_file_system(cli, root, monkeypatch):
    cli("init")
    monkeypatch.setattr("muster.hosts.file_lock.file_system", lambda folder: "nfs4")
    check = _checks(cli("doctor", "--json"))["file system"]
    assert check["ok"] is False
    assert "nfs4" in check["found"]


def test_doctor_sees_the_owner_and_that_nobody_minds_it(cli, owner):
    checks = _checks(cli("doctor", "--json"))
    assert checks["owner"]["ok"] is True
    assert checks["supervisor"]["ok"] is False


def test_doctor_finds_processes_that_outlived_their_worker(cli, root):
    cli("init")
    host = LocalHost()
    folder = root / ".muster" / "attempts" / "7" / "1"
    folder.mkdir(parents=True)
    with subprocess.Popen(["sleep", "60"]) as left, subprocess.Popen(["true"]) as worker:
        member, dead = host.identify(left.pid), host.identify(worker.pid)
        worker.wait()
        record = Record(boot_id=host.boot_id, holder=dead or member, mark="MUSTER_X=1", members={member})
        record = Record(
            boot_id=host.boot_id,
            holder=record.holder._replace(pid=worker.pid),
            mark=record.mark,
            members=frozenset({member}),
        )
        record.save(folder / "pids")
        try:
            check = _checks(cli("doctor", "--json"))["processes"]
        finally:
            left.kill()
    assert check["ok"] is False
    assert str(left.pid) in check["found"]
    assert _checks(cli("doctor", "--json"))["processes"]["ok"] is True


def test_doctor_goes_on_when_a_check_cannot_be_made(cli, root, monkeypatch):
    cli("init")

    def broken(project):
        raise PermissionError(13, "Permission denied", "somewhere")

    monkeypatch.setattr(doctor, "_disk", broken)
    checks = _checks(cli("doctor", "--json"))
    assert checks["disk"]["found"] == "somewhere: Permission denied"
    assert checks["agent shell"]["ok"] is True


def test_doctor_wrong_usage(cli, root):
    assert cli("doctor", "--jsn").code == 2


def test_without_an_owner_the_command_holds_the_store_itself(cli, root):
    cli("init")
    ran = cli("status")
    assert (ran.code, ran.err) == (0, "")
    assert "no owner: `muster up`" in ran.out
    assert json.loads(cli("status", "--json").out)["owner"] is None


def test_a_dead_owners_socket_is_in_nobodys_way(cli, owner):
    owner.stop()
    owner.store.close()
    import socket

    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(owner.socket))
    ran = cli("task", "retry", "tests")
    assert ran.code == 0, ran.err
    assert "starts anew (generation 2); `muster up` runs it" in ran.out
    assert "no owner is up" in cli("logs", "docs", "-f").err


def test_an_owner_that_is_just_starting_is_waited_for(start, empty):
    empty.stop()
    with (empty.root / ".muster" / "owner.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        process = start("status")
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.5)
        empty.start()
        out, _ = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0
    assert b"crew running" in out


def test_somebody_elses_project(cli, owner, monkeypatch):
    """Root may open everything, so the refusal is the kernel's words in a test's mouth."""
    before = owner.fingerprint()

    def refuse(connection):
        raise PermissionError(13, "Permission denied", connection._path)

    monkeypatch.setattr(Connection, "open", refuse)
    ran = cli("task", "cancel", "api")
    assert ran.code == 4
    assert f"{owner.socket}: permission denied" in ran.err
    assert owner.fingerprint() == before


def test_a_project_deep_down(cli, tmp_path):
    deep = tmp_path.joinpath(*["deep" * 10] * 4)
    deep.mkdir(parents=True)
    assert cli("init", "-C", str(deep)).code == 0
    assert cli("status", "-C", str(deep)).code == 0
    assert Path(deep / ".muster").is_dir()


# -- from muster.toml and the plan to the engine and the worker


def test_limits_slots_and_offers_reach_the_engine_and_the_worker():
    agents = {
        "claude": {"command": ["claude"], "slots": 3, "capabilities": ["rust"], "profiles": ["writer"]},
        "codex": {"command": ["codex"]},
    }
    config = parse_config({"agents": agents, "limits": {"gpu": 2}, "task": {"waiting": 9}})
    policy = policy_of(config)
    assert (policy.agent_slots, policy.limits, policy.waiting_max) == ({"claude": 3}, {"gpu": 2}, 9)
    assert offers_of(config) == {
        "shell": Offer(kind="command"),
        "claude": Offer(capabilities=("rust",), profiles=("writer",), kind="command"),
        "codex": Offer(kind="command"),
    }


def test_an_agent_that_is_heard_less_often_has_a_longer_lease():
    agents = {
        name: {"command": ["x"], "heartbeat": heard} for name, heard in {"slow": "1m", "fast": "1s"}.items()
    }
    policy = policy_of(parse_config({"agents": agents}))
    assert [policy.lease_ms(agent, "") for agent in ("slow", "fast", "shell")] == [180_000, 15_000, 15_000]


def test_the_wishes_of_a_plans_tasks_are_enqueued(root):
    text = "- [ ] A {#a cap=rust limit=gpu on-failed=run tags=x}\n- [ ] B {#b profile=writer}\n"
    text += "- [ ] C {#c}\n  true\n"
    config = parse_config({"agent": "shell"})
    body = plan_body(Given(parse(text, "plan.md"), root / "plan.md"), config, Project(root), list)
    a, b, c = convert(json.loads(json.dumps(body)), Enqueue).tasks
    assert (a.capabilities, a.limit_key, a.on_failed, a.tags) == (("rust",), "gpu", "run", ("x",))
    assert (a.agent, b.agent, b.profile, c.agent) == (None, None, "writer", "shell")


def test_a_task_that_asks_for_what_an_agent_offers_is_done_by_it(root):
    """`muster run` from end to end, with a limit: the one who offers it does it, one at a time."""
    (root / "muster.toml").write_text(
        'agent = "shell"\n[limits]\none = 1\n[workers]\ncount = 2\n'
        '[agents.smith]\ncommand = ["sh", "-eu"]\nprompt = "script"\ncapabilities = ["iron"]\n'
    )
    script = "mkdir busy; sleep 0.3; rmdir busy; echo done"
    tasks = "".join(f"- [ ] T{n} {{#t{n} cap=iron limit=one}}\n  {script}\n" for n in range(3))
    (root / "plan.md").write_text(f"# P\n\n{tasks}")
    argv = [sys.executable, "-m", "muster.cli.main", "run", "plan.md"]
    ran = subprocess.run(argv, cwd=root, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert (ran.returncode, "3 completed" in ran.stdout) == (0, True), ran.stdout + ran.stderr
    assert ran.stdout.count("smith") >= 3


def test_the_settings_that_init_writes_name_every_key(cli, root):
    cli("init")
    parts = {part.partition("]")[0]: part for part in (root / "muster.toml").read_text().split("\n[")}
    keys = [row["key"].split(".") for row in json.loads(cli("config", "show", "--json").out)]
    untold = [
        ".".join(key)
        for key in keys
        if len(key) > 1 and key[0] != "agents" and not re.search(rf"\b{key[-1]} =", parts.get(key[0], ""))
    ]
    assert len(keys) > 20 and untold == []


HOLD = """
import signal, sys
from pathlib import Path
from muster.hosts.file_lock import Lock
signal.signal(signal.SIGUSR1, signal.SIG_IGN)
lock = Lock.take(Path(sys.argv[1]))
print("held", flush=True)
sys.stdin.read()
"""


def test_down_comes_back_when_the_next_crew_may_begin(start, root):
    """The supervisor releases its lock a moment after its owner has ended."""
    (root / ".muster").mkdir(mode=0o700)
    argv = [sys.executable, "-c", HOLD, str(Project(root).supervisor_lock)]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as supervisor:
        assert supervisor.stdout.readline() == b"held\n"
        down = start("down")
        with pytest.raises(subprocess.TimeoutExpired):
            down.wait(2)  # it must not come back: there is no event to wait for
        supervisor.communicate(timeout=PATIENCE_S)
    assert down.wait(PATIENCE_S) == 0
