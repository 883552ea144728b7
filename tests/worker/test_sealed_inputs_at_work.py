"""What an agent is given as a secret of its task: in one file, for its process alone, and gone with it."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest
from real_crew import crew, start

from factories import plain_job
from muster.agents.inputs import input_text
from muster.hosts.given_file import given_file, handing_over, sweep
from muster.ports.agent import AttemptFolder
from patience import until

VALUE, PASSWORD = "sk-canary-0123456789", "pw-canary-9876543210"
GIVEN: dict[str, Any] = {"apiKey": VALUE, "db": {"host": "x", "password": PASSWORD}, "n": 1}
AGENT = """\
[git]
setup = "cat .muster/attempts/given/* > setup 2>&1; true"
[agents.reader]
command = ["sh", "-c", '''
cp "$MUSTER_INPUT_CONTEXT_FILE" read-by-agent && ls -l "$MUSTER_INPUT_CONTEXT_FILE" > mode
cat "$MUSTER_INPUT_CONTEXT_FILE"; cat "$MUSTER_PROMPT_FILE" > prompt; env > environment
echo "with %s" >&2; cp read-by-agent "$MUSTER_RESULT"
touch at-work; while [ ! -e go ]; do sleep 0.05; done
''']
check = "cat .muster/attempts/given/* > checked 2>&1; true"
"""
TASKS = "/api/v1/agent-tasks"


def add(api: Any) -> str:
    number = api.post(TASKS, {"title": "x", "inputContext": GIVEN, "actor": "ada", "maxRetries": 0})["id"]
    return f"{TASKS}/{number}"


def given_files(root: Path) -> list[Path]:
    return list((root / ".muster" / "attempts" / "given").glob("*"))


def test_it_is_there_for_the_agent_and_for_nothing_before_or_after(tmp_path: Path) -> None:
    (tmp_path / "muster.toml").write_text(AGENT % VALUE)
    with crew(tmp_path, "owner", "worker") as (api, _):
        one = add(api)
        until((tmp_path / "at-work").exists, "its agent is at work")
        (file,) = given_files(tmp_path)
        assert file.stat().st_mode & 0o777 == 0o600 and file.parent.stat().st_mode & 0o777 == 0o700
        assert VALUE not in (tmp_path / "environment").read_text() + (tmp_path / "prompt").read_text()
        assert str(file) in (tmp_path / "prompt").read_text()
        (tmp_path / "go").touch()
        until(lambda: api.get(one)["task"]["status"] in {"COMPLETED", "FAILED"}, "it has ended")
        detail = api.get(one)
        assert detail["task"]["status"] == "COMPLETED", detail["task"]["error"]
        assert json.loads((tmp_path / "read-by-agent").read_text()) == GIVEN
        stars = GIVEN | {"apiKey": "*" * len(VALUE), "db": {"host": "x", "password": "*" * len(PASSWORD)}}
        assert detail["outputResult"] == stars
        assert f"with {'*' * len(VALUE)}" in detail["logTail"]
        assert given_files(tmp_path) == []
        for name in ("setup", "checked"):
            said = (tmp_path / name).read_text() if (tmp_path / name).exists() else ""
            assert VALUE not in said, f"{name} was shown it"
        (tmp_path / "read-by-agent").unlink()
    for path in (tmp_path / ".muster").rglob("*"):
        if path.is_file():
            assert VALUE.encode() not in path.read_bytes(), path


def test_it_is_gone_after_its_worker_was_killed(tmp_path: Path) -> None:
    (tmp_path / "muster.toml").write_text(AGENT % VALUE)
    with crew(tmp_path, "owner", "worker") as (api, processes):
        one = add(api)
        until((tmp_path / "at-work").exists, "its agent is at work")
        (left,) = given_files(tmp_path)
        (tmp_path / "at-work").unlink()
        os.kill(processes[1].pid, signal.SIGKILL)
        processes[1].wait()
        assert VALUE in left.read_text()
        processes.append(start(tmp_path, "worker"))
        until(lambda: not left.exists(), "the next worker has swept up")
        until((tmp_path / "at-work").exists, "the next attempt is at work")
        (again,) = given_files(tmp_path)
        assert json.loads(again.read_text()) == GIVEN and again != left
        (tmp_path / "go").touch()
        until(lambda: api.get(one)["task"]["status"] == "COMPLETED", "it has ended")
        assert given_files(tmp_path) == []
        (tmp_path / "read-by-agent").unlink()
    for path in (tmp_path / ".muster").rglob("*"):
        if path.is_file():
            assert VALUE.encode() not in path.read_bytes(), path


def test_what_somebody_still_holds_is_not_swept_up(tmp_path: Path) -> None:
    sweep(tmp_path)
    mine, dead = given_file(tmp_path, 1, 1), given_file(tmp_path, 2, 1)
    with handing_over(mine, b"{}"):
        dead.write_text("left by the dead")
        sweep(tmp_path)
        assert (mine.read_bytes(), dead.exists()) == (b"{}", False)
        with pytest.raises(BlockingIOError), mine.open() as other:
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
    assert not mine.exists()


def test_what_lies_in_its_place_is_not_followed(tmp_path: Path) -> None:
    file, elsewhere = given_file(tmp_path, 1, 1), tmp_path / "elsewhere"
    file.parent.mkdir()
    elsewhere.write_text("not ours")
    file.symlink_to(elsewhere)
    with contextlib.suppress(RuntimeError), handing_over(file, b"{}"):
        assert not file.is_symlink() and file.read_bytes() == b"{}"
        raise RuntimeError
    assert not file.exists()
    file.symlink_to(elsewhere)
    sweep(tmp_path)
    assert elsewhere.read_text() == "not ours"


def test_no_prompt_has_them(tmp_path: Path) -> None:
    """Also of an agent that may read nothing outside of its folder."""
    shown = {"apiKey": "********#0011aabb"}
    job = plain_job(input_context=shown, input_file=tmp_path / "given" / "1-1.json")
    folder = AttemptFolder(path=tmp_path)
    for reads_all in (True, False):
        text = input_text(job, folder, reads_all=reads_all)
        assert str(job.input_file) in text and "print none of them" in text
    assert "********#0011aabb" in text
