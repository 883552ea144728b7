"""`muster agent`, and agents that other packages bring."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from patience import PATIENCE_S

CONFIG = """
[agents.claude]
kind = "claude-code"
command = ["no-such-claude"]
permission_mode = "bypassPermissions"
model = "opus"
max_budget_usd = 2.5
set = { IS_SANDBOX = "1", KEY = "hunter2" }

[agents.loud]
command = ["sh", "-c", "echo no >&2; exit 3"]
"""
PLUGIN = """
from msgspec.structs import replace
from muster.agents.command import CommandAgent
from muster.config.kinds import USE_MODE, AgentKind
from muster.model.errors import AgentUnfit, BadConfig

class Echo(CommandAgent):
    @property
    def about(self):
        return f"echoes {self.config.permission_mode}"

    def check(self):
        if self.config.permission_mode == "wild":
            raise AgentUnfit("echo-cli cannot be wild here", "be tame")

def make(config, home):
    if "word" not in config.options:
        raise BadConfig("echo-cli needs options.word", "options = { word = ... }")
    said = f"{config.options['word']} {config.permission_mode} {' '.join(config.args)}"
    return Echo(replace(config, command=("sh", "-c", f"echo {said} $HOME"), prompt="none"), home)

def broken(config, home):
    raise RuntimeError("boom")

KIND = AgentKind(
    program="echo-cli",
    make=make,
    provider="the-hills",
    modes=("tame", "wild"),
    levels={"read": "tame", "edit": "tame", "all": "wild"},
    refused={"--wild": USE_MODE},
    options=("word",),
)
BAD = AgentKind(program="bad-cli", make=broken)
"""


TAME = 'kind = "echo-cli"\npermission_mode = "tame"\n'


@pytest.fixture
def project(root):
    (root / "muster.toml").write_text(CONFIG)
    return root


def test_the_list_says_what_each_may_do_or_what_is_missing(cli, project):
    ran = cli("agent", "list")
    assert ran.code == 0
    assert "no-such-claude not found" in ran.out
    assert "runs sh -eu as your user" in ran.out
    by_name = {agent["name"]: agent for agent in json.loads(cli("agent", "list", "--json").out)}
    assert by_name["claude"]["provider"] == "anthropic"
    assert by_name["claude"]["about"].startswith(
        "no-such-claude, permission mode bypassPermissions: it may do"
    )


def test_one_is_shown_without_its_secrets(cli, project):
    for extra in ((), ("--json",)):
        ran = cli("agent", "show", "claude", *extra)
        assert ran.code == 0
        assert "bypassPermissions" in ran.out
        assert "KEY" in ran.out
        assert "hunter2" not in ran.out
    assert "$2.5 a run" in cli("agent", "show", "claude").out


def test_an_unknown_one_is_not_found(cli, project):
    ran = cli("agent", "show", "cloude")
    assert ran.code == 3
    assert "claude, loud, shell" in ran.err
    ran = cli("agent", "resume", "anthropick")
    assert ran.code == 3
    assert "no agent or provider is called 'anthropick'; there are anthropic, claude" in ran.err


def test_a_test_runs_it_once(cli, project):
    ran = cli("agent", "test", "shell", "--json")
    assert ran.code == 0
    assert json.loads(ran.out)["answer"] == "ready"
    failed = cli("agent", "test", "loud")
    assert failed.code == 1
    assert "crash: exit code 3: no" in failed.out
    missing = cli("agent", "test", "claude")
    assert missing.code == 1
    assert "no-such-claude not found" in missing.err


def test_asked_for_its_version_a_program_leaves_nothing_in_the_project(cli, root, monkeypatch):
    monkeypatch.chdir(root)
    fake = root / "tools" / "fake"
    fake.parent.mkdir()
    fake.write_text("#!/bin/sh\nmkdir .notes; echo 7.1\n")
    fake.chmod(0o755)
    (root / "muster.toml").write_text(f'[agents.fake]\ncommand = ["{fake}"]\n')
    assert json.loads(cli("agent", "test", "fake", "--json").out)["version"] == "7.1"
    assert not (root / ".notes").exists()


def test_a_test_ends_with_its_time(cli, root):
    (root / "muster.toml").write_text('[agents.slow]\ncommand = ["sleep", "60"]\nprompt = "none"\n')
    ran = cli("agent", "test", "slow", "--timeout", "1", "--json")
    assert ran.code == 1
    assert json.loads(ran.out)["errorKind"] == "timeout"


def test_doctor_tells_the_permission_mode(cli, root):
    (root / "muster.toml").write_text(
        '[agents.codex]\nkind = "codex"\ncommand = ["sh"]\npermission_mode = "workspace-write"\n'
    )
    ran = cli("doctor")
    assert "permission mode workspace-write: its commands may write in the project's folder" in ran.out


@pytest.fixture
def plugin(root: Path, tmp_path: Path) -> dict[str, str]:
    """A package as pip would have installed it."""
    site = tmp_path / "site"
    info = site / "echo_cli-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: echo-cli\nVersion: 1.0\n")
    points = "[muster.agents]\necho-cli = echo_cli:KIND\nbad-cli = echo_cli:BAD\nodd-cli = echo_cli:make\n"
    (info / "entry_points.txt").write_text(points)
    (site / "echo_cli.py").write_text(PLUGIN)
    return {"PYTHONPATH": str(site)}


def muster(root: Path, env: dict[str, str], *argv: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "muster.cli.main", *argv]
    return subprocess.run(
        command,
        cwd=root,
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )


def test_another_package_brings_a_kind_by_its_entry_point(root, plugin):
    (root / "muster.toml").write_text(
        'agent = "echo"\n[agents.echo]\nkind = "echo-cli"\npermission_mode = "tame"\nhome = "own"\n'
        'args = ["-x"]\noptions = { word = "hello" }\n'
    )
    tried = muster(root, plugin, "agent", "test", "echo")
    assert tried.returncode == 0, tried.stderr
    assert "hello" in tried.stdout
    (root / "plan.md").write_text("# P\n- [ ] Say it {#say}\n")
    ran = muster(root, plugin, "run", "plan.md")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    said = muster(root, plugin, "logs", "say").stdout
    assert said.startswith(f"hello tame -x {root / '.muster' / 'homes' / 'echo'}"), (
        "a HOME of its own, as any kind"
    )


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ('kind = "echo-cli"', "permission_mode: is missing"),
        (TAME, "echo-cli needs options.word"),
        (TAME + 'args = ["--wild"]', "--wild is not for args"),
        (TAME + "options = { wort = 1 }", "did you mean 'word'?"),
        (TAME.replace("tame", "teme"), "did you mean 'tame'?"),
        (TAME + 'prompt = "stdin"', "is not for kind 'echo-cli'"),
        (TAME.replace("tame", "wild") + "options = { word = 1 }", "echo-cli cannot be wild here"),
        ('kind = "odd-cli"', "kind 'odd-cli' cannot be used: TypeError('echo_cli:make is no AgentKind')"),
        ('kind = "bad-cli"', "kind 'bad-cli' cannot be used: RuntimeError('boom')"),
        ('kind = "ecko-cli"', "no kind of agent is called 'ecko-cli'"),
    ],
)
def test_what_is_wrong_with_a_foreign_kind_is_said(root, plugin, settings, message):
    (root / "muster.toml").write_text(f"[agents.echo]\n{settings}\n")
    shown = muster(root, plugin, "agent", "show", "echo")
    assert message in shown.stdout + shown.stderr
    assert message in muster(root, plugin, "doctor").stdout


def test_init_offers_a_foreign_kind_and_doctor_checks_it(root, plugin, tmp_path):
    (tmp_path / "site" / "echo-cli").write_text("#!/bin/sh\n")
    (tmp_path / "site" / "echo-cli").chmod(0o755)
    env = {**plugin, "PATH": f"{tmp_path / 'site'}:/usr/bin:/bin"}
    assert "echo-cli" in " ".join(muster(root, env, "init", "--help").stdout.split())
    made = muster(root, env, "init", "--yes", "--permissions", "all", "--json")
    assert json.loads(made.stdout)["agents"] == ["echo-cli"]
    settings = root / "muster.toml"
    assert (
        '\n[agents.echo-cli]\nkind = "echo-cli"\npermission_mode = "wild"   # or tame\n'
        in settings.read_text()
    )
    settings.write_text(
        settings.read_text().replace("[agents.echo-cli]", "[agents.echo-cli]\noptions = { word = 1 }")
    )
    assert "echo-cli cannot be wild here" in muster(root, env, "doctor").stdout
    settings.write_text(settings.read_text().replace('"wild"', '"tame"'))
    assert "echoes tame" in muster(root, env, "doctor").stdout
    shown = json.loads(muster(root, env, "agent", "show", "echo-cli", "--json").stdout)
    assert (shown["provider"], shown["permissionMode"]) == ("the-hills", "tame")


def test_a_task_says_its_model_and_adds_to_the_instructions(cli, root):
    (root / "muster.toml").write_text(
        'agent = "m"\n[agents.m]\nmodel = "usual"\nprompt = "none"\n'
        """command = ["sh", "-c", 'echo "$1/$2"', "x", "{model}", "{system_prompt}"]\n"""
    )
    (root / "plan.md").write_text(
        '# P\n- [ ] A {#a model=big/1 system-prompt="Be brief."}\n- [ ] B {#b}\n'
        "- [ ] C {#c agent=shell model=big/1}\n\n      true\n"
    )
    assert muster(root, {}, "run", "plan.md").returncode == 5
    assert muster(root, {}, "logs", "a").stdout == "big/1/Be brief.\n"
    assert muster(root, {}, "logs", "b").stdout == "usual/\n"
    why = muster(root, {}, "why", "c").stdout
    assert "agent shell cannot be given a model" in " ".join(why.split())
    shown = json.loads(muster(root, {}, "task", "show", "a", "--json").stdout)["task"]
    assert (shown["model"], shown["systemPrompt"]) == ("big/1", "Be brief.")


def test_what_a_command_prints_decides_where_its_exit_code_lies(cli, root):
    (root / "muster.toml").write_text(
        "agent = 'm'\n[agents.m]\nprompt = 'script'\ncommand = ['sh', '-eu']\nsuccess_pattern = '^done$'\n"
        "failure_pattern = '^Error: '\n[task]\nretries = 0\n"
    )
    (root / "plan.md").write_text(
        "---\norder: free\n---\n# P\n- [ ] A {#a}\n\n      echo done\n"
        "- [ ] B {#b}\n\n      echo done; echo 'Error: it broke'\n"
        "- [ ] C {#c}\n\n      echo half\n"
    )
    assert muster(root, {}, "run", "plan.md").returncode == 5
    said = {name: " ".join(muster(root, {}, "why", name).stdout.split()) for name in ("a", "b", "c")}
    assert "completed" in said["a"]
    assert "Error: it broke" in said["b"]
    assert "success_pattern matches nothing" in said["c"]
