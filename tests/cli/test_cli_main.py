"""Options, errors and ends that all commands share."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import types
from pathlib import Path

import pytest

from muster import __version__
from muster.cli import main as main_module
from muster.cli import task
from muster.cli.main import Parser
from muster.model.errors import BadInput, OwnerUnavailable
from patience import PATIENCE_S


def test_help_names_every_command(cli):
    for argv in ((), ("--help",), ("-h",), ("help",)):
        ran = cli(*argv)
        assert ran.code == 0
        assert all(name in ran.out for name in main_module.COMMANDS)


@pytest.mark.parametrize("name", ["init", "status", "watch", "task", "logs", "doctor", "report"])
def test_each_command_explains_itself_and_the_global_options(cli, name):
    for argv in ((name, "--help"), ("help", name)):
        ran = cli(*argv)
        assert ran.code == 0
        assert f"usage: muster {name}" in ran.out
        assert "--root DIR" in ran.out


def test_version(cli):
    assert cli("--version").out == f"muster {__version__}\n"
    assert cli("status", "--version").out == f"muster {__version__}\n"


@pytest.mark.parametrize(
    ("argv", "message", "hint"),
    [
        (("stauts",), "no command 'stauts'; did you mean 'status'?", "muster --help"),
        (("--jsn",), "no option '--jsn'; did you mean '--json'?", "muster --help"),
        (("status", "--jsn"), "knows no option '--jsn'; did you mean '--json'?", "muster status --help"),
        (("status", "now"), "knows no argument 'now'", "muster status --help"),
        (
            ("task", "list", "--staus=x"),
            "no option '--staus=x'; did you mean '--status'?",
            "muster task list --help",
        ),
        (("task", "retry", "x", "--dry-run"), "knows no option '--dry-run'\n", "muster task retry --help"),
        (("task", "list", "--sta", "x"), "did you mean '--status'?", "muster task list --help"),
        (("comp",), "did you mean 'completion'?", "muster --help"),
        (("stop",), "there is no command 'stop'; did you mean 'muster down'?", "muster down --help"),
        (("ps",), "did you mean 'muster status'?", "muster status --help"),
        (("list",), "did you mean 'muster task list'?", "muster task list --help"),
        (("tasks",), "did you mean 'muster task list'?", "muster task list --help"),
        (("retry",), "did you mean 'muster task retry'?", "muster task retry --help"),
        (("version",), "did you mean 'muster --version'?", "muster --version"),
        (("task", "lst"), "is not one of list, show, add, run,", "--help"),
        (("task",), "required: VERB, one of list, show, add", "muster task --help"),
        (("task", "show"), "required: REF", "muster task show --help"),
        (("task", "list", "--limit", "0"), "'0' is not a number from 1", "muster task list --help"),
        (("logs",), "required: REF", "muster logs --help"),
        (("logs", "a", "--stream", "stdin"), "'stdin' is not one of stdout, stderr", "--help"),
        (("status", "--color", "alway"), "--color 'alway' is none of", "--color auto"),
        (("status", "-C"), "-C needs a value", "muster --help"),
        (("status", "-C", "nowhere"), "-C nowhere: there is no such folder", "name the project"),
    ],
)
def test_wrong_usage(refused, owner, argv, message, hint):
    ran = refused(*argv, code=2, message=message)
    assert f"  hint  {hint}" in ran.err or hint in ran.err


def test_global_options_stand_before_or_after_the_command(cli, owner, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    root = str(owner.root)
    for argv in (
        ("--json", "-C", root, "status"),
        ("status", "-C", root, "--json"),
        (f"--root={root}", "status", "--json"),
        ("task", "--json", "list", "--root", root),
    ):
        ran = cli(*argv)
        assert ran.code == 0, ran.err
        json.loads(ran.out)


def test_a_named_folder_wins_over_the_environment(cli, owner, tmp_path):
    ran = cli("status", "--json", "-C", str(owner.root), env={"MUSTER_ROOT": str(tmp_path)})
    assert json.loads(ran.out)["tasks"] == 5


@pytest.mark.parametrize(
    "argv", [("status",), ("task", "list"), ("task", "show", "a"), ("logs", "a"), ("watch",)]
)
def test_outside_of_a_project(cli, root, argv):
    ran = cli(*argv)
    assert ran.code == 3
    assert f"there is no project in {root}" in ran.err
    assert "muster init" in ran.err
    assert list(root.iterdir()) == []


def test_an_error_in_json(cli, owner):
    ran = cli("task", "show", "nope", "--json")
    assert (ran.code, ran.raw) == (3, b"")
    error = json.loads(ran.err)["error"]
    assert error == {
        "code": "not_found",
        "message": "there is no task 'nope'",
        "hint": "muster task list",
    }


@pytest.fixture
def command(monkeypatch):
    """A command `try` that does what the test wants."""

    def install(run):
        made = types.ModuleType("muster.cli.trial")
        made.add = lambda parser: None
        made.run = run
        monkeypatch.setitem(sys.modules, made.__name__, made)
        monkeypatch.setitem(main_module.COMMANDS, "try", (made.__name__, "a trial"))

    return install


def _raise(error):
    def run(args):
        raise error

    return run


def test_a_bug_is_one_line(cli, command):
    command(_raise(ZeroDivisionError("by zero")))
    ran = cli("try")
    assert ran.code == 1
    assert ran.err == "error: ZeroDivisionError: by zero\n  hint  set MUSTER_DEBUG=1 for the traceback\n"
    assert "Traceback" in cli("try", env={"MUSTER_DEBUG": "1"}).err


def test_interrupted(cli, command):
    command(_raise(KeyboardInterrupt()))
    assert cli("try").code == 130


def test_an_error_keeps_its_exit_code(cli, command):
    command(_raise(OwnerUnavailable("away", "muster up")))
    assert cli("try").code == 7


def test_a_command_that_this_build_lacks(cli, monkeypatch):
    monkeypatch.setitem(main_module.COMMANDS, "later", ("muster.cli.later", "not yet"))
    ran = cli("later")
    assert ran.code == 1
    assert "`muster later` is not part of this build" in ran.err


def test_a_reader_that_has_seen_enough_is_no_error(start, owner):
    read, write = os.pipe()
    process = start("task", "list", "--json", stdout=write)
    os.close(read)
    os.close(write)
    _, err = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, err) == (0, b"")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
def test_an_answer_that_cannot_be_written_is_an_error(start, owner):
    with Path("/dev/full").open("wb") as full:
        process = start("task", "list", stdout=full)
        _, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 1
    assert b"Traceback" not in err
    assert b"No space left" in err


def test_a_terminal_without_our_glyphs_gets_ascii(start, owner):
    process = start("task", "list", env={"PYTHONIOENCODING": "ascii"})
    out, err = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, err) == (0, b"")
    assert b"! failed" in out
    assert b"* running" in out


def test_no_colour_where_it_is_not_wanted(cli, owner):
    assert "\x1b[" not in cli("status").out
    assert "\x1b[" in cli("status", "--color", "always").out
    assert "\x1b[" in cli("status", "--color=always", env={"NO_COLOR": "1"}).out


def test_ctrl_c_ends_as_a_shell_expects(start, owner):
    process = start("watch")
    assert process.stdout.readline()
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == -signal.SIGINT
    assert b"Traceback" not in err


def test_ctrl_c_ends_the_loop_of_a_shell_as_well(owner, root):
    watch = f"{sys.executable} -m muster.cli.main watch --lines"
    loop = f"for i in 1 2; do {watch}; echo rc=$?; done; echo END"
    with subprocess.Popen(
        ["bash", "-c", loop], cwd=root, stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as shell:
        assert shell.stdout.readline()
        os.killpg(shell.pid, signal.SIGINT)
        said, _ = shell.communicate(timeout=PATIENCE_S)
    assert "END" not in said and "rc=" not in said
    assert shell.returncode == -signal.SIGINT


def test_the_hot_path_imports_nothing_slow(owner, root):
    (root / "muster.toml").write_text('[agents.claude]\nkind = "claude-code"\npermission_mode = "plan"\n')
    code = """
import sys
before = set(sys.modules)
from muster.cli.main import main
codes = [main(argv) for argv in (["--help"], ["status", "--json"], ["task", "list"], ["task", "show", "api"])]
loaded = {name.split(".")[0] for name in set(sys.modules) - before}
slow = {"asyncio", "ssl", "http", "msgspec", "apsw", "httptools", "dataclasses", "inspect", "difflib"}
# Each of these takes 3 to 7 of the 60 ms.
slow |= {"typing", "pathlib", "urllib", "socket", "shutil", "subprocess"}
assert codes == [0, 0, 0, 0] and not slow & loaded, (codes, slow & loaded)
kinds = {"muster.agents", "muster.config.load", "muster.app.settings"} & set(sys.modules)
assert not kinds, kinds
from muster.app.settings import load_config
from pathlib import Path
assert load_config(Path()).agents["claude"].provider == "anthropic"
assert "muster.agents.claude_code" in sys.modules
# Finding that one takes 1 ms: importlib.metadata would take 25.
assert not {"muster.agents.codex", "importlib.metadata"} & set(sys.modules)
"""
    ran = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr


def test_a_command_that_is_its_own_owner_loads_no_web_server(cli, root):
    cli("init")
    code = """
import sys
from muster.cli.main import main
assert main(["status", "--json"]) == 0 and "apsw" in sys.modules
assert "httptools" not in sys.modules
"""
    ran = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr


@pytest.mark.parametrize("argv", [("status",), ("task", "list"), ("up",), ("run", "plan.md")])
def test_a_project_of_another_user_is_refused_with_the_way_out(cli, root, monkeypatch, argv):
    cli("init")
    before = sorted(root.rglob("*"))
    monkeypatch.setattr("os.geteuid", lambda: 4_000_000)
    ran = cli(*argv)
    assert ran.code == 4
    assert f"{root / '.muster'} belongs to " in ran.err and "sudo -u " in ran.err
    assert sorted(root.rglob("*")) == before


def test_after_a_crash_nothing_is_said_to_run_without_a_word_of_doubt(cli, owner):
    assert "last heard of" not in cli("status").out + cli("task", "show", "api").err
    owner.close()
    assert "shown as it was last heard of" in cli("status").out
    for words in (("task", "list"), ("task", "show", "api"), ("why", "api")):
        ran = cli(*words)
        assert (ran.code, "last heard of" in ran.err) == (0, True), ran.err
    assert cli("task", "show", "model").err == ""


@pytest.mark.parametrize(
    "words", [("task", "show"), ("task", "list", "--plan"), ("plan", "show"), ("plan", "cancel")]
)
def test_a_name_that_is_not_utf8_is_nothings(refused, owner, words):
    refused(*words, os.fsdecode(b"t\xff"), code=2, message="is not UTF-8")


@pytest.mark.parametrize("words", [("man",), ("task", "list")])
def test_a_closed_or_full_stdout_is_no_bug_of_muster(owner, root, words):
    command = " ".join((sys.executable, "-m", "muster.cli.main", *words))

    def into(where):
        return subprocess.run(
            f"{command} {where}", shell=True, cwd=root, capture_output=True, text=True, check=False
        )

    closed = into(">&-")
    assert (closed.returncode, closed.stderr) == (0, "")
    if Path("/dev/full").exists():
        full = into(">/dev/full")
        assert full.returncode == 1
        assert full.stderr.startswith(
            "error: the answer could not be written: No space left on device\n  hint"
        )


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
@pytest.mark.parametrize(("words", "code"), [(("nonsense",), 2), (("task", "show", "nope", "--json"), 3)])
def test_where_nobody_can_be_told_the_exit_code_still_says_it(start, owner, words, code):
    with Path("/dev/full").open("wb") as full:
        assert start(*words, stdout=full, stderr=full).wait(PATIENCE_S) == code
    read, write = os.pipe()
    os.close(read)
    process = start(*words, stderr=write)
    os.close(write)
    assert process.wait(PATIENCE_S) == code


def test_only_the_verb_that_was_asked_for_is_described(monkeypatch):
    """The whole of `muster task` costs each call 8 ms; what is known of all verbs are their names."""
    described: list[str] = []
    made = Parser.__init__
    monkeypatch.setattr(Parser, "__init__", lambda self, **o: described.append(o["prog"]) or made(self, **o))
    for asked, given in (("list", ["--limit", "3"]), ("retry", ["--note", "more", "a/b"])):
        parser = Parser(prog="muster task", asked=asked)
        task.add(parser)
        assert described == ["muster task", f"muster task {asked}"]
        assert parser.parse_args([asked, *given]).verb == asked
        described.clear()
    parser = Parser(prog="muster task", asked="lst")
    task.add(parser)
    assert described == ["muster task"]
    with pytest.raises(BadInput, match=r"'lst' is not one of list, show, add.*edit, .*wait"):
        parser.parse_args(["lst"])
