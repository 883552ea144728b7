"""What every store promises of retention, of settings, and of itself as a whole."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from store_rows import NOW, Subject, make_event, make_task, new_task
from test_store_people import make_agent, make_message, make_token, make_webhook

from muster.model.access import BROWSER
from muster.model.agents import AgentBeat, Condition
from muster.model.commands import AppendLog
from muster.model.errors import BadInput, Conflict, StoreRewound
from muster.model.rows import Workspace
from muster.model.states import TaskStatus
from muster.model.task import Checkpoint, Now
from muster.ports.locks import CREW, TERM, TERM_SHARED, Locks, locks, worker_lock
from muster.ports.store import Transaction

ELSEWHERE = 70
OLD, LATE = NOW.wall_ms, NOW.wall_ms + 1


# -- retention


def test_the_oldest_output_is_dropped_page_by_page(subject: Subject) -> None:
    for offset in range(3):
        subject.write(logs=[AppendLog(task_id=1, epoch=1, stream="stdout", offset=offset, data=b"x")])
    assert not subject.read("anything_old", OLD, 0, 0)
    assert subject.read("anything_old", LATE, 0, 0)
    assert subject.tx("prune_logs", OLD, 10) == 0
    assert (subject.tx("prune_logs", LATE, 2), subject.tx("prune_logs", LATE, 2)) == (2, 1)
    assert subject.read("log", 1, 1, after=0, limit=10) == []


def test_checkpoints_of_what_has_ended_are_dropped(subject: Subject) -> None:
    subject.add(
        (new_task(1)[0], make_task(1, status=TaskStatus.COMPLETED, ended_at_ms=OLD)),
        new_task(2),
    )
    subject.write(checkpoints=[Checkpoint(number, 1, 1, OLD, b"x") for number in (1, 2)])
    assert not subject.read("anything_old", OLD, 0, 0)
    assert subject.read("anything_old", LATE, 0, 0)
    assert (subject.tx("prune_checkpoints", OLD, 10), subject.tx("prune_checkpoints", LATE, 10)) == (0, 1)
    assert subject.read("checkpoint", 1) is None and subject.read("checkpoint", 2) is not None


def test_keys_messages_and_beats_are_dropped_by_age(subject: Subject) -> None:
    subject.tx("add_idempotent", "k", "hash", 1, OLD)
    assert subject.read("anything_old", 0, LATE, 0)
    assert (subject.tx("prune_idempotency", OLD, 10), subject.tx("prune_idempotency", LATE, 10)) == (0, 1)
    assert subject.tx("idempotent", "k") is None
    subject.tx("add_webhook", make_webhook(3), "x")
    subject.tx("add_messages", [make_message(3, "m", "task 1")])
    assert subject.read("anything_old", 0, 11, 0)
    assert (subject.tx("prune_messages", 10, 10), subject.tx("prune_messages", 11, 10)) == (0, 1)
    subject.tx("put_agent", make_agent("claude"))
    subject.tx("add_beat", "claude", AgentBeat(OLD, Condition.HEALTHY, None, None, "", None, None, {}))
    assert subject.read("anything_old", 0, 0, LATE) and not subject.read("anything_old", 0, 0, OLD)
    assert (subject.tx("prune_beats", OLD, 10), subject.tx("prune_beats", LATE, 10)) == (0, 1)


@pytest.mark.parametrize("ended", ["expired", "revoked"])
def test_sessions_of_browsers_are_dropped_once_they_have_ended(subject: Subject, ended: str) -> None:
    times: dict[str, Any] = (
        {"expires_at_ms": OLD} if ended == "expired" else {"expires_at_ms": OLD + 9, "revoked_at_ms": OLD}
    )
    subject.tx("add_token", make_token(1, name=BROWSER, **times), "hash-1")
    subject.tx("add_token", make_token(2, name=BROWSER, expires_at_ms=OLD + 9), "hash-2")
    subject.tx("add_token", make_token(3, name="a program", **times), "hash-3")
    assert not subject.read("anything_old", OLD, 0, 0)
    assert subject.read("anything_old", LATE, 0, 0)
    assert (subject.tx("prune_sessions", OLD, 10), subject.tx("prune_sessions", LATE, 10)) == (0, 1)
    assert [token.id for token in subject.read("tokens")] == [2, 3]


# -- settings


def test_a_setting_is_its_workspaces_own(subject: Subject) -> None:
    subject.tx("add_workspace", Workspace(ELSEWHERE, "other", 5))
    other = subject.of(ELSEWHERE)
    other.tx("set_meta", "pools", "theirs")
    assert (subject.tx("meta", "pools"), subject.tx("meta_to_set", "pools")) == (None, None)
    subject.tx("set_meta", "pools", "ours")
    assert (subject.tx("meta_to_set", "pools"), other.tx("meta_to_set", "pools")) == ("ours", "theirs")
    assert subject.read("every_meta", "pools") == [(1, "ours"), (ELSEWHERE, "theirs")]
    subject.whole("set_store_meta", "pools", "the store's")
    assert subject.whole("store_meta", "pools") == subject.tx("store_meta", "pools") == "the store's"
    assert (subject.read("store_meta", "pools"), subject.read("meta", "pools")) == ("the store's", "ours")
    assert subject.read("store_meta", "nothing") is None
    assert subject.whole("store_metas", ["pools", "nothing"]) == {"pools": "the store's"}


def test_a_store_has_a_name_from_its_beginning(subject: Subject) -> None:
    """S2: whoever proves an epoch names it."""
    assert subject.read("store_meta", "incarnation")


# -- what a transaction holds, and its time


def test_what_is_named_may_be_named_again_and_together(subject: Subject) -> None:
    subject.add(new_task(1), new_task(2, after=((1, False),)))

    async def work(whole: Transaction) -> list[Any]:
        tx = whole.of(1)
        await whole.lock(locks(TERM))
        await tx.lock(TERM_SHARED)
        named = frozenset({CREW, worker_lock("w"), worker_lock("v")})
        for _ in range(2):
            await tx.lock(Locks(named, frozenset(), frozenset({2, 1, 99}), frozenset({1})))
        await tx.lock(Locks())
        return list(await tx.tasks([2, 1]))

    assert {task.id for task in subject.ask(subject.store.transact(work))} == {1, 2}


def test_the_time_of_leases_goes_on_and_is_one_for_all(subject: Subject) -> None:

    async def now(whole: Transaction) -> Now:
        return whole.now(NOW)

    first, second = subject.ask(subject.store.transact(now)), subject.read("now", NOW)
    assert second.boot_id == first.boot_id
    assert second.mono_ms >= first.mono_ms and second.wall_ms >= first.wall_ms
    if not subject.store.shared:
        assert first == second == NOW, "that of the host which writes"


# -- the whole store


def test_a_sound_store_is_found_so(subject: Subject) -> None:
    subject.add_plan()
    subject.write(new_tasks=[new_task(1, lane_id=subject.lane())], events=[make_event(1, 1)])
    assert subject.ask(subject.store.check()) == []
    subject.ask(subject.store.migrate())
    subject.ask(subject.store.look())
    assert subject.store.fault is None
    subject.sql("UPDATE tasks SET unmet = 3 WHERE id = 1")
    findings = subject.ask(subject.store.check())
    assert findings and all("task 1" in finding for finding in findings)


def test_a_backup_is_whole_and_goes_over_nothing(subject: Subject, tmp_path: Path) -> None:
    subject.add_plan()
    target = tmp_path / "copy"
    if not subject.concurrent:
        with pytest.raises(BadInput):
            subject.ask(subject.store.back_up(target, force=False))
        return
    made = subject.ask(subject.store.back_up(target, force=False))
    assert (Path(made.path), made.tasks) == (target, 0) and made.bytes > 0
    with pytest.raises(Conflict):
        subject.ask(subject.store.back_up(target, force=False))
    assert subject.ask(subject.store.back_up(target, force=True)) == made


@pytest.mark.promise("S2")
def test_a_store_that_was_halted_writes_nothing_and_goes_on_reading(subject: Subject) -> None:
    subject.add_plan()
    fault = subject.ask(subject.store.halt("it was rewound"))
    assert isinstance(fault, StoreRewound) and "it was rewound" in fault.message
    assert isinstance(subject.store.fault, StoreRewound)
    with pytest.raises(StoreRewound):
        subject.add(new_task(1))
    assert [plan.name for plan in subject.read("plans")] == ["api"]


def test_a_closed_store_may_be_closed_again(subject: Subject) -> None:
    subject.ask(subject.store.aclose())
    subject.ask(subject.store.aclose())
