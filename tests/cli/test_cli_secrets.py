"""`muster secrets`, and what the store keeps of them."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from muster.engine.batch import drive
from muster.model import commands as c
from muster.model.secrets import not_set, secret_purpose
from muster_command import MUSTER, run_muster
from patience import PATIENCE_S
from pseudo_terminal import read_to_end

VALUE = "s3cret-value-0123456789"


def test_a_value_goes_in_and_never_comes_out(cli: Any, empty: Any) -> None:
    assert cli("secrets", "list").out == "0 secrets\n"
    put = cli("secrets", "set", "GITHUB_TOKEN", stdin=f"{VALUE}\n".encode())
    assert (put.code, put.out) == (0, "GITHUB_TOKEN  set\n")
    assert cli("secrets", "set", "GITHUB_TOKEN", stdin=f"{VALUE}-new".encode()).code == 0
    (told,) = json.loads(cli("secrets", "list", "--json").out)
    assert (told["name"], told.keys()) == ("GITHUB_TOKEN", {"name", "setBy", "setAtMs"})
    assert cli("secrets", "rotate").out == "a new key: 1 secrets, 0 webhooks and 0 tasks sealed anew\n"
    (sealed,) = drive(empty.store.reads.sealed_secrets()).values()
    assert empty.served.vault.unseal(sealed, secret_purpose(1, "GITHUB_TOKEN")) == f"{VALUE}-new"
    assert cli("secrets", "delete", "GITHUB_TOKEN").code == 0
    events = json.loads(cli("audit", "list", "--subject", "secret", "--json").out)
    happened = [event["event"] for event in events]
    assert happened == ["secret_set", "secret_changed", "secret_resealed", "secret_deleted"]
    assert {event["subject"] for event in events} == {"secret GITHUB_TOKEN"}
    for path in empty.root.rglob("*"):
        if path.is_file():
            assert VALUE.encode() not in path.read_bytes(), f"{path} has the value in clear"


@pytest.mark.parametrize(
    "given",
    [["TOKEN", "--workspace", "default", VALUE], ["TOKEN", f"-{VALUE}"], ["TOKEN", f"--value={VALUE}"]],
)
def test_nor_is_one_that_stands_where_nothing_is_known(cli: Any, empty: Any, given: list[str]) -> None:
    done = cli("secrets", "set", *given, stdin=b"0123456789")
    assert done.code == 2 and "knows no such" in done.err and VALUE not in done.out + done.err


@pytest.mark.parametrize("given", [[f"TOKEN={VALUE}"], ["TOKEN", VALUE], ["TOKEN=", VALUE]])
def test_a_value_in_the_command_is_refused_and_not_told_again(cli: Any, empty: Any, given: list[str]) -> None:
    done = cli("secrets", "set", *given, stdin=b"0123456789")
    assert done.code == 2 and "muster secrets set TOKEN asks for it" in done.err
    assert VALUE not in done.out + done.err
    assert cli("secrets", "list").out == "0 secrets\n"


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("TOKEN", b"short", "the value has 5 characters"),
        ("TOKEN", b" \t" * 9, "is spaces only"),
        ("TOKEN", b"\xff" * 9, "not UTF-8"),
        ("TOKEN", b"0123456789\0", "NUL"),
        ("TOKEN", b"x" * 40_000, "at most 16000 fit"),
        ("TOKEN", b"x" * 200_000, "more than"),
        ("MUSTER_TOKEN", b"0123456789", "another name, that does not begin with MUSTER_"),
        ("bad name", b"0123456789", "like BAD_NAME"),
        ("1ST", b"0123456789", "like GITHUB_TOKEN"),
        ("\u00e4", b"0123456789", "cannot be the name of a variable"),
        ("A" * 101, b"0123456789", "at most 100"),
    ],
)
def test_what_no_process_could_be_given_is_refused(
    refused: Any, name: str, value: bytes, message: str
) -> None:
    told = refused("secrets", "set", name, stdin=value, code=2, message=message)
    assert value.decode(errors="replace") not in told.err


def test_over_http_a_wrong_name_is_told_in_the_same_words(cli: Any, empty: Any) -> None:
    told = cli(
        *(
            "api",
            "POST",
            "/api/v1/secrets",
            "--data",
            '{"name": "A B", "value": "0123456789", "actor": "ann"}',
        )
    )
    assert told.code == 2 and "cannot be the name of a variable" in told.err, told
    blank = '{"name": "TOKEN", "value": "          ", "actor": "ann"}'
    told = cli("api", "POST", "/api/v1/secrets", "--data", blank)
    assert told.code == 2 and "spaces only" in told.err, told


def test_what_a_task_waits_for_is_the_command_that_the_inbox_names(cli: Any, owner: Any) -> None:
    owner.register("worker-zzzzzzzz", agents=("ghost",), general=())
    (job,) = owner.do(c.Claim(worker_id="worker-zzzzzzzz", request_id="g")).jobs
    lacks = {"unfit_agent": not_set("GHOST_KEY"), "unfit_secret": "GHOST_KEY"}
    owner.do(c.Release(task_id=job.task_id, epoch=job.epoch, reason="it lacks one", **lacks))
    (row,) = [row for row in json.loads(cli("inbox", "--json").out) if row.get("ref") == "billing/other"]
    assert row["next"] == "muster secrets set GHOST_KEY"
    assert "muster secrets set GHOST_KEY" in cli("task", "show", "billing/other").out.partition("Next")[2]


def test_one_that_is_not_there_cannot_be_deleted(refused: Any) -> None:
    refused("secrets", "delete", "NOPE", code=3, message="there is no secret NOPE")


def test_an_agent_sets_none(refused: Any, empty: Any) -> None:
    empty.seed()
    env = empty.inside()
    refused("secrets", "set", "TOKEN", stdin=b"0123456789", env=env, code=4, message="for a person")


def test_on_a_terminal_it_is_asked_for_and_not_shown(tmp_path: Path) -> None:
    (tmp_path / "muster.toml").touch()
    ours, theirs = pty.openpty()
    asked = subprocess.Popen(
        [*MUSTER, "secrets", "set", "TOKEN"],
        cwd=tmp_path,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    )
    os.close(theirs)
    shown = os.read(ours, 100)
    while b"not shown" not in shown:
        shown += os.read(ours, 100)
    os.write(ours, f"{VALUE}\n".encode())
    shown += read_to_end(ours)
    assert asked.wait(PATIENCE_S) == 0
    assert b"TOKEN  set" in shown
    assert VALUE.encode() not in shown


@pytest.mark.promise("S6")
def test_a_rotation_that_is_killed_at_any_step_leaves_all_of_it_readable(tmp_path: Path) -> None:
    (tmp_path / "muster.toml").touch()
    assert run_muster(tmp_path, "workspace", "create", "acme").returncode == 0
    for workspace in ("default", "acme"):
        said = [*MUSTER, "secrets", "set", "TOKEN", "--workspace", workspace]
        assert subprocess.run(said, cwd=tmp_path, input=VALUE, text=True, check=True, stdout=subprocess.PIPE)
        hook = ("webhook", "add", "https://example.org/x", "--workspace", workspace)
        assert run_muster(tmp_path, *hook).returncode == 0
    said = [*MUSTER, "task", "add", "one", "--input-context", "-"]
    context = json.dumps({"apiKey": VALUE})
    assert subprocess.run(said, cwd=tmp_path, input=context, text=True, check=True, stdout=subprocess.PIPE)
    steps = subprocess.run(
        [sys.executable, Path(__file__).with_name("killed_rotation.py"), tmp_path],
        capture_output=True,
        text=True,
        check=True,
    )
    told = "a new key: 2 secrets, 2 webhooks and 1 tasks sealed anew"
    assert steps.stdout.splitlines() == ["key", *["commit"] * 4, "key", told, "done"]
    assert len((tmp_path / ".muster" / "vault.key").read_text().split()) == 1


def test_a_lost_key_is_told_before_anything_is_sealed_anew(cli: Any, empty: Any) -> None:
    assert cli("secrets", "set", "TOKEN", stdin=VALUE.encode()).code == 0
    key_file = empty.root / ".muster" / "vault.key"
    key_file.write_text(f"{'0' * 64}\n")
    told = cli("secrets", "rotate")
    assert told.code != 0
    assert "secret TOKEN" in told.err and "muster secrets set TOKEN" in told.err
    assert key_file.read_text() == f"{'0' * 64}\n"


def test_who_waits_for_secrets_that_nobody_can_open_keeps_the_key_from_changing(cli: Any, empty: Any) -> None:
    empty.seed()
    context = json.dumps({"apiKey": VALUE}).encode()
    for title in ("waits", "is-over"):
        assert cli("task", "add", title, "--key", title, "--input-context", "-", stdin=context).code == 0
    key_file = empty.root / ".muster" / "vault.key"
    key_file.write_text(f"{'0' * 64}\n")
    told = cli("secrets", "rotate")
    assert told.code != 0 and "the input context of task" in told.err and "muster task edit" in told.err
    assert key_file.read_text() == f"{'0' * 64}\n"
    for title in ("waits", "is-over"):
        assert cli("task", "cancel", title).code == 0
    told = cli("secrets", "rotate")
    assert (told.code, told.out.splitlines()[1:]) == (
        0,
        ["2 tasks that have ended hold secrets whose key is lost; they stay as they were"],
    )
