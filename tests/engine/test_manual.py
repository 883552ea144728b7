"""Tasks taken by hand: who may have one, for how long, and what becomes of it."""

from __future__ import annotations

from typing import Any

import pytest
from engine_rig import LEASE_S, W1, Rig
from test_reaper import Post

from muster.engine.batch import drive
from muster.engine.policy import Policy
from muster.model import commands as c
from muster.model.answers import Held, Moved, Taken
from muster.model.errors import BadInput, Conflict, IllegalMove, NotFound, StaleEpoch
from muster.model.states import ErrorKind, StopAction

ANN, BOB = "user:ann", "user:bob"
TOKEN, OTHER = "a" * 64, "b" * 64
TIMEOUT_S = 7200


@pytest.fixture
def one(rig: Rig) -> Rig:
    rig.enqueue({"a": [], "b": ["a"]})
    return rig


def take(rig: Rig, key: str = "a", **more: Any) -> Taken:
    given = {"actor": ANN, "token_hash": TOKEN, "lease_s": 60.0} | more
    taken: Taken = rig.do(c.Take(task_id=rig.id(key), **given))
    return taken


def extend(rig: Rig, epoch: int = 1, **more: Any) -> Held:
    held: Held = rig.do(c.Extend(task_id=rig.id("a"), epoch=epoch, **({"actor": ANN} | more)))
    return held


def give_back(rig: Rig, epoch: int = 1, **more: Any) -> Moved:
    moved: Moved = rig.do(c.GiveBack(task_id=rig.id("a"), epoch=epoch, **({"actor": ANN} | more)))
    return moved


def test_a_task_is_taken_held_and_done_by_hand(one: Rig) -> None:
    taken = take(one)
    assert (taken.job.epoch, taken.job.title, taken.holder) == (1, "a", ANN)
    assert taken.lease_ends_at_ms == one.clock.now().wall_ms + 60_000
    assert one.views()["a"].why == f"taken by hand, by {ANN}"
    assert [event.actor for event in one.events("a")] == ["ada", ANN, ANN]
    one.register()
    assert one.claim() == (), "no worker gets it meanwhile"
    assert give_back(one, done=True, text='{"n": 1}').status == "COMPLETED"
    assert drive(one.reads.texts(one.id("a"))).result == '{"n": 1}'
    assert [job.key for job in one.claim()] == ["b"]


def test_taking_it_again_with_the_same_token_is_the_same_attempt(one: Rig) -> None:
    first = take(one)
    one.clock.advance(1)
    assert take(one) == first
    with pytest.raises(IllegalMove):
        take(one, token_hash=OTHER)
    assert one.task("a").epoch == 1


def test_no_agent_passes_for_a_person(rig: Rig) -> None:
    with pytest.raises(BadInput, match="by hand"):
        rig.register(agents=("by hand",), general=())


def test_one_whose_process_is_gone_is_given_back_at_once_and_at_no_cost(one: Rig) -> None:
    post = Post(one)
    take(one, holder="77:5")
    post.tick()
    assert one.views()["a"].status == "RUNNING"
    post.host.dead.add(77)
    post.tick()
    task = one.task("a")
    assert (task.status, task.losses, task.lingering_epoch) == ("PENDING", 0, None)
    assert ("kill", f"MUSTER_ATTEMPT={ANN}:{task.id}:1") in one.log
    with pytest.raises(StaleEpoch):
        extend(one)


def test_without_a_lease_it_is_the_configured_one(one: Rig) -> None:
    assert take(one, lease_s=None).lease_ends_at_ms == one.clock.now().wall_ms + 1_800_000


def test_only_what_a_worker_could_have_is_taken(rig: Rig) -> None:
    rig.enqueue({"a": [], "b": ["a"], "late": []}, specs={"late": {"not_before_ms": 2_000_000_000_000}})
    for key in ("b", "late"):
        with pytest.raises(IllegalMove):
            take(rig, key)
    rig.do(c.PausePlan(plan="api", actor="ada"))
    with pytest.raises(IllegalMove, match="plan api is paused"):
        take(rig)
    rig.do(c.ResumePlan(plan="api", actor="ada"))
    with pytest.raises(NotFound):
        rig.do(c.Take(task_id=5, actor=ANN, token_hash=TOKEN))
    with pytest.raises(BadInput, match="worker's name"):
        take(rig, actor=W1)
    take(rig)
    with pytest.raises(IllegalMove):
        take(rig, actor=BOB, token_hash=OTHER)


def test_a_claim_by_hand_counts_for_a_limit() -> None:
    rig = Rig(Policy(lease_s=LEASE_S, limits={"gpu": 1}))
    rig.enqueue({"a": [], "b": []}, specs={key: {"limit_key": "gpu"} for key in "ab"})
    rig.register()
    take(rig)
    assert rig.claim() == ()
    with pytest.raises(IllegalMove, match="gpu"):
        take(rig, "b", token_hash=OTHER)
    give_back(rig)
    assert len(rig.claim()) == 1
    rig.store.close()


def test_given_back_it_costs_nothing_failed_it_costs_a_retry(one: Rig) -> None:
    take(one)
    assert give_back(one).status == "PENDING"
    task = one.task("a")
    assert (task.ready, task.retries, task.losses) == (True, 0, 0)
    take(one)
    assert give_back(one, epoch=2, failed=ErrorKind.CRASH, text="no idea").status == "ABORTED"
    task = one.task("a")
    assert (task.retries, task.error) == (1, "no idea")


def test_a_lease_that_is_over_frees_the_task_and_kills_nobody(one: Rig) -> None:
    post = Post(one)
    one.register()
    take(one, lease_s=20.0)
    for _ in range(3):
        one.beat(W1)
        assert post.ticks(6) == []
    one.beat(W1)
    assert post.ticks(2) == ["Reap"]
    assert (one.task("a").losses, one.statuses()["a"]) == (1, "PENDING")
    assert "nothing was heard of user:ann for 20 s" in one.task("a").error


def test_a_late_renewal_is_accepted_until_somebody_else_has_it(one: Rig) -> None:
    post = Post(one)
    take(one, lease_s=10.0)
    post.ticks(11)
    assert one.statuses()["a"] == "PENDING"
    held = extend(one)
    assert held.lease_ends_at_ms == one.clock.now().wall_ms + 10_000
    assert (one.statuses()["a"], one.task("a").losses) == ("RUNNING", 0)
    post.ticks(11)
    one.register()
    assert len(one.claim()) == 1
    for late in (extend, give_back):
        with pytest.raises(StaleEpoch):
            late(one)


def test_late_but_done_counts_while_nobody_else_has_it(one: Rig) -> None:
    post = Post(one)
    take(one, lease_s=10.0)
    post.ticks(11)
    assert give_back(one, done=True).status == "COMPLETED"
    assert give_back(one, done=True).status == "COMPLETED", "a lost answer is asked for again"
    assert one.names("a").count("completed") == 1


def test_it_is_renewed_without_end_but_not_beyond_the_tasks_own_time(one: Rig) -> None:
    take(one, lease_s=1800.0)
    for _ in range(7):
        one.clock.advance(900)
        extend(one)
    left_s = TIMEOUT_S - 7 * 900
    now_ms = one.clock.now().wall_ms
    assert extend(one).lease_ends_at_ms == now_ms + left_s * 1000, "never longer than the task may take"
    one.clock.advance(left_s)
    with pytest.raises(IllegalMove, match=f"time of {TIMEOUT_S} s"):
        extend(one)
    assert give_back(one, done=True).status == "COMPLETED"


def test_a_renewal_may_change_how_long_a_lease_is(one: Rig) -> None:
    take(one)
    assert extend(one, lease_ms=5_000).lease_ends_at_ms == one.clock.now().wall_ms + 5_000
    assert extend(one).lease_ends_at_ms == one.clock.now().wall_ms + 5_000


@pytest.mark.parametrize("act", [extend, give_back])
def test_nobody_touches_what_another_one_holds(one: Rig, act: Any) -> None:
    take(one)
    with pytest.raises(IllegalMove, match="held by user:ann"):
        act(one, actor=BOB)
    give_back(one)
    one.register()
    one.started()
    with pytest.raises(IllegalMove, match="is an agent's"):
        act(one, epoch=2)
    with pytest.raises(StaleEpoch):
        extend(one, epoch=1)


def test_what_was_never_taken_is_not_given_back(one: Rig) -> None:
    with pytest.raises(Conflict, match="never taken"):
        give_back(one)


def test_a_pause_is_told_to_who_holds_it_and_holds_when_it_is_given_back(one: Rig) -> None:
    take(one)
    one.do(c.Pause(task_id=one.id("a"), actor=BOB))
    assert extend(one).stop is StopAction.PAUSE
    assert give_back(one).status == "PAUSED"


def test_a_restart_of_the_machine_ends_the_lease_and_a_renewal_begins_it_anew(one: Rig) -> None:
    take(one, lease_s=600.0)
    one.clock.restart()
    (claim,) = drive(one.queries.claims())
    assert (claim.expired, claim.by_hand, claim.holder) == (True, True, ANN)
    extend(one)
    (claim,) = drive(one.queries.claims())
    assert (claim.expired, claim.lease_ends_at_ms) == (False, one.clock.now().wall_ms + 600_000)
    assert Post(one).tick() == []


def test_claims_tell_who_holds_what(one: Rig) -> None:
    one.register()
    one.enqueue({"c": []}, plan="other")
    take(one)
    one.claim()
    found = drive(one.queries.claims())
    assert [(claim.plan, claim.key, claim.holder, claim.by_hand) for claim in found] == [
        ("api", "a", ANN, True),
        ("other", "c", W1, False),
    ]
    assert [claim.expired for claim in found] == [False, False]


@pytest.mark.promise("S15")
def test_a_lease_by_hand_begins_anew_where_nobody_could_be_heard(one: Rig) -> None:
    """An owner that was away for longer than the lease has heard nobody: not the holder's fault."""
    take(one, lease_s=60.0)
    one.clock.advance(3600)
    post = Post(one)  # the next owner
    assert "Reap" not in post.ticks(59)
    one.clock.advance(1)
    assert "Reap" in post.tick()
