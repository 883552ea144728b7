"""An agent is idle, busy, draining, offline or in error, and goes from one to another along AGENT_MOVES alone."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import pytest
from engine_rig import TICK_S, W1, W2, Rig
from hypothesis import given, settings
from hypothesis import strategies as st

from muster.engine.batch import drive
from muster.engine.registered import registered_agents
from muster.model import commands as c
from muster.model.agents import Condition
from muster.model.errors import IllegalMove, MusterError, NotFound
from muster.model.states import AGENT_MOVES, AgentStatus

SELF = "agent-00000001"
S = AgentStatus


def put(rig: Rig, name: str = "prog", worker_id: str = SELF, **fields: object) -> None:
    rig.do(c.PutAgent(agent=name, actor="ada", worker_id=worker_id, **fields))  # type: ignore[arg-type]


def move(rig: Rig, name: str, to: AgentStatus) -> AgentStatus:
    found: AgentStatus = rig.do(c.MoveAgent(agent=name, actor="ada", to=to)).status
    return found


def statuses(rig: Rig) -> dict[str, AgentStatus]:
    return {one.id: one.status for one in drive(registered_agents(rig.reads, rig.queries))}


def test_draining_ends_with_the_last_task(rig: Rig) -> None:
    rig.enqueue({"a": [], "b": []})
    put(rig)
    (job,) = rig.claim(SELF, 1, start=True)
    assert move(rig, "prog", S.DRAINING) is S.DRAINING
    assert rig.claim(SELF, 1) == ()
    heard = rig.do(c.BeatAgent(agent="prog", task_id=job.task_id))
    assert (heard.status, heard.drain, heard.tasks[0].current) == (S.DRAINING, True, True)
    rig.do(c.Complete(task_id=job.task_id, epoch=job.epoch))
    assert rig.do(c.BeatAgent(agent="prog")).status is S.OFFLINE
    with pytest.raises(IllegalMove, match="offline"):
        move(rig, "prog", S.DRAINING)
    put(rig, worker_id="agent-00000002")
    assert statuses(rig) == {"prog": S.IDLE}
    assert len(rig.claim("agent-00000002", 1)) == 1
    assert rig.do(c.BeatAgent(agent="prog")).status is S.BUSY


def test_an_agent_of_the_crew_drains_on_every_worker(rig: Rig) -> None:
    rig.register(W1)
    rig.enqueue({"a": []})
    move(rig, "claude", S.DRAINING)
    rig.register(W2)
    assert rig.claim(W1) + rig.claim(W2) == ()
    assert "it drains: asked for by ada" in rig.views()["a"].why
    for to in (S.OFFLINE, S.ERROR):
        with pytest.raises(IllegalMove, match="run by workers"):
            move(rig, "claude", to)
    assert move(rig, "claude", S.IDLE) is S.IDLE
    assert len(rig.claim(W2)) == 1
    with pytest.raises(IllegalMove, match="not removed"):
        rig.do(c.RemoveAgent(agent="claude", actor="ada"))
    rig.do(c.Deregister(worker_id=W1))
    rig.do(c.Deregister(worker_id=W2))
    assert statuses(rig) == {"claude": S.OFFLINE}
    rig.do(c.RemoveAgent(agent="claude", actor="ada"))
    with pytest.raises(NotFound):
        rig.do(c.BeatAgent(agent="claude"))


def test_one_that_is_aimed_at_alone_takes_what_names_it(rig: Rig) -> None:
    put(rig, capabilities=("rust",), coordinator_enabled=False)
    rig.enqueue({"a": [], "b": [], "c": []}, specs={"b": {"capabilities": ("rust",)}, "c": {"agent": "prog"}})
    assert [job.key for job in rig.claim(SELF)] == ["c"]
    assert "no agent" in rig.views()["b"].why
    put(rig, capabilities=("rust",), slots=3)
    assert sorted(job.key for job in rig.claim(SELF)) == ["a", "b"]


def test_it_says_that_it_can_do_nothing(rig: Rig) -> None:
    put(rig)
    rig.enqueue({"a": []})
    heard = rig.do(c.BeatAgent(agent="prog", health=Condition.ERROR, step="no disk"))
    assert (heard.status, rig.claim(SELF)) == (S.ERROR, ())
    assert rig.do(c.BeatAgent(agent="prog", health=Condition.HEALTHY)).status is S.IDLE
    assert len(rig.claim(SELF)) == 1
    rig.register(W1, unfit={"claude": "missing"})
    with pytest.raises(IllegalMove, match="error"):
        move(rig, "claude", S.DRAINING)


CALLS: dict[str, Callable[[Rig], object]] = {
    "add": lambda rig: rig.enqueue({f"t{rig.requests}": []}),
    "put": lambda rig: put(rig, worker_id=f"agent-{rig.requests:08}"),
    "register": lambda rig: rig.register(f"worker-{rig.requests:08}", agents=("claude", "prog")),
    "worker": lambda rig: rig.register(W1),
    "unfit": lambda rig: rig.register(W2, unfit={"claude": "missing"}),
    "claim": lambda rig: [rig.claim(one.id, 1, start=True) for one in drive(rig.reads.living_workers())],
    "complete": lambda rig: [
        rig.do(c.Complete(task_id=one.task_id, epoch=one.epoch))
        for one in drive(rig.reads.open_attempts((0, 0), 1))
    ],
    "beat": lambda rig: rig.do(c.BeatAgent(agent="prog", health=Condition.HEALTHY)),
    "fail": lambda rig: rig.do(c.BeatAgent(agent="prog", health=Condition.ERROR)),
    "end": lambda rig: rig.do(c.Deregister(worker_id=drive(rig.reads.living_workers())[0].id)),
    **{
        f"{name} {to}": lambda rig, name=name, to=to: move(rig, name, to)  # type: ignore[misc]
        for name in ("prog", "claude")
        for to in S
    },
}


@settings(max_examples=60, deadline=None)
@given(story=st.lists(st.sampled_from([*CALLS]), min_size=5, max_size=25))
def test_every_move_is_in_the_table(story: list[str]) -> None:
    rig = Rig()
    try:
        before = statuses(rig)
        for name in story:
            rig.requests += 1
            rig.clock.advance(TICK_S)
            with suppress(MusterError, IndexError):
                CALLS[name](rig)
            after = statuses(rig)
            for agent in before.keys() & after.keys():
                came, went = before[agent], after[agent]
                assert went is came or went in AGENT_MOVES[came], (name, agent, came, went)
            before = after
    finally:
        rig.store.close()
