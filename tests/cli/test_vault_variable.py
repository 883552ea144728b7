"""The key of what is sealed, in MUSTER_VAULT_KEY: who has it, and what follows where it is another, or none."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
from git_projects import commit_first, make_project
from test_run import started, until

from muster_command import MUSTER, run_muster
from patience import PATIENCE_S

KEY, NEWER = "c0ffee" * 10 + "0123", "facade" * 10 + "4567"
VALUE = "s3cret-value-0123456789"
SETTINGS = """\
agent = "shell"
[git]
setup = "env >> $MUSTER_ROOT/told; printenv TOKEN && exit 3 || exit 0"
[agents.shell]
command = ["sh"]
prompt = "script"
secrets = ["TOKEN"]
check = "env >> $MUSTER_ROOT/told"
[agents.judge]
command = ["sh", "-c", "env >> $MUSTER_ROOT/told; echo ACCEPT"]
prompt = "none"
"""
PLAN = """\
- [ ] Tell what it has {#tell review=judge}
  ```sh
  env >> $MUSTER_ROOT/told; test -n "$TOKEN" && echo "it has $TOKEN"
  tr '\\0' '\\n' < /proc/self/environ; git config alias.told '!env'; git told; touch made
  muster secrets list; muster secrets rotate; true
  ```
"""


def ask(folder: Path, key: str, *words: str, given: str = "") -> subprocess.CompletedProcess[str]:
    """A process of its own."""
    argv, env = [*MUSTER, *words], {**os.environ, "MUSTER_VAULT_KEY": key}
    done = subprocess.run(
        argv,
        cwd=folder,
        env=env,
        input=given,
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_S,
    )
    assert not _told(done.stdout + done.stderr), argv
    return done


def _told(text: str | bytes) -> list[str]:
    data = text.encode() if isinstance(text, str) else text
    return [key for key in (KEY, NEWER) if key.encode() in data.lower()]


def test_only_muster_itself_has_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project = make_project(tmp_path / "project", config=SETTINGS, plan=PLAN)
    commit_first(project, "plan.md")
    assert ask(project, KEY, "secrets", "set", "TOKEN", given=VALUE).returncode == 0
    assert ask(project, KEY, "plan", "add", "plan.md").returncode == 0
    monkeypatch.setenv("MUSTER_VAULT_KEY", KEY)
    with started(project, "up", "--workers", "1") as crew:
        until(lambda: _status(project) == "COMPLETED", "it is done")
        for words in (
            ("doctor", "--offline"),
            ("config", "show", "--origin"),
            ("logs", "tell"),
            ("task", "show", "tell", "--json"),
            ("audit", "list", "--json"),
            ("db", "backup"),
        ):
            said = ask(project, KEY, *words)
            assert said.returncode == 0, said
        assert "it has ****" in run_muster(project, "logs", "tell").stdout
        for process in Path("/proc").glob("[0-9]*"):
            try:
                assert not _told((process / "cmdline").read_bytes()), process
            except OSError:
                continue  # it has ended
        assert run_muster(project, "down").returncode == 0
        assert crew.wait(PATIENCE_S) == 0
        assert crew.stdout is not None and not _told(crew.stdout.read())
    told = (project / "told").read_text()
    assert told.count("MUSTER_TASK=") >= 3, "the agent, its check and its reviewer"
    assert "MUSTER_VAULT_KEY" not in told
    for path in project.rglob("*"):
        if path.is_file():
            assert not _told(path.read_bytes()), path


def _status(folder: Path) -> str:
    return str(json.loads(run_muster(folder, "task", "show", "tell", "--json").stdout)["task"]["status"])


def test_without_it_nothing_is_sealed_by_another_key(tmp_path: Path) -> None:
    (tmp_path / "muster.toml").touch()
    assert ask(tmp_path, KEY, "secrets", "set", "TOKEN", given=VALUE).returncode == 0
    kept = (tmp_path / ".muster" / "vault.key").read_bytes()
    for key, cause in (("", "is not set"), (NEWER, "has another key"), ("c0ffee", "is no key")):
        for words in (("up",), ("secrets", "set", "TOKEN"), ("secrets", "rotate")):
            done = ask(tmp_path, key, *words, given=VALUE)
            assert done.returncode != 0 and f"MUSTER_VAULT_KEY {cause}" in done.stderr, done
            assert "hint" in done.stderr and "nothing was changed" in done.stderr
    assert ask(tmp_path, "", "secrets", "list").returncode == 0, "what needs no key goes on"
    assert (tmp_path / ".muster" / "vault.key").read_bytes() == kept


def test_the_key_of_a_file_becomes_one_of_the_environment(tmp_path: Path) -> None:
    (tmp_path / "muster.toml").touch()
    assert ask(tmp_path, "", "secrets", "set", "TOKEN", given=VALUE).returncode == 0
    file = tmp_path / ".muster" / "vault.key"
    old = file.read_text().strip()
    refused = ask(tmp_path, NEWER, "up")
    assert refused.returncode != 0 and "have different keys" in refused.stderr
    assert file.read_text().strip() == old and old not in refused.stderr
    done = ask(tmp_path, old, "secrets", "rotate")
    assert done.returncode == 6 and 'MUSTER_VAULT_KEY="NEW OLD"' in done.stderr
    done = ask(tmp_path, f"{NEWER} {old}", "secrets", "rotate")
    assert "1 secrets" in done.stdout and "left to do: take all keys but the first" in done.stdout, done
    assert old not in file.read_text()
    assert "is in MUSTER_VAULT_KEY" in ask(tmp_path, NEWER, "doctor", "--offline").stdout
    assert ask(tmp_path, f"{KEY} {NEWER}", "secrets", "rotate").returncode == 0, (
        "it opened what NEWER had sealed"
    )


def test_no_agent_can_be_given_it(tmp_path: Path) -> None:
    (tmp_path / "muster.toml").write_text('[agents.shell]\ncommand = ["sh"]\nenv = ["MUSTER_VAULT_KEY"]\n')
    refused = ask(tmp_path, KEY, "up")
    assert refused.returncode == 2 and "MUSTER_VAULT_KEY opens all secrets" in refused.stderr
