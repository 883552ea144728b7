"""What `muster init` lets agents run, and where `muster doctor` says that it is too little."""

from __future__ import annotations

import json

import pytest

from muster.app.settings import load_config

BUILDS = {
    "Makefile": "CC := cc\ntest: build\n\ttrue\nbuild:\n\ttrue\ninstall:\n\ttrue\n",
    "package.json": '{"scripts": {"test": "jest", "lint": "eslint", "start": "node ."}}',
    "pyproject.toml": "[tool.pytest.ini_options]\n[tool.mypy]\n",
    "Cargo.toml": "[package]\n",
    "go.mod": "module m\n",
}
FOUND = ["make test", "make build", "npm test", "npm run lint", "pytest", "mypy"]
FOUND += ["cargo test", "cargo check", "cargo build", "go test", "go vet", "go build"]


def test_init_lets_agents_run_the_tests_and_builds_that_it_finds(cli, root):
    for name, text in BUILDS.items():
        (root / name).write_text(text)
    made = json.loads(cli("init", "--agent", "claude", "--agent", "codex", "--yes", "--json").out)
    assert made["run"] == FOUND
    agents = load_config(root).agents
    assert agents["claude"].args == ("--allowedTools", *(f"Bash({command}:*)" for command in FOUND))
    assert agents["codex"].args == (), "its sandbox asks for no command"


@pytest.mark.parametrize(
    ("given", "args"),
    [
        (["--run", "make test", "--run", "make lint"], ["Bash(make test:*)", "Bash(make lint:*)"]),
        (["--run", "none"], []),
        (["--permissions", "all"], []),
    ],
)
def test_init_lets_agents_run_what_a_script_names(cli, root, given, args):
    (root / "Makefile").write_text(BUILDS["Makefile"])
    assert cli("init", "--agent", "claude", "--yes", *given).code == 0
    assert list(load_config(root).agents["claude"].args) == (["--allowedTools", *args] if args else [])


def program(root):
    folder = root / "on-path"
    folder.mkdir()
    (folder / "claude").write_text("#!/bin/sh\n")
    (folder / "claude").chmod(0o755)
    return folder


@pytest.mark.parametrize(
    ("mode", "more", "doubt"),
    [
        ("plan", "", "is to change files (writes = true), and plan lets it change none"),
        ("plan", "writes = false", ""),
        ("acceptEdits", "", "its work has to pass `make test`, which it may not run without asking you"),
        ("acceptEdits", 'args = ["--allowedTools", "Bash(make lint:*)"]', "has to pass `make test`"),
        ("acceptEdits", 'args = ["--allowedTools", "Bash(make test:*)"]', ""),
        ("acceptEdits", 'args = ["--allowedTools=Edit,Bash(make *)"]', ""),
        ("acceptEdits", 'args = ["--allowedTools", "Bash"]', ""),
        ("acceptEdits", 'check = ""', ""),
        ("acceptEdits", "# as .claude has it", ""),
        ("bypassPermissions", 'set = { IS_SANDBOX = "1" }', ""),
    ],
)
def test_doctor_warns_where_a_mode_cannot_work(cli, root, mode, more, doubt):
    agent = f'[agents.claude]\nkind = "claude-code"\npermission_mode = "{mode}"\n{more}\n'
    (root / "muster.toml").write_text(f'[task]\ncheck = "make test"\n{agent}')
    if ".claude" in more:
        (root / ".claude").mkdir()
        (root / ".claude" / "settings.json").write_text(
            '{"permissions": {"allow": ["Read", "Bash(make:*)"]}}'
        )
    checks = json.loads(cli("doctor", "--json", env={"PATH": f"{program(root)}:/usr/bin:/bin"}).out)["checks"]
    doubts = [check["found"] for check in checks if check["name"] == "agent claude" and check["ok"] is None]
    assert len(doubts) == bool(doubt) and all(doubt in found for found in doubts), checks
