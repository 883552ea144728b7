"""`muster worker` and `muster orchestrator`: what they tell, and what they do to a crew that is up."""

from __future__ import annotations

import json
import time

import pytest
from test_run import folder

from muster.config.project import Project
from muster.hosts.file_lock import holder
from muster.model import commands as c
from muster.model.errors import StoreHalted
from muster_command import run_muster as muster
from patience import until

__all__ = ["folder"]

WORKER, OTHER = "worker-abcdefgh", "worker-zzzzzzzz"


@pytest.fixture
def two(owner):
    """As `owner`, with a second worker that has nothing to do."""
    owner.register(OTHER, hostname="h2", pid=2, unfit={"x": "y"})
    return owner


def test_workers_are_listed_shown_and_summed_up(cli, two):
    rows = {line.split()[0]: line for line in cli("worker", "list").out.splitlines()}
    assert "busy" in rows[WORKER] and "billing/api#1" in rows[WORKER] and "h:1" in rows[WORKER]
    assert "idle" in rows[OTHER]
    assert [row["id"] for row in json.loads(cli("worker", "list", "--json").out)] == [WORKER, OTHER]
    shown = cli("worker", "show", "zz").out
    assert OTHER in shown and "pid 2 on h2" in shown and "x: y" in shown
    assert cli("worker", "status", OTHER).out == cli("worker", "show", OTHER).out
    summary = cli("worker", "status").out
    assert "1 busy" in summary and "1 idle" in summary and "billing/api#1" in summary
    told = json.loads(cli("worker", "status", "--json").out)
    assert (told["workers"], told["counts"]) == (2, {"busy": 1, "idle": 1})


def test_a_program_that_serves_itself_has_no_process(cli, owner):
    put = c.PutAgent(
        agent="dev-1",
        actor="user:ann",
        label="",
        model="",
        capabilities=(),
        profiles=(),
        slots=1,
        heartbeat_s=30,
        stale_s=None,
        coordinator_enabled=True,
        metadata={},
        worker_id="agent-zzzzzzzz",
        token_hash=None,
    )
    owner.do(put)
    (told,) = [
        row for row in json.loads(cli("worker", "list", "--json").out) if row["id"] == "agent-zzzzzzzz"
    ]
    assert told["pid"] is None
    for words in (("status",), ("worker", "list"), ("worker", "show", "agent-zzzzzzzz")):
        said = cli(*words).out
        assert "serves itself" in said and "pid 0" not in said and ":0" not in said, said
    owner.do(c.Deregister(worker_id="agent-zzzzzzzz", reason="asked for by ann"))
    added = cli("task", "add", "for it", "--key", "its", "--agent", "dev-1")
    assert added.code == 0 and "agent dev-1, a program, is offline" in added.err
    assert "agent dev-1, a program, has ended" in cli("why", "its").out


def test_one_is_asked_to_end(cli, two):
    ran = cli("worker", "stop", WORKER, "--graceful")
    assert (ran.code, ran.out) == (0, f"{WORKER}  ends when it has finished billing/api#1\n")
    assert "stopping" in cli("worker", "show", WORKER).out
    assert json.loads(cli("worker", "stop", WORKER, "--now", "--json").out)["holds"] == ["billing/api#1"]
    assert cli("task", "show", "api").out.count("is being stopped") == 1
    two.do(c.Deregister(worker_id=WORKER, reason="drained"))
    assert "dead" in cli("worker", "show", WORKER).out
    assert cli("worker", "stop", WORKER).out == f"{WORKER}  has ended already\n"


@pytest.mark.parametrize(
    ("argv", "code", "message"),
    [
        (("worker",), 2, "VERB"),
        (("worker", "hire"), 2, "'hire' is not one of"),
        (("worker", "show", "nobody"), 3, "there is no worker 'nobody'"),
        (("worker", "show", ""), 3, "a worker has a name"),
        (("worker", "show", "worker-"), 2, "may be any of"),
        (("worker", "status", "nobody"), 3, "there is no worker"),
        (("worker", "stop", "nobody"), 3, "there is no worker"),
        (("worker", "stop"), 2, "NAME"),
        (("worker", "stop", WORKER, "--graceful", "--now"), 2, "exclude each other"),
        (("worker", "start", "-n", "0"), 2, "not a number from 1 to 64"),
        (("worker", "start", "-n", "many"), 2, "not a number from 1 to 64"),
        (("worker", "start"), 7, "no crew is up"),
        (("worker", "list", "x"), 2, "knows no argument 'x'"),
        (("orchestrator",), 2, "VERB"),
        (("orchestrator", "restart"), 2, "did you mean 'start'?"),
        (("orchestrator", "start", "--workers", "99"), 2, "not a number from 1 to 64"),
        (("orchestrator", "stop", "--graceful", "--now"), 2, "exclude each other"),
        (("orchestrator", "status", "--dry-run"), 2, "knows no option '--dry-run'"),
    ],
)
def test_wrong_words_change_nothing(refused, two, argv, code, message):
    refused(*argv, code=code, message=message)


def test_the_last_worker_stays(cli, owner):
    ran = cli("worker", "stop", WORKER)
    assert (ran.code, "muster down stops the crew" in ran.err) == (6, True)


def test_without_a_project_or_a_crew(cli, root):
    assert cli("orchestrator", "status").code == 3
    cli("init")
    ran = cli("orchestrator", "status")
    assert (ran.code, "STOPPED" in ran.out) == (7, True)
    for verb in ("pause", "resume"):
        ran = cli("orchestrator", verb)
        assert (ran.code, "no crew is up; nothing was changed" in ran.err) == (7, True)
    assert cli("worker", "list").out == "no worker is up: muster up\n"
    assert cli("worker", "status").out == "no worker is up: muster up\n"
    assert json.loads(cli("orchestrator", "reconcile", "--json").out) == {
        "deadWorkersFound": 0,
        "expiredClaimsReleased": 0,
        "orphanedTasksRecovered": 0,
        "staleStatesFixed": 0,
    }
    (root / ".muster" / "state.halted").write_text("a failed sync")
    ran = cli("orchestrator", "status", "--json")
    assert (ran.code, json.loads(ran.out)["status"]) == (1, "ERROR")


def test_its_status_ends_by_its_health(cli, two, monkeypatch):
    # No coordinator looks in here, so that one which began long ago would be late.
    monkeypatch.setattr(two.served, "started_at_ms", int(time.time() * 1000))
    assert cli("orchestrator", "status").code == 0
    monkeypatch.setattr(two.served, "halted", lambda: StoreHalted("a sync has failed", "muster doctor"))
    ran = cli("orchestrator", "status")
    assert (ran.code, "a sync has failed" in ran.out) == (1, True)


def test_reconcile_says_what_it_has_mended(cli, root):
    cli("init")
    cli("task", "add", "By hand", "--key", "a")
    cli("claim", "take", "a", "--lease", "1s")
    until(lambda: json.loads(cli("claim", "list", "--json").out)[0]["expired"], "the lease is over")
    assert "1 expired" in cli("orchestrator", "status").out
    assert "1  expired claims released" in cli("orchestrator", "reconcile").out
    assert json.loads(cli("task", "list", "--json").out)[0]["status"] == "PENDING"


def test_a_crew_grows_and_shrinks_while_it_is_up(folder):
    assert muster(folder, "orchestrator", "start", "--daemon", "--workers", "1").returncode == 0

    def workers():
        return json.loads(muster(folder, "worker", "list", "--json").stdout)

    until(lambda: len(workers()) == 1, "the first worker is there")
    (first,) = workers()
    added = json.loads(muster(folder, "worker", "start", "-n", "2", "--json").stdout)["added"]
    assert len(added) == 2 and {row["id"] for row in workers()} == {first["id"], *added}
    status = json.loads(muster(folder, "orchestrator", "status", "--json").stdout)
    assert (status["status"], status["active"], status["workers"]) == ("RUNNING", True, {"idle": 3})
    assert status["lastReconcileAtMs"] is not None
    assert muster(folder, "worker", "stop", first["id"]).returncode == 0
    until(lambda: len(workers()) == 2, "it has ended")
    (folder / "plan.md").write_text("# P\n- [ ] A {#a}\n  sleep 2.5\n")
    assert muster(folder, "run", "plan.md").returncode == 0
    assert {row["id"] for row in workers()} == set(added), "no other one has taken its place"
    assert muster(folder, "orchestrator", "stop", "--graceful").returncode == 0
    assert holder(Project(folder).owner_lock) is None


@pytest.mark.parametrize("words", [("run", "plan.md"), ("up",)])
def test_a_number_of_workers_that_is_none_is_told_in_the_same_words(cli, two, words):
    for wrong in ("abc", "0", "65", "-1"):
        ran = cli(*words, "--workers", wrong)
        assert (ran.code, f"{wrong!r} is not a number from 1 to 64" in ran.err) == (2, True), ran.err
