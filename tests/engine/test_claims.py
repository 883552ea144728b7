"""Who gets which task."""

from __future__ import annotations

from typing import Any

import pytest
from engine_rig import W1, W2, Rig, complete, fail, release

from muster.engine.batch import drive
from muster.engine.policy import Policy
from muster.model import commands as c
from muster.model.answers import Claimed
from muster.model.errors import Conflict
from muster.model.states import CrewStatus, ErrorKind
from muster.model.usage import Usage


def keys(claimed: object) -> list[str]:
    assert isinstance(claimed, Claimed)
    return [job.key for job in claimed.jobs]


@pytest.mark.promise("S1")
def test_two_claims_in_one_batch_never_share_a_task(rig: Rig) -> None:
    rig.register(W1)
    rig.register(W2)
    rig.enqueue({key: [] for key in "abcde"})
    first, second = rig.apply(rig.claim_command(W1, 3), rig.claim_command(W2, 3)).outcomes
    assert (keys(first), keys(second)) == (["a", "b", "c"], ["d", "e"])


@pytest.mark.promise("S1")
@pytest.mark.parametrize("same_batch", [True, False])
def test_a_claim_that_is_repeated_gives_the_same_attempts(rig: Rig, same_batch: bool) -> None:
    rig.register()
    rig.enqueue({key: [] for key in "abc"})
    claim = rig.claim_command(slots=2)
    if same_batch:
        first, second = rig.apply(claim, claim).outcomes
    else:
        first, second = rig.do(claim), rig.do(claim)
    assert first == second
    assert keys(first) == ["a", "b"]
    assert [job.epoch for job in first.jobs] == [1, 1]  # type: ignore[union-attr]
    assert [job.key for job in rig.claim()] == ["c"]


def test_an_agent_that_is_heard_less_often_holds_its_attempt_longer() -> None:
    rig = Rig(Policy(lease_s=15, leases={"slow": 180}))
    rig.register(agents=("slow", "fast"), slots=2)
    rig.enqueue({"a": [], "b": []}, specs={"a": {"agent": "slow"}, "b": {"agent": "fast"}})
    assert [rig.attempt(job).lease_ms for job in rig.claim()] == [180_000, 15_000]
    rig.store.close()


def test_a_claim_takes_no_more_than_asked_and_than_there_are_slots(rig: Rig) -> None:
    rig.register(slots=3)
    rig.enqueue({key: [] for key in "abcde"})
    assert [job.key for job in rig.claim(slots=2)] == ["a", "b"]
    assert [job.key for job in rig.claim(slots=2)] == ["c"]
    assert rig.claim(slots=2) == ()


def test_a_task_goes_only_to_the_agent_that_it_names(rig: Rig) -> None:
    specs = {"a": {"agent": "codex"}, "b": {"agent": "claude"}, "c": {}}
    rig.enqueue(dict.fromkeys("abc", ()), specs=specs)
    rig.register(W1, agents=("claude",), general=())
    rig.register(W2, agents=("codex", "gemini"), general=("gemini",))
    assert [(job.key, job.agent) for job in rig.claim(W1)] == [("b", "claude")]
    assert [(job.key, job.agent) for job in rig.claim(W2)] == [("a", "codex"), ("c", "gemini")]


def test_an_agent_that_cannot_run_takes_nothing(rig: Rig) -> None:
    rig.enqueue({"a": [], "b": []}, specs={"a": {"agent": "claude"}, "b": {"agent": "codex"}})
    rig.register(agents=("claude", "codex"), unfit={"claude": "no such file"})
    assert [job.key for job in rig.claim()] == ["b"]


def test_an_agent_found_unfit_gives_the_task_back_and_is_asked_no_more(rig: Rig) -> None:
    rig.register(W1)
    rig.register(W2)
    rig.enqueue({"a": []})
    (job,) = rig.claim(W1)
    rig.do(release(job, unfit_agent="no such file: claude"))
    assert rig.claim(W1) == ()
    (again,) = rig.claim(W2)
    assert (again.key, again.epoch) == ("a", 2)
    assert rig.task("a").retries == 0


def test_the_line_goes_by_priority_then_order_then_age_across_lanes(rig: Rig) -> None:
    specs = {
        "low": {"priority": 1},
        "claude": {"agent": "claude", "priority": 7},
        "first": {"priority": 7, "sort_key": -1},
        "old": {},
        "new": {},
        "top": {"priority": 10, "agent": "claude"},
    }
    rig.enqueue(dict.fromkeys(specs, ()), specs=specs)
    rig.register()
    assert [job.key for job in rig.claim()] == ["top", "first", "claude", "old", "new", "low"]


def test_a_stopped_or_paused_crew_gets_nothing_and_a_stopped_one_is_told_to_drain(rig: Rig) -> None:
    rig.register()
    rig.enqueue({"a": []})
    for status in (CrewStatus.STOPPED, CrewStatus.PAUSED):
        rig.do(c.SetCrew(status=status))
        stopped = status is CrewStatus.STOPPED
    assert rig.do(rig.claim_command()) == Claimed(jobs=(), drain=stopped, stopped=stopped)
    rig.do(c.SetCrew(status=CrewStatus.RUNNING))
    assert [job.key for job in rig.claim()] == ["a"]


def test_nobody_who_is_dead_or_unknown_gets_work(rig: Rig) -> None:
    rig.enqueue({"a": []})
    with pytest.raises(Conflict, match="register"):
        raise_with_hint(rig)
    rig.register()
    rig.do(c.Deregister(worker_id=W1))
    with pytest.raises(Conflict, match="register"):
        raise_with_hint(rig)
    assert rig.task("a").ready


def raise_with_hint(rig: Rig) -> None:
    try:
        rig.claim()
    except Conflict as error:
        raise Conflict(f"{error.message}; {error.hint}") from None


@pytest.mark.promise("S16")
def test_a_job_brings_what_earlier_attempts_have_left(rig: Rig) -> None:
    rig.register()
    rig.enqueue({"a": []})
    (first,) = rig.started()
    assert (first.checkpoint, first.session_key, first.note) == (None, None, "")
    for data in (b"one", b"two"):
        rig.do(c.SaveCheckpoint(task_id=first.task_id, epoch=first.epoch, data=data))
    rig.do(fail(first, ErrorKind.TIMEOUT))
    rig.do(c.Promote(task_id=first.task_id))
    (second,) = rig.claim()
    assert (second.epoch, second.checkpoint) == (2, b"two")
    assert second.timeout_s == 2 * first.timeout_s
    rig.do(c.Cancel(task_id=first.task_id, actor="ada"))
    rig.do(c.Retry(task_id=first.task_id, actor="ada", note="the other way"))
    (third,) = rig.claim()
    assert (third.epoch, third.note, third.timeout_s) == (3, "the other way", first.timeout_s)


def test_a_session_is_resumed_by_the_next_attempt(rig: Rig) -> None:
    rig.register()
    rig.enqueue({"a": []})
    (job,) = rig.claim()
    rig.do(c.Start(task_id=job.task_id, epoch=1, token_hash="a" * 64, session_key="s1"))
    rig.do(release(job))
    assert rig.claim()[0].session_key == "s1"


def test_what_waits_for_time_or_others_is_not_given_out(rig: Rig) -> None:
    rig.register()
    rig.enqueue({"a": [], "b": ["a"]})
    (a,) = rig.started()
    assert rig.claim() == ()
    rig.do(fail(a, ErrorKind.QUOTA, retry_after_s=60))
    assert rig.claim() == ()
    rig.do(c.Promote(task_id=a.task_id))
    (again,) = rig.started()
    rig.do(complete(again))
    assert [job.key for job in rig.claim()] == ["b"]


def test_a_session_is_handed_on_to_its_own_agent_alone_and_forgotten_when_gone(rig: Rig) -> None:
    rig.register(agents=("claude", "codex"))
    rig.enqueue({"a": []})
    (job,) = rig.claim()
    used, total = Usage(input_tokens=5), Usage(input_tokens=50)
    rig.do(c.Start(task_id=job.task_id, epoch=1, token_hash="a" * 64))
    rig.do(c.Account(task_id=job.task_id, epoch=1, session_key="s1", usage=used, session_usage=total))
    rig.do(release(job))
    late = Usage(input_tokens=6)
    rig.do(c.Account(task_id=job.task_id, epoch=1, usage=late, session_usage=total))
    rig.do(c.Transfer(task_id=job.task_id, actor="ada", agent="codex"))
    (other,) = rig.claim()
    assert (other.agent, other.session_key, other.session_usage) == ("codex", None, None)
    rig.do(release(other))
    rig.do(c.Transfer(task_id=job.task_id, actor="ada", agent="claude"))
    (again,) = rig.claim()
    assert (again.agent, again.session_key, again.session_usage) == ("claude", "s1", total)
    rig.do(c.Account(task_id=job.task_id, epoch=again.epoch, session_key=""))
    rig.do(release(again))
    assert not rig.claim()[0].session_key
    first, *_ = drive(rig.reads.attempts(job.task_id))
    assert (first.session_key, first.usage) == ("s1", late)


def test_a_result_that_was_reported_comes_before_the_last_words(rig: Rig) -> None:
    rig.register()
    rig.enqueue({"a": [], "b": []})
    reported, silent = rig.started()
    rig.do(c.Declare(task_id=reported.task_id, epoch=1, text='"on purpose"'))
    for job in (reported, silent):
        rig.do(c.Complete(task_id=job.task_id, epoch=1, result='"bye"', spoken=True))
    assert drive(rig.reads.texts(reported.task_id)).result == '"on purpose"'
    assert drive(rig.reads.texts(silent.task_id)).result == '"bye"'


@pytest.mark.promise("S1")
def test_a_claim_that_comes_late_once_more_gets_nothing_for_nobody(rig: Rig) -> None:
    rig.register()
    rig.enqueue({"a": [], "b": []})
    claim = rig.claim_command(slots=1)
    (job,) = rig.do(claim).jobs
    rig.start(job)
    rig.do(complete(job))
    late: Claimed = rig.do(claim)
    assert (late.jobs, late.over) == ((), True), "its worker is told to ask anew, if it still waits"
    assert [job.key for job in rig.claim()] == ["b"]


def test_a_claim_whose_transaction_was_undone_is_given_work_when_it_is_repeated(rig: Rig) -> None:
    rig.register()
    rig.enqueue({"a": []})
    claim = rig.claim_command(slots=1)
    poisoned = c.AddArtifact(task_id=rig.id("a"), epoch=1, name="x", location="here")
    transact = rig.store.transact

    async def failing(work: Any, ahead: Any = None) -> Any:
        async def undone(tx: Any) -> Any:
            await work(tx)
            raise RuntimeError("undone")

        return await transact(undone, ahead)

    rig.store.transact = failing  # type: ignore[method-assign, assignment]
    with pytest.raises(RuntimeError):
        rig.apply(poisoned, claim)
    rig.store.transact = transact  # type: ignore[method-assign]
    assert keys(rig.do(claim)) == ["a"]
