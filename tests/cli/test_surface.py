"""What is made from the parsers: completion, the manual page, the reference; and the raw request."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from muster.cli.main import COMMANDS
from muster.cli.man import markdown
from muster.cli.surface import surface

ROOT = Path(__file__).parents[2]
ASK_BASH = """
source "$1"; shift
muster() {
    case "$2" in
        refs) printf 'billing/api\\nbilling/docs\\n' ;;
        *) printf "a-name-of-$2\\n" ;;
    esac
}
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
compadd() { shift; print -l -- $@ }
_files() { : }
source "$1"; shift
muster() {
    case "$2" in
        refs) print -l billing/api billing/docs ;;
        *) print "a-name-of-$2" ;;
    esac
}
words=("$@"); CURRENT=$#; PREFIX=$words[-1]
_muster
"""
"""What zsh itself does afterwards: to leave out what begins otherwise."""
ASK_FISH = """
function muster
    switch $argv[2]
        case refs
            printf 'billing/api\\nbilling/docs\\n'
        case '*'
            echo a-name-of-$argv[2]
    end
end
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
    (("muster", "plan", "pause", "a-"), {"a-name-of-plans"}),
    (("muster", "agent", "show", "a-"), {"a-name-of-agents"}),
    (("muster", "worker", "stop", "a-"), {"a-name-of-workers"}),
    (("muster", "task", "list", "--plan", ""), {"a-name-of-plans"}),
    (("muster", "task", "transfer", "x", "--to", ""), {"a-name-of-agents"}),
    (("muster", "task", "add", "x", "--after", ""), {"billing/api", "billing/docs"}),
]


def completed(shell, script, words):
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed, so that its script was not run")
    alone = {"bash": "--norc", "zsh": "-f", "fish": "--no-config"}[shell]
    ask = {"bash": [ASK_BASH, "ask"], "zsh": [ASK_ZSH, "ask"], "fish": [ASK_FISH]}[shell]
    done = subprocess.run(
        [shell, alone, "-c", *ask, str(script), *words], capture_output=True, text=True, check=True
    )
    assert done.stderr == ""
    found = {line.split("\t")[0] for line in done.stdout.split("\n")} - {"", "auto"}
    return {word for word in found if word.startswith(words[-1])}


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
@pytest.mark.parametrize(("words", "expected"), COMPLETED)
def test_the_shell_completes(cli, tmp_path, shell, words, expected):
    script = tmp_path / "script"
    script.write_text(cli("completion", shell).out)
    assert completed(shell, script, words) == expected


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_scripts_are_whole(cli, tmp_path, shell):
    script = cli("completion", shell).out
    for name in COMMANDS:
        assert name in script
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed, so that its script was read, not run")
    (tmp_path / "script").write_text(script)
    subprocess.run([shell, "-n", str(tmp_path / "script")], check=True)


def test_references_to_complete(cli, owner):
    assert cli("completion", "refs").out.split() == [f"billing/{key}" for key in owner.tasks()]
    assert cli("completion", "plans").out.split() == ["billing"]
    assert cli("completion", "agents").out.split() == ["shell"]
    assert cli("completion", "workers").out.split() == ["worker-abcdefgh"]


def test_an_unknown_shell(cli):
    ran = cli("completion", "tcsh")
    assert ran.code == 2
    assert "'tcsh' is not one of bash, zsh, fish" in ran.err


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
