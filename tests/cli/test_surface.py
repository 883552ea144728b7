"""What is made from the parsers: completion, the manual page, the reference; and the raw request."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from muster.cli.main import COMMANDS
from muster.cli.man import markdown
from muster.cli.surface import surface

ROOT = Path(__file__).parents[2]
ASK_BASH = """
muster() { "$PYTHON" -m muster.cli.main "$@"; }
source "$1"; shift
COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMPREPLY=()
_muster
printf '%s\\n' "${COMPREPLY[@]}"
"""


def test_every_command_and_verb_says_what_it_does():
    nodes = [node for command in surface() for node in command.walk()]
    assert {node.path[0] for node in nodes} == set(COMMANDS)
    assert [node.path for node in nodes if not node.help] == []
    mute = [(node.path, option.names) for node in nodes for option in node.options if not option.help]
    assert mute == [], "options without a help text"


def test_the_reference_is_what_the_parsers_say():
    page = ROOT / "docs" / "reference" / "commands.md"
    assert page.read_text() == markdown(surface()), f"./run muster man --markdown > {page.relative_to(ROOT)}"


def test_the_manual_page_has_every_command_and_is_clean_roff(cli):
    ran = cli("man")
    assert ran.code == 0
    assert ran.out.startswith(".TH MUSTER 1")
    assert all(f"muster {name}" in ran.out.replace("\\-", "-") for name in COMMANDS)
    requests = {line.split()[0] for line in ran.out.splitlines() if line.startswith(".")}
    assert requests <= {".TH", ".SH", ".B", ".I", ".TP", ".PP", ".RS", ".RE"}


ASK_ZSH = """
compdef() { : }
_describe() { print -l -- ${${(P)2}%%:*} }
_files() { : }
muster() { "$PYTHON" -m muster.cli.main "$@" }
source "$1"; shift
words=("$@"); CURRENT=$#; PREFIX=$words[-1]
_muster
"""
"""What zsh itself does afterwards: to leave out what begins otherwise."""
ASK_FISH = """
function muster; $PYTHON -m muster.cli.main $argv; end
function __fish_complete_path; end
source $argv[1]
complete -C "$argv[2..]"
"""
COMPLETED = [
    (("muster", "ta"), {"task"}),
    (("muster", "task", "re"), {"retry", "resume"}),
    (("muster", "-C", "/x", "task", "list", "--st"), {"--status"}),
    (("muster", "task", "retry", "--from", ""), {"checkpoint", "start"}),
    (("muster", "task", "show", "billing/a"), {"billing/api"}),
    (("muster", "--color", "al"), {"always"}),
    (("muster", "attempt", "diff", "billing/a"), {"billing/api"}),
    (("muster", "plan", "pause", ""), {"billing"}),
    (("muster", "agent", "show", ""), {"shell"}),
    (("muster", "worker", "stop", ""), {"worker-abcdefgh"}),
    (("muster", "task", "list", "--plan", ""), {"billing"}),
    (("muster", "task", "transfer", "x", "--to", ""), {"shell"}),
    (("muster", "task", "add", "x", "--after", "billing/d"), {"billing/docs"}),
    (("muster", "completion", ""), {"bash", "zsh", "fish"}),
    (("muster", "run", ""), set()),
]


def completed(shell, script, words, root):
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed, so that its script was not run")
    alone = {"bash": "--norc", "zsh": "-f", "fish": "--no-config"}[shell]
    ask = {"bash": [ASK_BASH, "ask"], "zsh": [ASK_ZSH, "ask"], "fish": [ASK_FISH]}[shell]
    env = {**os.environ, "PYTHON": sys.executable, "MUSTER_ROOT": str(root)}
    argv = [shell, alone, "-c", *ask, str(script), *words]
    done = subprocess.run(argv, capture_output=True, text=True, check=True, env=env, cwd=root)
    assert done.stderr == ""
    return {line.split("\t")[0] for line in done.stdout.split("\n")} - {""}


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
@pytest.mark.parametrize(("words", "expected"), COMPLETED)
def test_the_shell_completes(cli, owner, tmp_path, shell, words, expected):
    script = tmp_path / "script"
    script.write_text(cli("completion", shell).out)
    assert completed(shell, script, words, owner.root) == expected


@pytest.mark.parametrize(("words", "expected"), COMPLETED)
def test_the_words_that_are_completed(cli, owner, words, expected):
    found = cli("completion", "words", "--", *words[1:]).out.splitlines()
    assert {line.split("\t")[0] for line in found} == expected


def test_what_is_completed_says_what_it_is(cli):
    lines = cli("completion", "words", "--", "").out.splitlines()
    assert dict(line.split("\t") for line in lines) == {name: text for name, (_, text) in COMMANDS.items()}
    assert "--fields\tonly these fields" in cli("completion", "words", "--", "status", "--").out


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_scripts_are_whole(cli, tmp_path, shell):
    script = cli("completion", shell).out
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed, so that its script was read, not run")
    (tmp_path / "script").write_text(script)
    subprocess.run([shell, "-n", str(tmp_path / "script")], check=True)


def test_an_unknown_shell(cli):
    ran = cli("completion", "tcsh")
    assert ran.code == 2
    assert "'tcsh' is not one of bash, zsh, fish" in ran.err
    assert "knows no argument 'zsh'" in cli("completion", "bash", "zsh").err


def test_a_raw_request(cli, owner):
    task_id = owner.tasks()["tests"].id
    assert json.loads(cli("api", "get", f"/api/v1/agent-tasks/{task_id}").out)["task"]["key"] == "tests"
    body = '{"actor": "user:ann"}'
    ran = cli("api", "POST", f"/api/v1/agent-tasks/{task_id}/retry", "--data", body)
    assert json.loads(ran.out)["generation"] == 2
    ran = cli("api", "POST", f"/api/v1/agent-tasks/{task_id}/pause", "--data", "-", stdin=body.encode())
    assert json.loads(ran.out)["status"] == "PAUSED"


@pytest.mark.parametrize(
    ("argv", "code", "message"),
    [
        (("api", "GET", "status"), 2, "'status' is no path"),
        (("api", "GET", "/a b"), 2, "is no path"),
        (("api", "FETCH", "/"), 2, "'FETCH' is not one of GET, POST"),
        (("api", "GET", "/", "--data", "{}"), 2, "a GET has no body"),
        (("api", "POST", "/", "--data", "{"), 2, "no JSON"),
        (("api", "GET", "/api/v1/nowhere"), 3, "nowhere"),
        (("api", "POST", "/api/v1/agent-tasks", "--data", "{}"), 2, "title"),
    ],
)
def test_a_raw_request_that_is_wrong(refused, owner, argv, code, message):
    refused(*argv, code=code, message=message)
