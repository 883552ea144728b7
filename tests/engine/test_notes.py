"""Events that are about no task: workers, their agents, providers' pools, the crew and who coordinates it."""

from __future__ import annotations

from typing import Any

from engine_rig import W1, W2, Rig

from muster.engine.batch import drive
from muster.model import commands as c
from muster.model.states import CrewStatus, ErrorKind


def about(rig: Rig, *subjects: str) -> list[tuple[str, str, str, str]]:
    wanted: dict[str, Any] = {"task_id": None, "levels": (), "since_ms": 0, "limit": 100}
    found = drive(rig.reads.audit_events(**wanted, subjects=subjects))
    return [(one.subject, one.event, str(one.level), one.actor) for one in found]


def test_a_worker_has_a_history(rig: Rig) -> None:
    rig.register(unfit={"claude": "claude was not found on PATH"})
    rig.register(unfit={"claude": "claude was not found on PATH"})  # its answer was lost
    rig.register(W2)
    rig.do(c.DrainWorker(worker_id=W1, actor="ada"))
    rig.do(c.Deregister(worker_id=W1, reason="drained"))
    term = rig.new_boot().term
    rig.do(c.MarkWorkerDead(worker_id=W2, reason="its process is gone", permanent=True, term=term))
    assert about(rig, f"worker {W1}") == [
        (f"worker {W1}", "worker_registered", "INFO", W1),
        (f"worker {W1}", "worker_draining", "INFO", "ada"),
        (f"worker {W1}", "worker_ended", "INFO", W1),
    ]
    assert [one[1:3] for one in about(rig, "worker")][-1] == ("worker_dead", "WARN")
    assert about(rig, "agent") == [("agent claude", "agent_unfit", "WARN", W1)]
    assert about(rig, "coordinator") == [("coordinator", "leader_changed", "INFO", "coordinator")]
    assert about(rig, "work") == [], "a kind is a whole word"


def test_the_crew_and_a_pool_have_one_too(rig: Rig) -> None:
    rig.do(c.SetCrew(status=CrewStatus.PAUSED, actor="ada"))
    rig.do(c.SetCrew(status=CrewStatus.PAUSED, actor="bob"))
    rig.do(c.SetCrew(status=CrewStatus.RUNNING, actor="ada"))
    rig.do(c.AddWorkers(count=2, request_id="r", actor="ada"))
    rig.do(c.AddWorkers(count=2, request_id="r", actor="ada"))
    assert [one[1:] for one in about(rig, "crew")] == [
        ("crew_paused", "INFO", "ada"),
        ("crew_running", "INFO", "ada"),
        ("workers_ordered", "INFO", "ada"),
    ]
    rig.register()
    rig.enqueue({"a": ()})
    (job,) = rig.started()
    ids = {"task_id": job.task_id, "epoch": job.epoch}
    rig.do(c.Fail(**ids, kind=ErrorKind.QUOTA, message="spent", stack_trace="Traceback: at line 3"))
    rig.do(c.OpenPool(pool="claude", actor="ada"))
    assert about(rig, "pool") == [
        ("pool claude", "pool_closed", "WARN", "coordinator"),
        ("pool claude", "pool_opened", "INFO", "ada"),
    ]


def test_an_event_tells_its_session_and_where_a_function_has_failed(rig: Rig) -> None:
    rig.register()
    rig.enqueue({"a": ()})
    (job,) = rig.started()
    ids = {"task_id": job.task_id, "epoch": job.epoch}
    rig.do(c.Account(**ids, session_key="conv-1"))
    rig.do(c.Fail(**ids, kind=ErrorKind.CRASH, message="ValueError", stack_trace="at line 3"))
    failed = next(event for event in rig.events("a") if event.event == "failed")
    assert (failed.session_key, failed.details["stackTrace"]) == ("conv-1", "at line 3")
    assert rig.events("a")[0].session_key is None
