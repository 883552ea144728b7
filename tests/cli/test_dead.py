"""`muster dead list | retry | discard` over a filter."""

from __future__ import annotations

import json
import os
import pty
import subprocess

import pytest

from muster.model import commands as c
from muster.model.states import ErrorKind
from patience import PATIENCE_S
from pseudo_terminal import read_to_end

WORKER = "worker-abcdefgh"


@pytest.fixture
def failed(owner):
    """Beside `billing/tests` (crash): `web/a` and `web/b` (invalid), `web/c` (out of memory)."""
    tasks = (
        c.Spec(title="A", key="a", epic="Front", feature="Login", tags=("ui", "p0"), max_retries=0),
        c.Spec(title="B", key="b", epic="Front", feature="Cart", tags=("ui",), max_retries=0),
        c.Spec(title="C", key="c", epic="Back", agent="shell", max_retries=0),
    )
    owner.do(c.Enqueue(plan="web", source=None, tasks=tasks, actor="user:ann"))
    jobs = owner.claim("web")
    ends = {
        "a": (ErrorKind.INVALID, "no model gpt-9"),
        "b": (ErrorKind.INVALID, "No MODEL gpt-8"),
        "c": (ErrorKind.OUT_OF_MEMORY, "used 9 GB"),
    }
    for key, (kind, message) in ends.items():
        owner.begin(jobs[key])
        owner.do(c.Fail(task_id=jobs[key].task_id, epoch=1, kind=kind, message=message))
    return owner


FILTERS = [
    ("--plan web", "a b c"),
    ("--epic front", "a b"),
    ("--feature Cart", "b"),
    ("--tag ui", "a b"),
    ("--tag ui --tag p0", "a"),
    ("--agent shell", "a b c tests"),
    ("--kind invalid", "a b"),
    ("--reason model", "a b"),
    ("--since 1h", "a b c tests"),
    ("--epic Front --reason gpt-8", "b"),
    ("web/a web/c", "a c"),
    ("web/a web/c --kind invalid", "a"),
]
NOTHING_FITS = [
    ("--epic Frnt", "of 4 failed tasks none fits --epic Frnt (there is Back, Front)"),
    ("--kind lost", "none fits --kind lost (there is crash, invalid, out_of_memory)"),
    ("--plan web --agent codex", "of 3 failed tasks none fits --agent codex (there is shell)"),
    ("--older 1h", "none fits --older 3600 s"),
    ("--reason nowhere", "none fits --reason nowhere"),
]


def _keys(owner, status="FAILED"):
    return {key for key, task in owner.tasks().items() if task.status == status}


@pytest.mark.parametrize(("words", "keys"), FILTERS)
def test_a_filter_lists_and_retries_the_same_tasks(cli, failed, words, keys):
    before, wanted = failed.fingerprint(), set(keys.split())
    ran = cli("dead", "list", *words.split(), "--fields", "key")
    assert set(ran.out.split()) == wanted
    ran = cli("dead", "retry", *words.split(), "--dry-run")
    assert ran.code == 0 and f"{len(wanted)} failed task" in ran.out and "nothing was changed" in ran.out
    assert {
        row["key"] for row in json.loads(cli("dead", "discard", *words.split(), "--dry-run", "--json").out)
    } == wanted
    assert failed.fingerprint() == before
    ran = cli("dead", "retry", *words.split())
    assert ran.code == 0
    assert ran.out.count("starts anew") == len(wanted)
    assert {"a", "b", "c", "tests"} - _keys(failed) == wanted


@pytest.mark.parametrize("verb", ["retry", "discard"])
@pytest.mark.parametrize(("words", "message"), NOTHING_FITS)
def test_nothing_fits(cli, failed, verb, words, message):
    before = failed.fingerprint()
    ran = cli("dead", verb, *words.split())
    assert ran.code == 0
    assert f"{message}; nothing was changed" in ran.out
    assert message in cli("dead", "list", *words.split()).out
    assert json.loads(cli("dead", verb, *words.split(), "--json").out) == []
    assert failed.fingerprint() == before


@pytest.mark.parametrize("verb", ["retry", "discard"])
@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        ((), 2, "say which"),
        (("--all", "--kind", "lost"), 2, "say which"),
        (("--kind", "crsh"), 2, "'crsh' is not one of lost, crash"),
        (("--epic", ""), 2, "argument --epic: it is empty"),
        (("--reason", " "), 2, "argument --reason: it is empty"),
        (("--since", "yesterday"), 2, "yesterday"),
        (("--plan", "wbe"), 3, "there is no plan 'wbe'"),
        (("web/a", "web/nowhere"), 3, "web/nowhere"),
        (("--dry-run", "api"), 6, "billing/api: it is RUNNING, not FAILED"),
        (("--epik", "Front"), 2, "did you mean '--epic'?"),
    ],
)
def test_a_wrong_filter_changes_nothing(refused, failed, verb, words, code, message):
    refused("dead", verb, *words, code=code, message=message)


def test_when_nothing_has_failed(cli, empty):
    assert cli("dead", "retry", "--all", "--dry-run").out == "no task has failed; nothing was changed\n"
    ran = cli("dead", "discard", "--all")
    assert (ran.code, ran.out) == (0, "no task has failed; nothing was changed\n")


@pytest.mark.parametrize(
    ("answer", "more", "gone"), [("n", (), ""), ("", (), ""), ("y", (), "a b"), ("", ("--yes",), "a b")]
)
def test_on_a_terminal_it_asks_first(failed, start, answer, more, gone):
    ours, theirs = pty.openpty()
    words = ("dead", "discard", "--epic", "Front", *more)
    process = start(*words, stdin=theirs, stdout=subprocess.PIPE, stderr=theirs, env={"NO_COLOR": "1"})
    os.close(theirs)
    os.write(ours, answer.encode() + b"\n")
    out, _ = process.communicate(timeout=PATIENCE_S)
    shown = read_to_end(ours).decode()
    assert process.returncode == (0 if gone else 1)
    assert _keys(failed, "ARCHIVED") == set(gone.split())
    assert out.decode().count("discarded") == len(gone.split())
    if not more:
        assert "web/a" in shown and "web/b" in shown and "web/c" not in shown
        assert "discard 2 failed tasks for good? [y/N]" in shown
