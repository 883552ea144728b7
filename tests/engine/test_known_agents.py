"""Which agents a task may name: one rule, whoever asks."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from engine_rig import HOST, LEASE_S, W1, W2, Rig
from plan_world import PLAN, World

from muster.engine.batch import drive
from muster.engine.policy import Policy
from muster.model import commands as c
from muster.model.errors import BadPlan


@pytest.fixture
def rig() -> Rig:
    return Rig(Policy(lease_s=LEASE_S, hostname=HOST, pools={"ours": "ours"}))


def known(rig: Rig, plan: str | None = None, source: str | None = None) -> set[str]:
    return {*drive(rig.queries.known_agents(plan, source))}


def register_far(rig: Rig, worker: str = W2, agent: str = "far") -> None:
    rig.register(worker, hostname="host-b", agents=(agent,), general=())


def go(rig: Rig, worker: str) -> None:
    rig.do(c.Deregister(worker_id=worker, reason="drained"))


def test_what_a_worker_of_another_host_has_offered_stays_known_while_it_is_away(rig: Rig) -> None:
    assert known(rig) == {"ours"}
    register_far(rig)
    rig.register(W1, agents=("claude",))
    assert known(rig) == {"ours", "far", "claude"}
    go(rig, W2)
    assert known(rig) == {"ours", "far", "claude"}


def test_what_the_own_workers_offered_is_known_by_the_settings_of_now(rig: Rig) -> None:
    rig.register(W1, agents=("claude",))
    go(rig, W1)
    assert known(rig) == {"ours"}


def test_whom_tasks_of_a_plan_name_its_file_may_go_on_naming(rig: Rig) -> None:
    rig.enqueue({"a": ()}, plan="p", source="p.md", specs={"a": {"agent": "former"}})
    assert known(rig) == known(rig, "q", "q.md") == known(rig, "p", "q.md") == {"ours"}
    assert known(rig, "p") == known(rig, "other", "p.md") == {"ours", "former"}


def test_why_says_on_which_host_the_agent_was(rig: Rig) -> None:
    rig.enqueue({"a": ()}, specs={"a": {"agent": "far"}})
    register_far(rig)
    go(rig, W2)
    where = (
        "no worker that is up offers agent far; the last one was on host-b (heard at 09:00): start one there "
        "again, `muster worker start --server URL`"
    )
    assert rig.views()["a"].why == where, "also where no worker is up at all"
    rig.register(W1)
    assert rig.views()["a"].why == where
    register_far(rig, "worker-cccccccc")
    assert rig.views()["a"].why == "ready, a worker takes it now"


def test_a_file_that_is_watched_may_name_an_agent_of_another_host(rig: Rig, tmp_path: Path) -> None:
    register_far(rig)
    world = World(rig, tmp_path)
    assert "far" in world.known
    go(rig, W2)
    world.write(text=f"{PLAN}- [ ] D {{#d}}\n")
    world.pass_s(3)
    assert "far" in world.known


def test_what_is_wrong_with_a_file_is_told_in_one_line(
    rig: Rig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(rig, tmp_path)

    def refuse(*_: object) -> None:
        raise BadPlan("plan.md:3: one\nplan.md:4: two\nnothing was added")

    monkeypatch.setattr(world.syncer, "_wanted", refuse)
    told = asyncio.run(world.syncer.sync("p"))
    assert told.problem == "plan.md:3: one; plan.md:4: two; nothing was added"
