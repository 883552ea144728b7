"""`muster report`: a task speaks for itself."""

from __future__ import annotations

import io
import json
import os
import shlex
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from muster.engine.batch import drive
from muster.model import commands as c
from patience import PATIENCE_S

MUSTER = [sys.executable, "-m", "muster.cli.main"]
VERBS = (
    ("progress", "40"),
    ("checkpoint", "--text", "x"),
    ("checkpoint", "--show"),
    ("artifact", "n", "l"),
    ("done",),
    ("fail", "m"),
)


@pytest.mark.parametrize(
    ("make", "location"),
    [
        (lambda root: (root / "link").symlink_to("/etc/passwd"), "link"),
        (lambda root: (root / "dir").symlink_to("/etc"), "dir/passwd"),
        (lambda root: (root / "gone").symlink_to("../../nowhere"), "gone"),
        (lambda root: (root / "loop").symlink_to("loop"), "loop"),
    ],
    ids=["file", "folder", "dangling", "loop"],
)
def test_a_link_out_of_the_folder_is_no_artifact(cli, owner, root, make, location):
    make(root)
    before = owner.fingerprint()
    for name in (location, f"./x/../{location}", str(root / location)):
        ran = cli("report", "artifact", "report", name, env=owner.inside())
        assert (ran.code, "nothing was sent" in ran.err) == (2, True), ran.err
    assert owner.fingerprint() == before


def test_a_link_is_no_artifact_however_the_folder_is_written(cli, owner, root, tmp_path):
    (root / "link").symlink_to("/etc/passwd")
    other = tmp_path / "other"
    other.symlink_to(root)
    for folder in (".", f"../{root.name}", f"{root}/", f"{other}/", f"{tmp_path}//other", f"{other}/./"):
        ran = cli("report", "artifact", "report", "link", env={**owner.inside(), "MUSTER_WORKDIR": folder})
        assert (ran.code, "nothing was sent" in ran.err) == (2, True), folder


def test_what_is_in_the_folder_or_openly_elsewhere_is_an_artifact(cli, owner, root):
    (root / "real").write_text("x")
    (root / "near").symlink_to("real")
    for location in ("real", "near", "not/yet/there", "/etc/hostname", "../beside", "https://example.org/x"):
        assert cli("report", "artifact", "report", location, env=owner.inside()).code == 0


def test_progress(cli, owner):
    assert cli("report", "progress", "40", "--step", "half way", env=owner.inside()).code == 0
    api = owner.tasks()["api"]
    assert (api.percent, api.step) == (40, "half way")
    assert cli("report", "progress", "50%", env=owner.inside()).code == 0
    assert cli("report", "progress", "--step", "s" * 600, env=owner.inside()).code == 0
    api = owner.tasks()["api"]
    assert api.percent == 50
    assert len(api.step) == 500


def test_an_estimate(cli, owner):
    before = owner.clock.now().wall_ms
    assert cli("report", "progress", "--left", "20m", env=owner.inside()).code == 0
    (due,) = owner.store._writer.execute("SELECT overdue_at_ms FROM tasks WHERE key = 'api'").fetchone()
    assert 0 <= due - before - 50 * 60_000 < 60_000
    ran = cli("report", "progress", "--left", "soon", env=owner.inside())
    assert ran.code == 2 and "'soon' is not a duration" in ran.err


def test_checkpoints_are_bytes(cli, owner, root):
    inside = owner.inside()
    none = cli("report", "checkpoint", "--show", env=inside)
    assert none.code == 3
    assert "no attempt of this task has saved a checkpoint" in none.err
    (root / "state").write_bytes(b"\x00\xffstate")
    assert cli("report", "checkpoint", "state", env=inside).code == 0
    assert cli("report", "checkpoint", "--show", env=inside).raw == b"\x00\xffstate"
    assert cli("report", "checkpoint", "-", stdin=b'{"n": [1]}\n', env=inside).code == 0
    assert cli("report", "checkpoint", "--show", env=inside).raw == b'{"n": [1]}\n'
    script = r"printf '\376\n--json'"
    assert cli("report", "checkpoint", "--timeout", "9s", "--", "sh", "-c", script, env=inside).code == 0
    assert cli("report", "checkpoint", "--show", env=inside).raw == b"\xfe\n--json"
    assert cli("report", "checkpoint", "--text", "größer", env=inside).code == 0
    assert cli("report", "checkpoint", "--show", env=inside).raw == "größer".encode()


def test_artifact(cli, owner):
    assert cli("report", "artifact", "page", "dist/x.html", env=owner.inside()).code == 0
    found = drive(owner.store.reads.artifacts(owner.tasks()["api"].id))
    assert [(artifact.name, artifact.location) for artifact in found] == [("page", "dist/x.html")]


def test_done_with_a_result_counts_once_the_process_has_ended(cli, owner, root):
    (root / "result.json").write_text('{"rows": 120, "name": "größer"}', "utf-8")
    assert cli("report", "done", "--result", "@result.json", env=owner.inside()).code == 0
    api = owner.tasks()["api"]
    assert api.status == "RUNNING"
    owner.do(c.Complete(task_id=api.id, epoch=1, exit_code=0))
    assert json.loads(drive(owner.store.reads.texts(api.id)).result) == {"rows": 120, "name": "größer"}


def test_fail(cli, owner):
    assert cli("report", "fail", "no such table", "--kind", "invalid", env=owner.inside()).code == 0
    api = owner.tasks()["api"]
    owner.do(c.Complete(task_id=api.id, epoch=1, exit_code=0))
    api = owner.tasks()["api"]
    assert (api.status, api.error_kind, api.error) == ("FAILED", "invalid", "no such table")


@pytest.mark.parametrize("argv", VERBS)
def test_outside_of_a_task(refused, owner, argv):
    missing = "MUSTER_SOCKET, MUSTER_TOKEN, MUSTER_TASK_ID, MUSTER_EPOCH"
    refused("report", *argv, code=2, message=f"this is not inside a task: {missing}")


@pytest.mark.parametrize("argv", VERBS)
def test_a_stale_attempt(refused, owner, argv):
    inside = owner.inside()
    owner.do(c.Cancel(task_id=owner.tasks()["api"].id, actor="me"))
    ran = refused("report", *argv, env=inside, code=6, message="attempt 1 is over")
    assert "another attempt may hold the task" in ran.err


@pytest.mark.parametrize("argv", VERBS)
def test_a_wrong_token(refused, owner, argv):
    guessed = owner.inside(token="guessed")
    refused("report", *argv, env=guessed, code=4, message="this token is not that attempt's")


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        ((), "required: VERB"),
        (("progres",), "did you mean 'progress'?"),
        (("progress",), "there is nothing to report"),
        (("progress", "101"), "'101' is not a number from 0 to 100"),
        (("progress", "-1"), "-1"),
        (("progress", "half"), "'half' is not a number from 0 to 100"),
        (("checkpoint",), "there is nothing to save"),
        (("checkpoint", "a", "--text", "b"), "exclude each other"),
        (("checkpoint", "--show", "a"), "--show saves nothing"),
        (("checkpoint", "a", "--", "true"), "exclude each other"),
        (("checkpoint", "--"), "there is nothing to save"),
        (("checkpoint", "--", "muster-absent"), "cannot run muster-absent: "),
        (
            ("checkpoint", "--", "sh", "-c", "echo half; exit 3"),
            "sh ended with exit code 3; nothing was sent",
        ),
        (("checkpoint", "--", "sh", "-c", "echo half; kill -9 $$"), "sh ended with exit code -9"),
        (("checkpoint", "--", "head", "-c", "1048577", "/dev/zero"), "more than 1048576 bytes"),
        (("checkpoint", "--text", ""), "the checkpoint is empty; nothing was sent, the last one is kept"),
        (("checkpoint", "/dev/null", "--end", ""), "the checkpoint is empty"),
        (("checkpoint", "--", "true"), "the checkpoint is empty"),
        (("checkpoint", "absent"), "cannot read absent: No such file"),
        (("checkpoint", "."), "cannot read .: Is a directory"),
        (("checkpoint", "large"), "more than 1048576 bytes; the last one is kept"),
        (("artifact", "only"), "required: LOCATION"),
        (("artifact", "", "x"), "NAME has 0 characters"),
        (("artifact", "n" * 201, "x"), "NAME has 201 characters"),
        (("done", "--result", "{rows: 1}"), "--result is not JSON: "),
        (("done", "--result", "NaN"), "NaN is not a JSON number"),
        (("done", "--result", "@absent"), "cannot read absent"),
        (("done", "--result", "@broken"), "--result is not JSON in broken"),
        (("done", "--result", "[" * 100_000), "--result is not JSON"),
        (("fail",), "required: MESSAGE"),
        (("fail", "m", "--kind", "crsh"), "did you mean 'crash'?"),
        (("progress", "1", "--timeout", "soon"), "'soon' is not a duration"),
    ],
)
def test_wrong_input(refused, owner, root, argv, message):
    (root / "large").write_bytes(b"x" * ((1 << 20) + 1))
    (root / "broken").write_bytes(b"\xff{")
    refused("report", *argv, env=owner.inside(), code=2, message=message)


def test_a_broken_environment(cli, owner):
    for name, value in (("MUSTER_EPOCH", "one"), ("MUSTER_TASK_ID", "-1"), ("MUSTER_TOKEN", "a\nb: c")):
        ran = cli("report", "progress", "1", env=owner.inside() | {name: value})
        assert ran.code == 2
        assert name in ran.err


def test_a_nul_is_refused_by_the_owner(refused, owner):
    refused("report", "done", "--result", '"\\u0000"', env=owner.inside(), code=2, message="NUL character")


def test_a_report_waits_for_an_owner_that_restarts(cli, owner):
    inside = owner.inside()
    owner.stop()
    threading.Timer(0.5, owner.start).start()
    ran = cli("report", "progress", "60", env=inside)
    assert ran.code == 0, ran.err
    assert "trying for 60 s" in ran.err
    assert owner.tasks()["api"].percent == 60


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a full device")
def test_a_report_waits_though_its_note_cannot_be_written(owner):
    """As on a full disk, which holds the attempt's stderr as well."""
    inside = os.environ | owner.inside()
    owner.stop()
    with Path("/dev/full").open("w") as full:
        report = subprocess.Popen([*MUSTER, "report", "progress", "60"], env=inside, stderr=full)
        threading.Timer(1, owner.start).start()
        assert report.wait(PATIENCE_S) == 0
    assert owner.tasks()["api"].percent == 60


def test_a_report_gives_up_in_the_end(cli, owner):
    inside = owner.inside()
    owner.stop()
    begun_s = time.monotonic()
    ran = cli("report", "progress", "60", "--timeout", "300ms", "--json", env=inside)
    assert ran.code == 7
    assert time.monotonic() - begun_s >= 0.3
    assert '"owner_unavailable"' in ran.err


def test_the_examples_of_the_help_work(owner, root):
    """As an agent would: through a shell, with the console script's arguments."""
    muster = f"{shlex.quote(sys.executable)} -m muster.cli.main"
    script = f"""
set -eu
last=$({muster} report checkpoint --show 2>/dev/null || echo none)
[ "$last" = none ]
echo '{{"last": 4711}}' | {muster} report checkpoint -
[ "$({muster} report checkpoint --show)" = '{{"last": 4711}}' ]
{muster} report progress 40 --step "migrating users"
{muster} report artifact report dist/report.html
{muster} report done --result '{{"rows": 120}}'
"""
    ran = subprocess.run(
        ["sh", "-c", script], cwd=root, env=owner.inside(), capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr
    assert owner.tasks()["api"].step == "migrating users"


@pytest.mark.promise("S16")
@pytest.mark.parametrize(
    "written",
    [b"", b"12", b"half", b'{"rows": 1, "la', b"[1, 2", b'"text', b"true", b"[NaN]", b'{"a": 1}\n{"b": 2}\n'],
)
def test_half_of_a_checkpoint_does_not_take_the_place_of_a_whole_one(root, owner, written):
    """By a real pipe whose writer is killed."""
    env = os.environ | owner.inside()
    report = [*MUSTER, "report", "checkpoint"]
    subprocess.run([*report, "--text", "whole"], cwd=root, env=env, check=True)
    for to in ([*report, "-"], [*report, "/dev/stdin"], [*MUSTER, "report", "done", "--result", "@-"]):
        read_end, write_end = os.pipe()
        writer = subprocess.Popen(
            [sys.executable, "-c", f"import os; os.write(1, {written!r}); os.kill(os.getpid(), 9)"],
            stdout=write_end,
        )
        os.close(write_end)
        done = subprocess.run(to, stdin=read_end, cwd=root, env=env, capture_output=True, check=False)
        os.close(read_end)
        assert (writer.wait(), done.returncode) == (-9, 2), done.stderr
        assert b"muster report checkpoint -- COMMAND" in done.stderr
    shown = subprocess.run([*report, "--show"], cwd=root, env=env, capture_output=True, check=True)
    assert shown.stdout == b"whole"


@pytest.mark.promise("S16")
@pytest.mark.parametrize(
    ("script", "code"),
    [
        ("{ sh torn && echo END; } | $REPORT - --end END", 2),
        ('$REPORT --end END --text "$(sh torn && echo END)"', 2),
        ("$REPORT --end END -- sh -c '{ sh torn && echo END; } | cat'", 2),
        ("printf 'a\nTHE END\n' | $REPORT - --end END", 2),
        ("$REPORT -- bash -o pipefail -c 'sh torn | cat'", 2),
        ("sh torn >part && $REPORT part", 137),
    ],
    ids=["lines of JSON", "text", "pipe in a command", "longer line", "pipefail", "file"],
)
def test_a_torn_writer_is_noticed_in_every_way_that_the_help_names(root, owner, script, code):
    (root / "torn").write_text("echo [1]; kill -9 $$")
    done = _checkpoint(root, owner, f"$REPORT --text whole; {script}")
    assert (done.returncode, "warning: " in done.stderr) == (code, code == 2), done.stderr
    assert _checkpoint(root, owner, "$REPORT --show").stdout == "whole"


@pytest.mark.parametrize(
    "script",
    [
        "$REPORT - --end END <<EOF\nplain\ntext\nEND\nEOF",
        "printf 'plain\ntext\nEND' | $REPORT - --end END",
        "$REPORT --end END --text \"$(printf 'plain\ntext\n' && echo END)\"",
        "$REPORT --end END -- printf 'plain\ntext\nEND\n'",
        "printf 'plain\ntext\n' >kept && $REPORT - <kept",
    ],
    ids=["here-document", "pipe", "text", "command", "file"],
)
def test_plain_text_is_taken_where_its_end_is_proven(root, owner, script):
    done = _checkpoint(root, owner, script)
    assert done.returncode == 0, done.stderr
    assert _checkpoint(root, owner, "$REPORT --show").stdout == "plain\ntext\n"


def test_a_refused_checkpoint_is_a_warning_that_a_strict_shell_can_pass_over(root, owner):
    done = _checkpoint(root, owner, "set -e; $REPORT - <<EOF || true\nplain\nEOF\necho on")
    assert (done.returncode, done.stdout) == (0, "on\n")
    assert done.stderr.startswith("warning: a pipe must bring one whole JSON"), done.stderr
    done = _checkpoint(root, owner, "set -e; $REPORT absent; echo on")
    assert (done.returncode, done.stdout) == (2, "")


def _checkpoint(root, owner, script):
    env = os.environ | owner.inside() | {"REPORT": f"{sys.executable} -m muster.cli.main report checkpoint"}
    return subprocess.run(
        ["sh", "-c", script], cwd=root, env=env, capture_output=True, text=True, check=False
    )


def test_a_file_that_is_written_to_while_it_is_read_is_refused(cli, owner, root, monkeypatch):
    path = root / "state"
    path.write_text("half")

    class Growing(io.FileIO):
        def read(self, size=-1):
            data = super().read(size)
            with path.open("a") as more:
                more.write(" more")
            return data

    monkeypatch.setattr("builtins.open", Growing)
    ran = cli("report", "checkpoint", "state", env=owner.inside())
    assert ran.code == 2 and "was written to while it was read" in ran.err


def test_what_an_agent_does_to_tasks_is_its_own_word(cli, owner, refused, root):
    inside = owner.inside()
    assert (
        cli(
            "task",
            "add",
            "More",
            "--key",
            "more",
            "--plan",
            "tasks",
            "--agent",
            "shell",
            "--prompt",
            "true",
            env=inside,
        ).code
        == 0
    )
    refused("task", "cancel", "more", env=inside, code=4, message="cancel is for a person")
    guessed = inside | {"MUSTER_TOKEN": "guessed"}
    refused("task", "pause", "more", env=guessed, code=4, message="this token is not that of attempt")
    elsewhere = guessed | {"MUSTER_SOCKET": str(root / "of-another-project")}
    assert cli("task", "pause", "more", env=elsewhere).code == 0
    by = {
        event.event: event.actor
        for event in drive(owner.store.reads.last_events(owner.tasks()["more"].id, 9))
    }
    agent = "attempt:billing/api#1"
    assert by["enqueued"] == agent
    assert by["paused"].startswith("user:"), "an agent of another project has no word of its own here"


def test_a_sandbox_that_refuses_sockets_is_told_of_at_once(cli, owner, monkeypatch):
    def refuse(path):
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr("muster.client.http._connect", refuse)
    ran = cli("report", "progress", "40", env=owner.inside())
    assert ran.code == 4
    assert "may not reach Muster (Operation not permitted)" in ran.err
    assert "`muster: progress 40 TEXT`" in ran.err
    assert "trying for" not in ran.err
